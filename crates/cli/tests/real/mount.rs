//! `remora lab mount` with real programs in namespaces, on a fast link without errors. As root only; see
//! `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;

use common::Place;
use common::trials::trial;
use libtest_mimic::Arguments;
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, programs: &[&str], run| trial(name, programs, true, run, !arguments.list);
    let ssh = &["unshare", "sshfs", "ssh-keygen", "sshd"];
    let qemu = &["unshare", "ip", "qemu-system-x86_64", "busybox"];
    let trials = vec![
        trial("programs_work_on_every_mount_of_remora", &["unshare"], || work_on(&["udp", "atp", "tcp", "back"])),
        trial("programs_work_on_sshfs", ssh, || work_on(&["sshfs"])),
        trial("programs_work_on_the_kernels_client", qemu, || work_on(&["linux"])),
    ];
    // One after the other: they measure time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// What the works write arrives at the server: the laboratory compares it.
fn work_on(systems: &[&str]) {
    let link = ["--rate", "20Mbit", "--delay", "1ms", "--bad-mean", "0ms"];
    // A build machine may be busy, and this test is not about that.
    let runs = ["--seeds", "1", "--jobs", "1", "--lateness-max", "10s", "--json"];
    let works = ["--work", "save", "--work", "untar", "--work", "write"];
    let only: Vec<&str> = systems.iter().flat_map(|system| ["--only", system]).collect();
    let text = Place::new().ok(&[&["lab", "mount"][..], &link, &runs, &works, &only].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    let list = |field: &str| report[field].as_array().unwrap().clone();
    assert!(list("failures").is_empty() && list("invalid").is_empty(), "{report}");
    for system in systems {
        let cells: Vec<Value> = list("cells").into_iter().filter(|cell| cell["system"] == *system).collect();
        let measures: Vec<&str> = cells.iter().filter_map(|cell| cell["measure"].as_str()).collect();
        assert_eq!(measures, ["write", "save", "untar"], "{system}");
        for cell in &cells {
            let seconds = cell["runs"][0]["seconds"].as_f64().unwrap_or_else(|| panic!("cut off: {cell}"));
            // Nobody is faster than the link; a close of `back` waits only for this machine.
            let floor = cell["floor_seconds"].as_f64().filter(|_| *system != "back");
            assert!(seconds > 0.0 && floor.is_none_or(|floor| seconds >= floor), "{cell}");
        }
    }
}
