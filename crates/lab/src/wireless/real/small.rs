//! Small files saved by one program while another on the same mobile writes a large one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_client::{Config, Transport};
use remora_host::Clock;
use remora_host::client::{self, ClientError, Options, Session, Target};
use remora_host::emulate::{Emulator, Report, Station};
use remora_sim::copy::Direction;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Reply, SetAttr, Stable, WriteArgs};
use tokio::task::JoinSet;

use super::super::cell::Measure;
use super::super::job::{Copy, SmallOperations, System};
use super::super::simulated::of_latencies;
use super::bench::Bench;
use super::peers::Peers;
use super::{Result, failed_with};

/// Time between the beginnings of two files; they begin whatever became of those before.
const EVERY: Duration = Duration::from_millis(300);
/// Bytes in each.
const BYTES: usize = 100;

/// Writes the large file and saves small ones meanwhile, each created and written FILE_SYNC, by
/// one mount that lasts.
pub(super) fn run(
    bench: &mut Bench,
    job: &SmallOperations,
    seed: u64,
    limit: Duration,
    peers: &Peers,
) -> Result<(Vec<(Measure, f64)>, Report)> {
    let bulk = Copy::new(job.system, job.channel.clone(), Direction::Write, job.bytes);
    if job.system == System::Linux {
        let (latencies, report) = bench.copy_beside_small(&bulk, seed, limit, peers)?;
        return Ok((of_latencies(&latencies), report));
    }
    let run = bench.next_run();
    let (latencies, copied) = bench.copy_beside(&bulk, seed, limit, peers, |scene| {
        let saver = Saver { server: format!("nfs://{}/", scene.server), prefix: format!("small-{run}"), limit };
        saver.work(scene.emulator, scene.over)
    })?;
    Ok((of_latencies(&latencies?), copied.report))
}

/// Saves small files.
struct Saver {
    server: String,
    prefix: String,
    limit: Duration,
}

impl Saver {
    /// Saves files until the large one is `over`, in the mobile's namespace; each one's latency
    /// in seconds, infinite for one that was not done by the limit.
    fn work(&self, emulator: &Emulator, over: &AtomicBool) -> Result<Vec<f64>> {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.save_all(over)).map_err(io::Error::other)
        };
        emulator.within(Station::Mobile(0), work).map_err(failed_with("small files"))
    }

    async fn save_all(&self, over: &AtomicBool) -> std::result::Result<Vec<f64>, ClientError> {
        let target = Target::parse(&self.server).map_err(|_| ClientError::Closed)?;
        let clock = Clock::start();
        let config = Config { give_up: None, ..Config::new(target.transport.unwrap_or(Transport::Udp)) };
        let session = client::mount(&target, "/", Options { config, seed: clock.now().as_nanos(), clock }).await?;
        let deadline = Instant::now() + self.limit;
        let mut under_way = JoinSet::new();
        let mut begun = 0u32;
        let mut next = tokio::time::interval(EVERY);
        while !over.load(Ordering::Acquire) && Instant::now() < deadline {
            next.tick().await;
            // As in the guest: none is begun when the copy has ended meanwhile.
            if over.load(Ordering::Acquire) {
                break;
            }
            let (session, name) = (session.clone(), format!("{}-{begun}", self.prefix));
            under_way.spawn(async move { save(&session, name).await });
            begun += 1;
        }
        let mut latencies = Vec::new();
        let until = tokio::time::Instant::from_std(deadline);
        while let Ok(Some(Ok(saved))) = tokio::time::timeout_at(until, under_way.join_next()).await {
            latencies.push(saved?.as_secs_f64());
        }
        latencies.resize(begun as usize, f64::INFINITY);
        Ok(latencies)
    }
}

/// Saves a file; how long that took.
async fn save(session: &Session, name: String) -> std::result::Result<Duration, ClientError> {
    let began = Instant::now();
    let at = DirOp { dir: session.root().clone(), name: Bytes::from(name) };
    let create = Call::Create(CreateArgs { at, how: CreateHow::Unchecked(SetAttr::NONE) });
    let Reply::Create(Ok(made)) = session.ok(create).await? else { return Err(ClientError::Closed) };
    let fh = made.fh.ok_or(ClientError::Closed)?;
    let data = Bytes::from(vec![0x5a; BYTES]);
    let write = WriteArgs { fh, offset: 0, count: BYTES as u32, stable: Stable::FileSync, data };
    session.ok(Call::Write(write)).await?;
    Ok(began.elapsed())
}
