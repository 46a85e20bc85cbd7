//! Signals of programs whose calls are held, and kills of the mount's own process.
//!
//! `REMORA_MOUNT_LONG=1 cargo test --release -p remora-cli --test mount -- --nocapture` runs the long forms, which also
//! judge times.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Running, until};
use crate::kit::{Mount, Site, is_long, program, promptly, wait_for_end};

/// Time from a signal to the end of the program, in the 99th percentile.
const SIGNAL_P99: Duration = Duration::from_millis(50);
/// Time from the start of `remora release` to the end of a killed program that waited for another one's call.
const RELEASE_MAX: Duration = Duration::from_millis(100);
/// Interval of looks at a program, well below these times.
const LOOK: Duration = Duration::from_millis(1);

/// A program that makes one call on the server. `@` in an argument is a directory of its own.
struct Kind {
    /// The held operation, as `remora status` names it.
    operation: &'static str,
    line: &'static str,
    /// The names of the directory must be known, or the program is held before, in a lookup.
    is_listed: bool,
    /// It catches SIGINT, so that this signal must not end its call.
    catches_interrupt: bool,
}

const fn kind(operation: &'static str, line: &'static str) -> Kind {
    Kind { operation, line, is_listed: true, catches_interrupt: false }
}

const KINDS: &[Kind] = &[
    Kind { is_listed: false, ..kind("lookup", "stat @/missing") },
    Kind { is_listed: false, ..kind("list", "ls -U @") },
    kind("read", "cat @/file"),
    kind("create", "touch @/new"),
    kind("mkdir", "mkdir @/new"),
    kind("mknod", "mkfifo @/new"),
    kind("symlink", "ln -s target @/new"),
    kind("readlink", "readlink @/link"),
    kind("link", "ln @/file @/new"),
    kind("rename", "mv -T @/file @/new"),
    kind("unlink", "unlink @/file"),
    kind("rmdir", "rmdir @/dir"),
    kind("change attributes", "chmod 600 @/file"),
    Kind { catches_interrupt: true, ..kind("close", "dd if=/proc/version of=@/file conv=notrunc status=none") },
    Kind { catches_interrupt: true, ..kind("fsync", "dd if=/proc/version of=@/file conv=notrunc,fsync status=none") },
];

/// More than the mount keeps of data that the server has not got.
const FULL: Kind = Kind {
    catches_interrupt: true,
    ..kind("write", "dd if=/dev/zero of=@/file bs=1M count=100 conv=notrunc status=none")
};

/// A program with a held call.
struct Held {
    running: Running,
    signal: &'static str,
    kind: &'static Kind,
}

#[test]
fn held_calls_of_every_kind_end_with_the_signal() {
    // All but the held call is answered from what the mount knows, for a minute.
    let Some((site, mount)) = Site::mounted(&["--cache", "relaxed", "--offline", "never"]) else { return };
    let count = if is_long() { 500 } else { 60 };
    let mut kinds: Vec<&'static Kind> = (1..count).map(|n| &KINDS[n % KINDS.len()]).collect();
    kinds.push(&FULL);
    prepare(&site, &mount, &kinds);
    site.server.signal("STOP");
    let signals = if ignores_interrupt() { &["KILL", "TERM"][..] } else { &["KILL", "TERM", "INT"] };
    let mut held = Vec::new();
    for (n, kind) in kinds.iter().enumerate() {
        let signal = match signals[(n / KINDS.len()) % signals.len()] {
            "INT" if kind.catches_interrupt => "KILL",
            signal => signal,
        };
        held.push(Held { running: start(&mount, kind, n), signal, kind });
    }
    let mut last = Vec::new();
    let all_are_held = || {
        let status = site.status(&mount);
        let calls = status["held"].as_array().unwrap();
        let found = held.iter().map(|held| {
            let call = calls.iter().find(|call| call["pid"] == held.running.pid());
            (held.kind.operation, call.map_or_else(String::new, |call| call["operation"].as_str().unwrap().to_owned()))
        });
        let missing: Vec<_> = found.filter(|(wanted, found)| wanted != found).collect();
        let is_new = missing != last;
        last = missing;
        if is_new {
            println!("not held, and what is held instead: {last:?}");
        }
        last.is_empty()
    };
    until("all calls to be held", all_are_held);
    let mut times: Vec<Duration> =
        held.into_iter().map(|held| end(held.running, held.signal, held.kind.line)).collect();
    times.sort();
    let p99 = times[(times.len() * 99).div_ceil(100) - 1];
    println!("{count} held calls: p99 {p99:?}, longest {:?}", times[times.len() - 1]);
    assert!(!is_long() || p99 <= SIGNAL_P99, "p99 {p99:?}");
    assert_eq!(site.status(&mount)["held"], Value::Array(Vec::new()), "calls of programs that have ended");
    site.server.signal("CONT");
    assert_eq!(fs::read_to_string(mount.at("known/n2/file")).unwrap(), "data");
}

/// The directory of the call. Those of calls on what is not known are apart, where nothing is listed ahead.
fn directory(kind: &Kind, n: usize) -> String {
    let parent = if kind.is_listed { "known" } else { "unknown" };
    format!("{parent}/n{n}")
}

/// Makes the directory of each call on the server, and has the mount know them.
fn prepare(site: &Site, mount: &Mount, kinds: &[&Kind]) {
    for (n, kind) in kinds.iter().enumerate() {
        let dir = site.place.srv(&directory(kind, n));
        fs::create_dir_all(dir.join("dir")).unwrap();
        fs::write(dir.join("file"), "data").unwrap();
        std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
    }
    for (n, kind) in kinds.iter().enumerate() {
        let dir = mount.at(&directory(kind, n));
        fs::metadata(&dir).unwrap();
        if kind.is_listed {
            for entry in fs::read_dir(&dir).unwrap() {
                fs::symlink_metadata(entry.unwrap().path()).unwrap();
            }
            fs::File::options().read(true).write(true).open(dir.join("file")).unwrap();
        }
    }
}

fn start(mount: &Mount, kind: &Kind, n: usize) -> Running {
    let dir = mount.at(&directory(kind, n));
    let mut words = kind.line.split(' ').map(|word| PathBuf::from(word.replace('@', dir.to_str().unwrap())));
    let name = words.next().unwrap();
    let args: Vec<PathBuf> = words.collect();
    program(name.to_str().unwrap(), &args.iter().map(|arg| &**arg).collect::<Vec<_>>())
}

/// Sends the signal; returns the time until the program's end.
fn end(mut running: Running, signal: &str, what: &str) -> Duration {
    let start = Instant::now();
    running.signal(signal);
    until(what, || {
        // A closer look than `until` takes.
        let close = Instant::now() + 10 * LOOK;
        while !running.has_ended() && Instant::now() < close {
            std::thread::sleep(LOOK);
        }
        running.has_ended()
    });
    start.elapsed()
}

/// Whether programs inherit an ignored SIGINT, as in the background of a script.
fn ignores_interrupt() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() & (1 << 1) != 0
}

#[test]
fn release_frees_a_call_that_waits_for_another() {
    let Some((site, mount)) = Site::mounted(&["--offline", "never"]) else { return };
    fs::create_dir(site.place.srv("dir")).unwrap();
    fs::metadata(mount.at("dir")).unwrap();
    site.server.signal("STOP");
    let first = program("stat", &[&mount.at("dir/missing")]);
    site.until_held(&mount, "stat");
    // The kernel has it wait for the lock of the directory, and tells nobody.
    let mut second = program("mkdir", &[&mount.at("dir/new")]);
    until("a second call", || state(second.pid()) == Some('D'));
    second.signal("KILL");
    std::thread::sleep(10 * LOOK);
    assert!(!second.has_ended(), "the kernel lets it go by itself: the test is out of date");
    let start = Instant::now();
    site.place.run(&["release", mount.path()]).expect(0, &["ended 1 call"]);
    until("the end of both", || second.has_ended());
    let took = start.elapsed();
    println!("a second-order waiter ended {took:?} after the start of release");
    assert!(!is_long() || took <= RELEASE_MAX, "{took:?}");
    promptly("the first", move || first.finish()).expect(1, &["Interrupted system call"]);
}

/// State of a process, as proc_pid_stat(5) has it.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Work that goes on until a call fails.
const WORK: &str = "cd \"$0\"; while :; do cp /proc/version file; cat file; ls; mv file moved; ln moved file; rm -f file moved; done > /dev/null";

#[test]
fn mount_killed_under_load_leaves_nobody_waiting() {
    let Some(mut site) = Site::new() else { return };
    let rounds = if is_long() { 100 } else { 5 };
    for name in ["a", "b", "c"] {
        fs::create_dir(site.place.srv(name)).unwrap();
    }
    for round in 0..rounds {
        let mount = site.mount("mnt", &["--offline", "never"]);
        fs::metadata(mount.at("a")).unwrap();
        let mut programs: Vec<Running> =
            ["a", "b", "c"].map(|name| program("sh", &["-ec".as_ref(), WORK.as_ref(), &mount.at(name)])).into();
        // In every other round the server holds calls, and these hold others in the kernel.
        if round % 2 == 1 {
            until("work", || site.place.srv("c").read_dir().unwrap().next().is_some());
            site.server.signal("STOP");
            programs.push(program("mkdir", &[&mount.at(&format!("new-{round}"))]));
            until("a held call", || site.status(&mount)["held"].as_array().is_some_and(|held| !held.is_empty()));
        }
        let pid = site.pid(&mount);
        assert!(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
        for running in programs {
            let out = promptly("a program of a dead mount", move || running.finish());
            assert_ne!(out.code, 0, "round {round}");
        }
        wait_for_end(&pid.to_string());
        site.server.signal("CONT");
    }
    let mount = site.mount("mnt", &[]);
    fs::write(mount.at("file"), "data").unwrap();
    println!("killed {rounds} times under load");
}
