//! What is mounted inside an export, and the mount that an export is on. Takes root.

use std::fs;
use std::process::{Command, Stdio};

use remora_wire::nfs3::{Call, DirOp, Fh, ReadDirArgs, Reply, Status};
use skip::skipped;

use crate::common::{Daemon, is_root};
use crate::raw::{Client, create, read};
use crate::{Exports, raw, reload};

/// Serves `e` where `prepare` has been run by a shell first, in mounts of its own.
fn serve_inside(e: &Exports, prepare: &str) -> Daemon {
    let server = e.server();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "shared", "sh", "-ec", &format!("{prepare}\nexec \"$@\""), "sh"]);
    command.arg(server.get_program()).args(server.get_args());
    command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Daemon::start(command)
}

/// Whether a command succeeds among the server's mounts.
fn inside(server: &Daemon, command: &[&str]) -> bool {
    let pid = server.pid().to_string();
    let run = Command::new("nsenter").args(["--mount", "--target", &pid]).args(command).stderr(Stdio::null()).status();
    run.unwrap().success()
}

fn missing(c: &mut Client, dir: &Fh, name: &str) -> bool {
    c.fails(&remora_wire::nfs3::Call::Lookup(raw::at(dir, name))) == Some(Status::NoEnt)
}

#[test]
fn what_is_below_a_mount_is_seen_and_not_what_is_mounted() {
    let name = "what_is_below_a_mount_is_seen_and_not_what_is_mounted";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["a", "volume"]);
    let srv = |path: &str| e.place.srv(path);
    for dir in ["disk", "later"] {
        fs::create_dir(srv("a").join(dir)).unwrap();
        fs::write(srv("a").join(dir).join("below"), "below").unwrap();
    }
    e.write(&[("a", "*(rw,no_root_squash)"), ("volume", "*(rw,no_root_squash)")]);
    let [disk, later, volume] = ["a/disk", "a/later", "volume"].map(|path| srv(path).to_str().unwrap().to_owned());
    let server = serve_inside(
        &e,
        &format!(
            "mount -t tmpfs above '{disk}'; mkdir '{disk}/above'; mount -t tmpfs own '{volume}'; mkdir '{volume}/own'"
        ),
    );
    let mut c = Client::at(&server, "127.0.0.1");
    let root = c.mount(&e.path("a")).unwrap();
    let covered = c.lookup(&root, "disk");
    let below = c.lookup(&covered, "below");
    assert_eq!(c.fails(&read(&below)), None);
    assert!(missing(&mut c, &covered, "above"));
    assert_eq!(c.fails(&create(&covered, "new")), None);
    assert!(srv("a/disk/new").exists(), "below, which is what is here outside the server's mounts");
    assert!(inside(&server, &["mount", "-t", "tmpfs", "above", &later]));
    assert!(inside(&server, &["mountpoint", "-q", &later]), "and the server's own mounts have it");
    let dir = c.lookup(&root, "later");
    c.lookup(&dir, "below");

    // An export that is a mount itself is what is mounted there, and stays for as long as it is served.
    let root = c.mount(&e.path("volume")).unwrap();
    c.lookup(&root, "own");
    assert!(!inside(&server, &["umount", &volume]), "it is in use");
    assert!(inside(&server, &["umount", &disk]), "nobody uses that");
}

/// ramfs tells no births, and stands for all whose inode numbers are one mount's: what a second mount of it has under a
/// number need not be what the first had.
#[test]
fn numbers_of_one_mount_lead_nowhere_in_the_next() {
    let name = "numbers_of_one_mount_lead_nowhere_in_the_next";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["a", "again"]);
    e.write(&[("a", "*(rw,no_root_squash)")]);
    let [a, again] = ["a", "again"].map(|path| e.place.srv(path).to_str().unwrap().to_owned());
    let prepare = format!("mount -t ramfs numbers '{a}'; touch '{a}/f'; mount --bind '{a}' '{again}'");
    let mut server = serve_inside(&e, &prepare);
    let mut c = Client::at(&server, "127.0.0.1");
    let root = c.mount(&e.path("a")).unwrap();
    let file = c.lookup(&root, "f");
    assert_eq!(c.fails(&read(&file)), None);
    assert!(inside(&server, &["umount", "--lazy", &a]) && inside(&server, &["mount", "--bind", &again, &a]));
    let notes = reload(&mut server)["notes"].to_string();
    assert!(notes.contains(&format!("{a}: handles of what is in it go stale when ")), "{notes}");
    assert_eq!(c.fails(&read(&file)), Some(Status::Stale));
    let anew = c.lookup(&root, "f");
    assert_eq!(c.fails(&read(&anew)), None);
}

/// Where a cookie is a place in a list that is made for whoever opens the directory: an overlay of two layers.
#[test]
fn a_listing_goes_on_while_what_came_is_removed() {
    const FILES: usize = 400;
    let name = "a_listing_goes_on_while_what_came_is_removed";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["a"]);
    e.write(&[("a", "*(rw,no_root_squash)")]);
    let a = e.place.srv("a").to_str().unwrap().to_owned();
    let server = serve_inside(
        &e,
        &format!(
            "mount -t tmpfs layers '{a}'; mkdir -p '{a}'/low/d '{a}'/up/d '{a}'/work\n\
             for i in $(seq {half}); do : > '{a}'/low/d/$i; : > '{a}'/up/d/x$i; done\n\
             mount -t overlay both -o lowerdir='{a}'/low,upperdir='{a}'/up,workdir='{a}'/work '{a}'",
            half = FILES / 2
        ),
    );
    for sends_verifier in [true, false] {
        let mut c = Client::at(&server, "127.0.0.1");
        let root = c.mount(&e.path("a")).unwrap();
        let dir = c.lookup(&root, "d");
        (0..FILES).for_each(|i| _ = c.call(&create(&dir, &format!("more{i}"))));
        let (mut seen, mut cookie, mut verf) = (0, 0, [0; 8]);
        loop {
            let query = ReadDirArgs { dir: dir.clone(), cookie, verf, count: 1024 };
            let Reply::ReadDir(Ok(page)) = c.call(&Call::ReadDir(query)) else { panic!("no page") };
            for entry in page.entries.list.iter().filter(|entry| !entry.name.starts_with(b".")) {
                seen += 1;
                let at = DirOp { dir: dir.clone(), name: entry.name.clone() };
                assert_eq!(c.fails(&Call::Remove(at)), None, "{:?}", entry.name);
            }
            if page.entries.eof {
                break;
            }
            cookie = page.entries.list.last().unwrap().cookie;
            verf = if sends_verifier { page.verf } else { [0; 8] };
        }
        let there = if sends_verifier { 2 * FILES } else { FILES };
        assert_eq!(seen, there, "sends the verifier: {sends_verifier}");
    }
}

/// An export inside another one is on a file system of its own. By name, what lies below that is found in the outer
/// one; a URL that leads there means what is mounted, whichever URL comes before it.
#[test]
fn urls_behind_one_another_lead_into_the_inner_export() {
    let name = "urls_behind_one_another_lead_into_the_inner_export";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["a"]);
    let outer = e.place.srv("a");
    let covered = outer.join("disk");
    fs::create_dir(&covered).unwrap();
    ["disk/both", "f", "g"].iter().for_each(|name| fs::write(outer.join(name), "outer").unwrap());
    e.write(&[("a", "*(rw,no_root_squash)"), ("a/disk", "*(rw,no_root_squash)")]);
    let disk = covered.to_str().unwrap();
    let server = serve_inside(&e, &format!("mount -t tmpfs inner '{disk}'; echo inner >'{disk}/both'"));
    let url = |name: &str| server.url(&format!("{}/{name}", e.path("a")));
    let is_inside = |name: &str| inside(&server, &["test", "-e", outer.join(name).to_str().unwrap()]);
    let [f, both, to_disk] = ["f", "disk/both", "disk/"].map(url);

    assert_eq!(e.place.ok(&["cat", &f, &both]), "outerinner\n");
    e.place.ok(&["cp", "-q", &f, &both, "."]);
    assert_eq!(fs::read_to_string(e.place.here("both")).unwrap(), "inner\n");
    let stat = e.place.ok(&["stat", "--json", &f, &both]);
    assert!(stat.lines().last().unwrap().contains("\"size\":6"), "{stat}");
    e.place.ok(&["mkdir", &url("new"), &url("disk/new")]);
    assert!(outer.join("new").exists() && is_inside("disk/new") && !covered.join("new").exists());
    e.place.ok(&["rm", &url("g"), &both]);
    assert!(!outer.join("g").exists() && !is_inside("disk/both") && covered.join("both").exists());
    // They are two file systems, and nothing is renamed from one into the other.
    assert_eq!(e.place.run(&["mv", &f, &to_disk]).code, 1);
    assert!(outer.join("f").exists() && !covered.join("f").exists() && !is_inside("disk/f"));
}
