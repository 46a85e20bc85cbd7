//! From a URL to a session: addresses, ports, MOUNT.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use remora_client::{Answer, Config, Failure, Request, Transport};
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::Outcome;
use remora_wire::{mount as mnt, portmap};

use super::line::Line;
use super::session::Session;
use super::streams::Streams;
use super::{ClientError, Keys, Target};
use crate::Clock;

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client core's settings; the transport is the target's.
    pub config: Config,
    /// Draws the first xid.
    pub seed: u64,
    /// What the core's time counts from.
    pub clock: Clock,
}

/// How long "nobody listens here" is doubted when mounting over UDP: a server may be starting.
const REFUSED_MAX: Duration = Duration::from_secs(2);
/// How long mounting may take when the session itself would wait for ever.
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// How many addresses of a host are tried.
const ADDRESSES_MAX: usize = 4;
/// How many paths a server is asked for side by side.
const SIDE_BY_SIDE: usize = 4;
/// How long UDP is tried alone where either will do.
const HEAD_START: Duration = Duration::from_millis(500);
/// How long an address is tried alone where there are more.
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

/// Mounts `path` of the target's server (the target's own path says nothing here: what is
/// mounted and what is looked up below it is the caller's choice).
pub async fn mount(target: &Target, path: &str, options: Options) -> Result<Session, ClientError> {
    Ok(mount_first(target, &[path.to_owned()], options).await?.1)
}

/// Mounts the first of `paths` that the server agrees to, and says which. They are asked for
/// side by side, since a round trip may be long. If it refuses all of them, what it said of the
/// first is the error.
///
/// MOUNT is asked on the target's `mount_port`; without one on the NFS port, where Remora
/// and other user-space servers answer, and if it is not there, where the portmapper says.
pub async fn mount_first(target: &Target, paths: &[String], options: Options) -> Result<(usize, Session), ClientError> {
    let (found, line) = ask_mount_program(target, &Question::Root(paths), &options).await?;
    let Found::Root(nth, root) = found else { return Err(ClientError::Closed) };
    let nfs = SocketAddr::new(line.server.ip(), target.port.unwrap_or(nfs3::PORT));
    // The line to MOUNT, if that is there, knows something of the path already, and over TCP it stands.
    let line = if line.server == nfs { line } else { nfs_line(target, line.transport, nfs, &options).await? };
    line.shared.lock().core.set_give_up(options.config.give_up);
    let either = target.transport.is_none() && line.transport == Transport::Udp;
    let streams = either.then(|| Streams::new(options));
    Ok((nth, Session::new(line, streams, root)))
}

/// A line to a server whose MOUNT was elsewhere, and answered over `mounted`. Where either transport will do it
/// is one over which NFS answers, too.
async fn nfs_line(
    target: &Target,
    mounted: Transport,
    nfs: SocketAddr,
    options: &Options,
) -> Result<Line, ClientError> {
    let keys = target.keys.as_ref();
    if target.transport.is_some() {
        return reach(mounted, keys, nfs, options).await;
    }
    let over = async |transport| {
        let line = reach(transport, keys, nfs, options).await?;
        let null = Request::Nfs(nfs3::Call::Null);
        tokio::select! {
            answer = line.shared.ask(null, "asked whether it is there") => answer.map(drop)?,
            e = nobody_listens(&line) => return Err(e),
        }
        Ok(line)
    };
    let other = if mounted == Transport::Udp { Transport::Tcp } else { Transport::Udp };
    race(over(mounted), over(other), HEAD_START).await
}

/// The paths that the target's server exports, as it lists them; those that are not UTF-8
/// are left out. MOUNT is found as [`mount`] finds it.
pub async fn exports(target: &Target, options: &Options) -> Result<Vec<String>, ClientError> {
    match ask_mount_program(target, &Question::Exports, options).await?.0 {
        Found::Exports(list) => Ok(list),
        Found::Root(..) => Err(ClientError::Closed),
    }
}

/// What MOUNT is asked.
enum Question<'a> {
    /// The root of the first of these paths that may be mounted.
    Root(&'a [String]),
    Exports,
}

/// What it said.
enum Found {
    Root(usize, Fh),
    Exports(Vec<String>),
}

/// Asks MOUNT, wherever it is and over what the target wants; says how it was reached. Where
/// either transport will do, UDP has a head start, and the one on which the server answers
/// first is taken.
async fn ask_mount_program(
    target: &Target,
    question: &Question<'_>,
    options: &Options,
) -> Result<(Found, Line), ClientError> {
    let over = |transport| ask_over(target, transport, question, options);
    if let Some(transport) = target.transport {
        return over(transport).await;
    }
    race(over(Transport::Udp), over(Transport::Tcp), HEAD_START).await
}

/// The first of two ways that leads to the server. The second one is tried when the first does not, or
/// has not within `head_start`. If neither does, an answer that was none is the error, or else the first one's.
async fn race<T>(
    first: impl Future<Output = Result<T, ClientError>>,
    second: impl Future<Output = Result<T, ClientError>>,
    head_start: Duration,
) -> Result<T, ClientError> {
    let told = |first, second| if matches!(second, ClientError::Rpc(_)) { second } else { first };
    tokio::pin!(first);
    match tokio::time::timeout(head_start, &mut first).await {
        Ok(Err(e)) if is_unreachable(&e) => return second.await.map_err(|second| told(e, second)),
        Ok(answer) => return answer,
        Err(_) => {}
    }
    tokio::pin!(second);
    tokio::select! {
        biased;
        answer = &mut first => match answer {
            Err(e) if is_unreachable(&e) => second.await.map_err(|second| told(e, second)),
            answer => answer,
        },
        answer = &mut second => match answer {
            Err(e) if is_unreachable(&e) => first.await.map_err(|first| told(first, e)),
            answer => answer,
        },
    }
}

/// Whether the server may be reached some other way.
fn is_unreachable(e: &ClientError) -> bool {
    matches!(e, ClientError::Connect { .. } | ClientError::Silent { .. } | ClientError::Rpc(_))
}

/// A host with several addresses is tried at one after the other, soon side by side, until one
/// answers (the idea of RFC 8305).
async fn ask_over(
    target: &Target,
    transport: Transport,
    question: &Question<'_>,
    options: &Options,
) -> Result<(Found, Line), ClientError> {
    let mut asked: Option<Asked<'_>> = None;
    // The last one first, for each has those after it to fall back on.
    for ip in resolve(&target.host).await?.into_iter().rev() {
        let here = ask_mount_at(target, transport, ip, question, options);
        asked = Some(match asked {
            None => Box::pin(here),
            Some(others) => Box::pin(race(here, others, NEXT_ADDRESS)),
        });
    }
    asked.ok_or(ClientError::Closed)?.await
}

/// What one address, or some, will say.
type Asked<'a> = Pin<Box<dyn Future<Output = Result<(Found, Line), ClientError>> + Send + 'a>>;

async fn ask_mount_at(
    target: &Target,
    transport: Transport,
    ip: IpAddr,
    question: &Question<'_>,
    options: &Options,
) -> Result<(Found, Line), ClientError> {
    let at = SocketAddr::new(ip, target.mount_port.or(target.port).unwrap_or(nfs3::PORT));
    let keys = target.keys.as_ref();
    let line = reach(transport, keys, at, options).await?;
    match ask_line(&line, question).await {
        Err(e) if is_elsewhere(&e) && target.mount_port.is_none() && keys.is_none() => {
            let port = ask_portmapper(transport, ip, options).await;
            let none = |of: &ClientError| matches!(of, ClientError::Connect { .. } | ClientError::Silent { .. });
            let at = SocketAddr::new(ip, port.map_err(|no| if none(&no) { e } else { no })?);
            let line = reach(transport, None, at, options).await?;
            Ok((ask_line(&line, question).await?, line))
        }
        answer => Ok((answer?, line)),
    }
}

/// Whether that is what is said where MOUNT is not.
fn is_elsewhere(e: &ClientError) -> bool {
    use Outcome::{ProcUnavail, ProgMismatch, ProgUnavail};
    matches!(e, ClientError::Rpc(Failure::Rpc(ProgUnavail | ProgMismatch { .. } | ProcUnavail)))
}

/// The addresses of a host: at least one, and no more than [`ADDRESSES_MAX`].
async fn resolve(host: &str) -> Result<Vec<IpAddr>, ClientError> {
    let failed = |source| ClientError::Resolve { host: host.to_owned(), source };
    let mut found: Vec<IpAddr> = Vec::new();
    for at in tokio::net::lookup_host((host, 0)).await.map_err(failed)?.take(ADDRESSES_MAX) {
        if !found.contains(&at.ip()) {
            found.push(at.ip());
        }
    }
    if found.is_empty() { Err(failed(std::io::ErrorKind::NotFound.into())) } else { Ok(found) }
}

/// A line over what the target wants.
async fn open(
    transport: Transport,
    keys: Option<&Keys>,
    server: SocketAddr,
    config: Config,
    options: &Options,
) -> Result<Line, ClientError> {
    match keys {
        Some(keys) => Line::open_objects(keys, server, config, options).await,
        None => Line::open(transport, server, config, options).await,
    }
}

/// A line for mounting.
async fn reach(
    transport: Transport,
    keys: Option<&Keys>,
    server: SocketAddr,
    options: &Options,
) -> Result<Line, ClientError> {
    let give_up = options.config.give_up.unwrap_or(MOUNT_PATIENCE);
    let config = Config { give_up: Some(give_up), ..options.config.clone() };
    open(transport, keys, server, config, options).await
}

async fn ask_line(line: &Line, question: &Question<'_>) -> Result<Found, ClientError> {
    let answer = async {
        match question {
            Question::Root(paths) => ask_root(line, paths).await,
            Question::Exports => ask_exports(line).await,
        }
    };
    tokio::select! {
        answer = answer => answer,
        e = nobody_listens(line) => Err(e),
    }
}

async fn ask_root(line: &Line, paths: &[String]) -> Result<Found, ClientError> {
    let mut refusal = None;
    for (batch, some) in paths.chunks(SIDE_BY_SIDE).enumerate() {
        let mut asked = Vec::new();
        for path in some {
            let call = mnt::Call::Mnt(Bytes::copy_from_slice(path.as_bytes()));
            asked.push((path, line.shared.submit(Request::Mount(call))?));
        }
        for (n, (path, pending)) in asked.into_iter().enumerate() {
            match line.shared.wait(pending, "asked to mount").await? {
                Answer::Mount(mnt::Reply::Mnt(Ok(mounted))) => {
                    return Ok(Found::Root(batch * SIDE_BY_SIDE + n, mounted.fh));
                }
                Answer::Mount(mnt::Reply::Mnt(Err(reason))) => {
                    let server = line.server.to_string();
                    refusal.get_or_insert(ClientError::Mount { server, path: path.clone(), reason });
                }
                _ => return Err(ClientError::Closed),
            }
        }
    }
    Err(refusal.unwrap_or(ClientError::Closed))
}

async fn ask_exports(line: &Line) -> Result<Found, ClientError> {
    match line.shared.ask(Request::Mount(mnt::Call::Export), "asked for its exports").await? {
        Answer::Mount(mnt::Reply::Export(list)) => {
            Ok(Found::Exports(list.into_iter().filter_map(|e| String::from_utf8(e.dir.to_vec()).ok()).collect()))
        }
        _ => Err(ClientError::Closed),
    }
}

/// Ends when the server's machine has said for [`REFUSED_MAX`] that nobody listens there, and
/// nothing else came. (Over TCP the connection fails at once.)
async fn nobody_listens(line: &Line) -> ClientError {
    loop {
        tokio::time::sleep(REFUSED_MAX / 8).await;
        let since = line.shared.lock().refused_since;
        if since.is_some_and(|t| line.shared.now().since(t) >= REFUSED_MAX) {
            let source = std::io::ErrorKind::ConnectionRefused.into();
            return ClientError::Connect { server: line.server.to_string(), source };
        }
    }
}

async fn ask_portmapper(transport: Transport, ip: IpAddr, options: &Options) -> Result<u16, ClientError> {
    let prot = match transport {
        Transport::Udp => portmap::IPPROTO_UDP,
        Transport::Tcp | Transport::Atp => portmap::IPPROTO_TCP,
    };
    let question = portmap::Mapping { prog: mnt::PROGRAM, vers: mnt::VERSION, prot, port: 0 };
    let line = reach(transport, None, SocketAddr::new(ip, portmap::PORT), options).await?;
    let answer = tokio::select! {
        answer = line.shared.ask(Request::GetPort(question), "asked for MOUNT's port") => answer,
        e = nobody_listens(&line) => Err(e),
    };
    match answer? {
        Answer::Port(p) if p > 0 && p <= u32::from(u16::MAX) => Ok(p as u16),
        _ => Err(ClientError::Rpc(Failure::Rpc(Outcome::ProgUnavail))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use remora_wire::record::{RecordReader, mark};
    use remora_wire::rpc::{CallHeader, ReplyHeader};
    use remora_wire::{Reader, Xdr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that mounts `/b` and nothing else, and knows no UDP.
    async fn serve(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut records = RecordReader::new(1 << 16);
        while let Ok(1..) = stream.read_buf(records.buffer()).await {
            while let Ok(Some(record)) = records.next_record() {
                let mut r = Reader::new(record);
                let call = CallHeader::decode(&mut r).unwrap();
                let path = Bytes::decode(&mut r).unwrap();
                let result = match &path[..] {
                    b"/b" => Ok(mnt::Mounted { fh: Fh(path), flavors: vec![1] }),
                    _ => Err(mnt::MountError::NoEnt),
                };
                let mut reply = Vec::new();
                ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
                mnt::Reply::Mnt(result).encode(&mut reply);
                stream.write_all(&[&mark(reply.len())[..], &reply].concat()).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn where_udp_does_not_answer_tcp_does_and_the_first_path_that_may_is_mounted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&format!("nfs://{}/", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(serve(listener));
        let options = Options { config: Config::new(Transport::Udp), seed: 1, clock: Clock::start() };
        let paths = ["/a/x", "/a", "/b", "/c", "/"].map(String::from);
        let began = Instant::now();
        let (nth, session) = mount_first(&target, &paths, options).await.unwrap();
        assert_eq!((nth, &session.root().0[..], session.transport()), (2, &b"/b"[..], Transport::Tcp));
        assert!(began.elapsed() < HEAD_START * 3, "{:?}", began.elapsed());
    }
    #[tokio::test]
    async fn of_two_ways_the_one_that_leads_there_is_taken() {
        let ms = |n: u64| Duration::from_micros(n * 200);
        let silent = || ClientError::Silent { server: "s".into(), what: "asked" };
        let refused = || ClientError::Rpc(Failure::Rpc(Outcome::ProgUnavail));
        let way = |after, end: Result<u8, ClientError>| async move {
            tokio::time::sleep(after).await;
            end
        };
        let head = ms(500);
        assert_eq!(race(way(ms(400), Ok(1)), way(ms(0), Ok(2)), head).await.unwrap(), 1, "it is in time");
        assert_eq!(race(way(ms(9000), Ok(1)), way(ms(100), Ok(2)), head).await.unwrap(), 2);
        assert_eq!(race(way(ms(700), Ok(1)), way(ms(900), Ok(2)), head).await.unwrap(), 1);
        assert_eq!(race(way(ms(100), Err(silent())), way(ms(900), Ok(2)), head).await.unwrap(), 2);
        assert_eq!(race(way(ms(900), Ok(1)), way(ms(100), Err(silent())), head).await.unwrap(), 1);
        for ways in [[ms(100), ms(100)], [ms(900), ms(100)], [ms(900), ms(2000)]] {
            let [one, two] = ways;
            let failed = race(way(one, Err(silent())), way(two, Err(refused())), head).await.unwrap_err();
            assert!(matches!(failed, ClientError::Rpc(_)), "that is more than silence");
            let failed = race(way(one, Err(refused())), way(two, Err(silent())), head).await.unwrap_err();
            assert!(matches!(failed, ClientError::Rpc(_)));
        }
    }

    /// NFS over TCP alone, MOUNT over UDP elsewhere, as many servers have it.
    #[tokio::test]
    async fn nfs_is_asked_over_the_transport_that_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nfs = listener.local_addr().unwrap();
        // What listens on its port over UDP says nothing.
        let _deaf = tokio::net::UdpSocket::bind(nfs).await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut records = RecordReader::new(1 << 16);
            while let Ok(1..) = stream.read_buf(records.buffer()).await {
                while let Ok(Some(record)) = records.next_record() {
                    let call = CallHeader::decode(&mut Reader::new(record)).unwrap();
                    let mut reply = Vec::new();
                    ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
                    stream.write_all(&[&mark(reply.len())[..], &reply].concat()).await.unwrap();
                }
            }
        });
        let mountd = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nfs://{nfs}/?mountport={}", mountd.local_addr().unwrap().port());
        tokio::spawn(async move {
            let mut buffer = [0; 2000];
            while let Ok((n, from)) = mountd.recv_from(&mut buffer).await {
                let call = CallHeader::decode(&mut Reader::new(Bytes::copy_from_slice(&buffer[..n]))).unwrap();
                let mut reply = Vec::new();
                ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
                let mounted = mnt::Mounted { fh: Fh(Bytes::from_static(b"root")), flavors: vec![1] };
                mnt::Reply::Mnt(Ok(mounted)).encode(&mut reply);
                mountd.send_to(&reply, from).await.unwrap();
            }
        });
        let options = Options { config: Config::new(Transport::Udp), seed: 1, clock: Clock::start() };
        let session = mount(&Target::parse(&url).unwrap(), "/", options).await.unwrap();
        assert_eq!(session.transport(), Transport::Tcp);
    }
}
