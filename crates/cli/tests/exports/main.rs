//! Exports files: what they allow, to whom, as whom, and what a hang-up changes.

#[path = "../common/mod.rs"]
mod common;
mod credentials;
mod mounts;
mod moved_disk;
mod raw;
mod signals;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use common::{Daemon, Place, noise, until};
use raw::{Client, create};
use remora_wire::mount::MountError;
use remora_wire::nfs3::{self, Call, Status};
use remora_wire::record;
use remora_wire::rpc::{CallHeader, OpaqueAuth};
use serde_json::{Value, json};

/// Directories to export, and an exports file that says how.
pub(crate) struct Exports {
    pub(crate) place: Place,
    file: PathBuf,
}

impl Exports {
    /// Exports these directories.
    pub(crate) fn new(dirs: &[&str]) -> Exports {
        let place = Place::new();
        dirs.iter().for_each(|d| fs::create_dir(place.srv(d)).unwrap());
        let file = place.here("exports");
        Exports { place, file }
    }

    /// The absolute path of a directory.
    pub(crate) fn path(&self, dir: &str) -> String {
        self.place.srv(dir).to_str().unwrap().to_owned()
    }

    fn file(&self) -> String {
        self.file.to_str().unwrap().to_owned()
    }

    /// Puts lines into the file: directory and clients.
    pub(crate) fn write(&self, lines: &[(&str, &str)]) {
        let line = |(dir, clients): &(&str, &str)| format!("{} {clients}\n", self.path(dir));
        fs::write(&self.file, lines.iter().map(line).collect::<String>()).unwrap();
    }

    /// The command that serves them.
    pub(crate) fn server(&self) -> Command {
        self.place.server_command(&["serve", "--exports", &self.file(), "--listen", "127.0.0.1:0", "--json"])
    }

    pub(crate) fn serve(&self) -> Daemon {
        Daemon::start(self.server())
    }
}

#[test]
fn export_is_listed_by_its_configured_name() {
    let e = Exports::new(&["a"]);
    let export = format!("/data={}", e.path("a"));
    for (share, listed) in [(&["--export", &export][..], "/data"), (&[&e.path("a")], "/")] {
        let line = [&["serve"], share, &["--listen", "127.0.0.1:0", "--json"]].concat();
        let server = Daemon::start(e.place.server_command(&line));
        let mut client = Client::at(&server, "127.0.0.1");
        assert_eq!(client.exports(), [(listed.to_owned(), vec![])]);
        assert_eq!(client.mount("/").unwrap(), client.mount(listed).unwrap(), "alone it is / as well");
        assert_eq!(server.interrupt("TERM").0, 0);
    }
}

/// Has the server read its files again; what it says then.
fn reload(server: &mut Daemon) -> Value {
    server.signal("HUP");
    server.next_object()
}

#[test]
fn sighup_changes_access_rights() {
    let e = Exports::new(&["a", "b", "c"]);
    e.write(&[("a", "127.0.0.1(rw,no_root_squash) 127.0.0.2(rw,no_root_squash)"), ("b", "*(rw,no_root_squash)")]);
    let mut server = e.serve();
    let [a, b, c] = ["a", "b", "c"].map(|dir| e.path(dir));
    let (mut one, mut two) = (Client::at(&server, "127.0.0.1"), Client::at(&server, "127.0.0.2"));
    let mut three = Client::at(&server, "127.0.0.3");
    let [root_a, root_b] = [&a, &b].map(|path| one.mount(path).unwrap());
    assert_eq!(two.mount(&a).as_ref(), Ok(&root_a));
    assert_eq!(three.mount(&a), Err(MountError::Access));
    assert_eq!(three.fails(&Call::GetAttr(root_a.clone())), Some(Status::Access));
    assert_eq!(one.fails(&create(&root_a, "one")), None);
    assert_eq!(two.fails(&create(&root_a, "two")), None);
    assert_eq!(one.fails(&create(&root_b, "one")), None);
    let listed = |path: &String, groups: &[&str]| (path.clone(), groups.iter().map(|g| (*g).to_owned()).collect());
    assert_eq!(one.exports(), [listed(&a, &["127.0.0.1", "127.0.0.2"]), listed(&b, &[])]);
    let mut stream = TcpStream::connect(server.addr).unwrap();
    ping(&mut stream);

    e.write(&[("c", "*(rw)"), ("a", "127.0.0.1(ro,no_root_squash)")]);
    let said = reload(&mut server);
    assert_eq!(said, json!({ "reloaded": true, "added": [c], "removed": [b], "changed": [a], "kept": 0, "notes": [] }));
    assert_eq!(one.fails(&create(&root_a, "later")), Some(Status::RoFs));
    assert_eq!(one.fails(&Call::GetAttr(root_a.clone())), None, "its handles stay good");
    assert_eq!(two.fails(&Call::GetAttr(root_a.clone())), Some(Status::Access));
    assert_eq!(two.mount(&a), Err(MountError::Access));
    assert_eq!(one.fails(&Call::GetAttr(root_b.clone())), Some(Status::Stale));
    assert_eq!(one.mount(&b), Err(MountError::NoEnt));
    assert!(one.mount(&c).is_ok() && three.mount(&c).is_ok());
    assert_eq!(one.exports(), [listed(&c, &[]), listed(&a, &["127.0.0.1"])]);
    assert!(one.mounts().iter().all(|(_, path)| *path != b), "mounts of what is gone are not listed");
    ping(&mut stream);

    e.write(&[("a", "*(rw,no_root_squash)"), ("b", "*(rw,no_root_squash)")]);
    reload(&mut server);
    for root in [&root_a, &root_b] {
        assert_eq!(two.fails(&create(root, "again")), None, "a handle is good again when its export is back");
    }
    assert_eq!(reload(&mut server)["kept"], 2, "nothing changed");
    assert_eq!(server.interrupt("TERM").0, 0);
}

#[test]
fn wrong_exports_file_keeps_the_old_exports() {
    let e = Exports::new(&["a"]);
    e.write(&[("a", "*(rw,no_root_squash)")]);
    let mut server = e.serve();
    let mut one = Client::at(&server, "127.0.0.1");
    let root = one.mount(&e.path("a")).unwrap();
    let file = e.file();
    for (lines, why) in [
        (&[("a", "*(async)")][..], format!("{file}:1: 'async' is refused: what a client was told")),
        (&[("a", "*(ro)"), ("none", "*")], format!("{file}:2: {}: no such file or directory", e.path("none"))),
        (&[], format!("nothing to share in {file}")),
    ] {
        e.write(lines);
        let said = reload(&mut server);
        assert_eq!(said["reloaded"], false);
        assert!(said["error"].as_str().unwrap().starts_with(&why), "{said}");
        assert_eq!(one.fails(&create(&root, "still")), None);
        assert_eq!(one.exports().len(), 1);
    }
    fs::remove_file(&e.file).unwrap();
    assert_eq!(reload(&mut server)["error"], format!("{file}: no such file or directory"));
    assert_eq!(one.fails(&create(&root, "still")), None);
    e.write(&[("a", "*(ro)")]);
    assert_eq!(reload(&mut server)["changed"], json!([e.path("a")]));
    assert_eq!(one.fails(&create(&root, "not any more")), Some(Status::RoFs));
}

#[test]
fn export_is_kept_until_its_directory_is_replaced() {
    let e = Exports::new(&["a"]);
    e.write(&[("a", "*(rw,no_root_squash)")]);
    let mut server = e.serve();
    let mut one = Client::at(&server, "127.0.0.1");
    let a = e.path("a");
    let root = one.mount(&a).unwrap();
    assert_eq!(one.fails(&create(&root, "f")), None);
    let f = one.lookup(&root, "f");
    let verifier = one.verifier(&f);
    e.write(&[("a", "127.0.0.0/8(rw,no_root_squash)")]);
    assert_eq!(reload(&mut server)["changed"], json!([a]));
    assert_eq!(one.verifier(&f), verifier, "clients need not write again");

    fs::rename(e.place.srv("a"), e.place.srv("old")).unwrap();
    fs::create_dir(e.place.srv("a")).unwrap();
    assert_eq!(one.fails(&Call::GetAttr(f.clone())), None, "the directory is served, not its path");
    assert_eq!(reload(&mut server)["changed"], json!([a]));
    assert_eq!(one.fails(&Call::GetAttr(f)), Some(Status::Stale));
    let root = one.mount(&a).unwrap();
    assert_eq!(one.fails(&create(&root, "new")), None);
    assert!(e.place.srv("a").join("new").exists());
}

#[test]
fn a_copy_under_way_survives_hang_ups() {
    let e = Exports::new(&["a", "b"]);
    let (alone, both) = ([("a", "*(rw,no_root_squash)")], [("b", "*(ro)"), ("a", "*(rw,no_root_squash)")]);
    e.write(&alone);
    let mut server = e.serve();
    let relay = e.place.relay_at(0, &server, &["--rate", "8Mbit"]);
    let data = noise(2 << 20, 7);
    fs::write(e.place.here("big"), &data).unwrap();
    let to = format!("nfs://{}{}/big?proto=udp&mountport={}", relay.addr, e.path("a"), relay.port());
    let mut copy = e.place.start(&["cp", "-q", "big", &to]);
    until("the copy's beginning", || fs::read_dir(e.place.srv("a")).unwrap().next().is_some());
    for lines in [&both[..], &alone, &both, &alone] {
        e.write(lines);
        assert_eq!(reload(&mut server)["kept"], 1);
    }
    assert!(!copy.has_ended(), "all of that was to happen in its middle");
    copy.finish().expect(0, &[]);
    assert!(fs::read(e.place.srv("a").join("big")).unwrap() == data);
}

#[test]
fn check_prints_exports_and_clients() {
    let e = Exports::new(&["a", "b"]);
    let check = |more: &[&str]| e.place.run(&[&["serve", "--check", "--exports", &e.file()], more].concat());
    e.write(&[
        ("a", "*(wdelay) 10.0.0.0/8(rw,secure,all_squash,anonuid=7,anongid=8)"),
        ("b", "10.0.0.1(no_root_squash)"),
    ]);
    let out = check(&[]);
    let [a, b] = ["a", "b"].map(|dir| fs::canonicalize(e.place.srv(dir)).unwrap().to_str().unwrap().to_owned());
    let want = format!(
        "{a} as {}\n    10.0.0.0/8  read-write  all users as 7:8, from ports below 1024 only\n    \
         *           read-only   root as 65534:65534\n\
         {b} as {}\n    10.0.0.1  read-only   all users as themselves\n",
        e.path("a"),
        e.path("b")
    );
    assert_eq!((out.code, out.stdout), (0, want));
    assert!(out.stderr.contains(":1: note: 'wdelay' changes nothing"), "{}", out.stderr);
    assert!(!e.place.state().join("remora").exists(), "nothing is made");
    let report: Value = serde_json::from_str(&check(&["--json"]).stdout).unwrap();
    let rule = &report["exports"][0]["clients"][0];
    let want = json!({ "client": "10.0.0.0/8", "read_only": false, "squash": "all", "anon_uid": 7, "anon_gid": 8, "secure": true, "acl": true });
    assert_eq!((&report["ok"], rule), (&json!(true), &want));

    e.write(&[("a", "*(rw"), ("b", "*")]);
    check(&[]).expect(2, &["exports:1: '*(rw': expected CLIENT(OPTION,...)"]);
    let report: Value = serde_json::from_str(&check(&["--json"]).stdout).unwrap();
    assert_eq!(report["ok"], false);
    e.write(&[("none", "*")]);
    check(&[]).expect(2, &["exports:1:", "no such file or directory"]);
    e.place.run(&["serve", "--check", "/nonexistent"]).expect(2, &["no such file or directory"]);
}

#[test]
fn descriptor_need_of_many_exports_is_reported_before_open() {
    let dirs: Vec<String> = (0..80).map(|n| n.to_string()).collect();
    let e = Exports::new(&dirs.iter().map(String::as_str).collect::<Vec<_>>());
    e.write(&dirs.iter().map(|dir| (dir.as_str(), "*(rw)")).collect::<Vec<_>>());
    for more in [&["--check"][..], &[]] {
        let mut limited = Command::new("prlimit");
        let server = e.server();
        limited.arg("--nofile=64").arg(server.get_program()).args(server.get_args()).args(more);
        let out = limited.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("for 80 exports this process must be allowed "), "{said}");
        assert!(said.contains(" open files, and is allowed 64: "), "{said}");
        assert_eq!(out.status.code(), Some(if more.is_empty() { 1 } else { 2 }));
    }
}

/// A call of NFS's NULL and its reply, on a connection.
fn ping(stream: &mut TcpStream) {
    let none = OpaqueAuth::none();
    let mut call = Vec::new();
    let header =
        CallHeader { xid: 7, prog: nfs3::PROGRAM, vers: nfs3::VERSION, proc: 0, cred: none.clone(), verf: none };
    header.encode(&mut call);
    stream.write_all(&[&record::mark(call.len())[..], &call].concat()).unwrap();
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0, 0, 0, 7]);
}
