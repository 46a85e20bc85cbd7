//! `remora keys`, `send` and `recv` on loopback: files arrive complete, and failures are reported.

use std::ffi::OsStr;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::common::receiver::Receiver;
use crate::common::{Daemon, Output, Place, Running, names, noise, until};
use bytes::Bytes;
use remora_atp::{Options, Outcome};
use remora_host::atp::blocking::BlockingEndpoint;
use remora_host::atp::{EndpointSettings, keys};
use serde_json::Value;

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn files_of_all_sizes_arrive_whole() {
    let mut to = Receiver::start(&["--from-anyone"]);
    let sizes = [("empty", 0), ("one", 1), ("some", 64 << 10), ("more", (64 << 10) + 1), ("big", 5_000_000)];
    for (name, size) in sizes {
        to.file(name, &noise(size, 7));
    }
    let out = to.sent(&sizes.map(|(name, _)| name), &["--part", "1M", "--json", "--priority", "high"]);
    assert_eq!(out.code, 0, "{out:?}");
    let mut sent = objects(&out.stdout);
    sent.sort_by_key(|o| o["bytes"].as_u64());
    for ((name, size), object) in sizes.iter().zip(&sent) {
        assert_eq!((object["file"].as_str(), object["bytes"].as_u64()), (Some(*name), Some(*size as u64)));
        assert_eq!(object["outcome"], "stored");
        assert_eq!(to.arrived(name), noise(*size, 7), "{name}");
        assert_eq!(to.daemon.next_object()["outcome"], "stored");
    }
    assert_eq!(names(&to.place.srv("")).len(), sizes.len(), "nothing hidden is left");
    // The same again is no error; to a person it says so.
    let out = to.sent(&["big"], &[]);
    assert_eq!(out.code, 0, "{out:?}");
    assert!(out.stdout.contains("5.0 MB were already there"), "{out:?}");
    assert_eq!(to.daemon.interrupt("INT").0, 0);
}

/// What `find -printf` says of all that is in a directory.
fn listing(dir: &Path) -> String {
    let mut find = std::process::Command::new("find");
    let out = find.args([".", "-printf", "%P %y %m %T@ %s\\n"]).current_dir(dir).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    // A directory's size is the file system's affair.
    let mut lines: Vec<_> = text.lines().map(|line| line.rsplit_once(' ').unwrap()).collect();
    lines.sort();
    lines
        .iter()
        .map(|(line, size)| if line.contains(" d ") { format!("{line}\n") } else { format!("{line} {size}\n") })
        .collect()
}

#[test]
fn directories_arrive_with_modes_and_times() {
    let to = Receiver::start(&["--from-anyone"]);
    for dir in ["photos/2026/.raw", "photos/empty"] {
        fs::create_dir_all(to.place.here(dir)).unwrap();
    }
    for (name, mode, size) in
        [("a", 0o644, 0), ("2026/b", 0o755, 10), ("2026/.raw/c", 0o400, 100_000), ("2026/d", 0o600, 3)]
    {
        let path = to.place.here("photos").join(name);
        fs::write(&path, noise(size, 1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(&path)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123))
            .unwrap();
    }
    for (dir, mode, secs) in [("photos/2026", 0o750, 5), ("photos/empty", 0o711, 6), ("photos", 0o755, 7)] {
        fs::set_permissions(to.place.here(dir), fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(to.place.here(dir))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs))
            .unwrap();
    }
    let out = to.sent(&["photos"], &["--json"]);
    assert_eq!((out.code, outcomes(&out)), (0, vec!["stored".into(); 4]), "{out:?}");
    assert_eq!(listing(&to.place.srv("photos")), listing(&to.place.here("photos")));
    assert_eq!(fs::read(to.place.srv("photos/2026/.raw/c")).unwrap(), noise(100_000, 1));
    // Sent again it is there already; a set-id bit stays here, and a link is no file.
    fs::set_permissions(to.place.here("photos/a"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::rename(to.place.here("photos/a"), to.place.here("photos/e")).unwrap();
    symlink("e", to.place.here("photos/link")).unwrap();
    let out = to.sent(&["photos/"], &[]);
    out.expect(1, &["photos/link: is a symbolic link"]);
    assert_eq!(fs::metadata(to.place.srv("photos/e")).unwrap().mode() & 0o7777, 0o755);
    assert!(fs::symlink_metadata(to.place.srv("photos/link")).is_err());
}

#[test]
fn standard_input_arrives_under_the_name_given() {
    let to = Receiver::start(&["--from-anyone"]);
    to.sent(&["-"], &[]).expect(2, &["--name"]);
    let identity = to.place.state().join("send.key");
    let addr = to.daemon.addr.to_string();
    let args = ["send", "-", &addr, "--key", &to.key, "--identity", identity.to_str().unwrap(), "--name", "boot.log"];
    let mut command = to.place.command(&args);
    to.file("log", &noise(200_000, 4));
    command.stdin(fs::File::open(to.place.here("log")).unwrap());
    Running::start(command).finish().expect(0, &[]);
    assert_eq!(to.arrived("boot.log"), noise(200_000, 4));
    assert_eq!(fs::metadata(to.place.srv("boot.log")).unwrap().mode() & 0o777, 0o600, "no mode was given");
    to.sent(&["log"], &["--name", "logs/today"]).expect(0, &[]);
    assert_eq!(to.arrived("logs/today"), noise(200_000, 4));
}

#[test]
fn receiver_makes_its_directory_but_none_above() {
    let place = Place::new();
    let recv = |dir: &str| place.command(&["recv", dir, "--listen", "127.0.0.1:0", "--from-anyone", "--json"]);
    Running::start(recv("a/b")).finish().expect(1, &["a/b: no such file or directory"]);
    fs::write(place.here("file"), "").unwrap();
    Running::start(recv("file")).finish().expect(1, &["file: is not a directory"]);
    let daemon = Daemon::start(recv("inbox"));
    assert_eq!(fs::metadata(place.here("inbox")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(daemon.interrupt("TERM").0, 0);
}

/// Such a file system, as many a FUSE one, says that it has 0 blocks in all.
#[test]
fn file_arrives_on_a_file_system_without_figures() {
    let name = "file_arrives_on_a_file_system_without_figures";
    if !crate::common::is_root() {
        return skip::skipped(name, "needs root, for a mount");
    }
    let place = Place::new();
    let script = "mount -t ramfs ramfs \"$0\" && exec \"$@\"";
    let (dir, key) = (place.srv(""), place.state().join("recv.key"));
    let recv = place.command(&["recv", dir.to_str().unwrap(), "--listen", "127.0.0.1:0", "--from-anyone", "--json"]);
    let mut inside = std::process::Command::new("unshare");
    inside.args(["--mount", "--", "sh", "-ec", script]).arg(&dir).arg(recv.get_program()).args(recv.get_args());
    inside.arg("--key").arg(&key).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let daemon = Daemon::start(inside);
    let to = Receiver { key: keys::load(&key).unwrap().public().to_string(), place, daemon };
    to.file("a", &noise(100_000, 1));
    let out = to.sent(&["a"], &[]);
    out.expect(0, &[]);
    assert!(out.stdout.starts_with("a: stored"), "{out:?}");
}

#[test]
fn a_receiver_can_end_after_a_file() {
    let to = Receiver::start(&["--from-anyone", "--once"]);
    to.file("a", b"hello");
    assert_eq!(to.sent(&["a"], &[]).code, 0);
    let Receiver { place, daemon, .. } = to;
    let mut daemon = daemon;
    assert_eq!(daemon.next_object()["file"], "a");
    assert_eq!(daemon.wait(), 0);
    assert_eq!(fs::read(place.srv("a")).unwrap(), b"hello");
}

/// A file counts once, asked about or sent again; one that was there at the start counts, too.
#[test]
fn a_receiver_ends_after_so_many_files_not_answers() {
    let to = Receiver::start(&["--from-anyone", "--once", "3"]);
    fs::write(to.place.srv("there"), b"before").unwrap();
    let files = [("a", noise(10, 1)), ("there", b"before".to_vec()), ("b", noise(100_000, 2))];
    files.iter().for_each(|(name, bytes)| to.file(name, bytes));
    for file in ["a", "a", "there", "there", "b"] {
        to.sent(&[file], &[]).expect(0, &[]);
    }
    let Receiver { place, daemon, .. } = to;
    assert_eq!(daemon.wait(), 0);
    for (name, bytes) in files {
        assert_eq!(fs::read(place.srv(name)).unwrap(), bytes, "{name}");
    }
}

#[test]
fn keys_are_checked_on_both_sides() {
    let friend = keys::generate().unwrap().public().to_string();
    let mut to = Receiver::start(&["--from", &friend]);
    to.file("a", b"hello");
    to.sent(&["a"], &[]).expect(1, &["does not admit this key", "--from "]);
    to.key = friend;
    to.sent(&["a"], &[]).expect(1, &["another key"]);
    assert_eq!(names(&to.place.srv("")), [""; 0]);
    to.sent(&["a"], &["--priority", "16"]).expect(2, &["0 to 15"]);
    to.key = "x".into();
    to.sent(&["a"], &[]).expect(2, &["44 characters"]);
    let out = to.place.run(&["recv", ".", "--listen", "127.0.0.1:0"]);
    out.expect(2, &["--from"]);
}

/// Names there are UTF-8, but not the way to a file here.
#[test]
fn a_file_in_a_directory_whose_name_is_not_utf_8() {
    let to = Receiver::start(&["--from-anyone"]);
    let dir = OsStr::from_bytes(b"d\xff");
    fs::create_dir(to.place.here("").join(dir)).unwrap();
    let file = Path::new(dir).join("a");
    fs::write(to.place.here("").join(&file), "hello").unwrap();
    let identity = to.place.state().join("send.key");
    let mut command = to.place.command(&["send", "--key", &to.key, "--identity", identity.to_str().unwrap()]);
    command.arg(&file).arg(to.daemon.addr.to_string());
    Running::start(command).finish().expect(0, &[]);
    assert_eq!(to.arrived("a"), b"hello");
}

/// Its own name it cannot have there; the others are sent.
#[test]
fn file_name_that_is_not_utf_8_is_reported_others_are_sent() {
    let to = Receiver::start(&["--from-anyone"]);
    to.file("a", b"hello");
    let odd = OsStr::from_bytes(b"f\xff");
    fs::write(to.place.here("").join(odd), "odd").unwrap();
    let send = |files: &[&OsStr], more: &[&str]| {
        let identity = to.place.state().join("send.key");
        let mut command = to.place.command(&["send", "--key", &to.key, "--identity", identity.to_str().unwrap()]);
        command.args(more).args(files).arg(to.daemon.addr.to_string());
        Running::start(command).finish()
    };
    send(&[odd, OsStr::new("a")], &[]).expect(1, &["remora: send: f\u{fffd}: its name is not UTF-8"]);
    assert_eq!(to.arrived("a"), b"hello");
    let out = send(&[OsStr::new("a"), odd], &["--json"]);
    assert_eq!((out.code, outcomes(&out)), (1, vec!["refused".into(), "stored".into()]), "{out:?}");
    assert!(out.stdout.contains("not UTF-8"), "{out:?}");
    send(&[odd], &[]).expect(1, &["not UTF-8"]);
}

/// The outcome of each file.
fn outcomes(out: &Output) -> Vec<Value> {
    objects(&out.stdout).into_iter().map(|object| object["outcome"].clone()).collect()
}

/// A deadline that passes first is the reported reason, with or without a receiver.
#[test]
fn undelivered_files_are_reported_one_by_one() {
    let mut to = Receiver::start(&["--from-anyone"]);
    to.file("a", b"hello");
    to.file("b", b"hello");
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = nobody.local_addr().unwrap().to_string();
    let (here, files) = (to.daemon.addr.to_string(), ["a", "b"]);
    for (addr, deadline) in [(&nowhere, "0.5s"), (&nowhere, "0s"), (&here, "0s")] {
        let out = to.send(addr, &files, &["--json", "--deadline", deadline]).finish();
        assert_eq!((out.code, outcomes(&out)), (5, vec!["expired".into(); 2]), "{out:?}");
        assert!(objects(&out.stdout).iter().all(|object| object["why"].to_string().contains("deadline")), "{out:?}");
    }
    let out = to.send(&nowhere, &files, &["--json", "--timeout", "0.5"]).finish();
    out.expect(3, &["no answer for 0.5 s", "hint:"]);
    assert_eq!(outcomes(&out), ["lost"; 2], "{out:?}");
    let out = to.send("nobody.invalid:4100", &["a", "absent", "b"], &["--json"]).finish();
    out.expect(3, &["nobody.invalid"]);
    assert_eq!(outcomes(&out), ["unreadable", "lost", "lost"], "{out:?}");
    to.key = keys::generate().unwrap().public().to_string();
    let out = to.sent(&files, &["--json"]);
    out.expect(1, &["another key"]);
    assert_eq!(outcomes(&out), ["refused"; 2], "{out:?}");
    fs::set_permissions(to.place.state().join("send.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let out = to.sent(&files, &["--json"]);
    out.expect(1, &["chmod 600"]);
    assert_eq!(outcomes(&out), ["refused"; 2], "{out:?}");
}

#[test]
fn missing_receiver_is_noticed_in_time() {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    fs::write(place.here("a"), "hello").unwrap();
    let key = keys::generate().unwrap().public().to_string();
    let identity = place.state().join("key");
    let to = mute.local_addr().unwrap().to_string();
    let end = ["--key", &key, "--identity", identity.to_str().unwrap(), "--timeout", "0.5"];
    let started = Instant::now();
    place.run(&[&["send", "a", &to][..], &end].concat()).expect(3, &["no answer for 0.5 s", "hint:"]);
    assert!(started.elapsed() < Duration::from_secs(5));
    place.run(&[&["send", "a", "b"][..], &end].concat()).expect(2, &["the receiver"]);
    place.run(&[&["send", "a", "./a", &to][..], &end].concat()).expect(2, &["two files"]);
}

/// It takes no network to say so, and none makes it come later.
#[test]
fn unreadable_file_is_reported_before_connecting() {
    let to = Receiver::start(&["--from-anyone"]);
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let out = to.send(&mute.local_addr().unwrap().to_string(), &["absent"], &["--json", "--timeout", "60"]).finish();
    out.expect(1, &[]);
    assert_eq!(outcomes(&out), ["unreadable"], "{out:?}");
    to.file("a", b"hello");
    let out = to.sent(&["absent", "a"], &["--json"]);
    out.expect(1, &[]);
    assert_eq!(outcomes(&out), ["unreadable", "stored"], "{out:?}");
}

/// `remora serve --atp` there has no answer to a file: it says so by going.
#[test]
fn nfs_server_is_recognised_as_no_receiver() {
    let p = Place::new();
    let server = p.serve(&["--atp", "127.0.0.1:0"]);
    let said = |what| server.ready["atp"][what].as_str().unwrap();
    let (at, public) = (said("listen"), said("key"));
    fs::write(p.here("a"), "hello").unwrap();
    let started = Instant::now();
    p.run(&["send", "a", at, "--key", public]).expect(3, &["lost the receiver"]);
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The first address is nobody's.
#[test]
fn a_receiver_of_two_addresses_is_found_at_either() {
    let name = "a_receiver_of_two_addresses_is_found_at_either";
    if !crate::common::is_root() {
        return skip::skipped(name, "needs root");
    }
    let to = Receiver::start(&["--from-anyone"]);
    to.file("a", b"hello");
    let at = format!("both:{}", to.daemon.addr.port());
    let send = to.place.command(&["send", "a", &at, "--key", &to.key, "--timeout", "10"]);
    Running::start(to.place.with_hosts("::1 both\n127.0.0.1 both\n", &send)).finish().expect(0, &[]);
}

#[test]
fn hostile_names_stay_outside_the_directory() {
    let to = Receiver::start(&["--from-anyone"]);
    let settings = EndpointSettings { received_max: 16, received_bytes_max: 1 << 20, ..EndpointSettings::sender() };
    let from = BlockingEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let patience = Duration::from_secs(20);
    let peer = from.connect(to.daemon.addr, to.key.parse().unwrap(), patience).unwrap().unwrap();
    let hash = "00".repeat(32);
    fs::create_dir(to.place.here("elsewhere")).unwrap();
    symlink(to.place.here("elsewhere"), to.place.srv("link")).unwrap();
    for name in [
        "../outside",
        "/tmp/x",
        "..",
        "",
        "a//b",
        "a/../../b",
        "link/x",
        "link/",
        "/",
        "../",
        "a/\\u0000b",
        ".hidden",
        "a\\nb",
    ] {
        let head = format!(r#"{{"remora":1,"file":1,"name":"{name}","size":1,"hash":"{hash}","at":0}}"#);
        let object = Bytes::from(head + "\nx");
        assert_eq!(from.send(&peer, object, Options::default()).unwrap().outcome, Outcome::Delivered);
        let answer = from.recv(Some(patience)).unwrap().unwrap().object;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["verdict"], "refused", "{name}: {answer}");
    }
    for junk in [&b""[..], b"hello\n", &[b'{'; 100_000]] {
        from.send(&peer, Bytes::copy_from_slice(junk), Options::default()).unwrap();
    }
    assert_eq!(names(&to.place.srv("")), ["link"]);
    assert_eq!(names(&to.place.here("elsewhere")), [""; 0]);
    assert!(!to.place.srv("../outside").exists());
    to.file("after", b"all");
    assert_eq!(to.sent(&["after"], &[]).code, 0, "it still works");
}

/// Nobody lives to see the end of that, and nobody has to.
#[test]
fn long_hashing_delays_no_other_file() {
    let to = Receiver::start(&["--from-anyone"]);
    let size = 1_u64 << 40;
    fs::File::create(to.place.srv("large")).unwrap().set_len(size).unwrap();
    let from = BlockingEndpoint::bind(EndpointSettings::sender(), keys::generate().unwrap()).unwrap();
    let peer = from.connect(to.daemon.addr, to.key.parse().unwrap(), Duration::from_secs(20)).unwrap().unwrap();
    let hash = "00".repeat(32);
    let question = format!("{{\"remora\":1,\"file\":1,\"name\":\"large\",\"size\":{size},\"hash\":\"{hash}\"}}\n");
    assert_eq!(from.send(&peer, question.into(), Options::default()).unwrap().outcome, Outcome::Delivered);
    to.file("small", b"hello");
    to.sent(&["small"], &[]).expect(0, &[]);
    assert_eq!(to.arrived("small"), b"hello");
    assert_eq!(to.daemon.interrupt("TERM").0, 0);
}

#[test]
fn refusals_and_failures_reach_the_sender() {
    let to = Receiver::start(&["--from-anyone", "--max-size", "1M"]);
    fs::write(to.place.srv("a"), "old").unwrap();
    to.file("a", b"new");
    to.file("big", &noise((1 << 20) + 1, 3));
    to.file("fine", b"fine");
    let out = to.sent(&["a", "big", "absent", "fine"], &[]);
    out.expect(1, &["a: a file of this name", "big: it is larger than 1.0 MB", "absent: no such file"]);
    assert!(out.stdout.starts_with("fine: stored, 4 B"), "{out:?}");
    assert_eq!(to.arrived("a"), b"old");
    fs::remove_dir_all(to.place.srv("")).unwrap();
    to.sent(&["fine"], &[]).expect(1, &["fine: the receiver cannot store it: no such file or directory"]);
    let to = Receiver::start(&["--from-anyone", "--overwrite"]);
    fs::write(to.place.srv("a"), "old").unwrap();
    to.file("a", b"new");
    assert_eq!(to.sent(&["a"], &[]).code, 0);
    assert_eq!(to.arrived("a"), b"new");
}

#[test]
fn late_file_is_given_up() {
    let to = Receiver::start(&["--from-anyone"]);
    let slow = to.place.relay_at(0, &to.daemon, &["--rate", "256kbit"]);
    to.file("big", &noise(2_000_000, 5));
    let started = Instant::now();
    let out = to.send(&slow.addr.to_string(), &["big"], &["--deadline", "1.5s", "--json"]).finish();
    assert!(started.elapsed() < Duration::from_secs(8));
    assert_eq!(out.code, 5, "{out:?}");
    let outcome = objects(&out.stdout)[0]["outcome"].clone();
    assert!(["expired", "evicted", "rejected"].map(Value::from).contains(&outcome), "{out:?}");
    assert!(!to.place.srv("big").exists());
}

#[test]
fn interrupted_file_resumes() {
    let to = Receiver::start(&["--from-anyone"]);
    let slow = to.place.relay_at(0, &to.daemon, &["--rate", "2Mbit"]);
    to.file("big", &noise(5_000_000, 9));
    to.file("more", &noise(5_000_000, 10));
    let sending = to.send(&slow.addr.to_string(), &["big", "more"], &["--part", "16K", "--json"]);
    until("some of it", || to.unfinished() > 100_000);
    let started = Instant::now();
    sending.signal("INT");
    let out = sending.finish();
    out.expect(130, &["interrupted"]);
    let told: Vec<_> = objects(&out.stdout).iter().map(|o| [o["file"].clone(), o["outcome"].clone()]).collect();
    assert_eq!(told, [["big", "cancelled"], ["more", "cancelled"]], "{out:?}");
    assert!(started.elapsed() < Duration::from_secs(3));
    let out = to.sent(&["big"], &["--json", "--part", "16K"]);
    assert_eq!(out.code, 0, "{out:?}");
    let (kept, bytes) = (&objects(&out.stdout)[0]["kept_bytes"], &objects(&out.stdout)[0]["bytes"]);
    assert!(kept.as_u64() > Some(50_000), "{out:?}");
    assert_eq!(kept.as_u64().unwrap() + bytes.as_u64().unwrap(), 5_000_000);
    assert_eq!(to.arrived("big"), noise(5_000_000, 9));
}

#[test]
fn outage_is_reported_and_survived() {
    let to = Receiver::start(&["--from-anyone"]);
    let slow = to.place.relay_at(0, &to.daemon, &["--rate", "4Mbit"]);
    to.file("big", &noise(1_000_000, 11));
    let sending = to.send(&slow.addr.to_string(), &["big"], &["--part", "16K"]);
    until("some of it", || to.unfinished() > 0);
    to.daemon.signal("STOP");
    std::thread::sleep(Duration::from_millis(4500));
    to.daemon.signal("CONT");
    let out = sending.finish();
    out.expect(0, &["no answer for 3 s; files wait", "the link is back after"]);
    assert_eq!(to.arrived("big"), noise(1_000_000, 11));
}

#[test]
fn link_keys_json_has_key_and_file() {
    let p = Place::new();
    for made in [true, false] {
        let shown: Value = serde_json::from_str(&p.ok(&["link", "keys", "--key", "a.key", "--json"])).unwrap();
        assert_eq!((&shown["file"], &shown["made"]), (&Value::from("a.key"), &Value::from(made)));
        assert_eq!(shown["public"], p.ok(&["link", "keys", "--key", "a.key"]).trim());
    }
}

#[test]
fn keys_are_made_once_and_shown() {
    let place = Place::new();
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("XDG_CONFIG_HOME", place.here("config"));
        Running::start(command).finish()
    };
    let made = run(&["keys"]);
    made.expect(0, &["created a key in", "atp.key"]);
    let file = place.state().join("remora/atp.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let shown: Value = serde_json::from_str(&run(&["keys", "--json"]).stdout).unwrap();
    assert_eq!(shown["public"], made.stdout.trim());
    assert_eq!((&shown["made"], shown["file"].as_str()), (&Value::from(false), file.to_str()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    run(&["keys"]).expect(1, &["atp.key"]);
    let pipe = place.state().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    run(&["keys", "--file", pipe.to_str().unwrap()]).expect(1, &["a pipe, and nobody writes"]);
    let mistyped = place.here("missing/dir/my.key");
    run(&["keys", "--file", mistyped.to_str().unwrap()]).expect(1, &["there is no directory", "missing"]);
    assert!(!place.here("missing").exists());
    // One where earlier versions kept it is who we are to those who know it.
    let earlier = keys::load_or_create(&place.here("config/remora/atp.key")).unwrap().public().to_string();
    assert_eq!(run(&["keys"]).stdout.trim(), earlier);
}
