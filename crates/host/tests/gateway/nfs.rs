//! NFS through a gateway to a server that knows only TCP.

use nix::sys::socket::setsockopt;
use nix::{libc, setsockopt_impl, sockopt_impl};

use super::*;

const LIMITS: TransferLimits = TransferLimits { read_max: 1 << 16, write_max: 1 << 16 };

async fn mounted(gateway: &Running) -> client::Session {
    let dir = TempDir::new();
    let own = dir.path().join("key");
    std::fs::write(&own, identity(2).secret_text()).unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let keys = Some(Keys { server: gateway.key, own: Some(own) });
    let (host, port) = (gateway.at.ip().to_string(), Some(gateway.at.port()));
    let transport = Some(Transport::Atp);
    let target = client::Target { host, port, mount_port: None, transport, keys, path: "/".into() };
    let config =
        remora_client::ClientConfig { give_up: Some(PATIENCE), ..remora_client::ClientConfig::new(Transport::Atp) };
    client::mount(&target, "/", client::Options { config, seed: 7, clock: Clock::start() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nfs_survives_a_restart_of_a_tcp_server() {
    let dir = TempDir::new();
    let first = Serving::start(options(dir.disk())).unwrap();
    let at = first.local_addrs()[0];
    let server = NfsServer { nfs: target(at), mount_port: Some(at.port()) };
    let gateway = Running::start(any(), Service::Nfs(server));
    let session = mounted(&gateway).await;
    let place = DirOp { dir: session.root().clone(), name: Bytes::from_static(b"file") };
    let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let reply = session.ok(Call::Create(CreateArgs { at: place, how })).await.unwrap();
    let Reply::Create(Ok(made)) = reply else { panic!("{reply:?}") };
    let (fh, data) = (made.fh.unwrap(), Bytes::from(bytes(3 << 20, 5)));
    let (mut sent, mut first, mut again) = (0, Some(first), None);
    let source = |piece: std::ops::Range<u64>| Ok(data.slice(piece.start as usize..piece.end as usize));
    let restart = |more: u64| {
        sent += more;
        if sent > 1 << 20
            && let Some(first) = first.take()
        {
            // In the middle of the copy, which stands still meanwhile, the server goes and comes back.
            std::thread::spawn(|| drop(first)).join().unwrap();
            let same = || remora_host::server::ServerOptions { listen: vec![at], ..options(dir.disk()) };
            again = Some(soon(|| Serving::start(same())));
        }
    };
    upload(&session, fh.clone(), 0..data.len() as u64, LIMITS, source, restart).await.unwrap();
    let mut copy = vec![0; data.len()];
    let sink = |at: u64, piece: Bytes| {
        copy[at as usize..][..piece.len()].copy_from_slice(&piece);
        Ok(())
    };
    download(&session, fh, 0..data.len() as u64, LIMITS, sink).await.unwrap();
    assert!(copy[..] == data[..], "the copy differs");
    assert!(again.is_some() && (gateway.report)().calls >= 8);
}

/// An endpoint of the mobile's, and the gateway as it sees it.
async fn endpoint(gateway: &Running) -> (AtpEndpoint, Remote) {
    let endpoint = AtpEndpoint::bind(atp::EndpointSettings::receiver(any()), identity(2)).unwrap();
    let remote = endpoint.connect(gateway.at, gateway.key).unwrap();
    timeout(PATIENCE, remote.up()).await.unwrap().unwrap();
    (endpoint, remote)
}

sockopt_impl!(
    /// Packets that have a lower TTL than this are dropped (ip(7)): those of this machine have 64.
    MinTtl,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    libc::c_int
);

/// The next record of a stream.
async fn record(tcp: &mut TcpStream) -> Vec<u8> {
    let mark = tcp.read_u32().await.unwrap();
    let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
    tcp.read_exact(&mut record).await.unwrap();
    record
}

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// NULL calls to a program in version 3, with nobody's credentials.
fn null(xid: u32, program: u32) -> Bytes {
    words(&[xid, 0, 2, program, 3, 0, 0, 0, 0, 0])
}

async fn reply(tcp: &mut TcpStream, reply: &Bytes) {
    tcp.write_all(&[&mark(reply.len())[..], reply].concat()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_client_keeps_connection_and_call() {
    let server = TcpListener::bind(any()).await.unwrap();
    let at = server.local_addr().unwrap();
    let nfs = NfsServer { nfs: target(at), mount_port: Some(at.port()) };
    let gateway = Running::start(any(), Service::Nfs(nfs));
    // NFS, and NFSACL on the same connection.
    let call = |xid| null(xid, if xid == 5 { 100_003 } else { 100_227 });

    let (first, remote) = endpoint(&gateway).await;
    let _sent = remote.send(call(5), Options::default()).unwrap();
    let (mut tcp, _) = timeout(PATIENCE, server.accept()).await.unwrap().unwrap();
    assert_eq!(timeout(PATIENCE, record(&mut tcp)).await.unwrap(), call(5));
    // It leaves without its reply.
    first.close().await;
    until("the client's leave", || (gateway.report)().mobiles == 0).await;

    let (second, remote) = endpoint(&gateway).await;
    let _again = remote.send(call(5), Options::default()).unwrap();
    let _more = remote.send(call(6), Options::default()).unwrap();
    // What comes next over the connection that there was is the new call.
    assert_eq!(timeout(PATIENCE, record(&mut tcp)).await.unwrap(), call(6));
    for xid in [5, 6] {
        let done = words(&[xid, 1, 0, 0, 0, 0]);
        reply(&mut tcp, &done).await;
        assert_eq!(timeout(PATIENCE, second.recv()).await.unwrap().unwrap().object, done);
    }
    assert!(timeout(Duration::from_millis(50), server.accept()).await.is_err(), "there is one connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_xid_ends_the_client() {
    let server = TcpListener::bind(any()).await.unwrap();
    let at = server.local_addr().unwrap();
    let nfs = NfsServer { nfs: target(at), mount_port: Some(at.port()) };
    let gateway = Running::start(any(), Service::Nfs(nfs));
    let (_first, remote) = endpoint(&gateway).await;
    // NULL twice, for which there is no reply; then something else.
    for (proc, calls) in [(0, 1), (0, 2), (1, 3)] {
        assert!(remote.ended().is_none());
        let _sent = remote.send(words(&[5, 0, 2, 100_003, 3, proc, 0, 0, 0, 0]), Options::default()).unwrap();
        until("the call", || (gateway.report)().calls == calls).await;
    }
    until("its end", || remote.ended().is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_to_dead_machine_is_made_again() {
    let server = TcpListener::bind(any()).await.unwrap();
    let at = server.local_addr().unwrap();
    let nfs = NfsServer { nfs: target(at), mount_port: Some(at.port()) };
    let gateway = Running::start(any(), Service::Nfs(nfs));
    let (_client, remote) = endpoint(&gateway).await;
    let _first = remote.send(null(5, 100_003), Options::default()).unwrap();
    let (mut tcp, from) = timeout(PATIENCE, server.accept()).await.unwrap().unwrap();
    assert_eq!(timeout(PATIENCE, record(&mut tcp)).await.unwrap(), null(5, 100_003));
    reply(&mut tcp, &words(&[5, 1, 0, 0, 0, 0])).await;
    until("the connection", || (gateway.report)().connections == 1).await;
    setsockopt(&tcp, MinTtl, &255).unwrap();
    let _second = remote.send(null(6, 100_003), Options::default()).unwrap();
    until("its end", || (gateway.report)().connections == 0).await;
    // It is back, and knows nothing of the connection.
    cut_off(tcp);
    let (mut tcp, again) = timeout(PATIENCE, server.accept()).await.unwrap().unwrap();
    assert_eq!((timeout(PATIENCE, record(&mut tcp)).await.unwrap(), again), (null(6, 100_003).to_vec(), from));
}

#[tokio::test(flavor = "multi_thread")]
async fn guessed_mount_port_is_looked_up_again() {
    let server = TcpListener::bind(any()).await.unwrap();
    let nfs = NfsServer { nfs: target(server.local_addr().unwrap()), mount_port: None };
    let gateway = Running::start(any(), Service::Nfs(nfs));
    let (client, remote) = endpoint(&gateway).await;
    for xid in [5, 6] {
        let _call = remote.send(null(xid, 100_005), Options::default()).unwrap();
        let Ok(accepted) = timeout(Duration::from_secs(20), server.accept()).await else {
            assert!(xid == 5, "the guess stands");
            return skip::skipped(&skip::this_test(), "the portmapper of this machine knows of a MOUNT");
        };
        let mut tcp = accepted.unwrap().0;
        assert_eq!(timeout(PATIENCE, record(&mut tcp)).await.unwrap(), null(xid, 100_005));
        let unavailable = words(&[xid, 1, 0, 0, 0, 1]);
        reply(&mut tcp, &unavailable).await;
        assert_eq!(timeout(PATIENCE, client.recv()).await.unwrap().unwrap().object, unavailable);
        // It is the gateway that closes.
        assert_eq!(timeout(PATIENCE, tcp.read(&mut [0])).await.unwrap().unwrap(), 0);
    }
}
