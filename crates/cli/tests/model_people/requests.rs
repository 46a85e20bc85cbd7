//! `remora model serve` by bare requests: who is let in, and how much.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::common::{Daemon, Place};
use super::example;

/// The page of the example on a free port.
pub(crate) fn serve(place: &Place) -> Daemon {
    Daemon::start(place.command(&["model", "serve", &example("office.toml"), "--listen", "127.0.0.1:0", "--json"]))
}

/// Sends bytes and returns the answer: as much as its head says, or all until the other end hangs up.
pub(crate) fn exchange(to: impl ToSocketAddrs, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The other end may hang up before all is sent.
    let _ = stream.write_all(request);
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !is_whole(&answer)
        && let Ok(n @ 1..) = stream.read(&mut piece)
    {
        answer.extend_from_slice(&piece[..n]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether a head and as many bytes as it says are there; some keep connections all the same.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= head.len() + 4 + length)
}

fn get(daemon: &Daemon, path: &str, host: &str, more: &str) -> String {
    exchange(daemon.addr, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n").as_bytes())
}

fn post(daemon: &Daemon, path: &str, more: &str, body: &str) -> String {
    let (host, length) = (daemon.addr, body.len());
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    exchange(daemon.addr, (head + body).as_bytes())
}

const JSON: &str = "Content-Type: application/json\r\n";

pub(crate) fn only_this_machine() {
    let p = Place::new();
    let daemon = serve(&p);
    let host = daemon.addr.to_string();
    for path in ["/", "/page.js", "/page.css", "/report.css", "/api/start"] {
        let answer = get(&daemon, path, &host, "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(answer.contains("content-security-policy: default-src 'self'"), "{path}: {answer}");
        let elsewhere = answer.replace("http://www.w3.org/2000/svg", "").contains("://");
        assert!(path == "/api/start" || !elsewhere, "{path} names another place: {answer}");
    }
    assert!(get(&daemon, "/", "evil.example", "").starts_with("HTTP/1.1 403"));
    assert!(get(&daemon, "/api/start", &host, "Origin: http://evil.example\r\n").starts_with("HTTP/1.1 403"));
    let plain = post(&daemon, "/api/solve", "Content-Type: text/plain\r\n", "{}");
    assert!(plain.starts_with("HTTP/1.1 415"), "what a form of others could send: {plain}");
}

pub(crate) fn requests_are_bounded() {
    let p = Place::new();
    let daemon = serve(&p);
    let large = format!("{{\"text\": \"{}\"}}", "x".repeat(2 << 20));
    assert!(post(&daemon, "/api/solve", JSON, &large).starts_with("HTTP/1.1 413"));
    let refused = |body: &str, words: &[&str]| {
        let answer = post(&daemon, "/api/solve", JSON, body);
        assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
        assert!(words.iter().all(|w| answer.contains(w)), "{words:?}: {answer}");
    };
    refused(r#"{"text": "[[medium]]\nname = \"e\"\ntype = \"hub\"\nrate = \"1Mbit\"\n"}"#, &["\"line\":3", "hub"]);
    let good = r#"[[medium]]\nname = \"e\"\ntype = \"ethernet\"\nrate = \"1Mbit\"\n"#;
    refused(&format!(r#"{{"text": "{good}", "set": {{"flow.1.rate": 1}}}}"#), &["flow.1.rate", "no such key"]);
    refused(&format!(r#"{{"text": "{good}", "set": {{"medium.e.rate": -5}}}}"#), &["medium.e.rate", "expected 1"]);
    refused(&format!(r#"{{"text": "{good}", "set": {{"medium.e.rate": 2.5}}}}"#), &["medium.e.rate", "not an integer"]);
    let answer = post(&daemon, "/api/solve", JSON, &format!(r#"{{"text": "{good}", "set": {{"medium.e.rate": 5}}}}"#));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"value\":5.0"), "{answer}");
}

pub(crate) fn large_networks_have_what_matters() {
    let p = Place::new();
    let daemon = serve(&p);
    let question = serde_json::json!({ "text": p.ok(&["model", "--example=campus"]) }).to_string();
    let answer = post(&daemon, "/api/solve", JSON, &question);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let solved: serde_json::Value = serde_json::from_str(body).unwrap();
    let sliders = solved["sliders"].as_array().unwrap();
    assert!(sliders.iter().any(|s| s["name"] == "copy.1.window"), "{sliders:?}");
    assert!(solved["left_out"].as_u64().unwrap() > 0, "there are more than sliders");
}

pub(crate) fn ends_with_a_signal() {
    let p = Place::new();
    assert_eq!(serve(&p).interrupt("INT").0, 130);
}
