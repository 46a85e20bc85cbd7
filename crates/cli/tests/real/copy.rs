//! `remora lab copy` with real programs in namespaces: small files, few runs. As root only; see
//! `common::trials` for where it is not.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::trials::trial;
use common::{Place, until};
use libtest_mimic::Arguments;
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let trial = |name, programs: &[&str], run| trial(name, programs, true, run, !arguments.list);
    let at_once = libtest_mimic::Trial::test("a_directory_that_is_not_there_is_named", || {
        a_directory_that_is_not_there_is_named();
        Ok(())
    });
    let all = &["unshare", "nfs-cp", "scp", "rsync", "ssh", "ssh-keygen", "sshd", "lftp", "vsftpd"];
    let trials = vec![
        at_once,
        trial("remora_is_copied_beside_a_load", &["unshare"], remora_is_copied_beside_a_load),
        trial("stations_collide_on_an_ethernet", &["unshare"], stations_collide_on_an_ethernet),
        trial("everybody_copies", all, everybody_copies),
        trial("a_page_is_written_whoever_reads", &["unshare"], a_page_is_written_whoever_reads),
        trial("what_was_run_before_ctrl_c_is_reported", &["unshare"], what_was_run_is_reported),
    ];
    // One after the other: they measure time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// Ten times as fast as the medium of Copy 89, and patient: a build machine may be busy.
fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["lab", "copy", "--rate", "100Mbit", "--sizes", "1", "--lateness-max", "500ms"], more].concat()
}

fn study(p: &Place, more: &[&str]) -> Value {
    let text = p.ok(&[arguments(more), vec!["--json"]].concat());
    serde_json::from_str(&text).unwrap()
}

/// Every run of every cell ended, with the right bytes.
fn all_well(report: &Value, seeds: u64) {
    for cell in report["cells"].as_array().unwrap() {
        assert_eq!(cell["failures"].as_array().map(Vec::len), Some(0), "{cell}");
        assert_eq!((&cell["seconds"]["runs"], &cell["seconds"]["censored"]), (&seeds.into(), &0.into()), "{cell}");
    }
}

fn remora_is_copied_beside_a_load() {
    let p = Place::new();
    let page = p.here("copy.html");
    let html = ["--html", page.to_str().unwrap()];
    let report = study(
        &p,
        &[&["--only", "remora", "--only", "same-disk", "--loads", "0,60", "--seeds", "2"][..], &html].concat(),
    );
    all_well(&report, 2);
    let cells = report["cells"].as_array().unwrap();
    // What starting takes, without load, at 60 %, and the disk alone.
    assert_eq!(cells.len(), 4, "{report}");
    let loaded = cells.iter().find(|c| c["load_percent"] == 60.0).unwrap();
    let carried = loaded["load_carried"]["median"].as_f64().unwrap();
    assert!((0.3..0.75).contains(&carried), "asked for 60 %: {loaded}");
    let wire = 8e6 / 100e6;
    assert!(loaded["seconds"]["min"].as_f64().is_some_and(|s| s > wire), "nobody is faster than the medium: {loaded}");
    assert!(loaded["predicted"]["seconds"].is_f64() && loaded["factor"]["runs"] == 2, "{loaded}");
    assert_eq!(report["parts"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(fs::read_to_string(page).unwrap().matches("<figure").count(), 5);
    assert!(loaded["simulated"]["seconds"].is_f64(), "{loaded}");
    assert_eq!(report["fitted"][0]["bytes"], 1_000_000, "{report}");
}

fn stations_collide_on_an_ethernet() {
    let cell = ["--only", "remora", "--loads", "0,60", "--seeds", "2", "--jobs", "2"];
    let report = study(&Place::new(), &[&cell[..], &["--medium", "ethernet"]].concat());
    all_well(&report, 2);
    assert_eq!(report["collisions"], true);
    let loaded = report["cells"].as_array().unwrap().iter().find(|c| c["load_percent"] == 60.0).unwrap();
    for run in loaded["runs"].as_array().unwrap() {
        assert!(run["collisions"].as_u64().is_some_and(|n| n > 10), "{run}");
    }
}

fn everybody_copies() {
    let report = study(&Place::new(), &["--loads", "0", "--seeds", "1"]);
    all_well(&report, 1);
    assert_eq!(report["parts"].as_array().map(Vec::len), Some(5), "{report}");
}

fn a_page_is_written_whoever_reads() {
    let study = arguments(&["--only", "same-disk", "--loads", "0", "--seeds", "1", "--html", "page.html"]);
    Place::new().page_is_written_whoever_reads(&study, "page.html");
}

/// What is wrong is named, and not what else may be.
fn a_directory_that_is_not_there_is_named() {
    let out = Place::new().run(&["lab", "copy", "--dir", "/nonexistent"]);
    assert_eq!((out.code, &out.stderr[..]), (1, "remora: lab: /nonexistent: no such file or directory\n"));
}

fn what_was_run_is_reported() {
    let p = Place::new();
    let dir = p.here("");
    let place = ["--dir", dir.to_str().unwrap()];
    let running = p.start(&arguments(&[&["--only", "remora", "--seeds", "1000", "--json"][..], &place].concat()));
    // Before its handler is there SIGINT ends it without a report; before the end of a run that is empty.
    running.until_it_catches_ctrl_c();
    until("a second run", || a_second_run_began(&dir));
    running.signal("INT");
    let out = running.finish();
    assert_eq!(out.code, 130, "{out:?}");
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(report["complete"], false, "{report}");
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.iter().any(|cell| cell["runs"].as_array().is_some_and(|runs| !runs.is_empty())), "{report}");
}

/// Whether a bench in `dir` copies another file than its first, which has then arrived.
fn a_second_run_began(dir: &Path) -> bool {
    let inside = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let files = inside(dir).flat_map(|bench| inside(&bench.path().join("mobile")));
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("file-") && name != "file-1")
}
