//! `remora bench` on `remora serve`: it measures, checks, and leaves nothing behind.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::common::between::{Fate, between};
use crate::common::{Place, names, until};
use remora_wire::nfs3::{Call, MadeOk, Reply, Status, Wcc};
use rustix::process::Signal;
use serde_json::Value;

/// Runs it with `--json`.
fn bench(p: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&p.ok(&[&["bench", "--json"], args].concat())).unwrap()
}

fn runs(operation: &Value, server: usize) -> &Vec<Value> {
    operation["servers"][server]["runs"].as_array().unwrap()
}

#[test]
fn every_operation_is_measured_and_nothing_is_left() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::write(p.srv("theirs"), "stays").unwrap();
    let sizes = ["--count", "40", "--outstanding", "8", "--connections", "3", "--files", "700"];
    let report = bench(&p, &[&[s.url("/").as_str()], &sizes[..]].concat());
    assert_eq!(report["skipped"], Value::Array(vec![]));
    let operations = report["operations"].as_array().unwrap();
    assert_eq!(operations.len(), p.ok(&["bench", "--list"]).lines().count());
    for operation in operations {
        let (name, run) = (operation["name"].as_str().unwrap(), &runs(operation, 0)[0]);
        let (count, bytes) = match name {
            "readdirplus" => (3..=3, 0),
            // Pairs of calls.
            "create-remove" => (80..=80, 0),
            "commit" => (80..=80, 40 * 4096),
            "read-4k" | "write-sync-4k" => (40..=40, 40 * 4096),
            "read-64k" | "write-64k" => (40..=40, 40 << 16),
            "read-1m" => (40..=40, 40 << 20),
            // Some of the scripts are pairs.
            "mix" => (40..=80, run["bytes"].as_u64().unwrap()),
            _ => (40..=40, 0),
        };
        assert!(count.contains(&run["operations"].as_u64().unwrap()), "{name}: {run}");
        assert_eq!(run["bytes"], bytes, "{name}");
        assert_eq!(run["entries"], if name == "readdirplus" { 3 * 700 } else { 0 }, "{name}");
        assert_eq!((run["lost"].as_u64(), run["late"].as_u64()), (Some(0), Some(0)), "{name}");
        let latency = |key| run["latency"][key].as_f64().unwrap();
        assert!(0.0 < latency("p50_us") && latency("p50_us") <= latency("max_us"), "{name}: {run}");
    }
    assert_eq!(names(&p.srv("")), ["theirs"]);
}

#[test]
fn udp_bench_skips_operations_that_do_not_fit() {
    let p = Place::new();
    let s = p.serve(&[]);
    let ops = "getattr,read-4k,read-64k,create-remove,mix";
    let report = bench(&p, &[&s.udp_url("/"), "--ops", ops, "--count", "50", "--outstanding", "4"]);
    assert_eq!(report["settings"]["transport"][0], "udp");
    let measured: Vec<&Value> = report["operations"].as_array().unwrap().iter().map(|o| &o["name"]).collect();
    assert_eq!(measured, ["getattr", "read-4k", "create-remove", "mix"]);
    assert_eq!(report["skipped"][0]["operation"], "read-64k");
    assert!(names(&p.srv("")).is_empty());
}

#[test]
fn two_servers_are_compared_round_by_round() {
    let p = Place::new();
    let (a, b) = (p.serve(&[]), p.serve(&["--cache", "off"]));
    let (a, b) = (a.url("/"), b.url("/"));
    let args = [&a, "--vs", &b, "--ops", "null,getattr", "--duration", "250ms", "--warm-up", "0", "--rounds", "6"];
    let report = bench(&p, &args);
    for operation in report["operations"].as_array().unwrap() {
        assert_eq!((runs(operation, 0).len(), runs(operation, 1).len()), (6, 6));
        let ratio = &operation["ratio"]["per_second"];
        let [low, median, high] = ["low", "median", "high"].map(|k| ratio[k].as_f64().unwrap());
        assert!(0.0 < low && low <= median && median <= high, "{ratio}");
    }
    let table = p.ok(&["bench", &a, "--vs", &b, "--ops", "null", "--duration", "50ms", "--rounds", "2"]);
    for word in ["A/B", "too few rounds", "p99.9", &a, &b] {
        assert!(table.contains(word), "no {word} in {table}");
    }
    assert!(names(&p.srv("")).is_empty());
}

#[test]
fn interrupted_bench_removes_its_directory() {
    let p = Place::new();
    let s = p.serve(&[]);
    let running = p.start(&["bench", &s.url("/"), "--ops", "create-remove", "--duration", "60s", "--outstanding", "8"]);
    let made = || {
        let scratch = fs::read_dir(p.srv("")).unwrap().next();
        scratch.is_some_and(|d| fs::read_dir(d.unwrap().path().join("new")).is_ok_and(|mut d| d.next().is_some()))
    };
    until("files made while measuring", made);
    running.signal_twice(Signal::INT);
    running.finish().expect(130, &["removing the test directory"]);
    assert!(names(&p.srv("")).is_empty());
}

#[test]
fn bench_ends_and_cleans_up_if_a_file_disappears() {
    let p = Place::new();
    let s = p.serve(&[]);
    let running = p.start(&["bench", &s.url("/"), "--ops", "read-4k", "--duration", "60s"]);
    let data = || Some(fs::read_dir(p.srv("")).unwrap().next()?.unwrap().path().join("data"));
    until("its file", || data().is_some_and(|d| fs::metadata(d).is_ok_and(|m| m.len() == 16 << 20)));
    fs::write(data().unwrap(), "changed").unwrap();
    running.finish().expect(1, &["read-4k", "wrong reply to Read"]);
    assert!(names(&p.srv("")).is_empty());
}

#[test]
fn dead_server_error_names_the_remaining_directory() {
    let p = Place::new();
    let s = p.serve(&[]);
    let args = ["bench", &s.url("/"), "--ops", "create-remove", "--duration", "60s", "--timeout", "5"];
    let running = p.start(&args);
    let scratch = || fs::read_dir(p.srv("")).unwrap().next().map(|d| d.unwrap().path());
    until("its last file", || scratch().is_some_and(|d| d.join("sync").exists()));
    s.kill();
    let name = scratch().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    running.finish().expect(3, &[&name, "could not be removed", "remora rm -r"]);
}

/// No call of a run is answered while it counts: it has no latency, least of all the best.
#[test]
fn run_without_completed_calls_is_reported() {
    let p = Place::new();
    let s = p.serve(&[]);
    let (fast, slow) = (
        s.udp_url("/"),
        between(&s, usize::MAX, |call| {
            // Not NULL, by which clients find out about a path.
            if matches!(call, Call::Access(_)) {
                thread::sleep(Duration::from_millis(150));
            }
            Fate::Pass(call)
        }),
    );
    let args = [&slow, "--vs", &fast, "--ops", "access", "--duration", "50ms", "--warm-up", "0", "--rounds", "2"];
    let report = bench(&p, &args);
    let operation = &report["operations"][0];
    assert_eq!((&operation["ratio"], &operation["servers"][0]["latency"]), (&Value::Null, &Value::Null), "{report}");
    assert!(operation["servers"][1]["latency"]["p99_us"].as_f64().is_some_and(|us| us > 0.0), "{report}");
    let table = p.ok(&[&["bench"], &args[..]].concat());
    let said = "access: no operation completed in 0.05 s in 2 of 4 runs: use --duration or --count";
    assert!(table.contains(said), "{table}");
}

/// MKDIR does not tell its handle, and nothing else does.
fn hidden(call: Call) -> Fate {
    match call {
        Call::MkDir(_) => Fate::Say(Reply::MkDir(Ok(MadeOk { fh: None, attr: None, dir: Wcc::NONE }))),
        Call::Lookup(_) => Fate::Fail(Status::Io),
        call => Fate::Pass(call),
    }
}

#[test]
fn directory_hidden_by_the_server_is_reported_as_left() {
    let p = Place::new();
    let s = p.serve(&[]);
    let run = |judge: fn(Call, bool) -> Fate| {
        let mut is_made = false;
        let url = between(&s, usize::MAX, move |call| {
            is_made |= matches!(call, Call::MkDir(_));
            judge(call, is_made)
        });
        p.run(&["bench", &url, "--ops", "null", "--count", "1"])
    };
    let left = ["remora-bench-", "could not be removed", "remora rm -r"];
    // FSINFO fails when it is there, and so does its removal.
    let out = run(|call, is_made| match call {
        Call::FsInfo(_) if is_made => Fate::Fail(Status::ServerFault),
        Call::RmDir(_) => Fate::Fail(Status::Access),
        call => Fate::Pass(call),
    });
    out.expect(1, &left);
    // It cannot be used, with and without a removal that fails.
    let out = run(|call, _| match call {
        Call::RmDir(_) => Fate::Fail(Status::Access),
        call => hidden(call),
    });
    out.expect(1, &left);
    let out = run(|call, _| hidden(call));
    assert!(out.code == 1 && !out.stderr.contains("removed"), "{out:?}");
}

#[test]
fn directories_whose_mkdir_was_sent_again_are_its_own() {
    let p = Place::new();
    let s = p.serve(&[]);
    let mut made = 0;
    let url = between(&s, usize::MAX, move |call| {
        made += u32::from(matches!(call, Call::MkDir(_)));
        if matches!(call, Call::MkDir(_)) && made % 2 == 1 { Fate::Lose(call) } else { Fate::Pass(call) }
    });
    p.ok(&["bench", &url, "--ops", "null", "--count", "1"]);
    assert!(names(&p.srv("")).is_empty());
}

#[test]
fn impossible_bench_flags_name_a_remedy() {
    let p = Place::new();
    let s = p.serve(&[]);
    p.run(&["bench"]).expect(2, &["URL"]);
    p.run(&["bench", "--drc", &s.url("/")]).expect(2, &["--drc"]);
    p.run(&["bench", &s.url("/"), "--ops", "getatr"]).expect(2, &["getatr", "getattr", "readdirplus"]);
    p.run(&["bench", &s.url("/"), "--connections", "2"]).expect(2, &["--outstanding 2"]);
    p.run(&["bench", &s.url("/"), "--outstanding", "1025"]).expect(2, &["1..=1024"]);
    p.run(&["bench", "http://nas/"]).expect(2, &["scheme"]);
    p.run(&["bench", &s.url("/none")]).expect(1, &["refuses to mount /none", "hint"]);
    p.run(&["bench", "nfs://127.0.0.1:1/"]).expect(3, &["cannot reach", "hint"]);
    let read_only = p.serve(&["--read-only"]);
    p.run(&["bench", &read_only.url("/")]).expect(1, &["read-only"]);
}
