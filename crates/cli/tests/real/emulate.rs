//! `remora lab emulate`, as a program and as a library: real packets through namespaces, and
//! nothing left of them afterwards. As root only; see `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;

mod captures;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::trials::trial;
use common::{Place, Running, noise, until};
use libtest_mimic::Arguments;
use remora_base::Rate;
use remora_channel::{Config, Duplex, ErrorModel, Fate, Side};
use remora_host::emulate::{EmulationReport, EmulationSetup, Emulator, Station};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
use rustix::process::Signal;
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let list = arguments.list;
    let roaming = trial("copy_survives_an_address_change", &["unshare", "ip"], true, copy_from_another_address, !list);
    let dropped = trial(
        "packets_that_the_kernel_drops_before_the_channel_are_counted",
        &["unshare", "ip"],
        true,
        what_the_device_drops_counts,
        !list,
    );
    let trial = |name, run| trial(name, &["unshare"], true, run, !list);
    let trials = vec![
        roaming,
        trial("the_self_test_passes", the_self_test_passes),
        trial("an_echo_comes_back_at_the_pace_of_the_channel", an_echo_comes_back_at_the_pace_of_the_channel),
        trial("a_saturated_link_carries_what_its_rate_allows", a_saturated_link_carries_what_its_rate_allows),
        trial("the_same_offers_have_the_same_fates_in_virtual_time", same_offers_same_fates),
        dropped,
        trial("a_copy_over_nfs_crosses_bad_weather", a_copy_over_nfs_crosses_bad_weather),
        trial("an_announced_switch_loses_nothing", an_announced_switch_loses_nothing),
        trial("mobiles_reach_the_base_and_one_another", mobiles_reach_the_base_and_one_another),
        trial("the_exit_code_is_the_commands", the_exit_code_is_the_commands),
        trial("what_is_ignored_stays_so_in_a_station", what_is_ignored_stays_so),
        trial("the_examples_copy_what_they_say", the_examples_copy_what_they_say),
        trial("captures_say_what_became_of_each_frame", captures::captures_say_what_became_of_each_frame),
        trial("nothing_is_left_after_kill_9", || nothing_is_left_after("KILL", -1)),
        trial("nothing_is_left_after_ctrl_c", || nothing_is_left_after("INT", 130)),
        trial("nothing_is_left_after_the_command", nothing_is_left_after_the_command),
        trial("a_second_signal_ends_a_report_that_nobody_reads", a_second_signal_ends_it),
        trial("a_signal_that_comes_twice_is_one", a_signal_that_comes_twice_is_one),
        trial("a_pipe_or_a_link_is_no_capture", captures::a_pipe_or_a_link_is_no_capture),
        trial("without_rights_it_says_so", without_rights_it_says_so),
    ];
    // One after the other: they measure time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// A build machine may be busy, and these tests are not about that.
const PATIENT: Duration = Duration::from_millis(50);

/// A setup whose programs are started by the built binary, not by this test.
fn setup(config: Config) -> EmulationSetup {
    let inside = [env!("CARGO_BIN_EXE_remora"), "lab", "inside"].map(Into::into).to_vec();
    EmulationSetup { config, inside, lateness_max: PATIENT, ..EmulationSetup::default() }
}

/// Runs the command, which must succeed, and takes the report from the last line it printed.
fn report(p: &Place, args: &[&str]) -> Value {
    let text = p.ok(&[&["lab", "emulate", "--json", "--lateness-max", "50ms"], args].concat());
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// A run that the machine has held up is void and done again, twice at most: it says so, or the link that is to be
/// saturated was so too late, since who sends did not get its turn. What is wrong with the channel stays wrong.
fn the_self_test_passes() {
    let p = Place::new();
    for left in (0..3).rev() {
        let out = p.run(&["lab", "emulate", "--self-test", "--json", "--lateness-max", "50ms"]);
        let result: Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        let checks = result["checks"].as_array().unwrap_or_else(|| panic!("{out:?}"));
        assert_eq!(checks.len(), 7, "{out:?}");
        let failed: Vec<&Value> = checks.iter().filter(|c| c["passed"] != true).map(|c| &c["name"]).collect();
        if failed.iter().any(|name| *name == "lateness" || *name == "closed-form throughput") && left > 0 {
            continue;
        }
        assert_eq!((out.code, &result["passed"]), (0, &true.into()), "{out:?}");
        return;
    }
}

/// The first command in a text that begins like this. Those of several lines, which all but the last end in a
/// backslash, are one line.
fn example(text: &str, beginning: &str) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        match line.strip_suffix('\\') {
            Some(part) => joined += &format!("{} ", part.trim()),
            None => joined += &format!("{}\n", line.trim()),
        }
    }
    let command = joined.lines().find_map(|line| Some(&line[line.find(beginning)?..]));
    command.unwrap_or_else(|| panic!("no example of {beginning} in {joined}")).to_owned()
}

/// Runs a line of a page as people do, with `remora` on the path.
fn run_example(p: &Place, line: &str) {
    let binary = Path::new(env!("CARGO_BIN_EXE_remora"));
    let path = [binary.parent().unwrap().to_str().unwrap(), &std::env::var("PATH").unwrap()].join(":");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(p.here("")).env("PATH", path).env("XDG_STATE_HOME", p.state());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = Running::start(command).finish();
    assert_eq!(out.code, 0, "{line}: {out:?}");
}

/// What happens to a machine that leaves one network for another.
fn copy_from_another_address() {
    let p = Place::new();
    let content = noise(1_000_000, 5);
    fs::write(p.srv("big"), &content).unwrap();
    let remora = env!("CARGO_BIN_EXE_remora");
    let (srv, state) = (p.srv("").display().to_string(), p.state().display().to_string());
    let base = format!("exec {remora} serve {srv} --state {state} --listen 10.77.0.1:3049 --allow 10.0.0.0/8");
    for proto in ["udp", "auto", "tcp"] {
        let got = p.here(proto);
        let mobile = format!(
            "until {remora} ls 'nfs://10.77.0.1:3049/' > /dev/null 2>&1; do sleep 0.1; done; \
             {remora} cp -q 'nfs://10.77.0.1:3049/big?proto={proto}' {} & \
             sleep 1; ip addr del 10.77.0.2/24 dev remora0; sleep 1; ip addr add 10.77.0.9/24 dev remora0; wait $!",
            got.display()
        );
        let began = Instant::now();
        report(&p, &["--rate", "2Mbit", "--base", &base, "--", "sh", "-c", &mobile]);
        assert!(fs::read(&got).unwrap() == content, "{proto}");
        // 4 s of data, a second without any address, and the silence after which it looks for another.
        assert!(began.elapsed() < Duration::from_secs(20), "{proto}: {:?}", began.elapsed());
    }
}

fn the_examples_copy_what_they_say() {
    let p = Place::new();
    let content = noise(64 << 10, 1);
    fs::create_dir(p.here("files")).unwrap();
    fs::write(p.here("big.iso"), &content).unwrap();
    fs::write(p.srv("a"), &content).unwrap();
    let readme = example(include_str!("../../../../README.md"), "remora lab emulate ");
    run_example(&p, &readme);
    assert!(fs::read(p.here("files/big.iso")).unwrap() == content, "{readme}");
    let help = p.ok(&["lab", "emulate", "--help"]);
    let copy = example(&help, "remora lab emulate --base 'remora serve").replace("/srv", p.srv("").to_str().unwrap());
    run_example(&p, &copy);
    assert!(fs::read(p.here("a")).unwrap() == content, "{copy}");
}

/// An ICMP echo request of so many bytes on the wire, and its checksum (RFC 1071).
fn echo_request(bytes: usize) -> Vec<u8> {
    let mut m = vec![0; bytes - 20];
    m[0] = 8;
    m[4..8].copy_from_slice(&[0x52, 0x45, 0, 1]);
    let sum: u32 = m.chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]]))).sum();
    m[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    m
}

fn an_echo_comes_back_at_the_pace_of_the_channel() {
    let emulator = Emulator::start(setup(Config::default())).unwrap();
    let socket =
        emulator.within(Station::Mobile(0), || Ok(socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))?));
    let socket = socket.unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(5))).unwrap();
    let began = Instant::now();
    let to = SocketAddrV4::new(emulator.addr(Station::Base), 0);
    sendto(&socket, &echo_request(1000), SendFlags::empty(), &to).unwrap();
    let mut reply = [0; 1500];
    let (_, n) = recv(&socket, &mut reply, RecvFlags::empty()).unwrap();
    let took = began.elapsed();
    assert_eq!((n, reply[20]), (1000, 0), "an echo reply");
    // Twice 8 ms of airtime and 2 ms of delay.
    let exact = Duration::from_millis(20);
    assert!((exact..exact + PATIENT).contains(&took), "{took:?}");
}

fn bound(emulator: &Emulator, station: Station) -> UdpSocket {
    let socket = emulator.within(station, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9))).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Sends datagrams of `bytes` bytes on the wire from `from` to `to`, one every `every`.
fn stream(emulator: &Emulator, from: &UdpSocket, to: Station, bytes: usize, every: Duration, during: Duration) {
    let (began, to) = (Instant::now(), emulator.addr(to));
    let mut due = Duration::ZERO;
    while due < during {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        from.send_to(&noise(bytes - 28, 1), (to, 9)).unwrap();
        due += every;
    }
}

fn a_saturated_link_carries_what_its_rate_allows() {
    let config = Config { rate: Rate::mbit(10), queue_frames: 20, ..Config::default() };
    let mut emulator = Emulator::start(setup(config.clone())).unwrap();
    let (base, mobile) = (bound(&emulator, Station::Base), bound(&emulator, Station::Mobile(0)));
    for duplex in [Duplex::Half, Duplex::Full] {
        emulator.begin(Config { duplex, ..config.clone() }, 1).unwrap();
        let (every, during) = (Duration::from_micros(800), Duration::from_secs(1));
        std::thread::scope(|scope| {
            scope.spawn(|| stream(&emulator, &base, Station::Mobile(0), 1500, every, during));
            stream(&emulator, &mobile, Station::Base, 1500, every, during);
        });
        until("the queues are empty", || {
            let r = emulator.report().unwrap();
            r.lanes.iter().all(|l| l.stats.frames_sent + l.stats.frames_queue_full == l.stats.frames_offered)
        });
        std::thread::sleep(Duration::from_millis(20));
        let r = emulator.report().unwrap();
        for lane in &r.lanes {
            // A frame takes 1.2 ms; both streams together offer a frame each 0.4 ms.
            let share = if duplex == Duplex::Half { 2.4 } else { 1.2 };
            let carried = lane.stats.datagrams_delivered as f64 / (1000.0 / share);
            assert!((0.93..1.1).contains(&carried), "{duplex:?} {carried} {lane:?}");
            assert!(lane.stats.frames_queue_full > 0, "{lane:?}");
            assert_eq!(lane.stats.frames_sent, lane.stats.datagrams_delivered, "{lane:?}");
        }
    }
}

/// Traffic of two mobiles, both ways, in bad weather.
fn babel(emulator: &mut Emulator, seed: u64) -> EmulationReport {
    let sockets: Vec<UdpSocket> = emulator.stations().map(|s| bound(emulator, s)).collect();
    emulator.begin(emulator.setup().config.clone(), seed).unwrap();
    let during = Duration::from_secs(3);
    let shared = &*emulator;
    std::thread::scope(|scope| {
        for (i, from) in sockets.iter().enumerate() {
            for to in if i == 0 { vec![Station::Mobile(0), Station::Mobile(1)] } else { vec![Station::Base] } {
                let bytes = 200 + 300 * i;
                scope.spawn(move || stream(shared, from, to, bytes, Duration::from_millis(3), during));
            }
        }
    });
    emulator.report().unwrap()
}

fn same_offers_same_fates() {
    let errors = ErrorModel::bursts(Duration::from_millis(160));
    for duplex in [Duplex::Half, Duplex::Full] {
        let config = Config { errors: errors.clone(), loss: 0.1, duplex, queue_frames: 10, ..Config::default() };
        let mut emulator = Emulator::start(EmulationSetup { mobiles: 2, journal: 100_000, ..setup(config) }).unwrap();
        for seed in [1, 2] {
            let r = babel(&mut emulator, seed);
            let frames = &r.journal.frames;
            assert_eq!((r.journal.missed, r.seed), (0, seed));
            assert!(frames.len() > 1000, "{}", frames.len());
            for fate in [Fate::Delivered, Fate::QueueFull, Fate::BadPeriod, Fate::RandomLoss] {
                assert!(frames.iter().any(|f| f.fate == fate), "{duplex:?} {seed} no {fate:?}");
            }
            assert_eq!(&r.journal.replay(&r.config, seed, 2).unwrap(), frames);
            assert_ne!(&r.journal.replay(&r.config, seed + 1, 2).unwrap(), frames, "another seed");
        }
    }
}

/// Floods per test: the emulator may keep up with some of them.
const FLOODS: u32 = 20;

/// With a device that holds four packets only.
fn what_the_device_drops_counts() {
    let mut emulator = Emulator::start(setup(Config::default())).unwrap();
    let mobile = bound(&emulator, Station::Mobile(0));
    let shorten = || Command::new("ip").args(["link", "set", "remora0", "txqueuelen", "4"]).status();
    assert!(emulator.within(Station::Mobile(0), shorten).unwrap().success());
    let sent = 20_000;
    let overflowed = (0..FLOODS).any(|_| {
        emulator.begin(Config { rate: Rate::mbit(1000), ..Config::default() }, 1).unwrap();
        for _ in 0..sent {
            mobile.send_to(&[0], (emulator.addr(Station::Base), 9)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let r = emulator.begin(Config::default(), 2).unwrap();
        let there = r.lanes.iter().filter(|l| l.lane.from == Side::Mobile);
        let offered: u64 = there.map(|l| l.stats.frames_offered).sum();
        assert_eq!(offered + r.overflowed, sent);
        assert!(r.overflowed == 0 || !r.valid());
        r.overflowed > 0
    });
    assert!(overflowed, "the device had room for all of {FLOODS} floods");
    let next = emulator.report().unwrap();
    assert_eq!((next.overflowed, next.refused), (0, 0), "what was before is not the next channel's");
}

/// The command of a server of `p`'s files, for the base.
fn serve(p: &Place) -> String {
    format!(
        "{} serve {} --listen 0.0.0.0:2049 --state {} --squash none",
        env!("CARGO_BIN_EXE_remora"),
        p.srv("").display(),
        p.state().display()
    )
}

/// Shell: waits until that server answers.
fn served() -> String {
    format!("until {} ls nfs://$REMORA_BASE_ADDR/ 2>/dev/null; do sleep 0.1; done", env!("CARGO_BIN_EXE_remora"))
}

fn a_copy_over_nfs_crosses_bad_weather() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 3)).unwrap();
    let remora = env!("CARGO_BIN_EXE_remora");
    let copy = format!("{}; {remora} cp -q --verify nfs://$REMORA_BASE_ADDR/f .", served());
    // Periods of fixed length: at least two bad ones fall into the 2.5 s that the copy takes.
    let weather = ["--bad-mean", "80ms", "--distribution", "fixed", "--seed", "5", "--rate", "2Mbit"];
    let server = serve(&p);
    let flags = [&weather[..], &["--base", &server]].concat();
    let r = report(&p, &[&flags[..], &["--", "sh", "-c", &copy]].concat());
    assert_eq!(fs::read(p.here("f")).unwrap(), noise(300_000, 3));
    assert_eq!((&r["valid"], &r["exit_code"], &r["strays"]), (&true.into(), &0.into(), &0.into()), "{r}");
    let down = &r["lanes"][0];
    assert_eq!(down["from"], "base");
    // Twice, for it is verified.
    let bad: u64 = (0..2).map(|lane| r["lanes"][lane]["bad"].as_u64().unwrap()).sum();
    assert!(down["bytes"].as_u64().unwrap() > 600_000 && bad > 0, "{r}");
}

/// The hand-off signal from end to end: `remora handoff` beside a `remora cp` that writes, and a
/// switch of a second during which nothing gets through.
fn an_announced_switch_loses_nothing() {
    let frames_lost = |signal: &str| {
        let p = Place::new();
        fs::write(p.here("f"), noise(500_000, 4)).unwrap();
        let remora = env!("CARGO_BIN_EXE_remora");
        let switch = signal.replace("remora", remora);
        let copy = format!(
            "export REMORA_HANDOFF_DIR={}/handoff\n({switch}) & {}\n{remora} cp -q f nfs://$REMORA_BASE_ADDR/",
            p.here("").display(),
            served()
        );
        // What is queued when the signal comes, at most 50 frames, is gone by the time of the switch.
        let flags = ["--outage", "3s+1s", "--rate", "1Mbit", "--base", &serve(&p)];
        let r = report(&p, &[&flags[..], &["--", "sh", "-c", &copy]].concat());
        assert_eq!((&r["valid"], &r["exit_code"]), (&true.into(), &0.into()), "{r}");
        assert_eq!(fs::read(p.srv("f")).unwrap(), noise(500_000, 4));
        r["lanes"].as_array().unwrap().iter().map(|lane| lane["bad"].as_u64().unwrap()).sum::<u64>()
    };
    let announced = frames_lost("sleep 2; remora handoff begin --for 20s; sleep 2; remora handoff end");
    let unannounced = frames_lost("true");
    assert_eq!(announced, 0);
    assert!(unannounced > 3, "{unannounced}");
}

fn mobiles_reach_the_base_and_one_another() {
    let config = Config { rate: Rate::mbit(10), ..Config::default() };
    let emulator = Emulator::start(EmulationSetup { mobiles: 3, ..setup(config) }).unwrap();
    let sockets: Vec<UdpSocket> = emulator.stations().map(|s| bound(&emulator, s)).collect();
    for (from, a) in sockets.iter().zip(emulator.stations()) {
        for (to, b) in sockets.iter().zip(emulator.stations()).filter(|(_, b)| *b != a) {
            from.send_to(b"hello", (emulator.addr(b), 9)).unwrap();
            let mut buffer = [0; 16];
            until("a datagram", || to.recv(&mut buffer).is_ok_and(|n| &buffer[..n] == b"hello"));
        }
    }
    let r = emulator.report().unwrap();
    let frames = |mobile, from| {
        let lane = r.lanes.iter().find(|l| l.lane.mobile == mobile && l.lane.from == from).unwrap();
        lane.stats.frames_offered
    };
    for mobile in 0..3 {
        // To the base and to two others; from the base, and from two others by way of it.
        assert_eq!((frames(mobile, Side::Mobile), frames(mobile, Side::Base)), (3, 3), "{r:?}");
    }
    assert_eq!((r.strays, r.refused), (0, 0));
}

fn the_exit_code_is_the_commands() {
    let p = Place::new();
    let run = |args: &[&str]| p.run(&[&["lab", "emulate"], args].concat());
    let out = run(&["--", "sh", "-c", "cat /proc/sys/net/ipv4/tcp_congestion_control; ls /sys/class/net; exit 7"]);
    assert_eq!((out.code, &out.stdout[..]), (7, "cubic\nlo\nremora0\n"), "{}", out.stderr);
    assert!(out.stderr.contains("VALID") && out.stderr.contains("mobile 1 to base: 0 frames"), "{}", out.stderr);
    assert_eq!(run(&["--", "sh", "-c", "kill -9 $$"]).code, 128 + 9);
    // In a process group of its own, as shells make them.
    assert_eq!(run(&["--", "setsid", "sh", "-c", "exit 5"]).code, 5);
    let out = run(&["--json", "--", "printf", "hello"]);
    let (of_command, object) = out.stdout.split_once('\n').unwrap();
    let object: Value = serde_json::from_str(object).unwrap();
    assert_eq!((of_command, &object["exit_code"]), ("hello", &0.into()), "on a line of its own");
    run(&["--", "/no/such/program"]).expect(127, &["/no/such/program"]);
    run(&["--mobiles", "9"]).expect(2, &["1 to 8"]);
    run(&["--congestion", "frobnicate"]).expect(1, &["frobnicate", "there are:"]);
    run(&["--mobile", "2=true"]).expect(2, &["no mobile 2"]);
    // What a trace leaves without meaning.
    fs::write(p.here("trace"), "1\n2\n").unwrap();
    let out = run(&["--trace-up", "trace", "--json", "--", "true"]);
    let object: Value = serde_json::from_str(&out.stdout).unwrap();
    let lane = |from: &str| object["lanes"].as_array().unwrap().iter().find(|l| l["from"] == from).unwrap().clone();
    assert!(lane("mobile")["airtime_seconds"].is_null() && lane("base")["airtime_seconds"].is_number(), "{object}");
    assert!(object["channel"]["duplex"].is_null() && object["channel"]["rate_bits"] == 1_000_000, "{object}");
    let both = run(&["--trace-up", "trace", "--trace-down", "trace", "--json", "--", "true"]);
    assert!(both.stdout.contains("\"rate_bits\":null,"), "{both:?}");
    run(&["--trace-up", "trace", "--", "true"]).expect(0, &["; airtime -\n", "; airtime 0.00 s\n"]);
    run(&["--trace-up", "/dev/null"]).expect(2, &["/dev/null"]);
    run(&["--rate", "0bit"]).expect(2, &["--rate"]);
}

/// As `nohup remora lab emulate` has it: a terminal that is closed ends nothing in there.
fn what_is_ignored_stays_so() {
    let p = Place::new();
    for (ignored, bits) in [("HUP", 1u64), ("TERM USR1", 1 << 14 | 1 << 9)] {
        let line = format!("trap '' {ignored}; exec \"$0\" lab emulate -- grep SigIgn /proc/self/status");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_remora")]).current_dir(p.here("."));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let out = Running::start(command).finish();
        let set = out.stdout.trim().strip_prefix("SigIgn:").expect("a set of signals").trim();
        assert_eq!(u64::from_str_radix(set, 16).unwrap() & bits, bits, "{ignored}: {set}");
    }
}

/// The network namespaces that processes are in, or have open.
fn namespaces(processes: impl Iterator<Item = PathBuf>) -> BTreeSet<String> {
    let of = |process: PathBuf| {
        let fds = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
        let links = fds.chain([process.join("ns/net")]).filter_map(|p| fs::read_link(p).ok());
        links.map(|l| l.to_string_lossy().into_owned()).filter(|l| l.starts_with("net:")).collect::<Vec<_>>()
    };
    processes.flat_map(of).collect()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path())
}

/// The processes that have `marker` among their arguments; zombies have none.
fn marked(marker: &str) -> impl Iterator<Item = PathBuf> {
    processes().filter(move |process| {
        let args = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&args).split('\0').any(|a| a == marker)
    })
}

/// Others may be emulating, too: what counts is that none of `ours` is left.
fn until_gone(marker: &str, ours: &BTreeSet<String>) {
    until("all processes gone", || marked(marker).count() == 0);
    until("all namespaces gone", || namespaces(processes()).is_disjoint(ours));
}

fn nothing_is_left_after(signal: &str, code: i32) {
    let p = Place::new();
    let marker = &format!("4{}", std::process::id());
    let devices = fs::read_to_string("/proc/net/dev").unwrap().lines().count();
    // One that stays, one that leaves its session, one whose parent ends, one that will not end.
    let programs = format!(
        "sleep {marker} & setsid sleep {marker} & (setsid sh -c 'sleep {marker} & sleep {marker} &' &); \
         trap '' TERM INT HUP; sleep {marker}; sleep {marker}"
    );
    let args = ["lab", "emulate", "--base", &programs, "--", "sh", "-c", &programs];
    let mut command = p.command(&args);
    // Pipes would be kept open by what should not be left.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(command);
    until("its programs", || marked(marker).count() >= 10);
    let ours = namespaces(marked(marker));
    assert!(ours.len() == 2 && ours.is_disjoint(&namespaces(["/proc/self".into()].into_iter())), "{ours:?}");
    running.signal(signal);
    assert_eq!(running.finish().code, code);
    until_gone(marker, &ours);
    assert_eq!(fs::read_to_string("/proc/net/dev").unwrap().lines().count(), devices);
}

fn nothing_is_left_after_the_command() {
    let p = Place::new();
    let marker = &format!("5{}", std::process::id());
    let began = Instant::now();
    let command = format!("setsid sleep {marker} & readlink /proc/self/ns/net; exit 3");
    let out = p.run(&["lab", "emulate", "--", "sh", "-c", &command]);
    assert_eq!(out.code, 3, "{}", out.stderr);
    assert!(began.elapsed() < Duration::from_secs(10));
    until_gone(marker, &BTreeSet::from([out.stdout.trim().to_owned()]));
}

fn a_second_signal_ends_it() {
    let p = Place::new();
    let marker = &format!("6{}", std::process::id());
    let programs = format!("trap '' TERM INT HUP; sleep {marker}; sleep {marker}");
    let mut command = p.command(&["lab", "emulate", "--json", "--base", &programs, "--", "sh", "-c", &programs]);
    let (unread, mut output) = std::io::pipe().unwrap();
    // A pipe's usual size: it is full from the start.
    output.write_all(&[b'x'; 65_536]).unwrap();
    command.stdout(output).stderr(Stdio::null());
    let mut running = Running::start(command);
    until("its programs", || marked(marker).count() >= 2);
    let ours = namespaces(marked(marker));
    running.signal("INT");
    std::thread::sleep(Duration::from_secs(2));
    assert!(!running.has_ended(), "nobody reads");
    running.signal("TERM");
    assert_eq!(running.finish().code, 143);
    until_gone(marker, &ours);
    drop(unread);
}

fn a_signal_that_comes_twice_is_one() {
    let p = Place::new();
    let marker = &format!("7{}", std::process::id());
    // It has to be killed, which takes longer than the second comes after the first.
    let program = format!("trap '' TERM INT HUP; sleep {marker}; sleep {marker}");
    let running = p.start(&["lab", "emulate", "--json", "--", "sh", "-c", &program]);
    until("its program", || marked(marker).count() >= 1);
    running.signal_twice(Signal::TERM);
    let out = running.finish();
    assert_eq!(out.code, 143);
    let report: Value = serde_json::from_str(out.stdout.lines().last().expect("a report")).unwrap();
    assert_eq!(report["exit_code"], 143);
}

fn without_rights_it_says_so() {
    let p = Place::new();
    // Somewhere that nobody may enter, too.
    let dir = tempfile::Builder::new().permissions(open_to_all()).tempdir().unwrap();
    let binary = dir.path().join("remora");
    fs::copy(env!("CARGO_BIN_EXE_remora"), &binary).unwrap();
    let mut command = Command::new(&binary);
    command.args(["lab", "emulate", "--", "true"]).uid(65534).gid(65534).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).finish().expect(1, &["takes root"]);
    // The process that enters a station is of no use to anybody else.
    p.run(&["lab", "inside", "/proc/self/ns/net", "true"]).expect(1, &["only the emulator"]);
}

fn open_to_all() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}
