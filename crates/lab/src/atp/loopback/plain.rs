//! One run of quinn, laid out as its own benchmark is: a thread with a runtime for either end,
//! everything else by default.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{AHEAD, Error, Load, PATIENCE, failed};

/// The name in the certificate.
const NAME: &str = "localhost";

/// Sends everything; how long it took.
pub(super) fn run(load: &Load) -> Result<Duration, Error> {
    let (server, client) = configs()?;
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

/// A server with a certificate of its own making, and a client that trusts it alone.
fn configs() -> Result<(ServerConfig, ClientConfig), Error> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(failed("a certificate"))?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).map_err(failed("TLS"))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(failed("TLS"))?;
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(failed("TLS"))?;
    Ok((server, client))
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn send(config: ClientConfig, to: SocketAddr, load: &Load) -> Result<Duration, Error> {
    let mut endpoint = Endpoint::client(anywhere()).map_err(failed("the sender"))?;
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
    let endpoint = Endpoint::server(config, anywhere()).map_err(failed("the receiver"))?;
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
