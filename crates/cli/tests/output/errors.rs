//! What goes wrong, how it is said, and with which exit code it ends.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use skip::skipped;

use crate::common::{Daemon, Place, Running, is_root, names, noise, until};

#[test]
fn wrong_usage_exits_with_2() {
    let p = Place::new();
    for (args, words) in [
        (&["ls"][..], &["URL"][..]),
        (&["ls", "http://nas/"], &["scheme", "nfs://host"]),
        (&["ls", "nfs://nas/?proto=sctp"], &["sctp"]),
        (&["ls", "nfs:///x"], &["host"]),
        (&["ls", "nfs://127.0.0.1:0/"], &["not a port"]),
        (&["ls", "nfs://127.0.0.1/?proto=udp&proto=tcp"], &["proto twice"]),
        (&["ls", "nfs://h/%00"], &["%00", "is in no name"]),
        (&["frobnicate"], &["frobnicate"]),
        (&["cp", "a", "b"], &["neither", "URL"]),
        (&["cp", "nfs://h/a", "nfs://h/b"], &["must be URLs, not both"]),
        (&["cp", "a", "nfs://h/a", "nfs://h/b"], &["must be URLs, not both"]),
        (&["cp", "nfs://h/a"], &["SRC"]),
        (&["ls", "--block", "1", "nfs://h/"], &["1024"]),
        (&["ls", "--timeout", "soon", "nfs://h/"], &["soon"]),
        (&["serve"], &["nothing to share"]),
        (&["serve", ".", "--state", ".", "--allow", "10.0.0.0/33"], &["10.0.0.0/33"]),
        (&["serve", ".", "--export", "x"], &["NAME=DIR"]),
        (&["lab", "relay", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1", "--mtu", "1"], &["576"]),
        (&["lab", "relay", "--listen", "127.0.0.1:0", "--server", "x"], &["x"]),
    ] {
        p.run(args).expect(2, words);
    }
}

/// How long a command waits for a server's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

#[test]
fn missing_server_exits_with_3_at_once_over_tcp() {
    let p = Place::new();
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("nfs://127.0.0.1:{port}/x");
    let started = Instant::now();
    p.run(&["ls", &url]).expect(3, &["cannot reach", "connection refused", "hint:"]);
    p.run(&["cp", &url, "x"]).expect(3, &["remora: cp: nfs://", "hint:"]);
    assert!(started.elapsed() < FIRST_ANSWER, "{:?}", started.elapsed());
    p.run(&["ls", "nfs://no-such-host.invalid/x"]).expect(3, &["cannot find the address of no-such-host.invalid"]);
    assert_eq!(names(&p.here("")), Vec::<String>::new());
}

#[test]
fn missing_server_exits_with_3_soon_over_udp() {
    let p = Place::new();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let began = Instant::now();
    p.run(&["ls", &format!("nfs://127.0.0.1:{port}/?proto=udp")]).expect(3, &["cannot reach", "connection refused"]);
    assert!(began.elapsed() < Duration::from_secs(15), "before the timeout of 30 s");
}

#[test]
fn server_without_udp_is_reached_over_tcp_only() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    let s = p.serve(&["--no-udp"]);
    p.run(&["cat", &s.udp_url("/f")]).expect(3, &["cannot reach", "connection refused"]);
    assert_eq!(p.ok(&["cat", &s.url("/f")]), "f");
}

#[test]
fn silent_server_exits_with_3_after_the_timeout() {
    let p = Place::new();
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    for url in
        [format!("nfs://{}/x?proto=udp", deaf.local_addr().unwrap()), format!("nfs://{}/x", mute.local_addr().unwrap())]
    {
        let started = Instant::now();
        p.run(&["ls", "--timeout", "1", &url]).expect(3, &["does not answer", "--timeout"]);
        assert!((1..6).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    }
}

#[test]
fn stalled_commands_print_a_notice() {
    let p = Place::new();
    fs::write(p.srv("f"), noise(3_000_000, 5)).unwrap();
    let s = p.serve(&[]);
    let slow = ["--rate", "16Mbit", "--duplex", "full", "--queue", "1000", "--outage", "1s+5s"];
    for (args, is_told) in [(&["cat"][..], true), (&["cp"], true), (&["cp", "-q"], false)] {
        let relay = p.relay_at(0, &s, &slow);
        let to = if args[0] == "cp" { &["f"][..] } else { &[] };
        let out = p.run(&[args, &[&relay.udp_url("/f")], to].concat());
        assert_eq!(
            (out.code, out.stderr.contains("has not answered for 3 s")),
            (0, is_told),
            "{args:?}: {}",
            out.stderr
        );
        assert_eq!(out.stderr.contains("back after"), is_told, "{args:?}: {}", out.stderr);
    }
    let late = p.relay_at(0, &s, &["--outage", "0s+4500ms"]);
    p.run(&["stat", &late.udp_url("/f")])
        .expect(0, &["127.0.0.1 is not mounted after 3 s", "127.0.0.1 is mounted after"]);
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/x?proto=udp", deaf.local_addr().unwrap());
    p.run(&["df", "--timeout", "5", &url]).expect(3, &["127.0.0.1 is not mounted after 3 s", "does not answer"]);
}

#[test]
fn ctrl_c_works_while_the_server_is_silent() {
    let p = Place::new();
    for (signal, code, word) in [("INT", 130, "interrupted"), ("TERM", 143, "terminated"), ("HUP", 129, "hung up")] {
        // One for each: a packet of the last one's says nothing of this.
        let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
        let url = format!("nfs://{}/x?proto=udp", deaf.local_addr().unwrap());
        let running = p.start(&["cat", &url]);
        // Its handlers are set when its first packet comes.
        deaf.recv(&mut [0; 1000]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        running.signal(signal);
        running.finish().expect(code, &[word]);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
}

/// As by nohup(1).
#[test]
fn signal_ignored_at_start_stays_ignored() {
    let p = Place::new();
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/x?proto=udp", deaf.local_addr().unwrap());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" cat \"$1\"", env!("CARGO_BIN_EXE_remora"), &url]);
    command.env("XDG_STATE_HOME", p.state()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(command);
    deaf.recv(&mut [0; 1000]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    running.signal("HUP");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!running.has_ended());
    running.signal("TERM");
    running.finish().expect(143, &["terminated"]);
}

#[test]
fn server_errors_exit_with_1() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    fs::create_dir(p.srv("d")).unwrap();
    fs::write(p.srv("d/g"), "g").unwrap();
    symlink("d", p.srv("link")).unwrap();
    fs::write(p.here("f"), "f").unwrap();
    fs::create_dir(p.here("local")).unwrap();
    symlink("f", p.here("to_f")).unwrap();
    let s = p.serve(&[]);
    let long = s.url(&format!("/{}", "n".repeat(256)));
    for (args, words) in [
        (&["ls", &s.url("/nope")][..], &["no such file or directory"][..]),
        (&["ls", &s.url("/f/")], &["not a directory"]),
        (&["cat", &s.url("/d")], &["is a directory"]),
        (&["cat", &s.url("/f/x")], &["not a directory"]),
        (&["cp", &s.url("/d"), "d"], &["is a directory", "-r"]),
        (&["cp", "local", &s.url("/")], &["is a directory", "-r"]),
        (&["cp", "nope", &s.url("/")], &["nope: no such file"]),
        (&["cp", "f", &s.url("/no/f")], &["no such file"]),
        (&["cp", "f", &s.url("/no/")], &["no such directory"]),
        (&["cp", "-r", "f", &s.url("/no/")], &["no such directory"]),
        (&["cp", "-r", "to_f", &s.url("/no/")], &["no such directory"]),
        (&["cp", "f", &long], &["name too long"]),
        (&["cp", &s.url("/f"), "/dev/null"], &["not a regular file"]),
        (&["cp", &s.url("/f"), "no/f"], &["no such file"]),
        (&["cp", &s.url("/f"), "no/"], &["no/: no such directory"]),
        (&["cp", "-r", &s.url("/f"), "no/"], &["no/: no such directory"]),
        (&["cp", &s.url("/f"), &"n".repeat(256)], &["file name too long"]),
        (&["cp", &s.url("/f"), "f/x"], &["f/x: not a directory"]),
        (&["cp", &s.url("/f"), &s.url("/f").replace("nfs:", "./nfs:")], &["no such file"]),
        (&["mkdir", &s.url("/d")], &["file exists"]),
        (&["mkdir", &s.url("/x/y")], &["no such file"]),
        (&["mkdir", "-p", &s.url("/f/x")], &["f/x: f is not a directory"]),
        (&["mkdir", "-p", &s.url("/f/x/y")], &["f/x/y: f is not a directory"]),
        (&["mkdir", "-p", &s.url("/f")], &["f: file exists"]),
        (&["mkdir", &long], &["name too long"]),
        (&["mv", &s.url("/nope"), &s.url("/x")], &["no such file"]),
        (&["mv", &s.url("/d"), &s.url("/d/inside")], &["cannot be moved into itself"]),
        (&["mv", &s.url("/d"), &s.url("/link/inside")], &["cannot be moved into itself"]),
        (&["mv", &s.url("/d"), &s.url("/d")], &["are the same"]),
        (&["mv", &s.url("/f"), &s.url("/f")], &["are the same"]),
        (&["mv", &s.url("/d/g"), &s.url("/d/")], &["are the same"]),
        (&["rm", "-r", &s.url("/")], &["root of the export"]),
        (&["rm", "-f", &s.url("/f/")], &["not a directory"]),
        (&["rm", "-r", &s.url("/link/")], &["not a directory"]),
        (&["serve", "/nonexistent"], &["no such file"]),
        (&["serve", "/dev/null"], &["not a directory"]),
        (&["serve", ".", "--state", "st", "--listen", &s.addr.to_string()], &["taken"]),
        (&["serve", ".", "--state", "st", "--listen", "192.0.2.1:20490"], &["not an address of this machine"]),
        (&["serve", ".", "--state", "/dev/null/x"], &["--state DIR"]),
    ] {
        p.run(args).expect(1, words);
    }
    assert_eq!(names(&p.srv("")), ["d", "f", "link"]);
    assert_eq!(names(&p.here("")), ["f", "local", "st", "to_f"]);
}

#[test]
fn read_only_export_refuses_changes_of_cp() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    fs::write(p.here("g"), "g").unwrap();
    let s = p.serve(&["--read-only"]);
    for args in [
        &["cp", "g", &s.url("/g")][..],
        &["cp", "g", &s.url("/f")],
        &["mkdir", &s.url("/d")],
        &["rm", &s.url("/f")],
        &["mv", &s.url("/f"), &s.url("/h")],
    ] {
        p.run(args).expect(1, &["read-only"]);
    }
    assert_eq!(p.ok(&["cat", &s.url("/f")]), "f");
    assert_eq!(names(&p.srv("")), ["f"]);
}

#[test]
fn disallowed_host_gets_permission_denied() {
    let p = Place::new();
    let s = p.serve(&["--allow", "192.0.2.0/24"]);
    p.run(&["ls", &s.url("/")]).expect(1, &["permission denied"]);
}

#[test]
fn permissions_of_the_user_apply() {
    if !is_root() {
        return skipped("permissions_of_the_user_apply", "needs root");
    }
    let p = Place::new();
    fs::write(p.srv("secret"), "s").unwrap();
    fs::write(p.here("g"), "g").unwrap();
    fs::set_permissions(p.srv("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    // Root is squashed, so to the server we are nobody in particular.
    let srv = p.srv("");
    let daemon = p.server_command(&["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--json"]);
    let s = crate::common::Daemon::start(daemon);
    p.run(&["cat", &s.url("/secret")]).expect(1, &["permission denied", "user 0", "nobody"]);
    p.run(&["cp", "g", &s.url("/g")]).expect(1, &["permission denied"]);
    assert_eq!(names(&p.srv("")), ["secret"]);
}

/// A small file system; it goes away with its owner.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: std::path::PathBuf) -> Option<Small> {
        if !is_root() {
            return None;
        }
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "remora-test"])
            .arg(&at)
            .output()
            .is_ok_and(|o| o.status.success());
        mounted.then_some(Small(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disks_leave_nothing_behind() {
    let p = Place::new();
    let (Some(_there), Some(_here)) = (Small::mount(p.srv("")), Small::mount(p.here(""))) else {
        return skipped("full_disks_leave_nothing_behind", "cannot mount a small file system (needs root)");
    };
    let big = p.state().join("big");
    fs::write(&big, noise(3_000_000, 1)).unwrap();
    let s = p.serve(&[]);
    p.run(&["cp", big.to_str().unwrap(), &s.url("/f")]).expect(1, &["no space left on the server's disk"]);
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
    // What failed before is no reason not to say it.
    let why = ["nope: no such file", "no space left on the server's disk"];
    p.run(&["cp", "nope", big.to_str().unwrap(), &s.url("/")]).expect(1, &why);
    // The room is given back: what is smaller fits, and at once.
    let small = p.state().join("small");
    fs::write(&small, noise(700_000, 2)).unwrap();
    p.run(&["cp", small.to_str().unwrap(), &s.url("/small")]).expect(0, &[]);
    p.run(&["rm", &s.url("/small")]).expect(0, &[]);
    // Several files are under way when the first of them does not fit.
    fs::create_dir(p.state().join("tree")).unwrap();
    for i in 0..30 {
        fs::write(p.state().join(format!("tree/{i}")), noise(100_000, i)).unwrap();
    }
    let tree = p.state().join("tree");
    p.run(&["cp", "-r", tree.to_str().unwrap(), &s.url("/t")]).expect(1, &["no space left on the server's disk"]);
    let left = names(&p.srv("t"));
    assert!(left.iter().all(|name| !name.starts_with('.')), "{left:?}");
    fs::remove_dir_all(tree).unwrap();
    drop(s);
    let daemon = p.server_command(&["serve", p.state().to_str().unwrap(), "--listen", "127.0.0.1:0", "--json"]);
    let s = crate::common::Daemon::start(daemon);
    fs::set_permissions(&big, fs::Permissions::from_mode(0o644)).unwrap();
    p.run(&["cp", &s.url("/big"), "f"]).expect(1, &["f: no space left on device"]);
    assert_eq!(names(&p.here("")), Vec::<String>::new());
}

/// Over a long way the hidden file is made before the source is opened.
#[test]
fn unreadable_source_leaves_no_remote_file() {
    let p = Place::new();
    fs::write(p.here("f"), noise(1000, 1)).unwrap();
    fs::set_permissions(p.here("f"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(p.srv(""), fs::Permissions::from_mode(0o777)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, &["--rate", "100Mbit", "--duplex", "full", "--queue", "1000", "--delay", "40ms"]);
    let command = p.as_nobody(&["cp", "f", &relay.udp_url("/f")]);
    Running::start(command).finish().expect(1, &["f: permission denied"]);
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
}

#[test]
fn unread_messages_do_not_change_the_exit_code() {
    let p = Place::new();
    fs::write(p.here("c"), "c").unwrap();
    let s = p.serve(&[]);
    let to = s.url("/");
    for args in [&["cp", "a", "b", "c", &to][..], &["rm", &s.url("/a"), &s.url("/b")], &["ls", &s.url("/a")]] {
        let out = p.command(args).stderr(fs::File::create("/dev/full").unwrap()).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}");
    }
    assert_eq!(names(&p.srv("")), ["c"]);
}

#[test]
fn some_failures_do_not_stop_the_rest() {
    let p = Place::new();
    for name in ["a", "c"] {
        fs::write(p.here(name), name).unwrap();
    }
    let s = p.serve(&[]);
    let out = p.run(&["cp", "--json", "a", "b", "c", &s.url("/")]);
    out.expect(1, &["b: no such file"]);
    let report: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&report["files"], &report["failed"]), (&2.into(), &1.into()));
    assert_eq!(names(&p.srv("")), ["a", "c"]);
}

#[test]
fn readable_handle_key_is_refused() {
    let p = Place::new();
    drop(p.serve(&[]));
    let key = p.state().join("server/handle-key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o666)).unwrap();
    let srv = p.srv("");
    let serve = p.server_command(&["serve", srv.to_str().unwrap(), "--listen", "192.0.2.1:20490"]);
    Running::start(serve).finish().expect(1, &["handle-key: others can read", "mode 666", "chmod 600"]);
}

#[test]
fn failure_at_one_url_does_not_stop_the_others() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    fs::write(p.srv("g"), "g").unwrap();
    let s = p.serve(&[]);
    let (no, f, g, bad) = (s.url("/no/x"), s.url("/f"), s.url("/g"), "nfs:///x");
    let out = p.run(&["cat", &f, &no, &g]);
    out.expect(1, &["remora: cat:", "no such file"]);
    assert_eq!(out.stdout, "fg");
    let out = p.run(&["stat", &no, &f, bad, "--json", &g]);
    out.expect(2, &["no such file", "host"]);
    assert_eq!(out.stdout.lines().count(), 2);
    p.run(&["cp", bad, &f, &no, &g, "."]).expect(2, &["no such file", "host"]);
    assert_eq!(names(&p.here("")), ["f", "g"]);
    p.run(&["mkdir", &f, &s.url("/a"), &no, &s.url("/b")]).expect(1, &["f: file exists", "no such file"]);
    p.run(&["mkdir", "-p", &s.url("/f/x"), &s.url("/c/d")]).expect(1, &["f/x"]);
    assert_eq!(names(&p.srv("")), ["a", "b", "c", "f", "g"]);
    let out = p.run(&["rm", &no, bad, &f, &s.url("/a"), &g]);
    out.expect(2, &["no such file", "host", "a: is a directory"]);
    assert_eq!(names(&p.srv("")), ["a", "b", "c"]);
}

/// On a long path a copy gets its name while its end is on the way. Here there is no room for the
/// end, and the name is taken back.
#[test]
fn copy_without_space_at_its_end_is_removed() {
    let p = Place::new();
    let Some(_there) = Small::mount(p.srv("")) else {
        let name = "copy_without_space_at_its_end_is_removed";
        return skipped(name, "cannot mount a small file system (needs root)");
    };
    let big = p.state().join("big");
    fs::write(&big, noise((1 << 20) + 20_000, 1)).unwrap();
    let s = p.serve(&[]);
    let far = ["--rate", "4Mbit", "--duplex", "full", "--queue", "1000", "--delay", "110ms"];
    let relay = p.relay_at(0, &s, &far);
    p.run(&["cp", big.to_str().unwrap(), &relay.udp_url("/f")]).expect(1, &["no space left on the server's disk"]);
    assert_eq!(names(&p.srv("")), Vec::<String>::new());
    assert_eq!(p.left(), Vec::<String>::new());
}

#[test]
fn file_size_limit_of_the_server_is_reported() {
    let p = Place::new();
    let server = p.serve(&[]);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let limit = Rlimit { current: Some(100_000), maximum: Some(100_000) };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    fs::write(p.here("large"), noise(300_000, 1)).unwrap();
    p.run(&["cp", "large", &server.url("/large")]).expect(1, &["too large"]);
    fs::write(p.here("small"), noise(30_000, 2)).unwrap();
    p.ok(&["cp", "small", &server.url("/small")]);
    assert_eq!(names(&p.srv("")), ["small"]);
}

#[test]
fn exports_share_the_descriptor_limit() {
    const LIMIT: u64 = 400;
    let p = Place::new();
    let content = noise(5_000, 3);
    let dirs: Vec<String> = (0..8).map(|n| p.srv(&n.to_string()).display().to_string()).collect();
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
        (0..60).for_each(|n| fs::write(format!("{dir}/{n}"), &content).unwrap());
    }
    let words =
        [&["serve", "--listen", "127.0.0.1:0", "--json"][..], &dirs.iter().map(String::as_str).collect::<Vec<_>>()];
    let server = Daemon::start(after(&format!("ulimit -n {LIMIT}"), &p.server_command(&words.concat())));
    for dir in &dirs {
        p.ok(&["cp", "-r", "-q", &server.url(dir), "."]);
    }
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    assert!(open < LIMIT / 2, "{open} of {LIMIT} are open");
    p.ok(&["ls", &server.url(&dirs[0])]);
}

/// The command, after `words` of the shell's.
fn after(words: &str, remora: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{words}; exec \"$0\" \"$@\"")]).arg(remora.get_program());
    command.args(remora.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn server_without_descriptors_for_connections_does_not_start() {
    let p = Place::new();
    let dirs: Vec<String> = (0..40).map(|n| p.srv(&n.to_string()).display().to_string()).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let serve = |exports: usize, more: &[&str]| {
        let dirs: Vec<&str> = dirs.iter().take(exports).map(String::as_str).collect();
        p.server_command(&[&["serve", "--listen", "127.0.0.1:0"][..], &dirs, more].concat())
    };
    for (more, code) in [(&[][..], 1), (&["--check"], 2)] {
        let out = Running::start(after("ulimit -n 128", &serve(40, more))).finish();
        out.expect(code, &["128", "40 exports", "LimitNOFILE="]);
    }
    let out = Running::start(after("ulimit -n 128", &serve(2, &["--check"]))).finish();
    out.expect(0, &["TCP connections fit beside 2 exports where 128 files may be open"]);
}

#[test]
fn descriptor_exhaustion_is_reported_and_survived() {
    let p = Place::new();
    let (said, srv) = (p.here("said"), p.srv("").display().to_string());
    let serve = p.server_command(&["serve", &srv, "--listen", "127.0.0.1:0", "--json"]);
    let server = Daemon::start(after(&format!("exec 2>'{}'", said.display()), &serve));
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let allow =
        |files| prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum: Some(1 << 10) }).unwrap();
    allow(8);
    let ls = p.start(&["ls", &server.url("/"), "--timeout", "30"]);
    until("a word", || fs::read_to_string(&said).unwrap().contains("too many open files in this process (EMFILE"));
    allow(1 << 10);
    ls.finish().expect(0, &[]);
}

#[test]
fn missing_descriptors_are_reported() {
    let p = Place::new();
    let keys = p.command(&["link", "keys", "--key", "no.key"]);
    let with = |files| Running::start(after(&format!("ulimit -n {files}"), &keys)).finish();
    for files in 6..9 {
        with(files).expect(1, &["remora: link: starting: too many open files"]);
    }
    for files in 9..14 {
        let out = with(files);
        assert!([0, 1].contains(&out.code) && !out.stderr.contains("panicked"), "{files}: {out:?}");
    }
}

#[test]
fn server_with_unread_output_can_be_stopped() {
    let p = Place::new();
    let server = p.serve(&[]);
    // Its counters fill the pipe.
    for _ in 0..400 {
        server.signal("USR1");
        std::thread::sleep(Duration::from_millis(2));
    }
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
}

/// timeout(1) sends each twice.
#[test]
fn only_a_later_signal_stops_the_server_at_once() {
    let p = Place::new();
    let server = p.serve(&[]);
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(1));
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
}
