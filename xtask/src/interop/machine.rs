//! The guest: this machine's programs, read-only below an overlay, on a Linux kernel with an NFS client.
//!
//! QEMU's user network needs no privilege: 10.0.2.2 is this machine's loopback, and forwarded ports lead to the guest.
//! 9p shares this machine's root with the guest, so that its programs run there. A second share carries scripts in and
//! their output out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use guest::{BEGIN, CONVERSE, Console, HOST_MODULES, HOST_ROOT, Kernel, Scratch, Talk};

use super::kernel_server::Ports;
use super::outcome::Ended;
use super::step::{Mount, Step};
use crate::cmd::Result;

/// Limit for booting: QEMU interprets every instruction.
const BOOT: Duration = Duration::from_secs(180);
/// Time for the guest to kill a script that exceeded its limit.
const KILL: Duration = Duration::from_secs(30);
const MEMORY_MIB: u32 = 1024;
const PROCESSORS: u32 = 2;

/// Kernel modules for this machine's programs and for a server.
pub(super) fn modules() -> Vec<&'static str> {
    HOST_MODULES.into_iter().chain(["auth_rpcgss", "nfsd"]).collect()
}

/// Shell lines between [`BEGIN`] and [`CONVERSE`]. A failure powers the guest off.
fn prepare() -> String {
    let io = guest::mount_share("io", "/new/interop/io");
    format!(
        "
prepare() {{
set -e
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
{HOST_ROOT}
mkdir -p /new/interop
mount -t tmpfs interop /new/interop
{io}
}}
( prepare ) || poweroff -f
"
    )
}

/// Prelude of every script. `not` expects its command to fail: `sh -e` ignores the failure of `! command`.
const PRELUDE: &str = "\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
io=/interop/io
not() { if \"$@\" 2> /dev/null; then echo \"succeeds: $*\" >&2; exit 1; fi; }
set -eux
";

/// A running guest. Dropping it ends the guest.
#[derive(Debug)]
pub(super) struct Machine {
    qemu: Child,
    console: Console<ChildStdin>,
    /// This machine's end of the second share.
    io: PathBuf,
}

impl Machine {
    /// Boots a guest, with `ports` forwarded to it if given. QEMU's own messages go to `log`.
    pub(super) fn boot(kernel: &Kernel, ports: Option<Ports>, scratch: &Scratch, log: &Path) -> Result<Machine> {
        let (initrd, io) = (scratch.path("initrd"), scratch.path("io"));
        guest::write_initramfs(&initrd, kernel, &format!("{BEGIN}{}{CONVERSE}", prepare()))?;
        // QEMU must end with this process, even if this process is killed.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL"]).args(kernel.command_line(&initrd, MEMORY_MIB, PROCESSORS));
        qemu.args([
            "-rtc",
            "base=utc",
            "-netdev",
            &format!("user,id=n{}", ports.map(Ports::forwards).unwrap_or_default()),
        ]);
        qemu.args(["-device", "virtio-net-pci,netdev=n"]);
        qemu.args(guest::share_root()).args(guest::share("io", &io));
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut qemu = qemu.spawn().map_err(|e| format!("cannot start QEMU: {e}"))?;
        let (Some(input), Some(output)) = (qemu.stdin.take(), qemu.stdout.take()) else {
            return Err("QEMU has no console".into());
        };
        let console = Console::new(input, Talk::new(output)?, Instant::now() + BOOT);
        let console = console.map_err(|e| {
            let _ = qemu.kill();
            let _ = qemu.wait();
            let said = fs::read_to_string(log).unwrap_or_default();
            format!("the guest does not boot: {e} {}", said.trim())
        })?;
        Ok(Machine { qemu, console, io })
    }

    /// Mounts the export at `port` twice: at its name, and beside it without a shared cache.
    pub(super) fn mount(&mut self, mount: Mount, port: u16) -> Result {
        let (name, export) = mount.names();
        let both = [(name.to_owned(), mount.options()), (format!("other-{name}"), "nosharecache")];
        for (name, options) in both {
            let line = format!(
                "mkdir /new/interop/{name} && mount -t nfs -o vers=3,proto=tcp,nolock,hard,port={port},mountport={port},\
                 mountproto=tcp,addr=10.0.2.2,{options} 10.0.2.2:/{export} /new/interop/{name}"
            );
            match self.console.run(&line, Instant::now() + BOOT)? {
                Some(0) => {}
                _ => return Err(format!("cannot mount {name}: {}", self.console.said().trim()).into()),
            }
        }
        Ok(())
    }

    /// Runs a step on a mount. Its script has the variables `told` and those of the step.
    pub(super) fn run(&mut self, step: &Step, mount: Mount, told: &str) -> Result<Ended> {
        let (name, (mount, _)) = (step.name, mount.names());
        let place = format!("dir=/interop/{mount}/{name}\nother=/interop/other-{mount}/{name}\nmkdir $dir\ncd $dir\n");
        self.script(name, &format!("{told}\n{}\n{place}{}", step.told, step.script), step.seconds_max)
    }

    /// Runs a script for at most `seconds_max`. Its output is in `step.log` of the share. After an error the guest is
    /// unusable.
    pub(super) fn script(&mut self, name: &str, script: &str, limit: u64) -> Result<Ended> {
        fs::write(self.io.join("step.sh"), format!("{PRELUDE}{script}"))?;
        let line = format!(
            "chroot /new /usr/bin/timeout -s KILL {limit} \
             /bin/sh /interop/io/step.sh </dev/null >/new/interop/io/step.log 2>&1"
        );
        let limit = Duration::from_secs(limit);
        match self.console.run(&line, Instant::now() + limit + KILL)? {
            Some(0) => Ok(Ended::Well),
            // Exit codes of timeout(1) after a kill, and of a shell whose command was killed.
            Some(124 | 137) => Ok(Ended::Late),
            Some(code) => Ok(Ended::Badly(code)),
            None => Err(format!("the guest is stuck in {name}").into()),
        }
    }

    pub(super) fn io(&self) -> &Path {
        &self.io
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The guest has nothing to save.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
