//! One run of quinn, laid out as its own benchmark is: a thread with a runtime for either end,
//! everything else by default.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{AHEAD, Error, Load, PATIENCE, failed};

/// The name in the certificate.
const NAME: &str = "localhost";

/// Sends everything; how long it took.
pub(super) fn run(load: &Load) -> Result<Duration, Error> {
    let (server, client) = configs(load.datagram)?;
    let (told, hear) = oneshot::channel();
    thread::scope(|scope| {
        let receiving = scope.spawn(move || runtime()?.block_on(receive(server, told, load)));
        let sent = runtime()?.block_on(async {
            let to = hear.await.map_err(|_| failed("the receiver")("it did not begin"))?;
            timeout(PATIENCE, send(client, to, load)).await.map_err(failed("sending"))?
        });
        let received = receiving.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        received.and(sent)
    })
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread().enable_all().build().map_err(failed("a runtime"))
}

/// A server with a certificate of its own making, and a client that trusts it alone; with the largest
/// datagram to be tried, if that is not to be quinn's own choice.
fn configs(datagram: Option<u16>) -> Result<(ServerConfig, ClientConfig), Error> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(failed("a certificate"))?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).map_err(failed("TLS"))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(failed("TLS"))?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(failed("TLS"))?;
    if let Some(bytes) = datagram {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(bytes);
        let mut transport = TransportConfig::default();
        transport.mtu_discovery_config(Some(discovery));
        let transport = Arc::new(transport);
        server.transport_config(transport.clone());
        client.transport_config(transport);
    }
    Ok((server, client))
}

/// An endpoint on any port of loopback, that takes datagrams as large as those to be tried.
fn endpoint(server: Option<ServerConfig>, datagram: Option<u16>) -> Result<Endpoint, Error> {
    let mut config = EndpointConfig::default();
    if let Some(bytes) = datagram.filter(|bytes| u64::from(*bytes) > config.get_max_udp_payload_size()) {
        config.max_udp_payload_size(bytes).map_err(failed("an endpoint"))?;
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("a socket"))?;
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).map_err(failed("an endpoint"))
}

async fn send(config: ClientConfig, to: SocketAddr, load: &Load) -> Result<Duration, Error> {
    let mut endpoint = endpoint(None, load.datagram)?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(to, NAME).map_err(failed("the connection"))?;
    let connection = connection.await.map_err(failed("the connection"))?;
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for _ in 0..load.count {
        if under_way.len() >= AHEAD {
            delivered(under_way.join_next().await)?;
        }
        under_way.spawn(send_one(connection.clone(), load.object.clone()));
    }
    while !under_way.is_empty() {
        delivered(under_way.join_next().await)?;
    }
    let took = began.elapsed();
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(took)
}

async fn send_one(connection: Connection, object: bytes::Bytes) -> Result<(), Error> {
    let mut stream = connection.open_uni().await.map_err(failed("a stream"))?;
    stream.write_chunk(object).await.map_err(failed("sending"))?;
    stream.finish().map_err(failed("sending"))?;
    // Until all of it is acknowledged.
    match stream.stopped().await.map_err(failed("sending"))? {
        None => Ok(()),
        Some(code) => Err(failed("an object")(format!("it was stopped: {code}"))),
    }
}

fn delivered(ended: Option<Result<Result<(), Error>, tokio::task::JoinError>>) -> Result<(), Error> {
    ended.map_or(Ok(()), |e| e.map_err(failed("sending"))?)
}

async fn receive(config: ServerConfig, told: oneshot::Sender<SocketAddr>, load: &Load) -> Result<(), Error> {
    let endpoint = endpoint(Some(config), load.datagram)?;
    // Whoever waits for it is there until this ends.
    let _ = told.send(endpoint.local_addr().map_err(failed("the receiver"))?);
    let taking = async {
        let incoming = endpoint.accept().await.ok_or("it was closed").map_err(failed("the receiver"))?;
        let connection = incoming.await.map_err(failed("the connection"))?;
        let mut under_way = JoinSet::new();
        for _ in 0..load.count {
            let mut stream = connection.accept_uni().await.map_err(failed("receiving"))?;
            let size = load.object.len();
            under_way.spawn(async move { stream.read_to_end(size).await.map(|object| object.len()) });
        }
        while let Some(read) = under_way.join_next().await {
            let size = read.map_err(failed("receiving"))?.map_err(failed("receiving"))?;
            if size != load.object.len() {
                return Err(failed("an object")("it came in another size"));
            }
        }
        // The sender closes when it has been told.
        connection.closed().await;
        Ok(())
    };
    timeout(PATIENCE, taking).await.map_err(failed("receiving"))?
}
