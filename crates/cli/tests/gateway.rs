//! `remora gateway` and `remora forward` as they are run: what they print, their exit codes, and files
//! through a gateway to a server that knows nothing of ATP.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{Daemon, Place, Running, noise, until};
use remora_host::atp::keys;

/// A mobile's key and a gateway's, in files.
struct Keys {
    mobile: (String, String),
    gateway: (String, String),
}

impl Keys {
    fn new(place: &Place) -> Keys {
        let make = |name: &str| {
            let file = place.state().join(name);
            let public = keys::load_or_create(&file).unwrap().public().to_string();
            (file.to_str().unwrap().to_owned(), public)
        };
        Keys { mobile: make("mobile.key"), gateway: make("gateway.key") }
    }
}

fn gateway(place: &Place, keys: &Keys, args: &[&str]) -> Daemon {
    let base = ["gateway", "--listen", "127.0.0.1:0", "--allow", &keys.mobile.1, "--key", &keys.gateway.0, "--json"];
    Daemon::start(place.command(&[&base[..], args].concat()))
}

/// Sends back what it gets, once it has all of it.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let (mut tcp, mut got) = (tcp.unwrap(), Vec::new());
            if tcp.read_to_end(&mut got).is_ok() {
                tcp.write_all(&got).unwrap();
            }
        }
    });
    at
}

fn exchange(at: SocketAddr, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(at)?;
    tcp.set_read_timeout(Some(Duration::from_secs(20)))?;
    tcp.write_all(sent)?;
    tcp.shutdown(Shutdown::Write)?;
    let mut got = Vec::new();
    tcp.read_to_end(&mut got)?;
    Ok(got)
}

#[test]
fn forwarded_ports_reach_targets_and_both_ends_count() {
    let place = Place::new();
    let keys = Keys::new(&place);
    let (to, unlisted) = (echo().to_string(), echo().to_string());
    let gateway = gateway(&place, &keys, &["--to", &to]);
    let at = format!("atp://{}", gateway.addr);
    let forward = place.command(&[
        "forward",
        &at,
        "--key",
        &keys.gateway.1,
        "--identity",
        &keys.mobile.0,
        "--json",
        "--listen",
        "0",
        "--to",
        &to,
        "--listen",
        "0",
        "--to",
        &unlisted,
        "--priority",
        "high",
        "--priority",
        "low",
    ]);
    let mut forward = Daemon::start(forward);
    let data = noise(500_000, 3);
    assert!(exchange(forward.addr, &data).unwrap() == data);
    // A line a second is enough to see it.
    let carried = loop {
        let object = forward.next_object();
        if object["done"] == 1 {
            break object;
        }
    };
    assert_eq!((&carried["sent_bytes"], &carried["received_bytes"]), (&500_000.into(), &500_000.into()));
    let (code, rest) = gateway.interrupt("INT");
    assert_eq!(code, 0);
    let last: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["received_bytes"]), (&1.into(), &500_000.into()));
    loop {
        let object = forward.next_object();
        if object["event"] == "down" {
            assert!(object["why"].is_string() && object["connections"] == 0, "{object}");
            break;
        }
    }
    assert_eq!(forward.interrupt("TERM").0, 0);
}

/// Sends without end, or takes what comes; how that ended.
fn one_way(mut tcp: TcpStream, sends: bool) -> std::io::Result<u64> {
    if sends {
        loop {
            tcp.write_all(&[7; 10_000])?;
        }
    }
    std::io::copy(&mut tcp, &mut std::io::sink())
}

#[test]
fn killed_gateway_resets_its_connections() {
    for victim in ["forward", "gateway"] {
        let place = Place::new();
        let keys = Keys::new(&place);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let gateway = gateway(&place, &keys, &["--to", &to.to_string()]);
        let at = format!("atp://{}", gateway.addr);
        let ends = ["--key", &keys.gateway.1, "--identity", &keys.mobile.0, "--json"];
        let ports = ["--listen", "0", "--to", &to.to_string()];
        let forward = Daemon::start(place.command(&[&["forward", &at], &ends[..], &ports[..]].concat()));
        let here = TcpStream::connect(forward.addr).unwrap();
        let (there, _) = listener.accept().unwrap();
        // Who is connected to the one that is killed sends nothing: bytes that nobody has read would
        // have the kernel reset the connection.
        let (killed, other, taker, sender) = match victim {
            "forward" => (forward, gateway, here, there),
            _ => (gateway, forward, there, here),
        };
        std::thread::spawn(move || one_way(sender, true));
        let taken = std::thread::spawn(move || one_way(taker, false));
        std::thread::sleep(Duration::from_secs(1));
        killed.kill();
        let end = taken.join().unwrap();
        assert!(end.is_err(), "{victim}: an end in good order after {end:?} bytes");
        other.kill();
    }
}

#[test]
fn impossible_forwards_have_their_exit_codes() {
    let place = Place::new();
    let keys = Keys::new(&place);
    let to = echo().to_string();
    let gateway = gateway(&place, &keys, &["--to", &to]);
    let at = gateway.addr.to_string();
    let forward = |at: &str, key: &str, own: &str, args: &[&str]| {
        let base = ["forward", at, "--key", key, "--identity", own];
        place.run(&[&base[..], args].concat())
    };
    let route = ["--listen", "0", "--to", &to];
    let (mine, its) = (&keys.mobile, &keys.gateway);
    let stranger = place.state().join("stranger.key");
    forward(&at, &mine.1, &mine.0, &route).expect(1, &["another key"]);
    forward(&at, &its.1, stranger.to_str().unwrap(), &route).expect(1, &["does not admit this key", "--allow "]);
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = mute.local_addr().unwrap().to_string();
    let soon = [&route[..], &["--timeout", "0.5"]].concat();
    forward(&nobody, &its.1, &mine.0, &soon).expect(3, &["no answer for 0.5 s", "hint:"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    forward(&at, &its.1, &mine.0, &["--listen", &taken, "--to", &to])
        .expect(1, &[&taken, "is taken by another server"]);
    forward(&at, &its.1, &mine.0, &["--listen", "0", "--listen", "0", "--to", &to])
        .expect(2, &["2 --listen and 1 --to"]);
    forward(&at, &its.1, &mine.0, &["--listen", "0", "--to", "nowhere"]).expect(2, &["HOST:PORT"]);
    forward("nohost.invalid:4", &its.1, &mine.0, &["--listen", "0", "--to", &to])
        .expect(3, &["cannot find the address of nohost.invalid"]);
    place.run(&["gateway", "--to", &to]).expect(2, &["--allow"]);
    let alone = ["gateway", "--listen", "192.0.2.55:1", "--allow", &mine.1, "--to", &to, "--mount-port", "3"];
    place.run(&alone).expect(2, &["--mount-port", "cannot be used with", "--to"]);
    place.run(&["gateway", "--allow", &mine.1]).expect(2, &["--to"]);
    place.run(&["gateway", "--allow", &mine.1, "--to", &to, "--nfs", "nas"]).expect(2, &["cannot be used with"]);
}

#[test]
fn forward_to_a_full_gateway_ends_with_a_hint() {
    let place = Place::new();
    let keys = Keys::new(&place);
    let second = place.state().join("second.key");
    let its = keys::load_or_create(&second).unwrap().public().to_string();
    let to = echo().to_string();
    let gateway = gateway(&place, &keys, &["--to", &to, "--allow", &its, "--mobiles", "1"]);
    let at = gateway.addr.to_string();
    let forward = |own: &str| {
        let args = ["forward", &at, "--key", &keys.gateway.1, "--identity", own, "--listen", "0", "--to", &to];
        place.command(&[&args[..], &["--timeout", "5", "--json"]].concat())
    };
    let first = Daemon::start(forward(&keys.mobile.0));
    let refused = Running::start(forward(second.to_str().unwrap())).finish();
    refused.expect(3, &["takes no more connections", "maximum number of mobiles"]);
    assert_eq!(exchange(first.addr, b"still there").unwrap(), b"still there");
}

/// The first address is nobody's.
#[test]
fn a_gateway_of_two_addresses_is_found_at_either() {
    if !common::is_root() {
        return skip::skipped("a_gateway_of_two_addresses_is_found_at_either", "needs root");
    }
    let place = Place::new();
    let keys = Keys::new(&place);
    let to = echo().to_string();
    let gateway = gateway(&place, &keys, &["--to", &to]);
    let (at, mine) = (format!("both:{}", gateway.port()), &keys.mobile.0);
    let args = ["--key", &keys.gateway.1, "--identity", mine, "--json", "--listen", "0", "--to", &to];
    let forward = place.command(&[&["forward", &at][..], &args].concat());
    let forward = Daemon::start(place.with_hosts("::1 both\n127.0.0.1 both\n", &forward));
    assert_eq!(exchange(forward.addr, b"hello").unwrap(), b"hello");
}

#[test]
fn gateway_carries_files_of_a_plain_nfs_server() {
    let place = Place::new();
    let keys = Keys::new(&place);
    let server = place.serve(&[]);
    let (nfs, port) = (server.addr.to_string(), server.port().to_string());
    let gateway = gateway(&place, &keys, &["--nfs", &nfs, "--mount-port", &port]);
    let url = |name: &str| {
        format!("nfs://{}/{name}?proto=atp&key={}&identity={}", gateway.addr, keys.gateway.1, keys.mobile.0)
    };
    let data = noise(3_000_000, 5);
    fs::write(place.here("there"), &data).unwrap();
    place.ok(&["cp", "-q", "there", &url("there")]);
    assert!(fs::read(place.srv("there")).unwrap() == data);
    place.ok(&["cp", "-q", "--verify", &url("there"), "back"]);
    assert!(fs::read(place.here("back")).unwrap() == data);
    let (code, rest) = gateway.interrupt("INT");
    let last: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert!(code == 0 && last["calls"].as_u64() > Some(20), "{rest}");
}

#[test]
fn ended_commands_close_their_gateway_sessions() {
    const COMMANDS: usize = 40;
    let place = Place::new();
    let keys = Keys::new(&place);
    let server = place.serve(&[]);
    let (nfs, port) = (server.addr.to_string(), server.port().to_string());
    let mut gateway = gateway(&place, &keys, &["--nfs", &nfs, "--mount-port", &port]);
    let at = format!("nfs://{}", gateway.addr);
    let key = format!("?proto=atp&key={}&identity={}", keys.gateway.1, keys.mobile.0);
    for _ in 1..COMMANDS {
        place.ok(&["ls", &format!("{at}/{key}")]);
    }
    place.run(&["ls", &format!("{at}/missing{key}")]).expect(1, &["no such file"]);
    let mut left = 0;
    until("all to have left", || {
        left += usize::from(gateway.next_object()["event"] == "left");
        left == COMMANDS
    });
}

#[test]
fn mobile_continues_after_an_outage() {
    let place = Place::new();
    let keys = Keys::new(&place);
    let to = echo().to_string();
    let gateway = gateway(&place, &keys, &["--to", &to]);
    let slow = place.relay_at(0, &gateway, &["--rate", "8Mbit"]);
    let at = slow.addr.to_string();
    let base = ["forward", &at, "--key", &keys.gateway.1, "--identity", &keys.mobile.0];
    let mut forward = Daemon::start(place.command(&[&base[..], &["--json", "--listen", "0", "--to", &to]].concat()));
    let port = forward.addr;
    let data = noise(2_000_000, 9);
    let sent = data.clone();
    let exchanging = std::thread::spawn(move || exchange(port, &sent));
    until("a part of it", || forward.next_object()["sent_bytes"].as_u64() > Some(0));
    slow.signal("STOP");
    std::thread::sleep(Duration::from_millis(2500));
    slow.signal("CONT");
    assert!(exchanging.join().unwrap().unwrap() == data);
}
