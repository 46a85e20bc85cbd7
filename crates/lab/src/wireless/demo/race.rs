//! A race: the server, its relays, and one copy by each client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use indicatif::{MultiProgress, ProgressBar};
use remora_base::{Rng, Time};
use remora_client::{ClientConfig, ClientStats, Transport};
use remora_host::Clock;
use remora_host::client::{ClientError, Options as Mounting, Session, Target, TransferLimits, download, mount, upload};
use remora_host::relay::{Relay, RelayError};
use remora_host::server::{Serving, StartError};
use remora_server::{Export, Exports, ExportsError};
use remora_vfs::LocalDisk;
use remora_vfs::local::Options as LocalOptions;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr};
use serde::Serialize;
use tempfile::TempDir;

use super::options::{CopyDirection, Options, Racer, SAMPLE_BYTES, floor_seconds, link, racers};
use crate::report::progress::{style, target};

/// Block sizes that fit in a datagram.
const LIMITS: TransferLimits = TransferLimits { read_max: 32 << 10, write_max: 32 << 10 };

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    Done,
    Stopped,
}

#[derive(Clone, Debug, Serialize)]
pub struct LegResult {
    pub racer: &'static str,
    pub way: CopyDirection,
    pub finish: Finish,
    /// From the first request to the last reply, or to the time limit.
    pub seconds: f64,
    pub floor_seconds: Option<f64>,
    pub ratio: Option<f64>,
    pub bytes: u64,
    pub retransmissions: u64,
    /// NULL calls that tested whether the link was up.
    pub probes: u64,
    /// The copy's hash equals the file's; `None` if it was stopped.
    pub intact: Option<bool>,
    /// Largest lateness of the relay, in milliseconds.
    pub lateness_ms: f64,
    /// Seconds and bytes.
    #[serde(skip)]
    pub curve: Vec<(f64, u64)>,
    #[serde(skip)]
    pub began: Time,
}

#[derive(Clone)]
struct ProgressCurve {
    clock: Clock,
    began: Time,
    bar: ProgressBar,
    points: Arc<Mutex<Vec<(f64, u64)>>>,
}

impl ProgressCurve {
    fn add(&self, bytes: u64, stats: ClientStats) {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let total = points.last().map_or(0, |p| p.1) + bytes;
        points.push((self.clock.now().since(self.began).as_secs_f64(), total));
        self.bar.set_position(total);
        self.bar.set_message(format!("{} sent again", stats.retransmissions));
    }

    fn take(&self) -> Vec<(f64, u64)> {
        std::mem::take(&mut *self.points.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) async fn run(
    stage: &RaceStage,
    racer: &Racer,
    way: CopyDirection,
    clock: Clock,
    options: &Options,
    bar: ProgressBar,
) -> Result<LegResult, DemoError> {
    let failed = |source| DemoError::Client { racer: racer.name, way, source };
    let relay =
        Relay::start((Ipv4Addr::LOCALHOST, 0).into(), stage.server(), link(options.bad_mean), options.seed, clock)?;
    let session = mount_through(stage.server(), relay.addr(), &racer.config, options.seed).await.map_err(failed)?;
    let began = clock.now();
    let curve = ProgressCurve { clock, began, bar: bar.clone(), points: Arc::default() };
    let copied = tokio::time::timeout(options.limit, copy(stage, &session, racer, way, &curve)).await;
    let seconds = clock.now().since(began).as_secs_f64();
    let (finish, intact) = match copied {
        Ok(result) => (Finish::Done, Some(result.map_err(failed)?)),
        Err(_) => (Finish::Stopped, None),
    };
    bar.abandon_with_message(ending(finish, seconds, session.stats()));
    let curve = curve.take();
    let floor = floor_seconds(&link(options.bad_mean), options.seed, stage.len(), began);
    let lateness = relay.progress().iter().map(|p| p.lateness).max().unwrap_or(Duration::ZERO);
    let stats = session.stats();
    Ok(LegResult {
        racer: racer.name,
        way,
        finish,
        seconds,
        floor_seconds: floor,
        ratio: floor.filter(|f| finish == Finish::Done && *f > 0.0).map(|f| seconds / f),
        bytes: curve.last().map_or(0, |p| p.1),
        retransmissions: stats.retransmissions,
        probes: stats.probes,
        intact,
        lateness_ms: lateness.as_secs_f64() * 1e3,
        curve,
        began,
    })
}

fn ending(finish: Finish, seconds: f64, stats: ClientStats) -> String {
    let word = match finish {
        Finish::Done => "done in",
        Finish::Stopped => "stopped after",
    };
    format!("{word} {seconds:.1} s, {} sent again", stats.retransmissions)
}

/// Mounts at the server itself; NFS then goes through the relay.
async fn mount_through(
    server: SocketAddr,
    relay: SocketAddr,
    config: &ClientConfig,
    seed: u64,
) -> Result<Session, ClientError> {
    let target = Target {
        host: relay.ip().to_string(),
        port: Some(relay.port()),
        mount_port: Some(server.port()),
        transport: Some(Transport::Udp),
        keys: None,
        path: "/".into(),
    };
    mount(&target, "/", Mounting { config: config.clone(), seed, clock: Clock::start() }).await
}

/// Copies the file. Returns whether the copy is intact.
async fn copy(
    stage: &RaceStage,
    session: &Session,
    racer: &Racer,
    way: CopyDirection,
    curve: &ProgressCurve,
) -> Result<bool, ClientError> {
    match way {
        CopyDirection::Write => write(stage, session, racer, curve).await,
        CopyDirection::Read => read(stage, session, curve).await,
    }
}

async fn write(
    stage: &RaceStage,
    session: &Session,
    racer: &Racer,
    curve: &ProgressCurve,
) -> Result<bool, ClientError> {
    let name = format!("written by {}", racer.name);
    let at = DirOp { dir: session.root().clone(), name: Bytes::from(name.clone().into_bytes()) };
    let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let fh = match session.ok(Call::Create(CreateArgs { at, how })).await? {
        Reply::Create(Ok(made)) => made.fh,
        _ => None,
    };
    let fh = fh.ok_or(ClientError::Closed)?;
    let source = |p: std::ops::Range<u64>| Ok(stage.file().slice(p.start as usize..p.end as usize));
    upload(session, fh, 0..stage.len(), LIMITS, source, |n| curve.add(n, session.stats())).await?;
    // Read from the server's disk, not through the client that wrote it.
    let there = std::fs::read(stage.directory().join(name))?;
    Ok(blake3::hash(&there) == blake3::hash(stage.file()))
}

async fn read(stage: &RaceStage, session: &Session, curve: &ProgressCurve) -> Result<bool, ClientError> {
    let (fh, size) = look_up(session, SAMPLE).await?;
    let mut here = vec![0; stage.file().len()];
    let end = download(session, fh, 0..size, LIMITS, |offset, data| {
        let at = offset as usize;
        let place = here.get_mut(at..at + data.len()).ok_or(std::io::ErrorKind::InvalidData)?;
        place.copy_from_slice(&data);
        curve.add(data.len() as u64, session.stats());
        Ok(())
    })
    .await?;
    Ok(end == stage.len() && blake3::hash(&here) == blake3::hash(stage.file()))
}

async fn look_up(session: &Session, name: &'static str) -> Result<(Fh, u64), ClientError> {
    let call = Call::Lookup(DirOp { dir: session.root().clone(), name: Bytes::from_static(name.as_bytes()) });
    let Reply::Lookup(Ok(found)) = session.ok(call).await? else { return Err(ClientError::Closed) };
    let attr = found.attr.ok_or(ClientError::Closed)?;
    Ok((found.fh, attr.size))
}

/// A progress bar for each racer of one way.
pub(super) struct Bars {
    all: MultiProgress,
    bytes: u64,
}

impl Bars {
    pub(super) fn new(way: CopyDirection, bytes: u64, shown: bool) -> Bars {
        let all = MultiProgress::with_draw_target(target(shown));
        let title = match way {
            CopyDirection::Write => "Writing to the server",
            CopyDirection::Read => "Reading from the server",
        };
        // A hidden target discards the line.
        let _ = all.println(title);
        Bars { all, bytes }
    }

    pub(super) fn bar(&self, name: &'static str) -> ProgressBar {
        let bar = self.all.add(ProgressBar::new(self.bytes));
        bar.set_style(style("{prefix:21} {wide_bar:.green} {bytes:>10} {bytes_per_sec:>12} {msg}"));
        bar.set_prefix(name);
        bar
    }
}

/// Name of the file on the server.
pub(super) const SAMPLE: &str = "sample";

const FILE_MAX: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot set up the server's directory: {0}")]
    Directory(io::Error),
    #[error(transparent)]
    Exports(#[from] ExportsError),
    #[error(transparent)]
    Server(#[from] StartError),
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error("{racer} could not {}: {source}", match way { CopyDirection::Write => "write", CopyDirection::Read => "read" })]
    Client { racer: &'static str, way: CopyDirection, source: ClientError },
    #[error("cannot write the report {}: {source}", path.display())]
    Report { path: PathBuf, source: io::Error },
}

/// The server and its directory; dropping it removes them.
pub(super) struct RaceStage {
    directory: TempDir,
    serving: Serving,
    file: Bytes,
}

impl RaceStage {
    pub(super) fn set_up(options: &Options) -> Result<RaceStage, DemoError> {
        let file = load(options)?;
        let directory = tempfile::Builder::new().prefix("remora-demo-").tempdir().map_err(DemoError::Directory)?;
        std::fs::write(directory.path().join(SAMPLE), &file).map_err(DemoError::Directory)?;
        let serving = serve(directory.path(), options.seed)?;
        Ok(RaceStage { directory, serving, file })
    }

    pub(super) fn len(&self) -> u64 {
        self.file.len() as u64
    }

    pub(super) fn file(&self) -> &Bytes {
        &self.file
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.serving.local_addrs().first().copied().unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Runs all racers in one direction at the same time, with the same bad periods.
    pub(super) async fn race(&self, way: CopyDirection, options: &Options) -> Result<Vec<LegResult>, DemoError> {
        let clock = Clock::start();
        let bars = Bars::new(way, self.len(), options.bars);
        let racers = racers();
        let [a, b, c] = racers.each_ref().map(|racer| run(self, racer, way, clock, options, bars.bar(racer.name)));
        let (a, b, c) = tokio::join!(a, b, c);
        Ok(vec![a?, b?, c?])
    }
}

fn load(options: &Options) -> Result<Bytes, DemoError> {
    match &options.file {
        Some(path) => read_file(path).map_err(|source| DemoError::File { path: path.clone(), source }),
        None => {
            let mut sample = vec![0; SAMPLE_BYTES];
            Rng::stream(options.seed, "sample").fill(&mut sample);
            Ok(Bytes::from(sample))
        }
    }
}

/// Reads a regular file of limited size.
fn read_file(path: &Path) -> io::Result<Bytes> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.len() > FILE_MAX {
        return Err(io::Error::other("the file is larger than 256 MiB"));
    }
    std::fs::read(path).map(Bytes::from)
}

fn serve(directory: &Path, seed: u64) -> Result<Serving, DemoError> {
    let mut random = [0; 24];
    Rng::stream(seed, "server").fill(&mut random);
    let (verifier, key) = random.split_at(8);
    let mut disk = LocalOptions::new(verifier.try_into().unwrap_or_default());
    // The files belong to the user who runs the demonstration.
    disk.honour_credentials = false;
    let disk = LocalDisk::open(directory, disk).map_err(DemoError::Directory)?;
    let export = Export::new("/", Arc::new(disk));
    let exports = Arc::new(Exports::new(vec![export], key.try_into().unwrap_or(&[0; 16]))?);
    let mut options = remora_host::server::ServerOptions::new(remora_server::Config::new(exports));
    options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    options.seed = Some(seed);
    Ok(Serving::start(options)?)
}
