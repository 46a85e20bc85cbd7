//! `--writes back`: what a program has written survives the server's silence, kills of the mount, and a full disk.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use serde_json::Value;

use crate::common::{noise, until};
use crate::kit::{Mount, Site, errno, promptly};

/// Opens of files that were seen do not ask the server.
const FLAGS: &[&str] = &["--writes", "back", "--cache", "relaxed"];
const MIB: usize = 1 << 20;

/// Opens an empty file of the server for writing.
fn open_empty(site: &Site, mount: &Mount, name: &str) -> File {
    fs::write(site.place.srv(name), "").unwrap();
    OpenOptions::new().write(true).open(mount.at(name)).unwrap()
}

/// Writes and closes a file while the server is silent.
fn write_alone(mut file: File, data: Vec<u8>) {
    promptly("a write and a close", move || {
        file.write_all(&data).unwrap();
        drop(file);
    });
}

/// What `remora mount --list` says of unsent data that no mount has.
fn kept(site: &Site) -> Vec<Value> {
    let listed = site.place.ok(&["mount", "--list", "--json"]);
    let mounts = serde_json::Deserializer::from_str(&listed).into_iter::<Value>().map(Result::unwrap);
    mounts.filter(|mount| mount["state"] == "kept").collect()
}

fn is_on_server(site: &Site, name: &str, data: &[u8]) -> bool {
    fs::read(site.place.srv(name)).is_ok_and(|found| found == data)
}

/// The store of unsent data.
fn store(site: &Site) -> PathBuf {
    let all = fs::read_dir(site.place.state().join("remora/unsent")).unwrap();
    let stores: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    let [store] = &stores[..] else { panic!("not one store: {stores:?}") };
    store.clone()
}

#[test]
fn unmount_keeps_what_a_silent_server_lacks() {
    let Some((mut site, mount)) = Site::mounted(FLAGS) else { return };
    let data = noise(3 * MIB + 5, 1);
    let file = open_empty(&site, &mount, "file");
    site.server.signal("STOP");
    write_alone(file, data.clone());
    site.place.run(&["umount", mount.path()]).expect(0, &["unsent files kept: 1", "the next mount of", "sends"]);
    let listed = kept(&site);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0]["dir"], &listed[0]["unsent_files"]), (&mount.path().into(), &1.into()));
    assert!(site.place.ok(&["mount", "--list"]).contains("unsent files kept: 1"));
    site.server.signal("CONT");
    let mount = site.mount("mnt", FLAGS);
    until("the data", || is_on_server(&site, "file", &data));
    assert!(fs::read(mount.at("file")).unwrap() == data);
    until("the end of write-back", || site.status(&mount)["dirty_bytes"] == 0);
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    assert_eq!(kept(&site), [Value::Null; 0], "nothing is left");
}

#[test]
fn killed_mount_loses_nothing_that_was_closed() {
    let Some((mut site, mount)) = Site::mounted(FLAGS) else { return };
    let files: Vec<(String, Vec<u8>)> = [0, 1, 5000, 2 * MIB + 1]
        .iter()
        .enumerate()
        .map(|(n, len)| (format!("file-{n}"), noise(*len, n as u64)))
        .collect();
    let open: Vec<File> = files.iter().map(|(name, _)| open_empty(&site, &mount, name)).collect();
    site.server.signal("STOP");
    for (file, (_, data)) in open.into_iter().zip(&files) {
        write_alone(file, data.clone());
    }
    site.kill(&mount);
    // What it sent just before may be executed, and is no conflict.
    site.server.signal("CONT");
    let mount = site.mount("mnt", FLAGS);
    for (name, data) in &files {
        until(name, || is_on_server(&site, name, data));
    }
    let status = site.status(&mount);
    assert!(status["unsent"].as_array().unwrap().iter().all(|file| file["refused"].is_null()), "{status}");
}

#[test]
fn second_mount_of_an_export_names_the_first() {
    let Some((mut site, mount)) = Site::mounted(FLAGS) else { return };
    let second = site.place.here("second");
    fs::create_dir(&second).unwrap();
    let pid = site.pid(&mount).to_string();
    site.try_mount(&second, FLAGS).expect(1, &[mount.path(), &pid, "remora umount"]);
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    assert_eq!(site.try_mount(&second, FLAGS).code, 0);
}

#[test]
fn damaged_store_gives_a_read_only_mount_and_a_way_out() {
    let Some((mut site, mount)) = Site::mounted(FLAGS) else { return };
    let file = open_empty(&site, &mount, "file");
    site.server.signal("STOP");
    write_alone(file, noise(MIB, 1));
    site.place.run(&["umount", "--keep", mount.path()]).expect(0, &["unsent files kept: 1"]);
    site.server.signal("CONT");
    let store = store(&site);
    fs::write(store.join("records.sqlite"), [b'x'; 8192]).unwrap();
    let aside = format!("{}.damaged", store.display());
    let recovery = format!("mv {} {aside}", store.display());
    site.try_mount(&mount.dir, FLAGS).expect(0, &["damaged", "read-only", &recovery]);
    assert_eq!(errno(fs::write(mount.at("new"), "")), Some(Errno::ROFS.raw_os_error()));
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    fs::rename(&store, &aside).unwrap();
    let kept: Vec<PathBuf> = fs::read_dir(Path::new(&aside).join("data")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(fs::read(&kept[0]).unwrap() == noise(MIB, 1), "the bytes are where the message says");
    let mount = site.mount("mnt", FLAGS);
    fs::write(mount.at("file"), "new").unwrap();
    until("the data", || is_on_server(&site, "file", b"new"));
}

/// A small file system, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(dir: PathBuf, size: &str) -> SmallDisk {
        fs::create_dir_all(&dir).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&dir);
        assert!(mount.status().unwrap().success());
        SmallDisk(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that has not ended may use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_is_reported_by_the_write_that_does_not_fit() {
    let Some(mut site) = Site::new() else { return };
    // 64 MiB stay reserved.
    let _disk = SmallDisk::new(site.place.state().join("remora/unsent"), "72m");
    let mount = site.mount("mnt", FLAGS);
    fs::write(site.place.srv("other"), "other").unwrap();
    let file = open_empty(&site, &mount, "file");
    assert_eq!(fs::read_to_string(mount.at("other")).unwrap(), "other");
    site.server.signal("STOP");
    let data = noise(16 * MIB, 1);
    let written = promptly("writes", move || {
        let mut blocks = data.chunks(MIB / 4).enumerate();
        let refused = blocks.find_map(|(n, block)| {
            file.write_all_at(block, (n * MIB / 4) as u64).err().map(|error| (n * MIB / 4, error.raw_os_error()))
        });
        let (len, error) = refused.expect("the disk is full before all is written");
        assert_eq!(error, Some(Errno::NOSPC.raw_os_error()));
        file.sync_all().expect("what was acknowledged is kept");
        data[..len].to_vec()
    });
    assert!(written.len() >= MIB, "only {} bytes", written.len());
    let other = mount.at("other");
    assert_eq!(promptly("a read", move || fs::read_to_string(other).unwrap()), "other");
    site.kill(&mount);
    site.server.signal("CONT");
    let mount = site.mount("mnt", FLAGS);
    until("what was acknowledged", || is_on_server(&site, "file", &written));
    until("room", || fs::write(mount.at("file"), "new").is_ok());
    until("the data", || is_on_server(&site, "file", b"new"));
}
