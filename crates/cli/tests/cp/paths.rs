//! Special paths on the command line of `cp`, and long paths.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::between::{Fate, between_mounting};
use crate::common::{Daemon, Place, Running, is_root, names};

fn make_pipe(at: &Path) {
    assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
}

#[test]
fn link_to_a_special_file_is_not_replaced() {
    let p = Place::new();
    fs::write(p.srv("f"), "theirs").unwrap();
    symlink("/proc/self/fd/1", p.here("out")).unwrap();
    symlink("out", p.here("further")).unwrap();
    make_pipe(&p.here("fifo"));
    symlink("fifo", p.here("to-fifo")).unwrap();
    symlink("/dev/null", p.here("to-null")).unwrap();
    let s = p.serve(&[]);
    // Standard output is a pipe here.
    for dest in ["out", "further", "to-fifo", "fifo", "to-null"] {
        let words = [dest, "is not a regular file; cp does not replace it", "hint: remora cat"];
        p.run(&["cp", &s.url("/f"), dest]).expect(1, &words);
    }
    for link in ["out", "further", "to-fifo", "to-null"] {
        assert!(p.here(link).is_symlink(), "{link}");
    }
    assert!(fs::metadata(p.here("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(names(&p.here("")), ["fifo", "further", "out", "to-fifo", "to-null"]);
}

#[test]
fn link_to_an_open_file_is_not_replaced() {
    let p = Place::new();
    fs::write(p.srv("f"), "theirs").unwrap();
    symlink("/proc/self/fd/1", p.here("out")).unwrap();
    let s = p.serve(&[]);
    let mut log = fs::File::create(p.here("log")).unwrap();
    log.write_all(b"before ").unwrap();
    for dest in ["out", "/proc/self/fd/1"] {
        let mut cp = p.command(&["cp", &s.url("/f"), dest]);
        cp.stdout(Stdio::from(log.try_clone().unwrap()));
        let out = cp.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("is a link to an open file") && said.contains("hint: remora cat"), "{said}");
    }
    log.write_all(b"after").unwrap();
    assert_eq!(fs::read(p.here("log")).unwrap(), b"before after");
    assert!(p.here("out").is_symlink());
}

#[test]
fn named_symlink_is_followed_and_never_replaced() {
    let p = Place::new();
    fs::write(p.srv("f"), "theirs").unwrap();
    fs::create_dir(p.here("d")).unwrap();
    fs::write(p.here("d/mine"), "mine").unwrap();
    symlink("d/mine", p.here("link")).unwrap();
    symlink("../link", p.here("d/f")).unwrap();
    symlink("nowhere", p.here("dangling")).unwrap();
    symlink("loop", p.here("loop")).unwrap();
    let s = p.serve(&[]);
    for dest in ["link", "d/f"] {
        fs::write(p.here("d/mine"), "mine").unwrap();
        p.ok(&["cp", &s.url("/f"), dest]);
        assert_eq!(fs::read(p.here("d/mine")).unwrap(), b"theirs");
    }
    p.run(&["cp", &s.url("/f"), "dangling"]).expect(1, &["dangling: is a dangling symbolic link"]);
    p.run(&["cp", &s.url("/f"), "loop"]).expect(1, &["loop: too many levels of symbolic links"]);
    for link in ["link", "d/f", "dangling", "loop"] {
        assert!(p.here(link).is_symlink(), "{link}");
    }
    assert_eq!(names(&p.here("")), ["d", "dangling", "link", "loop"]);
    assert_eq!(names(&p.here("d")), ["f", "mine"]);
}

/// A link that a server had copied into a directory does not decide what the same command writes next time.
#[test]
fn link_left_in_a_directory_is_not_followed() {
    let p = Place::new();
    for (name, secret) in [("photos", "secrets"), ("f", "rc")] {
        symlink(p.here(secret), p.srv(name)).unwrap();
    }
    for dir in ["dl", "secrets"] {
        fs::create_dir(p.here(dir)).unwrap();
    }
    fs::write(p.here("rc"), "mine").unwrap();
    let s = p.serve(&[]);
    let [photos, f] = ["/photos", "/f"].map(|path| s.url(path));
    // A link is replaced by another, wherever it leads.
    for _ in 0..2 {
        p.ok(&["cp", "-r", &photos, &f, "dl"]);
    }
    for name in ["photos", "f"] {
        fs::remove_file(p.srv(name)).unwrap();
    }
    fs::create_dir(p.srv("photos")).unwrap();
    for name in ["photos/keys", "f"] {
        fs::write(p.srv(name), "theirs").unwrap();
    }
    p.run(&["cp", "-r", &photos, "dl"]).expect(1, &["dl/photos: exists and is not a directory"]);
    assert_eq!(names(&p.here("secrets")), [""; 0]);
    for args in [&["cp"][..], &["cp", "-r"]] {
        fs::remove_file(p.here("dl/f")).unwrap();
        symlink("../rc", p.here("dl/f")).unwrap();
        p.ok(&[args, &[&f, "dl"]].concat());
        assert!(!p.here("dl/f").is_symlink());
        assert_eq!(
            (fs::read(p.here("dl/f")).unwrap(), fs::read(p.here("rc")).unwrap()),
            (b"theirs".into(), b"mine".into())
        );
    }
    // The named directory may be reached through a link.
    symlink("secrets", p.here("to-dir")).unwrap();
    p.ok(&["cp", "-r", &photos, "to-dir"]);
    assert_eq!(names(&p.here("secrets")), ["photos"]);
}

#[test]
fn named_link_is_followed_without_r() {
    let p = Place::new();
    fs::write(p.here("f"), "mine").unwrap();
    symlink("f", p.here("link")).unwrap();
    symlink("nowhere", p.here("dangling")).unwrap();
    symlink("/proc/self/fd/0", p.here("in")).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, &["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", "30ms"]);
    for (url, name) in [(s.url("/"), "link"), (s.url("/near"), "near"), (relay.udp_url("/far"), "far")] {
        p.ok(&["cp", "link", &url]);
        assert!(p.srv(name).symlink_metadata().unwrap().is_file(), "{name}");
        assert_eq!(fs::read(p.srv(name)).unwrap(), b"mine");
        fs::remove_file(p.srv(name)).unwrap();
    }
    p.run(&["cp", "dangling", &s.url("/")]).expect(1, &["dangling: no such file"]);
    let mut cp = p.command(&["cp", "in", &s.url("/x")]);
    cp.stdin(fs::File::open(p.here("f")).unwrap());
    assert!(cp.status().unwrap().success());
    assert_eq!(fs::read(p.srv("x")).unwrap(), b"mine");
    fs::remove_file(p.srv("x")).unwrap();
    // With -r the link itself is copied.
    for (url, name) in [(s.url("/near"), "near"), (relay.udp_url("/far"), "far")] {
        p.ok(&["cp", "-r", "link", &url]);
        assert_eq!(fs::read_link(p.srv(name)).unwrap(), Path::new("f"));
    }
    assert_eq!(names(&p.srv("")), ["far", "near"]);
}

#[test]
fn named_special_file_fails_and_is_skipped_in_a_directory() {
    let p = Place::new();
    fs::create_dir(p.here("d")).unwrap();
    make_pipe(&p.here("d/pipe"));
    make_pipe(&p.here("pipe"));
    symlink("pipe", p.here("link")).unwrap();
    fs::write(p.here("f"), "f").unwrap();
    let s = p.serve(&[]);
    let refused = ["pipe: is not a regular file; cp cannot copy it", "hint: write the pipe's data"];
    p.run(&["cp", "pipe", &s.url("/")]).expect(1, &refused);
    p.run(&["cp", "-r", "pipe", &s.url("/")]).expect(1, &refused);
    p.run(&["cp", "pipe", &s.url("/x")]).expect(1, &refused);
    for args in [&["cp", "link"][..], &["cp", "/dev/null"], &["cp", "-r", "/dev/null"]] {
        p.run(&[args, &[&s.url("/")]].concat()).expect(1, &["is not a regular file; cp cannot copy it"]);
    }
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
    // The others are copied.
    p.run(&["cp", "pipe", "f", &s.url("/")]).expect(1, &refused);
    p.run(&["cp", "-r", "d", &s.url("/")]).expect(0, &["d/pipe: skipped"]);
    assert_eq!((names(&p.srv("")), names(&p.srv("d"))), (vec!["d".to_owned(), "f".to_owned()], Vec::new()));
}

#[test]
fn with_r_a_named_link_on_a_server_is_downloaded_as_a_link() {
    let p = Place::new();
    fs::write(p.srv("f"), "theirs").unwrap();
    symlink("f", p.srv("link")).unwrap();
    symlink("/dev/null", p.here("to-null")).unwrap();
    fs::create_dir(p.here("dir")).unwrap();
    let s = p.serve(&[]);
    p.ok(&["cp", "-r", &s.url("/link"), "new"]);
    p.ok(&["cp", "-r", &s.url("/link"), "dir"]);
    p.ok(&["cp", "-r", &s.url("/link"), "new"]);
    for at in ["new", "dir/link"] {
        assert_eq!(fs::read_link(p.here(at)).unwrap(), Path::new("f"), "{at}");
    }
    p.run(&["cp", "-r", &s.url("/link"), "to-null"]).expect(1, &["is not a regular file"]);
    assert_eq!(fs::read_link(p.here("to-null")).unwrap(), Path::new("/dev/null"));
}

/// As files in /proc.
#[test]
fn file_with_content_and_size_zero_is_an_error() {
    let p = Place::new();
    fs::write(p.here("empty"), "").unwrap();
    let s = p.serve(&[]);
    let out = p.run(&["cp", "/proc/version", "empty", &s.url("/")]);
    out.expect(1, &["/proc/version: has size 0 but is not empty", "hint:"]);
    assert_eq!(names(&p.srv("")), ["empty"]);
    p.ok(&["cp", "--verify", &s.url("/empty"), "back"]);
    assert_eq!(fs::metadata(p.here("back")).unwrap().len(), 0);
}

#[test]
fn a_link_below_a_directory_replaces_no_pipe() {
    let p = Place::new();
    for dir in [p.srv("t"), p.here("t"), p.srv("d"), p.here("d")] {
        fs::create_dir(dir).unwrap();
    }
    for (link, pipe) in [(p.srv("t/x"), p.here("t/x")), (p.here("d/x"), p.srv("d/x"))] {
        symlink("where", link).unwrap();
        make_pipe(&pipe);
    }
    let s = p.serve(&[]);
    p.run(&["cp", "-r", &s.url("/t"), "."]).expect(1, &["t/x: is not a regular file; cp does not replace it"]);
    p.run(&["cp", "-r", "d", &s.url("/")]).expect(1, &["d/x: is not a regular file; cp does not replace it"]);
    for pipe in [p.here("t/x"), p.srv("d/x")] {
        assert!(fs::symlink_metadata(pipe).unwrap().file_type().is_fifo());
    }
    assert_eq!((names(&p.here("t")), names(&p.srv("d"))), (vec!["x".to_owned()], vec!["x".to_owned()]));
}

/// On a server as here.
#[test]
fn remote_symlink_is_followed_and_never_replaced() {
    let p = Place::new();
    fs::write(p.here("f"), "mine").unwrap();
    fs::create_dir_all(p.srv("d/deep")).unwrap();
    symlink("d/theirs", p.srv("link")).unwrap();
    symlink("../link", p.srv("d/f")).unwrap();
    symlink("d/../d/deep", p.srv("to-dir")).unwrap();
    symlink("nowhere", p.srv("dangling")).unwrap();
    symlink("loop", p.srv("loop")).unwrap();
    symlink("/etc", p.srv("absolute")).unwrap();
    make_pipe(&p.srv("d/pipe"));
    symlink("d/pipe", p.srv("to-pipe")).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, &["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", "30ms"]);
    for far in [false, true] {
        let url = |name: &str| if far { relay.udp_url(&format!("/{name}")) } else { s.url(&format!("/{name}")) };
        for dest in ["link", "d"] {
            fs::write(p.srv("d/theirs"), "theirs").unwrap();
            p.ok(&["cp", "f", &url(dest)]);
            assert_eq!(fs::read(p.srv("d/theirs")).unwrap(), b"mine", "{dest}");
        }
        p.ok(&["cp", "f", &url("to-dir")]);
        assert_eq!(fs::read(p.srv("d/deep/f")).unwrap(), b"mine");
        for (dest, why) in [
            ("dangling", "is a dangling symbolic link"),
            ("loop", "too many symbolic links"),
            ("absolute", "a symbolic link points to /etc, which is outside this server"),
            ("to-pipe", "is not a regular file"),
        ] {
            p.run(&["cp", "f", &url(dest)]).expect(1, &[dest, why]);
        }
        for link in ["link", "d/f", "to-dir", "dangling", "loop", "absolute", "to-pipe"] {
            assert!(p.srv(link).is_symlink(), "{link}");
        }
        assert_eq!(names(&p.srv("")), ["absolute", "d", "dangling", "link", "loop", "to-dir", "to-pipe"]);
        assert_eq!(names(&p.srv("d")), ["deep", "f", "pipe", "theirs"]);
    }
    // A link may replace a link, as below a directory.
    symlink("elsewhere", p.here("l")).unwrap();
    for dest in ["dangling", "absolute"] {
        p.ok(&["cp", "-r", "l", &s.url(&format!("/{dest}"))]);
        assert_eq!(fs::read_link(p.srv(dest)).unwrap(), Path::new("elsewhere"));
    }
}

#[test]
fn a_slash_at_the_end_means_a_directory() {
    let p = Place::new();
    fs::write(p.srv("f"), "x").unwrap();
    fs::create_dir(p.srv("d")).unwrap();
    symlink("d", p.srv("link")).unwrap();
    let s = p.serve(&[]);
    for args in [&["cat"][..], &["stat"], &["ls"], &["ls", "-l"], &["df"], &["cp", "-q"]] {
        let to = if args[0] == "cp" { &["copy"][..] } else { &[] };
        p.run(&[args, &[&s.url("/f/")], to].concat()).expect(1, &["not a directory"]);
    }
    assert!(!p.here("copy").exists());
    let seen = p.run(&["stat", &s.url("/link/")]);
    assert!(seen.code == 0 && seen.stdout.contains("directory"), "{seen:?}");
    assert!(p.run(&["stat", &s.url("/link")]).stdout.contains("link"));
}

/// MOUNT takes 1024 bytes (MNTPATHLEN); LOOKUP continues from there.
#[test]
fn a_path_longer_than_mount_takes_is_walked_by_name() {
    let p = Place::new();
    let s = p.serve(&[]);
    let deep: String = (0..8).map(|n| format!("/{}", n.to_string().repeat(200))).collect();
    fs::write(p.here("f"), "theirs").unwrap();
    for at in ["", "?proto=udp", "?proto=tcp"] {
        let url = |path: &str| s.url(&format!("{path}{at}"));
        let mut made = String::new();
        for name in deep.split('/').skip(1) {
            made = format!("{made}/{name}");
            p.ok(&["mkdir", &url(&made)]);
        }
        p.ok(&["cp", "-q", "f", &url(&format!("{deep}/f"))]);
        assert_eq!(p.ok(&["cat", &url(&format!("{deep}/f"))]), "theirs");
        assert_eq!(p.ok(&["ls", &url(&deep)]), "f\n");
        for missing in [format!("{deep}/g"), format!("{deep}/g/h"), "/a".repeat(1500), format!("/{deep}x{deep}")] {
            p.run(&["stat", &url(&missing)]).expect(1, &["no such file or directory"]);
        }
        p.run(&["stat", &url(&format!("/{}", "n".repeat(1500)))]).expect(1, &["name too long"]);
        p.ok(&["rm", "-r", &url(&made[..201])]);
    }
}

/// A single exported directory is also `/`: new directories below its path are made there, not below `/`.
#[test]
fn deep_new_path_is_created() {
    let p = Place::new();
    let s = p.serve(&[]);
    let at = |name: &str| s.url(p.srv(name).to_str().unwrap());
    let new: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let deep = new.join("/");
    p.ok(&["mkdir", "-p", &at(&deep)]);
    assert!(p.srv(&deep).is_dir());
    assert_eq!(names(&p.srv("")), ["1"]);
    // MOUNT follows no link, so what is behind it is found from above.
    symlink("1", p.srv("current")).unwrap();
    fs::write(p.srv(&deep).join("f"), "theirs").unwrap();
    assert_eq!(p.ok(&["cat", &at(&format!("current/{}/f", new[1..].join("/")))]), "theirs");
}

#[test]
fn of_several_exports_a_deep_path_finds_its_own() {
    let p = Place::new();
    let deep = ["d"; 20].join("/");
    for dir in ["a", "b"] {
        fs::create_dir(p.srv(dir)).unwrap();
    }
    let [a, b] = ["a", "b"].map(|dir| p.srv(dir).to_str().unwrap().to_owned());
    let serve = ["serve", &a, &b, "--listen", "127.0.0.1:0", "--squash", "none", "--json"];
    let s = Daemon::start(p.server_command(&serve));
    p.ok(&["mkdir", "-p", &s.url(&format!("{b}/{deep}"))]);
    assert!(p.srv("b").join(&deep).is_dir());
    assert_eq!(names(&p.srv("a")), [""; 0]);
}

/// A directory is mounted once, not for each name.
#[test]
fn one_mount_call_serves_a_directory() {
    let p = Place::new();
    fs::create_dir_all(p.srv("d/e")).unwrap();
    let s = p.serve(&[]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = asked.clone();
    let mounts = move |path: &[u8]| {
        told.lock().unwrap().push(String::from_utf8_lossy(path).into_owned());
        None
    };
    let url = between_mounting(&s, usize::MAX, mounts, Fate::Pass);
    let at = |name: &str| url.replace("/?", &format!("/{name}?"));
    let mounted = |args: &[&str]| {
        p.ok(args);
        std::mem::take(&mut *asked.lock().unwrap()).iter().filter(|path| *path == "/d/e").count()
    };
    let urls: Vec<String> = (0..9).map(|n| at(&format!("d/e/{n}"))).collect();
    for command in [&["mkdir"][..], &["rm", "-r"]] {
        let all: Vec<&str> = command.iter().copied().chain(urls.iter().map(String::as_str)).collect();
        // Over UDP MNT may be repeated.
        let times = mounted(&all);
        assert!((1..5).contains(&times), "{command:?}: {times}");
    }
}

/// A server at a link-local address in its own network namespace.
#[test]
fn url_with_a_zone_reaches_a_link_local_server() {
    let name = "url_with_a_zone_reaches_a_link_local_server";
    if !is_root() || Command::new("ip").arg("-V").output().is_err() {
        return skip::skipped(name, "it takes root and iproute2");
    }
    let p = Place::new();
    fs::write(p.srv("f"), "hello\n").unwrap();
    let script = r#"
        ip link set lo up
        ip addr add fe80::1/64 dev lo nodad
        "$0" serve "$1" --listen "[::]:2049" --squash none --state "$2/server" --json > "$2/ready" 2> "$2/said" &
        server=$!
        trap 'kill $server' EXIT
        until [ -s "$2/ready" ]; do kill -0 $server; sleep 0.05; done
        for proto in udp tcp auto; do
            "$0" cat "nfs://[fe80::1%25lo]/f?proto=$proto"
            "$0" cat "nfs://[fe80::1%lo]:2049/f?proto=$proto"
        done
        "$0" cp -q "nfs://[fe80::1%25lo]/f" "$2/copy"
        "$0" mkdir "nfs://[fe80::1%25lo]/d"
        "$0" mv "nfs://[fe80::1%25lo]/d" "nfs://[fe80::1%25lo]/e"
        "$0" rm -r "nfs://[fe80::1%25lo]/e"
        for command in ls df "exports --json" "bench -q --ops getattr --count 5"; do
            "$0" $command "nfs://[fe80::1%25lo]/" > "$2/printed"
        done
        "$0" stat "nfs://[fe80::1%25lo]/none" || true
        "$0" stat "nfs://[fe80::1%25v9]/f" || echo "exit code $?"
    "#;
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--", "sh", "-ec", script, env!("CARGO_BIN_EXE_remora")]).args([p.srv(""), p.state()]);
    inside.env("XDG_STATE_HOME", p.state()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = Running::start(inside).finish();
    out.expect(0, &["nfs://[fe80::1%25lo]/none: no such file", "no network interface here is called v9"]);
    assert_eq!(out.stdout, "hello\n".repeat(6) + "exit code 3\n");
    assert_eq!(fs::read(p.state().join("copy")).unwrap(), b"hello\n");
}
