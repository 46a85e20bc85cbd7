//! The load with the real client and server on loopback, and a slow disk.
//!
//! Disk, timers and the cache's windows are accelerated by the same factor; reported speeds are those of the
//! original pace. The process adds the round-trip time, since loopback has none.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_client::RetryPolicy;
use remora_host::Clock;
use remora_host::client::{ClientError, Options as Mounting, Session, Target, mount};
use remora_host::server::{Queueing, Serving, StartError};
use remora_server::{Export, Exports, ExportsError, cache};
use remora_sim::drc::{self, Config, NFSDS, Outcome, Process, Step, WRITES};
use remora_vfs::MemFs;
use remora_wire::nfs3::{Call, DirOp, Fh, Reply};
use tokio::task::JoinSet;

use super::slow_disk::{Pace, SlowDisk};

/// Time limit of a run at the original pace.
const LIMIT: Duration = Duration::from_secs(1000);

#[derive(Debug, thiserror::Error)]
pub(super) enum RealError {
    #[error("the server cannot be set up")]
    SetUp,
    #[error(transparent)]
    Exports(#[from] ExportsError),
    #[error(transparent)]
    Server(#[from] StartError),
    #[error("no runtime: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("the run did not end within {} s", LIMIT.as_secs())]
    TooLong,
}

pub(super) fn run(config: &Config, seed: u64, faster: f64) -> Result<Outcome, RealError> {
    let pace = Pace::new(faster);
    let fs = Arc::new(MemFs::new(seed));
    drc::prepare(&fs, drc::NAME).ok_or(RealError::SetUp)?;
    let disk = Arc::new(SlowDisk::new(fs.clone(), config.server.ufs, pace, seed));
    let serving = serve(disk.clone(), sooner(config.cache, pace), seed, NFSDS)?;
    let addr = serving.local_addrs().first().copied().ok_or(RealError::SetUp)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RealError::Runtime)?;
    let loaded = runtime.block_on(async {
        let load = load(config, addr, pace, seed);
        tokio::time::timeout(pace.real(LIMIT), load).await.map_err(|_| RealError::TooLong)
    })??;
    // Waits for the duplicates that are still queued.
    serving.shutdown();
    let repeated = disk.writes().saturating_sub(u64::from(WRITES));
    Ok(Outcome {
        sent: WRITES.saturating_add(loaded.duplicates),
        duplicates_sent: loaded.duplicates,
        duplicates_processed: u32::try_from(repeated).unwrap_or(u32::MAX),
        seconds: loaded.took.as_secs_f64(),
        intact: drc::contents(&fs, drc::NAME).is_some_and(|bytes| drc::is_intact(&bytes)),
    })
}

/// A server with this many daemons.
pub(super) fn serve(
    disk: Arc<SlowDisk>,
    cache: cache::Config,
    seed: u64,
    daemons: usize,
) -> Result<Serving, RealError> {
    let exports = Arc::new(Exports::new(vec![Export::new("/", disk)], &[0; 16])?);
    let limits = remora_server::Limits::default();
    let mut options = remora_host::server::ServerOptions::new(remora_server::Config {
        cache,
        limits,
        ..remora_server::Config::new(exports)
    });
    options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    options.seed = Some(seed);
    options.executor_threads = daemons;
    options.executor_threads_more = 0;
    options.queueing = Queueing::Daemons;
    Ok(Serving::start(options)?)
}

fn sooner(config: cache::Config, pace: Pace) -> cache::Config {
    match config {
        cache::Config::Juszczak { entries, throwaway } => {
            cache::Config::Juszczak { entries, throwaway: pace.real(throwaway) }
        }
        cache::Config::Off | cache::Config::Reference { .. } | cache::Config::Full { .. } => config,
    }
}

fn client(config: &Config, pace: Pace) -> remora_client::ClientConfig {
    let mut client = config.timers.config();
    if let RetryPolicy::Exponential { initial, factor, max } = client.retry {
        client.retry = RetryPolicy::Exponential { initial: pace.real(initial), factor, max: pace.real(max) };
    }
    client
}

struct Loaded {
    took: Duration,
    duplicates: u32,
}

async fn load(config: &Config, addr: SocketAddr, pace: Pace, seed: u64) -> Result<Loaded, ClientError> {
    let target = Target {
        host: addr.ip().to_string(),
        port: Some(addr.port()),
        mount_port: Some(addr.port()),
        transport: Some(config.timers.transport),
        keys: None,
        path: "/".into(),
    };
    let session = mount(&target, "/", Mounting { config: client(config, pace), seed, clock: Clock::start() }).await?;
    let began = pace.now();
    let fh = open(&session).await?;
    session.ok(drc::truncate_call(&fh)).await?;
    let before = session.stats().retransmissions;
    write(&session, &fh, pace, config.client.copy + 2 * config.client.wire).await?;
    let duplicates = session.stats().retransmissions - before;
    Ok(Loaded { took: pace.now().since(began), duplicates: u32::try_from(duplicates).unwrap_or(u32::MAX) })
}

async fn open(session: &Session) -> Result<Fh, ClientError> {
    let name = Bytes::from_static(drc::NAME.as_bytes());
    match session.ok(Call::Lookup(DirOp { dir: session.root().clone(), name })).await? {
        Reply::Lookup(Ok(found)) => Ok(found.fh),
        _ => Err(ClientError::Closed),
    }
}

async fn write(session: &Session, fh: &Fh, pace: Pace, copy: Duration) -> Result<(), ClientError> {
    let mut process = Process::new(copy);
    let mut writes: JoinSet<Result<u32, ClientError>> = JoinSet::new();
    process.begin(pace.now());
    loop {
        let answered = match process.step(pace.now()) {
            Step::Done => return Ok(()),
            Step::Write(n) => {
                let (session, call) = (session.clone(), drc::write_call(fh, n));
                writes.spawn(async move { session.ok(call).await.map(|_| n) });
                process.on_sent(pace.now(), n);
                None
            }
            Step::Wait => writes.join_next().await,
            Step::Until(at) => tokio::select! {
                answered = writes.join_next(), if !writes.is_empty() => answered,
                () = wait(pace, at) => None,
            },
        };
        if let Some(joined) = answered {
            let n = joined.map_err(|_| ClientError::Closed)??;
            process.on_done(pace.now(), &n);
        }
    }
}

/// Sleeps more precisely than the runtime's timer, which ticks once per millisecond.
async fn wait(pace: Pace, until: Time) {
    // Without a thread, return at once.
    let _ = tokio::task::spawn_blocking(move || pace.sleep_until(until)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drc::cell::{self, Mode, Server};

    /// The cause of table 2. The number of duplicates depends on the machine's load, so that ordered daemons run
    /// beside at the same time. Of 20 seeds (20 times as fast) overtaking daemons caused 40 to 64 duplicates (mean 56)
    /// on an idle machine and ordered ones 6 to 34 (22); of 10 seeds beside two busy loops 47 to 69 (61) and 16 to 46
    /// (35). For every seed the ratio was at least 1.35, for any three seeds together at least 1.47.
    #[test]
    fn overtaking_daemons_cause_duplicates_a_cache_absorbs() {
        let cells = cell::tables();
        let small = cells.iter().find(|cell| (cell.server, cell.mode) == (Server::Small, Mode::Juszczak)).unwrap();
        let with = |overtaking, seed| {
            let mut config = small.config();
            config.server.ufs.overtaking = overtaking;
            let outcome = run(&config, seed, 10.0).unwrap();
            assert_eq!((outcome.duplicates_processed, outcome.intact), (0, true), "{outcome:?}");
            outcome.duplicates_sent
        };
        let (mut overtaking, mut in_order) = (0, 0);
        for seed in 1..=3 {
            let beside = std::thread::scope(|scope| {
                let beside = scope.spawn(|| with(false, seed));
                overtaking += with(true, seed);
                beside.join().unwrap()
            });
            in_order += beside;
        }
        assert!(f64::from(overtaking) > 1.25 * f64::from(in_order), "{overtaking} duplicates, in order {in_order}");
    }
}
