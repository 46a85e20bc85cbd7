//! `remora lab wireless --real`: real programs on the emulated link, and nothing left of them
//! afterwards. As root only; see `common::trials` for where it is not.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::trials::{find, trial};
use common::{Place, Running, until};
use libtest_mimic::Arguments;
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
    let mut args = vec!["lab", "wireless", "--real", "--json", "--lateness-max", "50ms", "check"];
    args.extend(more);
    levels.iter().for_each(|level| args.extend(["--only", level]));
    let report: Value = serde_json::from_str(&p.ok(&args)).unwrap();
    assert_eq!(report["source"], "real", "{report}");
    report["experiments"][0]["cells"].as_array().unwrap().clone()
}

/// Every run of every cell ended in time, with the right bytes, and the emulator kept its word:
/// else it is among the failures, and the command fails.
fn all_well(cells: &[Value], seeds: u64) {
    for cell in cells {
        assert_eq!(cell["failures"].as_array().map(Vec::len), Some(0), "{cell}");
        let summary = &cell["results"][0]["summary"];
        assert_eq!((&summary["runs"], &summary["censored"]), (&seeds.into(), &0.into()), "{cell}");
        assert!(cell["lateness_ms_max"].as_f64().is_some_and(|ms| ms <= 50.0), "{cell}");
        // 256 KiB at 1 Mbit/s; nobody is faster than the channel.
        assert!(cell["ratio"]["min"].as_f64().is_some_and(|r| (1.0..10.0).contains(&r)), "{cell}");
    }
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
