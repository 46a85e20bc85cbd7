//! `remora link`, as a program: both ends in network namespaces of their own, joined by veth
//! pairs. As root only; see `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;
mod link_removal;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::trials::{program, trial};
use common::{Place, until};
use libtest_mimic::Arguments;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let programs = &["ip", "unshare", "nsenter", "sleep", "kill", "grep"][..];
    let trial = |name, run| trial(name, programs, true, run, !arguments.list);
    let trials = vec![
        trial("packets_cross_both_ways_small_and_large", packets_cross),
        trial("two_mobiles_share_a_base", two_mobiles_share_a_base),
        trial("either_end_may_be_killed_and_start_again", either_end_may_restart),
        trial("a_mobile_may_change_its_address", a_mobile_may_change_its_address),
        trial("a_base_may_come_up_after_its_mobile", a_base_may_come_up_later),
        trial("nothing_is_left_after_ctrl_c", || nothing_is_left_after("INT", Some(0))),
        trial("nothing_is_left_after_termination", || nothing_is_left_after("TERM", Some(0))),
        trial("no_device_and_no_route_is_left_after_kill_9", || nothing_is_left_after("KILL", None)),
        trial("everything_can_go_through_the_tunnel_but_the_tunnel", everything_through_the_tunnel),
        trial("everything_goes_in_beside_default_routes", everything_goes_in_beside_default_routes),
        trial(
            "a_device_taken_away_is_told_to_the_other_end",
            link_removal::a_device_taken_away_is_told_to_the_other_end,
        ),
        trial(
            "what_an_end_has_acknowledged_reaches_its_programs_though_it_leaves",
            link_removal::what_an_end_has_acknowledged_reaches_its_programs_though_it_leaves,
        ),
        trial("a_link_that_does_not_answer_hides_no_other", a_link_that_does_not_answer_hides_no_other),
        trial("a_device_that_was_down_has_its_routes_again", a_device_that_was_down_has_its_routes_again),
        trial("routes_come_back_though_news_was_missed", routes_come_back_though_news_was_missed),
        trial("a_strangers_key_is_refused", a_stranger_is_refused),
        trial("a_mobile_sends_from_its_own_address_only", a_mobile_sends_from_its_own_address_only),
        trial("a_hand_off_is_announced", a_hand_off_is_announced),
        trial("what_cannot_be_done_is_said", what_cannot_be_done_is_said),
        trial("nobody_need_read_what_an_end_prints", nobody_need_read_what_an_end_prints),
    ];
    // One after the other: they wait for one another's timers otherwise.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// A network namespace, held by a process that sleeps.
struct Net {
    holder: Child,
}

impl Net {
    fn new() -> Net {
        let holder = program("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
        let net = Net { holder };
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        until("the namespace", || fs::read_link(net.path()).is_ok_and(|theirs| theirs != ours));
        net.ip("link set lo up");
        net
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// `command` in this network namespace.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = program("nsenter");
        inside.arg(format!("--net={}", self.path().display())).arg("--").arg(command.get_program());
        inside.args(command.get_args());
        command.get_envs().for_each(|(k, v)| {
            v.map(|v| inside.env(k, v));
        });
        inside
    }

    /// Runs `ip` inside; returns what it prints.
    fn ip(&self, args: &str) -> String {
        let mut command = program("ip");
        command.args(args.split(' '));
        let out = self.inside(&command).output().unwrap();
        assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Which interfaces packets are passed on from, and what else hangs on the switch for that.
    fn forwards(&self) -> String {
        let mut command = program("grep");
        command.args(["-r", "--include=*forwarding", "--include=accept_redirects", "", "/proc/sys/net/ipv4/conf"]);
        command.arg("/proc/sys/net/ipv6/conf");
        let text = String::from_utf8(self.inside(&command).output().unwrap().stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// Does something on a thread inside; sockets made there stay there.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(self.path()).unwrap();
        std::thread::scope(|s| {
            let inside = s.spawn(move || {
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    fn socket(&self, at: &str) -> UdpSocket {
        self.within(|| UdpSocket::bind(at).unwrap())
    }

    /// The names of devices, and the routes of all tables. What the kernel adds to IPv6's by
    /// and by is left out unless it is a tunnel's.
    fn state(&self) -> String {
        let names = self.ip("-br link");
        let names = names.lines().filter_map(|l| l.split_whitespace().next()).map(str::to_owned);
        let v4 = self.ip("-4 route show table all").replace(" linkdown", "");
        let v6 = self.ip("-6 route show table all");
        let v6 = v6.lines().filter(|l| l.contains("rlink0"));
        names.chain(v4.lines().chain(v6).map(str::to_owned)).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A base and its mobiles, each in a namespace, on wires of their own: mobile i is 10.99.i.2,
/// the base 10.99.i.1 there.
struct World {
    place: Place,
    base: Net,
    mobiles: Vec<Net>,
    keys: Vec<String>,
}

impl World {
    fn new(mobiles: usize) -> World {
        let place = Place::new();
        let base = Net::new();
        let mobiles: Vec<Net> = (0..mobiles).map(|_| Net::new()).collect();
        for (i, m) in mobiles.iter().enumerate() {
            base.ip(&format!("link add wire{i} type veth peer name wire netns {}", m.holder.id()));
            base.ip(&format!("addr add 10.99.{i}.1/24 dev wire{i}"));
            base.ip(&format!("link set wire{i} up"));
            m.ip(&format!("addr add 10.99.{i}.2/24 dev wire"));
            m.ip("link set wire up");
        }
        let keys = (0..=mobiles.len()).map(|i| key(&place, &format!("{i}.key"))).collect();
        World { place, base, mobiles, keys }
    }

    /// The base, which knows mobile i (from 0) as 10.78.0.(i + 2).
    fn start_base(&self, args: &[&str]) -> End {
        let known = self.keys.iter().enumerate().skip(1).map(|(i, k)| format!("{k}=10.78.0.{}", i + 1));
        let known: Vec<String> = known.flat_map(|k| ["--mobile".to_owned(), k]).collect();
        let mut all = vec!["link", "base", "--key", "0.key", "--address", "10.78.0.1/24", "--json"];
        all.extend(known.iter().map(String::as_str));
        End::start(&self.base, &self.place.command(&[&all, args].concat()))
    }

    fn start_mobile(&self, i: usize, args: &[&str]) -> End {
        let (key, address) = (format!("{}.key", i + 1), format!("10.78.0.{}/24", i + 2));
        let base = format!("10.99.{i}.1:51900");
        let all = ["link", "mobile", "--key", &key, "--address", &address, "--base", &base, "--json"];
        let all = [&all[..], &["--base-key", &self.keys[0], "--keepalive", "1s"], args].concat();
        End::start(&self.mobiles[i], &self.place.command(&all))
    }

    /// Whether a datagram from mobile `i` is answered by the base within `time`.
    fn answers(&self, i: usize, bytes: usize, time: Duration) -> bool {
        let echo = self.base.socket("0.0.0.0:7");
        let from = self.mobiles[i].socket("0.0.0.0:0");
        let to: SocketAddr = "10.78.0.1:7".parse().unwrap();
        [&echo, &from].iter().for_each(|s| s.set_read_timeout(Some(Duration::from_millis(100))).unwrap());
        let (sent, began) = (common::noise(bytes, 7), Instant::now());
        let mut buffer = vec![0; 65_536];
        while began.elapsed() < time {
            // There may be no device yet, or no more.
            let _ = from.send_to(&sent, to);
            if let Ok((n, back)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..n], back);
            }
            if from.recv_from(&mut buffer).is_ok_and(|(n, _)| buffer[..n] == sent) {
                return true;
            }
        }
        false
    }
}

const SOON: Duration = Duration::from_secs(10);

fn key(place: &Place, name: &str) -> String {
    let public = place.ok(&["link", "keys", "--key", name]);
    assert_eq!(public, place.ok(&["link", "keys", "--key", name]), "made once");
    public.trim().to_owned()
}

/// An end that runs; what it prints is kept.
struct End {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl End {
    fn start(net: &Net, command: &Command) -> End {
        let mut inside = net.inside(command);
        inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        inside.current_dir(command.get_current_dir().unwrap());
        let mut child = inside.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let end = End { child, lines };
        until("the link to be ready", || !end.lines.lock().unwrap().is_empty());
        end
    }

    fn said(&self, text: &str) -> bool {
        self.times_said(text) > 0
    }

    fn times_said(&self, text: &str) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|l| l["notice"].as_str().is_some_and(|n| n.contains(text))).count()
    }

    #[track_caller]
    fn says(&self, text: &str) {
        until(text, || self.said(text));
    }

    /// The newest figures.
    fn figures(&self) -> Option<Value> {
        self.lines.lock().unwrap().iter().rev().find(|l| l["peers"].is_array()).cloned()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal and waits for the end; its exit code, if it has one.
    fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn packets_cross() {
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&[]), w.start_mobile(0, &["--rate", "10Mbit"]));
    mobile.says("the base is up");
    base.says("10.78.0.2 is up, at 10.99.0.2:");
    assert!(w.answers(0, 100, SOON), "a small datagram");
    assert!(w.answers(0, 20_000, SOON), "one in fragments");
    until("figures", || mobile.figures().is_some_and(|f| f["peers"][0]["delivered"].as_u64() >= Some(6)));
    let status = w.place.ok(&["link", "status", "--device", "rlink0", "--json"]);
    let roles: Vec<Value> = status.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["role"].clone()).collect();
    assert!(roles.contains(&"base".into()) && roles.contains(&"mobile".into()), "{roles:?}");
    assert!(w.place.ok(&["link", "status"]).contains("the base at 10.99.0.1:51900: "));
}

fn two_mobiles_share_a_base() {
    let w = World::new(2);
    let base = w.start_base(&["--forward"]);
    let mobiles = [w.start_mobile(0, &[]), w.start_mobile(1, &[])];
    assert!(w.answers(0, 100, SOON) && w.answers(1, 100, SOON));
    // One with the other, over the base.
    let (a, b) = (w.mobiles[0].socket("10.78.0.2:7"), w.mobiles[1].socket("10.78.0.3:7"));
    b.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 9];
    until("a datagram from mobile to mobile", || {
        a.send_to(b"neighbour", "10.78.0.3:7").unwrap();
        b.recv_from(&mut buffer).is_ok()
    });
    assert_eq!(&buffer, b"neighbour");
    drop((base, mobiles));
}

fn either_end_may_restart() {
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&[]), w.start_mobile(0, &[]));
    assert!(w.answers(0, 100, SOON));
    base.end("KILL");
    let base = w.start_base(&[]);
    assert!(w.answers(0, 100, SOON), "after the base was killed");
    assert_eq!(base.end("INT"), Some(0));
    mobile.says("the base has left");
    let _base = w.start_base(&[]);
    assert!(w.answers(0, 100, SOON), "after the base left");
    mobile.end("KILL");
    let _mobile = w.start_mobile(0, &[]);
    assert!(w.answers(0, 100, SOON), "after the mobile was killed");
}

fn a_mobile_may_change_its_address() {
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&[]), w.start_mobile(0, &[]));
    assert!(w.answers(0, 100, SOON));
    w.mobiles[0].ip("addr del 10.99.0.2/24 dev wire");
    mobile.says("cannot send at present");
    w.mobiles[0].ip("addr add 10.99.0.77/24 dev wire");
    assert!(w.answers(0, 100, SOON));
    mobile.says("can send again");
    base.says("10.78.0.2 has moved to 10.99.0.77:");
}

fn a_base_may_come_up_later() {
    let w = World::new(1);
    let mobile = w.start_mobile(0, &[]);
    mobile.says("no answer from 10.99.0.1:51900");
    let _base = w.start_base(&[]);
    assert!(w.answers(0, 100, Duration::from_secs(4)));
}

fn nothing_is_left_after(signal: &str, code: Option<i32>) {
    let w = World::new(1);
    let nets = [&w.base, &w.mobiles[0]];
    let (before, forwarded) = (nets.map(|n| n.state()), w.base.forwards());
    let base = w.start_base(&["--forward"]);
    let mobile = w.start_mobile(0, &["--route", "10.0.0.0/8", "--route", "192.168.0.0/16"]);
    assert!(w.answers(0, 100, SOON));
    assert!(w.mobiles[0].state().contains("192.168.0.0/16 dev rlink0"));
    for interface in ["rlink0", "wire0"] {
        let on = format!("ipv4/conf/{interface}/forwarding:1");
        assert!(w.base.forwards().contains(&on), "{}", w.base.forwards());
    }
    let codes = [base.end(signal), mobile.end(signal)];
    assert_eq!(codes, [code; 2]);
    let began = Instant::now();
    while nets.map(|n| n.state()) != before && began.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(nets.map(|n| n.state()), before);
    // The switch is not the device's: it needs somebody to turn it back.
    if signal != "KILL" {
        assert_eq!(w.base.forwards(), forwarded);
    }
}

/// The default route of a family in which the base is not is the machine's already.
fn everything_goes_in_beside_default_routes() {
    let w = World::new(1);
    let net = &w.mobiles[0];
    net.ip("route add default via 10.99.0.1");
    net.ip("addr add fd99::2/64 dev wire nodad");
    net.ip("-6 route add default via fd99::1");
    let found = net.state();
    let _base = w.start_base(&[]);
    let mobile = w.start_mobile(0, &["--route", "0.0.0.0/0", "--route", "::/0", "--address", "fd78::2/64"]);
    assert!(w.answers(0, 100, SOON));
    let route = |to: &str| net.ip(&format!("route get {to}"));
    for to in ["203.0.113.9", "2001:db8::9", "fd55::1"] {
        assert!(route(to).contains("dev rlink0"), "{}", route(to));
    }
    mobile.end("INT");
    assert_eq!(net.state(), found);
}

/// A link that stands still takes its time, and does not keep the others from being asked.
fn a_link_that_does_not_answer_hides_no_other() {
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&["--device", "base0"]), w.start_mobile(0, &["--device", "mobile0"]));
    assert!(w.answers(0, 100, SOON));
    for (stuck, other) in [(&base, "mobile on mobile0"), (&mobile, "base on base0")] {
        stuck.signal("STOP");
        let said = w.place.run(&["link", "status"]);
        assert!(said.stdout.contains(other), "{}", said.stdout);
        said.expect(1, &["the link does not answer"]);
        w.place.run(&["link", "handoff", "end"]).expect(1, &["the link does not answer"]);
        stuck.signal("CONT");
    }
    w.place.ok(&["link", "status"]);
}

fn everything_through_the_tunnel() {
    let w = World::new(1);
    let _base = w.start_base(&["--device", "other0"]);
    let mobile = w.start_mobile(0, &["--route", "0.0.0.0/0"]);
    mobile.says("the base is up");
    assert!(w.answers(0, 100, SOON), "the tunnel's own datagrams do not go into it");
    let route = |to: &str| w.mobiles[0].ip(&format!("route get {to}"));
    assert!(route("203.0.113.9").contains("dev rlink0"), "{}", route("203.0.113.9"));
    assert!(route("10.99.0.1").contains("dev wire"), "{}", route("10.99.0.1"));
}

fn a_device_that_was_down_has_its_routes_again() {
    let w = World::new(1);
    let _base = w.start_base(&[]);
    let routes = ["--route", "0.0.0.0/0", "--route", "fd55::/64", "--address", "fd78::2/64"];
    let mobile = w.start_mobile(0, &routes);
    assert!(w.answers(0, 100, SOON));
    let net = &w.mobiles[0];
    let state = || [net.state(), net.ip("-br addr show dev rlink0")].map(|text| without_link_local(&text));
    let before = state();
    assert!(before[0].contains("fd55::/64 dev rlink0") && before[1].contains("fd78::2/64"), "{before:?}");
    net.ip("link set rlink0 down");
    mobile.says("the network device is down");
    assert!(!state()[0].contains("fd55::/64"));
    for up in ["the network device is up again, and has its addresses and routes anew", ""] {
        net.ip("link set rlink0 up");
        mobile.says(up);
        until("the routes", || state() == before);
        // And so briefly that nothing was read from it meanwhile.
        net.ip("link set rlink0 down");
    }
    net.ip("route add 128.0.0.0/1 dev wire");
    net.ip("link set rlink0 up");
    mobile.says("128.0.0.0/1: another interface has just that network");
    net.ip("route del 128.0.0.0/1 dev wire");
    until("the routes", || state() == before);
    assert!(w.answers(0, 100, SOON));
}

/// Netlink drops events while an end is stopped, so it must read the state again.
fn routes_come_back_though_news_was_missed() {
    let w = World::new(1);
    let _base = w.start_base(&[]);
    let mobile = w.start_mobile(0, &["--route", "10.55.0.0/16"]);
    assert!(w.answers(0, 100, SOON));
    let net = &w.mobiles[0];
    let has_route = || net.ip("route show 10.55.0.0/16").contains("rlink0");
    fs::write(w.place.here("noise"), "link set lo down\nlink set lo up\n".repeat(1000)).unwrap();
    let missing = |last: &str| {
        mobile.signal("STOP");
        net.ip("link set rlink0 down");
        net.ip(&format!("-batch {}", w.place.here("noise").display()));
        net.ip(last);
        mobile.signal("CONT");
    };
    missing("link set lo up");
    mobile.says("the network device is down");
    net.ip("link set rlink0 up");
    mobile.says("the network device is up again, and has its addresses and routes anew");
    assert!(has_route() && !mobile.said("but lacks"));
    // It was down and up again, and nobody told.
    missing("link set rlink0 up");
    until("the route", has_route);
    assert!(!mobile.said("but lacks"));
}

/// The system makes up another address of its own, and routes to it, each time.
fn without_link_local(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').filter(|word| !word.starts_with("fe80:")).collect();
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

fn a_stranger_is_refused() {
    let w = World::new(1);
    let base = w.start_base(&[]);
    key(&w.place, "thief.key");
    let mobile = w.start_mobile(0, &[]);
    assert!(w.answers(0, 100, SOON));
    mobile.end("KILL");
    let args = ["link", "mobile", "--key", "thief.key", "--address", "10.78.0.2/24", "--base", "10.99.0.1:51900"];
    let command = w.place.command(&[&args[..], &["--base-key", &w.keys[0], "--json"]].concat());
    let thief = End::start(&w.mobiles[0], &command);
    base.says("which is not known");
    assert!(!w.answers(0, 100, Duration::from_secs(1)));
    thief.says("no answer");
    assert!(base.figures().is_some_and(|f| f["drops"]["strangers"].as_u64() > Some(0)));
}

fn a_mobile_sends_from_its_own_address_only() {
    let w = World::new(2);
    let base = w.start_base(&[]);
    let _mobiles = [w.start_mobile(0, &[]), w.start_mobile(1, &[])];
    assert!(w.answers(0, 100, SOON) && w.answers(1, 100, SOON));
    w.mobiles[0].ip("addr add 10.78.0.3/32 dev rlink0");
    let liar = w.mobiles[0].socket("10.78.0.3:99");
    until("the lie to be counted", || {
        liar.send_to(b"I am the other", "10.78.0.1:7").unwrap();
        base.figures().is_some_and(|f| f["drops"]["not_theirs"].as_u64() > Some(1))
    });
    base.says("10.78.0.2 sends packets from 10.78.0.3, which are dropped");
    assert_eq!(base.times_said("10.78.0.2 sends packets from 10.78.0.3"), 1);
}

fn a_hand_off_is_announced() {
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&["--device", "base0"]), w.start_mobile(0, &["--device", "mobile0"]));
    assert!(w.answers(0, 100, SOON));
    w.place.ok(&["link", "handoff", "begin", "--for", "2s", "--device", "mobile0"]);
    base.says("10.78.0.2 switches cells, for about 2.0 s");
    let end = ["link", "handoff", "end", "--device", "mobile0"];
    w.place.ok(&end);
    base.says("10.78.0.2 has switched cells");
    assert!(w.answers(0, 100, SOON));
    drop(mobile);
    w.place.run(&end).expect(1, &["mobile0: no link of this user has this device", "base0"]);
    w.place
        .run(&["link", "status", "--device", "zz"])
        .expect(1, &["zz: no link of this user has this device", "base0"]);
    w.place.run(&["link", "handoff", "begin", "--for", "2h", "--device", "base0"]).expect(2, &["at most 60s"]);
}

fn what_cannot_be_done_is_said() {
    let w = World::new(1);
    let p = &w.place;
    let inside = |args: &[&str]| {
        let mut command = w.mobiles[0].inside(&p.command(&[&["link"], args].concat()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        common::Running::start(in_place(command, p)).finish()
    };
    let (me, him) = (format!("{}=10.78.0.2", w.keys[1]), format!("{}=10.78.0.2", w.keys[0]));
    let base = ["base", "--key", "0.key", "--address", "10.78.0.1/24"];
    let base = |more: &[&str]| inside(&[&base[..], more].concat());
    base(&[]).expect(2, &["no mobile is configured"]);
    base(&["--mobile", "AAAA=10.78.0.2"]).expect(2, &["not a key"]);
    base(&["--mobile", &me, "--mobile", &him]).expect(2, &["10.78.0.2/32 is given to"]);
    base(&["--mobile", &me, "--device", "wire"]).expect(1, &["a network device called wire exists"]);
    base(&["--mobile", &me, "--mtu", "200"]).expect(2, &["MTU of 200"]);
    base(&["--mobile", &me, "--listen", "192.0.2.55:1"]).expect(1, &["cannot listen on 192.0.2.55:1"]);
    let _taken = w.mobiles[0].socket("0.0.0.0:51900");
    base(&["--mobile", &me]).expect(1, &["cannot listen on 0.0.0.0:51900", "in use"]);
    let mobile = ["mobile", "--key", "1.key", "--address", "10.78.0.2/24", "--base-key", &w.keys[0]];
    let mobile = |more: &[&str]| inside(&[&mobile[..], more].concat());
    mobile(&[]).expect(2, &["base's address is missing"]);
    mobile(&["--base", "10.78.0.1:51900"]).expect(2, &["inside the tunnel's own network"]);
    mobile(&["--base", "nowhere"]).expect(2, &["expected HOST:PORT"]);
    mobile(&["--base", "nowhere.invalid:1"]).expect(3, &["remora: link: cannot find the address of nowhere.invalid:1"]);
    mobile(&["--address", "10.78.0.3"]).expect(2, &["'10.78.0.3' lacks the prefix length", "10.78.0.3/24"]);
    mobile(&["--lifetime", "foo=3s"]).expect(2, &["'foo' is not a class", "interactive, default, bulk or probe"]);
    mobile(&["--attempts", "foo=3"]).expect(2, &["'foo' is not a class", "interactive, default, bulk or probe"]);
    mobile(&["--base", "10.99.0.1:1", "--attempts", "bulk=0"]).expect(2, &["attempts of 0", "expected 1 or more"]);
    let keyless = ["mobile", "--key", "none.key", "--base", "10.99.0.1:1", "--address", "10.78.0.2/24"];
    inside(&[&keyless[..], &["--base-key", &w.keys[0]]].concat()).expect(1, &["none.key", "remora link keys"]);
    inside(&keyless).expect(2, &["base's key is missing"]);
    let secret = ["none.psk: the pre-shared secret does not exist", "hint: create 32 random bytes"];
    mobile(&["--base", "10.99.0.1:51900", "--psk", "none.psk"]).expect(1, &secret);
    // Packets for a network that is somebody else's, too, would go there, past the seal.
    let found = w.mobiles[0].state();
    for taken in ["10.78.0.9/24", "fd78::9/64"] {
        w.mobiles[0].ip(&format!("addr add {taken} dev wire nodad"));
        let said = mobile(&["--base", "10.99.0.1:51900", "--address", "fd78::2/64"]);
        said.expect(1, &["the tunnel's network", "another interface's", "--address"]);
        w.mobiles[0].ip(&format!("addr del {taken} dev wire"));
        assert_eq!(w.mobiles[0].state(), found);
    }
    fs::write(p.here("bad.toml"), "rate = \"1Mbit\"\nspede = 3\n").unwrap();
    mobile(&["--config", "bad.toml"]).expect(2, &["bad.toml", "line 2", "spede"]);
    fs::write(p.here("open.key"), fs::read(p.here("1.key")).unwrap()).unwrap();
    p.run(&["link", "keys", "--key", "open.key"]).expect(1, &["others may read it"]);
    p.run(&["link", "keys", "--key", "/dev/null/x"]).expect(1, &["/dev/null/x"]);
}

fn nobody_need_read_what_an_end_prints() {
    let w = World::new(1);
    let me = format!("{}=10.78.0.2", w.keys[1]);
    let base = ["link", "base", "--key", "0.key", "--address", "10.78.0.1/24", "--json", "--mobile", &me];
    let said = w.place.state().join("said");
    let mut command = in_place(w.base.inside(&w.place.command(&base)), &w.place);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&said).unwrap());
    let mut base = command.spawn().unwrap();
    BufReader::new(base.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let unread = || fs::read_to_string(&said).unwrap().matches("standard output is closed; continuing").count();
    until("a word on standard error", || unread() > 0);
    let mobile = w.start_mobile(0, &[]);
    assert!(w.answers(0, 100, SOON));
    std::thread::sleep(Duration::from_secs(2));
    assert!(base.try_wait().unwrap().is_none() && unread() == 1);
    drop(mobile);
    // nsenter(1) has become it.
    base.kill().unwrap();
    base.wait().unwrap();
}

/// Relative paths are meant from where the place's commands run.
fn in_place(mut command: Command, p: &Place) -> Command {
    command.current_dir(Path::new(&p.here("")));
    command
}
