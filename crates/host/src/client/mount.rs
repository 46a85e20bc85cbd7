//! From a URL to a session: addresses, ports, MOUNT.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;
use remora_client::{Answer, Client, Config, Failure, Request, Transport};
use remora_wire::{mount as mnt, nfs3, portmap};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::session::{Session, Shared};
use super::{ClientError, Target, driver};
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

/// Mounts `path` of the target's server (the target's own path says nothing here: what is
/// mounted and what is looked up below it is the caller's choice).
///
/// MOUNT is asked on the target's `mount_port`; without one on the NFS port, where Remora
/// and other user-space servers answer, and if it is not there, where the portmapper says.
pub async fn mount(target: &Target, path: &str, options: Options) -> Result<Session, ClientError> {
    let request = Request::Mount(mnt::Call::Mnt(Bytes::copy_from_slice(path.as_bytes())));
    let (ip, at, answer) = ask_mount_program(target, &request, "asked to mount", &options).await?;
    let root = match answer {
        Answer::Mount(mnt::Reply::Mnt(Ok(mounted))) => mounted.fh,
        Answer::Mount(mnt::Reply::Mnt(Err(reason))) => {
            return Err(ClientError::Mount { server: at.to_string(), path: path.to_owned(), reason });
        }
        _ => return Err(ClientError::Closed),
    };
    let nfs = SocketAddr::new(ip, target.port.unwrap_or(nfs3::PORT));
    let (shared, task) = open(target.transport, nfs, options.config.clone(), &options).await?;
    Ok(Session::new(shared, root, task))
}

/// The paths that the target's server exports, as it lists them; those that are not UTF-8
/// are left out. MOUNT is found as [`mount`] finds it.
pub async fn exports(target: &Target, options: &Options) -> Result<Vec<String>, ClientError> {
    let request = Request::Mount(mnt::Call::Export);
    match ask_mount_program(target, &request, "asked for its exports", options).await?.2 {
        Answer::Mount(mnt::Reply::Export(list)) => {
            Ok(list.into_iter().filter_map(|e| String::from_utf8(e.dir.to_vec()).ok()).collect())
        }
        _ => Err(ClientError::Closed),
    }
}

/// Asks MOUNT, wherever it is; says at which address. A host with several addresses is tried
/// at each until one answers.
async fn ask_mount_program(
    target: &Target,
    request: &Request,
    what: &'static str,
    options: &Options,
) -> Result<(IpAddr, SocketAddr, Answer), ClientError> {
    let mut failure = ClientError::Closed;
    for ip in resolve(&target.host).await? {
        match ask_mount_at(target, ip, request, what, options).await {
            Ok((at, answer)) => return Ok((ip, at, answer)),
            Err(e @ (ClientError::Connect { .. } | ClientError::Silent { .. })) => failure = e,
            Err(e) => return Err(e),
        }
    }
    Err(failure)
}

async fn ask_mount_at(
    target: &Target,
    ip: IpAddr,
    request: &Request,
    what: &'static str,
    options: &Options,
) -> Result<(SocketAddr, Answer), ClientError> {
    let at = SocketAddr::new(ip, target.mount_port.or(target.port).unwrap_or(nfs3::PORT));
    match ask_once(target, at, request.clone(), what, options).await {
        Err(ClientError::Rpc(Failure::Rpc(_))) if target.mount_port.is_none() => {
            let at = SocketAddr::new(ip, ask_portmapper(target, ip, options).await?);
            Ok((at, ask_once(target, at, request.clone(), what, options).await?))
        }
        answer => Ok((at, answer?)),
    }
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

/// A core on its own socket, and the task that drives it.
async fn open(
    transport: Transport,
    server: SocketAddr,
    config: Config,
    options: &Options,
) -> Result<(Arc<Shared>, JoinHandle<()>), ClientError> {
    let failed = |source| ClientError::Connect { server: server.to_string(), source };
    let config = Config { transport, ..config };
    let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
    let shared = Shared::new(core, options.clock, server.to_string());
    let task = match transport {
        Transport::Udp => {
            let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            let socket = UdpSocket::bind(any).await.map_err(failed)?;
            socket.connect(server).await.map_err(failed)?;
            // Best effort: a whole window of replies may come at once.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
            tokio::spawn(driver::run_udp(shared.clone(), socket, server))
        }
        Transport::Tcp => {
            let patience = options.config.give_up.unwrap_or(MOUNT_PATIENCE);
            let connecting = tokio::time::timeout(patience, driver::connect(server));
            let late = |_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"));
            let stream = connecting.await.unwrap_or_else(late).map_err(failed)?;
            tokio::spawn(driver::run_tcp(shared.clone(), stream, server))
        }
    };
    Ok((shared, task))
}

/// One question on a socket of its own.
async fn ask_once(
    target: &Target,
    server: SocketAddr,
    request: Request,
    what: &'static str,
    options: &Options,
) -> Result<Answer, ClientError> {
    let give_up = options.config.give_up.unwrap_or(MOUNT_PATIENCE);
    let config = Config { give_up: Some(give_up), ..options.config.clone() };
    let (shared, task) = open(target.transport, server, config, options).await?;
    let answer = tokio::select! {
        answer = shared.ask(request, what) => answer,
        () = nobody_listens(&shared) => {
            let source = std::io::ErrorKind::ConnectionRefused.into();
            Err(ClientError::Connect { server: server.to_string(), source })
        }
    };
    task.abort();
    answer
}

/// Ends when the server's machine has said for [`REFUSED_MAX`] that nobody listens there, and
/// nothing else came. (Over TCP the connection fails at once.)
async fn nobody_listens(shared: &Shared) {
    loop {
        tokio::time::sleep(REFUSED_MAX / 8).await;
        let since = shared.lock().refused_since;
        if since.is_some_and(|t| shared.now().since(t) >= REFUSED_MAX) {
            return;
        }
    }
}

async fn ask_portmapper(target: &Target, ip: IpAddr, options: &Options) -> Result<u16, ClientError> {
    let prot = match target.transport {
        Transport::Udp => portmap::IPPROTO_UDP,
        Transport::Tcp => portmap::IPPROTO_TCP,
    };
    let question = portmap::Mapping { prog: mnt::PROGRAM, vers: mnt::VERSION, prot, port: 0 };
    let at = SocketAddr::new(ip, portmap::PORT);
    match ask_once(target, at, Request::GetPort(question), "asked for MOUNT's port", options).await? {
        Answer::Port(p) if p > 0 && p <= u32::from(u16::MAX) => Ok(p as u16),
        _ => Err(ClientError::Rpc(Failure::Rpc(remora_wire::rpc::Outcome::ProgUnavail))),
    }
}
