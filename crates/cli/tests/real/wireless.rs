//! `remora lab wireless --real`: real programs on the emulated link, and nothing left of them
//! afterwards. As root only; see `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::trials::{find, trial};
use common::{Place, Running, until};
use libtest_mimic::Arguments;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, programs: &[&str], run| trial(name, programs, true, run, !arguments.list);
    let ssh = &["unshare", "scp", "rsync", "ssh", "ssh-keygen", "sshd"];
    let trials = vec![
        trial("remora_with_and_without_link_arrives_intact", &["unshare"], remora_arrives_intact),
        trial("peers_over_ssh_arrive_intact", ssh, || peers_arrive_intact(&["scp", "rsync"])),
        trial("libnfs_arrives_intact", &["unshare", "nfs-cp"], || peers_arrive_intact(&["libnfs"])),
        trial("linux_arrives_intact", &["unshare", "ip", "qemu-system-x86_64", "busybox"], linux_arrives_intact),
        trial("tcp_has_four_fifths_of_a_lossy_link", &["unshare"], tcp_has_its_share),
        trial("a_link_that_dies_in_a_run_voids_it", &["unshare"], a_link_that_dies_voids_it),
        trial("several_mobiles_copy_at_once", &["unshare"], several_mobiles_copy),
        trial("eight_mobiles_saturate_the_link", &["unshare"], the_link_is_saturated),
        trial("an_announced_switch_is_heard_of", &["unshare"], a_switch_is_heard_of),
        trial("what_was_run_before_ctrl_c_is_reported", &["unshare"], what_was_run_is_reported),
        trial("nothing_is_left_after_kill_9", &["unshare"], || nothing_is_left_after("KILL")),
        trial("nothing_is_left_after_ctrl_c", &["unshare"], || nothing_is_left_after("INT")),
    ];
    // One after the other: they measure time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// The cells of the experiment `check` at these levels.
fn check(p: &Place, more: &[&str], levels: &[&str]) -> Vec<Value> {
    // A build machine may be busy, and these tests are not about that.
    let mut args = vec!["lab", "wireless", "--real", "--json", "--lateness-max", "10s", "check"];
    args.extend(more);
    levels.iter().for_each(|level| args.extend(["--only", level]));
    let report: Value = serde_json::from_str(&p.ok(&args)).unwrap();
    assert_eq!(report["source"], "real", "{report}");
    report["experiments"][0]["cells"].as_array().unwrap().clone()
}

/// Every run of every cell ended in time, with the right bytes: else it is among the failures, and the command fails.
fn all_well(cells: &[Value], seeds: u64) {
    for cell in cells {
        assert_eq!(cell["failures"].as_array().map(Vec::len), Some(0), "{cell}");
        let summary = &cell["results"][0]["summary"];
        assert_eq!((&summary["runs"], &summary["censored"]), (&seeds.into(), &0.into()), "{cell}");
        // Nobody is faster than the channel.
        assert!(cell["ratio"]["min"].as_f64().is_some_and(|r| r >= 1.0), "{cell}");
    }
}

/// How often cells are asked for until all of their runs are valid.
const TRIES: u32 = 3;
/// No set of cells below takes longer, repetitions included.
const CELLS_MAX: Duration = Duration::from_secs(300);

/// The cells of real runs, all of them valid by the emulator's own measure; else a skip, which is a failure where
/// nothing may be skipped.
fn valid(name: &str, args: &[&str]) -> Option<Vec<Value>> {
    let p = Place::new();
    let mut late = String::new();
    for _ in 0..TRIES {
        let out = p.start(&[&["lab", "wireless", "--real", "--json"][..], args].concat()).finish_within(CELLS_MAX);
        let report: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", out.stderr));
        let cells = report["experiments"][0]["cells"].as_array().unwrap().clone();
        let failures = cells.iter().flat_map(|c| c["failures"].as_array().unwrap());
        let whys: Vec<String> = failures.map(|f| f["why"].as_str().unwrap().to_owned()).collect();
        assert!(whys.iter().all(|why| why.starts_with("not valid: ")), "{args:?}: {whys:?}");
        match whys.first() {
            None => return Some(cells),
            Some(why) => late.clone_from(why),
        }
    }
    skip::skipped(name, &format!("the machine is too busy: {TRIES} times a run was {late}"));
    None
}

/// CUBIC through the link carries at least four fifths of what a channel that loses every tenth frame can carry.
fn tcp_has_its_share() {
    let only = ["--only", "10 % loss", "--only", "with link"];
    let args = [&["tcp", "--seeds", "1", "--jobs", "2", "--lateness-max", "50ms"][..], &only].concat();
    let Some(cells) = valid("tcp_has_four_fifths_of_a_lossy_link", &args) else { return };
    assert_eq!(cells.len(), 2, "{cells:?}");
    for cell in cells {
        assert_eq!(cell["results"][0]["measure"], "capacity_share");
        assert!(cell["results"][0]["values"][0].as_f64().is_some_and(|share| share >= 0.8), "{cell}");
    }
}

/// What TCP carried until then is no figure of a link.
fn a_link_that_dies_voids_it() {
    let p = Place::new();
    let only = ["--only", "10 % loss", "--only", "with link", "--only", "read"];
    let args = ["lab", "wireless", "--real", "--json", "--lateness-max", "50ms", "tcp", "--seeds", "1", "--jobs", "1"];
    let running = p.start(&[&args[..], &only].concat());
    let line = concat!(env!("CARGO_BIN_EXE_remora"), "\0link\0mobile\0");
    let mut end = None;
    until("the mobile's end of the link", || {
        // Another test's may still be there.
        end = processes_of(line).find(|pid| is_below(*pid, running.pid()));
        end.is_some()
    });
    // The run has begun.
    std::thread::sleep(Duration::from_secs(4));
    let killed = kill_process(Pid::from_raw(end.unwrap()).unwrap(), Signal::KILL);
    let out = running.finish_within(CELLS_MAX);
    assert!(killed.is_ok(), "{killed:?}: {} {}", out.stdout, out.stderr);
    assert_eq!(out.code, 1, "{} {}", out.stdout, out.stderr);
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    let why = report["experiments"][0]["cells"][0]["failures"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("link-mobile ended in the middle of a run"), "{why}");
}

/// Whether `ancestor` started it, or what started it.
fn is_below(pid: i32, ancestor: i32) -> bool {
    let parent = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|parent| *parent > 0)
    };
    std::iter::successors(parent(pid), |pid| parent(*pid)).any(|pid| pid == ancestor)
}

/// Processes whose command line begins so.
fn processes_of(line: &str) -> impl Iterator<Item = i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(move |pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found.starts_with(line.as_bytes()))
    })
}

/// The first one's time is that of two who share the medium.
fn several_mobiles_copy() {
    let only = ["--only", "0 ms", "--only", "write", "--only", "linear + retransmit", "--only", "Remora"];
    let args = [&["two-mobiles", "--seeds", "1", "--jobs", "2", "--lateness-max", "50ms"][..], &only].concat();
    let Some(cells) = valid("several_mobiles_copy_at_once", &args) else { return };
    assert_eq!(cells.len(), 2, "{cells:?}");
    for cell in cells {
        assert_eq!(cell["settings"]["mobiles"], 2);
        // 2 MiB at 1 Mbit/s take 17 s; the difference between the clients is small.
        assert!(cell["results"][0]["values"][0].as_f64().is_some_and(|s| (14.0..25.0).contains(&s)), "{cell}");
    }
}

fn the_link_is_saturated() {
    let only = ["--only", "7 bad, 1 good", "--only", "160 ms"];
    let args = [&["saturation", "--seeds", "1", "--jobs", "1", "--lateness-max", "50ms"][..], &only].concat();
    let Some(cells) = valid("eight_mobiles_saturate_the_link", &args) else { return };
    let value = |n: usize| cells[0]["results"][n]["values"][0].as_f64().unwrap();
    assert!((0.7..1.0).contains(&value(0)), "utilisation: {cells:?}");
    assert!((0.7..2.0).contains(&value(1)), "the share of the good one: {cells:?}");
}

fn remora_arrives_intact() {
    let cells = check(&Place::new(), &["--seeds", "2"], &["Remora", "Remora + link"]);
    assert_eq!(cells.len(), 4, "{cells:?}");
    all_well(&cells, 2);
    assert!(cells.iter().all(|c| c["simulated"]["median"].is_f64()), "the simulator beside: {cells:?}");
}

fn peers_arrive_intact(systems: &[&str]) {
    let cells = check(&Place::new(), &["--peers", "--seeds", "1", "--kernel", "/nowhere"], systems);
    assert_eq!(cells.len(), 2 * systems.len(), "{cells:?}");
    all_well(&cells, 1);
}

fn linux_arrives_intact() {
    let kernel = std::env::var("REMORA_GUEST_KERNEL");
    let mut more = vec!["--peers", "--seeds", "1", "--only", "read"];
    match &kernel {
        Ok(directory) => more.extend(["--kernel", directory]),
        Err(_) if Path::new("/boot").read_dir().is_ok_and(|mut all| all.next().is_some()) => {}
        // Without a kernel here, the laboratory gets one.
        Err(_) if find("apt-get").is_some() => {}
        Err(_) => {
            skip::skipped("linux_arrives_intact", "no kernel here; REMORA_GUEST_KERNEL names an unpacked package");
            return;
        }
    }
    all_well(&check(&Place::new(), &more, &["Linux NFS"]), 1);
}

/// A run fails if an announcement finds nobody who listens.
fn a_switch_is_heard_of() {
    let p = Place::new();
    let levels = ["read", "announced", "Remora", "Remora + link"];
    let only: Vec<&str> = levels.iter().flat_map(|level| ["--only", level]).collect();
    let args = ["lab", "wireless", "--real", "--json", "--lateness-max", "50ms", "--seeds", "1", "handoff"];
    let report: Value = serde_json::from_str(&p.ok(&[&args[..], &only].concat())).unwrap();
    let cells = report["experiments"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{report}");
    for cell in cells {
        let resumed = cell["results"][0]["values"][0].as_f64();
        assert!(resumed.is_some_and(|s| s < 1.0), "not at once after the switch: {cell}");
    }
}

fn what_was_run_is_reported() {
    let p = Place::new();
    let out = p.here("out");
    let args =
        ["lab", "wireless", "--real", "--seeds", "1", "--jobs", "1", "--lateness-max", "50ms", "check", "bursts"];
    let mut command = p.command(&[&args[..], &["--only", "read", "--only", "Remora", "--only", "80 ms"]].concat());
    command.stdout(fs::File::create(&out).unwrap());
    let running = Running::start(command);
    let said = || fs::read_to_string(&out).unwrap();
    until("the first table", || said().contains("Remora"));
    running.signal("INT");
    assert_eq!(running.finish().code, 130);
    let said = said();
    assert_eq!(said.matches("bursts: ").count(), 1, "{said}");
    assert!(said.contains("Interrupted: not all runs were made."), "{said}");
}

/// Network namespaces, scratch directories, and processes that have to do with one.
#[derive(PartialEq, Eq, Debug)]
struct Traces {
    namespaces: BTreeSet<String>,
    scratch: BTreeSet<String>,
    devices: usize,
}

fn traces() -> Traces {
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(directory).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
        entries.iter().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    };
    let ours = |name: &String| name.starts_with("remora-lab-");
    let scratch = ["/dev/shm", "/tmp"].iter().flat_map(|d| names(d)).filter(ours).collect();
    let numbers = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    let namespace = |pid: String| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let namespaces = names("/proc").into_iter().filter(numbers).filter_map(namespace);
    Traces {
        namespaces: namespaces.map(|n| n.to_string_lossy().into_owned()).collect(),
        scratch,
        devices: fs::read_to_string("/proc/net/dev").map(|d| d.lines().count()).unwrap_or_default(),
    }
}

fn nothing_is_left_after(signal: &str) {
    let p = Place::new();
    let before = traces();
    let mut command =
        p.command(&["lab", "wireless", "--real", "bursts", "--only", "read", "--only", "500 ms", "--jobs", "2"]);
    command.stdout(Stdio::null());
    let running = Running::start(command);
    until("benches at work", || {
        let now = traces();
        // Two benches with two namespaces each in which something runs: the server, the copy.
        now.namespaces.difference(&before.namespaces).count() >= 4
            && now.scratch.difference(&before.scratch).count() >= 2
    });
    running.signal(signal);
    running.finish();
    until("all namespaces gone", || traces().namespaces.is_subset(&before.namespaces));
    until("all scratch directories gone", || traces().scratch.is_subset(&before.scratch));
    assert_eq!(traces().devices, before.devices);
}
