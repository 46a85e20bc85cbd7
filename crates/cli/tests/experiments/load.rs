//! `remora load` on loopback: figures of both ends, signals, and what it refuses.

use std::time::Duration;

use crate::common::{Place, Running, until};
use serde_json::Value;

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A receiver, and where it counts.
fn receiver(p: &Place) -> (Running, String) {
    // A port that was free a moment ago.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    drop(socket);
    let recv = p.start(&["load", "recv", "--listen", &at.to_string(), "--json"]);
    // What is sent before is lost.
    let port = format!(":{:04X} ", at.port());
    until("the receiver's socket", || std::fs::read_to_string("/proc/net/udp").unwrap().contains(&port));
    (recv, at.to_string())
}

#[test]
fn both_ends_count_the_same() {
    let p = Place::new();
    let (recv, at) = receiver(&p);
    let send = ["load", "send", &at, "--rate", "40% of 10Mbit", "--for", "1s", "--run", "7", "--json"];
    let out = p.run(&send);
    assert_eq!(out.code, 0, "{out:?}");
    let sent = objects(&out.stdout).remove(0);
    let rate = sent["offered_bits_per_s"].as_f64().unwrap();
    assert!((rate / 4e6 - 1.0).abs() < 0.02, "{sent}");
    assert_eq!((&sent["carried"]["lost"], &sent["packet_bytes"]), (&0.into(), &1028.into()), "{sent}");
    assert_eq!(sent["carried"]["packets"], sent["sent"], "{sent}");
    recv.signal("INT");
    let out = recv.finish();
    assert_eq!(out.code, 130, "{out:?}");
    let counted = objects(&out.stdout).pop().unwrap();
    assert_eq!((&counted["run"], &counted["packets"]), (&"7".into(), &sent["sent"]), "{counted}");
}

#[test]
fn an_interrupted_sender_shows_its_figures() {
    let p = Place::new();
    let (recv, _) = receiver(&p);
    // Nobody who counts, but one who sees that something was sent.
    let seen = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    seen.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let at = seen.local_addr().unwrap().to_string();
    let send = p.start(&["load", "send", &at, "--rate", "1Mbit", "--for", "1h", "--json"]);
    // Before its handler is there SIGINT ends it without figures; before its first packet these are zeros.
    send.until_it_catches_ctrl_c();
    seen.recv(&mut [0; 2048]).unwrap();
    send.signal("INT");
    let out = send.finish();
    assert_eq!(out.code, 130, "{out:?}");
    assert!(objects(&out.stdout)[0]["sent"].as_u64().is_some_and(|n| n > 0), "{out:?}");
    // The same handlers: that for SIGTERM comes right after that for SIGINT.
    recv.until_it_catches_ctrl_c();
    recv.signal("TERM");
    assert_eq!(recv.finish().code, 143);
}

/// A sender that stands still for a time, as on a machine that sleeps, does not make up for it, and says so.
#[test]
fn packets_due_during_sigstop_are_skipped() {
    let p = Place::new();
    let seen = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    seen.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let at = seen.local_addr().unwrap().to_string();
    let send = p.start(&["load", "send", &at, "--rate", "1Mbit", "--for", "4s", "--json"]);
    seen.recv(&mut [0; 2048]).unwrap();
    send.signal("STOP");
    std::thread::sleep(Duration::from_millis(1500));
    send.signal("CONT");
    // Nobody counts, and that is to be known soon.
    drop(seen);
    let sent = objects(&send.finish().stdout).remove(0);
    // A packet in 8.2 ms: of 1.5 s all but the last half second's.
    let skipped = sent["skipped"].as_u64().unwrap();
    assert!(skipped >= 100, "{sent}");
    let due = sent["offered_bits_per_s"].as_f64().unwrap() / sent["sent_bits_per_s"].as_f64().unwrap();
    assert!(due > 1.2, "the rate sent is the less for it: {sent}");
    assert!(sent["late_ms_max"].as_f64().is_some_and(|late| late <= 500.0), "{sent}");
}

#[test]
fn invalid_or_harmful_load_is_refused() {
    let p = Place::new();
    for (words, code, piece) in [
        (&["load", "send", "192.0.2.1:9", "--rate", "1Mbit"][..], 2, "--beyond-loopback"),
        (
            &["load", "send", "255.255.255.255:9", "--rate", "1Mbit", "--beyond-loopback"],
            2,
            "not the address of a single host",
        ),
        (&["load", "send", "127.0.0.1:9", "--rate", "1Mbit", "--size", "8"], 2, "packets of 8 bytes"),
        (&["load", "send", "127.0.0.1:9", "--rate", "1Mbit", "--for", "9999h"], 2, "no longer than"),
        (&["load", "send", "127.0.0.1:9", "--rate", "much"], 2, "not a rate"),
        (&["load", "send", "nohost.invalid:1", "--rate", "1Mbit"], 3, "cannot find the address of nohost.invalid"),
        (&["load", "send", "127.0.0.1", "--rate", "1Mbit"], 2, "HOST:PORT"),
        (&["load", "send", "127.0.0.1:9", "--rate", "1Mbit", "--for", "100ms"], 3, "no answer"),
    ] {
        let out = p.run(words);
        assert_eq!(out.code, code, "{words:?}: {out:?}");
        assert!(out.stderr.contains(piece), "{words:?}: {out:?}");
    }
}
