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

/// How long mounting may take when the session itself would wait for ever.
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);

/// Mounts `path` of the target's server (the target's own path says nothing here: what is
/// mounted and what is looked up below it is the caller's choice).
///
/// MOUNT is asked on the target's `mount_port`; without one on the NFS port, where Remora
/// and other user-space servers answer, and if it is not there, where the portmapper says.
pub async fn mount(target: &Target, path: &str, options: Options) -> Result<Session, ClientError> {
    let ip = resolve(&target.host).await?;
    let nfs = SocketAddr::new(ip, target.port.unwrap_or(nfs3::PORT));
    let root = match target.mount_port {
        Some(port) => ask_mount(target, SocketAddr::new(ip, port), path, &options).await?,
        None => match ask_mount(target, nfs, path, &options).await {
            Err(ClientError::Rpc(Failure::Rpc(_))) => {
                let port = ask_portmapper(target, ip, &options).await?;
                ask_mount(target, SocketAddr::new(ip, port), path, &options).await?
            }
            other => other?,
        },
    };
    let (shared, task) = open(target.transport, nfs, options.config.clone(), &options).await?;
    Ok(Session::new(shared, root, task))
}

async fn resolve(host: &str) -> Result<IpAddr, ClientError> {
    let failed = |source| ClientError::Resolve { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, 0)).await.map_err(failed)?;
    let first = found.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    Ok(first.ip())
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
            let stream = driver::connect(server).await.map_err(failed)?;
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
    let answer = shared.ask(request, what).await;
    task.abort();
    answer
}

async fn ask_mount(target: &Target, at: SocketAddr, path: &str, options: &Options) -> Result<nfs3::Fh, ClientError> {
    let request = Request::Mount(mnt::Call::Mnt(Bytes::copy_from_slice(path.as_bytes())));
    match ask_once(target, at, request, "asked to mount", options).await? {
        Answer::Mount(mnt::Reply::Mnt(Ok(mounted))) => Ok(mounted.fh),
        Answer::Mount(mnt::Reply::Mnt(Err(reason))) => {
            Err(ClientError::Mount { server: at.to_string(), path: path.to_owned(), reason })
        }
        _ => Err(ClientError::Closed),
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
