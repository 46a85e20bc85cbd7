//! NFS over ATP against NFS over TCP: the filesystem workload of ATP 02 (section 4.3) as real calls.
//!
//! A mobile sends a GETATTR every tenth of a second and an unstable WRITE of 64 KiB every second, while the
//! bandwidth follows a trace. Both carriers run at the same time, each on its own emulated link, with the same
//! client and server. TCP is the kernel's with CUBIC. Latency counts from the time at which a call was due; an
//! unanswered call is infinite.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::session::{Guests, Identity, PublicKey};
use remora_base::{Rate, Time};
use remora_channel::{Config, Opportunities, PerSide};
use remora_client::Transport;
use remora_host::atp::keys;
use remora_host::client::{ClientError, Keys, Session, Target};
use remora_host::emulate::{EmulationSetup, Emulator, Station};
use remora_host::server::{Objects, Serving};
use remora_host::{Clock, client, server};
use remora_server::{Access, Export, Exports, Squash, Terms};
use remora_sim::atp::Trace;
use remora_vfs::{MemFs, Vfs};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, WriteArgs};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::report::error::failed;
use crate::report::progress::bar;
use crate::report::statistics::{percentile, sorted};
use crate::report::table::Table;

pub use crate::report::error::Error;

/// Least ratio of the small calls' p99 over TCP to that over ATP, without calls made in blackouts. (A call made in a
/// blackout waits for its end on either carrier.)
pub const BAR: f64 = 5.0;
/// Largest lateness of a frame, as a share of the smaller p99. A short stall of the machine does not show in the
/// comparison.
const LATE_PART: f64 = 0.1;
/// Queue length of the link in frames, in either direction.
const QUEUE: usize = 50;
/// Bytes of one delivery opportunity, as in recorded traces.
const OPPORTUNITY: u64 = 1500;
const DELAY: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub trace: Trace,
    pub trace_name: String,
    /// Start in the trace.
    pub from: Duration,
    /// Duration of the calls, at least one second.
    pub length: Duration,
    pub seed: u64,
    pub command: String,
    /// Show a progress bar on a terminal.
    pub bar: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NfsCarrier {
    Atp,
    Tcp,
}

impl NfsCarrier {
    const ALL: [NfsCarrier; 2] = [NfsCarrier::Atp, NfsCarrier::Tcp];

    pub fn name(self) -> &'static str {
        match self {
            NfsCarrier::Atp => "NFS over ATP",
            NfsCarrier::Tcp => "NFS over TCP, kernel CUBIC",
        }
    }
}

/// Latencies of one kind of call over one carrier, in seconds. `None` for unanswered calls.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub carrier: NfsCarrier,
    pub calls: &'static str,
    /// Calls made in blackouts count.
    pub with_blackout: bool,
    pub made: usize,
    pub answered: usize,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct NfsAtpReport {
    pub command: String,
    pub trace: String,
    pub seconds: f64,
    pub rows: Vec<Row>,
    /// Ratio of the small calls' p99 over TCP to that over ATP: of all calls, and without those made in blackouts.
    pub times: [Option<f64>; 2],
    /// Largest lateness in seconds by carrier, and whether it invalidates the figures.
    pub lateness: Vec<(NfsCarrier, f64, bool)>,
}

/// Runs both carriers at the same time. Needs root, and up to a minute more than `length`.
pub fn run(options: &Options) -> Result<NfsAtpReport, Error> {
    let bar = bar(small_calls(options.length) * NfsCarrier::ALL.len() as u64, "small calls", options.bar);
    let both = std::thread::scope(|scope| {
        let one = |carrier| {
            let bar = &bar;
            scope.spawn(move || measure(carrier, options, &|| bar.inc(1)))
        };
        NfsCarrier::ALL.map(one).map(|thread| thread.join())
    });
    bar.finish_and_clear();
    let mut rows = Vec::new();
    let mut latest = Vec::new();
    for measured in both {
        let CarrierRun { carrier, calls, lateness: late } =
            measured.unwrap_or_else(|e| std::panic::resume_unwind(e))?;
        latest.push((carrier, late.as_secs_f64()));
        for kind in [NfsCallKind::Small, NfsCallKind::Large] {
            for with_blackout in [true, false] {
                rows.push(row(carrier, kind, with_blackout, &calls, options));
            }
        }
    }
    let p99 = |carrier, with_blackout| {
        let is =
            |r: &&Row| r.carrier == carrier && r.calls == NfsCallKind::Small.name() && r.with_blackout == with_blackout;
        rows.iter().find(is).and_then(|r| r.p99)
    };
    let times = [true, false].map(|all| Some(p99(NfsCarrier::Tcp, all)? / p99(NfsCarrier::Atp, all)?));
    let least = NfsCarrier::ALL.iter().filter_map(|c| p99(*c, false)).fold(f64::INFINITY, f64::min);
    let bound_s = (least * LATE_PART).max(EmulationSetup::default().lateness_max.as_secs_f64());
    let lateness = latest.into_iter().map(|(carrier, late_s)| (carrier, late_s, late_s > bound_s)).collect();
    let Options { command, trace_name, length, .. } = options.clone();
    Ok(NfsAtpReport { command, trace: trace_name, seconds: length.as_secs_f64(), rows, times, lateness })
}

fn row(carrier: NfsCarrier, kind: NfsCallKind, with_blackout: bool, calls: &[MeasuredCall], options: &Options) -> Row {
    let is_open = |at: Duration| options.trace.rate(Time::ZERO + options.from + at) > 0.0;
    let counts = |c: &&MeasuredCall| c.kind == kind && (with_blackout || is_open(c.at));
    let took = calls.iter().filter(counts).map(|c| c.took.map_or(f64::INFINITY, |t| t.as_secs_f64()));
    let took = sorted(&took.collect::<Vec<_>>());
    let made = took.len();
    let at = |percent| percentile(&took, percent).filter(|t| t.is_finite());
    let answered = took.iter().filter(|t| t.is_finite()).count();
    Row { carrier, calls: kind.name(), with_blackout, made, answered, p50: at(50), p99: at(99), max: at(100) }
}

/// The link: a delivery opportunity whenever the trace has carried 1500 more bytes.
fn channel(options: &Options) -> Result<Config, Error> {
    let before = options.trace.carried(Time::ZERO + options.from);
    let end = options.from + options.length + AFTER;
    let mut text = String::new();
    for n in 1u64.. {
        let at = options.trace.when(before + (n * OPPORTUNITY) as f64);
        let Some(at) = at.filter(|at| *at < Time::ZERO + end) else { break };
        text += &format!("{}\n", at.since(Time::ZERO + options.from).as_millis().max(1));
    }
    if !text.is_empty() {
        // A list of opportunities repeats after its last entry, and the trace may end in a blackout.
        text += &format!("{}\n", (options.length + AFTER).as_millis() + 1);
    }
    let crossing = Arc::new(Opportunities::parse(&text).map_err(failed("the trace"))?);
    let trace = PerSide { base: Some(crossing.clone()), mobile: Some(crossing) };
    Ok(Config { trace, delay: DELAY, queue_frames: QUEUE, ..Config::default() })
}

impl NfsAtpReport {
    /// Whether the ratio is reached and no frame was too late.
    pub fn holds(&self) -> bool {
        self.times[1].is_some_and(|t| t >= BAR) && self.lateness.iter().all(|(_, _, too_late)| !too_late)
    }

    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let ms = |t: Option<f64>| t.map_or("never".to_owned(), |t| format!("{:.0}", t * 1e3));
        let head = ["Carrier", "Calls", "Made in blackouts", "Made", "Answered", "p50 ms", "p99 ms", "Longest ms"];
        let cells = |r: &Row| {
            vec![
                r.carrier.name().to_owned(),
                r.calls.to_owned(),
                if r.with_blackout { "too" } else { "left out" }.to_owned(),
                r.made.to_string(),
                r.answered.to_string(),
                ms(r.p50),
                ms(r.p99),
                ms(r.max),
            ]
        };
        let table = Table::new(3, head, self.rows.iter().map(cells)).to_text_within(width);
        let times = |t: Option<f64>| t.map_or("unknown".to_owned(), |t| format!("{t:.1} times"));
        let mut text = format!("{}, {} s of calls\n\n{table}\n", self.trace, self.seconds);
        text += &format!(
            "p99 of small calls, TCP over ATP: {}; without calls made in blackouts: {} (at least {BAR} times)\n",
            times(self.times[0]),
            times(self.times[1])
        );
        for (carrier, late, too_late) in &self.lateness {
            let verdict = if *too_late { ": too late, the figures are invalid" } else { "" };
            text +=
                &format!("{}: the emulator's latest frame was {:.1} ms late{verdict}\n", carrier.name(), late * 1e3);
        }
        text + &format!("{}\n", self.command)
    }
}

pub(super) struct CarrierRun {
    pub(super) carrier: NfsCarrier,
    pub(super) calls: Vec<MeasuredCall>,
    pub(super) lateness: Duration,
}

struct NfsServer {
    serving: Serving,
    at: SocketAddr,
    key: PublicKey,
}

/// Runs one carrier. `tick` is called with each small call.
pub(super) fn measure(carrier: NfsCarrier, options: &Options, tick: &(dyn Fn() + Sync)) -> Result<CarrierRun, Error> {
    let weather = channel(options)?;
    // Mount on a good link.
    let fair = Config { rate: Rate::mbit(100), delay: weather.delay, ..Config::default() };
    let setup = EmulationSetup { config: fair, ..EmulationSetup::default() };
    let mut emulator = Emulator::start(setup).map_err(failed("the emulator"))?;
    let base = IpAddr::V4(emulator.addr(Station::Base));
    let identity = keys::generate().map_err(failed("a key"))?;
    let server = emulator.within(Station::Base, || serve(base, carrier, identity)).map_err(failed("the server"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("a runtime"))?;
    let mounting = || runtime.block_on(mount(&server, carrier, options.seed)).map_err(io::Error::other);
    let (session, fh) = emulator.within(Station::Mobile(0), mounting).map_err(failed("mounting"))?;
    emulator.begin(weather, options.seed).map_err(failed("the emulator"))?;
    let began = emulator.clock().map_err(failed("the emulator"))?.instant(Time::ZERO);
    // In the namespace: a reconnect is made from there.
    let work = || Ok(runtime.block_on(make_calls(&session, &fh, began, options.length, tick)));
    let calls = emulator.within(Station::Mobile(0), work).map_err(failed("the calls"))?;
    let report = emulator.report().map_err(failed("the emulator"))?;
    drop(session);
    drop(server.serving);
    if let Some(lost) = report.lost() {
        return Err(failed("the emulator")(lost));
    }
    Ok(CarrierRun { carrier, calls, lateness: report.lateness.max })
}

/// Serves a directory in memory to everyone.
fn serve(at: IpAddr, carrier: NfsCarrier, identity: Identity) -> io::Result<NfsServer> {
    let disk: Arc<dyn Vfs> = Arc::new(MemFs::new(1));
    let access = Access::everybody(Terms { squash: Squash::None, ..Terms::default() });
    let export = Export { access, ..Export::new("/", disk) };
    let exports = Arc::new(Exports::new(vec![export], &[7; 16]).map_err(io::Error::other)?);
    let core = remora_server::Config::new(exports);
    let key = identity.public();
    let objects = Objects { listen: SocketAddr::new(at, 4049), identity, guests: Guests::Anyone };
    let listen = vec![SocketAddr::new(at, remora_wire::nfs3::PORT)];
    let options = server::ServerOptions { listen, objects: Some(objects), ..server::ServerOptions::new(core) };
    let serving = Serving::start(options).map_err(io::Error::other)?;
    let port = match carrier {
        NfsCarrier::Atp => 4049,
        NfsCarrier::Tcp => remora_wire::nfs3::PORT,
    };
    Ok(NfsServer { serving, at: SocketAddr::new(at, port), key })
}

async fn mount(
    server: &NfsServer,
    carrier: NfsCarrier,
    seed: u64,
) -> Result<(client::Session, remora_wire::nfs3::Fh), client::ClientError> {
    let (transport, keys) = match carrier {
        NfsCarrier::Atp => (Transport::Atp, Some(Keys { server: server.key, own: None })),
        NfsCarrier::Tcp => (Transport::Tcp, None),
    };
    let (host, port) = (server.at.ip().to_string(), Some(server.at.port()));
    let target = Target { host, port, mount_port: None, transport: Some(transport), keys, path: "/".into() };
    let options = client::Options { config: remora_client::ClientConfig::new(transport), seed, clock: Clock::start() };
    let session = client::mount(&target, "/", options).await?;
    let fh = file(&session).await?;
    Ok((session, fh))
}

const SMALL_EVERY: Duration = Duration::from_millis(100);
/// Small calls for each large one.
const SMALL_PER_LARGE: u32 = 10;
const LARGE: usize = 64 << 10;
/// Blocks of the file; writes wrap around.
const BLOCKS: u64 = 16;
/// Wait for replies after the last call.
pub(super) const AFTER: Duration = Duration::from_secs(45);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NfsCallKind {
    Small,
    Large,
}

impl NfsCallKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            NfsCallKind::Small => "GETATTR",
            NfsCallKind::Large => "WRITE 64 KiB",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredCall {
    pub(super) kind: NfsCallKind,
    /// Time from the start of the run.
    pub(super) at: Duration,
    /// `None` if it was not answered.
    pub(super) took: Option<Duration>,
}

pub(super) async fn file(session: &Session) -> Result<Fh, ClientError> {
    let at = DirOp { dir: session.root().clone(), name: Bytes::from_static(b"file") };
    let create = Call::Create(CreateArgs { at, how: CreateHow::Unchecked(SetAttr::NONE) });
    let Reply::Create(Ok(made)) = session.ok(create).await? else { return Err(ClientError::Closed) };
    made.fh.ok_or(ClientError::Closed)
}

pub(super) fn small_calls(length: Duration) -> u64 {
    length.as_nanos().div_ceil(SMALL_EVERY.as_nanos()) as u64
}

/// Makes small calls (GETATTR) and large ones (WRITE) for `length` from `began` on, then waits up to [`AFTER`] for the
/// replies. Calls `tick` after it sent each small call.
pub(super) async fn make_calls(
    session: &Session,
    fh: &Fh,
    began: Instant,
    length: Duration,
    tick: &(dyn Fn() + Sync),
) -> Vec<MeasuredCall> {
    let mut under_way = JoinSet::new();
    let mut made = Vec::new();
    let mut make = |kind, at, call| {
        let (session, nth) = (session.clone(), made.len());
        made.push(MeasuredCall { kind, at, took: None });
        under_way.spawn(async move {
            let answer = session.ok(call).await;
            (nth, answer.is_ok().then(|| began.elapsed().saturating_sub(at)))
        });
    };
    let block = Bytes::from(vec![0x5a; LARGE]);
    for n in 0u32.. {
        let at = SMALL_EVERY * n;
        if at >= length {
            break;
        }
        tokio::time::sleep_until((began + at).into()).await;
        if n % SMALL_PER_LARGE == 0 {
            let offset = u64::from(n / SMALL_PER_LARGE) % BLOCKS * LARGE as u64;
            let (fh, data) = (fh.clone(), block.clone());
            let write = WriteArgs { fh, offset, count: LARGE as u32, stable: Stable::Unstable, data };
            make(NfsCallKind::Large, at, Call::Write(write));
        }
        make(NfsCallKind::Small, at, Call::GetAttr(fh.clone()));
        tick();
    }
    let until = began + length + AFTER;
    while let Ok(Some(Ok((nth, took)))) = tokio::time::timeout_at(until.into(), under_way.join_next()).await {
        if let Some(call) = made.get_mut(nth) {
            call.took = took;
        }
    }
    made
}
