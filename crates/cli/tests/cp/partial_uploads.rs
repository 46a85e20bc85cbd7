//! Interrupted uploads, and how later ones find them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::common::copies::{SIZE, SLOW, journals, resumed};
use crate::common::{Daemon, Place, Running, is_root, names, noise, until};
use skip::skipped;

/// Serves at every address of this machine.
fn serve_everywhere(p: &Place) -> Daemon {
    let srv = p.srv("");
    let args = ["serve", srv.to_str().unwrap(), "--listen", "0.0.0.0:0", "--allow", "127.0.0.0/8", "--squash", "none"];
    Daemon::start(p.server_command(&[&args[..], &["--json"]].concat()))
}

/// URL of `path` at another address of the server.
fn elsewhere(s: &Daemon, path: &str) -> String {
    format!("nfs://127.0.0.2:{}{path}?proto=udp", s.port())
}

/// Interrupts an upload of f after a part of it was recorded.
fn interrupted(p: &Place, s: &Daemon) {
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let relay = p.relay_at(0, s, SLOW);
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a journal", || !journals(p).is_empty());
    running.signal("INT");
    running.finish().expect(130, &["kept", "--resume"]);
}

/// With --resume it continues; without, it leaves nothing of the earlier one.
#[test]
fn interrupted_upload_resumes_under_another_address_and_host() {
    for (is_renamed, resumes) in [(false, true), (false, false), (true, true), (true, false)] {
        if is_renamed && !is_root() {
            return skipped("an_interrupted_upload_is_found_under_another_host_name", "needs root");
        }
        let p = Place::new();
        let s = serve_everywhere(&p);
        interrupted(&p, &s);
        let url = if is_renamed { format!("nfs://127.0.0.1:{}/f", s.port()) } else { elsewhere(&s, "/f") };
        let flags = if resumes { &["cp", "--json", "--resume"][..] } else { &["cp", "--json"] };
        let command = p.command(&[flags, &["f", &url]].concat());
        let out = Running::start(if is_renamed { renamed(&command) } else { command }).finish();
        out.expect(0, &[]);
        let (bytes, before) = resumed(&out.stdout);
        assert_eq!(before > 0, resumes, "renamed: {is_renamed}; {bytes} and {before} from before: {}", out.stderr);
        assert!(bytes + before >= SIZE && fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
        assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], Vec::new()), "{is_renamed} {resumes}");
    }
}

/// The journal and its lock have no address in their names.
#[test]
fn second_upload_to_another_address_of_a_server_is_refused() {
    let p = Place::new();
    let s = serve_everywhere(&p);
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a journal", || !journals(&p).is_empty());
    p.run(&["cp", "f", &elsewhere(&s, "/f")]).expect(1, &["another copy to this file is running"]);
    running.finish().expect(0, &[]);
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
    assert_eq!((names(&p.srv("")), p.left()), (vec!["f".to_owned()], Vec::new()));
}

/// `cp -r --resume` completes a directory that an interrupted copy made under a free name.
#[test]
fn interrupted_tree_resumes_under_another_address_and_host() {
    for (is_renamed, is_up) in [(false, true), (false, false), (true, true), (true, false)] {
        if is_renamed && !is_root() {
            return skipped("an_interrupted_tree_is_found_under_another_host_name", "needs root");
        }
        let p = Place::new();
        let s = serve_everywhere(&p);
        let (from, to) = if is_up { (p.here("t"), p.srv("new")) } else { (p.srv("t"), p.here("new")) };
        fs::create_dir(&from).unwrap();
        fs::write(from.join("f"), noise(SIZE, 5)).unwrap();
        let relay = p.relay_at(0, &s, SLOW);
        let way = |url: &dyn Fn(&str) -> String| {
            if is_up { ["t".to_owned(), url("/new")] } else { [url("/t"), "new".to_owned()] }
        };
        let [a, b] = way(&|path| relay.udp_url(path));
        let running = p.start(&["cp", "-r", "-q", &a, &b]);
        // An upload can be resumed once a part of it is recorded.
        until("some of it", || to.exists() && !names(&to).is_empty() && !(is_up && journals(&p).is_empty()));
        running.signal("INT");
        running.finish();
        let url =
            |path: &str| if is_renamed { format!("nfs://127.0.0.1:{}{path}", s.port()) } else { elsewhere(&s, path) };
        let [a, b] = way(&url);
        let command = p.command(&["cp", "-r", "-q", "--resume", &a, &b]);
        let command = if is_renamed { renamed(&command) } else { command };
        Running::start(command).finish().expect(0, &[]);
        assert_eq!(names(&to), ["f"], "renamed: {is_renamed}, up: {is_up}");
        assert!(fs::read(to.join("f")).unwrap() == noise(SIZE, 5));
        assert_eq!(p.left(), [""; 0]);
        // When it is complete it is copied into.
        p.ok(&["cp", "-r", "-q", "--resume", &a, &b]);
        assert_eq!(names(&to), ["f", "t"]);
    }
}

/// The command, on a machine with another host name. Requires root.
fn renamed(command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--uts", "sh", "-ec", "echo elsewhere >/proc/sys/kernel/hostname; exec \"$@\"", "sh"]);
    inside.arg(command.get_program()).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.current_dir(command.get_current_dir().unwrap());
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}

/// The journal of an earlier copy says nothing of the next file, whose copy may end before it records anything.
#[test]
fn fresh_copy_discards_the_journal_of_an_earlier_one() {
    let p = Place::new();
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let begin = || p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    let first = begin();
    until("a journal", || !journals(&p).is_empty());
    first.signal("KILL");
    first.finish();
    let number = |p: &Place| names(&p.srv("")).pop().and_then(|name| Some(fs::metadata(p.srv(&name)).ok()?.ino()));
    let before = number(&p).unwrap();
    // A second name keeps the inode number in use.
    fs::hard_link(p.srv(&names(&p.srv("")).pop().unwrap()), p.state().join("first")).unwrap();
    let noted = fs::read(&journals(&p)[0]).unwrap();
    let second = begin();
    until("another part", || number(&p).is_some_and(|now| now != before));
    assert!(journals(&p).first().is_none_or(|path| fs::read(path).is_ok_and(|now| now != noted)));
    second.signal("KILL");
    second.finish();
}

/// A copy with the source's size and time is complete, whatever an earlier run recorded.
#[test]
fn resume_finding_a_complete_copy_removes_the_journal() {
    let p = Place::new();
    let s = p.serve(&[]);
    interrupted(&p, &s);
    fs::rename(p.srv(&names(&p.srv("")).pop().unwrap()), p.srv("f")).unwrap();
    fs::write(p.srv("f"), noise(SIZE, 5)).unwrap();
    let copy = fs::File::options().write(true).open(p.srv("f")).unwrap();
    copy.set_modified(fs::metadata(p.here("f")).unwrap().modified().unwrap()).unwrap();
    assert_eq!(resumed(&p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")])), (0, SIZE));
    assert_eq!(p.left(), [""; 0]);
}

/// Neither touches the other's temporary file. Each finds its own after it was killed.
#[test]
fn uploads_of_clients_with_one_host_name_do_not_collide() {
    let p = Place::new();
    fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let first = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
    until("a part", || !names(&p.srv("")).is_empty());
    let mut other = p.command(&["cp", "-q", "f", &relay.udp_url("/f")]);
    other.env("XDG_STATE_HOME", p.state().join("other"));
    let other = Running::start(other);
    until("another part", || names(&p.srv("")).len() == 2);
    p.run(&["cp", "f", &s.url("/f")]).expect(1, &["another copy to this file is running"]);
    first.finish().expect(0, &[]);
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
    other.signal("KILL");
    other.finish();
    let mut again = p.command(&["cp", "-q", "f", &s.url("/f")]);
    again.env("XDG_STATE_HOME", p.state().join("other"));
    Running::start(again).finish().expect(0, &[]);
    assert_eq!(names(&p.srv("")), ["f"]);
}

/// The id is no secret. An unusable one is replaced, and then stays.
#[test]
fn client_with_damaged_id_resumes_its_uploads() {
    use std::os::unix::fs::PermissionsExt;
    for (id, mode) in [(&b"readable"[..], 0o644), (b"", 0o600), (b"short", 0o600), (b"of twenty bytes, long", 0o600)] {
        let p = Place::new();
        fs::write(p.here("f"), noise(SIZE, 5)).unwrap();
        fs::create_dir(p.state().join("remora")).unwrap();
        let path = p.state().join("remora/id");
        fs::write(&path, id).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let s = p.serve(&[]);
        let relay = p.relay_at(0, &s, SLOW);
        let running = p.start(&["cp", "-q", "f", &relay.udp_url("/f")]);
        until("a journal", || !journals(&p).is_empty());
        running.signal("INT");
        running.finish().expect(130, &["kept", "--resume"]);
        let (_, before) = resumed(&p.ok(&["cp", "--json", "--resume", "f", &s.udp_url("/f")]));
        assert!(before > 0, "{id:?} {mode:o}");
        assert_eq!(names(&p.srv("")), ["f"], "{id:?} {mode:o}");
    }
}

/// The next run would not find what this one leaves.
#[test]
fn client_without_a_stored_id_warns_once() {
    let p = Place::new();
    fs::create_dir(p.here("d")).unwrap();
    ["f", "g"].iter().for_each(|name| fs::write(p.here("d").join(name), noise(SIZE, 5)).unwrap());
    fs::create_dir_all(p.state().join("remora/id")).unwrap();
    let s = p.serve(&[]);
    let relay = p.relay_at(0, &s, SLOW);
    let running = p.start(&["cp", "-r", "d", &relay.udp_url("/")]);
    let has_some = |name: &String| fs::metadata(p.srv("d").join(name)).is_ok_and(|meta| meta.len() > 300_000);
    until("some of both", || {
        p.srv("d").exists() && names(&p.srv("d")).iter().filter(|name| has_some(name)).count() == 2
    });
    running.signal("INT");
    let out = running.finish();
    out.expect(130, &["the journal cannot be written", "remora/id: is a directory"]);
    assert_eq!(out.stderr.matches("remora/id").count(), 1, "{}", out.stderr);
    assert!(!out.stderr.contains("--resume"), "{}", out.stderr);
    // Complete copies are not affected.
    p.ok(&["cp", "-q", "d/f", &s.udp_url("/f")]);
    assert!(fs::read(p.srv("f")).unwrap() == noise(SIZE, 5));
}
