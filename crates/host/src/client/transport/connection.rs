//! A connection: a client core, its socket, and the driver task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_base::Peer;
use remora_client::{Client, ClientConfig, Transport};
use tokio::task::JoinHandle;

use crate::client::error::ClientError;
use crate::client::options::Options;
use crate::client::target::Keys;
use crate::client::transport::atp;
use crate::client::transport::connect;
use crate::client::transport::driver;
use crate::client::transport::shared_core::SharedCore;
use crate::{clock, zone};

/// Time limit of connecting for a session that never gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How a connection is opened.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// A parallel stream.
    is_beside: bool,
    patience: Duration,
}

/// A connection to a server. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<SharedCore>,
    pub(crate) server: SocketAddr,
    pub(crate) transport: Transport,
    task: JoinHandle<()>,
}

impl Connection {
    /// Connects over TCP; over UDP nothing is sent. ATP needs keys: [`open_objects`](Connection::open_objects).
    pub(crate) async fn open(
        transport: Transport,
        server: SocketAddr,
        config: ClientConfig,
        options: &Options,
    ) -> Result<Connection, ClientError> {
        let patience = config.give_up.unwrap_or(PATIENCE);
        Connection::open_any(transport, server, config, options, Opening { is_beside: false, patience }).await
    }

    /// Opens a UDP connection, if there is a route now.
    pub(crate) async fn open_at_once(
        server: SocketAddr,
        config: ClientConfig,
        options: &Options,
    ) -> Result<Connection, ClientError> {
        Connection::open_any(
            Transport::Udp,
            server,
            config,
            options,
            Opening { is_beside: false, patience: Duration::ZERO },
        )
        .await
    }

    /// Opens a parallel stream.
    pub(crate) async fn open_beside(
        server: SocketAddr,
        config: ClientConfig,
        options: &Options,
    ) -> Result<Connection, ClientError> {
        let patience = config.give_up.unwrap_or(PATIENCE);
        Connection::open_any(Transport::Tcp, server, config, options, Opening { is_beside: true, patience }).await
    }

    /// Connects over ATP to the owner of the key.
    pub(crate) async fn open_objects(
        keys: &Keys,
        server: SocketAddr,
        config: ClientConfig,
        options: &Options,
    ) -> Result<Connection, ClientError> {
        let patience = config.give_up.unwrap_or(PATIENCE);
        let (link, remote) = atp::connect(keys, server, patience).await?;
        let config = ClientConfig { transport: Transport::Atp, ..config };
        let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
        let shared = SharedCore::new(core, options.clock, zone::shown(&server), false);
        let task = tokio::spawn(atp::run(shared.clone(), link, remote));
        Ok(Connection { shared, server, transport: Transport::Atp, task })
    }

    async fn open_any(
        transport: Transport,
        server: SocketAddr,
        config: ClientConfig,
        options: &Options,
        Opening { is_beside, patience }: Opening,
    ) -> Result<Connection, ClientError> {
        let failed = |source| ClientError::Connect { server: zone::shown(&server), source };
        let config = ClientConfig { transport, ..config };
        let shared = |config| {
            let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
            SharedCore::new(core, options.clock, zone::shown(&server), is_beside)
        };
        let (shared, task) = match transport {
            Transport::Udp => {
                let socket = connect::bind_in_time(server, patience).await.map_err(failed)?;
                let path_mtu = connect::path_mtu(&socket, server).unwrap_or(config.path_mtu);
                let shared = shared(ClientConfig { path_mtu, ..config });
                (shared.clone(), tokio::spawn(driver::run_udp(shared, socket, server)))
            }
            Transport::Tcp => {
                let late = |_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"));
                let connecting = clock::timeout(patience, connect::connect_in_time(server));
                let stream = connecting.await.unwrap_or_else(late).map_err(failed)?;
                if is_beside {
                    connect::tune(&stream);
                }
                let shared = shared(config);
                (shared.clone(), tokio::spawn(driver::run_tcp(shared, Some(stream), server)))
            }
            Transport::Atp => return Err(ClientError::NoKey { server: zone::shown(&server) }),
        };
        Ok(Connection { shared, server, transport, task })
    }

    /// A connection to a server that may not answer yet: calls wait for it. Needs the runtime.
    pub(crate) fn open_later(
        transport: Transport,
        keys: Option<&Keys>,
        server: SocketAddr,
        options: &Options,
    ) -> Result<Connection, ClientError> {
        let config = ClientConfig { transport, ..options.config.clone() };
        let core = Client::new(config, Peer::datagram(server), options.seed, options.clock.now());
        let shared = SharedCore::new(core, options.clock, zone::shown(&server), false);
        let task = match (transport, keys) {
            (Transport::Udp, _) => tokio::spawn(driver::run_udp_later(shared.clone(), server)),
            (Transport::Tcp, _) => tokio::spawn(driver::run_tcp(shared.clone(), None, server)),
            (Transport::Atp, Some(keys)) => tokio::spawn(atp::run_later(shared.clone(), keys.clone(), server)),
            (Transport::Atp, None) => return Err(ClientError::NoKey { server: zone::shown(&server) }),
        };
        Ok(Connection { shared, server, transport, task })
    }

    /// Requests for file data that it takes now.
    pub(crate) fn room(&self) -> usize {
        self.shared.lock().core.room()
    }

    /// Resets the connection: unsent data is dropped, and the peer receives a RST.
    pub(crate) fn reset(&self) {
        self.shared.close();
        self.task.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;
    use std::time::Instant;

    use nix::sched::{CloneFlags, unshare};
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::Clock;
    use crate::client::mount::procedure::mount;
    use crate::client::mount::procedure::tests::{serve, serve_datagrams};
    use crate::client::{KnownRoot, Target};

    /// Runs `test` in a network namespace whose loopback is down; `None` if there are no namespaces.
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
        let config = ClientConfig { give_up: Some(Duration::from_secs(seconds)), ..ClientConfig::new(Transport::Udp) };
        let options = Options { config, seed: 1, clock: Clock::start() };
        mount(&Target::parse(url).unwrap(), "/", options).await.map(|session| session.transport())
    }

    #[test]
    fn missing_network_is_awaited_and_reported() {
        for proto in ["?proto=udp", "?proto=tcp", ""] {
            let began = Instant::now();
            let url = format!("nfs://192.0.2.9/{proto}");
            let Some(failed) = without_network(async || mount_within(&url, 2).await.unwrap_err()) else { return };
            assert!((2..4).contains(&began.elapsed().as_secs()), "{proto}: {:?}", began.elapsed());
            let ClientError::Connect { source, .. } = &failed else { panic!("{proto}: {failed}") };
            assert!(proto == "?proto=tcp" || source.kind() == ErrorKind::NetworkUnreachable, "{proto}: {failed}");
        }
    }

    /// The server may be elsewhere by now.
    #[test]
    fn known_root_without_route_fails_at_once() {
        let known: KnownRoot = serde_json::from_str(r#"{"server":"192.0.2.9:2049","root":[1]}"#).unwrap();
        let config = ClientConfig { give_up: Some(Duration::from_secs(5)), ..ClientConfig::new(Transport::Udp) };
        let options = Options { config, seed: 1, clock: Clock::start() };
        let target = Target::parse("nfs://192.0.2.9/").unwrap();
        let began = Instant::now();
        let Some(opened) = without_network(async || known.open(&target, options).await.is_ok()) else { return };
        assert!(!opened && began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }

    #[test]
    fn late_network_still_selects_udp() {
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
