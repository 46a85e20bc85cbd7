//! Copies that are interrupted by signals, lost servers and failing links.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::common::copies::{FAST, SIZE, SLOW, journals, resumed};
use crate::common::{Daemon, Place, Running, names, noise, until};
use serde_json::Value;

/// Long enough for a download to be recorded: that happens after a second at the earliest, later on a busy disk.
const LONG: usize = 2 * SIZE;

fn interrupt_and_resume(
    args: impl Fn(&Daemon) -> [String; 2],
    source: fn(&Place) -> PathBuf,
    copy: fn(&Place) -> PathBuf,
) {
    let p = Place::new();
    fs::write(source(&p), noise(LONG, 5)).unwrap();
    fs::write(copy(&p), "the old one").unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let [from, to] = args(&relay);
    let running = p.start(&["cp", "--json", &from, &to]);
    until("a journal", || !journals(&p).is_empty());
    let started = Instant::now();
    running.signal("INT");
    running.finish().expect(130, &["interrupted", "--resume"]);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(fs::read(copy(&p)).unwrap(), b"the old one");

    // The same command over a better link.
    let port = relay.port();
    relay.kill();
    let _relay = p.relay_at(port, &s, FAST);
    let (bytes, before) = resumed(&p.ok(&["cp", "--json", "--resume", "--verify", &from, &to]));
    assert!(before > 0 && before + bytes >= LONG && bytes < LONG, "{bytes} and {before} from before");
    assert!(fs::read(copy(&p)).unwrap() == noise(LONG, 5));
    assert_eq!(journals(&p), Vec::<PathBuf>::new());
    assert_eq!((names(&p.srv("")).len(), names(&p.here("")).len()), (1, 1));
}

#[test]
fn interrupted_download_resumes() {
    interrupt_and_resume(|s| [s.udp_url("/f"), "f".into()], |p| p.srv("f"), |p| p.here("f"));
}

#[test]
fn interrupted_upload_resumes() {
    interrupt_and_resume(|s| ["f".into(), s.udp_url("/f")], |p| p.here("f"), |p| p.srv("f"));
}

/// Not only what the periodic COMMITs covered.
#[test]
fn interrupted_upload_keeps_all_received_bytes() {
    let p = Place::new();
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let arrived = || names(&p.srv("")).pop().map_or(0, |name| fs::metadata(p.srv(&name)).unwrap().len());
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a journal", || !journals(&p).is_empty());
    let noted = arrived();
    until("more has arrived", || arrived() > noted + 700_000);
    let started = Instant::now();
    running.signal("INT");
    running.finish().expect(130, &["interrupted", "--resume"]);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let arrived = arrived();
    let (_, before) = resumed(&p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")]));
    assert!(before as u64 * 100 > arrived * 85, "{before} of {arrived}");
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
}

/// Also of a copy that is complete with its first COMMIT and lacks only its name.
#[test]
fn upload_interrupted_before_rename_keeps_its_data() {
    let p = Place::new();
    fs::write(p.here("f"), noise(200_000, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, &["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", "80ms"]);
    let arrived = || names(&p.srv("")).pop().map_or(0, |name| fs::metadata(p.srv(&name)).unwrap().len());
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("all has arrived", || arrived() == 200_000);
    // In the round trip of the COMMIT.
    std::thread::sleep(Duration::from_millis(150));
    running.signal("INT");
    running.finish().expect(130, &["interrupted", "200 kB", "--resume"]);
    let (bytes, before) = resumed(&p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")]));
    assert_eq!((bytes, before), (0, 200_000));
    assert!(fs::read(p.srv("f")).unwrap() == noise(200_000, 5));
    assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], vec![]));
}

/// A directory with two large files.
fn two_files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    (0..2).for_each(|n| fs::write(dir.join(format!("f{n}")), noise(SIZE, 5 + n)).unwrap());
    fs::set_permissions(dir, fs::Permissions::from_mode(0o750)).unwrap();
    fs::File::open(dir).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
}

fn is_copy(dir: &Path) {
    assert_eq!(names(dir), ["f0", "f1"]);
    (0..2).for_each(|n| assert!(fs::read(dir.join(format!("f{n}"))).unwrap() == noise(SIZE, 5 + n)));
    let meta = fs::metadata(dir).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o750, 1_000_000_000));
}

/// Starts a copy over a slow link and interrupts it when a part of it can be resumed. Returns a fast link in its place.
fn cut_short(p: &Place, s: &Daemon, args: impl Fn(&Daemon) -> Vec<String>) -> Daemon {
    let relay = p.relay_at(0, s, SLOW);
    let args = args(&relay);
    let running = p.start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    until("a journal", || names_below(&p.here("")).chain(names_below(&p.state())).any(|n| n.ends_with(".json")));
    // It exists a moment before the copy records it.
    std::thread::sleep(Duration::from_millis(300));
    running.signal("INT");
    running.finish().expect(130, &["interrupted", "--resume"]);
    let port = relay.port();
    relay.kill();
    p.relay_at(port, s, FAST)
}

/// Names of everything below a directory.
fn names_below(dir: &Path) -> impl Iterator<Item = String> {
    let list = Command::new("find").arg(dir).output().unwrap();
    String::from_utf8(list.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Its directory exists by then, and the same command without --resume would copy into it.
fn a_tree_goes_on_under_its_new_name(
    args: impl Fn(&Daemon) -> [String; 2],
    source: fn(&Place) -> PathBuf,
    copy: fn(&Place) -> PathBuf,
) {
    let p = Place::new();
    two_files(&source(&p));
    let s = p.serve(&[]);
    let begin = |relay: &Daemon| [vec!["cp".into(), "-rq".into()], args(relay).into()].concat();
    let relay = cut_short(&p, &s, begin);
    let [from, to] = args(&relay);
    let (bytes, before) = resumed(&p.ok(&["cp", "-r", "--json", "--resume", &from, &to]));
    assert!(before > 0 && bytes < 2 * SIZE, "{bytes} and {before} from before");
    is_copy(&copy(&p));
    assert_eq!(p.left(), [""; 0]);
    // It is complete now, and is copied into.
    p.ok(&["cp", "-rq", "--resume", &from, &to]);
    is_copy(&copy(&p).join("t"));
    fs::remove_dir_all(copy(&p)).unwrap();
    drop(relay);

    // A removed directory has nothing to do with a later one of its name.
    let relay = cut_short(&p, &s, begin);
    let [from, to] = args(&relay);
    fs::rename(copy(&p), p.state().join("away")).unwrap();
    fs::create_dir(copy(&p)).unwrap();
    p.ok(&["cp", "-rq", "--resume", &from, &to]);
    is_copy(&copy(&p).join("t"));
}

#[test]
fn interrupted_tree_download_resumes() {
    a_tree_goes_on_under_its_new_name(|s| [s.udp_url("/t"), "new".into()], |p| p.srv("t"), |p| p.here("new"));
}

#[test]
fn interrupted_tree_upload_resumes() {
    a_tree_goes_on_under_its_new_name(|s| ["t".into(), s.udp_url("/new")], |p| p.here("t"), |p| p.srv("new"));
}

#[test]
fn restarted_tree_copy_equals_its_source() {
    let p = Place::new();
    two_files(&p.srv("t"));
    fs::create_dir(p.here("into")).unwrap();
    let s = p.serve(&[]);
    let args = |relay: &Daemon| ["cp", "-rq", &relay.udp_url("/t"), "into"].map(str::to_owned).to_vec();
    let relay = cut_short(&p, &s, args);
    p.ok(&["cp", "-rq", &relay.udp_url("/t"), "into"]);
    is_copy(&p.here("into/t"));
}

#[test]
fn a_copy_of_something_else_is_not_resumed() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(LONG, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", &relay.udp_url("/f"), "f"]);
    until("a journal", || !journals(&p).is_empty());
    p.run(&["cp", &s.url("/f"), "f"]).expect(1, &["another copy to this file is running"]);
    running.signal("KILL");
    assert_eq!(running.finish().code, -1);
    assert!(!p.here("f").exists());
    fs::write(p.srv("f"), noise(LONG, 6)).unwrap();
    assert_eq!(resumed(&p.ok(&["cp", "--json", "--resume", &s.url("/f"), "f"])), (LONG, 0));
    assert!(fs::read(p.here("f")).unwrap() == noise(LONG, 6));
    assert_eq!(names(&p.here("")), ["f"]);
}

#[test]
fn concurrent_uploads_to_one_name_do_not_mix() {
    let p = Place::new();
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let first = p.start(&["cp", "f", &relay.udp_url("/f")]);
    until("a part", || !names(&p.srv("")).is_empty());
    p.run(&["cp", "f", &s.url("/f")]).expect(1, &["another copy to this file is running"]);
    first.finish().expect(0, &[]);
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
    assert_eq!(p.left(), Vec::<String>::new());
}

/// With a long RTT an upload makes calls concurrently that it else makes in sequence.
#[test]
fn uploads_over_a_long_way_leave_the_copies_and_nothing_else() {
    let p = Place::new();
    fs::create_dir(p.srv("dir")).unwrap();
    fs::write(p.here("f"), noise(100_000, 5)).unwrap();
    fs::set_permissions(p.here("f"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::File::open(p.here("f")).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let s = p.serve(&[]);
    const ROUND_TRIPS_MIN: f64 = 3.0;
    for (delay, rtt) in [("40ms", 0.08), ("110ms", 0.22)] {
        let far = ["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", delay];
        let relay = p.relay_at(0, &s, &far);
        // To a new name, over an existing file, and into a directory.
        for (nth, (to, copy)) in [("/new", "new"), ("/new", "new"), ("/dir", "dir/f")].into_iter().enumerate() {
            let report = p.ok(&["cp", "--json", "f", &relay.udp_url(to)]);
            let report: Value = serde_json::from_str(&report).unwrap();
            let [all, mounting, copying] =
                ["seconds", "mount_seconds", "copy_seconds"].map(|k| report[k].as_f64().unwrap());
            // A known server is mounted meanwhile.
            assert!(copying >= ROUND_TRIPS_MIN * rtt && (nth > 0 || mounting >= rtt), "{report}");
            assert!((mounting + copying - all).abs() < 1e-6, "{report}");
            let meta = fs::metadata(p.srv(copy)).unwrap();
            assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o640, 1_000_000_000), "{copy}");
            assert!(fs::read(p.srv(copy)).unwrap() == noise(100_000, 5));
        }
        p.run(&["cp", "f", &relay.udp_url("/none/f/")]).expect(1, &["no such"]);
        assert_eq!((names(&p.srv("")), names(&p.srv("dir"))), (vec!["dir".into(), "new".into()], vec!["f".into()]));
        for copy in ["new", "dir/f"] {
            fs::remove_file(p.srv(copy)).unwrap();
        }
    }
}

/// Slow enough over TCP to be interrupted: one small block at a time.
const PLODDING: &[&str] = &["--block", "1K", "--window", "1"];

fn server_dies(
    args: &[&str],
    from: impl Fn(&Daemon) -> [String; 2],
    source: fn(&Place) -> PathBuf,
    copy: fn(&Place) -> PathBuf,
) {
    let p = Place::new();
    fs::write(source(&p), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let [from, to] = from(&s);
    let running = p.start(&[&["cp", "--json", &from, &to], args].concat());
    until("a part", || names(&p.here("")).len() + names(&p.srv("")).len() > 1);
    std::thread::sleep(Duration::from_millis(30));
    let port = s.port();
    s.kill();
    assert!(!copy(&p).exists(), "it was too fast for this test");
    std::thread::sleep(Duration::from_millis(300));
    let _s = p.serve_at(port, &[]);
    let out = running.finish();
    out.expect(0, &[]);
    assert_eq!(resumed(&out.stdout), (SIZE, 0), "bytes count once, however often they were sent");
    assert!(fs::read(copy(&p)).unwrap() == noise(SIZE, 5));
}

#[test]
fn a_download_outlives_its_server_over_tcp() {
    server_dies(PLODDING, |s| [s.url("/f?proto=tcp"), "f".into()], |p| p.srv("f"), |p| p.here("f"));
}

#[test]
fn an_upload_outlives_its_server_over_tcp() {
    server_dies(PLODDING, |s| ["f".into(), s.url("/f?proto=tcp")], |p| p.here("f"), |p| p.srv("f"));
}

#[test]
fn a_download_outlives_its_server_over_udp() {
    server_dies(PLODDING, |s| [s.udp_url("/f"), "f".into()], |p| p.srv("f"), |p| p.here("f"));
}

#[test]
fn an_upload_outlives_its_server_over_udp() {
    server_dies(PLODDING, |s| ["f".into(), s.udp_url("/f")], |p| p.here("f"), |p| p.srv("f"));
}

#[test]
fn lost_server_ends_the_copy() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(LONG, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", "--timeout", "1", &relay.udp_url("/f"), "f"]);
    until("a journal", || !journals(&p).is_empty());
    s.kill();
    running.finish().expect(3, &["does not answer", "--resume"]);
    assert!(!p.here("f").exists());
    assert_eq!(names(&p.here("")).len(), 2, "the part and its journal");
}

#[test]
fn a_bursty_link_costs_time_and_nothing_else() {
    let p = Place::new();
    let content = noise(400_000, 8);
    fs::write(p.srv("f"), &content).unwrap();
    let s = p.serve(&[]);
    let weather = ["--rate", "10Mbit", "--loss", "0.02", "--bad-mean", "40ms", "--good-mean", "200ms", "--seed", "3"];
    let relay = p.relay_at(0, &s, &weather);
    for retry in ["adaptive", "hybrid-linear"] {
        let args = ["cp", "--retry", retry, "--initial", "100ms", "--block", "4K", "--json", &relay.udp_url("/f"), "f"];
        let report: Value = serde_json::from_str(&p.ok(&args)).unwrap();
        assert!(report["retransmissions"].as_u64() > Some(0), "{report}");
        assert!(fs::read(p.here("f")).unwrap() == content, "{retry}");
    }
    let (code, numbers) = relay.interrupt("INT");
    assert_eq!(code, 0);
    // Requests by client; a known server is mounted by a client of its own.
    let lost = |line: &str| serde_json::from_str::<Value>(line).unwrap()["down"]["frames_lost"].as_u64();
    assert!(numbers.lines().any(|line| lost(line) > Some(0)), "{numbers}");
}

/// It gets the mode of its source just before its rename, and may be interrupted between.
#[test]
fn interrupted_download_of_a_read_only_file_resumes() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(LONG, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    // Modes do not restrict root.
    let command = |args: &[&str]| Running::start(p.as_nobody(args));
    for dir in [p.here(""), p.state()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let running = command(&["cp", &relay.udp_url("/f"), "f"]);
    until("a journal", || !journals(&p).is_empty());
    let part = p.here(".f.remora-part");
    fs::set_permissions(&part, fs::Permissions::from_mode(0o444)).unwrap();
    command(&["cp", &s.url("/f"), "f"]).finish().expect(1, &["another copy to this file is running"]);
    assert_eq!(fs::metadata(&part).unwrap().mode() & 0o777, 0o444, "the first one's, which is about to name it");
    running.signal("INT");
    running.finish().expect(130, &["interrupted", "--resume"]);
    let done = command(&["cp", "--json", "--resume", &s.url("/f"), "f"]).finish();
    done.expect(0, &[]);
    assert!(resumed(&done.stdout).1 > 0, "{}", done.stdout);
    assert!(fs::read(p.here("f")).unwrap() == noise(LONG, 5));
}

#[test]
fn download_without_rename_leaves_nothing() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", &relay.udp_url("/f"), "f"]);
    until("a journal", || !journals(&p).is_empty());
    fs::create_dir(p.here("f")).unwrap();
    running.finish().expect(1, &["f: is a directory"]);
    assert_eq!(names(&p.here("")), ["f"]);
}

#[test]
fn changing_source_is_an_error() {
    for (new_len, is_there, word) in [(SIZE + 5000, true, "changed during"), (5000, false, "was truncated")] {
        let p = Place::new();
        fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
        let s = p.serve(&[]);
        let relay = p.relay_at(0, &s, SLOW);
        let running = p.start(&["cp", "f", &relay.udp_url("/f")]);
        // The temporary file exists before the source is read.
        let has_bytes = |name: &String| fs::metadata(p.srv(name)).is_ok_and(|m| m.len() > 0);
        until("a part", || names(&p.srv("")).iter().any(has_bytes));
        fs::File::options().write(true).open(p.here("f")).unwrap().set_len(new_len as u64).unwrap();
        running.finish().expect(1, &[word]);
        let want = if is_there { vec!["f"] } else { vec![] };
        assert_eq!(names(&p.srv("")), want);
    }
}

/// A possible mixture is not taken for a complete copy later.
fn a_mixture_is_copied_again(
    args: impl Fn(&Daemon) -> [String; 2],
    source: fn(&Place) -> PathBuf,
    copy: fn(&Place) -> PathBuf,
) {
    let p = Place::new();
    fs::write(source(&p), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let [from, to] = args(&relay);
    let running = p.start(&["cp", "-q", "--json", &from, &to]);
    until("a journal", || !journals(&p).is_empty());
    // In place, as databases do.
    let written = fs::File::options().write(true).open(source(&p)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&written, &noise(SIZE, 6), 0).unwrap();
    let out = running.finish();
    out.expect(1, &["changed during the copy"]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&report["files"], &report["failed"]), (&1.into(), &1.into()));
    assert_eq!(fs::metadata(copy(&p)).unwrap().len(), SIZE as u64);
    let port = relay.port();
    relay.kill();
    let _relay = p.relay_at(port, &s, FAST);
    assert_eq!(resumed(&p.ok(&["cp", "--json", "--resume", &from, &to])), (SIZE, 0));
    assert!(fs::read(copy(&p)).unwrap() == noise(SIZE, 6));
}

#[test]
fn mixed_download_fails_and_is_repeated() {
    a_mixture_is_copied_again(|s| [s.udp_url("/f"), "f".into()], |p| p.srv("f"), |p| p.here("f"));
}

#[test]
fn mixed_upload_fails_and_is_repeated() {
    a_mixture_is_copied_again(|s| ["f".into(), s.udp_url("/f")], |p| p.here("f"), |p| p.srv("f"));
}

/// Writes other content of the same length and sets the time back, as programs do that edit the metadata of photographs
/// and songs.
fn rewrite_and_set_back(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &noise(SIZE, 6), 0).unwrap();
    file.set_modified(before).unwrap();
}

/// Its mtime does not show the change: once during the copy, once after a killed copy.
fn a_change_with_the_old_time_is_noticed(
    args: impl Fn(&Daemon) -> [String; 2],
    source: fn(&Place) -> PathBuf,
    copy: fn(&Place) -> PathBuf,
) {
    for is_killed in [false, true] {
        let p = Place::new();
        fs::write(source(&p), noise(SIZE, 5)).unwrap();
        let s = p.serve(&[]);
        let relay = p.relay_at(0, &s, SLOW);
        let [from, to] = args(&relay);
        let running = p.start(&["cp", "-q", &from, &to]);
        until("a journal", || !journals(&p).is_empty());
        if is_killed {
            running.signal("KILL");
        }
        rewrite_and_set_back(&source(&p));
        let out = running.finish();
        let port = relay.port();
        relay.kill();
        let _relay = p.relay_at(port, &s, FAST);
        if is_killed {
            let again = p.run(&["cp", "--json", "--resume", &from, &to]);
            again.expect(0, &["starts again", "the source changed"]);
            assert_eq!(resumed(&again.stdout), (SIZE, 0));
        } else {
            out.expect(1, &["may have changed during the copy", "--resume --verify"]);
            assert_eq!(resumed(&p.ok(&["cp", "--json", "--resume", "--verify", &from, &to])), (SIZE, 0));
        }
        assert!(fs::read(copy(&p)).unwrap() == noise(SIZE, 6), "killed: {is_killed}");
    }
}

#[test]
fn download_of_a_backdated_source_is_not_mixed() {
    a_change_with_the_old_time_is_noticed(|s| [s.udp_url("/f"), "f".into()], |p| p.srv("f"), |p| p.here("f"));
}

#[test]
fn upload_of_a_backdated_source_is_not_mixed() {
    a_change_with_the_old_time_is_noticed(|s| ["f".into(), s.udp_url("/f")], |p| p.here("f"), |p| p.srv("f"));
}

/// They set the ctime, too.
#[test]
fn new_mode_or_link_is_not_a_source_change() {
    let args = |s: &Daemon| [[s.udp_url("/f"), "f".into()], ["f".into(), s.udp_url("/f")]];
    for (i, source) in [Place::srv, Place::here].into_iter().enumerate() {
        let p = Place::new();
        fs::write(source(&p, "f"), noise(SIZE, 5)).unwrap();
        let s = p.serve(&[]);
        let relay = p.relay_at(0, &s, SLOW);
        let [from, to] = &args(&relay)[i];
        let running = p.start(&["cp", "-q", from, to]);
        until("a journal", || !journals(&p).is_empty());
        fs::set_permissions(source(&p, "f"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(source(&p, "f"), p.state().join("other")).unwrap();
        running.finish().expect(0, &[]);
    }
}
