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
use crate::{Clock, clock, reserved, zone};

/// How long connecting may take when the session itself would wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether there is a way, where datagrams have none: more often than a stream is tried, which
/// would be the first to find one, and be taken for good.
const LOOK: Duration = Duration::from_millis(20);

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
        let patience = config.give_up.unwrap_or(PATIENCE);
        Line::open_any(transport, server, config, options, (false, patience)).await
    }

    /// Over UDP, if there is a way to the server now.
    pub(super) async fn open_at_once(
        server: SocketAddr,
        config: Config,
        options: &Options,
    ) -> Result<Line, ClientError> {
        Line::open_any(Transport::Udp, server, config, options, (false, Duration::ZERO)).await
    }

    /// A stream for file data beside a session's own line.
    pub(super) async fn open_beside(
        server: SocketAddr,
        config: Config,
        options: &Options,
    ) -> Result<Line, ClientError> {
        let patience = config.give_up.unwrap_or(PATIENCE);
        Line::open_any(Transport::Tcp, server, config, options, (true, patience)).await
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
        let shared = Shared::new(core, options.clock, zone::shown(&server), false);
        let task = tokio::spawn(objects::run(shared.clone(), link, remote));
        Ok(Line { shared, server, transport: Transport::Atp, task })
    }

    async fn open_any(
        transport: Transport,
        server: SocketAddr,
        config: Config,
        options: &Options,
        (is_beside, patience): (bool, Duration),
    ) -> Result<Line, ClientError> {
        let failed = |source| ClientError::Connect { server: zone::shown(&server), source };
        let config = Config { transport, ..config };
        let shared = |config| {
            let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
            Shared::new(core, options.clock, zone::shown(&server), is_beside)
        };
        let (shared, task) = match transport {
            Transport::Udp => {
                let socket = bind_in_time(server, patience).await.map_err(failed)?;
                let path_mtu = path_mtu(&socket, server).unwrap_or(config.path_mtu);
                let shared = shared(Config { path_mtu, ..config });
                (shared.clone(), tokio::spawn(driver::run_udp(shared, socket, server)))
            }
            Transport::Tcp => {
                let late = |_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"));
                let connecting = clock::timeout(patience, driver::connect_in_time(server));
                let stream = connecting.await.unwrap_or_else(late).map_err(failed)?;
                if is_beside {
                    tune(&stream);
                }
                let shared = shared(config);
                (shared.clone(), tokio::spawn(driver::run_tcp(shared, stream, server)))
            }
            Transport::Atp => return Err(ClientError::NoKey { server: zone::shown(&server) }),
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

/// As [`bind`], for a first line: where there is no way to the server at present, one is waited for. What is in the way is
/// the error when that has taken so long.
async fn bind_in_time(server: SocketAddr, patience: Duration) -> std::io::Result<UdpSocket> {
    let clock = Clock::start();
    let end = clock.now() + patience;
    loop {
        let now = clock.now();
        match bind(server).await {
            Err(e) if driver::is_away(&e) && now < end => tokio::time::sleep(LOOK.min(end.since(now))).await,
            done => return done,
        }
    }
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;
    use std::time::Instant;

    use nix::sched::{CloneFlags, unshare};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::mount::mount;
    use crate::client::mount::tests::{serve, serve_datagrams};
    use crate::client::{Known, Target};

    /// Runs `test` on a thread without a network: its loopback is down. `None` where there can be no such thread.
    fn without_network<T: Send>(test: impl AsyncFnOnce() -> T + Send) -> Option<T> {
        let alone = || {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            Some(runtime.block_on(test()))
        };
        let done = std::thread::scope(|scope| scope.spawn(alone).join().unwrap());
        if done.is_none() {
            skip::skipped(&skip::this_test(), "no network namespaces here");
        }
        done
    }

    async fn mount_within(url: &str, seconds: u64) -> Result<Transport, ClientError> {
        let config = Config { give_up: Some(Duration::from_secs(seconds)), ..Config::new(Transport::Udp) };
        let options = Options { config, seed: 1, clock: Clock::start() };
        mount(&Target::parse(url).unwrap(), "/", options).await.map(|session| session.transport())
    }

    #[test]
    fn a_network_that_is_not_there_is_waited_for_and_is_the_error() {
        for proto in ["?proto=udp", "?proto=tcp", ""] {
            let began = Instant::now();
            let url = format!("nfs://192.0.2.9/{proto}");
            let Some(failed) = without_network(async || mount_within(&url, 2).await.unwrap_err()) else { return };
            assert!((2..4).contains(&began.elapsed().as_secs()), "{proto}: {:?}", began.elapsed());
            let ClientError::Connect { source, .. } = &failed else { panic!("{proto}: {failed}") };
            assert!(proto == "?proto=tcp" || source.kind() == ErrorKind::NetworkUnreachable, "{proto}: {failed}");
        }
    }

    /// It may be somewhere else by now, and is asked for beside that.
    #[test]
    fn what_is_known_of_before_is_not_waited_for() {
        let known: Known = serde_json::from_str(r#"{"server":"192.0.2.9:2049","root":[1]}"#).unwrap();
        let config = Config { give_up: Some(Duration::from_secs(5)), ..Config::new(Transport::Udp) };
        let options = Options { config, seed: 1, clock: Clock::start() };
        let target = Target::parse("nfs://192.0.2.9/").unwrap();
        let began = Instant::now();
        let Some(opened) = without_network(async || known.open(&target, options).await.is_ok()) else { return };
        assert!(!opened && began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }

    #[test]
    fn datagrams_are_as_good_as_a_stream_when_the_network_comes_late() {
        if Command::new("ip").arg("-V").output().is_err() {
            return skip::skipped(&skip::this_test(), "no iproute2");
        }
        let mounted = async || {
            let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let socket = Arc::new(UdpSocket::bind(at).await.unwrap());
            tokio::spawn(serve(listener, "/", Duration::ZERO));
            tokio::spawn(serve_datagrams(socket, "/", Duration::ZERO, 0));
            tokio::spawn(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            });
            mount_within(&format!("nfs://127.0.0.1:{}/", at.port()), 10).await
        };
        let Some(mounted) = without_network(mounted) else { return };
        assert_eq!(mounted.unwrap(), Transport::Udp);
    }
}
