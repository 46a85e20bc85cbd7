//! Servers and file systems that take different names for one, and servers that give a file another handle with each
//! name.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::common::{Output, Place, names, noise};
use crate::odd_fs::{OddFs, serve};
use serde_json::Value;

/// Neither case nor accents count, as on APFS.
fn without_case(name: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(name).to_lowercase();
    name.replace('\u{e9}', "e").replace('\u{301}', "").into_bytes()
}

fn folding() -> Arc<OddFs> {
    Arc::new(OddFs { fold: without_case, ..OddFs::new() })
}

fn contents(fs: &OddFs) -> Vec<(String, String)> {
    let text = |content| String::from_utf8(content).unwrap();
    fs.tree().into_iter().map(|(path, content)| (path, text(content))).collect()
}

/// A failure that names both.
#[track_caller]
fn names_both(out: &Output, one: &str, other: &str) {
    let lines: Vec<_> = out.stderr.lines().filter(|line| line.contains("was just copied")).collect();
    let found = lines.iter().any(|line| {
        let mut sides = line.split("it would replace").map(str::to_owned);
        let (first, second) = (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        (first.contains(one) && second.contains(other)) || (first.contains(other) && second.contains(one))
    });
    assert!(found && out.code == 1, "{one}, {other}: {}", out.stderr);
}

#[test]
fn upload_to_a_server_that_folds_names_keeps_the_first() {
    for proto in ["tcp", "udp"] {
        let p = Place::new();
        for (name, content) in [("README", "big"), ("readme", "small"), ("caf\u{e9}", "1"), ("cafe\u{301}", "2")] {
            fs::write(p.here(name), content).unwrap();
        }
        let fs = folding();
        let (_serving, url) = serve(fs.clone(), &format!("?proto={proto}"));
        let args = ["README", "caf\u{e9}", "readme", "cafe\u{301}"];
        let out = p.run(&[&["cp", "--json"][..], &args, &[&url]].concat());
        names_both(&out, "README", "readme");
        names_both(&out, "caf\u{e9}", "cafe\u{301}");
        let report: Value = serde_json::from_str(&out.stdout).unwrap();
        assert_eq!((report["files"].as_u64(), report["failed"].as_u64()), (Some(2), Some(2)));
        assert_eq!(contents(&fs), [("README", "big"), ("caf\u{e9}", "1")].map(|(a, b)| (a.into(), b.into())));
        // What was there before is replaced.
        p.ok(&["cp", "-q", "readme", &url]);
        assert_eq!(contents(&fs)[0], ("README".into(), "small".into()));
    }
}

/// All at once, in new directories, where nothing is looked up before.
#[test]
fn upload_of_a_tree_to_a_folding_server_loses_nothing_unseen() {
    for verify in [false, true] {
        let p = Place::new();
        let pairs = 40;
        fs::create_dir_all(p.here("t/Dir")).unwrap();
        fs::create_dir(p.here("t/dir")).unwrap();
        for n in 0..pairs {
            for name in [format!("File-{n}"), format!("fILE-{n}")] {
                fs::write(p.here("t").join(&name), &name).unwrap();
            }
        }
        for (path, content) in [("Dir/x", "1"), ("dir/X", "2"), ("dir/y", "3"), ("Dir-2", "file")] {
            fs::write(p.here("t").join(path), content).unwrap();
        }
        fs::create_dir(p.here("t/dir-2")).unwrap();
        symlink("Dir", p.here("t/Link")).unwrap();
        symlink("dir", p.here("t/link")).unwrap();
        let fs = folding();
        let (_serving, url) = serve(fs.clone(), "?proto=tcp");
        let flags = if verify { &["--verify"][..] } else { &[] };
        let out = p.run(&[&["cp", "-r", "--json"][..], flags, &["t", &url]].concat());
        for n in 0..pairs {
            names_both(&out, &format!("File-{n}"), &format!("fILE-{n}"));
        }
        for (one, other) in [("Dir", "dir"), ("Dir-2", "dir-2"), ("Link", "link")] {
            names_both(&out, one, other);
        }
        let report: Value = serde_json::from_str(&out.stdout).unwrap();
        let there = fs.tree();
        let files = there.iter().filter(|(path, _)| path.to_lowercase().contains("/file-")).count() as u64;
        assert_eq!((files, report["failed"].as_u64()), (pairs, Some(pairs + 3)));
        for (path, content) in there.iter().filter(|(path, _)| path.to_lowercase().contains("/file-")) {
            assert_eq!(format!("t/{}", String::from_utf8_lossy(content)), *path, "whole, and its own");
        }
        // Of the two directories one is there with what is its own.
        let below: Vec<_> = there.iter().filter(|(path, _)| path.to_lowercase().starts_with("t/dir/")).collect();
        assert!(below.len() == 2 && below[1].1 == b"1" || below.len() == 3 && below[1].1 == b"2", "{below:?}");
        // When it goes on nothing is lost either; the other directory may come first then and add its own files.
        let again = p.run(&["cp", "-r", "--resume", "--json", "t", &url]);
        let now: Vec<String> = fs.tree().iter().map(|(path, _)| path.to_lowercase()).collect();
        assert!(
            again.code == 1 && there.iter().all(|(path, _)| now.contains(&path.to_lowercase())),
            "{}",
            again.stderr
        );
    }
}

#[test]
fn repeated_upload_to_a_folding_server_loses_nothing_unseen() {
    let p = Place::new();
    for name in ["README", "readme"] {
        fs::write(p.here(name), "same").unwrap();
        fs::File::open(p.here(name)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let (_serving, url) = serve(folding(), "?proto=tcp");
    for flags in [&["-q"][..], &["-q", "--resume"], &["-q", "--resume", "--verify"], &["-q", "-n"]] {
        let out = p.run(&[&["cp"][..], flags, &["README", "readme", &url]].concat());
        names_both(&out, "README", "readme");
    }
}

#[test]
fn upload_to_a_server_that_keeps_case_takes_no_more_calls() {
    let p = Place::new();
    fs::create_dir(p.here("t")).unwrap();
    (0..50).for_each(|n| fs::write(p.here(&format!("t/file-{n}")), "x").unwrap());
    let fs = Arc::new(OddFs::new());
    let (_serving, url) = serve(fs, "?proto=tcp");
    let report: Value = serde_json::from_str(&p.ok(&["cp", "-r", "--json", "t", &url])).unwrap();
    let requests = report["requests"].as_u64().unwrap();
    // CREATE, WRITE, RENAME and SETATTR.
    assert!(requests < 50 * 4 + 20, "{requests}");
    for name in ["README", "readme"] {
        fs::write(p.here("t").join(name), name).unwrap();
    }
    p.ok(&["cp", "-r", "-q", "t", &format!("{}/new?proto=tcp", url.split("/?").next().unwrap())]);
}

/// Where the names of the copies are one, as two names of one inode are.
#[test]
fn download_that_meets_what_it_just_made_keeps_it() {
    use crate::common::between::{Fate, between};
    use remora_wire::nfs3::Call;
    let p = Place::new();
    for name in ["a", "b"] {
        fs::write(p.srv(name), name).unwrap();
    }
    let s = p.serve(&[]);
    let (one, other) = (p.here("a"), p.here("b"));
    // By the time that the second is asked for its name is that of the first.
    let url = between(&s, usize::MAX, move |call| {
        if let Call::Read(_) = &call {
            let _ = fs::hard_link(&one, &other);
        }
        Fate::Pass(call)
    });
    let at = |name: &str| url.replace("/?", &format!("/{name}?"));
    let out = p.run(&["cp", "-q", &at("a"), &at("b"), "."]);
    names_both(&out, "a", "b");
    assert_eq!(fs::read(p.here("b")).unwrap(), b"a");
    assert_eq!(names(&p.here("")), ["a", "b"]);
}

/// NTFS takes names that differ in case for one, where it is mounted so.
#[test]
fn download_to_ntfs_that_folds_case_keeps_the_first() {
    let p = Place::new();
    let (image, disk) = (p.here("image"), p.here("disk"));
    fs::create_dir(&disk).unwrap();
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mkntfs").args(["-Q", "-F"]).arg(&image).output();
    let mounted =
        made.and_then(|_| Command::new("lowntfs-3g").args(["-o", "ignore_case"]).args([&image, &disk]).output());
    if !mounted.is_ok_and(|out| out.status.success()) {
        return skip::skipped(&skip::this_test(), "no NTFS can be mounted (root, ntfs-3g and /dev/fuse)");
    }
    let unmount = || Command::new("umount").arg("-l").arg(&disk).status();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copies_to_ntfs(&p)));
    unmount().unwrap();
    done.unwrap();
}

fn copies_to_ntfs(p: &Place) {
    fs::create_dir_all(p.srv("t/Dir")).unwrap();
    fs::create_dir(p.srv("t/dir")).unwrap();
    fs::create_dir(p.srv("t/Mixed")).unwrap();
    for name in ["README", "readme", "t/AA", "t/mixed", "t/aa", "t/Bb", "t/bB", "t/ccc", "t/Dir/x", "t/dir/y"] {
        fs::write(p.srv(name), name).unwrap();
    }
    let s = p.serve(&[]);
    let out = p.run(&["cp", "-q", &s.url("/README"), &s.url("/readme"), "disk"]);
    names_both(&out, "README", "readme");
    assert_eq!(fs::read(p.here("disk/README")).unwrap(), b"README");
    for flags in [&["--verify"][..], &["--resume"], &["-n"]] {
        let out = p.run(&[&["cp", "-r", "--json"][..], flags, &[&s.url("/t"), "disk"]].concat());
        for (one, other) in [("AA", "aa"), ("Bb", "bB"), ("Dir", "dir"), ("Mixed", "mixed")] {
            names_both(&out, one, other);
        }
        let listed = names(&p.here("disk/t"));
        assert_eq!(
            listed.iter().map(|name| name.to_lowercase()).collect::<Vec<_>>(),
            ["aa", "bb", "ccc", "dir", "mixed"]
        );
        assert_eq!(names(&p.here("disk/t/dir")).len(), 1);
    }
}

#[test]
fn upload_to_a_server_whose_handles_follow_names_is_whole() {
    // Near, where SETATTR comes before RENAME, and far, where they are sent side by side.
    for (delay_ms, size, flags, stale_min) in [
        (0, 100_000, &["-q"][..], 0),
        (12, 100_000, &["-q"], 1),
        (12, 100_000, &["-q", "--verify"], 0),
        (12, 0, &["-q"], 0),
    ] {
        let p = Place::new();
        let delay = Duration::from_millis(delay_ms);
        let fs = Arc::new(OddFs { ids_follow_names: true, delay, ..OddFs::new() });
        let (_serving, url) = serve(fs.clone(), "?proto=tcp");
        for name in ["one", "two"] {
            fs::write(p.here(name), noise(size, 5)).unwrap();
            fs::File::open(p.here(name)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        p.ok(&[&["cp"][..], flags, &["one", "two", &url]].concat());
        let there: Vec<_> = fs.tree().into_iter().map(|(path, content)| (path, content.len())).collect();
        assert_eq!(there, [("one".to_owned(), size), ("two".to_owned(), size)], "{delay_ms} ms");
        for name in ["one", "two"] {
            let (attr, here) = (fs.attr(name), fs::metadata(p.here(name)).unwrap());
            assert_eq!((attr.mode & 0o777, attr.mtime.secs), (here.mode() & 0o777, 0), "{delay_ms} ms");
        }
        let stale = fs.stale.load(Relaxed);
        assert!(stale >= stale_min && (stale > 0) == (stale_min > 0), "{delay_ms} ms, {flags:?}: {stale}");
        assert_eq!(p.left(), Vec::<String>::new());
    }
}

#[test]
fn tree_on_a_path_handle_server_is_copied_and_moved() {
    let p = Place::new();
    fs::create_dir_all(p.here("t/sub")).unwrap();
    for name in ["t/a", "t/b", "t/sub/c"] {
        fs::write(p.here(name), name).unwrap();
    }
    let delay = Duration::from_millis(8);
    let fs = Arc::new(OddFs { ids_follow_names: true, fold: without_case, delay, ..OddFs::new() });
    let (_serving, url) = serve(fs.clone(), "?proto=tcp");
    let at = |path: &str| url.replace("/?", &format!("/{path}?"));
    p.ok(&["cp", "-rq", "t", &url]);
    p.ok(&["cp", "-rq", "--resume", "--verify", "t", &url]);
    p.ok(&["mv", &at("t/sub"), &at("moved")]);
    p.ok(&["mv", &at("t/a"), &at("moved/a")]);
    p.ok(&["cp", "-rq", &at("moved"), "back"]);
    assert_eq!(names(&p.here("back")), ["a", "c"]);
    fs::write(p.here("A"), "other").unwrap();
    fs::rename(p.here("t/a"), p.here("a")).unwrap();
    names_both(&p.run(&["cp", "-q", "a", "A", &at("t")]), "a", "A");
}

/// The reply to RENAME is lost, and the server does not know the call when it comes again.
#[test]
fn rename_done_twice_on_a_path_handle_server_is_recognised() {
    let p = Place::new();
    let fs = Arc::new(OddFs { ids_follow_names: true, forgets_renames: true, ..OddFs::new() });
    let (_serving, url) = serve(fs.clone(), "?proto=tcp");
    for content in ["first", "second"] {
        fs::write(p.here("f"), content).unwrap();
        p.ok(&["cp", "-q", "f", &url]);
        assert_eq!(contents(&fs), [("f".to_owned(), content.to_owned())]);
    }
    let at = |path: &str| url.replace("/?", &format!("/{path}?"));
    p.ok(&["mv", &at("f"), &at("g")]);
    assert_eq!(contents(&fs), [("g".to_owned(), "second".to_owned())]);
}
