//! Rejects requests that do not name this machine's loopback, or come from a page of another origin. Restricts this
//! page to requests to its own origin.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Lets requests of this machine's own pages through, and says on every answer what it may do.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let mut response = if is_ours(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "only for this machine, by the name localhost or a loopback address\n").into_response()
    };
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether it was sent to a loopback name, and by no page or by one from there.
fn is_ours(headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let Some(host) = headers.get(HOST).and_then(text).filter(|h| is_loopback(h)) else { return false };
    match headers.get(ORIGIN) {
        None => true,
        Some(origin) => text(origin).is_some_and(|o| o == format!("http://{host}")),
    }
}

/// Whether `authority`, a name with or without a port, can only mean this machine.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_check_accepts_only_loopback_names() {
        for (host, origin, ours) in [
            (Some("127.0.0.1:8089"), None, true),
            (Some("localhost:8089"), Some("http://localhost:8089"), true),
            (Some("[::1]:8089"), Some("http://[::1]:8089"), true),
            (Some("127.0.0.1"), None, true),
            (None, None, false),
            (Some("evil.example:8089"), None, false),
            (Some("localhost.evil.example"), None, false),
            (Some("127.0.0.1.evil.example"), None, false),
            (Some("192.168.0.7:8089"), None, false),
            (Some("127.0.0.1:8089"), Some("http://evil.example"), false),
            (Some("127.0.0.1:8089"), Some("http://localhost:3000"), false),
            (Some("127.0.0.1:8089"), Some("null"), false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(HOST, host), (ORIGIN, origin)] {
                headers.extend(value.map(|v| (name, HeaderValue::from_static(v))));
            }
            assert_eq!(is_ours(&headers), ours, "{host:?} {origin:?}");
        }
    }
}
