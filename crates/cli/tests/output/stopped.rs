//! Commands that are stopped (SIGSTOP, as Ctrl-Z, a frozen control group or a paused machine does it) for longer than
//! they wait for a peer: the time in which a command does not run is no silence of its peer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Duration;

use crate::common::{Daemon, Place, noise, until};
use remora_host::atp::keys;
use rustix::process::{Pid, Signal, kill_process};

/// What commands wait for a peer that says nothing,
const TIMEOUT: &str = "3s";
/// and how long both are stopped.
const STOPPED: Duration = Duration::from_secs(4);
/// How long a command runs again before its peer does. Any longer than [`TIMEOUT`] would be too long.
const ALONE: Duration = Duration::from_millis(300);

/// Stops a peer, and then `command`, in the middle of what it does; then both go on.
fn stop_both(peer: &Daemon, command: i32) {
    let command = Pid::from_raw(command).unwrap();
    peer.signal("STOP");
    kill_process(command, Signal::STOP).unwrap();
    thread::sleep(STOPPED);
    kill_process(command, Signal::CONT).unwrap();
    thread::sleep(ALONE);
    peer.signal("CONT");
}

/// A server over all transports, and the URL of `/f` over each.
fn server(p: &Place) -> (Daemon, [String; 3]) {
    let server = p.serve(&["--atp", "127.0.0.1:0"]);
    let atp = |name: &str| server.ready["atp"][name].as_str().unwrap().to_owned();
    let over_atp = format!("nfs://{}/f?proto=atp&key={}", atp("listen"), atp("key"));
    let urls = [server.url("/f?proto=udp"), server.url("/f?proto=tcp"), over_atp];
    (server, urls)
}

/// Does `test` over each transport, side by side.
fn over_each(test: impl Fn(&Place, &Daemon, &str) + Sync) {
    thread::scope(|s| {
        for nth in 0..3 {
            let test = &test;
            s.spawn(move || {
                let p = Place::new();
                let (server, urls) = server(&p);
                test(&p, &server, &urls[nth]);
            });
        }
    });
}

#[test]
fn copy_stopped_longer_than_its_timeout_goes_on() {
    over_each(|p, server, url| {
        let data = noise(2 << 20, 3);
        fs::write(p.here("f"), &data).unwrap();
        let copying = p.start(&["cp", "-q", "--timeout", TIMEOUT, "--block", "1K", "--bwlimit", "400K", "f", url]);
        until("a part of it", || fs::read_dir(p.srv("")).unwrap().next().is_some());
        stop_both(server, copying.pid());
        copying.finish().expect(0, &[]);
        assert!(fs::read(p.srv("f")).unwrap() == data, "{url}");
    });
}

#[test]
fn first_contact_stopped_longer_than_its_timeout_goes_on() {
    over_each(|p, server, url| {
        fs::write(p.srv("f"), "x").unwrap();
        server.signal("STOP");
        let asking = p.start(&["cat", "--timeout", TIMEOUT, url]);
        asking.until_it_catches_ctrl_c();
        thread::sleep(ALONE);
        stop_both(server, asking.pid());
        let out = asking.finish();
        assert_eq!((out.code, out.stdout.as_str()), (0, "x"), "{url}: {}", out.stderr);
    });
}

/// A receiver into `srv`, its key, and the key of a sender that it lets in.
fn receiver(p: &Place) -> (Daemon, String) {
    let (dir, file) = (p.srv(""), p.state().join("recv.key"));
    let key = keys::load_or_create(&file).unwrap().public().to_string();
    let args = ["recv", dir.to_str().unwrap(), "--listen", "127.0.0.1:0", "--from-anyone", "--json", "--key"];
    let mut command = p.command(&args);
    command.arg(file);
    (Daemon::start(command), key)
}

#[test]
fn sender_stopped_longer_than_its_timeout_goes_on() {
    let p = Place::new();
    let (receiver, key) = receiver(&p);
    fs::write(p.here("f"), "x").unwrap();
    receiver.signal("STOP");
    let (to, identity) = (receiver.addr.to_string(), p.state().join("send.key"));
    let identity = identity.to_str().unwrap();
    let sending = p.start(&["send", "f", &to, "--key", &key, "--identity", identity, "--timeout", TIMEOUT]);
    sending.until_it_catches_ctrl_c();
    thread::sleep(ALONE);
    stop_both(&receiver, sending.pid());
    sending.finish().expect(0, &[]);
    assert_eq!(fs::read(p.srv("f")).unwrap(), b"x");
}

#[test]
fn forward_stopped_longer_than_its_timeout_goes_on() {
    let p = Place::new();
    let key = |name: &str| {
        let file = p.state().join(name);
        let public = keys::load_or_create(&file).unwrap().public().to_string();
        (file.to_str().unwrap().to_owned(), public)
    };
    let (mobile, base) = (key("mobile.key"), key("gateway.key"));
    let to = "127.0.0.1:9";
    let args = ["gateway", "--listen", "127.0.0.1:0", "--allow", &mobile.1, "--key", &base.0, "--json", "--to", to];
    let gateway = Daemon::start(p.command(&args));
    gateway.signal("STOP");
    let at = gateway.addr.to_string();
    let args = ["forward", &at, "--key", &base.1, "--identity", &mobile.0, "--listen", "0", "--to", to, "--json"];
    let mut forward = p.command(&[&args[..], &["--timeout", TIMEOUT]].concat()).spawn().unwrap();
    thread::sleep(ALONE);
    stop_both(&gateway, Pid::from_child(&forward).as_raw_nonzero().get());
    // It says where it listens once the gateway has answered.
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    forward.kill().unwrap();
    forward.wait().unwrap();
    assert!(line.contains("listen"), "{line}");
}
