//! The commands on files, against `remora serve`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Daemon, Place, Running, is_root, names, noise};
use serde_json::Value;

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn ls_lists_sorted_and_long_and_as_json() {
    let p = Place::new();
    fs::write(p.srv("b"), "12345").unwrap();
    fs::create_dir(p.srv("a dir")).unwrap();
    symlink("b", p.srv("c")).unwrap();
    fs::write(p.srv("é\n"), "").unwrap();
    let s = p.serve(&[]);
    assert_eq!(p.ok(&["ls", &s.url("/")]), "a dir\nb\nc\né\\n\n");
    assert_eq!(p.ok(&["ls", &s.udp_url("/")]), "a dir\nb\nc\né\\n\n");
    // Under its last name and its whole path, too, and a file by itself.
    assert_eq!(p.ok(&["ls", &s.url("/srv/b")]), "b\n");
    assert_eq!(p.ok(&["ls", &s.url(p.srv("a dir").to_str().unwrap())]), "");
    let long = p.ok(&["ls", "-l", &s.url("/")]);
    assert!(long.contains("drwxr-xr-x") && long.contains(" 5 ") && long.contains("c -> b"), "{long}");
    let objects = json_lines(&p.ok(&["ls", "--json", &s.url("/")]));
    let types: Vec<&str> = objects.iter().map(|o| o["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["directory", "file", "symlink", "file"]);
    assert_eq!(
        (&objects[1]["size"], &objects[2]["target"], &objects[3]["name"]),
        (&5.into(), &"b".into(), &"é\n".into())
    );
    let stat = json_lines(&p.ok(&["stat", "--json", &s.url("/b")]));
    assert_eq!(stat, objects[1..2]);
    assert!(p.ok(&["stat", &s.url("/b")]).contains("5 bytes"));
}

#[test]
fn ls_of_several_urls_has_headings_and_sizes_as_ls_has() {
    let p = Place::new();
    for dir in ["a", "b"] {
        fs::create_dir(p.srv(dir)).unwrap();
    }
    fs::write(p.srv("a/.hidden"), vec![0; 1025]).unwrap();
    fs::write(p.srv("b/y"), "").unwrap();
    fs::write(p.srv("f"), "").unwrap();
    let s = p.serve(&[]);
    let (a, b, f, none) = (s.url("/a"), s.url("/b"), s.url("/f"), s.url("/none"));
    let out = p.run(&["ls", &a, &none, &f, &b]);
    out.expect(1, &["/none: no such file or directory"]);
    assert_eq!(out.stdout, format!("{f}\n\n{a}:\n.hidden\n\n{b}:\ny\n"));
    assert_eq!(p.ok(&["ls", &a, &b]), format!("{a}:\n.hidden\n\n{b}:\ny\n"));
    // As before these came, and so whatever is asked for.
    assert_eq!((p.ok(&["ls", &a]), p.ok(&["ls", "-a", &a])), (".hidden\n".into(), ".hidden\n".into()));
    for flags in ["-lh", "-lah"] {
        let long = p.ok(&["ls", flags, &a]);
        assert!(long.contains("  1.1K ") && long.contains(" .hidden"), "{long}");
    }
    let objects = json_lines(&p.ok(&["ls", "--json", "-R", &a, &f]));
    let found: Vec<_> = objects.iter().map(|o| (o["name"].as_str().unwrap(), o["url"].as_str().unwrap())).collect();
    assert_eq!(found, [("f", &*f), (".hidden", &*a)]);
    assert!(json_lines(&p.ok(&["ls", "--json", &f]))[0].get("url").is_none());
    assert!(p.ok(&["ls", "--help"]).contains("Examples:"));
    p.run(&["ls", "-h"]).expect(2, &["<URL>", "--help"]);
}

#[test]
fn exports_are_listed_and_hints_name_them() {
    let p = Place::new();
    fs::create_dir(p.srv("shut")).unwrap();
    fs::set_permissions(p.srv("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    let srv = p.srv("");
    let serve = ["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--allow", "127.0.0.0/8", "--json"];
    let s = Daemon::start(p.server_command(&serve));
    for server in [s.addr.to_string(), s.url("/"), s.udp_url("/whatever")] {
        assert_eq!(p.ok(&["exports", &server]), "/  127.0.0.0/8\n", "{server}");
    }
    let listed = json_lines(&p.ok(&["exports", "--json", &s.url("/")]));
    assert_eq!(listed, [serde_json::json!({"path": "/", "clients": ["127.0.0.0/8"]})]);
    if is_root() {
        p.run(&["ls", &s.url("/shut")]).expect(1, &["permission denied", "--squash none", "no_root_squash"]);
    }
    p.run(&["exports", "--timeout", "1", "127.0.0.1:1"]).expect(3, &["127.0.0.1:1"]);
}

#[test]
fn recursive_ls_continues_after_unreadable_directories() {
    let p = Place::new();
    for dir in ["b/inner/last", "a%", "shut"] {
        fs::create_dir_all(p.srv(dir)).unwrap();
    }
    for file in ["c", "b/y", "b/x", "b/inner/f", "a%/g", "shut/h"] {
        fs::write(p.srv(file), "").unwrap();
    }
    symlink("b", p.srv("a%/link")).unwrap();
    // As root the server would let root look everywhere.
    let srv = p.srv("");
    let serve = ["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--squash", "all", "--json"];
    let s = Daemon::start(p.server_command(&serve));
    let tree = "a%\nb\nc\nshut\na%/g\na%/link\nb/inner\nb/x\nb/y\nshut/h\nb/inner/f\nb/inner/last\n";
    assert_eq!(p.ok(&["ls", "-R", &s.url("/")]), tree);
    assert_eq!(p.ok(&["ls", "-R", &s.udp_url("/")]), tree);
    assert_eq!(p.ok(&["ls", "--recursive", &s.url("/b")]), "inner\nx\ny\ninner/f\ninner/last\n");
    assert_eq!(p.ok(&["ls", "-R", &s.url("/c")]), "c\n");
    assert!(p.ok(&["ls", "-lR", &s.url("/")]).contains("a%/link -> b\n"));
    let objects = json_lines(&p.ok(&["ls", "-R", "--json", &s.url("/")]));
    let names: Vec<&str> = objects.iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(names, tree.lines().collect::<Vec<_>>());
    fs::set_permissions(p.srv("shut"), fs::Permissions::from_mode(0o0)).unwrap();
    let lacking = p.run(&["ls", "-R", &s.url("/")]);
    lacking.expect(1, &["/shut: permission denied"]);
    assert_eq!(lacking.stdout, tree.replace("shut/h\n", ""));
    fs::create_dir_all(p.srv(&["d"; 258].join("/"))).unwrap();
    let deep = p.run(&["ls", "-R", &s.url("/")]);
    deep.expect(1, &["/shut: permission denied", "/d/d: directories are nested too deeply"]);
    assert_eq!(deep.stdout.lines().map(|line| line.matches('/').count()).max(), Some(256));
}

#[test]
fn a_file_survives_the_way_there_and_back() {
    let p = Place::new();
    let s = p.serve(&[]);
    // 1 byte, odd sizes, some blocks, holes at both ends.
    let holes = [vec![0; 300_000], noise(1000, 1), vec![0; 300_000]].concat();
    for (i, content) in [vec![], vec![7], noise(1_500_001, 3), holes].into_iter().enumerate() {
        for url in [s.url("/f"), s.udp_url("/f")] {
            fs::write(p.here("f"), &content).unwrap();
            fs::set_permissions(p.here("f"), fs::Permissions::from_mode(0o640)).unwrap();
            p.ok(&["cp", "--verify", "f", &url]);
            assert!(fs::read(p.srv("f")).unwrap() == content, "case {i}, up, {url}");
            let out = p.ok(&["cp", "--verify", "--json", &url, "back"]);
            assert!(fs::read(p.here("back")).unwrap() == content, "case {i}, down, {url}");
            let report: Value = serde_json::from_str(&out).unwrap();
            assert_eq!((&report["files"], &report["verified"]), (&1.into(), &1.into()));
            assert_eq!(report["bytes"].as_u64(), Some(content.len() as u64));
            for copy in [p.srv("f"), p.here("back")] {
                let (copy, source) = (fs::metadata(copy).unwrap(), fs::metadata(p.here("f")).unwrap());
                assert_eq!(
                    (copy.mode(), copy.mtime(), copy.mtime_nsec()),
                    (source.mode(), source.mtime(), source.mtime_nsec())
                );
            }
        }
    }
    // Nothing is left behind.
    assert_eq!(names(&p.srv("")), ["f"]);
    assert_eq!(names(&p.here("")), ["back", "f"]);
    assert_eq!(p.left(), Vec::<String>::new());
}

#[test]
fn cp_goes_into_directories_and_replaces_files() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::create_dir(p.srv("d")).unwrap();
    fs::write(p.srv("d/a"), "old").unwrap();
    fs::write(p.here("a"), "new").unwrap();
    fs::write(p.here("b c é"), "b").unwrap();
    p.ok(&["cp", "a", "b c é", &s.url("/d")]);
    assert_eq!(fs::read(p.srv("d/a")).unwrap(), b"new");
    assert_eq!(fs::read(p.srv("d/b c é")).unwrap(), b"b");
    fs::create_dir(p.here("into")).unwrap();
    p.ok(&["cp", &s.url("/d/b%20c%20%C3%A9"), &s.url("/d/a"), "into"]);
    assert_eq!(names(&p.here("into")), ["a", "b c é"]);
}

/// The first stays, and the others are copied.
/// What is mounted for the first of several URLs serves the others, too.
#[test]
fn requests_are_counted_once() {
    let p = Place::new();
    fs::create_dir(p.srv("d")).unwrap();
    ["a", "b", "c"].iter().for_each(|name| fs::write(p.srv("d").join(name), "x").unwrap());
    let s = p.serve(&[]);
    let requests = |names: &[&str]| {
        let urls: Vec<String> = names.iter().map(|name| s.url(&format!("/d/{name}"))).collect();
        let args: Vec<&str> =
            ["cp", "--json"].into_iter().chain(urls.iter().map(String::as_str)).chain(["."]).collect();
        let report: Value = serde_json::from_str(&p.ok(&args)).unwrap();
        report["requests"].as_u64().unwrap()
    };
    let (one, three) = (requests(&["a"]), requests(&["a", "b", "c"]));
    assert!(three < 3 * one, "{one} for one, {three} for three");
}

#[test]
fn second_source_of_the_same_name_is_skipped() {
    let p = Place::new();
    let s = p.serve(&[]);
    for dir in [p.srv("a"), p.srv("b"), p.here("a"), p.here("b")] {
        fs::create_dir_all(dir.join("t")).unwrap();
        let text = dir.file_name().unwrap().to_str().unwrap().to_owned();
        ["x", "t/y"].into_iter().for_each(|name| fs::write(dir.join(name), &text).unwrap());
    }
    fs::write(p.here("b/z"), "z").unwrap();
    fs::write(p.srv("b/z"), "z").unwrap();
    fs::create_dir(p.here("into")).unwrap();
    fs::create_dir(p.srv("into")).unwrap();
    let [into, none] = [s.url("/into"), s.url("/none/x")];
    let there = |name: &str| s.url(&format!("/{name}"));
    let urls = ["a/x", "a/t", "b/t", "b/x", "b/z"].map(there);
    let paths = ["a/x", "a/t", "b/t", "b/x", "b/z"];
    // One that failed has taken no name.
    let up = [&["cp", "-rq", "none/x"], &paths[..], &[&into]].concat();
    let down = [&["cp", "-rq", &none], &urls.each_ref().map(String::as_str)[..], &["into"]].concat();
    for (args, dir) in [(up, p.srv("into")), (down, p.here("into"))] {
        let out = p.run(&args);
        out.expect(1, &["b/x: is not copied", "b/t: is not copied"]);
        assert!(!out.stderr.contains("a/x:") && !out.stderr.contains("a/t:"), "{}", out.stderr);
        assert_eq!((names(&dir), names(&dir.join("t"))), (vec!["t".into(), "x".into(), "z".into()], vec!["y".into()]));
        ["x", "t/y"].into_iter().for_each(|name| assert_eq!(fs::read(dir.join(name)).unwrap(), b"a"));
    }
}

/// What a tree holds: names, modes, times of files, contents, targets of links.
fn tree(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_symlink() {
                format!("-> {:?}", fs::read_link(&path).unwrap())
            } else if meta.is_dir() {
                todo.push(path.clone());
                format!("{:o} {}.{}", meta.mode(), meta.mtime(), meta.mtime_nsec())
            } else {
                let content = fs::read(&path).unwrap();
                format!("{:o} {}.{} {}", meta.mode(), meta.mtime(), meta.mtime_nsec(), blake3::hash(&content))
            };
            lines.push(format!("{:?} {what}", path.strip_prefix(dir).unwrap()));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_survives_the_way_there_and_back() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::create_dir_all(p.here("t/sub dir/ünter/leer")).unwrap();
    for i in 0..60 {
        fs::write(p.here(&format!("t/sub dir/{i}")), noise(i * 777, i as u64)).unwrap();
    }
    fs::write(p.here("t/big"), noise(2_000_000, 9)).unwrap();
    fs::write(p.here("t").join(std::ffi::OsStr::from_bytes(b"not \xff text")), "x").unwrap();
    fs::set_permissions(p.here("t/sub dir/7"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(p.here("t/sub dir"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../outside", p.here("t/link")).unwrap();
    symlink("/nowhere", p.here("t/dangling")).unwrap();
    let want = tree(&p.here("t"));
    for query in ["", "?proto=udp"] {
        let out = p.ok(&["cp", "-r", "--json", "t", &s.url(&format!("/{query}"))]);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&report["files"], &report["directories"], &report["symlinks"]), (&62.into(), &4.into(), &2.into()));
        assert_eq!(tree(&p.srv("t")), want, "up{query}");
        p.ok(&["cp", "-r", "--verify", &s.url(&format!("/t{query}")), "copy"]);
        assert_eq!(tree(&p.here("copy")), want, "down{query}");
        p.ok(&["rm", "-r", &s.url("/t")]);
        assert_eq!(names(&p.srv("")), Vec::<String>::new());
        fs::remove_dir_all(p.here("copy")).unwrap();
    }
}

#[test]
fn files_and_names_arrive_whole_over_udp_alone() {
    let p = Place::new();
    let s = p.serve(&[]);
    fs::write(p.srv("large"), noise(3_000_000, 3)).unwrap();
    (0..300).for_each(|n| fs::write(p.srv(&format!("{n:0>100}")), "").unwrap());
    assert_eq!(p.ok(&["ls", &s.udp_url("/")]).lines().count(), 301);
    p.ok(&["cp", &s.udp_url("/large"), "large"]);
    assert!(fs::read(p.here("large")).unwrap() == noise(3_000_000, 3));
}

#[test]
fn pipe_in_a_tree_is_skipped() {
    let p = Place::new();
    fs::create_dir(p.srv("t")).unwrap();
    fs::write(p.srv("t/a"), "a").unwrap();
    let made = std::process::Command::new("mkfifo").arg(p.srv("t/pipe")).status().unwrap();
    assert!(made.success());
    let s = p.serve(&[]);
    let out = p.run(&["cp", "-r", "--json", &s.url("/t"), "t"]);
    out.expect(0, &["t/pipe: skipped", "fifo"]);
    assert_eq!(names(&p.here("t")), ["a"]);
    assert_eq!(serde_json::from_str::<Value>(&out.stdout).unwrap()["skipped"], 1);
}

#[test]
fn links_at_the_destination_are_replaced() {
    let p = Place::new();
    fs::create_dir_all(p.srv("t/d")).unwrap();
    fs::write(p.srv("t/f"), "theirs").unwrap();
    fs::create_dir(p.here("t")).unwrap();
    fs::write(p.here("mine"), "mine").unwrap();
    symlink("../mine", p.here("t/f")).unwrap();
    symlink("..", p.here("t/d")).unwrap();
    let s = p.serve(&[]);
    p.run(&["cp", "-r", &s.url("/t"), "."]).expect(1, &["t/d: exists and is not a directory"]);
    assert_eq!(fs::read(p.here("mine")).unwrap(), b"mine");
    assert_eq!(fs::read(p.here("t/f")).unwrap(), b"theirs");
    assert!(!p.here("t/f").is_symlink());
}

#[test]
fn a_link_does_not_replace_a_directory_and_leaves_nothing() {
    let p = Place::new();
    fs::create_dir_all(p.srv("t/d")).unwrap();
    fs::create_dir(p.here("t")).unwrap();
    symlink("..", p.here("t/d")).unwrap();
    let s = p.serve(&[]);
    p.run(&["cp", "-r", "t", &s.url("/")]).expect(1, &["t/d: is a directory"]);
    assert_eq!(names(&p.srv("t")), ["d"]);
}

#[test]
fn unfinished_copies_are_left_out() {
    let p = Place::new();
    fs::create_dir(p.srv("t")).unwrap();
    for name in ["x", ".x.remora-part", ".x.remora-part.json"] {
        fs::write(p.srv("t").join(name), name).unwrap();
    }
    let s = p.serve(&[]);
    let out = p.run(&["cp", "-r", &s.url("/t"), "t"]);
    out.expect(0, &["t/.x.remora-part: skipped", "unfinished copy"]);
    assert_eq!(names(&p.here("t")), ["x"]);
    assert_eq!(fs::read(p.here("t/x")).unwrap(), b"x");
}

#[test]
fn resumed_tree_skips_complete_files() {
    let p = Place::new();
    fs::create_dir(p.here("t")).unwrap();
    for i in 0..5u64 {
        fs::write(p.here(&format!("t/{i}")), noise(10_000, i)).unwrap();
    }
    let s = p.serve(&[]);
    p.ok(&["cp", "-r", "t", &s.url("/")]);
    fs::write(p.here("t/3"), noise(10_000, 33)).unwrap();
    let copied = |out: String| {
        let report: Value = serde_json::from_str(&out).unwrap();
        (report["bytes"].as_u64().unwrap(), report["resumed_bytes"].as_u64().unwrap())
    };
    assert_eq!(copied(p.ok(&["cp", "-r", "--resume", "--json", "t", &s.url("/")])), (10_000, 40_000));
    assert_eq!(copied(p.ok(&["cp", "-r", "--resume", "--json", &s.url("/t"), "."])), (0, 50_000));
    assert_eq!(tree(&p.srv("t")), tree(&p.here("t")));
    // One that only looks the same is found out by --verify, and copied again.
    let time = fs::metadata(p.here("t/1")).unwrap().modified().unwrap();
    fs::write(p.here("t/1"), noise(10_000, 99)).unwrap();
    fs::File::options().write(true).open(p.here("t/1")).unwrap().set_modified(time).unwrap();
    assert_eq!(copied(p.ok(&["cp", "-r", "--resume", "--verify", "--json", &s.url("/t"), "."])), (10_000, 40_000));
    assert_eq!(tree(&p.srv("t")), tree(&p.here("t")));
}

/// A tree's own directory, too, when the try before left it unfinished.
#[test]
fn resumed_trees_are_as_private_as_their_sources() {
    let p = Place::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for dir in ["private", "private/inner"] {
        fs::create_dir(p.srv(dir)).unwrap();
        fs::set_permissions(p.srv(dir), fs::Permissions::from_mode(0o750)).unwrap();
    }
    fs::write(p.srv("private/inner/f"), "f").unwrap();
    let s = p.serve(&[]);
    fs::create_dir_all(p.here("dl/private/inner")).unwrap();
    p.ok(&["cp", "-r", "-q", &s.url("/private"), "dl"]);
    assert_eq!(mode(&p.here("dl/private")), 0o755, "the user's own");
    p.ok(&["cp", "-r", "-q", "--resume", &s.url("/private"), "dl"]);
    for dir in ["dl/private", "dl/private/inner"] {
        assert_eq!(mode(&p.here(dir)), 0o750, "{dir}");
    }
}

#[test]
fn hostile_names_are_escaped_on_the_terminal() {
    let p = Place::new();
    let name = "x\x1b]0;title\x07\x1b[2J";
    fs::create_dir(p.srv("d")).unwrap();
    fs::write(p.srv(&format!("d/{name}")), "").unwrap();
    fs::create_dir_all(p.here(&format!("d/{name}"))).unwrap();
    let s = p.serve(&[]);
    let out = p.run(&["cp", "-r", "-q", &s.url("/d"), "."]);
    out.expect(1, &["u{1b}", "is a directory"]);
    assert!(!out.stderr.contains(['\x1b', '\x07']), "{:?}", out.stderr);
}

/// A name here is any bytes.
#[test]
fn names_need_not_be_utf_8() {
    let p = Place::new();
    let name = OsStr::from_bytes(b"f\xff");
    fs::write(p.here("").join(name), "f").unwrap();
    let s = p.serve(&[]);
    let cp = |from: &OsStr, to: &OsStr| {
        let mut command = p.command(&["cp", "-q"]);
        command.arg(from).arg(to);
        Running::start(command).finish().expect(0, &[]);
    };
    cp(name, OsStr::new(&s.url("/")));
    assert_eq!(fs::read(p.srv("").join(name)).unwrap(), b"f");
    cp(name, OsStr::new(&s.url("/f")));
    let down = OsStr::from_bytes(b"\xfe");
    cp(OsStr::new(&s.url("/f")), down);
    assert_eq!(fs::read(p.here("").join(down)).unwrap(), b"f");
}

#[test]
fn a_failure_is_counted_once() {
    let p = Place::new();
    fs::create_dir(p.srv("d")).unwrap();
    fs::write(p.srv("d/f"), "f").unwrap();
    let s = p.serve(&[]);
    let (d, e) = (s.url("/d"), s.url("/d/f"));
    // Nothing listens there any more.
    s.kill();
    let out = p.run(&["cp", "-r", "--json", "--timeout", "1", &d, &e, "."]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(
        (out.code, &report["failed"], report["errors"].as_array().unwrap().len()),
        (3, &1.into(), 1),
        "{report}"
    );
}

#[test]
fn directories_are_made_moved_and_removed() {
    let p = Place::new();
    let s = p.serve(&[]);
    p.ok(&["mkdir", &s.url("/a")]);
    p.ok(&["mkdir", "-p", &s.url("/a/b/c"), &s.url("/a")]);
    fs::write(p.srv("f"), "f").unwrap();
    p.ok(&["mv", &s.url("/f"), &s.url("/g h")]);
    p.ok(&["mv", &s.url("/g%20h"), &s.url("/a/b")]);
    assert_eq!(names(&p.srv("a/b")), ["c", "g h"]);
    p.ok(&["mv", &s.url("/a/b"), &s.url("/z")]);
    p.run(&["rm", &s.url("/z")]).expect(1, &["is a directory", "-r"]);
    p.ok(&["rm", &s.url("/z/g%20h")]);
    p.ok(&["rm", "-r", &s.url("/z"), &s.url("/a")]);
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
    p.run(&["rm", &s.url("/z")]).expect(1, &["no such file"]);
    p.ok(&["rm", "-f", &s.url("/z"), &s.url("/y/x")]);
}

/// As deep as they may lie: each level once took a part of a thread's stack.
#[test]
fn deep_directories_are_removed() {
    let p = Place::new();
    fs::create_dir_all(p.srv(&"d/".repeat(256))).unwrap();
    let s = p.serve(&[]);
    p.ok(&["rm", "-r", &s.url("/d")]);
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
    fs::create_dir_all(p.srv(&"d/".repeat(258))).unwrap();
    p.run(&["rm", "-r", &s.url("/d")]).expect(1, &["too deep"]);
    assert_eq!(names(&p.srv("")), ["d"]);
}

#[test]
fn links_on_the_way_are_followed_within_the_export_only() {
    let p = Place::new();
    fs::create_dir_all(p.srv("a/b")).unwrap();
    fs::write(p.srv("a/b/f"), "found").unwrap();
    fs::write(p.here("secret"), "secret").unwrap();
    symlink("a/b", p.srv("in")).unwrap();
    symlink("../a/b/f", p.srv("a/up")).unwrap();
    symlink("../here", p.srv("out")).unwrap();
    symlink("/etc/passwd", p.srv("abs")).unwrap();
    symlink("loop", p.srv("loop")).unwrap();
    let s = p.serve(&[]);
    assert_eq!(p.ok(&["cat", &s.url("/in/f")]), "found");
    assert_eq!(p.ok(&["cat", &s.url("/a/up"), &s.url("/in/f")]).len(), 10);
    assert_eq!(p.ok(&["cat", &s.url("/a/b/../up")]), "found");
    p.run(&["cat", &s.url("/out/secret")]).expect(1, &["no such file"]);
    p.run(&["cat", &s.url("/abs")]).expect(1, &["points to /etc/passwd"]);
    p.run(&["cat", &s.url("/loop")]).expect(1, &["too many symbolic links"]);
}

#[test]
fn cat_prints_all_and_ends_quietly_on_a_closed_pipe() {
    let p = Place::new();
    let text: String = (0..1_000_000).map(|i| format!("{i}\n")).collect();
    fs::write(p.srv("f"), &text).unwrap();
    let s = p.serve(&[]);
    for url in [s.url("/f"), s.udp_url("/f")] {
        assert!(p.ok(&["cat", &url]) == text, "{url}");
    }
    let mut child = p.command(&["cat", &s.url("/f")]).spawn().unwrap();
    let head = std::process::Command::new("head").args(["-n", "2"]).stdin(child.stdout.take().unwrap()).output();
    assert_eq!(head.unwrap().stdout, b"0\n1\n");
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), &out.stderr[..]), (Some(0), &b""[..]));
    let full = p.command(&["cat", &s.url("/f")]).stdout(fs::File::create("/dev/full").unwrap()).output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&full.stderr).contains("no space left"), "{full:?}");
    // A reader that has gone before anything came.
    let closed = p.command(&["ls", &s.url("/")]).stdout(Stdio::null()).output().unwrap();
    assert_eq!(closed.status.code(), Some(0));
}

#[test]
fn df_and_help_and_version() {
    let p = Place::new();
    let s = p.serve(&[]);
    let room: Value = serde_json::from_str(&p.ok(&["df", "--json", &s.url("/")])).unwrap();
    assert!(room["total"].as_u64() >= room["available"].as_u64() && room["total"].as_u64() > Some(0));
    assert!(p.ok(&["df", &s.url("/")]).contains('%'));
    assert!(p.ok(&["--help"]).contains("130"));
    let help = p.ok(&["cp", "--help"]);
    assert!(help.contains("--resume") && help.contains("remora serve 32K over UDP"), "{help}");
    assert!(p.ok(&["--version"]).starts_with(concat!("remora ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn unwritable_help_is_an_error() {
    let p = Place::new();
    for args in [&["--help"][..], &["--version"], &["cp", "--help"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let out = p.command(args).stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(1) && said.contains("no space left"), "{args:?}: {:?} {said}", out.status);
    }
}

#[test]
fn several_shares_have_names_of_their_own() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    fs::write(p.here("g"), "g").unwrap();
    let export = format!("extra={}", p.here("").display());
    let s = p.serve(&["--export", &export]);
    assert_eq!(p.ok(&["ls", &s.url("/srv")]), "f\n");
    assert_eq!(p.ok(&["ls", &s.url("/extra")]), "g\n");
    p.run(&["ls", &s.url("/")]).expect(1, &["no such export"]);
    p.run(&["mv", &s.url("/srv/f"), &s.url("/extra/f")]).expect(1, &["across file systems"]);
    assert_eq!(s.interrupt("TERM").0, 0);
}

/// As a drop box: what is put there is there.
#[test]
fn write_only_directory_accepts_copies() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 5)).unwrap();
    let s = p.serve(&[]);
    fs::create_dir(p.here("drop")).unwrap();
    fs::set_permissions(p.here("drop"), fs::Permissions::from_mode(0o333)).unwrap();
    let mut cp = p.command(&["cp", "-q", &s.url("/f"), "drop/f"]);
    if crate::common::is_root() {
        // Whom no mode keeps out: without what lets it read everything it is as others are.
        let dropped = ["--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"];
        let mut other = Command::new("setpriv");
        other.args(dropped).arg(cp.get_program()).args(cp.get_args()).current_dir(p.here(""));
        other.env("XDG_STATE_HOME", p.state()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        cp = other;
    }
    Running::start(cp).finish().expect(0, &[]);
    fs::set_permissions(p.here("drop"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(names(&p.here("drop")), ["f"]);
    assert!(fs::read(p.here("drop/f")).unwrap() == noise(300_000, 5));
}

/// The file systems of memory sticks know no modes, and some say so. strace(1) stands in for one.
#[test]
fn disk_without_modes_keeps_the_copy() {
    let may_trace = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    if !may_trace.is_ok_and(|status| status.success()) {
        return skip::skipped("disk_without_modes_keeps_the_copy", "strace may not trace here");
    }
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 5)).unwrap();
    let s = p.serve(&[]);
    let cp = p.command(&["cp", "-q", &s.url("/f"), "f"]);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", "trace=fchmod", "-e", "inject=fchmod:error=EPERM"]);
    strace.arg(cp.get_program()).args(cp.get_args()).current_dir(p.here("")).env("XDG_STATE_HOME", p.state());
    strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(strace).finish().expect(1, &["f: the copy is complete", "mode and time", "not permitted"]);
    assert!(fs::read(p.here("f")).unwrap() == noise(300_000, 5));
    assert_eq!(names(&p.here("")), ["f"]);
}
