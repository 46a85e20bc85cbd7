//! A forward and a gateway on loopback: bytes, ends and resets both ways, through a cut and a change
//! of address; who and what is refused; NFS through a gateway to a server that knows only TCP.

mod nfs;
#[path = "../serve_kit/mod.rs"]
mod serve_kit;
#[path = "../translator/mod.rs"]
mod translator;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::Options;
use remora_atp::session::{Guests, Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, End, Refused, Target, Terms};
use remora_base::Rate;
use remora_client::Transport;
use remora_host::Clock;
use remora_host::atp::{self, AtpEndpoint, Remote};
use remora_host::client::{self, Keys, TransferLimits, download, upload};
use remora_host::forward::{self, Forward, ForwardError, ForwardRoute};
use remora_host::gateway::{self, Gateway, NfsServer, Service};
use remora_host::relay::Relay;
use remora_host::server::Serving;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Reply, SetAttr};
use remora_wire::record::mark;
use serve_kit::{TempDir, options};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use translator::Translator;

/// Longer than anything here takes on a machine that is busy otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
const WINDOW: u32 = 128 << 10;
const STREAMS: Config = Config { streams: 64, window: WINDOW };

fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32]).unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(salt) >> 13) as u8).collect()
}

/// What comes about in the end: a port may not be free yet.
fn soon<T, E: std::fmt::Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(e) if started.elapsed() > PATIENCE => panic!("{e}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A gateway that runs until it is dropped or stopped. A stop is announced to the mobiles.
struct Running {
    at: SocketAddr,
    key: PublicKey,
    report: Box<dyn Fn() -> gateway::GatewayStatus + Send + Sync>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(listen: SocketAddr, service: Service) -> Running {
        let settings = || gateway::GatewaySettings {
            listen,
            identity: identity(1),
            guests: Guests::Only([identity(2).public()].into()),
            mobiles_max: 8,
            hold: Duration::from_secs(3600),
            service: service.clone(),
        };
        let mut gateway = soon(|| Gateway::bind(settings()));
        let (at, key) = (gateway.local_addr(), gateway.public_key());
        let report = Box::new(gateway.watch());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                e = gateway.run(|_| {}) => panic!("{e}"),
                _ = stopped => {}
            }
            gateway.close().await;
        });
        Running { at, key, report, stop: Some(stop), task }
    }

    fn to(targets: &[SocketAddr]) -> Running {
        Running::at(any(), targets)
    }

    fn at(listen: SocketAddr, targets: &[SocketAddr]) -> Running {
        let targets = targets.iter().map(|addr| target(*addr)).collect();
        Running::start(listen, Service::Targets { targets, streams: STREAMS, connections_max: 256 })
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn target(addr: SocketAddr) -> Target {
    Target::new(&addr.ip().to_string(), addr.port()).unwrap()
}

/// A forward that runs until it is dropped.
struct Mobile {
    ports: Vec<SocketAddr>,
    report: Box<dyn Fn() -> forward::ForwardStatus + Send + Sync>,
    news: mpsc::UnboundedReceiver<forward::ForwardEvent>,
    task: JoinHandle<ForwardError>,
}

impl Mobile {
    async fn start(gateway: SocketAddr, key: PublicKey, own: u8, to: SocketAddr, terms: Terms) -> Mobile {
        let route = ForwardRoute { listen: any(), target: target(to), terms };
        Mobile::with(gateway, key, own, vec![route], STREAMS).await
    }

    async fn with(gateway: SocketAddr, key: PublicKey, own: u8, routes: Vec<ForwardRoute>, streams: Config) -> Mobile {
        let (gateway, hold) = (target(gateway), Duration::from_secs(3600));
        let settings = forward::ForwardSettings { gateway, key, identity: identity(own), routes, streams, hold };
        let mut forward = Forward::bind(settings).await.unwrap();
        let ports = forward.local_addrs();
        let report = Box::new(forward.watch());
        let (tell, news) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move { forward.run(|n| drop(tell.send(n))).await });
        Mobile { ports, report, news, task }
    }

    async fn via(gateway: &Running, to: SocketAddr) -> Mobile {
        Mobile::start(gateway.at, gateway.key, 2, to, Terms::default()).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.ports[0]).await.unwrap()
    }

    /// The next news of this kind.
    async fn hears(&mut self, wanted: impl Fn(&forward::ForwardEvent) -> bool) -> forward::ForwardEvent {
        let heard = async {
            loop {
                let news = self.news.recv().await.unwrap();
                if wanted(&news) {
                    return news;
                }
            }
        };
        timeout(PATIENCE, heard).await.expect("news that never came")
    }
}

impl Drop for Mobile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A target that reads to the end, and only then answers: so many bytes, and what came.
async fn answering(len: usize) -> SocketAddr {
    let listener = TcpListener::bind(any()).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut got = Vec::new();
                if tcp.read_to_end(&mut got).await.is_ok() {
                    tcp.write_all(&bytes(len, 7)).await.unwrap();
                    tcp.write_all(&got).await.unwrap();
                }
            });
        }
    });
    at
}

/// Sends and receives through `tcp` until both ends are there.
async fn exchange(tcp: TcpStream, sent: &[u8], answer: usize) {
    let (mut read, mut write) = tcp.into_split();
    let send = async {
        write.write_all(sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let both = timeout(PATIENCE, async { tokio::join!(send, read.read_to_end(&mut got)) }).await.map(|(_, read)| read);
    match both {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => panic!("{e} after {} bytes", got.len()),
        Err(_) => panic!("no end after {} bytes", got.len()),
    }
    assert!(got[..answer] == bytes(answer, 7)[..], "the answer differs");
    assert!(got[answer..] == *sent, "what was sent differs");
}

fn cut_off(tcp: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&tcp, Some(Duration::ZERO)).unwrap();
}

async fn is_reset(mut tcp: TcpStream) {
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, tcp.read_to_end(&mut rest)).await.expect("neither an end nor a reset");
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

async fn until(what: &str, happened: impl Fn() -> bool) {
    let waiting = async {
        while !happened() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn megabytes_go_both_ways_and_each_way_has_its_end() {
    let to = answering(5 << 20).await;
    let gateway = Running::to(&[to]);
    let mobile = Mobile::via(&gateway, to).await;
    exchange(mobile.connect().await, &bytes(5 << 20, 3), 5 << 20).await;
    until("the end", || (mobile.report)().stats.done == 1 && (mobile.report)().connections == 0).await;
    let stats = (mobile.report)().stats;
    assert_eq!((stats.sent, stats.received, stats.reset), (5 << 20, 10 << 20, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_at_once_do_not_mix() {
    let to = answering(1000).await;
    let gateway = Running::to(&[to]);
    let mobile = Mobile::via(&gateway, to).await;
    let mut all = tokio::task::JoinSet::new();
    // More than there may be at once: the others wait at the door.
    for n in 0..100 {
        let tcp = mobile.connect().await;
        all.spawn(async move { exchange(tcp, &bytes(n * 400, n as u64), 1000).await });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    until("all ends", || (mobile.report)().stats.done == 100).await;
    until("the gateway to forget them", || (gateway.report)().stats.done == 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_ports_share_the_room_for_a_single_connection() {
    let to = answering(10).await;
    let gateway = Running::to(&[to]);
    let route = ForwardRoute { listen: any(), target: target(to), terms: Terms::default() };
    let one = Config { streams: 1, window: WINDOW };
    let mobile = Mobile::with(gateway.at, gateway.key, 2, vec![route.clone(), route], one).await;
    for _ in 0..3 {
        for port in &mobile.ports {
            exchange(TcpStream::connect(port).await.unwrap(), b"hello", 10).await;
        }
    }
}

/// A connection that was cut off here keeps its place until the other end has heard of that.
#[tokio::test(flavor = "multi_thread")]
async fn next_connection_waits_for_slot_of_aborted_one() {
    let to = answering(10).await;
    let gateway = Running::to(&[to]);
    let path = Translator::towards(gateway.at);
    let route = ForwardRoute { listen: any(), target: target(to), terms: Terms::default() };
    let one = Config { streams: 1, window: WINDOW };
    let mobile = Mobile::with(path.at, gateway.key, 2, vec![route], one).await;
    exchange(mobile.connect().await, b"hello", 10).await;
    let mut first = mobile.connect().await;
    first.write_all(b"half of it").await.unwrap();
    until("the bytes", || (gateway.report)().stats.received == 15).await;
    path.cut.store(true, Relaxed);
    cut_off(first);
    until("its end", || (mobile.report)().stats.reset == 1).await;
    // This one does not wait for longer than its program.
    cut_off(mobile.connect().await);
    let second = mobile.connect().await;
    let waits = timeout(Duration::from_secs(1), second.ready(Interest::ERROR)).await.is_err();
    assert!(waits, "a connection that can wait was reset");
    path.cut.store(false, Relaxed);
    exchange(second, b"hello again", 10).await;
    until("the figures", || (mobile.report)().stats.done == 2).await;
    assert_eq!((mobile.report)().stats.asked, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_target_is_reset_and_reported() {
    let free = TcpListener::bind(any()).await.unwrap().local_addr().unwrap();
    let unlisted = answering(0).await;
    let gateway = Running::to(&[free]);
    for (to, why) in [(free, Refused::Closed), (unlisted, Refused::NotAllowed)] {
        let mut mobile = Mobile::via(&gateway, to).await;
        is_reset(mobile.connect().await).await;
        let failed = forward::ForwardEvent::Failed { target: target(to), end: End::Refused(why) };
        mobile.hears(|n| *n == failed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_key_ends_the_forward() {
    let to = answering(0).await;
    let gateway = Running::to(&[to]);
    let wrong = Mobile::start(gateway.at, identity(9).public(), 2, to, Terms::default()).await;
    let stranger = Mobile::start(gateway.at, gateway.key, 3, to, Terms::default()).await;
    for (mut mobile, why) in [(wrong, Refusal::WrongKey), (stranger, Refusal::NotAdmitted)] {
        let end = timeout(PATIENCE, &mut mobile.task).await.unwrap().unwrap();
        assert!(matches!(&end, ForwardError::Refused(w) if *w == why), "{end}");
    }
    until("the count", || (gateway.report)().turned_away >= 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_cross_both_ways() {
    let listener = TcpListener::bind(any()).await.unwrap();
    let to = listener.local_addr().unwrap();
    let gateway = Running::to(&[to]);
    let mobile = Mobile::via(&gateway, to).await;
    for from_mobile in [true, false] {
        let mut near = mobile.connect().await;
        let (mut far, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        near.write_all(b"ping").await.unwrap();
        far.read_exact(&mut [0; 4]).await.unwrap();
        let (cut, other) = if from_mobile { (near, far) } else { (far, near) };
        cut_off(cut);
        is_reset(other).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_cross_both_ways_after_a_half_close() {
    let listener = TcpListener::bind(any()).await.unwrap();
    let to = listener.local_addr().unwrap();
    let gateway = Running::to(&[to]);
    let mobile = Mobile::via(&gateway, to).await;
    for from_mobile in [true, false] {
        let mut near = mobile.connect().await;
        let (mut far, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        near.write_all(b"ping").await.unwrap();
        far.read_exact(&mut [0; 4]).await.unwrap();
        let (mut cut, mut other) = if from_mobile { (near, far) } else { (far, near) };
        cut.shutdown().await.unwrap();
        assert_eq!(timeout(PATIENCE, other.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
        let early = timeout(Duration::from_millis(200), other.ready(Interest::ERROR)).await;
        assert!(early.is_err(), "an end is no reset");
        cut_off(cut);
        // Reading goes on to tell of the end.
        timeout(PATIENCE, other.ready(Interest::ERROR)).await.expect("no reset").unwrap();
        assert!(other.take_error().unwrap().is_some());
    }
}

/// A connection over a path that can be cut: the mobile's end of it, and the target's.
async fn connected() -> (Running, Translator, Mobile, [TcpStream; 2]) {
    let listener = TcpListener::bind(any()).await.unwrap();
    let to = listener.local_addr().unwrap();
    let gateway = Running::to(&[to]);
    let path = Translator::towards(gateway.at);
    let mobile = Mobile::start(path.at, gateway.key, 2, to, Terms::default()).await;
    let near = mobile.connect().await;
    let (far, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    (gateway, path, mobile, [near, far])
}

/// A kernel that has forgotten its connection answers so.
#[tokio::test(flavor = "multi_thread")]
async fn reset_behind_unread_end_loses_nothing() {
    let (_gateway, path, mobile, [mut near, mut far]) = connected().await;
    far.write_all(b"hello").await.unwrap();
    near.read_exact(&mut [0; 5]).await.unwrap();
    path.cut.store(true, Relaxed);
    let sent = bytes(WINDOW as usize + 20_000, 3);
    near.write_all(&sent).await.unwrap();
    near.shutdown().await.unwrap();
    until("a full window", || (mobile.report)().stats.sent == u64::from(WINDOW)).await;
    sleep(Duration::from_millis(200)).await;
    cut_off(near);
    sleep(Duration::from_millis(200)).await;
    path.cut.store(false, Relaxed);
    let mut got = Vec::new();
    timeout(PATIENCE, far.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == sent, "{} bytes", got.len());
}

/// Who has closed altogether is answered for what comes later with a reset, while the answer may still be on its way.
#[tokio::test(flavor = "multi_thread")]
async fn late_write_loses_nothing_of_the_answer() {
    let (_gateway, path, _mobile, [mut near, mut far]) = connected().await;
    near.write_all(b"question").await.unwrap();
    far.read_exact(&mut [0; 8]).await.unwrap();
    path.deaf.store(true, Relaxed);
    let sent = bytes(20_000, 3);
    far.write_all(&sent).await.unwrap();
    drop(far);
    for _ in 0..3 {
        sleep(Duration::from_millis(100)).await;
        near.write_all(b"and more").await.unwrap();
    }
    sleep(Duration::from_millis(200)).await;
    path.deaf.store(false, Relaxed);
    let mut got = Vec::new();
    // A reset behind it is as good an end.
    let _ = timeout(PATIENCE, near.read_to_end(&mut got)).await.expect("no end");
    assert!(got == sent, "{} bytes", got.len());
}

/// Nor while all of it has arrived and waits for a program that takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn reset_behind_answer_leaves_time_to_read_it() {
    let (_gateway, _path, mobile, [mut near, mut far]) = connected().await;
    rustix::net::sockopt::set_socket_recv_buffer_size(&near, 16 << 10).unwrap();
    near.write_all(b"question").await.unwrap();
    far.read_exact(&mut [0; 8]).await.unwrap();
    let sent = bytes(600_000, 3);
    far.write_all(&sent).await.unwrap();
    drop(far);
    until("all of it", || (mobile.report)().stats.received == sent.len() as u64).await;
    near.write_all(b"and more").await.unwrap();
    until("the reset", || (mobile.report)().stats.reset == 1).await;
    sleep(Duration::from_millis(300)).await;
    let mut got = Vec::new();
    // A reset behind it is as good an end.
    let _ = timeout(PATIENCE, near.read_to_end(&mut got)).await.expect("no end");
    assert!(got == sent, "{} bytes", got.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_restart_resets_and_accepts_connections() {
    let to = answering(10).await;
    let gateway = Running::to(&[to]);
    let at = gateway.at;
    let mut mobile = Mobile::via(&gateway, to).await;
    let mut open = mobile.connect().await;
    open.write_all(b"half of it").await.unwrap();
    until("the bytes", || (gateway.report)().stats.received == 10).await;
    gateway.stop().await;
    is_reset(open).await;
    mobile.hears(|n| matches!(n, forward::ForwardEvent::Down { connections: 1, .. })).await;
    let again = Running::at(at, &[to]);
    exchange(mobile.connect().await, b"hello", 10).await;
    until("the figures", || (again.report)().stats.asked == 1).await;
    assert_eq!((mobile.report)().sessions, 2);
}

/// Waits until nothing of what is written is sent any more; how many bytes were.
async fn stands_still(mobile: &Mobile) -> u64 {
    let mut last = 0;
    let stands_still = async {
        loop {
            sleep(Duration::from_millis(300)).await;
            let sent = (mobile.report)().stats.sent;
            if sent == last && sent > 0 {
                break;
            }
            last = sent;
        }
    };
    timeout(PATIENCE, stands_still).await.expect("it does not begin, or does not end");
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_is_noticed_without_reading() {
    let (gateway, _path, mobile, [mut near, far]) = connected().await;
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::ZERO)).unwrap();
    let writing = tokio::spawn(async move {
        let _ = near.write_all(&bytes(64 << 20, 1)).await;
    });
    stands_still(&mobile).await;
    writing.abort();
    timeout(PATIENCE, far.ready(Interest::ERROR)).await.expect("no reset").unwrap();
    until("its place", || (mobile.report)().connections == 0 && (gateway.report)().connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_reader_stops_only_its_writer() {
    let listener = TcpListener::bind(any()).await.unwrap();
    let (lazy, other) = (listener.local_addr().unwrap(), answering(10).await);
    let gateway = Running::to(&[lazy, other]);
    let mobile = Mobile::via(&gateway, lazy).await;
    let beside = Mobile::via(&gateway, other).await;
    let mut near = mobile.connect().await;
    let (far, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let writing = tokio::spawn(async move {
        let _ = near.write_all(&bytes(64 << 20, 1)).await;
    });
    let last = stands_still(&mobile).await;
    assert!(!writing.is_finished(), "64 MB went nowhere");
    let taken = (gateway.report)().stats.received;
    assert!(last - taken <= WINDOW.into(), "{} bytes are kept between {last} and {taken}", last - taken);
    exchange(beside.connect().await, b"hello", 10).await;
    drop(far);
    timeout(PATIENCE, writing).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_and_address_change_lose_nothing() {
    let to = answering(1 << 20).await;
    let gateway = Running::to(&[to]);
    let path = Translator::towards(gateway.at);
    let mobile = Mobile::start(path.at, gateway.key, 2, to, Terms::default()).await;
    let tcp = mobile.connect().await;
    let moves = async {
        until("a part of it", || (mobile.report)().stats.sent > 1 << 20).await;
        path.cut.store(true, Relaxed);
        sleep(Duration::from_secs(3)).await;
        let stats = (mobile.report)().stats;
        assert!(stats.sent < 4 << 20 && stats.done == 0, "it was cut too late to show anything");
        path.moved.store(true, Relaxed);
        path.cut.store(false, Relaxed);
    };
    let sent = bytes(4 << 20, 3);
    tokio::join!(exchange(tcp, &sent, 1 << 20), moves);
    assert!(path.passed_after.load(Relaxed) > 100, "it moved too late to show anything");
    assert_eq!((mobile.report)().sessions, 1, "the session lived");
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_connection_too_slow_for_it() {
    let to = answering(10).await;
    let gateway = Running::to(&[to]);
    let path = Translator::towards(gateway.at);
    let terms = Terms { deadline: Some(Duration::from_secs(2)), ..Terms::default() };
    let mut mobile = Mobile::start(path.at, gateway.key, 2, to, terms).await;
    exchange(mobile.connect().await, &bytes(20_000, 1), 10).await;
    let mut tcp = mobile.connect().await;
    until("the second", || (gateway.report)().stats.asked == 2).await;
    path.cut.store(true, Relaxed);
    tcp.write_all(b"too late").await.unwrap();
    is_reset(tcp).await;
    mobile.hears(|n| matches!(n, forward::ForwardEvent::Failed { end: End::Reset(_), .. })).await;
    path.cut.store(false, Relaxed);
    until("the other end to hear of it", || (gateway.report)().connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn question_overtakes_copy_of_same_priority() {
    let listener = TcpListener::bind(any()).await.unwrap();
    let (sink, asked) = (listener.local_addr().unwrap(), answering(10).await);
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await
    });
    let gateway = Running::to(&[sink, asked]);
    let slow = remora_channel::Config { rate: Rate::mbit(4), ..remora_channel::Config::default() };
    let path = Relay::start(any(), gateway.at, slow, 1, Clock::start()).unwrap();
    let route = |to| ForwardRoute { listen: any(), target: target(to), terms: Terms::default() };
    let streams = Config { streams: 8, window: 512 << 10 };
    let mobile = Mobile::with(path.addr(), gateway.key, 2, vec![route(sink), route(asked)], streams).await;
    let mut copy = mobile.connect().await;
    tokio::spawn(async move { copy.write_all(&bytes(8 << 20, 1)).await });
    // The window is full: what waits takes the link a second.
    until("the copy", || (mobile.report)().stats.sent > 1 << 20).await;
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        // More than an object of the copy's, so that it is not its size alone that lets it pass.
        exchange(TcpStream::connect(mobile.ports[1]).await.unwrap(), &bytes(40_000, 2), 10).await;
        least = least.min(started.elapsed());
    }
    assert!(least < Duration::from_millis(480), "a question took {least:?}");
    assert!((mobile.report)().connections == 1, "the copy is over: it was too short to show anything");
}
