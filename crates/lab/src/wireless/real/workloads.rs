//! Jobs other than copies: saturation, small operations and a TCP stream.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Config, ErrorModel, Side};
use remora_client::{self as client_core, Transport};
use remora_host::client::{ClientError, Options, Session, Target};
use remora_host::emulate::{EmulationReport, Emulator, Station};
use remora_host::{Clock, client};
use remora_sim::copy::{Direction, link_on};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Reply, SetAttr, Stable, WriteArgs};
use tokio::task::JoinSet;

use super::bench::Bench;
use super::peers::Peers;
use super::program::{READY, Result, failed, failed_with};
use super::tunnel::Tunnel;
use crate::wireless::cell::Measure;
use crate::wireless::job::{Copy, Saturation, SmallOperations, System, Tcp};
use crate::wireless::simulated::of_latencies;

/// Time of the best sender, in seconds.
pub(super) fn floor_seconds(channel: &Config, seed: u64, direction: Direction, bytes: u64) -> Result<Option<f64>> {
    let from = match direction {
        Direction::Read => Side::Base,
        Direction::Write => Side::Mobile,
    };
    let floor = remora_channel::floor(channel, seed, from, bytes, Time::ZERO).map_err(|e| failed(e.to_string()))?;
    Ok(floor.map(Time::as_secs_f64))
}

/// Polling interval of receivers.
const TICK: Duration = Duration::from_millis(50);
/// IPv4 and UDP headers, in bytes.
const HEADERS: usize = 28;
/// Each mobile is offered the channel's rate over this: an overload of four with the papers' eight mobiles.
const OFFERED: f64 = 2.0;
/// Length of the reference measurement of a fair share.
const REFERENCE: Duration = Duration::from_secs(10);

/// Saturates the link for the job's length. The fair share is an equal part of the throughput measured before without
/// errors.
pub(super) fn saturate(
    bench: &mut Bench,
    job: &Saturation,
    seed: u64,
) -> Result<(Vec<(Measure, f64)>, EmulationReport)> {
    bench.calm(&job.channel)?;
    bench.tunnel(&job.channel)?;
    let ends = TunnelEnds::open(bench, job).map_err(failed_with("datagrams"))?;
    let fair = match job.one_good {
        false => None,
        true => {
            let (delivered, report) = flood(bench, &ends, job, seed, REFERENCE, |_| ErrorModel::None)?;
            if !report.valid() {
                return Ok((Vec::new(), report));
            }
            let rate = delivered.iter().sum::<u64>() as f64 / REFERENCE.as_secs_f64();
            Some(rate * job.length.as_secs_f64() / job.destinations as f64)
        }
    };
    let errors = |mobile| match job.one_good && mobile == 0 {
        true => ErrorModel::None,
        false => job.channel.errors.clone(),
    };
    let (delivered, report) = flood(bench, &ends, job, seed, job.length, errors)?;
    // Queued packets must not reach the next run.
    bench.tunnel = None;
    let bits = delivered.iter().sum::<u64>() as f64 * 8.0;
    let mut values = vec![(Measure::Utilisation, bits / (job.channel.rate.bits() as f64 * job.length.as_secs_f64()))];
    let good = delivered.first().copied().unwrap_or_default() as f64;
    values.extend(fair.map(|fair| (Measure::GoodShare, good / fair.max(1.0))));
    Ok((values, report))
}

struct TunnelEnds {
    source: UdpSocket,
    sinks: Vec<UdpSocket>,
    addresses: Vec<SocketAddr>,
    /// Full-size packets, as in the simulator.
    payload: Vec<u8>,
}

impl TunnelEnds {
    fn open(bench: &Bench, job: &Saturation) -> io::Result<TunnelEnds> {
        let bind = |at: Station, address: IpAddr| bench.emulator.within(at, || UdpSocket::bind((address, 0)));
        let source = bind(Station::Base, Tunnel::BASE.into())?;
        let sink = |mobile| {
            let sink = bind(Station::Mobile(mobile), Tunnel::mobile(mobile).into())?;
            sink.set_read_timeout(Some(TICK))?;
            Ok(sink)
        };
        let sinks = (0..job.destinations).map(sink).collect::<io::Result<Vec<_>>>()?;
        let addresses = sinks.iter().map(UdpSocket::local_addr).collect::<io::Result<Vec<_>>>()?;
        let payload = vec![0x5a; link_on(&job.channel).packet_max().saturating_sub(HEADERS)];
        Ok(TunnelEnds { source, sinks, addresses, payload })
    }

    /// Sends a packet to each sink every `gap` until the deadline.
    fn offer(&self, gap: Duration, deadline: Instant) -> io::Result<()> {
        let mut due = Instant::now();
        while due < deadline {
            for address in &self.addresses {
                self.source.send_to(&self.payload, address)?;
            }
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Floods the mobiles. Returns the bytes of IP packets that reached each.
fn flood(
    bench: &mut Bench,
    ends: &TunnelEnds,
    job: &Saturation,
    seed: u64,
    length: Duration,
    errors: impl Fn(usize) -> ErrorModel,
) -> Result<(Vec<u64>, EmulationReport)> {
    let channel: Config = job.channel.clone();
    let packet_bits = ((ends.payload.len() + HEADERS) * 8) as f64;
    let gap = Duration::from_secs_f64(packet_bits * OFFERED / channel.rate.bits() as f64);
    let deadline = bench.begin_each(channel, seed, errors)? + length;
    let delivered = thread::scope(|scope| {
        let sinks: Vec<_> =
            ends.sinks.iter().map(|sink| scope.spawn(move || count_datagrams(sink, deadline))).collect();
        ends.offer(gap, deadline)?;
        let joined = sinks.into_iter().map(|sink| sink.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<io::Result<Vec<u64>>>()
    });
    let delivered = delivered.map_err(failed_with("datagrams"))?;
    bench.must_run()?;
    if delivered.iter().all(|bytes| *bytes == 0) {
        return Err(failed("the link delivered no packet".into()));
    }
    Ok((delivered, bench.report()?))
}

fn count_datagrams(sink: &UdpSocket, deadline: Instant) -> io::Result<u64> {
    let mut buffer = [0; 1 << 16];
    let mut arrived = 0;
    while Instant::now() < deadline {
        match sink.recv(&mut buffer) {
            Ok(bytes) => arrived += (bytes + HEADERS) as u64,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(arrived)
}

/// Interval between two files, whether or not earlier ones have ended.
const EVERY: Duration = Duration::from_millis(300);
const BYTES: usize = 100;

/// Writes the large file and saves small ones meanwhile, each by CREATE and WRITE FILE_SYNC over one mount.
pub(super) fn small_operations(
    bench: &mut Bench,
    job: &SmallOperations,
    seed: u64,
    limit: Duration,
    peers: &Peers,
) -> Result<(Vec<(Measure, f64)>, EmulationReport)> {
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

struct Saver {
    server: String,
    prefix: String,
    limit: Duration,
}

impl Saver {
    /// Saves files in the mobile's namespace until the large one is `over`. Returns latencies in seconds, infinite
    /// beyond the limit.
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
        let config = client_core::ClientConfig {
            give_up: None,
            ..client_core::ClientConfig::new(target.transport.unwrap_or(Transport::Udp))
        };
        let session = client::mount(&target, "/", Options { config, seed: clock.now().as_nanos(), clock }).await?;
        let deadline = Instant::now() + self.limit;
        let mut under_way = JoinSet::new();
        let mut begun = 0u32;
        let mut next = tokio::time::interval(EVERY);
        while !over.load(Ordering::Acquire) && Instant::now() < deadline {
            next.tick().await;
            // As in the guest, none begins after the copy ended.
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

/// Saves a file and returns the time it took.
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

/// Bytes of a read or write.
const CHUNK: usize = 16 << 10;

/// Measures a stream for the job's length: [`Measure::CapacityShare`].
pub(super) fn stream(bench: &mut Bench, job: &Tcp, seed: u64) -> Result<(Vec<(Measure, f64)>, EmulationReport)> {
    bench.calm(&job.channel)?;
    let (base, mobile) = match job.link {
        true => {
            let tunnel = bench.tunnel(&job.channel)?;
            (tunnel.base(), Tunnel::mobile(0))
        }
        false => {
            bench.tunnel = None;
            (bench.emulator.addr(Station::Base), bench.emulator.addr(Station::Mobile(0)))
        }
    };
    let (from, to, sink) = match job.direction {
        Direction::Read => (Station::Base, Station::Mobile(0), mobile),
        Direction::Write => (Station::Mobile(0), Station::Base, base),
    };
    let (sender, receiver) = connect(bench, from, to, sink.into()).map_err(failed_with("a TCP stream"))?;
    let deadline = bench.begin(job.channel.clone(), seed)? + job.length;
    let arrived = std::thread::scope(|scope| {
        scope.spawn(|| send(&sender, deadline));
        count_bytes(&receiver, deadline)
    });
    let arrived = arrived.map_err(failed_with("a TCP stream"))?;
    let report = bench.report()?;
    bench.must_run()?;
    let share = share(&job.channel, seed, job.direction, arrived, job.length)?;
    // Packets in flight must not reach the next run.
    drop((sender, receiver));
    bench.calm(&job.channel)?;
    Ok((vec![(Measure::CapacityShare, share)], report))
}

fn connect(bench: &Bench, from: Station, to: Station, sink: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = bench.emulator.within(to, || TcpListener::bind((sink, 0)))?;
    let at = SocketAddr::new(sink, listener.local_addr()?.port());
    let sender = bench.emulator.within(from, || TcpStream::connect_timeout(&at, READY))?;
    let (receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(TICK))?;
    receiver.set_read_timeout(Some(TICK))?;
    Ok((sender, receiver))
}

/// Whether an error is a timeout or an interruption.
fn is_nothing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn send(mut to: &TcpStream, deadline: Instant) {
    let chunk = [0x5a; CHUNK];
    while Instant::now() < deadline {
        match to.write(&chunk) {
            Err(e) if !is_nothing(&e) => return,
            _ => {}
        }
    }
}

fn count_bytes(mut from: &TcpStream, deadline: Instant) -> io::Result<u64> {
    let mut buffer = [0; CHUNK];
    let mut arrived = 0;
    while Instant::now() < deadline {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(arrived),
            Ok(n) => arrived += n as u64,
            Err(e) if is_nothing(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(arrived)
}

fn share(channel: &Config, seed: u64, direction: Direction, bytes: u64, length: Duration) -> Result<f64> {
    let floor = floor_seconds(channel, seed, direction, bytes)?;
    Ok(floor.unwrap_or_default() / length.as_secs_f64())
}
