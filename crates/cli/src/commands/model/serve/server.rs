//! `remora model serve`: a network on a page with sliders, for this machine only.
//!
//! The page keeps the file's text and the positions of the sliders; the server is stateless and answers each request
//! from its contents. It listens on loopback only. It checks `Host` against DNS rebinding. Pages of other origins
//! cannot query it: browsers block their requests (no CORS) or name the origin (`Origin`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::commands::model::flags::ModelServe;
use crate::commands::model::serve::api::{Refusal, Start};
use crate::commands::model::serve::{api, origin_check};
use crate::commands::model::{example, network_file};
use crate::http::{self, Limits};
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// A request's bytes at most: a file of a few thousand stations.
const BODY_MAX: usize = 1 << 20;
/// Most requests computed concurrently; further ones are answered with 503.
const JOBS_MAX: usize = 4;

type Asset = ([(HeaderName, &'static str); 1], &'static str);

/// What requests share.
struct Shared {
    start: Start,
    jobs: Arc<Semaphore>,
    /// How long a request's body may take.
    patience: Duration,
}

pub(crate) async fn run(args: ModelServe) -> Result {
    if !args.listen.ip().is_loopback() {
        return Err(Error::Usage(format!("--listen {}: expected a loopback address, as 127.0.0.1:8089", args.listen)));
    }
    let start = match &args.file {
        Some(path) => {
            let text = network_file::text(path)?;
            network_file::parse_at(path, &text)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Start { name, text }
        }
        None => Start { name: "office.toml".into(), text: example::OFFICE.into() },
    };
    let listener = TcpListener::bind(args.listen).await.map_err(Error::listen(args.listen, "TCP"))?;
    let address = listener.local_addr().map_err(Error::listen(args.listen, "TCP"))?;
    tell(address, args.json)?;
    let limits = Limits::USUAL;
    let jobs = Arc::new(Semaphore::new(JOBS_MAX));
    http::serve(listener, router(Arc::new(Shared { start, jobs, patience: limits.patience })), limits).await;
    Ok(())
}

fn tell(address: SocketAddr, json: bool) -> Result {
    if json {
        stdio::print_json(&serde_json::json!({ "listen": address.to_string() }))
    } else {
        stdio::print(&format!("http://{address}/ shows the network; Ctrl-C stops the server\n"))
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(|| async { asset("text/html; charset=utf-8", include_str!("page.html")) }))
        .route("/page.css", get(|| async { asset("text/css; charset=utf-8", include_str!("page.css")) }))
        .route("/page.js", get(|| async { asset("text/javascript; charset=utf-8", include_str!("page.js")) }))
        .route("/report.css", get(|| async { asset("text/css; charset=utf-8", remora_lab::model::STYLE) }))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route("/api/start", get(|State(shared): State<Arc<Shared>>| async move { Json(shared.start.clone()) }))
        .route("/api/solve", post(|state, request| compute(state, request, api::solve)))
        .route("/api/answer", post(|state, request| compute(state, request, api::answer)))
        .route("/api/study", post(|state, request| compute(state, request, api::study)))
        .route("/api/save", post(|state, request| compute(state, request, api::save)))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(origin_check::guard))
        .with_state(shared)
}

fn asset(kind: &'static str, text: &'static str) -> Asset {
    ([(CONTENT_TYPE, kind)], text)
}

/// Answers from what is in the request, on a thread of its own, a bounded number of them at once.
async fn compute<Q, A>(
    State(shared): State<Arc<Shared>>,
    request: Request,
    answer: fn(&Q) -> Result<A, Refusal>,
) -> Response
where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
{
    let question = match timeout(shared.patience, Json::<Q>::from_request(request, &())).await {
        Ok(Ok(Json(question))) => question,
        Ok(Err(rejection)) => return rejection.into_response(),
        Err(_) => return Refusal::new("the request did not arrive in time").into_response(StatusCode::REQUEST_TIMEOUT),
    };
    let Ok(permit) = shared.jobs.clone().try_acquire_owned() else {
        return Refusal::new("the server is busy: try again").into_response(StatusCode::SERVICE_UNAVAILABLE);
    };
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        answer(&question)
    });
    match work.await {
        Ok(Ok(answer)) => Json(answer).into_response(),
        Ok(Err(refusal)) => refusal.into_response(StatusCode::UNPROCESSABLE_ENTITY),
        Err(e) => Refusal::new(e.to_string()).into_response(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn missing_request_bodies_do_not_block_others() {
        let (long, patience) = (Duration::from_secs(3600), Duration::from_millis(200));
        let start = Start { name: "office.toml".into(), text: example::OFFICE.into() };
        let app = router(Arc::new(Shared { start, jobs: Arc::new(Semaphore::new(JOBS_MAX)), patience }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(http::serve(listener, app, Limits { connections: 2, patience: long, life: long }));
        let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
        let mut stalled = Vec::new();
        for path in ["solve", "study", "save"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("POST /api/{path} HTTP/1.1\r\n{head}{{").as_bytes()).await.unwrap();
            stalled.push(stream);
        }
        let mut ours = TcpStream::connect(address).await.unwrap();
        ours.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        stalled.push(ours);
        for (mut stream, status) in stalled.into_iter().zip(["408", "408", "408", "200"]) {
            let mut answer = String::new();
            let read = timeout(Duration::from_secs(60), stream.read_to_string(&mut answer)).await;
            assert!(read.is_ok() && answer.starts_with(&format!("HTTP/1.1 {status}")), "{read:?} {answer}");
        }
    }
}
