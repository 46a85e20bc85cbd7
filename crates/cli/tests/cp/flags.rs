//! Flags of `remora cp` that say what is copied, what is kept, and how fast.

use std::fs::{self, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::common::{Daemon, Place, is_root, names, noise};

const DAY: u64 = 86_400;

/// What `-p` keeps, in the order of [`looks`], of a file that is owned by root or the caller.
fn dress(path: &Path, mode: u32) {
    if is_root() {
        chown(path, Some(1234), Some(5678)).unwrap();
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let at = |days| SystemTime::UNIX_EPOCH + Duration::from_secs(days * DAY);
    let times = FileTimes::new().set_accessed(at(9000)).set_modified(at(8000));
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

fn looks(path: &Path) -> (u32, u32, u32, i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.atime(), meta.mtime())
}

#[test]
fn archive_keeps_owner_times_and_links_both_ways() {
    let p = Place::new();
    fs::create_dir_all(p.here("tree/dir")).unwrap();
    fs::write(p.here("tree/dir/f"), "content").unwrap();
    symlink("dir/f", p.here("tree/link")).unwrap();
    dress(&p.here("tree/dir/f"), 0o4751);
    dress(&p.here("tree/dir"), 0o1755);
    let want = [looks(&p.here("tree/dir/f")), looks(&p.here("tree/dir"))];
    let s = p.serve(&[]);
    p.ok(&["cp", "-a", "tree", &s.url("/tree")]);
    assert_eq!([looks(&p.srv("tree/dir/f")), looks(&p.srv("tree/dir"))], want);
    p.ok(&["cp", "-a", &s.url("/tree"), "back"]);
    assert_eq!([looks(&p.here("back/dir/f")), looks(&p.here("back/dir"))], want);
    assert_eq!(fs::read_link(p.here("back/link")).unwrap(), Path::new("dir/f"));
    // Without -p only permission bits and the time of modification.
    p.ok(&["cp", "-r", &s.url("/tree"), "plain"]);
    let (mode, _, _, atime, mtime) = looks(&p.here("plain/dir/f"));
    assert_eq!((mode, mtime), (0o751, want[0].4));
    assert_ne!(atime, want[0].3);
    // As one who may not set the owner: that is left out, and the set-user-ID bit with it.
    s.kill();
    let srv = p.srv("");
    let serve = ["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--squash", "all", "--json"];
    let squashed = Daemon::start(p.server_command(&serve));
    fs::set_permissions(p.srv(""), Permissions::from_mode(0o777)).unwrap();
    p.ok(&["cp", "-p", "back/dir/f", &squashed.url("/f")]);
    let (mode, uid, _, atime, mtime) = looks(&p.srv("f"));
    assert_eq!((atime, mtime), (want[0].3, want[0].4));
    assert_eq!(mode, if uid == want[0].1 { 0o4751 } else { 0o751 });
}

#[test]
fn no_clobber_keeps_files_and_verbose_names_copies() {
    let p = Place::new();
    fs::create_dir(p.here("tree")).unwrap();
    for (name, content) in [("old", "new content"), ("fresh", "fresh")] {
        fs::write(p.here(&format!("tree/{name}")), content).unwrap();
    }
    symlink("new", p.here("tree/link")).unwrap();
    fs::create_dir(p.srv("tree")).unwrap();
    fs::write(p.srv("tree/old"), "there before").unwrap();
    symlink("before", p.srv("tree/link")).unwrap();
    let s = p.serve(&[]);
    let url = s.url("/");
    let out = p.run(&["cp", "-rnv", "tree", &url]);
    out.expect(0, &["/tree/old: skipped: it exists", "/tree/link: skipped"]);
    assert_eq!(out.stdout, format!("'tree/fresh' -> '{}'\n", s.url("/tree/fresh")));
    assert_eq!(fs::read(p.srv("tree/old")).unwrap(), b"there before");
    assert_eq!(fs::read_link(p.srv("tree/link")).unwrap(), Path::new("before"));
    p.ok(&["cp", "-n", "tree/old", &s.url("/tree/old")]);
    assert_eq!(fs::read(p.srv("tree/old")).unwrap(), b"there before");
    // The other way.
    fs::create_dir_all(p.here("to/tree")).unwrap();
    fs::write(p.here("to/tree/old"), "kept").unwrap();
    symlink("kept", p.here("to/tree/link")).unwrap();
    assert_eq!(
        p.ok(&["cp", "-rnv", &s.url("/tree"), "to"]),
        format!("'{}' -> 'to/tree/fresh'\n", s.url("/tree/fresh"))
    );
    assert_eq!(fs::read(p.here("to/tree/old")).unwrap(), b"kept");
    assert_eq!(fs::read_link(p.here("to/tree/link")).unwrap(), Path::new("kept"));
    assert_eq!(names(&p.srv("tree")), ["fresh", "link", "old"], "nothing hidden stays");
    let report: serde_json::Value =
        serde_json::from_str(&p.ok(&["cp", "-rn", "--json", &s.url("/tree"), "to"])).unwrap();
    assert_eq!((&report["files"], &report["skipped"]), (&0.into(), &3.into()));
    p.run(&["cp", "-v", "--json", "tree/old", &url]).expect(2, &["--json"]);
}

/// The files below a directory.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(dir) {
        let path = dir.join(&name);
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found
}

#[test]
fn rules_leave_files_out_both_ways() {
    let p = Place::new();
    for file in ["a.jpg", "a.txt", "cache/b.jpg", "cache/keep", "photos/2026/c.jpg", "photos/2026/c.tmp", "photos/d"] {
        let file = p.here(&format!("tree/{file}"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    let s = p.serve(&[]);
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--exclude", "*.tmp", "--exclude", "cache/"], &["a.jpg", "a.txt", "photos/2026/c.jpg", "photos/d"]),
        (&["--include", "*.jpg"], &["a.jpg", "cache/b.jpg", "photos/2026/c.jpg"]),
        (
            &["--include", "/cache/keep", "--exclude", "cache/**", "--include", "*.jpg"],
            &["a.jpg", "cache/keep", "photos/2026/c.jpg"],
        ),
        (
            &["--exclude", "cache/**", "--include", "/cache/keep", "--include", "/photos/*/*"],
            &["photos/2026/c.jpg", "photos/2026/c.tmp"],
        ),
    ];
    for (nth, (rules, want)) in cases.into_iter().enumerate() {
        let name = format!("copy{nth}");
        p.ok(&[&["cp", "-r"][..], rules, &["tree", &s.url(&format!("/{name}"))]].concat());
        assert_eq!(files(&p.srv(&name)), want, "up: {rules:?}");
        p.ok(&["cp", "-r", "tree", &s.url(&format!("/whole{nth}"))]);
        p.ok(&[&["cp", "-r"][..], rules, &[&s.url(&format!("/whole{nth}")), &name]].concat());
        assert_eq!(files(&p.here(&name)), want, "down: {rules:?}");
    }
    assert!(!p.srv("copy0/cache").exists() && !p.here("copy0/cache").exists(), "a directory left out as a whole");
    p.run(&["cp", "-r", "--exclude", "a**b", "tree", &s.url("/x")]).expect(2, &["'a**b' is not a pattern"]);
}

/// A limit makes a copy take at least as long as it says, whatever else the machine does.
#[test]
fn bandwidth_limit_holds_over_each_transport() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 1)).unwrap();
    fs::write(p.here("f"), noise(300_000, 2)).unwrap();
    let s = p.serve(&["--atp", "127.0.0.1:0"]);
    let [at, key] = ["listen", "key"].map(|what| s.ready["atp"][what].as_str().unwrap());
    let url = |proto: &str, name: &str| match proto {
        "atp" => format!("nfs://{at}/{name}?proto=atp&key={key}"),
        _ => format!("nfs://{}/{name}?proto={proto}", s.addr),
    };
    let transports = ["udp", "tcp", "atp"];
    // All at a time: each has the limit for itself.
    let mut copies = Vec::new();
    for proto in transports {
        let (up, down) = (format!("up-{proto}"), format!("down-{proto}"));
        for (from, to) in [("f".to_owned(), url(proto, &up)), (url(proto, "f"), down)] {
            copies.push(p.start(&["cp", "--json", "--bwlimit", "150", &from, &to]));
        }
    }
    for copy in copies {
        let out = copy.finish();
        assert_eq!(out.code, 0, "{out:?}");
        let report: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
        // 300,000 bytes at 153,600 a second, less the first and the last block.
        assert!(report["seconds"].as_f64().unwrap() > 1.6, "{report}");
    }
    for proto in transports {
        assert!(fs::read(p.srv(&format!("up-{proto}"))).unwrap() == noise(300_000, 2), "{proto}");
        assert!(fs::read(p.here(&format!("down-{proto}"))).unwrap() == noise(300_000, 1), "{proto}");
    }
    p.run(&["cp", "--bwlimit", "fast", "f", &s.url("/x")]).expect(2, &["'fast' is not a rate"]);
}
