//! The link layer on a bench: `remora link` at both ends of the emulated hop.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remora_base::Rate;
use remora_channel::{Config, Duplex};
use remora_host::emulate::{Emulator, Station};
use remora_host::handoff::Signal;
use remora_host::link::control;

use super::bench::READY;
use super::carrier;
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
    hop: Hop,
    /// Where the mobile's `/run` really is.
    mobile_run: PathBuf,
}

/// What a link is told of its hop, and what it learns of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hop {
    rate: Rate,
    duplex: Duplex,
    delay: Duration,
}

impl Hop {
    pub(super) fn of(channel: &Config) -> Hop {
        Hop { rate: channel.rate, duplex: channel.duplex, delay: channel.delay }
    }
}

impl Tunnel {
    /// Starts both ends and waits until packets pass.
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch, binary: &Path, hop: Hop) -> Result<Tunnel> {
        let remora = binary.to_string_lossy();
        let base_key = Key::make(emulator, scratch, &remora, Station::Base)?;
        let mobile_key = Key::make(emulator, scratch, &remora, Station::Mobile(0))?;
        let call = format!("{}:51900", emulator.addr(Station::Base));
        let shared = if hop.duplex == Duplex::Half { "half" } else { "full" };
        let end = |side: &str, key: &str, address: Ipv4Addr, more: [&str; 4]| {
            let (address, rate) = (format!("{address}/24"), format!("{}bit", hop.rate.bits()));
            let run = scratch.path(format!("run-{side}"));
            let line =
                [&*remora, "link", side, "--key", key, "--address", &address, "--rate", &rate, "--duplex", shared];
            own_run(&run, line.into_iter().chain(more))
        };
        let known = format!("{}={MOBILE}", mobile_key.public);
        let base = end("base", &base_key.path, BASE, ["--listen", &call, "--mobile", &known]);
        let mobile = end("mobile", &mobile_key.path, MOBILE, ["--base", &call, "--base-key", &base_key.public]);
        // The mobile's end tells the programs on this bench of cell switches, and nobody else; on
        // the base's side there are none to be told.
        let daemon = |at, name: &str, line: &[String]| {
            let mut environment = carrier::environment(scratch);
            if at == Station::Base {
                environment.push((carrier::HAND_OFF_DIR, scratch.path("nobody").to_string_lossy().into_owned()));
            }
            Program::start(emulator, scratch, at, &Start { environment: &environment, ..Start::new(name, line) })
        };
        let tunnel = Tunnel {
            _base: daemon(Station::Base, "link-base", &base)?,
            _mobile: daemon(Station::Mobile(0), "link-mobile", &mobile)?,
            hop,
            mobile_run: scratch.path("run-mobile"),
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

    /// The hop it was made for.
    pub(super) fn hop(&self) -> Hop {
        self.hop
    }

    /// Tells the mobile's end of a cell switch, as `remora link handoff` does. It tells the other
    /// end, and the programs on the mobile.
    pub(super) fn hand_off(&self, signal: Signal) -> io::Result<()> {
        let sockets = control::sockets(&self.mobile_run.join("remora/link"))?;
        let socket = sockets.first().ok_or(io::ErrorKind::NotFound)?;
        control::hand_off(socket, signal)
    }

    fn wait(&self, emulator: &Emulator) -> Result<()> {
        let deadline = Instant::now() + READY;
        let server = SocketAddr::from((BASE, 2049));
        // Several round trips: the link may have to find out first how long the hop is.
        let patience = Duration::from_millis(500) + 8 * self.hop.delay;
        let connect = || TcpStream::connect_timeout(&server, patience);
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

/// The command line of a program to which the directory `run` is `/run`, for control sockets and
/// the like: it is in a mount namespace of its own.
pub(crate) fn own_run<'a>(run: &Path, line: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let shell = ["/bin/sh", "-c", "mount --bind \"$0\" /run && exec \"$@\""].map(str::to_owned).into_iter();
    shell.chain([run.to_string_lossy().into_owned()]).chain(line.into_iter().map(str::to_owned)).collect()
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
