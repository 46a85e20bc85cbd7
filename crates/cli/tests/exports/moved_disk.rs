//! A disk that moves to another device, with the export and the server's state on it. Takes root and a loop device.

use std::fs;
use std::process::Command;

use remora_wire::nfs3::{Call, Fh, Reply};
use skip::skipped;

use crate::Exports;
use crate::common::{Daemon, is_root};
use crate::mounts::start_inside;
use crate::raw::{Client, read, write};

fn is_done(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

fn fsid(client: &mut Client, fh: &Fh) -> u64 {
    match client.call(&Call::GetAttr(fh.clone())) {
        Reply::GetAttr(Ok(attr)) => attr.fsid,
        other => panic!("{other:?}"),
    }
}

/// Serves the file system in `image`, mounted at `disk`. `before` are commands of a shell.
fn serve_from(e: &Exports, image: &str, before: &str) -> Daemon {
    let disk = e.path("disk");
    let mut server = e.place.command(&["serve", "--listen", "127.0.0.1:0", "--json", "--squash", "none"]);
    server.args(["--export", &format!("data={disk}/data"), "--state", &format!("{disk}/state")]);
    start_inside(&server, &format!("{before}\nmount -o loop '{image}' '{disk}'; mkdir -p '{disk}/data'"))
}

#[test]
fn disk_moved_with_its_state_keeps_handles() {
    let name = "disk_moved_with_its_state_keeps_handles";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["disk", "old"]);
    let [old, new] = ["old.img", "new.img"].map(|image| e.place.here(image).to_str().unwrap().to_owned());
    fs::File::create(&old).unwrap().set_len(32 << 20).unwrap();
    if !is_done("mkfs.ext4", &["-q", "-I", "256", &old]) || !is_done("losetup", &["--find"]) {
        return skipped(name, "needs mkfs.ext4 and a free loop device");
    }
    let server = serve_from(&e, &old, "");
    let mut client = Client::at(&server, "127.0.0.1");
    let root = client.mount("/data").unwrap();
    assert_eq!(client.fails(&crate::create(&root, "file")), None);
    let file = client.lookup(&root, "file");
    assert_eq!(client.fails(&write(&file)), None);
    let before = fsid(&mut client, &file);
    assert_eq!(server.interrupt("TERM").0, 0);
    fs::copy(&old, &new).unwrap();
    // The first image keeps its device, so that the second has another.
    let server = serve_from(&e, &new, &format!("mount -o loop,ro '{old}' '{}'", e.path("old")));
    let mut client = Client::at(&server, "127.0.0.1");
    assert_ne!(fsid(&mut client, &file), before, "another device");
    assert!(matches!(client.call(&read(&file)), Reply::Read(Ok(data)) if data.data == "new"));
    assert_eq!(client.lookup(&root, "file"), file);
    assert_eq!(client.mount("/data").unwrap(), root);
    assert_eq!(server.interrupt("TERM").0, 0);
}
