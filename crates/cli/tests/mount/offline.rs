//! Work without the server: changes are kept, survive kills of the mount, and are sent when the server is back.
//!
//! With `REMORA_MOUNT_LONG=1` the mount is killed 1,000 times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::Value;

use crate::common::{Place, noise, until};
use crate::kit::{Mount, Site, errno, is_long, promptly, wait_for_end};

/// What was seen is not asked about again.
const FLAGS: &[&str] = &["--cache", "relaxed"];

/// An object of a tree, as far as both sides must agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    File { mode: u32, data: Vec<u8> },
    Directory { mode: u32 },
    Link(String),
}

/// All objects below `dir` by their paths.
pub(crate) fn tree(dir: &Path) -> BTreeMap<String, Found> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let attr = fs::symlink_metadata(&path).unwrap();
            let mode = attr.mode() & 0o7777;
            let object = if attr.is_dir() {
                left.push(path.clone());
                Found::Directory { mode }
            } else if attr.is_symlink() {
                Found::Link(fs::read_link(&path).unwrap().to_string_lossy().into_owned())
            } else {
                Found::File { mode, data: fs::read(&path).unwrap() }
            };
            found.insert(path.strip_prefix(dir).unwrap().to_string_lossy().into_owned(), object);
        }
    }
    found
}

pub(crate) fn go_offline(place: &Place, mount: &Mount) {
    place.run(&["offline", mount.path()]).expect(0, &["works offline until remora online"]);
    assert_eq!(mount.status(place)["connection"]["state"], "disconnected");
}

pub(crate) fn go_online(place: &Place, mount: &Mount) {
    place.run(&["online", mount.path()]).expect(0, &["online"]);
}

/// Waits until the server has all changes.
pub(crate) fn until_sent(place: &Place, mount: &Mount) {
    until("the end of reintegration", || {
        let status = mount.status(place);
        let is_sent = status["log"]["records"] == 0 && status["unsent_files"] == 0;
        status["connection"]["state"] != "disconnected" && is_sent
    });
}

/// Has the cache know all objects, with their data.
fn warm(mount: &Mount) -> BTreeMap<String, Found> {
    tree(&mount.dir)
}

/// Files and directories for [`edit`].
fn prepare(site: &Site) {
    let srv = |name: &str| site.place.srv(name);
    fs::create_dir_all(srv("dir/sub")).unwrap();
    for (name, data) in [("old", &b"old"[..]), ("dir/a", b"a"), ("dir/sub/b", b"b"), ("gone", b"gone"), ("mode", b"m")]
    {
        fs::write(srv(name), data).unwrap();
    }
    symlink("old", srv("link")).unwrap();
}

/// Changes of every kind, below a directory that [`prepare`] has filled.
fn edit(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::write(at("old"), "changed").unwrap();
    fs::write(at("new"), noise(100_000, 1)).unwrap();
    fs::create_dir(at("made")).unwrap();
    fs::write(at("made/inside"), "inside").unwrap();
    fs::rename(at("dir/a"), at("made/moved")).unwrap();
    // A directory over changed children.
    fs::write(at("dir/sub/b"), "b changed").unwrap();
    fs::rename(at("dir"), at("renamed")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("new", at("fresh")).unwrap();
    fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(at("made"), fs::Permissions::from_mode(0o700)).unwrap();
    // An editor's save, and what never was.
    fs::write(at("save.tmp"), "saved").unwrap();
    fs::rename(at("save.tmp"), at("old")).unwrap();
    fs::write(at("brief"), "brief").unwrap();
    fs::remove_file(at("brief")).unwrap();
}

#[test]
fn changes_made_offline_reach_the_server() {
    let Some(mut site) = Site::new() else { return };
    prepare(&site);
    let mount = site.mount("mnt", FLAGS);
    warm(&mount);
    let before = tree(&site.place.srv(""));
    go_offline(&site.place, &mount);
    let dir = mount.dir.clone();
    let offline = promptly("offline edits", move || {
        edit(&dir);
        tree(&dir)
    });
    assert_eq!(tree(&site.place.srv("")), before, "nothing is sent");
    let status = site.status(&mount);
    assert!(status["log"]["records"].as_u64() > Some(5) && status["connection"]["is_asked"] == true, "{status}");
    let text = site.place.ok(&["status", mount.path()]);
    assert!(text.contains("disconnected for") && text.contains("changes of names"), "{text}");
    go_online(&site.place, &mount);
    until_sent(&site.place, &mount);
    assert_eq!(tree(&site.place.srv("")), offline);
    assert_eq!(tree(&mount.dir), offline);
    assert_eq!(offline["old"], Found::File { mode: offline_mode(&offline, "new"), data: b"saved".into() });
    assert_eq!(site.status(&mount)["log"]["conflicts"], 0);
}

/// Mode of a file.
fn offline_mode(tree: &BTreeMap<String, Found>, name: &str) -> u32 {
    match tree[name] {
        Found::File { mode, .. } | Found::Directory { mode } => mode,
        Found::Link(_) => 0o777,
    }
}

#[test]
fn killed_mount_starts_offline_and_sends_later() {
    let Some(mut site) = Site::new() else { return };
    prepare(&site);
    let mount = site.mount("mnt", FLAGS);
    warm(&mount);
    // The disk cache has it all.
    site.place.ok(&["umount", mount.path()]);
    let mount = site.mount("mnt", FLAGS);
    warm(&mount);
    go_offline(&site.place, &mount);
    let dir = mount.dir.clone();
    let offline = promptly("offline edits", move || {
        edit(&dir);
        tree(&dir)
    });
    site.server.signal("STOP");
    site.kill(&mount);
    let dir = mount.dir.clone();
    site.try_mount(&dir, FLAGS).expect(0, &["starts offline", "changes of names by an earlier mount"]);
    assert_eq!(site.status(&mount)["connection"]["state"], "disconnected");
    let dir = mount.dir.clone();
    let again = promptly("a tree without the server", move || tree(&dir));
    assert_eq!(again, offline);
    let file = mount.at("made/later");
    promptly("a change after the restart", move || fs::write(file, "later").unwrap());
    site.server.signal("CONT");
    until_sent(&site.place, &mount);
    let all = tree(&mount.dir);
    assert_eq!(all.len(), offline.len() + 1);
    assert_eq!(tree(&site.place.srv("")), all);
    assert_eq!(site.status(&mount)["log"]["conflicts"], 0);
}

#[test]
fn silent_server_disconnects_the_mount_by_itself() {
    let Some(mut site) = Site::new() else { return };
    prepare(&site);
    let mount = site.mount("mnt", FLAGS);
    warm(&mount);
    site.server.signal("STOP");
    let file = mount.at("dir/made");
    let made = std::thread::spawn(move || fs::write(file, "made"));
    until("the disconnected state", || site.status(&mount)["connection"]["state"] == "disconnected");
    assert_eq!(site.status(&mount)["connection"]["is_asked"], false);
    let file = mount.at("old");
    promptly("a change without the server", move || fs::write(file, "offline").unwrap());
    // The outcome of a change that was in flight is the server's to tell.
    assert!(!made.is_finished());
    site.server.signal("CONT");
    made.join().unwrap().unwrap();
    until_sent(&site.place, &mount);
    assert_eq!(fs::read_to_string(site.place.srv("dir/made")).unwrap(), "made");
    assert_eq!(fs::read_to_string(site.place.srv("old")).unwrap(), "offline");
}

#[test]
fn mount_without_offline_work_waits_for_its_server() {
    let Some(mut site) = Site::new() else { return };
    let dir = site.place.here("mnt");
    fs::create_dir(&dir).unwrap();
    site.server.signal("STOP");
    // It was never mounted before.
    site.try_mount(&dir, &["--timeout", "1"]).expect(3, &[]);
    site.server.signal("CONT");
    let mount = site.mount("mnt", FLAGS);
    fs::write(mount.at("file"), "file").unwrap();
    site.place.ok(&["umount", mount.path()]);
    site.server.signal("STOP");
    site.try_mount(&dir, &["--timeout", "1", "--offline", "never"]).expect(3, &[]);
}

#[test]
fn asked_offline_what_is_not_cached_fails_at_once() {
    let Some(mut site) = Site::new() else { return };
    prepare(&site);
    let mount = site.mount("mnt", FLAGS);
    fs::read(mount.at("old")).unwrap();
    go_offline(&site.place, &mount);
    let file = mount.at("dir/sub/b");
    let found = promptly("a miss", move || errno(fs::read(file)));
    assert_eq!(found, Some(Errno::HOSTUNREACH.raw_os_error()));
    let file = mount.at("old");
    assert_eq!(promptly("a cached file", move || fs::read(file).unwrap()), b"old");
    let status = site.status(&mount);
    assert!(!status["log"]["missed"].as_array().unwrap().is_empty(), "{status}");
    assert!(site.place.ok(&["status", mount.path()]).contains("missed while disconnected: "));
    go_online(&site.place, &mount);
    until("the server", || fs::read(mount.at("dir/sub/b")).is_ok_and(|data| data == b"b"));
}

/// The mount in the list, which has those of other tests, too.
fn listed(site: &Site, mount: &Mount) -> Option<Value> {
    let list = site.place.ok(&["mount", "--list", "--json"]);
    let mut mounts = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    mounts.find(|found| found["dir"] == mount.path())
}

#[test]
fn unmount_offline_keeps_changes_for_the_next_mount() {
    let Some(mut site) = Site::new() else { return };
    prepare(&site);
    let mount = site.mount("mnt", FLAGS);
    warm(&mount);
    go_offline(&site.place, &mount);
    fs::create_dir(mount.at("made")).unwrap();
    site.place.run(&["umount", mount.path()]).expect(0, &["changes of names kept: 1", "the next mount of"]);
    let kept = listed(&site, &mount).unwrap();
    assert_eq!((&kept["state"], &kept["changes"]), (&"kept".into(), &1.into()));
    let dir = mount.dir.clone();
    site.try_mount(&dir, FLAGS).expect(0, &["changes of names by an earlier mount: 1"]);
    until_sent(&site.place, &mount);
    assert!(site.place.srv("made").is_dir());
    site.place.ok(&["umount", mount.path()]);
    assert_eq!(listed(&site, &mount), None, "nothing is left");
}

/// Makes a conflict of the file `name`: "ours" against "theirs". Returns the path of our copy.
fn make_conflict(site: &Site, mount: &Mount, name: &str) -> String {
    // Without the server a file is writable if that is known.
    fs::File::options().append(true).open(mount.at(name)).unwrap();
    go_offline(&site.place, mount);
    fs::write(mount.at(name), "ours\n").unwrap();
    fs::write(site.place.srv(name), "theirs\n").unwrap();
    go_online(&site.place, mount);
    until("the conflict", || site.status(mount)["log"]["conflicts"] == 1);
    until_sent(&site.place, mount);
    let listed: Value = serde_json::from_str(&site.place.ok(&["conflicts", "--json", mount.path()])).unwrap();
    assert_eq!((&listed["kind"], &listed["path"]), (&"content".into(), &format!("/{name}").into()));
    listed["copy"].as_str().unwrap().to_owned()
}

#[test]
fn conflict_is_listed_compared_and_resolved() {
    let Some(mut site) = Site::new() else { return };
    for version in ["mine", "theirs", "both"] {
        fs::write(site.place.srv(&format!("{version}.txt")), "before\n").unwrap();
    }
    let mount = site.mount("mnt", FLAGS);
    for (version, kept) in [("mine", "ours\n"), ("theirs", "theirs\n"), ("both", "theirs\n")] {
        let name = format!("{version}.txt");
        let copy = make_conflict(&site, &mount, &name);
        assert!(copy.contains("(conflict from ") && copy.ends_with(".txt"), "{copy}");
        let copy = copy.trim_start_matches('/').to_owned();
        assert_eq!(fs::read_to_string(site.place.srv(&copy)).unwrap(), "ours\n");
        assert_eq!(fs::read_to_string(site.place.srv(&name)).unwrap(), "theirs\n");
        let text = site.place.ok(&["conflicts", mount.path()]);
        assert!(text.contains(&name) && text.contains("ours is "), "{text}");
        let diff = site.place.ok(&["conflicts", mount.path(), "--diff", &name]);
        assert!(diff.contains("-theirs") && diff.contains("+ours"), "{diff}");
        site.place.run(&["conflicts", mount.path(), "--keep", version, "other"]).expect(1, &["no conflict"]);
        site.place.ok(&["conflicts", mount.path(), "--keep", version, &name]);
        assert_eq!(fs::read_to_string(mount.at(&name)).unwrap(), kept);
        until("the server", || fs::read_to_string(site.place.srv(&name)).is_ok_and(|data| data == kept));
        assert_eq!(site.place.srv(&copy).exists(), version == "both");
        assert_eq!(site.place.ok(&["conflicts", "--json", mount.path()]), "");
    }
}

/// What a file may be after a kill: the state after the last acknowledged change, or after the one that was cut off.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, BTreeSet<Option<Vec<u8>>>>,
    changes: u64,
}

impl Model {
    /// Names with exactly one possible state, which is a file.
    fn certain(&self) -> Vec<String> {
        let is_certain = |states: &BTreeSet<Option<Vec<u8>>>| states.len() == 1 && !states.contains(&None);
        self.files.iter().filter(|(_, states)| is_certain(states)).map(|(name, _)| name.clone()).collect()
    }

    /// Makes the next change. Returns whether it was acknowledged.
    fn change(&mut self, dir: &Path, seed: u64) -> bool {
        self.changes += 1;
        let (n, certain) = (self.changes, self.certain());
        let pick = (!certain.is_empty()).then(|| certain[(seed % certain.len() as u64) as usize].clone());
        match (seed >> 8) % 8 {
            0 if pick.is_some() => self.remove(dir, &pick.unwrap()),
            1 | 2 if pick.is_some() => self.rename(dir, &pick.unwrap(), &format!("f{n}")),
            3 | 4 if pick.is_some() => self.write(dir, &pick.unwrap(), seed),
            _ => self.write(dir, &format!("f{n}"), seed),
        }
    }

    /// fsync reports what a close would lose.
    fn write(&mut self, dir: &Path, name: &str, seed: u64) -> bool {
        let data = noise((seed >> 16) as usize % 20_000, seed);
        let write = || -> std::io::Result<()> {
            let mut file = File::create(dir.join(name))?;
            file.write_all(&data)?;
            file.sync_all()
        };
        let states = self.files.entry(name.to_owned()).or_insert_with(|| BTreeSet::from([None]));
        let is_done = write().is_ok();
        if is_done {
            states.clear();
        } else {
            states.insert(Some(Vec::new()));
        }
        states.insert(Some(data));
        is_done
    }

    fn remove(&mut self, dir: &Path, name: &str) -> bool {
        let is_done = fs::remove_file(dir.join(name)).is_ok();
        let states = self.files.get_mut(name).unwrap();
        if is_done {
            states.clear();
        }
        states.insert(None);
        is_done
    }

    fn rename(&mut self, dir: &Path, from: &str, to: &str) -> bool {
        let is_done = fs::rename(dir.join(from), dir.join(to)).is_ok();
        let data = self.files.remove(from).unwrap();
        let [mut old, mut new] = [data.clone(), data];
        if is_done {
            old.clear();
        } else {
            new.insert(None);
        }
        old.insert(None);
        self.files.insert(from.to_owned(), old);
        self.files.insert(to.to_owned(), new);
        is_done
    }

    /// Checks what there is now. From now on that is certain.
    #[track_caller]
    fn check(&mut self, dir: &Path) {
        for (name, states) in &mut self.files {
            let found = fs::read(dir.join(name)).ok();
            let lens: Vec<_> = states.iter().map(|state| state.as_ref().map(Vec::len)).collect();
            assert!(states.contains(&found), "{name} has {:?} bytes, not {lens:?}", found.as_ref().map(Vec::len));
            *states = BTreeSet::from([found]);
        }
        let unknown = crate::common::names(dir).into_iter().filter(|name| !self.files.contains_key(name));
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "nothing else is there, and no conflict");
    }
}

#[test]
fn kills_while_offline_and_while_sending_lose_nothing() {
    Site::new().into_iter().for_each(|site| survive_kills(site, 50));
}

#[test]
fn kills_of_a_mount_of_ganesha_lose_nothing() {
    Site::on_ganesha().into_iter().for_each(|site| survive_kills(site, 30));
}

/// Kills a mount this often while a program changes files.
fn survive_kills(mut site: Site, kills: usize) {
    let kills = if is_long() { 1000 } else { kills };
    let mut model = Model::default();
    let numbers = noise(1 << 20, 77);
    let mut random = numbers.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).cycle();
    let mut mount = site.mount("mnt", FLAGS);
    for round in 0..kills {
        let wait = Duration::from_millis(random.next().unwrap() % 150);
        if round % 2 == 0 {
            go_offline(&site.place, &mount);
            let pid = site.pid(&mount).to_string();
            let victim = pid.clone();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20) + wait);
                Command::new("kill").args(["-KILL", &victim]).status().unwrap()
            });
            while model.change(&mount.dir, random.next().unwrap()) {}
            assert!(killer.join().unwrap().success());
            wait_for_end(&pid);
        } else {
            std::thread::sleep(wait);
            site.kill(&mount);
        }
        mount = site.mount("mnt", FLAGS);
        if round % 10 == 9 {
            until_sent(&site.place, &mount);
            model.check(&mount.dir);
        }
    }
    until_sent(&site.place, &mount);
    model.check(&mount.dir);
    model.check(&site.export());
    assert_eq!(site.status(&mount)["log"]["conflicts"], 0);
    println!("{kills} kills, {} changes", model.changes);
}
