//! From a URL to a session: addresses, ports, MOUNT.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use remora_client::{Answer, Failure, Request, Transport};
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

/// How long "nobody listens here" is doubted when mounting over UDP: a server may be starting.
const REFUSED_MAX: Duration = Duration::from_secs(2);
/// How many addresses of a host are tried.
const ADDRESSES_MAX: usize = 4;
/// How many paths a server is asked for side by side.
const SIDE_BY_SIDE: usize = 4;
/// How much later than a path's the answer for the next one, asked for with it, may come.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How much longer than for MOUNT one waits for an answer to NULL, which there are other ways to do without.
const NULL_MAX: Duration = Duration::from_millis(500);
/// How long an address, or a transport, is tried alone where there are more.
const NEXT_WAY: Duration = Duration::from_millis(300);

/// Mounts `path` of the target's server (the target's own path says nothing here: what is
/// mounted and what is looked up below it is the caller's choice).
pub async fn mount(target: &Target, path: &str, options: Options) -> Result<Session, ClientError> {
    Ok(mount_first(target, &[path.to_owned()], options).await?.session)
}

/// What was mounted.
#[derive(Debug)]
pub struct Mounted {
    /// Which of the paths.
    pub nth: usize,
    /// It.
    pub session: Session,
    /// The path after it, if the server said at the same time that it mounts that, too.
    pub next: Option<(usize, Session)>,
}

/// Mounts the first of `paths` that the server agrees to. They are asked for
/// side by side, since a round trip may be long. If it refuses all of them, what it said of the
/// first is the error. There are servers that mount files, too, as Linux's does.
///
/// MOUNT is asked on the target's `mount_port`; without one on the NFS port, where Remora
/// and other user-space servers answer, and if it is not there, where the portmapper says.
pub async fn mount_first(target: &Target, paths: &[String], options: Options) -> Result<Mounted, ClientError> {
    until_answered(options.config.give_up, || Box::pin(try_to_mount(target, paths, options.clone()))).await
}

/// What the server exports, as it lists it to this address (EXPORT of MOUNT, which is found as for mounting). A list
/// may be longer than a datagram: where either transport will do, TCP has a head start.
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
    // Where it is known that MOUNT is elsewhere NFS is looked for meanwhile.
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
        // The connection to MOUNT, if that is there, knows something of the path already, and over TCP it stands.
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

/// Where NFS is served at `ip`, whose port says nothing.
fn nfs_at(target: &Target, ip: SocketAddr) -> SocketAddr {
    at_port(ip, target.port.unwrap_or(nfs3::PORT))
}

/// Another port of the same address, in the same zone.
fn at_port(mut ip: SocketAddr, port: u16) -> SocketAddr {
    ip.set_port(port);
    ip
}

/// What `main` comes to, and what `beside` does, which is begun at the same time: a round trip may be long. If
/// the first fails nobody waits for the other, and else only so long.
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

/// A connection to a server whose MOUNT is elsewhere. Where either transport will do it is one over which NFS
/// answers.
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

/// Asks whether NFS is there.
async fn ask_null(connection: &Connection) -> Result<(), ClientError> {
    let null = Request::Nfs(nfs3::Call::Null);
    tokio::select! {
        answer = connection.shared.ask(null, "asked whether it is there") => answer.map(drop),
        e = nobody_listens(connection) => Err(e),
    }
}

/// What MOUNT is asked.
#[derive(Clone, Copy)]
enum Question<'a> {
    /// For the first of these paths that may be mounted.
    Root(&'a [String]),
    /// What there is to be mounted.
    Exports,
}

/// What MOUNT said.
enum Found {
    Root {
        /// Which of the paths may be mounted, and its root.
        first: (usize, Fh),
        /// The same of the path after it.
        next: Option<(usize, Fh)>,
    },
    Exports(Vec<mnt::Export>),
}

/// How MOUNT was reached and what it said.
struct Asked {
    found: Found,
    connection: Connection,
    /// A connection to NFS, which turned up on the way.
    nfs: Option<Connection>,
}

/// Asks MOUNT for the first of `paths` that may be mounted, wherever it is and over what the target wants; says how
/// it was reached. Where either transport will do, UDP has a head start, and the one on which the server answers
/// first is taken.
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

/// A host with several addresses is tried at one after the other, soon side by side, until one
/// answers (the idea of RFC 8305).
async fn ask_over(
    target: &Target,
    ips: &[SocketAddr],
    way: &TransportAttempt<'_>,
    question: Question<'_>,
) -> Result<Asked, ClientError> {
    let mut asked: Option<Asking<'_>> = None;
    // The last one first, for each has those after it to fall back on.
    for ip in ips.iter().rev() {
        let here = ask_mount_at(target, way, *ip, question);
        asked = Some(match asked {
            None => Box::pin(here),
            Some(others) => Box::pin(race(here, others, tokio::time::sleep(NEXT_WAY), never)),
        });
    }
    asked.ok_or(ClientError::Closed)?.await
}

/// What one address, or some, will say.
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
            // As a rule NFS is here all the same. Where there is a choice of transports it is to say so.
            let is_needless = target.transport.is_some() || matches!(question, Question::Exports);
            let null = async { if is_needless { Ok(()) } else { ask_null(&connection).await } };
            let asked = Box::pin(ask_elsewhere(way, ip, question, e));
            let ((found, mount), null) = both(asked, Box::pin(null), NULL_MAX).await?;
            Ok(Asked { found, connection: mount, nfs: null.is_some_and(|n| n.is_ok()).then_some(connection) })
        }
        answer => Ok(Asked { found: answer?, connection, nfs: None }),
    }
}

/// Asks MOUNT where the portmapper says it is. If there is no portmapper, what was `said` on the NFS port is the
/// error.
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

/// Whether that is what is said where MOUNT is not.
fn is_elsewhere(e: &ClientError) -> bool {
    use Outcome::{ProcUnavail, ProgMismatch, ProgUnavail};
    matches!(e, ClientError::Rpc(Failure::Rpc(ProgUnavail | ProgMismatch { .. } | ProcUnavail)))
}

/// The addresses of a host, with port 0: at least one, and no more than [`ADDRESSES_MAX`].
async fn resolve(host: &str) -> Result<Vec<SocketAddr>, ClientError> {
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

/// Those of `paths` that are longer than servers can read are left out.
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

/// What was asked for beside something that has been answered, if that is answered, too.
async fn at_once(connection: &Connection, pending: Pending) -> Option<Fh> {
    match tokio::time::timeout(AT_ONCE, connection.shared.wait(pending, "asked to mount")).await {
        Ok(Ok(Answer::Mount(mnt::Reply::Mnt(Ok(mounted))))) => Some(mounted.fh),
        _ => None,
    }
}

/// Ends when the server's machine has said for [`REFUSED_MAX`] that nobody listens there, and
/// nothing else came. (Over TCP the connection fails at once.)
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
        _ => Err(ClientError::Rpc(Failure::Rpc(Outcome::ProgUnavail))),
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
    use remora_client::Config;

    use crate::Clock;
    use crate::client::listen;

    fn options() -> Options {
        Options { config: Config::new(Transport::Udp), seed: 1, clock: Clock::start() }
    }

    /// The reply of a server that mounts `path` alone, answers NULL, and can read no path that MOUNT does not allow.
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

    /// Serves one connection, from this far away.
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

    /// Serves over UDP, but for the first `lost` datagrams.
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
    async fn where_udp_does_not_answer_tcp_does_and_the_first_path_that_may_is_mounted() {
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
    async fn a_path_that_no_server_can_read_is_left_out() {
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

    /// Answers MOUNT alone at first, and everything once `late` has come.
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
        let options =
            || Options { config: Config { give_up: Some(Duration::from_secs(2)), ..options().config }, ..options() };
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

    /// MOUNT is another program, at another port.
    #[tokio::test]
    async fn server_of_which_only_mount_answers_is_given_up() {
        let mute = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (nfs, port) = (mute.local_addr().unwrap(), mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let target = Target::parse(&format!("nfs://{nfs}/?proto=udp&mountport={port}")).unwrap();
        let config = Config { give_up: Some(Duration::from_millis(300)), ..options().config };
        let session = mount(&target, "/", Options { config, ..options() }).await.unwrap();
        session.set_patience(None);
        let answer = session.call(nfs3::Call::Null).await;
        assert!(matches!(answer, Err(ClientError::Silent { .. })), "{answer:?}");
    }

    /// NFS over TCP alone, MOUNT over UDP elsewhere, as many servers have it.
    #[tokio::test]
    async fn nfs_is_asked_over_the_transport_that_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nfs = listener.local_addr().unwrap();
        // What listens on its port over UDP says nothing.
        let _deaf = UdpSocket::bind(nfs).await;
        tokio::spawn(serve(listener, "", Duration::ZERO));
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let url = format!("nfs://{nfs}/?mountport={}", mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let session = mount(&Target::parse(&url).unwrap(), "/", options()).await.unwrap();
        assert_eq!(session.transport(), Transport::Tcp);
    }

    /// On a long path the first datagram is lost, and a stream would be there sooner than the second.
    #[tokio::test]
    async fn a_lost_datagram_does_not_make_it_tcp() {
        let away = Duration::from_millis(300);
        let (listener, socket) = listen().await;
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, "/", away));
        tokio::spawn(serve_datagrams(Arc::new(socket), "/", away, 1));
        let session = mount(&Target::parse(&format!("nfs://{at}/")).unwrap(), "/", options()).await.unwrap();
        assert_eq!(session.transport(), Transport::Udp);
    }

    /// MOUNT and NFS are asked side by side where it is known where they are, so it takes one round trip.
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
    async fn a_refusal_to_mount_does_not_wait_for_nfs() {
        let mountd = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        // It takes what comes and says nothing.
        let nfs = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nfs://{}/?mountport={}", nfs.local_addr().unwrap(), mountd.local_addr().unwrap().port());
        tokio::spawn(serve_datagrams(mountd, "/", Duration::ZERO, 0));
        let began = Instant::now();
        let refused = mount(&Target::parse(&url).unwrap(), "/other", options()).await;
        assert!(matches!(refused, Err(ClientError::Mount { .. })), "{refused:?}");
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    }
}
