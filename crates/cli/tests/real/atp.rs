//! `remora lab atp --real`: real endpoints and the kernel's TCP on emulated links. As root only;
//! see `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::Place;
use common::trials::trial;
use libtest_mimic::Arguments;
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, root, run| trial(name, &[], root, run, !arguments.list);
    let trials = vec![
        trial("objects_arrive_over_either_and_the_report_says_so", true, objects_arrive),
        trial("without_rights_it_says_so_once", true, without_rights_it_says_so_once),
        trial("what_is_simulated_only_is_refused", false, what_is_simulated_only_is_refused),
    ];
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// Two seconds of validations and chunks, on a link that has room for all.
fn objects_arrive() {
    let words = "lab atp deadlines --real --json --workload filesystem --scheme tcp --scheme atp --seeds 1 --cells 2 \
                 --from 30s --length 2s --lateness-max 100ms";
    let text = Place::new().ok(&words.split_whitespace().collect::<Vec<_>>());
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["source"], &report["failures"]), (&"real".into(), &Value::Array(Vec::new())), "{report}");
    assert_eq!((&report["real"]["congestion"], &report["real"]["from_s"]), (&"cubic".into(), &30.0.into()));
    let delivered = |class: &str, scheme: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|r| r["class"] == class && r["scheme"] == scheme).unwrap();
        (row["delivered"]["median"].as_f64().unwrap(), row["objects"].as_f64().unwrap())
    };
    for scheme in ["tcp", "atp"] {
        // A build machine may be busy: what is late there is not what this is about.
        let (done, all) = delivered("high", scheme);
        assert!(all >= 19.0 && done >= all / 2.0, "{scheme}: {done} of {all}");
        assert!(delivered("low", scheme).0 >= 1.0, "{scheme}");
    }
}

fn what_is_simulated_only_is_refused() {
    for words in ["lab atp estimate --real", "lab atp --real --scheme quic", "lab atp --real --from 300s"] {
        Place::new().run(&words.split_whitespace().collect::<Vec<_>>()).expect(2, &[]);
    }
}

/// And nothing is run, as with the laboratory's other commands.
fn without_rights_it_says_so_once() {
    for words in ["lab atp --real", "lab wireless --real bursts"] {
        // A copy, since what is built may lie where only root gets.
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let binary = dir.path().join("remora");
        fs::copy(env!("CARGO_BIN_EXE_remora"), &binary).unwrap();
        let mut command = Command::new(&binary);
        command.args(words.split_whitespace()).uid(65534).gid(65534).current_dir("/");
        let out = command.output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{words}: {said}");
        assert!(said.starts_with("remora: lab: cannot emulate: cannot make a network namespace: "), "{words}: {said}");
        assert!(said.lines().count() == 1 && !said.contains("os error"), "{words}: {said}");
    }
}
