//! Parallel TCP streams for file data, beside a session's datagrams, where frames are lost independently.
//!
//! A datagram of several frames is lost with any of them; one of a single frame spends a quarter of it on headers and
//! its request. A stream retransmits only the lost segment (SACK, RFC 2018). But a stream stalls when a retransmission
//! is lost, too, until its timer expires; so there are several. Bursts of losses are left to datagrams, which recover
//! sooner.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_client::{Client, ClientConfig, WindowSize};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::client::options::Options;
use crate::client::transport::connection::Connection;
use crate::handoff::Signal;

/// Number of streams.
const STREAMS: usize = 4;
/// Requests in flight on each: the one that it carries and the next. More would only be lost with a stalled stream.
const REQUESTS: u32 = 2;
/// Independent loss rates with which streams are opened; above, they wait for their timers most of the time.
pub const STREAMS_LOSS: std::ops::Range<f64> = 0.03..0.17;
/// Longest smoothed RTT of a block over UDP with which streams are opened.
const TRIP_MAX: Duration = Duration::from_millis(300);
/// Linux's minimum retransmission timeout is the RTT and this.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// Silence after which a stream is given up and its requests go over UDP.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Time limit of a connection attempt.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time between attempts to complete the set.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between attempts if none connected.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// The streams of a session.
#[derive(Debug)]
pub(crate) struct ParallelStreams {
    options: Options,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    connections: Vec<Arc<Connection>>,
    /// A stream has brought a reply since there were none.
    have_served: bool,
    /// The last hand-off signal, for streams that are yet to connect.
    hand_off: Option<(Signal, Instant)>,
    opening: Option<JoinHandle<()>>,
    not_before: Option<Instant>,
    /// Seeds used, relative to the session's.
    drawn: u64,
}

impl State {
    /// Seeds for new streams, relative to the session's. Each is unique and not zero, so that the xids of different
    /// connections differ.
    fn draw(&mut self, streams: u64) -> RangeInclusive<u64> {
        let first = self.drawn + 1;
        self.drawn += streams;
        first..=self.drawn
    }

    /// Adds a connected stream. If a hand-off of the link is in progress, signals it to the stream.
    fn add(&mut self, connection: Connection) {
        let left = |at: Instant, all: Duration| Some(all.saturating_sub(at.elapsed())).filter(|left| !left.is_zero());
        let told = self.hand_off.and_then(|(signal, at)| match signal {
            Signal::Begin(all) => left(at, all).map(Signal::Begin),
            Signal::Kept(all) => left(at, all).map(Signal::Kept),
            Signal::End => None,
        });
        told.into_iter().for_each(|signal| connection.shared.hand_off(signal));
        self.connections.push(Arc::new(connection));
    }

    /// Removes a stream, which `has_served` or not. Returns whether it was there.
    fn remove(&mut self, connection: &Arc<Connection>, has_served: bool) -> bool {
        let before = self.connections.len();
        self.connections.retain(|l| !Arc::ptr_eq(l, connection));
        let removed = self.connections.len() < before;
        self.have_served |= removed && has_served;
        removed
    }
}

impl ParallelStreams {
    /// Without streams yet.
    pub(crate) fn new(options: Options) -> ParallelStreams {
        ParallelStreams { options, state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connected streams.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.lock().connections.clone()
    }

    /// Takes a hand-off signal.
    pub(crate) fn hand_off(&self, signal: Signal) {
        let mut state = self.lock();
        state.hand_off = Some((signal, Instant::now()));
        state.connections.iter().for_each(|connection| connection.shared.hand_off(signal));
    }

    /// Whether streams are faster than the datagrams of `core`: where datagrams are single packets. With losses the
    /// window of a stream fills neither a long nor a fast path, and on a slow path a block takes as long as a stream
    /// may be silent. A path counts as fast until its rate is known.
    fn is_for(core: &Client) -> bool {
        if core.drops_fragments() {
            return !core.drops_packets();
        }
        let is_slow = core.smoothed_rtt().is_some_and(|trip| trip > TRIP_MAX);
        let Some(loss) = core.loss().filter(|loss| STREAMS_LOSS.contains(loss)) else { return false };
        let trip = core.min_rtt().unwrap_or_default();
        !core.is_far() && !is_slow && core.frames_per_second().is_some_and(|path| can_fill(path, loss, trip))
    }

    /// Opens streams beside `connection`, if they are faster. Needs the runtime.
    pub(crate) fn open_if_lossy(&self, connection: &Connection) {
        let mut state = self.lock();
        let (now, is_opening) = (Instant::now(), state.opening.as_ref().is_some_and(|t| !t.is_finished()));
        if is_opening || state.not_before.is_some_and(|t| t > now) {
            return;
        }
        let missing = STREAMS.saturating_sub(state.connections.len());
        {
            let core = &mut connection.shared.lock().core;
            // During a hand-off nothing is sent.
            if missing == 0 || core.is_held() || !Self::is_for(core) {
                return;
            }
            core.save_path(connection.shared.now(), state.connections.len());
        }
        let seeds = state.draw(missing as u64);
        state.not_before = Some(now + PAUSE);
        state.have_served &= !state.connections.is_empty();
        let (options, server, to) = (self.options.clone(), connection.server, self.state.clone());
        state.opening = Some(tokio::spawn(async move {
            let give_up = options.config.give_up.map_or(SILENCE_MAX, |t| t.min(SILENCE_MAX));
            let window = match options.config.window {
                WindowSize::Adaptive => WindowSize::Fixed(REQUESTS),
                chosen @ WindowSize::Fixed(_) => chosen,
            };
            let mut opening = JoinSet::new();
            for n in seeds {
                let config = ClientConfig { give_up: Some(give_up), window, ..options.config.clone() };
                let options = Options { seed: options.seed.wrapping_add(n), ..options.clone() };
                let open = async move { Connection::open_beside(server, config, &options).await };
                opening.spawn(tokio::time::timeout(CONNECT_MAX, open));
            }
            let lock = || to.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(done) = opening.join_next().await {
                if let Ok(Ok(Ok(connection))) = done {
                    lock().add(connection);
                }
            }
            let mut state = lock();
            if state.connections.is_empty() && !state.have_served {
                state.not_before = Some(Instant::now() + PAUSE_REFUSED);
            }
        }));
    }

    /// Gives a stream up and resets it, so that nothing arrives later. It is replaced after a while: a long one if it
    /// was the last and none brought a reply. Several callers may give up the same stream.
    pub(crate) fn give_up(&self, connection: &Arc<Connection>) {
        let has_served = connection.shared.lock().core.has_replied();
        connection.reset();
        let mut state = self.lock();
        if !state.remove(connection, has_served) {
            return;
        }
        let pause = if state.have_served || !state.connections.is_empty() { PAUSE } else { PAUSE_REFUSED };
        state.not_before = Some(Instant::now() + pause);
    }
}

/// Whether all streams together fill a path of so many frames a second.
fn can_fill(frames_per_second: f64, loss: f64, trip: Duration) -> bool {
    STREAMS as f64 * segments_per_second(loss, trip) >= frames_per_second
}

/// Rate of a stream in full segments a second, with an independent loss rate `loss` (above 0, at most 1): J. Padhye and
/// others, "Modeling TCP Throughput", 1998, equation 30, every segment acknowledged. Linux is a little faster.
fn segments_per_second(loss: f64, trip: Duration) -> f64 {
    let repairs = trip.as_secs_f64() * (2.0 * loss / 3.0).sqrt();
    let timeouts = (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0) * loss * (1.0 + 32.0 * loss * loss);
    1.0 / (repairs + (trip + TIMEOUT_MIN).as_secs_f64() * timeouts)
}

impl Drop for ParallelStreams {
    fn drop(&mut self) {
        if let Some(task) = self.lock().opening.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;
    use remora_wire::nfs3::{Call, Fh, Proc, ReadArgs, ReadOk, Reply};
    use remora_wire::record::{RecordReader, mark};
    use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
    use remora_wire::urgency::Urgency;
    use remora_wire::{Reader, Xdr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Clock;
    use crate::client::{Session, TransferLimits, listen, receive};

    const SIZE: u64 = 200_000;

    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    fn answer(message: Bytes) -> Vec<u8> {
        let mut r = Reader::new(message);
        let call = CallHeader::decode(&mut r).unwrap();
        let mut reply = Vec::new();
        ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
        if call.proc == Proc::Read as u32 {
            let Ok(Call::Read(read)) = Call::decode(Proc::Read, &mut r) else { panic!("not a READ") };
            let end = SIZE.min(read.offset + u64::from(read.count));
            let data: Bytes = (read.offset..end).map(byte).collect::<Vec<_>>().into();
            let ok = ReadOk { attr: None, count: data.len() as u32, eof: end == SIZE, data };
            Reply::Read(Ok(ok)).encode(&mut reply);
        }
        reply
    }

    /// Answers READ over UDP, and on the first `living` connections; on others it says nothing.
    async fn serve(living: usize) -> SocketAddr {
        let (listener, socket) = listen().await;
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                let _ = socket.send_to(&answer(Bytes::copy_from_slice(&buffer[..n])), from).await;
            }
        });
        tokio::spawn(async move {
            for nth in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut records = RecordReader::new(1 << 20);
                    while let Ok(1..) = stream.read_buf(records.buffer()).await {
                        while let Ok(Some(record)) = records.next_record() {
                            let reply = answer(record);
                            if nth < living {
                                let _ = stream.write_all(&[&mark(reply.len())[..], &reply].concat()).await;
                            }
                        }
                    }
                });
            }
        });
        at
    }

    async fn connection_to(at: SocketAddr) -> (Options, Connection) {
        let options =
            Options { config: ClientConfig::new(remora_client::Transport::Udp), seed: 1, clock: Clock::start() };
        let connection =
            Connection::open(remora_client::Transport::Udp, at, options.config.clone(), &options).await.unwrap();
        (options, connection)
    }

    async fn two_streams(at: SocketAddr, options: &Options) -> Vec<Arc<Connection>> {
        let mut connections = Vec::new();
        for _ in 0..2 {
            let config = ClientConfig { give_up: Some(SILENCE_MAX), ..options.config.clone() };
            connections.push(Arc::new(Connection::open_beside(at, config, options).await.unwrap()));
        }
        connections
    }

    /// Reads a file over two streams of which so many live; how long it took, and how many
    /// streams were left.
    async fn read(living: usize) -> (Duration, usize) {
        let (options, connection) = connection_to(serve(living).await).await;
        let streams = ParallelStreams::new(options.clone());
        streams.lock().connections = two_streams(connection.server, &options).await;
        let fh = Fh(Bytes::from_static(b"file"));
        let session = Session::new(connection, Some(streams), fh.clone());
        let mut got = vec![0; SIZE as usize];
        let limits = TransferLimits { read_max: 65_536, write_max: 65_536 };
        let began = Instant::now();
        let sink = |at: u64, data: Bytes| {
            got[at as usize..at as usize + data.len()].copy_from_slice(&data);
            Ok(())
        };
        let done = receive(&session, fh, 0..SIZE, limits, sink).await.unwrap();
        assert_eq!(done.end, SIZE);
        assert!((0..SIZE).zip(&got).all(|(at, b)| byte(at) == *b));
        (began.elapsed(), session.stream_connections().len())
    }

    /// Over two streams of which so many live.
    #[tokio::test]
    async fn call_leaves_silent_streams_for_datagrams() {
        for living in [2, 0] {
            let (options, connection) = connection_to(serve(living).await).await;
            let streams = ParallelStreams::new(options.clone());
            streams.lock().connections = two_streams(connection.server, &options).await;
            let session = Session::new(connection, Some(streams), Fh(Bytes::from_static(b"file")));
            let args = ReadArgs { fh: session.root().clone(), offset: 100, count: 20_000 };
            let call = session.call_as(OpaqueAuth::none(), Urgency::Bulk, Call::Read(args));
            let datagrams = session.own_connection().shared.lock().core.stats().requests;
            assert_eq!(datagrams, 0, "streams carry file data");
            let Reply::Read(Ok(read)) = call.await.unwrap() else { panic!("no data") };
            assert!((100..20_100).zip(&read.data).all(|(at, b)| byte(at) == *b) && read.data.len() == 20_000);
            assert_eq!(session.stream_connections().len(), living);
        }
    }

    /// As 8 and 2 MB took them on the emulator, datagrams against streams.
    #[test]
    fn streams_are_used_only_where_they_fill_the_path() {
        let cases = [
            (1.0, 0.10, 4, true),
            (1.0, 0.15, 4, true),
            (5.0, 0.05, 10, true),
            (5.0, 0.05, 20, true),
            (5.0, 0.10, 10, false),
            (20.0, 0.03, 1, true),
            (20.0, 0.05, 20, false),
            (20.0, 0.05, 40, false),
            (20.0, 0.10, 4, false),
            (100.0, 0.05, 1, false),
        ];
        for (mbits, loss, trip_ms, expected) in cases {
            let frames = mbits * 1e6 / 8.0 / 1500.0;
            let can = can_fill(frames, loss, Duration::from_millis(trip_ms));
            assert_eq!(can, expected, "{mbits} Mbit/s, {loss} lost, {trip_ms} ms");
        }
    }

    #[test]
    fn stream_seeds_are_unique() {
        let mut state = State::default();
        let mut seeds = vec![0];
        for streams in [4, 1, 1, 3, 2] {
            seeds.extend(state.draw(streams));
        }
        assert_eq!(seeds, (0..=11).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn download_does_not_wait_for_stalled_streams() {
        for (living, left, within) in [(2, 2, 500), (1, 1, 2500), (0, 0, 5000)] {
            let (took, streams) = read(living).await;
            assert_eq!(streams, left, "{living} of 2 streams live");
            assert!(took < Duration::from_millis(within), "{living} of 2 streams live: {took:?}");
        }
    }

    /// Both take the locks of the session's core and of its streams.
    #[tokio::test(flavor = "multi_thread")]
    async fn counting_and_opening_streams_do_not_deadlock() {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                tokio::time::sleep(Duration::from_millis(250)).await;
                let _ = socket.send_to(&answer(Bytes::copy_from_slice(&buffer[..n])), from).await;
            }
        });
        let (options, connection) = connection_to(at).await;
        let session = Session::new(connection, Some(ParallelStreams::new(options)), Fh(Bytes::from_static(b"file")));
        session.call(Call::Null).await.unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for counts in [true, false] {
            let (session, tell) = (session.clone(), tell.clone());
            std::thread::spawn(move || {
                for _ in 0..300_000 {
                    if counts {
                        assert!(session.stats().requests > 0);
                    } else {
                        assert!(session.connection_with_room(true).is_some());
                    }
                }
                tell.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            told.recv_timeout(Duration::from_secs(60)).expect("both come to an end");
        }
    }

    /// As where a full server, or a proxy whose own server is away, takes connections.
    #[tokio::test]
    async fn unserved_streams_are_retried_late() {
        for (living, pause) in [(0, PAUSE_REFUSED), (1, PAUSE), (2, PAUSE)] {
            let (options, own) = connection_to(serve(living).await).await;
            let streams = ParallelStreams::new(options.clone());
            let connections = two_streams(own.server, &options).await;
            streams.lock().connections.clone_from(&connections);
            for (nth, connection) in connections.iter().enumerate() {
                let read = Call::Read(remora_wire::nfs3::ReadArgs {
                    fh: Fh(Bytes::from_static(b"file")),
                    offset: 0,
                    count: 9,
                });
                let asked = connection.shared.ask(remora_client::Request::Nfs(read), "");
                let answered = tokio::time::timeout(Duration::from_millis(300), asked).await;
                assert_eq!(answered.is_ok_and(|a| a.is_ok()), nth < living);
                streams.give_up(connection);
            }
            // By all that they carried.
            streams.give_up(&connections[1]);
            assert!(streams.connections().is_empty());
            let left = streams.lock().not_before.unwrap() - Instant::now();
            assert!(left <= pause && left + Duration::from_millis(500) > pause, "{living} live: {left:?}");
        }
    }

    #[tokio::test]
    async fn stream_opened_during_a_handoff_is_held() {
        let (options, own) = connection_to(serve(1).await).await;
        let streams = ParallelStreams::new(options.clone());
        for (signal, is_held) in [(Signal::Begin(CONNECT_MAX), true), (Signal::End, false)] {
            streams.hand_off(signal);
            let config = ClientConfig { give_up: Some(SILENCE_MAX), ..options.config.clone() };
            let connection = Connection::open_beside(own.server, config, &options).await.unwrap();
            streams.lock().add(connection);
            assert_eq!(streams.connections().last().unwrap().shared.lock().core.is_held(), is_held, "{signal:?}");
        }
        assert!(streams.connections().iter().all(|connection| !connection.shared.lock().core.is_held()));
    }

    /// What a hand-off silences stands still through no fault of its own.
    #[tokio::test]
    async fn streams_outlast_a_hand_off_at_the_end_of_a_file() {
        const ATTEMPTS: u32 = 50;
        for _ in 0..ATTEMPTS {
            if let Some(during) = streams_during_a_hand_off().await {
                return assert_eq!(during, 2);
            }
        }
        panic!("the machine is too busy to look at a hand-off while it lasts");
    }

    /// Reads the end of a file during a hand-off. Returns the number of streams shortly before the end of the hand-off;
    /// `None` if the machine was so busy that the look came too late.
    async fn streams_during_a_hand_off() -> Option<usize> {
        let (before, lasts) = (Duration::from_millis(50), Duration::from_millis(1500));
        let (options, own) = connection_to(serve(0).await).await;
        let streams = ParallelStreams::new(options.clone());
        streams.lock().connections = two_streams(own.server, &options).await;
        let fh = Fh(Bytes::from_static(b"file"));
        let session = Session::new(own, Some(streams), fh.clone());
        let limits = TransferLimits { read_max: 65_536, write_max: 65_536 };
        let reading = receive(&session, fh, 0..12_000, limits, |_, _| Ok(()));
        let switching = async {
            let began = Instant::now();
            tokio::time::sleep(before).await;
            session.hand_off(Signal::Kept(lasts));
            let was_punctual = began.elapsed() < 2 * before;
            tokio::time::sleep(lasts - 4 * before).await;
            let left = session.stream_connections().len();
            (was_punctual && began.elapsed() < before + lasts).then_some(left)
        };
        let (done, left) = tokio::join!(reading, switching);
        assert_eq!((session.stream_connections().len(), done.unwrap().end), (0, 12_000), "in the end");
        left
    }

    #[tokio::test]
    async fn watched_stream_is_reset_when_given_up() {
        let (listener, _) = listen().await;
        let config = ClientConfig::new(remora_client::Transport::Tcp);
        let options = Options { config: config.clone(), seed: 1, clock: Clock::start() };
        let connection = Connection::open_beside(listener.local_addr().unwrap(), config, &options).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        while !connection.shared.is_watched() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        connection.reset();
        let told = tokio::time::timeout(CONNECT_MAX, other.read(&mut [0])).await.expect("the other end is told");
        assert_eq!(told.map_err(|e| e.kind()), Err(std::io::ErrorKind::ConnectionReset));
        assert!(!connection.shared.is_watched());
    }
}
