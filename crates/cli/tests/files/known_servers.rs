//! Servers that are known from before, far away: a round trip less, and never the wrong place.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Daemon, Place, names};
use serde_json::{Value, json};

/// One way to the server.
const AWAY: Duration = Duration::from_millis(300);

/// A server with two directories, `/a` and `/b`, in each of which is a file `x`.
struct Far {
    place: Place,
    _server: Daemon,
    relay: Daemon,
}

impl Far {
    fn new() -> Far {
        let place = Place::new();
        for dir in ["a", "b"] {
            fs::create_dir(place.srv(dir)).unwrap();
            fs::write(place.srv(dir).join("x"), format!("in {dir}")).unwrap();
        }
        let server = place.serve(&[]);
        let away = format!("{}ms", AWAY.as_millis());
        let link = ["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", &away];
        let relay = place.relay_at(0, &server, &link);
        Far { place, _server: server, relay }
    }

    fn url(&self, path: &str) -> String {
        self.relay.url(path)
    }

    fn file(&self) -> PathBuf {
        self.place.state().join("remora/roots")
    }

    fn roots(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap()
    }

    fn set_roots(&self, roots: &Value) {
        fs::write(self.file(), serde_json::to_vec(roots).unwrap()).unwrap();
    }

    /// By what the root of `/a` or `/b` is found.
    fn key(&self, path: &str) -> String {
        let roots = self.roots();
        let mut keys = roots.as_object().unwrap().keys().filter(|key| key.ends_with(&format!(" {path}")));
        keys.next().unwrap_or_else(|| panic!("{path} in {roots}")).clone()
    }

    /// How long a command takes that must succeed.
    fn time(&self, args: &[&str]) -> Duration {
        let began = Instant::now();
        self.place.ok(args);
        began.elapsed()
    }

    /// Copies a file to `/a` and one from it, and looks where they are.
    fn copy_both_ways(&self, what: &str) {
        fs::write(self.place.here("new"), what).unwrap();
        self.place.ok(&["cp", "new", &self.url("/a/new")]);
        self.place.ok(&["cp", &self.url("/a/x"), "got"]);
        assert_eq!(fs::read_to_string(self.place.srv("a/new")).unwrap(), what);
        assert_eq!(fs::read_to_string(self.place.here("got")).unwrap(), "in a", "{what}");
        assert_eq!(names(&self.place.srv("a")), ["new", "x"], "{what}");
        assert_eq!(names(&self.place.srv("b")), ["x"], "{what}");
        fs::remove_file(self.place.srv("a/new")).unwrap();
    }
}

#[test]
fn the_second_visit_takes_a_round_trip_less() {
    let far = Far::new();
    fs::write(far.place.here("new"), "new").unwrap();
    let down = |n: u32| far.time(&["cp", &far.url("/a/x"), &n.to_string()]);
    let up = |n: u32| far.time(&["cp", "new", &far.url(&format!("/a/{n}"))]);
    for visit in [&down as &dyn Fn(u32) -> Duration, &up] {
        // A busy machine makes a visit longer, never shorter.
        let first = (0..2).map(|n| {
            let _ = fs::remove_file(far.file());
            visit(n)
        });
        let (first, later) = (first.min().unwrap(), (2..6).map(visit).min().unwrap());
        assert!(later + AWAY < first, "{first:?}, then {later:?}");
    }
}

#[test]
fn stale_server_cache_is_harmless() {
    let far = Far::new();
    for path in ["/a", "/b"] {
        far.place.ok(&["ls", &far.url(path)]);
    }
    let (right, a, b) = (far.roots(), far.key("/a"), far.key("/b"));
    assert_ne!(right[&a]["known"]["root"], right[&b]["known"]["root"]);
    let other = right[&b]["known"]["root"].clone();
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (what, root, server) in [
        ("nothing has changed", right[&a]["known"]["root"].clone(), right[&a]["known"]["server"].clone()),
        ("another directory", other, right[&a]["known"]["server"].clone()),
        ("a handle that nobody knows", json!([1, 2, 3, 4]), right[&a]["known"]["server"].clone()),
        ("a server that has gone", right[&a]["known"]["root"].clone(), json!(gone)),
    ] {
        let mut roots = right.clone();
        roots[&a]["known"] = json!({ "server": server, "root": root });
        far.set_roots(&roots);
        far.copy_both_ways(what);
        assert_eq!(far.roots()[&a]["known"], right[&a]["known"], "{what}: it is remembered as it is now");
    }
    fs::write(far.file(), "{ torn").unwrap();
    far.copy_both_ways("a file that cannot be read");
}
