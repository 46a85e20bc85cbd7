//! The flag `--metrics`, and the page behind it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::config::address;
use crate::http::{self, Limits};
use crate::metrics::table::{Family, Format};
use crate::metrics::tables;
use crate::output::exit::{Error, Result};

/// Connections for scrapes.
const LIMITS: Limits = Limits { connections: 16, ..Limits::USUAL };
/// Snapshots taken at once: a scrape costs the command little, however many collectors there are.
const SNAPSHOTS_MAX: usize = 1;

/// The flag of commands that run for long.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct MetricsFlags {
    /// Serve metrics for Prometheus at http://ADDRESS/metrics, to every client that reaches the address; a port alone
    /// means loopback, port 0 a free port
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    metrics: Option<SocketAddr>,
}

impl MetricsFlags {
    /// Opens the port, if there is to be one.
    pub(crate) async fn bind(self) -> Result<Option<MetricsListener>> {
        let Some(listen) = self.metrics else { return Ok(None) };
        let listener = TcpListener::bind(listen).await.map_err(Error::listen(listen, "TCP, --metrics"))?;
        let address = listener.local_addr().map_err(Error::listen(listen, "TCP, --metrics"))?;
        Ok(Some(MetricsListener { listener, address }))
    }
}

/// An open port. Clients wait until the page is served.
pub(crate) struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// The page, served until this is dropped.
pub(crate) struct MetricsPage {
    address: SocketAddr,
    task: AbortHandle,
}

impl MetricsListener {
    /// Serves the page. `snapshot` returns the families of metrics; it may block for a moment.
    pub(crate) fn serve(self, snapshot: impl Fn() -> Vec<Family> + Send + Sync + 'static) -> MetricsPage {
        let MetricsListener { listener, address } = self;
        let page = Page { snapshot: Arc::new(snapshot), turns: Arc::new(Semaphore::new(SNAPSHOTS_MAX)) };
        let app = Router::new().route("/metrics", get(answer)).with_state(page);
        let task = tokio::spawn(http::serve(listener, app, LIMITS)).abort_handle();
        MetricsPage { address, task }
    }
}

impl MetricsPage {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// What a command says when it is ready.
pub(crate) fn notice(address: SocketAddr) -> String {
    format!("metrics on http://{address}/metrics")
}

impl Drop for MetricsPage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Page {
    snapshot: Arc<dyn Fn() -> Vec<Family> + Send + Sync>,
    turns: Arc<Semaphore>,
}

async fn answer(State(Page { snapshot, turns }): State<Page>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let format = Format::accepted(&accept);
    // The semaphore is never closed.
    let _turn = turns.acquire().await;
    let page =
        tokio::task::spawn_blocking(move || format.page(std::iter::once(tables::build()).chain(snapshot()).collect()));
    match page.await {
        Ok(Ok(page)) => ([(CONTENT_TYPE, format.media_type())], page).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = "Host: localhost\r\nConnection: close";
        stream.write_all(format!("{request} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn page_answers_get_of_metrics_alone() {
        let flags = MetricsFlags { metrics: Some("127.0.0.1:0".parse().unwrap()) };
        let listener = flags.bind().await.unwrap().unwrap();
        let page = listener.serve(|| vec![Family::gauge("test", "A test").value(5u64)]);
        for (request, status, body) in [
            ("GET /metrics", "200 OK", "remora_test 5\n"),
            ("GET /metrics?x=1", "200 OK", "remora_build_info{version="),
            ("GET /", "404 Not Found", ""),
            ("POST /metrics", "405 Method Not Allowed", ""),
        ] {
            let answer = ask(page.address(), request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(body), "{request}: {answer}");
        }
    }

    #[tokio::test]
    async fn taken_port_is_an_error_that_names_it() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = taken.local_addr().unwrap();
        let why = MetricsFlags { metrics: Some(listen) }.bind().await.err().unwrap().to_string();
        assert!(why.contains(&listen.to_string()) && why.contains("--metrics"), "{why}");
    }
}
