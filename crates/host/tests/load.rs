//! Background load on loopback: the rate is the one asked for, and every packet is accounted for.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use remora_base::Rate;
use remora_host::load::{Law, Plan, Run, Runs, Sent, connect, listen, receive, send};

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs in one of which at least a busy machine is in time.
const TRIES: usize = 5;

/// A receiver on a thread of its own, until it is dropped.
struct Receiver {
    at: SocketAddr,
    runs: Arc<Runs>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Vec<Run>>>,
}

impl Receiver {
    fn start() -> Receiver {
        let socket = listen(HERE).unwrap();
        let at = socket.local_addr().unwrap();
        let (runs, stop) = (Arc::new(Runs::default()), Arc::new(AtomicBool::new(false)));
        let (counts, over) = (runs.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut ended = Vec::new();
            receive(&socket, &counts, &over, |run| ended.push(run)).unwrap();
            ended
        });
        Receiver { at, runs, stop, thread: Some(thread) }
    }

    /// The runs that have ended.
    fn stop(mut self) -> Vec<Run> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn plan(law: Law, rate: Rate, duration: Duration, run: u64) -> Plan {
    Plan::new(HERE.ip(), rate, 1000, law, duration, run).unwrap()
}

fn sent(to: SocketAddr, plan: &Plan) -> Sent {
    send(&connect(to).unwrap(), plan, &AtomicBool::new(false)).unwrap()
}

/// What is sent, not only what was due: the rate, but for the last bits. A busy machine may make a run late, which
/// says nothing of this; it does not make all of several so.
#[test]
fn sent_rate_matches_requested_rate() {
    // What 42 draws by chance is 5 % off in a second.
    for (law, share) in [(Law::Even, 0.02), (Law::Poisson, 0.12)] {
        let receiver = Receiver::start();
        let plan = plan(law, Rate::mbit(2), Duration::from_secs(1), 42);
        let as_asked =
            |sent: &Sent| sent.skipped + sent.refused == 0 && (sent.sent_bits_per_s() / 2e6 - 1.0).abs() < share;
        let mut runs = Vec::new();
        while !runs.last().is_some_and(as_asked) {
            assert!(runs.len() < TRIES, "{law:?}: {runs:?}");
            runs.push(sent(receiver.at, &plan));
        }
    }
}

#[test]
fn datagrams_refused_by_system_do_not_count() {
    let receiver = Receiver::start();
    let socket = connect(receiver.at).unwrap();
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
    let (sent, _) = stopped_after(Duration::from_millis(500), socket, Duration::from_millis(200)).unwrap();
    assert!(sent.refused > 0, "{sent:?}");
    assert_eq!((sent.sent, sent.sent_bits_per_s(), sent.carried), (0, 0.0, None), "{sent:?}");
    assert!(sent.offered_bits_per_s() > 0.0, "{sent:?}");
}

#[test]
fn counts_are_exact() {
    for law in [Law::Even, Law::Poisson] {
        let receiver = Receiver::start();
        let plan = plan(law, Rate::mbit(8), Duration::from_secs(1), 42);
        let sent = sent(receiver.at, &plan);
        assert!(sent.sent > 0, "{sent:?}");
        let carried = sent.carried.expect("the receiver answers");
        assert_eq!(carried.packets + carried.lost, sent.sent, "{sent:?}");
        assert_eq!((carried.lost, carried.duplicates, carried.reordered), (0, 0, 0), "{sent:?}");
        assert_eq!(carried.bytes, 1000 * carried.packets);
        let ended = receiver.stop();
        assert_eq!(ended.len(), 1, "told once, however often it was asked");
        assert_eq!((ended[0].run, ended[0].carried, ended[0].ended), (42, carried, true));
    }
}

#[test]
fn concurrent_runs_are_counted_apart() {
    let receiver = Receiver::start();
    let lengths = [300, 500].map(Duration::from_millis);
    let all: Vec<Sent> = thread::scope(|scope| {
        let start = |(run, length)| {
            let plan = plan(Law::Even, Rate::mbit(2), length, run);
            scope.spawn(move || sent(receiver.at, &plan))
        };
        let threads: Vec<_> = (1..).zip(lengths).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (run, sent) in (1..).zip(&all) {
        assert_eq!(receiver.runs.carried(run).packets, sent.sent, "{sent:?}");
    }
    assert!(all[0].sent < all[1].sent);
    assert_eq!(receiver.stop().len(), 2);
}

#[test]
fn repeated_run_is_counted_anew() {
    let receiver = Receiver::start();
    let plan = plan(Law::Even, Rate::mbit(2), Duration::from_millis(300), 5);
    for _ in 0..2 {
        let sent = sent(receiver.at, &plan);
        let carried = sent.carried.expect("the receiver answers");
        assert_eq!((carried.packets, carried.lost, carried.duplicates), (sent.sent, 0, 0), "{sent:?}");
        assert_eq!(receiver.runs.carried(5), carried);
    }
    assert_eq!(receiver.stop().len(), 2, "each is told");
}

#[test]
fn stop_ends_load_at_once_with_figures() {
    let receiver = Receiver::start();
    let stop = AtomicBool::new(false);
    let plan = plan(Law::Even, Rate::mbit(1), Duration::from_secs(3600), 1);
    let socket = connect(receiver.at).unwrap();
    let began = Instant::now();
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| send(&socket, &plan, &stop).unwrap());
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Release);
        sending.join().unwrap()
    });
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(sent.sent > 0 && sent.carried.is_some_and(|c| c.packets == sent.sent), "{sent:?}");
}

#[test]
fn missing_receiver_is_reported() {
    // Bound, so that nobody else takes the port; it never answers.
    let silent = UdpSocket::bind(HERE).unwrap();
    let socket = connect(silent.local_addr().unwrap()).unwrap();
    let (sent, _) = stopped_after(Duration::from_secs(1), socket, Duration::from_millis(100)).unwrap();
    assert_eq!(sent.carried, None);
    assert!(sent.sent > 0, "{sent:?}");
}

/// A load of `length` with a stop after `pause`; what came of it and how long it took, unless that is very long.
fn stopped_after(pause: Duration, socket: UdpSocket, length: Duration) -> Option<(Sent, Duration)> {
    let (stop, (tell, told), began) = (Arc::new(AtomicBool::new(false)), channel(), Instant::now());
    let stopped = stop.clone();
    thread::spawn(move || {
        let sent = send(&socket, &plan(Law::Even, Rate::mbit(20), length, 1), &stopped).unwrap();
        // Nobody waits any more for one that took very long.
        let _ = tell.send(sent);
    });
    thread::sleep(pause);
    stop.store(true, Ordering::Release);
    Some((told.recv_timeout(Duration::from_secs(20)).ok()?, began.elapsed()))
}

/// The near address of a path that delays every datagram by `delay` in both directions.
fn slow_way(to: SocketAddr, delay: Duration) -> SocketAddr {
    let (near, far) = (UdpSocket::bind(HERE).unwrap(), UdpSocket::bind(HERE).unwrap());
    far.connect(to).unwrap();
    let (at, client) = (near.local_addr().unwrap(), Arc::new(OnceLock::new()));
    let (there, back, known) = (far.try_clone().unwrap(), near.try_clone().unwrap(), client.clone());
    late(near, delay, move |bytes, from| {
        known.get_or_init(|| from);
        there.send(bytes)
    });
    late(far, delay, move |bytes, _| client.get().map_or(Ok(0), |client| back.send_to(bytes, client)));
    at
}

/// Has `deliver` have what comes to `socket`, when it is late by `delay`.
fn late(
    socket: UdpSocket,
    delay: Duration,
    mut deliver: impl FnMut(&[u8], SocketAddr) -> std::io::Result<usize> + Send + 'static,
) {
    let (put, take) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            put.send((Instant::now() + delay, buffer[..n].to_vec(), from)).unwrap();
        }
    });
    thread::spawn(move || {
        for (due, bytes, from) in take {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = deliver(&bytes, from);
        }
    });
}

#[test]
fn late_answer_is_awaited() {
    let receiver = Receiver::start();
    let to = slow_way(receiver.at, Duration::from_millis(2500));
    let sent = sent(to, &plan(Law::Even, Rate::mbit(2), Duration::from_millis(200), 1));
    let carried = sent.carried.expect("the receiver answers");
    assert_eq!((carried.packets, carried.lost), (sent.sent, 0), "{sent:?}");
}

/// Such as a device whose queue has stopped: a stop ends it all the same.
#[test]
fn full_socket_does_not_delay_end() {
    let (socket, _nobody_reads) = UnixDatagram::pair().unwrap();
    let socket = UdpSocket::from(OwnedFd::from(socket));
    let (pause, length) = (Duration::from_secs(1), Duration::from_millis(500));
    let (sent, took) = stopped_after(pause, socket, length).expect("it ends");
    assert!(sent.refused > 0 && sent.carried.is_none(), "{sent:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn foreign_datagram_counts_as_stray() {
    let receiver = Receiver::start();
    let socket = connect(receiver.at).unwrap();
    for stray in [&b""[..], b"RML1", &[0xff; 200]] {
        socket.send(stray).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while receiver.runs.strays() < 3 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((receiver.runs.strays(), receiver.runs.all().len()), (3, 0));
}
