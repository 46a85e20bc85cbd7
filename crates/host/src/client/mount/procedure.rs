//! Mounting: addresses, ports and the MOUNT program.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use remora_client::{Answer, CallFailure, Request, Transport};
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::Outcome;
use remora_wire::{mount as mnt, portmap};
use tracing::debug;

use crate::client::error::ClientError;
use crate::client::mount::happy_eyeballs::{TransportAttempt, never, race, until_answered};
use crate::client::options::Options;
use crate::client::session::Session;
use crate::client::target::Target;
use crate::client::transport::connection::Connection;
use crate::client::transport::parallel_streams::ParallelStreams;
use crate::client::transport::shared_core::Pending;
use crate::zone;

/// How long "port unreachable" is doubted over UDP: a server may be starting.
const REFUSED_MAX: Duration = Duration::from_secs(2);
/// Largest number of addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;
/// Paths in concurrent MNT calls.
const SIDE_BY_SIDE: usize = 4;
/// How much later than a reply that of the next path may come.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How much longer than MOUNT a NULL may take.
const NULL_MAX: Duration = Duration::from_millis(500);
/// Head start of an address or a transport.
const NEXT_WAY: Duration = Duration::from_millis(300);

/// Mounts `path` on the target's server; the target's own path is ignored.
pub async fn mount(target: &Target, path: &str, options: Options) -> Result<Session, ClientError> {
    Ok(mount_first(target, &[path.to_owned()], options).await?.session)
}

/// A mounted path.
#[derive(Debug)]
pub struct Mounted {
    /// Index of the path.
    pub nth: usize,
    pub session: Session,
    /// The next path, if the server mounts it, too, and said so at the same time.
    pub next: Option<(usize, Session)>,
}

/// Mounts the first of `paths` that the server accepts. They are sent side by side, to save round trips. If the server
/// refuses all, the error is its reply to the first. Some servers, such as Linux's, also mount files.
///
/// MOUNT is expected on the target's `mount_port`, without one on the NFS port, where Remora and other user-space
/// servers answer, and else where the portmapper says.
pub async fn mount_first(target: &Target, paths: &[String], options: Options) -> Result<Mounted, ClientError> {
    until_answered(options.config.give_up, || Box::pin(try_to_mount(target, paths, options.clone()))).await
}

/// The exports that the server lists to this address (EXPORT of MOUNT). A list may be longer than a datagram, so TCP
/// has a head start.
pub async fn exports(target: &Target, options: Options) -> Result<Vec<mnt::Export>, ClientError> {
    let ask = async || {
        let ips = resolve(&target.host).await?;
        let over = |way| ask_over(target, &ips, way, Question::Exports);
        if let Some(transport) = target.transport {
            return over(&TransportAttempt::new(transport, &options)).await;
        }
        let [tcp, udp] = [Transport::Tcp, Transport::Udp].map(|transport| TransportAttempt::new(transport, &options));
        race(over(&tcp), over(&udp), tokio::time::sleep(NEXT_WAY), never).await
    };
    match until_answered(options.config.give_up, || Box::pin(ask())).await?.found {
        Found::Exports(list) => Ok(list),
        Found::Root { .. } => Err(ClientError::Closed),
    }
}

async fn try_to_mount(target: &Target, paths: &[String], options: Options) -> Result<Mounted, ClientError> {
    let ips = resolve(&target.host).await?;
    // If MOUNT has another port, NFS is looked for meanwhile.
    let meanwhile = async {
        match ips[..] {
            [ip] if target.mount_is_elsewhere() => nfs_connection(target, ip, &options).await.map(Some),
            _ => Ok(None),
        }
    };
    let asked = ask_mount_program(target, &ips, paths, &options);
    let (Asked { found, connection, nfs }, beside) = both(Box::pin(asked), Box::pin(meanwhile), Duration::MAX).await?;
    let Found::Root { first: (nth, root), next } = found else { return Err(ClientError::Closed) };
    let ip = connection.server;
    let connection = match beside.transpose()?.flatten().or(nfs) {
        Some(nfs) => nfs,
        // The connection to MOUNT has RTT samples, and over TCP is connected.
        None if connection.server == nfs_at(target, ip) => connection,
        None => Box::pin(nfs_connection(target, ip, &options)).await?,
    };
    connection.shared.lock().core.set_give_up(options.config.give_up);
    let either = target.transport.is_none() && connection.transport == Transport::Udp;
    let streams = either.then(|| ParallelStreams::new(options));
    debug!(server = %connection.server, transport = ?connection.transport, path = paths[nth], "mounted");
    let session = Session::new(connection, streams, root);
    let next = next.map(|(nth, root)| (nth, session.at(root)));
    Ok(Mounted { nth, session, next })
}

/// Address of NFS on the host of `ip`.
fn nfs_at(target: &Target, ip: SocketAddr) -> SocketAddr {
    at_port(ip, target.port.unwrap_or(nfs3::PORT))
}

/// The same address with another port.
fn at_port(mut ip: SocketAddr, port: u16) -> SocketAddr {
    ip.set_port(port);
    ip
}

/// Runs `main` and `beside` concurrently. Fails as soon as `main` does; after `main` waits up to `patience` for
/// `beside`.
async fn both<A, B>(
    mut main: impl Future<Output = Result<A, ClientError>> + Unpin,
    mut beside: impl Future<Output = B> + Unpin,
    patience: Duration,
) -> Result<(A, Option<B>), ClientError> {
    tokio::select! {
        done = &mut main => Ok((done?, tokio::time::timeout(patience, beside).await.ok())),
        other = &mut beside => Ok((main.await?, Some(other))),
    }
}

/// A connection to NFS where MOUNT has another port, over a transport on which NFS answers.
async fn nfs_connection(target: &Target, ip: SocketAddr, options: &Options) -> Result<Connection, ClientError> {
    let (keys, nfs) = (target.keys.as_ref(), nfs_at(target, ip));
    if let Some(transport) = target.transport {
        return TransportAttempt::new(transport, options).reach(keys, nfs).await;
    }
    let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| TransportAttempt::new(transport, options));
    let over = async |way: &TransportAttempt<'_>| {
        let connection = way.reach(keys, nfs).await?;
        ask_null(&connection).await?;
        Ok(connection)
    };
    race(over(&udp), over(&tcp), udp.head_start(), || udp.is_answered()).await
}

/// Sends NULL to NFS.
async fn ask_null(connection: &Connection) -> Result<(), ClientError> {
    let null = Request::Nfs(nfs3::Call::Null);
    tokio::select! {
        answer = connection.shared.ask(null, "asked whether it is there") => answer.map(drop),
        e = nobody_listens(connection) => Err(e),
    }
}

/// A question to MOUNT.
#[derive(Clone, Copy)]
enum Question<'a> {
    /// The first of these paths that may be mounted.
    Root(&'a [String]),
    Exports,
}

/// The answer of MOUNT.
enum Found {
    Root {
        /// Index of the path that may be mounted, and its root.
        first: (usize, Fh),
        /// The same of the next path.
        next: Option<(usize, Fh)>,
    },
    Exports(Vec<mnt::Export>),
}

/// The answer of MOUNT and its connection.
struct Asked {
    found: Found,
    connection: Connection,
    /// A connection to NFS that was found meanwhile.
    nfs: Option<Connection>,
}

/// Finds MOUNT and asks for the first of `paths` that may be mounted. Where the transport is free, UDP has a head start
/// and the first answer wins.
async fn ask_mount_program(
    target: &Target,
    ips: &[SocketAddr],
    paths: &[String],
    options: &Options,
) -> Result<Asked, ClientError> {
    if let Some(transport) = target.transport {
        return ask_over(target, ips, &TransportAttempt::new(transport, options), Question::Root(paths)).await;
    }
    let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| TransportAttempt::new(transport, options));
    let [first, second] = [&udp, &tcp].map(|way| ask_over(target, ips, way, Question::Root(paths)));
    race(first, second, udp.head_start(), || udp.is_answered()).await
}

/// Tries the addresses of a host one after the other, each with a head start (RFC 8305).
async fn ask_over(
    target: &Target,
    ips: &[SocketAddr],
    way: &TransportAttempt<'_>,
    question: Question<'_>,
) -> Result<Asked, ClientError> {
    let mut asked: Option<Asking<'_>> = None;
    // From the last on, for each falls back on those after it.
    for ip in ips.iter().rev() {
        let here = ask_mount_at(target, way, *ip, question);
        asked = Some(match asked {
            None => Box::pin(here),
            Some(others) => Box::pin(race(here, others, tokio::time::sleep(NEXT_WAY), never)),
        });
    }
    asked.ok_or(ClientError::Closed)?.await
}

/// The answer of one address, or of several.
type Asking<'a> = Pin<Box<dyn Future<Output = Result<Asked, ClientError>> + Send + 'a>>;

async fn ask_mount_at(
    target: &Target,
    way: &TransportAttempt<'_>,
    ip: SocketAddr,
    question: Question<'_>,
) -> Result<Asked, ClientError> {
    let at = at_port(ip, target.mount_port.unwrap_or(nfs_at(target, ip).port()));
    let keys = target.keys.as_ref();
    let connection = way.reach(keys, at).await?;
    match ask_connection(&connection, question).await {
        Err(e) if is_elsewhere(&e) && target.mount_port.is_none() && keys.is_none() => {
            // NFS is usually here nevertheless. If the transport is free, a NULL shows it.
            let is_needless = target.transport.is_some() || matches!(question, Question::Exports);
            let null = async { if is_needless { Ok(()) } else { ask_null(&connection).await } };
            let asked = Box::pin(ask_elsewhere(way, ip, question, e));
            let ((found, mount), null) = both(asked, Box::pin(null), NULL_MAX).await?;
            Ok(Asked { found, connection: mount, nfs: null.is_some_and(|n| n.is_ok()).then_some(connection) })
        }
        answer => Ok(Asked { found: answer?, connection, nfs: None }),
    }
}

/// Asks MOUNT on the port that the portmapper names. Without a portmapper the error is what was `said` on the NFS port.
async fn ask_elsewhere(
    way: &TransportAttempt<'_>,
    ip: SocketAddr,
    question: Question<'_>,
    said: ClientError,
) -> Result<(Found, Connection), ClientError> {
    let port = ask_portmapper(way, ip).await;
    let none = |of: &ClientError| matches!(of, ClientError::Connect { .. } | ClientError::Silent { .. });
    let at = at_port(ip, port.map_err(|no| if none(&no) { said } else { no })?);
    let connection = way.reach(None, at).await?;
    Ok((ask_connection(&connection, question).await?, connection))
}

/// Whether the error means that MOUNT is not on this port.
fn is_elsewhere(e: &ClientError) -> bool {
    use Outcome::{ProcUnavail, ProgMismatch, ProgUnavail};
    matches!(e, ClientError::Rpc(CallFailure::Rpc(ProgUnavail | ProgMismatch { .. } | ProcUnavail)))
}

/// Addresses of a host, with port 0: at least one, at most [`ADDRESSES_MAX`].
pub(crate) async fn resolve(host: &str) -> Result<Vec<SocketAddr>, ClientError> {
    let failed = |source| ClientError::Resolve { host: host.to_owned(), source };
    if let Some((ip, zone)) = host.split_once('%') {
        let ip: Ipv6Addr = ip.parse().map_err(|_| failed(std::io::ErrorKind::InvalidInput.into()))?;
        let scope = zone::index(zone).map_err(failed)?;
        return Ok(vec![SocketAddrV6::new(ip, 0, 0, scope).into()]);
    }
    let mut found: Vec<SocketAddr> = Vec::new();
    for at in tokio::net::lookup_host((host, 0)).await.map_err(failed)?.take(ADDRESSES_MAX) {
        if !found.contains(&at) {
            found.push(at);
        }
    }
    if found.is_empty() { Err(failed(std::io::ErrorKind::NotFound.into())) } else { Ok(found) }
}

async fn ask_connection(connection: &Connection, question: Question<'_>) -> Result<Found, ClientError> {
    let answer = async {
        match question {
            Question::Root(paths) => ask_root(connection, paths).await,
            Question::Exports => ask_exports(connection).await,
        }
    };
    tokio::select! {
        answer = answer => answer,
        e = nobody_listens(connection) => Err(e),
    }
}

async fn ask_exports(connection: &Connection) -> Result<Found, ClientError> {
    match connection.shared.ask(Request::Mount(mnt::Call::Export), "asked for its exports").await? {
        Answer::Mount(mnt::Reply::Export(list)) => Ok(Found::Exports(list)),
        _ => Err(ClientError::Closed),
    }
}

/// Leaves out paths that are longer than MOUNT allows.
async fn ask_root(connection: &Connection, paths: &[String]) -> Result<Found, ClientError> {
    let refused = |path: &str, reason| ClientError::Mount {
        server: zone::shown(&connection.server),
        path: path.to_owned(),
        reason,
    };
    let fitting: Vec<_> = paths.iter().enumerate().filter(|(_, path)| path.len() <= mnt::PATH_MAX as usize).collect();
    let mut refusal = None;
    for some in fitting.chunks(SIDE_BY_SIDE) {
        let mut asked = Vec::new();
        for (nth, path) in some {
            let call = mnt::Call::Mnt(Bytes::copy_from_slice(path.as_bytes()));
            asked.push((*nth, path, connection.shared.submit(Request::Mount(call))?));
        }
        let mut asked = asked.into_iter();
        while let Some((nth, path, pending)) = asked.next() {
            match connection.shared.wait(pending, "asked to mount").await? {
                Answer::Mount(mnt::Reply::Mnt(Ok(mounted))) => {
                    let next = match asked.next() {
                        Some((nth, _, pending)) => at_once(connection, pending).await.map(|fh| (nth, fh)),
                        None => None,
                    };
                    return Ok(Found::Root { first: (nth, mounted.fh), next });
                }
                Answer::Mount(mnt::Reply::Mnt(Err(reason))) => {
                    refusal.get_or_insert_with(|| refused(path, reason));
                }
                _ => return Err(ClientError::Closed),
            }
        }
    }
    let too_long = || paths.first().map(|path| refused(path, mnt::MountError::NameTooLong));
    Err(refusal.or_else(too_long).unwrap_or(ClientError::Closed))
}

/// The reply to the next MNT, if it comes at the same time.
async fn at_once(connection: &Connection, pending: Pending) -> Option<Fh> {
    match tokio::time::timeout(AT_ONCE, connection.shared.wait(pending, "asked to mount")).await {
        Ok(Ok(Answer::Mount(mnt::Reply::Mnt(Ok(mounted))))) => Some(mounted.fh),
        _ => None,
    }
}

/// Ends when the server's host has answered "port unreachable" for [`REFUSED_MAX`] and nothing else. (TCP fails at
/// once.)
async fn nobody_listens(connection: &Connection) -> ClientError {
    loop {
        tokio::time::sleep(REFUSED_MAX / 8).await;
        let since = connection.shared.lock().refused_since;
        if since.is_some_and(|t| connection.shared.now().since(t) >= REFUSED_MAX) {
            let source = std::io::ErrorKind::ConnectionRefused.into();
            return ClientError::Connect { server: zone::shown(&connection.server), source };
        }
    }
}

async fn ask_portmapper(way: &TransportAttempt<'_>, ip: SocketAddr) -> Result<u16, ClientError> {
    let prot = match way.transport {
        Transport::Udp => portmap::IPPROTO_UDP,
        Transport::Tcp | Transport::Atp => portmap::IPPROTO_TCP,
    };
    let question = portmap::Mapping { prog: mnt::PROGRAM, vers: mnt::VERSION, prot, port: 0 };
    let connection = way.reach(None, at_port(ip, portmap::PORT)).await?;
    let answer = tokio::select! {
        answer = connection.shared.ask(Request::GetPort(question), "asked for MOUNT's port") => answer,
        e = nobody_listens(&connection) => Err(e),
    };
    match answer? {
        Answer::Port(p) if p > 0 && p <= u32::from(u16::MAX) => Ok(p as u16),
        _ => Err(ClientError::Rpc(CallFailure::Rpc(Outcome::ProgUnavail))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use remora_wire::record::{RecordReader, mark};
    use remora_wire::rpc::{CallHeader, ReplyHeader};
    use remora_wire::{Reader, Xdr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;
    use remora_client::ClientConfig;

    use crate::Clock;
    use crate::client::listen;

    fn options() -> Options {
        Options { config: ClientConfig::new(Transport::Udp), seed: 1, clock: Clock::start() }
    }

    /// The reply of a server that mounts `path` alone, answers NULL, and reads no path that MOUNT does not allow.
    fn reply(call: Bytes, path: &str) -> Vec<u8> {
        let mut r = Reader::new(call);
        let call = CallHeader::decode(&mut r).unwrap();
        let asked = Some(&call).filter(|call| call.prog == mnt::PROGRAM && call.proc != 0);
        let asked = asked.map(|_| Bytes::decode(&mut r).unwrap());
        let is_long = asked.as_ref().is_some_and(|path| path.len() > mnt::PATH_MAX as usize);
        let outcome = if is_long { Outcome::GarbageArgs } else { Outcome::Success };
        let mut reply = Vec::new();
        ReplyHeader { xid: call.xid, outcome }.encode(&mut reply);
        if let Some(asked) = asked.filter(|_| !is_long) {
            let fits = asked == path.as_bytes();
            let result =
                if fits { Ok(mnt::Mounted { fh: Fh(asked), flavors: vec![1] }) } else { Err(mnt::MountError::NoEnt) };
            mnt::Reply::Mnt(result).encode(&mut reply);
        }
        reply
    }

    /// Serves a connection with this delay.
    pub(crate) async fn serve(listener: TcpListener, path: &str, away: Duration) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut records = RecordReader::new(1 << 16);
        while let Ok(1..) = stream.read_buf(records.buffer()).await {
            while let Ok(Some(record)) = records.next_record() {
                let reply = reply(record, path);
                tokio::time::sleep(away).await;
                stream.write_all(&[&mark(reply.len())[..], &reply].concat()).await.unwrap();
            }
        }
    }

    /// Serves UDP, but for the first `lost` datagrams.
    pub(crate) async fn serve_datagrams(socket: Arc<UdpSocket>, path: &'static str, away: Duration, lost: usize) {
        let mut buffer = [0; 2000];
        for nth in 0.. {
            let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
            let (socket, call) = (socket.clone(), Bytes::copy_from_slice(&buffer[..n]));
            if nth >= lost {
                tokio::spawn(async move {
                    tokio::time::sleep(away).await;
                    socket.send_to(&reply(call, path), from).await.unwrap();
                });
            }
        }
    }

    #[tokio::test]
    async fn mount_falls_back_to_tcp_and_takes_the_first_path() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&format!("nfs://{}/", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(serve(listener, "/b", Duration::ZERO));
        let paths = ["/a/x", "/a", "/b", "/c", "/"].map(String::from);
        let began = Instant::now();
        let Mounted { nth, session, .. } = mount_first(&target, &paths, options()).await.unwrap();
        assert_eq!((nth, &session.root().0[..], session.transport()), (2, &b"/b"[..], Transport::Tcp));
        assert!(
            began.elapsed() < Duration::from_millis(400),
            "that UDP is refused is known at once: {:?}",
            began.elapsed()
        );
    }

    #[tokio::test]
    async fn path_too_long_for_mount_is_left_out() {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let target = Target::parse(&format!("nfs://{}/", socket.local_addr().unwrap())).unwrap();
        tokio::spawn(serve_datagrams(socket, "/b", Duration::ZERO, 0));
        let long = "/a".repeat(513);
        let paths = [&long, "/a", &long, "/b", "/"].map(String::from);
        let Mounted { nth, session, .. } = mount_first(&target, &paths, options()).await.unwrap();
        assert_eq!((nth, &session.root().0[..]), (3, &b"/b"[..]));
        let said = mount_first(&target, &paths[..3], options()).await.unwrap_err();
        assert!(matches!(said, ClientError::Mount { reason: mnt::MountError::NoEnt, .. }), "{said}");
        let said = mount(&target, &long, options()).await.unwrap_err();
        assert!(matches!(said, ClientError::Mount { reason: mnt::MountError::NameTooLong, .. }), "{said}");
    }

    /// Answers MOUNT alone at first, and everything after `late`.
    async fn serve_late(socket: UdpSocket, late: Duration) {
        let (mut buffer, began) = ([0; 2000], Instant::now());
        for nth in 0.. {
            let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
            if nth == 0 || began.elapsed() >= late {
                socket.send_to(&reply(Bytes::copy_from_slice(&buffer[..n]), "/"), from).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn mounted_server_without_limit_outlives_a_silence() {
        let options = || Options {
            config: ClientConfig { give_up: Some(Duration::from_secs(2)), ..options().config },
            ..options()
        };
        for (late, patience) in [(Duration::MAX, options().config.give_up), (Duration::from_secs(4), None)] {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let target = Target::parse(&format!("nfs://{}/?proto=udp", socket.local_addr().unwrap())).unwrap();
            tokio::spawn(serve_late(socket, late));
            let session = mount(&target, "/", options()).await.unwrap();
            session.set_patience(patience);
            let answer = session.call(nfs3::Call::Null).await;
            assert_eq!(answer.is_ok(), patience.is_none(), "{answer:?}");
        }
    }

    /// MOUNT has a port of its own.
    #[tokio::test]
    async fn server_of_which_only_mount_answers_is_given_up() {
        let mute = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (nfs, port) = (mute.local_addr().unwrap(), mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let target = Target::parse(&format!("nfs://{nfs}/?proto=udp&mountport={port}")).unwrap();
        let config = ClientConfig { give_up: Some(Duration::from_millis(300)), ..options().config };
        let session = mount(&target, "/", Options { config, ..options() }).await.unwrap();
        session.set_patience(None);
        let answer = session.call(nfs3::Call::Null).await;
        assert!(matches!(answer, Err(ClientError::Silent { .. })), "{answer:?}");
    }

    /// NFS over TCP, MOUNT over UDP on another port, as many servers have it.
    #[tokio::test]
    async fn nfs_is_found_over_its_only_transport() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nfs = listener.local_addr().unwrap();
        // A program on the same UDP port is silent.
        let _deaf = UdpSocket::bind(nfs).await;
        tokio::spawn(serve(listener, "", Duration::ZERO));
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let url = format!("nfs://{nfs}/?mountport={}", mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let session = mount(&Target::parse(&url).unwrap(), "/", options()).await.unwrap();
        assert_eq!(session.transport(), Transport::Tcp);
    }

    /// On a long path the first datagram is lost, and a stream connects sooner than the second arrives.
    #[tokio::test]
    async fn lost_datagram_does_not_select_tcp() {
        let away = Duration::from_millis(300);
        let (listener, socket) = listen().await;
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, "/", away));
        tokio::spawn(serve_datagrams(Arc::new(socket), "/", away, 1));
        let session = mount(&Target::parse(&format!("nfs://{at}/")).unwrap(), "/", options()).await.unwrap();
        assert_eq!(session.transport(), Transport::Udp);
    }

    /// MOUNT and NFS with known ports are asked side by side, in one round trip.
    #[tokio::test]
    async fn mounting_takes_one_round_trip_wherever_mount_is() {
        let away = Duration::from_millis(300);
        let [nfs, mountd] = [UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0")];
        let [nfs, mountd] = [Arc::new(nfs.await.unwrap()), Arc::new(mountd.await.unwrap())];
        let url = format!("nfs://{}/?mountport={}", nfs.local_addr().unwrap(), mountd.local_addr().unwrap().port());
        for socket in [nfs, mountd] {
            tokio::spawn(serve_datagrams(socket, "/", away, 0));
        }
        let began = Instant::now();
        let session = mount(&Target::parse(&url).unwrap(), "/", options()).await.unwrap();
        assert_eq!(session.transport(), Transport::Udp);
        assert!(began.elapsed() < away * 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn mount_refusal_does_not_wait_for_nfs() {
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        // A server that accepts and is silent.
        let nfs = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nfs://{}/?mountport={}", nfs.local_addr().unwrap(), mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let began = Instant::now();
        let refused = mount(&Target::parse(&url).unwrap(), "/other", options()).await;
        assert!(matches!(refused, Err(ClientError::Mount { .. })), "{refused:?}");
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    }
}
