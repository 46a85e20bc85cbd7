//! Trees: round trips, durability when success is reported, and partial failures.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::common::between::{Fate, between};
use crate::common::copies::resumed;
use crate::common::{Place, Running, names, noise};
use remora_wire::nfs3::{Call, Status};
use skip::skipped;

/// One-way delay of the emulated path.
const DELAY: Duration = Duration::from_millis(200);

/// Runs a command; returns its round trips.
fn trips(p: &Place, args: &[&str]) -> u128 {
    let started = Instant::now();
    p.ok(args);
    started.elapsed().as_millis() / (2 * DELAY).as_millis()
}

/// Without concurrency, or with eight at a time, each takes 50 round trips and more; on a machine at rest, 10 to 20.
#[test]
fn many_small_things_far_away_share_round_trips() {
    let p = Place::new();
    fs::create_dir_all(p.here("many")).unwrap();
    (0..400).for_each(|n| fs::write(p.here(&format!("many/{n}")), noise(2000, n + 1)).unwrap());
    for n in 0..25 {
        fs::create_dir_all(p.here(&format!("dirs/{n}"))).unwrap();
        fs::write(p.here(&format!("dirs/{n}/f")), "f").unwrap();
    }
    fs::create_dir(p.srv("links")).unwrap();
    (0..60).for_each(|n| symlink(format!("to-{n}"), p.srv(&format!("links/{n}"))).unwrap());
    let s = p.serve(&[]);
    let delay = format!("{}ms", DELAY.as_millis());
    let relay = p.relay_at(0, &s, &["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", &delay]);
    let url = |path: &str| relay.udp_url(path);
    let links = p.ok(&["ls", "-l", &s.url("/links")]);
    assert_eq!(links.lines().filter(|line| line.contains(" -> to-")).count(), 60, "{links}");
    for args in [
        &["ls", "-l", &url("/links")][..],
        &["cp", "-rq", "many", &url("/")],
        &["cp", "-rq", &url("/many"), "back-many"],
        &["rm", "-r", &url("/many")],
        &["cp", "-rq", "dirs", &url("/")],
        &["cp", "-rq", &url("/dirs"), "back-dirs"],
        &["rm", "-r", &url("/dirs")],
    ] {
        let took = trips(&p, args);
        println!("{took} round trips: {args:?}");
        assert!(took < 45, "{took} round trips: {args:?}");
    }
    assert_eq!(p.ok(&["ls", "-l", &url("/links")]), links);
    for n in 0..400 {
        assert!(fs::read(p.here(&format!("back-many/{n}"))).unwrap() == noise(2000, n + 1), "{n}");
    }
    assert_eq!(names(&p.here("back-dirs")).len(), 25);
    assert_eq!(names(&p.srv("")), ["links"]);
}

/// Their modes forbid filling them, and filling changes their times.
#[test]
fn read_only_directories_are_copied_with_their_mode() {
    let p = Place::new();
    let dirs = ["t/a/b/c", "t/a/b", "t/a", "t"];
    fs::create_dir_all(p.here(dirs[0])).unwrap();
    for dir in dirs {
        fs::write(p.here(dir).join("f"), "f").unwrap();
        let dir = fs::File::open(p.here(dir)).unwrap();
        dir.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
        dir.set_permissions(fs::Permissions::from_mode(0o555)).unwrap();
    }
    for open in [p.srv(""), p.here("")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let s = p.serve(&[]);
    for (from, to) in [("t", s.url("/")), (&s.url("/t"), "back".to_owned())] {
        Running::start(p.as_nobody(&["cp", "-rq", from, &to])).finish().expect(0, &[]);
    }
    for top in [p.srv("t"), p.here("back"), p.here("t")] {
        for dir in ["a/b/c", "a/b", "a", ""].map(|dir| top.join(dir)) {
            let meta = fs::metadata(&dir).unwrap();
            assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o555, 1_000_000_000), "{}", dir.display());
            // For the cleanup.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// They have their final modes by then, and the copy continues in them.
#[test]
fn read_only_tree_is_completed_after_a_failed_file() {
    let p = Place::new();
    for tree in [p.here("up"), p.srv("down")] {
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("d/a"), "a").unwrap();
        fs::write(tree.join("d/b"), "b").unwrap();
    }
    [p.srv(""), p.here(""), p.state()].iter().for_each(|dir| mode(dir, 0o777));
    let s = p.serve(&[]);
    for (from, tree, to, copy) in [
        ("up", p.here("up"), s.url("/"), p.srv("up")),
        ("up", p.here("up"), s.url("/new"), p.srv("new")),
        (&s.url("/down"), p.srv("down"), "back".to_owned(), p.here("back")),
    ] {
        mode(&tree.join("d/b"), 0);
        ["d", ""].iter().for_each(|dir| mode(&tree.join(dir), 0o555));
        Running::start(p.as_nobody(&["cp", "-rq", from, &to])).finish().expect(1, &["d/b", "permission denied"]);
        mode(&tree.join("d/b"), 0o644);
        Running::start(p.as_nobody(&["cp", "-rq", "--resume", from, &to])).finish().expect(0, &[]);
        assert_eq!(names(&copy.join("d")), ["a", "b"], "{to}");
        for dir in [copy.join("d"), copy, tree.join("d"), tree] {
            assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o555, "{}", dir.display());
            // For the cleanup.
            mode(&dir, 0o755);
        }
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

/// The disk is full for a directory while a file that did not fit is given up.
#[test]
fn full_disk_during_a_tree_leaves_nothing_unfinished() {
    let p = Place::new();
    fs::create_dir_all(p.here("t/d")).unwrap();
    fs::write(p.here("t/f"), noise(50_000, 3)).unwrap();
    let s = p.serve(&[]);
    let (mut is_given_up, mut is_full) = (false, false);
    let url = between(&s, usize::MAX, move |call| match call {
        Call::Write(_) => Fate::Fail(Status::NoSpc),
        Call::MkDir(new) if new.at.name == b"d"[..] && is_given_up => {
            is_full = true;
            Fate::Fail(Status::NoSpc)
        }
        Call::MkDir(new) if new.at.name == b"d"[..] => Fate::Ignore,
        Call::Remove(_) if !is_full => {
            is_given_up = true;
            Fate::Ignore
        }
        call => Fate::Pass(call),
    });
    p.run(&["cp", "-rq", "t", &url]).expect(1, &["no space left"]);
    assert_eq!(names(&p.srv("t")), [""; 0]);
}

/// Success is reported when directories, links and their names are on the disk; checked by strace(1).
#[test]
fn trees_are_safe_when_success_is_reported() {
    let may_trace = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    if !may_trace.is_ok_and(|status| status.success()) {
        return skip::skipped("trees_are_safe_when_success_is_reported", "strace may not trace here");
    }
    let p = Place::new();
    fs::create_dir_all(p.srv("t/empty/inner")).unwrap();
    symlink("nowhere", p.srv("t/link")).unwrap();
    fs::create_dir(p.here("mine")).unwrap();
    fs::create_dir(p.here("mine/t")).unwrap();
    let s = p.serve(&[]);
    for (from, to, dirs) in [
        ("/t", "new", &["", "new", "new/empty", "new/empty/inner"][..]),
        ("/t", "mine", &["mine/t", "mine/t/empty", "mine/t/empty/inner"]),
        ("/t/link", "link", &[""]),
    ] {
        let log = p.state().join("trace");
        let cp = p.command(&["cp", "-rq", &s.url(from), to]);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-e", "trace=/^(mkdir|symlink|rename|fchmod|fsync|syncfs)", "-o"]).arg(&log);
        strace.arg(cp.get_program()).args(cp.get_args()).current_dir(p.here("")).env("XDG_STATE_HOME", p.state());
        strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(strace).finish().expect(0, &[]);
        let trace = fs::read_to_string(&log).unwrap();
        let of = |dir: &str| p.here(dir).canonicalize().unwrap();
        dirs.iter().for_each(|dir| assert!(is_flushed(&trace, &of(dir)), "{dir:?} of {to}: {trace}"));
    }
}

/// Whether this directory was flushed after its last name was made and after its mode was set.
fn is_flushed(trace: &str, dir: &Path) -> bool {
    let at = format!("<{}>", dir.display());
    let names_one = |line: &str| ["mkdir", "symlink", "rename"].iter().any(|call| line.contains(call));
    let is_change = |line: &&str| names_one(line) || (line.contains("fchmod(") && line.contains(&at));
    let lines: Vec<&str> = trace.lines().collect();
    let after = lines.iter().rposition(is_change).map_or(0, |last| last + 1);
    lines[after..].iter().any(|line| line.contains("fsync(") && line.contains(&at))
}

/// As rm(1) does.
#[test]
fn rm_continues_after_a_failure() {
    let p = Place::new();
    for dir in ["t/open/deep", "t/closed/deep", "t/secret"] {
        fs::create_dir_all(p.srv(dir)).unwrap();
    }
    for file in ["t/f", "t/open/f", "t/open/deep/f", "t/closed/x", "t/closed/y", "t/closed/deep/f"] {
        fs::write(p.srv(file), "").unwrap();
    }
    let modes = [("t", 0o777), ("t/open", 0o777), ("t/open/deep", 0o777), ("t/closed/deep", 0o777)];
    let shut: [(&str, u32); 2] = [("t/closed", 0o555), ("t/secret", 0o000)];
    let set = |(dir, mode): (&str, u32)| fs::set_permissions(p.srv(dir), fs::Permissions::from_mode(mode)).unwrap();
    modes.into_iter().chain(shut).for_each(set);
    fs::write(p.srv("last"), "").unwrap();
    fs::set_permissions(p.srv(""), fs::Permissions::from_mode(0o777)).unwrap();
    let s = p.serve(&[]);
    let out = Running::start(p.as_nobody(&["rm", "-r", &s.url("/t"), &s.url("/last")])).finish();
    shut.into_iter().for_each(|(dir, _)| set((dir, 0o755)));
    let denied = ["t/closed/x", "t/closed/y", "t/closed/deep", "t/secret"].map(|at| format!("{at}: permission denied"));
    out.expect(1, &denied.each_ref().map(String::as_str));
    assert_eq!(out.stderr.matches("remora: rm: ").count(), denied.len(), "nothing of what they lie in: {}", out.stderr);
    let left: Vec<PathBuf> = ["", "t", "t/closed", "t/closed/deep"].map(|dir| p.srv(dir)).into();
    let left: Vec<Vec<String>> = left.iter().map(|dir| names(dir)).collect();
    assert_eq!(left, [vec!["t"], vec!["closed", "secret"], vec!["deep", "x", "y"], vec![]]);
}

/// NFSv3 has times from 1970 to 2106. Others become the nearest, and are recognised.
#[test]
fn times_beyond_nfs_range_are_copied_once() {
    let p = Place::new();
    fs::create_dir(p.here("d")).unwrap();
    let (year, half) = (Duration::from_secs(31_557_600), Duration::from_millis(500));
    let times = [
        ("old", UNIX_EPOCH - 10 * year - half, 0),
        ("just-old", UNIX_EPOCH - half, 0),
        ("first", UNIX_EPOCH, 0),
        ("new", UNIX_EPOCH + 200 * year + half, i64::from(u32::MAX)),
    ];
    for (name, time, _) in times {
        fs::write(p.here("d").join(name), noise(1000, 5)).unwrap();
        fs::File::options().write(true).open(p.here("d").join(name)).unwrap().set_modified(time).unwrap();
    }
    if fs::metadata(p.here("d/new")).unwrap().modified().unwrap() != times[3].1 {
        return skipped("times_beyond_nfs_range_are_copied_once", "the file system has no such times");
    }
    fs::File::open(p.here("d")).unwrap().set_modified(times[0].1).unwrap();
    let s = p.serve(&[]);
    p.ok(&["cp", "-r", "-q", "d", &s.url("/")]);
    for (name, _, secs) in times {
        assert_eq!(fs::metadata(p.srv("d").join(name)).unwrap().mtime(), secs, "{name}");
    }
    assert_eq!(fs::metadata(p.srv("d")).unwrap().mtime(), 0);
    assert_eq!(resumed(&p.ok(&["cp", "-r", "--json", "--resume", "d", &s.url("/")])), (0, 4000));
}

/// The user's own directory, not one that an earlier copy made.
#[test]
fn named_directory_keeps_mode_and_time_when_resuming() {
    let p = Place::new();
    fs::create_dir(p.srv("sub")).unwrap();
    fs::write(p.srv("sub/f"), "f").unwrap();
    [(p.srv(""), 0o777), (p.srv("sub"), 0o751)].iter().for_each(|(path, bits)| mode(path, *bits));
    fs::create_dir(p.here("d")).unwrap();
    mode(&p.here("d"), 0o711);
    let s = p.serve(&[]);
    let bits = |name: &str| fs::metadata(p.here(name)).unwrap().mode() & 0o7777;
    for _ in 0..2 {
        p.ok(&["cp", "-r", "-q", "--resume", &s.url("/"), "d"]);
        assert_eq!((bits("d"), bits("d/sub")), (0o711, 0o751));
    }
    // One with the source's name is taken for a copy.
    mode(&p.here("d/sub"), 0o700);
    p.ok(&["cp", "-r", "-q", "--resume", &s.url("/sub"), "d"]);
    assert_eq!((bits("d"), bits("d/sub")), (0o711, 0o751));
}
