//! The link layer on a bench: `remora link` at both ends of the emulated hop.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use remora_base::Rate;
use remora_channel::Duplex;
use remora_host::emulate::{Emulator, Station};

use super::bench::READY;
use super::program::{Program, Start};
use super::scratch::Scratch;
use super::{Result, failed, failed_with};

const BASE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);

/// Both daemons.
#[derive(Debug)]
pub(super) struct Tunnel {
    _base: Program,
    _mobile: Program,
    hop: (Rate, Duplex),
}

impl Tunnel {
    /// Starts both ends and waits until packets pass.
    pub(super) fn start(
        emulator: &Emulator,
        scratch: &Scratch,
        binary: &Path,
        rate: Rate,
        duplex: Duplex,
    ) -> Result<Tunnel> {
        let remora = binary.to_string_lossy();
        let base_key = Key::make(emulator, scratch, &remora, Station::Base)?;
        let mobile_key = Key::make(emulator, scratch, &remora, Station::Mobile(0))?;
        let hop = format!("{}:51900", emulator.addr(Station::Base));
        let shared = if duplex == Duplex::Half { "half" } else { "full" };
        let end = |side: &str, key: &str, address: Ipv4Addr, more: [&str; 4]| {
            let (address, rate) = (format!("{address}/24"), format!("{}bit", rate.bits()));
            let line =
                [&*remora, "link", side, "--key", key, "--address", &address, "--rate", &rate, "--duplex", shared];
            own_run(line.into_iter().chain(more))
        };
        let known = format!("{}={MOBILE}", mobile_key.public);
        let base = end("base", &base_key.path, BASE, ["--listen", &hop, "--mobile", &known]);
        let mobile = end("mobile", &mobile_key.path, MOBILE, ["--base", &hop, "--base-key", &base_key.public]);
        let daemon = |at, name, line: &[String]| Program::start(emulator, scratch, at, &Start::new(name, line));
        let tunnel = Tunnel {
            _base: daemon(Station::Base, "link-base", &base)?,
            _mobile: daemon(Station::Mobile(0), "link-mobile", &mobile)?,
            hop: (rate, duplex),
        };
        tunnel.wait(emulator)?;
        Ok(tunnel)
    }

    /// The base's address in the tunnel.
    pub(super) fn base(&self) -> Ipv4Addr {
        BASE
    }

    /// The mobile's address in the tunnel.
    pub(super) fn mobile(&self) -> Ipv4Addr {
        MOBILE
    }

    /// What the ends were told of the hop.
    pub(super) fn hop(&self) -> (Rate, Duplex) {
        self.hop
    }

    fn wait(&self, emulator: &Emulator) -> Result<()> {
        let deadline = Instant::now() + READY;
        let server = SocketAddr::from((BASE, 2049));
        let connect = || TcpStream::connect_timeout(&server, Duration::from_millis(500));
        while emulator.within(Station::Mobile(0), connect).is_err() {
            if Instant::now() >= deadline {
                return Err(failed(format!(
                    "the link does not come up; {}; {}",
                    self._base.words(),
                    self._mobile.words()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The command line of a program with an empty `/run` that nobody else sees, for control sockets
/// and the like: it is in a mount namespace of its own.
pub(super) fn own_run<'a>(line: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let shell = ["/bin/sh", "-c", "mount -t tmpfs -o mode=755 tmpfs /run && exec \"$@\"", "sh"];
    shell.into_iter().chain(line).map(str::to_owned).collect()
}

/// An end's key.
struct Key {
    path: String,
    public: String,
}

impl Key {
    fn make(emulator: &Emulator, scratch: &Scratch, remora: &str, at: Station) -> Result<Key> {
        let name = format!("{}.key", if at == Station::Base { "base" } else { "mobile" });
        let path = scratch.path(&name).to_string_lossy().into_owned();
        let line = [remora, "link", "keys", "--key", &path].map(str::to_owned);
        let mut program = Program::start(emulator, scratch, at, &Start::new(&name, &line))?;
        match program.ended(Instant::now() + READY)? {
            Some(status) if status.success() => {}
            _ => return Err(failed(program.words())),
        }
        let public = fs::read_to_string(scratch.path("log").join(&name)).map_err(failed_with("a key"))?;
        Ok(Key { path, public: public.trim().to_owned() })
    }
}
