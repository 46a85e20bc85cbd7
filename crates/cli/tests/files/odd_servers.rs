//! Servers and paths that are within the rules, and unlike ours: no READDIRPLUS, a request for
//! patience, fragments that never arrive, a listing that never ends.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::between::{Fate, between, between_mounting};
use crate::common::copies::resumed;
use crate::common::{Daemon, Place, names, noise, until};
use bytes::Bytes;
use remora_wire::nfs3::{self, Call, Proc, ReadDirPlusArgs, Reply, Status};
use remora_wire::rpc::Outcome;
use serde_json::Value;

/// A server that forgets: each of these calls is executed, its answer lost, and executed again.
fn forgetful(server: &Daemon, procs: &'static [Proc]) -> String {
    let mut calls = HashMap::new();
    between(server, usize::MAX, move |call| {
        let n = calls.entry(format!("{call:?}")).and_modify(|n| *n += 1).or_insert(1);
        if procs.contains(&call.proc()) && *n % 2 == 1 { Fate::Lose(call) } else { Fate::Pass(call) }
    })
}

fn at(url: &str, path: &str) -> String {
    url.replace("/?", &format!("{path}?"))
}

/// A directory of 200 files is listed, and a file is uploaded and downloaded.
fn works(p: &Place, url: &str) {
    (0..200).for_each(|n| fs::write(p.srv(&format!("file-{n}")), "").unwrap());
    let listed = p.ok(&["ls", url]);
    assert_eq!(listed.lines().filter(|line| line.contains("file-")).count(), 200, "{listed}");
    fs::write(p.here("up"), noise(50_000, 7)).unwrap();
    let there = at(url, "/up");
    p.ok(&["cp", "-q", "up", &there]);
    p.ok(&["cp", "-q", &there, "down"]);
    assert!(
        fs::read(p.here("down")).unwrap() == noise(50_000, 7) && fs::read(p.srv("up")).unwrap() == noise(50_000, 7)
    );
}

#[test]
fn a_server_without_readdirplus_and_fsinfo() {
    for lacks in [|| Fate::Fail(Status::NotSupp), || Fate::Refuse(Outcome::ProcUnavail)] {
        let p = Place::new();
        let s = p.serve(&[]);
        let judge = move |call| match call {
            Call::ReadDirPlus(_) | Call::FsInfo(_) => lacks(),
            call => Fate::Pass(call),
        };
        works(&p, &between(&s, usize::MAX, judge));
    }
}

#[test]
fn needless_getattr_is_not_awaited() {
    let p = Place::new();
    let (s, began) = (p.serve(&[]), Instant::now());
    let url =
        between(&s, usize::MAX, |call| if call.proc() == Proc::GetAttr { Fate::Ignore } else { Fate::Pass(call) });
    p.ok(&["ls", "--timeout", "20", &at(&url, "/")]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// One entry of which the server says nothing but its name does not hide the others. They are looked
/// up side by side, or this would take a minute.
#[test]
fn entry_without_lookup_is_listed() {
    let p = Place::new();
    fs::create_dir(p.srv("d")).unwrap();
    (0..300).for_each(|n| fs::write(p.srv(&format!("d/file-{n}")), "x").unwrap());
    let s = p.serve(&[]);
    let far = ["--rate", "1Gbit", "--duplex", "full", "--queue", "10000", "--delay", "100ms"];
    let relay = p.relay_at(0, &s, &far);
    let judge = |call| match call {
        Call::ReadDirPlus(_) => Fate::Fail(Status::NotSupp),
        Call::Lookup(at) if at.name[..] == b"file-7"[..] => Fate::Fail(Status::Io),
        call => Fate::Pass(call),
    };
    let started = Instant::now();
    let out = p.run(&["ls", &at(&between(&relay, usize::MAX, judge), "/d")]);
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    out.expect(1, &["file-7: input/output error"]);
    assert_eq!(out.stdout.lines().count(), 299, "{}", out.stdout);

    let url = at(&between(&s, usize::MAX, judge), "/d");
    p.run(&["cp", "-rq", &url, "."]).expect(1, &["file-7?proto=udp: input/output error"]);
    assert_eq!(names(&p.here("d")).len(), 299);
    p.run(&["rm", "-r", &url]).expect(1, &["file-7?proto=udp: input/output error"]);
    assert_eq!(names(&p.srv("d")), ["file-7"]);
}

#[test]
fn links_are_copied_to_a_server_without_drc() {
    let p = Place::new();
    fs::create_dir(p.here("d")).unwrap();
    for name in ["new", "left"] {
        symlink("where", p.here("d").join(name)).unwrap();
    }
    fs::create_dir(p.srv("d")).unwrap();
    symlink("elsewhere", p.srv("d/.left.remora-part")).unwrap();
    let s = p.serve(&[]);
    let url = forgetful(&s, &[Proc::SymLink, Proc::Remove, Proc::Rename]);
    p.ok(&["cp", "-rq", "d", &url]);
    assert_eq!(names(&p.srv("d")), ["left", "new"]);
    for name in ["new", "left"] {
        assert_eq!(fs::read_link(p.srv("d").join(name)).unwrap(), PathBuf::from("where"), "{name}");
    }
}

#[test]
fn directories_are_created_on_a_server_without_drc() {
    let p = Place::new();
    fs::create_dir(p.srv("old")).unwrap();
    fs::create_dir(p.srv("full")).unwrap();
    fs::write(p.srv("full/f"), "").unwrap();
    fs::write(p.srv("file"), "").unwrap();
    let s = p.serve(&[]);
    let url = forgetful(&s, &[Proc::MkDir]);
    p.ok(&["mkdir", &at(&url, "/new"), &at(&url, "/new/inner"), &at(&url, "/new/other")]);
    assert_eq!(names(&p.srv("new")), ["inner", "other"]);
    // That was true from the start.
    for there in ["/old", "/full", "/file", "/new", "/new/inner"] {
        p.run(&["mkdir", &at(&url, there)]).expect(1, &["exists"]);
        p.run(&["mkdir", &s.udp_url(there)]).expect(1, &["exists"]);
    }
}

/// It is there and answers.
#[test]
fn missing_procedure_is_an_error() {
    let p = Place::new();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| match call {
        Call::FsStat(_) => Fate::Refuse(Outcome::ProcUnavail),
        call => Fate::Pass(call),
    });
    p.run(&["df", &url]).expect(1, &["no such procedure"]);
}

#[test]
fn jukebox_reply_is_retried() {
    let p = Place::new();
    let s = p.serve(&[]);
    // The third call of each procedure, and the fourth.
    let mut calls = HashMap::new();
    let judge = move |call: Call| {
        let n = calls.entry(call.proc() as u32).and_modify(|n| *n += 1).or_insert(1);
        if matches!(n, 1 | 3 | 4) && call.proc() != Proc::Null { Fate::Fail(Status::Jukebox) } else { Fate::Pass(call) }
    };
    works(&p, &between(&s, usize::MAX, judge));
    let url = between(&s, usize::MAX, |call| match call {
        Call::Read(_) | Call::Write(_) => Fate::Fail(Status::Jukebox),
        call => Fate::Pass(call),
    });
    p.run(&["cp", "-q", "--timeout", "3", "up", &at(&url, "/never")]).expect(1, &["try again later"]);
    let notice =
        "has been busy (NFS3ERR_JUKEBOX) for 3 s; waiting (Ctrl-C keeps the received part, --resume continues)";
    p.run(&["cp", "--timeout", "5", &at(&url, "/up"), "never"])
        .expect(1, &[notice, "the server asks to try again later"]);
}

/// A disk that hangs: the server answers probes, and all that needs no disk.
#[test]
fn unanswered_request_times_out() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(300_000, 5)).unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| if let Call::Read(_) = call { Fate::Ignore } else { Fate::Pass(call) });
    let started = Instant::now();
    let out = p.run(&["cat", "--timeout", "5", &at(&url, "/f")]);
    out.expect(3, &["has not answered for 3 s", "does not answer"]);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// Ctrl-C does not wait for the disk longer than a moment.
#[test]
fn unanswered_commit_does_not_delay_the_exit() {
    let p = Place::new();
    fs::write(p.here("f"), noise(30_000_000, 5)).unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| {
        thread::sleep(Duration::from_millis(5));
        if let Call::Commit(_) = call { Fate::Ignore } else { Fate::Pass(call) }
    });
    let running = p.start(&["cp", "-q", "f", &at(&url, "/f")]);
    until("something arrives", || {
        names(&p.srv("")).pop().is_some_and(|name| fs::metadata(p.srv(&name)).unwrap().len() > 1_000_000)
    });
    let started = Instant::now();
    running.signal("INT");
    running.finish().expect(130, &["interrupted"]);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// The second link is not asked about when the first was waited for in vain.
#[test]
fn server_lost_during_readlink_ends_the_listing() {
    let p = Place::new();
    fs::write(p.srv("a"), "").unwrap();
    (0..100).for_each(|n| symlink("a", p.srv(&format!("link-{n}"))).unwrap());
    let s = p.serve(&[]);
    for flag in ["-l", "--json"] {
        let url =
            between(&s, usize::MAX, |call| if let Call::ReadLink(_) = call { Fate::Ignore } else { Fate::Pass(call) });
        let started = Instant::now();
        let out = p.run(&["ls", flag, "--timeout", "3", &url]);
        out.expect(3, &["does not answer"]);
        assert_eq!(out.stdout.lines().count(), 1, "what comes before them is shown: {}", out.stdout);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}

/// The trouble may pass, and all of it has arrived.
#[test]
fn copy_interrupted_before_rename_resumes() {
    let p = Place::new();
    fs::write(p.here("f"), noise(100_000, 5)).unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| match call {
        Call::Rename(_) => Fate::Fail(Status::Io),
        call => Fate::Pass(call),
    });
    p.run(&["cp", "-q", "f", &at(&url, "/f")]).expect(1, &["input/output error", "100 kB", "--resume"]);
    assert_eq!(resumed(&p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")])), (0, 100_000));
    assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], vec![]));
}

/// What the server refuses to give its name is of no use, and nothing of it stays.
#[test]
fn a_copy_whose_name_is_refused_leaves_nothing() {
    let p = Place::new();
    fs::write(p.here("f"), noise(300_000, 5)).unwrap();
    fs::write(p.srv("f"), "somebody else's").unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| match call {
        Call::Rename(_) => Fate::Fail(Status::Access),
        call => Fate::Pass(call),
    });
    for to in ["/f", "/new"] {
        let out = p.run(&["cp", "-q", "f", &at(&url, to)]);
        out.expect(1, &["permission denied"]);
        assert!(!out.stderr.contains("--resume"), "{}", out.stderr);
        assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], vec![]));
    }
    assert_eq!(fs::read(p.srv("f")).unwrap(), b"somebody else's");
}

/// It may be one to a directory, and stays.
#[test]
fn unreadable_link_is_not_replaced() {
    let p = Place::new();
    fs::write(p.here("f"), "f").unwrap();
    fs::create_dir(p.srv("real")).unwrap();
    symlink("real", p.srv("link")).unwrap();
    let s = p.serve(&[]);
    for status in [Status::Access, Status::Io, Status::Stale] {
        let url = between(&s, usize::MAX, move |call| match call {
            Call::Lookup(at) if at.name[..] == b"real"[..] => Fate::Fail(status),
            call => Fate::Pass(call),
        });
        p.run(&["cp", "-q", "f", &at(&url, "/link")]).expect(1, &["/link"]);
        assert_eq!((fs::read_link(p.srv("link")).unwrap(), names(&p.srv("real")).len()), ("real".into(), 0));
        assert_eq!(names(&p.srv("")), ["link", "real"]);
    }
}

/// As one does that shares /proc.
#[test]
fn file_with_wrong_size_zero_is_an_error() {
    let p = Place::new();
    fs::write(p.srv("f"), "").unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| match call {
        Call::Read(_) => {
            let data = Bytes::from_static(b"something");
            Fate::Say(Reply::Read(Ok(nfs3::ReadOk { attr: None, count: 9, eof: true, data })))
        }
        call => Fate::Pass(call),
    });
    p.run(&["cp", "-q", &at(&url, "/f"), "f"]).expect(1, &["f?proto=udp: has size 0 but is not empty"]);
    assert_eq!(names(&p.here("")), [""; 0]);
}

/// As Linux's does. What is only read needs no name then, and a round trip less.
#[test]
fn mount_of_a_file_works() {
    let p = Place::new();
    fs::write(p.srv("file"), noise(50_000, 7)).unwrap();
    let server = p.serve(&[]);
    let handle = Arc::new(Mutex::new(None));
    let seen = handle.clone();
    let url = between(&server, usize::MAX, move |call| {
        if let Call::Read(read) = &call {
            *seen.lock().unwrap() = Some(read.fh.clone());
        }
        Fate::Pass(call)
    });
    p.ok(&["cp", "-q", &at(&url, "/file"), "down"]);
    let handle = handle.lock().unwrap().clone().unwrap();
    let lookups = Arc::new(AtomicU32::new(0));
    let count = lookups.clone();
    let mounts = move |path: &[u8]| (path == b"/file").then(|| handle.clone());
    let url = between_mounting(&server, usize::MAX, mounts, move |call| {
        if let Call::Lookup(_) = &call {
            count.fetch_add(1, Relaxed);
        }
        Fate::Pass(call)
    });
    let file = at(&url, "/file");
    p.ok(&["cp", "-q", &file, "again"]);
    assert!(fs::read(p.here("again")).unwrap() == noise(50_000, 7));
    assert_eq!(p.run(&["cat", &file]).code, 0);
    assert_eq!(lookups.load(Relaxed), 0);
    p.ok(&["ls", "-l", &file]);
    p.ok(&["mv", &file, &at(&url, "/moved")]);
    assert!(lookups.load(Relaxed) > 0 && p.srv("moved").exists());
}

/// Disks of other systems have no modes, and some servers say so.
#[test]
fn server_without_setattr_keeps_the_copy() {
    let p = Place::new();
    fs::write(p.here("f"), noise(300_000, 5)).unwrap();
    let s = p.serve(&[]);
    let url = between(&s, usize::MAX, |call| match call {
        Call::SetAttr(_) => Fate::Fail(Status::Perm),
        call => Fate::Pass(call),
    });
    fs::create_dir(p.here("dir")).unwrap();
    for command in [&["cp", "-q"][..], &["cp", "-q", "--verify"], &["cp", "-rq"]] {
        let source = if command.contains(&"-rq") { "dir" } else { "f" };
        let out = p.run(&[command, &[source, &at(&url, &format!("/{source}"))]].concat());
        out.expect(1, &["the copy is complete", "mode and time", "not permitted"]);
        if source == "f" {
            assert!(fs::read(p.srv("f")).unwrap() == noise(300_000, 5));
            assert_eq!(p.left(), Vec::<String>::new());
            fs::remove_file(p.srv("f")).unwrap();
        }
    }
    assert_eq!(names(&p.srv("")), ["dir"]);
}

/// What a server in trouble answers.
type Trouble = fn() -> Fate;

/// A server in trouble: after some calls of this kind, and after a COMMIT, all of them fail.
fn in_trouble(server: &Daemon, proc: Proc, trouble: Trouble) -> String {
    let (mut has_committed, mut left) = (proc == Proc::Read, 40);
    between(server, usize::MAX, move |call| {
        has_committed |= call.proc() == Proc::Commit;
        if call.proc() != proc {
            return Fate::Pass(call);
        }
        // Time for a COMMIT, on a disk that others keep busy, too.
        thread::sleep(Duration::from_millis(if has_committed && left == 40 { 700 } else { 10 }));
        left -= i32::from(has_committed);
        if left < 0 { trouble() } else { Fate::Pass(call) }
    })
}

/// The trouble may pass, and what has arrived is worth keeping.
#[test]
fn copy_ended_by_a_server_fault_resumes() {
    let troubles: [(&str, Trouble); 6] = [
        ("JUKEBOX", || Fate::Fail(Status::Jukebox)),
        ("IO", || Fate::Fail(Status::Io)),
        ("SERVERFAULT", || Fate::Fail(Status::ServerFault)),
        ("STALE", || Fate::Fail(Status::Stale)),
        ("SYSTEM_ERR", || Fate::Refuse(Outcome::SystemErr)),
        ("nonsense", || Fate::Nonsense),
    ];
    for (name, trouble) in troubles {
        let p = Place::new();
        fs::write(p.here("up"), noise(3_000_000, 5)).unwrap();
        fs::write(p.srv("down"), noise(3_000_000, 6)).unwrap();
        let s = p.serve(&[]);
        let (up, down) = (in_trouble(&s, Proc::Write, trouble), in_trouble(&s, Proc::Read, trouble));
        let goes_on = |first: [&str; 2], again: [&str; 2], copy: PathBuf| {
            p.run(&[&["cp", "-q", "--timeout", "3"][..], &first].concat()).expect(1, &["kept", "--resume"]);
            assert!(!copy.exists());
            let report = p.ok(&[&["cp", "--json", "--resume"][..], &again].concat());
            let report: Value = serde_json::from_str(&report).unwrap();
            assert!(report["resumed_bytes"].as_u64() > Some(0), "{name}: {report}");
            assert_eq!(fs::metadata(copy).unwrap().len(), 3_000_000);
        };
        goes_on(["up", &at(&up, "/up")], ["up", &s.udp_url("/up")], p.srv("up"));
        goes_on([&at(&down, "/down"), "down"], [&s.udp_url("/down"), "down"], p.here("down"));
        assert_eq!((names(&p.srv("")), names(&p.here(""))), (names(&p.here("")), vec!["down".into(), "up".into()]));
    }
}

/// On a path of 220 ms, where a RENAME sent with the last WRITEs would save a round trip.
#[test]
fn upload_over_a_long_path_is_renamed_after_its_last_write() {
    let p = Place::new();
    fs::write(p.here("f"), noise(2_000_000, 5)).unwrap();
    let s = p.serve(&[]);
    let renames = Arc::new(AtomicU32::new(0));
    let seen = renames.clone();
    let url = between(&s, usize::MAX, move |call| match call {
        Call::Write(write) if write.offset + u64::from(write.count) == 2_000_000 => Fate::Fail(Status::Io),
        call => {
            seen.fetch_add(u32::from(matches!(call, Call::Rename(_))), Relaxed);
            Fate::Pass(call)
        }
    });
    let server = url.trim_start_matches("nfs://").split('/').next().unwrap();
    let far = ["--rate", "8Mbit", "--duplex", "full", "--queue", "1000", "--delay", "110ms"];
    let relay = ["lab", "relay", "--listen", "127.0.0.1:0", "--server", server, "--json"];
    let relay = Daemon::start(p.command(&[&relay[..], &far].concat()));
    p.run(&["cp", "-q", "f", &relay.udp_url("/f")]).expect(1, &["input/output error", "--resume"]);
    assert_eq!(renames.load(Relaxed), 0, "RENAME before the last WRITE was answered");
    assert!(names(&p.srv("")).iter().all(|name| name.starts_with(".f.remora-part")));
    let report = p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
    assert!(fs::read(p.srv("f")).unwrap() == noise(2_000_000, 5));
    assert_eq!(names(&p.srv("")), ["f"]);
}

#[test]
fn truncated_file_is_an_error() {
    let p = Place::new();
    let content = noise(3_000_000, 5);
    let path = p.srv("f");
    fs::write(&path, &content).unwrap();
    let s = p.serve(&[]);
    let mut reads = 0;
    let url = between(&s, usize::MAX, move |call| {
        reads += u32::from(matches!(call, Call::Read(_)));
        if reads == 10 {
            fs::File::options().write(true).open(&path).unwrap().set_len(2_000_000).unwrap();
        }
        Fate::Pass(call)
    });
    let out = p.run(&["cat", &at(&url, "/f")]);
    assert_eq!(out.code, 1, "{}", out.stderr);
    assert!(out.stderr.contains("was truncated while it was read"), "{}", out.stderr);
    // By now it has its new size, and what grows behind it does no harm.
    p.ok(&["cat", &at(&url, "/f")]);
}

#[test]
fn path_that_drops_fragments_is_survived() {
    let p = Place::new();
    let s = p.serve(&[]);
    works(&p, &between(&s, 1472, Fate::Pass));
}

/// A tunnel that is narrower than its device says: 1280 bytes with the headers.
#[test]
fn path_that_drops_large_packets_is_survived() {
    let p = Place::new();
    let s = p.serve(&[]);
    works(&p, &between(&s, 1252, Fate::Pass));
}

#[test]
fn endless_listing_ends() {
    let p = Place::new();
    (0..200).for_each(|n| fs::write(p.srv(&format!("file-{n}")), "").unwrap());
    let s = p.serve(&[]);
    // The circle is one page, or two.
    for len in [1, 2] {
        let mut page = 0;
        let url = between(&s, usize::MAX, move |call| match call {
            Call::ReadDirPlus(args) => {
                page += 1;
                let cookie = if (page - 1) % len == 0 { 0 } else { args.cookie };
                Fate::Pass(Call::ReadDirPlus(ReadDirPlusArgs { cookie, ..args }))
            }
            call => Fate::Pass(call),
        });
        p.run(&["ls", &url]).expect(1, &["the same entries", "broken"]);
    }
}

/// A page lost on the way is asked for again, so that it may take a few tries to see.
#[test]
fn large_directory_is_listed_once() {
    let p = Place::new();
    fs::create_dir(p.srv("d")).unwrap();
    (0..6000).for_each(|n| fs::write(p.srv(&format!("d/file-with-a-long-name-{n}")), "").unwrap());
    let s = p.serve(&[]);
    let begun = Arc::new(AtomicU32::new(0));
    let count = begun.clone();
    let url = between(&s, usize::MAX, move |call| {
        if matches!(&call, Call::ReadDirPlus(args) if args.cookie == 0) {
            count.fetch_add(1, Relaxed);
        }
        Fate::Pass(call)
    });
    let url = url.replace("/?", "/d?");
    for args in [&["ls", &url][..], &["ls", "-R", &url], &["cp", "-rq", &url, "copy"]] {
        let is_listed_once = || {
            begun.store(0, Relaxed);
            p.ok(args);
            fs::remove_dir_all(p.here("copy")).ok();
            begun.load(Relaxed) == 1
        };
        assert!((0..3).any(|_| is_listed_once()), "{args:?}");
    }
}
