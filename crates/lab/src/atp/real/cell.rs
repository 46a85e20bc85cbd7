//! One cell: a link, the programs at its ends, and the ledger of all objects.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use remora_atp::session::{self, Guests};
use remora_atp::{Final, Options, Outcome, Policy, estimate, scheduler};
use remora_base::{Rate, Time};
use remora_channel::{Config, Duplex, Opportunities, PerSide};
use remora_host::Clock;
use remora_host::atp::{AtpEndpoint, AtpError, EndpointSettings, Remote, keys};
use remora_host::emulate::{EmulationSetup, Emulator, Station};
use remora_sim::atp::message::{Reader, heading, number_of, numbered};
use remora_sim::atp::{Class, Fate, FinalStatus, Ledger, Object, Pace, Protocol, TcpConfig, Trace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

pub(super) struct Cell<'a> {
    pub(super) protocol: Protocol,
    pub(super) objects: &'a [Object],
    pub(super) pace: Pace,
    pub(super) link: Weathers,
    pub(super) until: Time,
    pub(super) seed: u64,
}

pub(super) struct MeasuredCell {
    pub(super) fates: Vec<Fate>,
    pub(super) lateness: Duration,
    /// Why the cell is invalid.
    pub(super) fault: Option<String>,
}

/// The ledger of a cell, on the channel's clock.
#[derive(Clone)]
pub(super) struct FateLedger {
    clock: Clock,
    ledger: Arc<Mutex<Ledger>>,
}

impl FateLedger {
    fn new(clock: Clock, objects: usize) -> FateLedger {
        FateLedger { clock, ledger: Arc::new(Mutex::new(Ledger::new(objects))) }
    }

    pub(super) fn note(&self, what: impl FnOnce(&mut Ledger, Time)) -> Time {
        let now = self.clock.now();
        what(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner), now);
        now
    }

    pub(super) async fn wait(&self, at: Time) {
        tokio::time::sleep_until(self.clock.instant(at).into()).await;
    }

    fn fates(&self) -> Result<Vec<Fate>, String> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ledger.into_fates().map_err(|n| format!("object {n} has two fates"))
    }
}

impl Cell<'_> {
    pub(super) fn measure(&self, lateness_max: Duration) -> Result<MeasuredCell, String> {
        let setup = EmulationSetup {
            config: self.link.fair.clone(),
            congestion: CONGESTION.into(),
            lateness_max,
            ..EmulationSetup::default()
        };
        let words = |e: remora_host::emulate::EmulateError| format!("the emulator: {e}");
        let mut emulator = Emulator::start(setup).map_err(words)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("a runtime: {e}"))?;
        let mut ends = CellEnds::connect(self, &emulator, &runtime)?;
        emulator.begin(self.link.real.clone(), self.seed).map_err(words)?;
        let clock = emulator.clock().map_err(words)?;
        let book = FateLedger::new(clock, self.objects.len());
        let until = clock.instant(self.until).into();
        let work = async { timeout_at(until, ends.work(self, &book)).await };
        // Objects without a fate at the end are late.
        runtime.block_on(work).unwrap_or(Ok(()))?;
        let report = emulator.report().map_err(words)?;
        let fates = book.fates()?;
        drop(runtime);
        Ok(MeasuredCell { fates, lateness: report.lateness.max, fault: report.fault() })
    }
}

enum CellEnds {
    Ours(AtpEnds),
    Tcp(TcpEnds),
}

impl CellEnds {
    fn connect(cell: &Cell, emulator: &Emulator, runtime: &tokio::runtime::Runtime) -> Result<CellEnds, String> {
        let tcp = |config| TcpEnds::connect(config, emulator).map(CellEnds::Tcp);
        let ours = |policy| runtime.block_on(AtpEnds::connect(policy, emulator)).map(CellEnds::Ours);
        match (cell.protocol, cell.pace) {
            // A plain stream without acknowledgements of objects.
            (Protocol::Tcp, Pace::Closed { .. }) => tcp(TcpConfig::bulk()),
            (Protocol::Tcp, Pace::Open) => tcp(TcpConfig::single()),
            (Protocol::Mtcp(high), _) => tcp(TcpConfig::multiple(high.into())),
            (Protocol::Atp, _) => ours(Policy::Remora),
            (Protocol::AtpPaper, _) => ours(Policy::Paper),
            (Protocol::Quic, _) => Err("is simulated only".into()),
        }
    }

    async fn work(&mut self, cell: &Cell<'_>, book: &FateLedger) -> Result<(), String> {
        match self {
            CellEnds::Ours(ends) => ends.work(cell, book).await,
            CellEnds::Tcp(ends) => ends.work(cell, book).await,
        }
    }
}

pub(super) const CONGESTION: &str = "cubic";
/// ATP 02, section 3.1: the device queue's length, in packets.
const QUEUE: usize = 50;
/// Bytes of one delivery opportunity, as in recorded traces.
const OPPORTUNITY: u64 = 1500;
/// Least rate during the handshake, in bytes per second.
const FAIR_MIN: f64 = 50e3;

#[derive(Clone, Debug)]
pub(super) struct Weathers {
    pub(super) fair: Config,
    pub(super) real: Config,
}

/// A constant rate in bytes per second.
pub(super) fn steady(rate: f64, round_trip: Duration) -> Result<Weathers, String> {
    let real = full_duplex(rate, round_trip)?;
    Ok(Weathers { fair: real.clone(), real })
}

/// A trace: a delivery opportunity whenever it has carried 1500 more bytes.
pub(super) fn varying(trace: &Trace, until: Time, round_trip: Duration) -> Result<Weathers, String> {
    let fair = full_duplex(trace.rate(Time::ZERO).max(FAIR_MIN), round_trip)?;
    let mut moments = String::new();
    for n in 1u64.. {
        let Some(at) = trace.when((n * OPPORTUNITY) as f64).filter(|at| *at < until) else { break };
        moments += &format!("{}\n", at.since(Time::ZERO).as_millis().max(1));
    }
    if !moments.is_empty() {
        // A list of opportunities repeats after its last entry, and the trace may end in a blackout.
        moments += &format!("{}\n", until.since(Time::ZERO).as_millis() + 1);
    }
    let crossing = Arc::new(Opportunities::parse(&moments).map_err(|e| format!("the trace: {e}"))?);
    let trace = PerSide { base: Some(crossing.clone()), mobile: Some(crossing) };
    Ok(Weathers { real: Config { trace, ..fair.clone() }, fair })
}

fn full_duplex(rate: f64, round_trip: Duration) -> Result<Config, String> {
    // The cast saturates.
    let rate = Rate::from_bits((rate * 8.0) as u64).ok_or("a link without a rate")?;
    Ok(Config { rate, duplex: Duplex::Full, delay: round_trip / 2, queue_frames: QUEUE, ..Config::default() })
}

const ATP_PORT: u16 = 4049;

/// A sender on the mobile and a receiver on the base.
pub(super) struct AtpEnds {
    receiver: AtpEndpoint,
    // Dropping the last handle closes the endpoint.
    _sender: AtpEndpoint,
    remote: Remote,
}

fn settings(policy: Policy, settings: EndpointSettings) -> EndpointSettings {
    let kind = match policy {
        Policy::Paper => estimate::Kind::Paper,
        Policy::Remora => estimate::Kind::Rate,
    };
    let session = session::Config {
        guests: Guests::Anyone,
        scheduler: scheduler::Config { policy, ..scheduler::Config::default() },
        estimator: estimate::Config::new(kind),
        ..session::Config::default()
    };
    EndpointSettings { session, ..settings }
}

impl AtpEnds {
    /// Each policy has its own estimator.
    pub(super) async fn connect(policy: Policy, emulator: &Emulator) -> Result<AtpEnds, String> {
        let bind = |station, settings| {
            let made = || {
                let identity = keys::generate().map_err(std::io::Error::other)?;
                AtpEndpoint::bind(settings, identity).map_err(std::io::Error::other)
            };
            emulator.within(station, made).map_err(|e| format!("{station}: {e}"))
        };
        let at = SocketAddr::new(IpAddr::V4(emulator.addr(Station::Base)), ATP_PORT);
        let receiver = bind(Station::Base, settings(policy, EndpointSettings::receiver(at)))?;
        let sender = bind(Station::Mobile(0), settings(policy, EndpointSettings::sender()))?;
        let remote = sender.connect(at, receiver.public_key()).map_err(atp_error)?;
        remote.up().await.map_err(atp_error)?;
        Ok(AtpEnds { receiver, _sender: sender, remote })
    }

    /// Sends all objects and waits for their fates.
    pub(super) async fn work(&mut self, cell: &Cell<'_>, book: &FateLedger) -> Result<(), String> {
        let receiving = async {
            loop {
                let object = self.receiver.recv().await.map_err(atp_error)?.object;
                book.note(|ledger, now| ledger.arrived(number_of(&object), now));
            }
        };
        tokio::select! {
            sent = send_objects(&self.remote, cell, book) => sent,
            ended = receiving => ended,
        }
    }
}

async fn send_objects(remote: &Remote, cell: &Cell<'_>, book: &FateLedger) -> Result<(), String> {
    let mut under_way: JoinSet<Result<(), String>> = JoinSet::new();
    for (number, object) in cell.objects.iter().enumerate() {
        match cell.pace {
            Pace::Open => book.wait(object.arrival).await,
            Pace::Closed { at_once } => {
                while under_way.len() >= at_once.max(1) {
                    joined(under_way.join_next().await)?;
                }
            }
        }
        book.note(|ledger, now| ledger.entered(number, now));
        let options =
            Options { priority: object.class.priority(), deadline: Some(object.deadline), ..Options::default() };
        let request = remote.send(numbered(number, object.size), options).map_err(atp_error)?;
        let book = book.clone();
        under_way.spawn(async move {
            let end = request.await.map_err(atp_error)?;
            book.note(|ledger, now| ledger.told(number, now, told(&end)));
            Ok(())
        });
    }
    while !under_way.is_empty() {
        joined(under_way.join_next().await)?;
    }
    Ok(())
}

fn told(end: &Final) -> FinalStatus {
    match end.outcome {
        Outcome::Delivered => FinalStatus::Delivered,
        Outcome::Rejected(_) | Outcome::Evicted => FinalStatus::Rejected,
        Outcome::Expired | Outcome::Cancelled | Outcome::Lost => FinalStatus::Late,
    }
}

fn joined(ended: Option<Result<Result<(), String>, tokio::task::JoinError>>) -> Result<(), String> {
    ended.map_or(Ok(()), |e| e.map_err(|e| e.to_string())?)
}

fn atp_error(e: AtpError) -> String {
    format!("ATP: {e}")
}

const TCP_PORT: u16 = 4050;
const READ_MAX: usize = 64 << 10;

/// An object with its number, waiting for a connection.
type Waiting = (usize, Object);
type ObjectQueue = Arc<tokio::sync::Mutex<mpsc::Receiver<Waiting>>>;

pub(super) struct TcpEnds {
    config: TcpConfig,
    pairs: Vec<(std::net::TcpStream, std::net::TcpStream)>,
}

impl TcpEnds {
    pub(super) fn connect(config: TcpConfig, emulator: &Emulator) -> Result<TcpEnds, String> {
        let at = SocketAddr::new(IpAddr::V4(emulator.addr(Station::Base)), TCP_PORT);
        let listener = emulator.within(Station::Base, || TcpListener::bind(at)).map_err(tcp_error)?;
        let connect = || {
            let ours = emulator.within(Station::Mobile(0), || std::net::TcpStream::connect(at))?;
            let (theirs, _) = listener.accept()?;
            for socket in [&ours, &theirs] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            if config.depth == 1 {
                rustix::net::sockopt::set_socket_send_buffer_size(&ours, config.send_buffer as usize)?;
            }
            Ok((ours, theirs))
        };
        let pairs = config.lanes.iter().map(|_| connect()).collect::<std::io::Result<_>>().map_err(tcp_error)?;
        Ok(TcpEnds { config, pairs })
    }

    pub(super) async fn work(&mut self, cell: &Cell<'_>, book: &FateLedger) -> Result<(), String> {
        let mut queues: Vec<(Vec<Class>, mpsc::Sender<Waiting>, ObjectQueue)> = Vec::new();
        let mut work: JoinSet<std::io::Result<()>> = JoinSet::new();
        let mut serving: JoinSet<std::io::Result<()>> = JoinSet::new();
        for (classes, (ours, theirs)) in self.config.lanes.iter().zip(self.pairs.drain(..)) {
            // Connections for the same classes share a queue.
            let queue = match queues.iter().find(|(of, ..)| of == classes) {
                Some((.., queue)) => queue.clone(),
                None => {
                    let (put, take) = mpsc::channel(cell.objects.len().max(1));
                    let queue = Arc::new(tokio::sync::Mutex::new(take));
                    queues.push((classes.clone(), put, queue.clone()));
                    queue
                }
            };
            serving.spawn(serve(TcpStream::from_std(theirs).map_err(tcp_error)?, book.clone()));
            let (answers, stream) = TcpStream::from_std(ours).map_err(tcp_error)?.into_split();
            let depth = Arc::new(Semaphore::new(self.config.depth.min(Semaphore::MAX_PERMITS)));
            let (asked, told) = mpsc::channel(cell.objects.len().max(1));
            work.spawn(send_queued(stream, queue, depth.clone(), asked, book.clone()));
            work.spawn(hear(answers, depth, told, book.clone()));
        }
        for (number, object) in cell.objects.iter().enumerate() {
            if cell.pace == Pace::Open {
                book.wait(object.arrival).await;
            }
            let now = book.note(|ledger, now| ledger.entered(number, now));
            if let Some((_, put, _)) = queues.iter().find(|(classes, ..)| classes.contains(&object.class)) {
                // The queue is large enough.
                let _ = put.send((number, Object { arrival: now, ..*object })).await;
            }
        }
        drop(queues);
        while let Some(ended) = work.join_next().await {
            ended.map_err(|e| e.to_string())?.map_err(tcp_error)?;
        }
        Ok(())
    }
}

/// Writes queued objects to the socket.
async fn send_queued(
    mut stream: OwnedWriteHalf,
    queue: ObjectQueue,
    depth: Arc<Semaphore>,
    asked: mpsc::Sender<(usize, Time)>,
    book: FateLedger,
) -> std::io::Result<()> {
    // Each acknowledgement returns a permit.
    while let Ok(turn) = depth.acquire().await {
        turn.forget();
        let Some((number, object)) = next(&queue, &book).await else { break };
        book.note(|ledger, now| ledger.started(number, now));
        let mut message = BytesMut::from(heading(number, object.size));
        message.resize(message.len() + object.size as usize, 0);
        // The queue is large enough, and its reader lives until this ends.
        let _ = asked.send((number, object.due())).await;
        stream.write_all(&message).await?;
    }
    Ok(())
}

/// The next object that is not late yet.
async fn next(queue: &ObjectQueue, book: &FateLedger) -> Option<Waiting> {
    loop {
        let (number, object) = queue.lock().await.recv().await?;
        let mut is_fresh = true;
        book.note(|ledger, now| {
            is_fresh = now.since(object.arrival) * 2 < object.deadline;
            if !is_fresh {
                ledger.told(number, now, FinalStatus::Rejected);
            }
        });
        if is_fresh {
            return Some((number, object));
        }
    }
}

/// Reads the acknowledgements, in the order of the objects.
async fn hear(
    mut answers: OwnedReadHalf,
    depth: Arc<Semaphore>,
    mut asked: mpsc::Receiver<(usize, Time)>,
    book: FateLedger,
) -> std::io::Result<()> {
    while let Some((number, due)) = asked.recv().await {
        answers.read_u8().await?;
        book.note(|ledger, now| {
            ledger.told(number, now, if now <= due { FinalStatus::Delivered } else { FinalStatus::Late })
        });
        depth.add_permits(1);
    }
    Ok(())
}

async fn serve(mut stream: TcpStream, book: FateLedger) -> std::io::Result<()> {
    let (mut reader, mut buffer) = (Reader::default(), vec![0; READ_MAX]);
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let mut answers = Vec::new();
        reader.take(buffer.get(..read).unwrap_or_default(), |number| {
            book.note(|ledger, now| ledger.arrived(number, now));
            answers.push(0);
        });
        stream.write_all(&answers).await?;
    }
}

fn tcp_error(e: impl std::fmt::Display) -> String {
    format!("TCP: {e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_link_carries_its_trace() {
        let trace = Trace::parse("0,15000\n1,15000\n1,0\n2,0\n2,30000\n3,30000\n").unwrap();
        let made = varying(&trace, Time::from_secs(3), Duration::from_millis(10)).unwrap();
        let moments = made.real.trace.base.as_ref().unwrap().times_ms().to_vec();
        // 10 per second, then none, then 20; the last entry is past the end, as is the end of the list.
        assert_eq!(moments.iter().filter(|ms| **ms <= 1000).count(), 10);
        assert_eq!(moments.iter().filter(|ms| (1001..=2000).contains(*ms)).count(), 0);
        assert_eq!(moments.iter().filter(|ms| **ms > 2000).count(), 20);
        assert_eq!((made.real.delay, made.fair.rate.bits()), (Duration::from_millis(5), 400_000));
        assert_eq!((made.real.validate(), made.fair.validate()), (Ok(()), Ok(())));
        let silent = Trace::parse("0,15000\n1,15000\n1,0\n3,0\n").unwrap();
        let made = varying(&silent, Time::from_secs(3), Duration::ZERO).unwrap();
        let round = made.real.trace.base.as_ref().unwrap().round_ms();
        assert!(round > 3000, "what it begins with comes again after {round} ms");
        assert!(varying(&Trace::constant(0.0), Time::from_secs(3), Duration::ZERO).is_err(), "nothing ever crosses");
    }
}
