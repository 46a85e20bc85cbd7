//! The link layer on a bench: `remora link` at both ends of the emulated hop.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use guest::Scratch;
use remora_base::Rate;
use remora_channel::{Config, Duplex};
use remora_host::emulate::{Emulator, Station};
use remora_host::handoff::Signal;
use remora_host::link::control;

use super::program::{self, Program, READY, Result, Start, failed, failed_with};

const BASE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

#[derive(Debug)]
pub(super) struct Tunnel {
    base: Program,
    mobiles: Vec<Program>,
    hop: Hop,
    mobile_run: PathBuf,
}

/// The properties of a hop that a link is configured with or learns.
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
    /// The base's address in the tunnel.
    pub(super) const BASE: Ipv4Addr = BASE;

    /// Starts all ends and waits until packets pass.
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch, binary: &Path, hop: Hop) -> Result<Tunnel> {
        let remora = binary.to_string_lossy();
        let base_key = Key::make(emulator, scratch, &remora, Station::Base)?;
        let mobiles = emulator.setup().mobiles;
        let mobile_keys = (0..mobiles)
            .map(|m| Key::make(emulator, scratch, &remora, Station::Mobile(m)))
            .collect::<Result<Vec<_>>>()?;
        let call = format!("{}:51900", emulator.addr(Station::Base));
        let shared = if hop.duplex == Duplex::Half { "half" } else { "full" };
        let end = |at: Station, key: &Key, address: Ipv4Addr, more: &[&str]| {
            let (address, rate) = (format!("{address}/24"), format!("{}bit", hop.rate.bits()));
            let side = if at == Station::Base { "base" } else { "mobile" };
            let line = [&*remora, "link", side, "--key", &key.path, "--address", &address, "--rate", &rate];
            let line = line.into_iter().chain(["--duplex", shared]).chain(more.iter().copied());
            own_run(&scratch.path(format!("run-{}", name_of(at))), line)
        };
        let known: Vec<String> =
            mobile_keys.iter().enumerate().map(|(m, key)| format!("{}={}", key.public, Tunnel::mobile(m))).collect();
        let knows = known.iter().flat_map(|mobile| ["--mobile", mobile.as_str()]);
        let base =
            end(Station::Base, &base_key, BASE, &["--listen", &call].into_iter().chain(knows).collect::<Vec<_>>());
        // The mobile's end announces cell switches to the programs on this bench only; on the base's side there are
        // none.
        let daemon = |at: Station, line: &[String]| {
            let mut environment = program::environment(scratch);
            if at == Station::Base {
                environment.push((program::HAND_OFF_DIR, scratch.path("nobody").to_string_lossy().into_owned()));
            }
            let name = format!("link-{}", name_of(at));
            Program::start(emulator, scratch, at, &Start { environment: &environment, ..Start::new(&name, line) })
        };
        let base = daemon(Station::Base, &base)?;
        let mobile = |(m, key): (usize, &Key)| {
            let calls = ["--base", &call, "--base-key", &base_key.public];
            daemon(Station::Mobile(m), &end(Station::Mobile(m), key, Tunnel::mobile(m), &calls))
        };
        let tunnel = Tunnel {
            base,
            mobiles: mobile_keys.iter().enumerate().map(mobile).collect::<Result<Vec<_>>>()?,
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

    /// A mobile's address in the tunnel.
    pub(super) fn mobile(mobile: usize) -> Ipv4Addr {
        let [a, b, c, base] = BASE.octets();
        Ipv4Addr::new(a, b, c, base.saturating_add(1).saturating_add(u8::try_from(mobile).unwrap_or(u8::MAX)))
    }

    /// The hop it was made for.
    pub(super) fn hop(&self) -> Hop {
        self.hop
    }

    pub(super) fn must_run(&mut self) -> Result<()> {
        self.base.must_run()?;
        self.mobiles.iter_mut().try_for_each(Program::must_run)
    }

    /// Signals a cell switch to the mobile's end, as `remora link handoff` does. It informs the other end and the
    /// programs on the mobile.
    pub(super) fn hand_off(&self, signal: Signal) -> io::Result<()> {
        let sockets = control::sockets(&self.mobile_run.join("remora/link"))?;
        let socket = sockets.first().ok_or(io::ErrorKind::NotFound)?;
        control::hand_off(socket, signal)
    }

    fn wait(&self, emulator: &Emulator) -> Result<()> {
        let deadline = Instant::now() + READY;
        let server = SocketAddr::from((BASE, 2049));
        // Several round-trip times: the link may have to measure the hop first.
        let patience = Duration::from_millis(500) + 8 * self.hop.delay;
        let connect = || TcpStream::connect_timeout(&server, patience);
        for (m, mobile) in self.mobiles.iter().enumerate() {
            while emulator.within(Station::Mobile(m), connect).is_err() {
                if Instant::now() >= deadline {
                    let (base, mobile) = (self.base.words(), mobile.words());
                    return Err(failed(format!("the link did not come up; {base}; {mobile}")));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// The command line of a program in a mount namespace in which `run` is `/run`.
pub(crate) fn own_run<'a>(run: &Path, line: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let shell = ["/bin/sh", "-c", "mount --bind \"$0\" /run && exec \"$@\""].map(str::to_owned).into_iter();
    shell.chain([run.to_string_lossy().into_owned()]).chain(line.into_iter().map(str::to_owned)).collect()
}

fn name_of(at: Station) -> String {
    match at {
        Station::Base => "base".to_owned(),
        Station::Mobile(0) => "mobile".to_owned(),
        Station::Mobile(other) => format!("mobile-{other}"),
    }
}

struct Key {
    path: String,
    public: String,
}

impl Key {
    fn make(emulator: &Emulator, scratch: &Scratch, remora: &str, at: Station) -> Result<Key> {
        let name = format!("{}.key", name_of(at));
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
