//! A guest with the Linux kernel's NFS client: QEMU in the mobile's namespace.
//!
//! Its network device has no offloads, so that the guest's TCP itself crosses the emulated link. The crate
//! `guest` boots it.

use std::fs;
use std::net::Ipv4Addr;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use guest::{BEGIN, CONVERSE, Console, Kernel, Scratch};
use remora_host::emulate::{DEVICE, Emulator, Station};
use remora_sim::copy::Direction;

use super::program::{Files, Program, Result, Start, failed, failed_with, ip};
use crate::wireless::cell::RunError;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const TAP: &str = "guest0";
/// Boot time limit: every instruction is interpreted.
const BOOT: Duration = Duration::from_secs(120);
/// Time limit of an unmeasured command.
const COMMAND: Duration = Duration::from_secs(60);
/// TCP metrics are not kept between connections, as on the other side.
pub(crate) const FORGET: &str = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save\n";

/// Without offloads: the link gets the guest's TCP packet by packet.
const NETWORK_CARD: &str = "virtio-net-pci,netdev=n,gso=off,csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,\
                            guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";

#[derive(Debug)]
pub(super) struct Guest {
    qemu: Program,
    console: Console<ChildStdin>,
    server: Ipv4Addr,
    exported: std::path::PathBuf,
}

impl Guest {
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch, kernel: &Kernel) -> Result<Guest> {
        let line = command_line(emulator, scratch, kernel, 256, &format!("{BEGIN}{FORGET}{CONVERSE}"))?;
        let start = Start { talks: true, ..Start::new("guest", &line) };
        let mut qemu = Program::start(emulator, scratch, Station::Mobile(0), &start)?;
        let talk = qemu.talk()?;
        let input = qemu.input().ok_or_else(|| failed("the guest has no console".into()))?;
        let console = Console::new(input, talk, Instant::now() + BOOT);
        let console = console.map_err(|e| failed(format!("the guest does not boot: {e}; {}", qemu.words())))?;
        let server = emulator.addr(Station::Base);
        let mut guest = Guest { qemu, console, server, exported: scratch.path("srv") };
        guest.must(&address())?;
        Ok(guest)
    }

    /// Mounts again and loads a file to write into the guest's memory.
    pub(super) fn prepare(&mut self, direction: Direction, files: &Files) -> Result<()> {
        if direction == Direction::Write {
            let inbound = self.exported.join("inbound");
            fs::copy(files.source(direction), &inbound).map_err(failed_with("the file to be copied"))?;
            self.mount()?;
            self.must(&format!("cp /mnt/inbound /tmp/{} && umount /mnt", files.name))?;
            let _ = fs::remove_file(inbound);
        }
        self.must("sync; echo 3 > /proc/sys/vm/drop_caches")?;
        self.mount()
    }

    /// Runs the measured copy. Returns whether it ended in time.
    pub(super) fn copy(&mut self, direction: Direction, files: &Files, limit: Instant) -> Result<bool> {
        let name = &files.name;
        let line = match direction {
            Direction::Read => format!("cp /mnt/{name} /tmp/{name}"),
            Direction::Write => format!("cp /tmp/{name} /mnt/{name} && sync"),
        };
        match self.run(&line, limit)? {
            None => Ok(false),
            Some(0) => Ok(true),
            Some(code) => Err(self.refusal(&line, code)),
        }
    }

    /// Writes the file and saves a file of 100 bytes every 0.3 s. Returns the latencies in seconds by the guest's
    /// clock (10 ms resolution); `None` if the writes did not end in time.
    pub(super) fn copy_beside_small(&mut self, files: &Files, limit: Instant) -> Result<Option<Vec<f64>>> {
        let name = &files.name;
        let small = format!(
            "read a x </proc/uptime; printf %0100d 0 >/mnt/{name}-$i; read b x </proc/uptime; echo guest-took $a $b"
        );
        let line = format!(
            "cp /tmp/{name} /mnt/{name} & c=$!; i=0; \
             while kill -0 $c 2>/dev/null; do i=$((i+1)); ( {small} ) & sleep 0.3; done; wait $c && wait"
        );
        match self.run(&line, limit)? {
            None => return Ok(None),
            Some(0) => {}
            Some(code) => return Err(self.refusal(&line, code)),
        }
        let took = |line: &str| {
            let (began, ended) = line.strip_prefix("guest-took ")?.split_once(' ')?;
            Some(ended.parse::<f64>().ok()? - began.parse::<f64>().ok()?)
        };
        Ok(Some(self.console.said().lines().filter_map(took).collect()))
    }

    /// Fetches a file that was read from the guest and frees its memory.
    pub(super) fn finish(&mut self, direction: Direction, files: &Files) -> Result<()> {
        if direction == Direction::Read {
            self.must(&format!("cp /tmp/{} /mnt/outbound && sync", files.name))?;
            let outbound = self.exported.join("outbound");
            fs::rename(outbound, files.copy(direction)).map_err(failed_with("the guest's copy"))?;
        }
        self.must(&format!("umount /mnt; rm -f /tmp/{}", files.name))
    }

    fn mount(&mut self) -> Result<()> {
        self.must(&mount(self.server, "/mnt"))
    }

    fn must(&mut self, line: &str) -> Result<()> {
        match self.run(line, Instant::now() + COMMAND)? {
            Some(0) => Ok(()),
            Some(code) => Err(self.refusal(line, code)),
            None => Err(failed(format!("the guest's {line} does not finish in time"))),
        }
    }

    fn refusal(&self, line: &str, code: u8) -> RunError {
        failed(format!("the guest's {line} ended with {code}: {}", self.console.said().trim().replace('\n', "; ")))
    }

    /// Runs a shell line. `None` if it does not end in time.
    fn run(&mut self, line: &str, limit: Instant) -> Result<Option<u8>> {
        self.console.run(line, limit).map_err(|e| failed(format!("the guest: {e}; {}", self.qemu.words())))
    }
}

/// The shell line that mounts the server's directory; for busybox.
pub(crate) fn mount(server: Ipv4Addr, at: &str) -> String {
    format!(
        "mount -t nfs -o vers=3,proto=tcp,nolock,hard,port=2049,mountport=2049,mountproto=tcp,addr={server} {server}:/ {at}"
    )
}

/// The shell line that gives the guest its address.
pub(crate) fn address() -> String {
    format!("ip addr add {GUEST}/30 dev eth0 && ip route add default via {HOST}")
}

/// QEMU's command line for a guest of one processor on the emulated link, whose first process is `init`.
pub(crate) fn command_line(
    emulator: &Emulator,
    scratch: &Scratch,
    kernel: &Kernel,
    memory_mib: u32,
    init: &str,
) -> Result<Vec<String>> {
    connect(emulator)?;
    let initrd = scratch.path("initrd");
    guest::write_initramfs(&initrd, kernel, init).map_err(failed_with("the guest's files"))?;
    let mut line = kernel.command_line(&initrd, memory_mib, 1);
    let tap = format!("tap,id=n,ifname={TAP},script=no,downscript=no");
    line.extend(["-netdev", &tap, "-device", NETWORK_CARD].map(str::to_owned));
    Ok(line)
}

/// A TAP device for the guest in the mobile's namespace, and the route to it from the base.
fn connect(emulator: &Emulator) -> Result<()> {
    let mobile = Station::Mobile(0);
    // A device of an earlier guest may remain.
    let _ = ip(emulator, mobile, &format!("link del {TAP}"));
    ip(emulator, mobile, &format!("tuntap add dev {TAP} mode tap"))?;
    ip(emulator, mobile, &format!("addr add {HOST}/30 dev {TAP}"))?;
    ip(emulator, mobile, &format!("link set {TAP} up"))?;
    ip(emulator, Station::Base, &format!("route replace {GUEST}/32 dev {DEVICE}"))
}
