//! A session that goes on with an earlier mount while the server may not answer yet.

use std::net::SocketAddr;
use std::time::Duration;

use remora_client::Transport;
use remora_wire::nfs3::Fh;
use tokio::time::timeout;

use crate::client::error::ClientError;
use crate::client::mount::procedure::resolve;
use crate::client::options::Options;
use crate::client::session::Session;
use crate::client::target::Target;
use crate::client::transport::connection::Connection;
use crate::client::transport::parallel_streams::ParallelStreams;

/// Time limit of looking up the server's name. Without a network the answer may take long, and the address that was
/// used before is known.
const RESOLVE_MAX: Duration = Duration::from_secs(1);

/// What an earlier mount found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EarlierMount {
    /// Address and port of NFS.
    pub server: SocketAddr,
    pub transport: Transport,
    pub root: Fh,
}

impl EarlierMount {
    /// Of a session, with this directory as root.
    pub fn of(session: &Session, root: Fh) -> EarlierMount {
        EarlierMount { server: session.addr(), transport: session.transport(), root }
    }

    /// Opens a session without asking the server for anything: its calls wait until the server answers. The host of
    /// `target` may have another address by now.
    pub async fn resume(&self, target: &Target, options: Options) -> Result<Session, ClientError> {
        let mut server = self.server;
        if let Ok(Ok(found)) = timeout(RESOLVE_MAX, resolve(&target.host)).await
            && !found.iter().any(|addr| addr.ip() == server.ip())
            && let Some(first) = found.first()
        {
            server = *first;
            server.set_port(self.server.port());
        }
        let connection = Connection::open_later(self.transport, target.keys.as_ref(), server, &options)?;
        let is_free = target.transport.is_none() && self.transport == Transport::Udp;
        let streams = is_free.then(|| ParallelStreams::new(options));
        Ok(Session::new(connection, streams, self.root.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use remora_client::ClientConfig;
    use remora_wire::nfs3::Call;
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::Clock;
    use crate::client::listen;
    use crate::client::mount::procedure::tests::{serve, serve_datagrams};

    /// The server begins after the first call.
    #[tokio::test]
    async fn resumed_session_waits_for_its_server() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let (listener, socket) = listen().await;
            let server = listener.local_addr().unwrap();
            drop((listener, socket));
            let earlier = EarlierMount { server, transport, root: Fh(Bytes::from_static(b"/")) };
            let options = Options { config: ClientConfig::new(transport), seed: 1, clock: Clock::start() };
            let target = Target::parse(&format!("nfs://{server}/")).unwrap();
            let session = earlier.resume(&target, options).await.unwrap();
            assert_eq!((session.transport(), session.root()), (transport, &earlier.root));
            let asking = session.clone();
            let call = tokio::spawn(async move { asking.call(Call::Null).await });
            while session.silence() < Duration::from_millis(50) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            match transport {
                Transport::Tcp => {
                    tokio::spawn(serve(TcpListener::bind(server).await.unwrap(), "/", Duration::ZERO));
                }
                _ => {
                    let socket = Arc::new(UdpSocket::bind(server).await.unwrap());
                    tokio::spawn(serve_datagrams(socket, "/", Duration::ZERO, 0));
                }
            }
            assert!(call.await.unwrap().is_ok(), "{transport:?}");
        }
    }
}
