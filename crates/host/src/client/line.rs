//! A core on a socket of its own, and the task that drives it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_base::Peer;
use remora_client::{Client, Config, Transport};
use rustix::net::sockopt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use super::mount::Options;
use super::session::Shared;
use super::{ClientError, Keys, driver, objects};
use crate::reserved;

/// How long connecting may take when the session itself would wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// A way to a server. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) shared: Arc<Shared>,
    pub(super) server: SocketAddr,
    pub(super) transport: Transport,
    task: JoinHandle<()>,
}

impl Line {
    /// Over UDP nothing is sent for that; over TCP it takes a connection. ATP takes keys, too: see
    /// [`open_objects`](Line::open_objects).
    pub(super) async fn open(
        transport: Transport,
        server: SocketAddr,
        config: Config,
        options: &Options,
    ) -> Result<Line, ClientError> {
        Line::open_any(transport, server, config, options, false).await
    }

    /// A stream for file data beside a session's own line.
    pub(super) async fn open_beside(
        server: SocketAddr,
        config: Config,
        options: &Options,
    ) -> Result<Line, ClientError> {
        Line::open_any(Transport::Tcp, server, config, options, true).await
    }

    /// Over ATP: a connection to the owner of the key, and to nobody else.
    pub(super) async fn open_objects(
        keys: &Keys,
        server: SocketAddr,
        config: Config,
        options: &Options,
    ) -> Result<Line, ClientError> {
        let patience = config.give_up.unwrap_or(PATIENCE);
        let (link, remote) = objects::connect(keys, server, patience).await?;
        let config = Config { transport: Transport::Atp, ..config };
        let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
        let shared = Shared::new(core, options.clock, server.to_string(), false);
        let task = tokio::spawn(objects::run(shared.clone(), link, remote));
        Ok(Line { shared, server, transport: Transport::Atp, task })
    }

    async fn open_any(
        transport: Transport,
        server: SocketAddr,
        config: Config,
        options: &Options,
        is_beside: bool,
    ) -> Result<Line, ClientError> {
        let failed = |source| ClientError::Connect { server: server.to_string(), source };
        let patience = config.give_up.unwrap_or(PATIENCE);
        let config = Config { transport, ..config };
        let shared = |config| {
            let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
            Shared::new(core, options.clock, server.to_string(), is_beside)
        };
        let (shared, task) = match transport {
            Transport::Udp => {
                let socket = bind(server).await.map_err(failed)?;
                let path_mtu = path_mtu(&socket, server).unwrap_or(config.path_mtu);
                let shared = shared(Config { path_mtu, ..config });
                (shared.clone(), tokio::spawn(driver::run_udp(shared, socket, server)))
            }
            Transport::Tcp => {
                let late = |_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"));
                let connecting = tokio::time::timeout(patience, driver::connect_in_time(server));
                let stream = connecting.await.unwrap_or_else(late).map_err(failed)?;
                if is_beside {
                    tune(&stream);
                }
                let shared = shared(config);
                (shared.clone(), tokio::spawn(driver::run_tcp(shared, stream, server)))
            }
            Transport::Atp => return Err(ClientError::NoKey { server: server.to_string() }),
        };
        Ok(Line { shared, server, transport, task })
    }

    /// How many more requests for file data it takes at this moment.
    pub(super) fn room(&self) -> usize {
        self.shared.lock().core.room()
    }

    /// Closes it at once: what the kernel still has of it is not sent any more, and the other
    /// end is told.
    pub(super) fn reset(&self) {
        self.shared.close();
        self.task.abort();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The MTU of the path as the kernel knows it, less what IPv6 headers have more than IPv4's: 20
/// bytes, and 8 of a fragment's.
fn path_mtu(socket: &UdpSocket, server: SocketAddr) -> rustix::io::Result<u32> {
    if server.is_ipv4() { sockopt::ip_mtu(socket) } else { sockopt::ipv6_mtu(socket).map(|mtu| mtu.saturating_sub(28)) }
}

pub(super) async fn bind(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = reserved::bind(server).await?;
    socket.connect(server).await?;
    // Best effort: a whole window of replies may come at once.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    Ok(socket)
}

/// Small segments, such as requests and the end of a file, that are lost again and again are sent
/// again at the same pace, not at half the pace each time (Linux, tcp(7); RFC 6298 has the other).
/// A system that does not have it does without.
fn tune(stream: &TcpStream) {
    let _ = sockopt::set_tcp_thin_linear_timeouts(stream, true);
}
