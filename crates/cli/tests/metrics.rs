//! `--metrics` of the commands that run for long: what a scrape sees, and what `promtool` says of the page.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::{Daemon, Place};
use remora_host::atp::keys;

/// The page of a command's metrics, for a client that accepts `accept`.
fn scrape(daemon: &Daemon, accept: &str) -> String {
    let at = daemon.ready["metrics"].as_str().unwrap_or_else(|| panic!("no metrics: {}", daemon.ready));
    let mut stream = TcpStream::connect(at).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    page.to_owned()
}

/// The value of the sample that begins with `sample`.
fn value(page: &str, sample: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Has `promtool` check the page: syntax, names, units and help texts.
fn check(page: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match command.spawn() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return skip::skipped(&skip::this_test(), "promtool is not installed (Debian: prometheus)");
        }
        started => started.unwrap(),
    };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let text = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(said.status.success() && text.is_empty(), "{text}\n{page}");
}

#[test]
fn serve_counts_requests_by_procedure_and_status() {
    let place = Place::new();
    fs::write(place.srv("a"), "twelve bytes").unwrap();
    let server = place.serve(&["--metrics", "127.0.0.1:0"]);
    assert_eq!(place.ok(&["cat", &server.url("/a")]), "twelve bytes");
    assert_ne!(place.run(&["stat", &server.url("/missing")]).code, 0);
    let page = scrape(&server, "text/plain");
    let requests = |labels: &str| value(&page, &format!("remora_serve_requests_total{labels}"));
    let reads = requests("{procedure=\"READ\",status=\"OK\"}").unwrap();
    assert!(reads >= 1.0 && requests("{procedure=\"LOOKUP\",status=\"NOENT\"}").unwrap() >= 1.0, "{page}");
    assert_eq!(value(&page, "remora_serve_request_duration_seconds_count{procedure=\"READ\"}"), Some(reads), "{page}");
    server.signal("USR1");
    let mut server = server;
    let counters = server.next_object();
    let nfs = counters["counters"]["nfs_calls"].as_f64();
    assert_eq!(value(&page, "remora_serve_calls_total{program=\"nfs\"}"), nfs, "one snapshot: {counters}\n{page}");
    check(&page);
}

#[test]
fn serve_answers_prometheus_in_openmetrics() {
    let place = Place::new();
    let server = place.serve(&["--metrics", "127.0.0.1:0"]);
    let page = scrape(&server, "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5");
    assert!(page.contains("# UNIT remora_serve_memory_bytes bytes\n") && page.ends_with("# EOF\n"), "{page}");
}

#[test]
fn recv_and_gateway_have_pages_when_they_are_ready() {
    let place = Place::new();
    let key = place.state().join("key");
    let public = keys::load_or_create(&key).unwrap().public().to_string();
    let (key, inbox) = (key.to_str().unwrap(), place.here("inbox"));
    let common = ["--listen", "127.0.0.1:0", "--key", key, "--json", "--metrics", "127.0.0.1:0"];
    let recv = ["recv", inbox.to_str().unwrap(), "--from-anyone"];
    let gateway = ["gateway", "--to", "9", "--allow", &public];
    for (words, sample) in
        [(&recv[..], "remora_recv_files_total{outcome=\"stored\"}"), (&gateway[..], "remora_gateway_mobiles")]
    {
        let daemon = Daemon::start(place.command(&[words, &common].concat()));
        let page = scrape(&daemon, "*/*");
        assert_eq!(value(&page, sample), Some(0.0), "{page}");
        check(&page);
    }
}

#[test]
fn access_log_has_a_line_for_each_answered_call() {
    let place = Place::new();
    fs::write(place.srv("a"), "x").unwrap();
    let log = place.here("access.log");
    let server = place.serve(&["--access-log", log.to_str().unwrap(), "--log-format", "json"]);
    place.ok(&["cat", &server.url("/a")]);
    let (code, _) = server.interrupt("INT");
    assert_eq!(code, 0);
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |procedure: &str| lines.iter().find(|line| line["procedure"] == procedure).unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&of("LOOKUP")["name"], &of("LOOKUP")["status"]), (&"a".into(), &"OK".into()), "{text}");
    assert!(of("READ")["us"].is_u64() && of("READ")["export"].is_string() && of("MNT")["name"].is_string(), "{text}");
}

#[test]
fn metrics_port_that_is_taken_ends_the_start() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let srv = place.srv("");
    let out = place.run(&["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--metrics", &at]);
    out.expect(1, &[&at, "--metrics"]);
}
