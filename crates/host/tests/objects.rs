//! NFS over ATP on loopback: files both ways, beside TCP, through a change of address, and past a
//! server that was started again; keys that do not fit.

mod serve_kit;
mod translator;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{self, Guests, Identity, PublicKey};
use remora_client::{ClientConfig, Transport};
use remora_host::Clock;
use remora_host::atp::blocking::BlockingEndpoint;
use remora_host::atp::{AtpEndpoint, EndpointSettings};
use remora_host::client::{self, ClientError, Keys, Session, Target, TransferLimits, download, upload};
use remora_host::server::{Objects, ServerOptions, Serving};
use remora_vfs::{MemFs, memory::OpKind};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, MkDirArgs, Reply, SetAttr};
use serve_kit::{PATIENCE, Tcp, TempDir, Wire, at, nfs_message, nfs_reply, options, sharing, wait_until, xid};
use translator::Translator;

const SIZE: u64 = 3 << 20;
const LIMITS: TransferLimits = TransferLimits { read_max: 1 << 16, write_max: 1 << 16 };

fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32]).unwrap()
}

fn serving(dir: &TempDir, listen: SocketAddr, guests: Guests) -> Serving {
    let objects = Objects { listen, identity: identity(1), guests };
    Serving::start(ServerOptions { objects: Some(objects), ..options(dir.disk()) }).unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn mounted(at: SocketAddr, server: PublicKey, transport: Transport) -> Result<Session, ClientError> {
    mounted_for(at, server, transport, Duration::from_secs(20)).await
}

async fn mounted_for(
    at: SocketAddr,
    server: PublicKey,
    transport: Transport,
    patience: Duration,
) -> Result<Session, ClientError> {
    let keys = (transport == Transport::Atp).then_some(Keys { server, own: None });
    let (host, port) = (at.ip().to_string(), Some(at.port()));
    let target = Target { host, port, mount_port: None, transport: Some(transport), keys, path: "/".into() };
    let config = ClientConfig { give_up: Some(patience), ..ClientConfig::new(transport) };
    client::mount(&target, "/", client::Options { config, seed: 7, clock: Clock::start() }).await
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

async fn create(session: &Session, name: &'static str) -> Fh {
    let place = DirOp { dir: session.root().clone(), name: Bytes::from_static(name.as_bytes()) };
    let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let reply = session.ok(Call::Create(CreateArgs { at: place, how })).await.unwrap();
    let Reply::Create(Ok(made)) = reply else { panic!("{reply:?}") };
    made.fh.unwrap()
}

/// Writes a file and calls `sent` with its progress.
async fn write(session: &Session, fh: &Fh, mut sent: impl FnMut(u64)) {
    let mut total = 0;
    let sent = |more: u64| {
        total += more;
        sent(total);
    };
    let source = |piece: std::ops::Range<u64>| Ok(piece.map(byte).collect::<Vec<_>>().into());
    upload(session, fh.clone(), 0..SIZE, LIMITS, source, sent).await.unwrap();
}

async fn read(session: &Session, fh: &Fh, mut got: impl FnMut(u64)) {
    let mut copy = vec![0; SIZE as usize];
    let sink = |at: u64, data: Bytes| {
        copy[at as usize..][..data.len()].copy_from_slice(&data);
        got(at + data.len() as u64);
        Ok(())
    };
    assert_eq!(download(session, fh.clone(), 0..SIZE, LIMITS, sink).await.unwrap(), SIZE);
    assert!(copy.iter().zip(0..).all(|(b, at)| *b == byte(at)), "the copy differs");
}

/// Also in an asynchronous task, which may not wait for the threads that were started before.
#[tokio::test]
async fn occupied_port_is_an_error() {
    let dir = TempDir::new();
    let taken = std::net::UdpSocket::bind(any()).unwrap();
    for (listen, why) in [(taken.local_addr().unwrap(), "taken"), ("192.0.2.9:4".parse().unwrap(), "not an address")] {
        let objects = Objects { listen, identity: identity(1), guests: Guests::Anyone };
        let started = Serving::start(ServerOptions { objects: Some(objects), ..options(dir.disk()) });
        let error = started.err().unwrap().to_string();
        assert!(error.contains(why) && error.contains(&listen.to_string()), "{error}");
    }
}

#[tokio::test]
async fn files_go_both_ways_and_beside_tcp() {
    let dir = TempDir::new();
    let serving = serving(&dir, any(), Guests::Anyone);
    let (at, key) = serving.objects().unwrap();
    let over_atp = mounted(at, key, Transport::Atp).await.unwrap();
    let over_tcp = mounted(serving.local_addrs()[0], key, Transport::Tcp).await.unwrap();
    let one = async {
        let fh = create(&over_atp, "atp").await;
        write(&over_atp, &fh, |_| {}).await;
        fh
    };
    let other = async {
        let fh = create(&over_tcp, "tcp").await;
        write(&over_tcp, &fh, |_| {}).await;
        fh
    };
    let (one, other) = tokio::join!(one, other);
    tokio::join!(read(&over_atp, &other, |_| {}), read(&over_tcp, &one, |_| {}));
    assert_eq!(over_atp.stats().retransmissions, 0, "nothing is sent again over a connection that lives");
    assert_eq!(serving.stats().connections, 2);
    drop((over_atp, over_tcp));
    assert_eq!(tokio::task::spawn_blocking(|| serving.shutdown().abandoned).await.unwrap(), 0);
}

#[tokio::test]
async fn wrong_key_is_refused_with_advice() {
    let dir = TempDir::new();
    let serving_all = serving(&dir, any(), Guests::Anyone);
    let (at, _) = serving_all.objects().unwrap();
    let e = mounted(at, identity(2).public(), Transport::Atp).await.unwrap_err().to_string();
    assert!(e.contains("another key") && e.contains("key= in the URL"), "{e}");
    let friends = Guests::Only([identity(3).public()].into());
    let serving_one = serving(&dir, any(), friends);
    let (at, key) = serving_one.objects().unwrap();
    // The client here is somebody new.
    let e = mounted(at, key, Transport::Atp).await.unwrap_err().to_string();
    assert!(e.contains("--atp-allow"), "{e}");
}

#[tokio::test]
async fn copy_continues_from_another_address() {
    let dir = TempDir::new();
    let serving = serving(&dir, any(), Guests::Anyone);
    let (at, key) = serving.objects().unwrap();
    let translator = Translator::towards(at);
    let session = mounted(translator.at, key, Transport::Atp).await.unwrap();
    let fh = create(&session, "moved").await;
    write(&session, &fh, |sent| translator.moved.store(sent > 0, Relaxed)).await;
    read(&session, &fh, |_| {}).await;
    // It moves with the first answer; how much of the write was on its way by then is a matter of luck on
    // a busy machine, the read is not.
    let since = translator.passed_after.load(Relaxed);
    assert!(since > 100, "it moved too late to show anything: {since} datagrams");
    assert_eq!(session.stats().retransmissions, 0, "the connection lived");
    assert_eq!(serving.stats().sockets.accepted, 1);
}

/// A gateway for connections, for one: its transport takes each call, and it closes.
#[tokio::test]
async fn peer_that_closes_after_calls_is_given_up() {
    let session = session::Config { guests: Guests::Anyone, ..Default::default() };
    let peer =
        AtpEndpoint::bind(EndpointSettings { session, ..EndpointSettings::receiver(any()) }, identity(1)).unwrap();
    let (at, key) = (peer.local_addr(), peer.public_key());
    let closing = tokio::spawn(async move {
        while let Ok(received) = peer.recv().await {
            received.from.close();
        }
    });
    let asked = mounted_for(at, key, Transport::Atp, Duration::from_secs(2));
    let answer = tokio::time::timeout(Duration::from_secs(15), asked).await.expect("it ends");
    assert!(answer.is_err());
    closing.abort();
}

/// The second call is made shortly before the first has had its time, and both fail then: a silent server
/// is given up for all. What of it was on its way must not arrive when the link is back.
#[tokio::test]
async fn failed_call_is_not_executed_after_outage() {
    let dir = TempDir::new();
    let serving = serving(&dir, any(), Guests::Anyone);
    let (at, key) = serving.objects().unwrap();
    let translator = Translator::towards(at);
    let session = mounted_for(translator.at, key, Transport::Atp, Duration::from_secs(2)).await.unwrap();
    create(&session, "before").await;
    let make = |name: &'static str| {
        let place = DirOp { dir: session.root().clone(), name: Bytes::from_static(name.as_bytes()) };
        let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
        session.ok(Call::Create(CreateArgs { at: place, how }))
    };
    translator.cut.store(true, Relaxed);
    let late = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        make("second").await
    };
    let (first, second) = tokio::join!(make("first"), late);
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
    translator.cut.store(false, Relaxed);
    tokio::time::timeout(Duration::from_secs(10), async {
        while make("after").await.is_err() {} // the session looks for the link by itself
    })
    .await
    .unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["after", "before"]);
}

#[tokio::test]
async fn copy_survives_server_restart() {
    let dir = Arc::new(TempDir::new());
    let first = serving(&dir, any(), Guests::Anyone);
    let (at, key) = first.objects().unwrap();
    let session = mounted(at, key, Transport::Atp).await.unwrap();
    let fh = create(&session, "restarted").await;
    let (mut first, mut again) = (Some(first), None);
    write(&session, &fh, |sent| {
        if sent > SIZE / 2
            && let Some(first) = first.take()
        {
            // The client stands still meanwhile: half of the copy is left for when it has gone.
            thread::spawn(|| drop(first)).join().unwrap();
            let shared = dir.clone();
            again = Some(thread::spawn(move || {
                thread::sleep(Duration::from_millis(300));
                serving(&shared, at, Guests::Anyone)
            }));
        }
    })
    .await;
    read(&session, &fh, |_| {}).await;
    // Whether anything was unanswered just then is chance. If so it was asked again, or the copy would
    // not have come to its end.
    assert_eq!(again.unwrap().join().unwrap().stats().sockets.accepted, 1);
}

/// The first time it was asked over TCP.
#[test]
fn shutdown_waits_for_reply_to_retransmission() {
    let fs = Arc::new(MemFs::new(1));
    fs.set_fault(|kind| {
        if kind == OpKind::Create {
            thread::sleep(Duration::from_secs(1));
        }
        None
    });
    let objects = Objects { listen: any(), identity: identity(1), guests: Guests::Anyone };
    let serving = Serving::start(ServerOptions { objects: Some(objects), ..options(fs) }).unwrap();
    let mut first = Tcp::connect(serving.local_addrs()[0]);
    let call = serve_kit::create(&first.mount("/"), "f");
    let message = nfs_message(xid(), &call);
    let before = serving.stats().core.executed;
    first.send(&message);
    wait_until(&serving, |s| s.core.executed == before + 1);

    let second = BlockingEndpoint::bind(EndpointSettings::receiver(any()), identity(2)).unwrap();
    let (at, key) = serving.objects().unwrap();
    let server = second.connect(at, key, PATIENCE).unwrap().unwrap();
    second.send(&server, message, remora_atp::Options::default()).unwrap();
    wait_until(&serving, |s| s.core.cache.in_progress_parked == 1);
    assert_eq!(serving.shutdown().abandoned, 0);
    let reply = second.recv(Some(PATIENCE)).unwrap().unwrap().object;
    assert_eq!(nfs_reply(&call, &reply).status(), None);
}

/// What it waits behind came again over TCP, too, where the answer goes: the session ends without a word of it.
#[test]
fn call_of_an_ended_session_is_not_executed_after_its_retry() {
    let slow = Arc::new(MemFs::new(1));
    slow.set_fault(|kind| {
        if kind == OpKind::MkDir {
            thread::sleep(Duration::from_secs(3));
        }
        None
    });
    let objects = Objects { listen: any(), identity: identity(1), guests: Guests::Anyone };
    let exports = sharing(vec![("/slow", slow), ("/", Arc::new(MemFs::new(2)))]);
    let mut options = ServerOptions { objects: Some(objects), ..exports };
    options.limits.connection_bytes_max = 1;
    let serving = Serving::start(options).unwrap();
    let connect = || Tcp::connect(serving.local_addrs()[0]);
    let mut tcp = connect();
    let [slow, root] = ["/slow", "/"].map(|path| tcp.mount(path));
    tcp.create(&root, "f");
    drop(tcp);

    let first = BlockingEndpoint::bind(EndpointSettings::receiver(any()), identity(2)).unwrap();
    let (at_objects, key) = serving.objects().unwrap();
    let server = first.connect(at_objects, key, PATIENCE).unwrap().unwrap();
    let make = Call::MkDir(MkDirArgs { at: at(&slow, "d"), attr: SetAttr::NONE });
    let remove = Call::Remove(at(&root, "f"));
    let [making, removing] = [&make, &remove].map(|call| nfs_message(xid(), call));
    let before = serving.stats().core.executed;
    first.send(&server, making.clone(), remora_atp::Options::default()).unwrap();
    wait_until(&serving, |s| s.core.executed == before + 1);
    first.send(&server, removing.clone(), remora_atp::Options::default()).unwrap();
    thread::sleep(Duration::from_millis(50));
    first.close();

    let [mut second, mut third] = [connect(), connect()];
    third.mount("/");
    second.send(&making);
    wait_until(&serving, |s| s.core.cache.in_progress_parked == 1);
    assert_eq!(nfs_reply(&remove, &third.exchange(&removing)).status(), None);
    third.create(&root, "f");
    assert_eq!(nfs_reply(&make, &second.receive()).status(), None);
    wait_until(&serving, |s| s.connections == 2);
    assert_eq!(third.call(&Call::Lookup(at(&root, "f"))).status(), None);
}
