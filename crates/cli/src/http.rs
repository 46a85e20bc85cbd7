//! HTTP for the pages of commands: a bounded number of connections, each with a time limit for idle peers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How long to wait when no connection can be accepted, as where no file may be opened any more.
const PAUSE: Duration = Duration::from_secs(1);

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most concurrent connections; a further client waits until one ends.
    pub(crate) connections: usize,
    /// How long a request's head may take to come, and the next request, and a body.
    pub(crate) patience: Duration,
    /// How long a connection is used for further requests; what it is about then may take as long again, for who
    /// reads no answer would keep it.
    pub(crate) life: Duration,
}

impl Limits {
    pub(crate) const USUAL: Limits =
        Limits { connections: 64, patience: Duration::from_secs(10), life: Duration::from_secs(60) };
}

/// Answers by `app` for good.
pub(crate) async fn serve(listener: TcpListener, app: Router, limits: Limits) {
    let room = Arc::new(Semaphore::new(limits.connections));
    // The semaphore is never closed.
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let app = app.clone();
                tokio::spawn(async move {
                    connection(stream, app, limits).await;
                    drop(permit);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers what comes on one connection. How that ends is the other end's concern.
async fn connection(stream: TcpStream, app: Router, limits: Limits) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.patience);
    let mut served = std::pin::pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)));
    if timeout(limits.life, served.as_mut()).await.is_err() {
        served.as_mut().graceful_shutdown();
        let _ = timeout(limits.life, served).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server with an answer too long for a socket's buffers at `/long`.
    async fn started(limits: Limits) -> SocketAddr {
        let app =
            Router::new().route("/", get(|| async { "here" })).route("/long", get(|| async { vec![7u8; 1 << 26] }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, app, limits));
        address
    }

    async fn stalled(address: SocketAddr, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn silent_connections_do_not_block_others() {
        let short = Duration::from_millis(200);
        let long = Duration::from_secs(3600);
        for (sent, patience, life) in [
            ("", short, long),
            ("GET / HTTP/1.1\r\nHost:", short, long),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", short, long),
            ("GET /long HTTP/1.1\r\nHost: a\r\n\r\n", long, short),
        ] {
            let address = started(Limits { connections: 2, patience, life }).await;
            let mut kept = Vec::new();
            for _ in 0..5 {
                kept.push(stalled(address, sent).await);
            }
            let mut ours = stalled(address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            let mut answer = String::new();
            let read = timeout(Duration::from_secs(60), ours.read_to_string(&mut answer)).await;
            assert!(read.is_ok() && answer.ends_with("here"), "{sent:?}: {read:?} {answer}");
            drop(kept);
        }
    }
}
