//! `remora send` to a receiver whose places for unfinished files are taken.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::common::receiver::Receiver;
use crate::common::{Place, Running, noise, until};
use remora_atp::session::{Config, Guests};
use remora_atp::{Options, Outcome};
use remora_host::atp::blocking::BlockingEndpoint;
use remora_host::atp::{EndpointSettings, keys};
use serde_json::Value;

#[test]
fn file_waits_for_a_place_and_is_sent_then() {
    let to = Receiver::start(&["--from-anyone"]);
    let key = to.place.state().join("send.key");
    let settings = EndpointSettings { received_max: 16, received_bytes_max: 1 << 20, ..EndpointSettings::sender() };
    let from = BlockingEndpoint::bind(settings, keys::load_or_create(&key).unwrap()).unwrap();
    let patience = Duration::from_secs(20);
    let peer = from.connect(to.daemon.addr, to.key.parse().unwrap(), patience).unwrap().unwrap();
    let hash = blake3::hash(b"abc").to_hex();
    let say = |n: usize, rest: &str| {
        let object = format!("{{\"remora\":1,\"file\":{n},\"name\":\"f{n}\",\"size\":3,\"hash\":\"{hash}\"{rest}");
        assert_eq!(from.send(&peer, object.into(), Options::default()).unwrap().outcome, Outcome::Delivered);
        let answer = from.recv(Some(patience)).unwrap().unwrap().object;
        serde_json::from_slice::<Value>(&answer).unwrap()["verdict"].clone()
    };
    // All places that a key has.
    (0..32).for_each(|n| assert_eq!(say(n, "}\n"), "missing"));
    assert_eq!(say(32, "}\n"), "waits");
    to.file("big", &noise(100_000, 6));
    to.file("small", b"what is whole needs none");
    to.sent(&["small"], &[]).expect(0, &[]);
    let said = to.place.here("said");
    let addr = to.daemon.addr.to_string();
    let mut sending = to.place.command(&["send", "big", &addr, "--key", &to.key, "--identity", key.to_str().unwrap()]);
    sending.stderr(fs::File::create(&said).unwrap());
    let sending = Running::start(sending);
    until("a word about that", || fs::read_to_string(&said).unwrap().contains("unfinished files; waiting"));
    // One place is for the question that waited first.
    for n in 0..2 {
        say(n, ",\"at\":0}\nabc");
    }
    sending.finish().expect(0, &[]);
    assert_eq!(to.arrived("big"), noise(100_000, 6));
}

#[test]
fn wait_for_a_place_after_the_file_ends_at_the_deadline() {
    let place = Place::new();
    let session = Config { guests: Guests::Anyone, ..Config::default() };
    let settings = EndpointSettings { session, ..EndpointSettings::receiver("127.0.0.1:0".parse().unwrap()) };
    let receiver = BlockingEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let (addr, key) = (receiver.endpoint().local_addr().to_string(), receiver.endpoint().public_key().to_string());
    fs::write(place.here("small"), "abc").unwrap();
    let identity = place.state().join("send.key");
    let to = ["send", "small", &addr, "--key", &key, "--identity", identity.to_str().unwrap()];
    let sending = place.start(&[&to[..], &["--deadline", "3s"]].concat());
    let received = receiver.recv(Some(Duration::from_secs(20))).unwrap().unwrap();
    // The sender knows by now that all of the file has arrived.
    std::thread::sleep(Duration::from_millis(500));
    let answer = r#"{"remora":1,"file":0,"verdict":"waits"}"#.to_owned() + "\n";
    receiver.send(&received.from, answer.into(), Options::default()).unwrap();
    sending.finish().expect(5, &[]);
}

/// A receiver gives the place of a file that was silent to another, and takes it anew.
#[test]
fn file_that_lost_its_place_is_sent_anew() {
    let place = Place::new();
    let session = Config { guests: Guests::Anyone, ..Config::default() };
    let settings = EndpointSettings { session, ..EndpointSettings::receiver("127.0.0.1:0".parse().unwrap()) };
    let receiver = BlockingEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let (addr, key) = (receiver.endpoint().local_addr().to_string(), receiver.endpoint().public_key().to_string());
    let whole = noise(300_000, 8);
    fs::write(place.here("big"), &whole).unwrap();
    let identity = place.state().join("send.key");
    let args = ["send", "big", &addr, "--key", &key, "--identity", identity.to_str().unwrap(), "--part", "64K"];
    let sending = place.start(&args);
    let (mut got, mut parts, mut covered) = (vec![0; whole.len()], 0, BTreeSet::new());
    let all = r#""missing","missing":[[0,300000]]"#;
    while covered.len() < 5 {
        let received = receiver.recv(Some(Duration::from_secs(20))).unwrap().unwrap();
        let end = received.object.iter().position(|b| *b == b'\n').unwrap();
        let head: Value = serde_json::from_slice(&received.object[..end]).unwrap();
        let verdicts = match head["at"].as_u64() {
            None => vec![all],
            // The first one comes when the file is forgotten; some that were on their way follow.
            Some(_) if parts == 0 => vec![r#""waits""#, all],
            Some(at) => {
                let (at, data) = (at as usize, &received.object[end + 1..]);
                got[at..at + data.len()].copy_from_slice(data);
                covered.insert(at);
                if covered.len() == 5 { vec![r#""stored""#] } else { Vec::new() }
            }
        };
        parts += usize::from(head["at"].is_u64());
        for verdict in verdicts {
            let answer = format!("{{\"remora\":1,\"file\":{},\"verdict\":{verdict}}}\n", head["file"]);
            receiver.send(&received.from, answer.into(), Options::default()).unwrap();
        }
    }
    sending.finish().expect(0, &[]);
    assert!(got == whole && parts > 5);
}
