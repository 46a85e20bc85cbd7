//! What is mounted inside an export, and the mount that an export is on. Takes root.

use std::fs;
use std::process::{Command, Stdio};

use remora_wire::nfs3::{
    Call, DirOp, FSF_HOMOGENEOUS, FSF_LINK, FSF_SYMLINK, Fh, FsInfoOk, NfsTime, PathConfOk, ReadDirArgs, Reply, Status,
};
use skip::skipped;

use crate::common::{Daemon, is_root};
use crate::raw::{Client, create, read};
use crate::{Exports, raw, reload};

/// Serves `e` where `prepare` has been run by a shell first, in mounts of its own.
fn serve_inside(e: &Exports, prepare: &str) -> Daemon {
    start_inside(&e.server(), prepare)
}

/// Starts `server` in the same way.
pub(crate) fn start_inside(server: &Command, prepare: &str) -> Daemon {
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
fn export_shows_the_directory_below_a_mount() {
    let name = "export_shows_the_directory_below_a_mount";
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
fn handles_are_stale_after_a_remount() {
    let name = "handles_are_stale_after_a_remount";
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
    assert!(notes.contains(&format!("{a}: file handles in it become stale when ")), "{notes}");
    assert_eq!(c.fails(&read(&file)), Some(Status::Stale));
    let anew = c.lookup(&root, "f");
    assert_eq!(c.fails(&read(&anew)), None);
}

/// On an overlay of two layers a cookie is a position in a list that is built at each opendir(3).
#[test]
fn listing_continues_while_entries_are_removed() {
    const FILES: usize = 400;
    let name = "listing_continues_while_entries_are_removed";
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

/// What PATHCONF and FSINFO tell of an object.
fn told(c: &mut Client, fh: &Fh) -> (PathConfOk, FsInfoOk) {
    match (c.call(&Call::PathConf(fh.clone())), c.call(&Call::FsInfo(fh.clone()))) {
        (Reply::PathConf(Ok(conf)), Reply::FsInfo(Ok(info))) => (conf, info),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pathconf_and_fsinfo_tell_the_ways_of_each_file_system() {
    let name = "pathconf_and_fsinfo_tell_the_ways_of_each_file_system";
    if !is_root() {
        return skipped(name, "needs root");
    }
    if !std::path::Path::new("/usr/bin/lowntfs-3g").exists() {
        return skipped(name, "there is no lowntfs-3g");
    }
    let dirs = ["memory", "disk", "old-disk", "ntfs"];
    let e = Exports::new(&dirs);
    e.write(&dirs.map(|dir| (dir, "*(rw,no_root_squash)")));
    let [memory, disk, old, ntfs] = dirs.map(|dir| e.path(dir));
    let server = serve_inside(
        &e,
        &format!(
            "mount -t tmpfs memory '{memory}'; touch '{memory}/Name'\n\
             mkfs() {{ truncate -s 16M \"$1\"; shift; \"$@\" >/dev/null 2>&1; }}\n\
             mkfs '{memory}/1' mkfs.ext4 -qFI 256 '{memory}/1'; mount -o loop '{memory}/1' '{disk}'\n\
             mkfs '{memory}/2' mkfs.ext4 -qFI 128 '{memory}/2'; mount -o loop '{memory}/2' '{old}'\n\
             mkfs '{memory}/3' mkntfs -qF '{memory}/3'; lowntfs-3g -o ignore_case '{memory}/3' '{ntfs}' 2>/dev/null\n\
             touch '{ntfs}/Name'; mkdir '{ntfs}/empty'"
        ),
    );
    let mut c = Client::at(&server, "127.0.0.1");
    let second = NfsTime { secs: 1, nanos: 0 };
    for (dir, folds, delta) in [
        (&memory, false, Some(NfsTime { secs: 0, nanos: 1 })),
        (&disk, false, Some(NfsTime { secs: 0, nanos: 1 })),
        (&old, false, Some(second)),
        (&ntfs, true, None),
    ] {
        let root = c.mount(dir).unwrap();
        let (conf, info) = told(&mut c, &root);
        assert_eq!((conf.case_insensitive, conf.case_preserving, conf.no_trunc), (folds, true, true), "{dir}");
        assert!(conf.chown_restricted && conf.link_max > 1 && conf.name_max == 255, "{dir}: {conf:?}");
        match delta {
            Some(delta) => assert_eq!(info.time_delta, delta, "{dir}"),
            // NTFS has units of 100 ns, and FUSE does not tell.
            None => assert_eq!(info.time_delta.nanos % 100, 0, "{dir}: {:?}", info.time_delta),
        }
        assert_eq!(info.properties & (FSF_LINK | FSF_SYMLINK), FSF_LINK | FSF_SYMLINK, "{dir}");
        assert_eq!(info.properties & FSF_HOMOGENEOUS != 0, !folds, "{dir}");
    }
    // The notice names the directory of the file.
    let root = c.mount(&ntfs).unwrap();
    let file = c.lookup(&root, "Name");
    assert!(told(&mut c, &file).0.case_insensitive);
}

/// An ACL as Linux keeps it, of entries with tag, permissions and number.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry =
        |(tag, perm, id): &(u16, u16, u32)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// On a noexec mount this machine executes nothing, but clients may, and a caller who may execute may read. The mode
/// decides; with an ACL only a permission to read counts.
#[test]
fn execute_permission_reads_on_a_noexec_mount_without_acl() {
    const NOBODY: u32 = u32::MAX;
    let name = "execute_permission_reads_on_a_noexec_mount_without_acl";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let e = Exports::new(&["exec", "noexec"]);
    e.write(&[("exec", "*(rw,no_root_squash)"), ("noexec", "*(rw,no_root_squash)")]);
    let [exec, noexec] = ["exec", "noexec"].map(|dir| e.path(dir));
    let server = serve_inside(
        &e,
        &format!(
            "mount -t tmpfs -o exec exec '{exec}'; mount -t tmpfs -o noexec noexec '{noexec}'\n\
             for d in '{exec}' '{noexec}'; do chmod 755 \"$d\"; for f in plain user group; do\n\
             echo secret > \"$d/$f\"; chown 3001:4001 \"$d/$f\"; chmod 711 \"$d/$f\"; done; done"
        ),
    );
    let mut c = Client::at(&server, "127.0.0.1");
    for dir in [&exec, &noexec] {
        let inside = std::path::PathBuf::from(format!("/proc/{}/root{dir}", server.pid()));
        let user = acl(&[(1, 7, NOBODY), (2, 0, 3002), (2, 1, 3003), (4, 1, NOBODY), (16, 1, NOBODY), (32, 1, NOBODY)]);
        let group = acl(&[(1, 7, NOBODY), (4, 0, NOBODY), (8, 1, 4002), (16, 1, NOBODY), (32, 0, NOBODY)]);
        for (file, acl) in [("user", user), ("group", group)] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(inside.join(file), "system.posix_acl_access", &acl, flags).unwrap();
        }
        let root = c.mount(dir).unwrap();
        for (file, uid, gid, reads) in [
            ("plain", 3002, 1, true),
            ("user", 3001, 1, true),
            ("user", 3002, 4001, false),
            ("user", 3003, 1, true),
            ("user", 3004, 1, true),
            ("group", 3002, 4001, false),
            ("group", 3002, 4002, true),
            ("group", 3002, 1, false),
        ] {
            let fh = c.lookup(&root, file);
            c.act_as(uid, gid, &[]);
            // The owner may read in any case.
            let by_acl = dir == &noexec && file != "plain" && uid != 3001;
            let want = if reads && !by_acl { None } else { Some(Status::Access) };
            assert_eq!(c.fails(&read(&fh)), want, "{dir}/{file} by {uid}:{gid}");
        }
    }
}
