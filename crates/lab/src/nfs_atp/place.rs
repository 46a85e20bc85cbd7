//! A link, a server on its base side, a client on the mobile.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::{Guests, Identity, PublicKey};
use remora_base::{Rate, Time};
use remora_channel::Config;
use remora_client::Transport;
use remora_host::Clock;
use remora_host::atp::keys;
use remora_host::client::{self, Keys, Target};
use remora_host::emulate::{Emulator, Setup, Station};
use remora_host::server::{self, Objects, Serving};
use remora_server::{Access, Export, Exports, Squash, Terms};
use remora_vfs::{MemFs, Vfs};

use super::workload::{self, Measured};
use super::{Carrier, Error, Options, channel, failed};

/// What was measured on one.
pub(super) struct Place {
    pub(super) carrier: Carrier,
    pub(super) calls: Vec<Measured>,
    /// The latest a frame was handed over.
    pub(super) lateness: Duration,
}

/// Where the server is, and who.
struct Server {
    serving: Serving,
    at: SocketAddr,
    key: PublicKey,
}

/// Everything, from the link to the last answer; `tick` is called with each small call.
pub(super) fn measure(carrier: Carrier, options: &Options, tick: &(dyn Fn() + Sync)) -> Result<Place, Error> {
    let weather = channel(options)?;
    // Mounted in fair weather.
    let fair = Config { rate: Rate::mbit(100), delay: weather.delay, ..Config::default() };
    let setup = Setup { config: fair, ..Setup::default() };
    let mut emulator = Emulator::start(setup).map_err(failed("the emulator"))?;
    let base = IpAddr::V4(emulator.addr(Station::Base));
    let identity = keys::generate().map_err(failed("a key"))?;
    let server = emulator.within(Station::Base, || serve(base, carrier, identity)).map_err(failed("the server"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("a runtime"))?;
    let mounting = || runtime.block_on(mount(&server, carrier, options.seed)).map_err(io::Error::other);
    let (session, fh) = emulator.within(Station::Mobile(0), mounting).map_err(failed("mounting"))?;
    emulator.begin(weather, options.seed).map_err(failed("the emulator"))?;
    let began = emulator.clock().map_err(failed("the emulator"))?.instant(Time::ZERO);
    // Within, because a connection that has to be made again is made from there.
    let work = || Ok(runtime.block_on(workload::run(&session, &fh, began, options.length, tick)));
    let calls = emulator.within(Station::Mobile(0), work).map_err(failed("the calls"))?;
    let report = emulator.report().map_err(failed("the emulator"))?;
    drop(session);
    drop(server.serving);
    if let Some(lost) = report.lost() {
        return Err(failed("the emulator")(lost));
    }
    Ok(Place { carrier, calls, lateness: report.lateness.max })
}

/// Serves a directory in memory, as everybody's.
fn serve(at: IpAddr, carrier: Carrier, identity: Identity) -> io::Result<Server> {
    let disk: Arc<dyn Vfs> = Arc::new(MemFs::new(1));
    let access = Access::everybody(Terms { squash: Squash::None, ..Terms::default() });
    let export = Export { access, ..Export::new("/", disk) };
    let exports = Arc::new(Exports::new(vec![export], &[7; 16]).map_err(io::Error::other)?);
    let core = remora_server::Config::new(exports);
    let key = identity.public();
    let objects = Objects { listen: SocketAddr::new(at, 4049), identity, guests: Guests::Anyone };
    let listen = vec![SocketAddr::new(at, remora_wire::nfs3::PORT)];
    let options = server::Options { listen, objects: Some(objects), ..server::Options::new(core) };
    let serving = Serving::start(options).map_err(io::Error::other)?;
    let port = match carrier {
        Carrier::Atp => 4049,
        Carrier::Tcp => remora_wire::nfs3::PORT,
    };
    Ok(Server { serving, at: SocketAddr::new(at, port), key })
}

async fn mount(
    server: &Server,
    carrier: Carrier,
    seed: u64,
) -> Result<(client::Session, remora_wire::nfs3::Fh), client::ClientError> {
    let (transport, keys) = match carrier {
        Carrier::Atp => (Transport::Atp, Some(Keys { server: server.key, own: None })),
        Carrier::Tcp => (Transport::Tcp, None),
    };
    let (host, port) = (server.at.ip().to_string(), Some(server.at.port()));
    let target = Target { host, port, mount_port: None, transport: Some(transport), keys, path: "/".into() };
    let options = client::Options { config: remora_client::Config::new(transport), seed, clock: Clock::start() };
    let session = client::mount(&target, "/", options).await?;
    let fh = workload::file(&session).await?;
    Ok((session, fh))
}
