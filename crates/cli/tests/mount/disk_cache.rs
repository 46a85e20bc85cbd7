//! The cache on disk, across unmounts and damage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{noise, until};
use crate::kit::{Mount, Site, errno};

/// Bytes of file data that the server has sent to a mount.
fn read_bytes(site: &Site, mount: &Mount) -> u64 {
    site.status(mount)["read_bytes"].as_u64().unwrap()
}

fn disk_bytes(site: &Site, mount: &Mount) -> u64 {
    site.status(mount)["disk"]["bytes"].as_u64().unwrap()
}

/// Unmounts and mounts again.
fn remounted(site: &mut Site, mount: &Mount, flags: &[&str]) -> Mount {
    site.place.ok(&["umount", mount.path()]);
    site.mount("mnt", flags)
}

/// The disk cache of the only export.
fn cache_dir(site: &Site) -> PathBuf {
    fs::read_dir(site.place.cache().join("remora")).unwrap().next().unwrap().unwrap().path()
}

/// The files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn read_data_is_used_after_an_unmount() {
    let Some(mut site) = Site::new() else { return };
    let data = noise(700_000, 3);
    fs::create_dir(site.place.srv("dir")).unwrap();
    fs::write(site.place.srv("dir/file"), &data).unwrap();
    let mount = site.mount("mnt", &[]);
    assert!(fs::read(mount.at("dir/file")).unwrap() == data);
    assert_eq!(read_bytes(&site, &mount), 700_000);
    fs::write(mount.at("dir/own"), &data[..300_000]).unwrap();
    let mount = remounted(&mut site, &mount, &[]);
    assert!(fs::read(mount.at("dir/file")).unwrap() == data);
    assert!(fs::read(mount.at("dir/own")).unwrap() == data[..300_000], "written here");
    assert_eq!(read_bytes(&site, &mount), 0, "nothing comes from the server again");
    assert!(disk_bytes(&site, &mount) >= 1_000_000);
    assert_eq!(site.status(&mount)["disk"]["read_bytes"], 1_000_000);
    let modes = files(&site.place.cache()).into_iter().map(|path| fs::metadata(path).unwrap().permissions().mode());
    assert!(modes.into_iter().all(|mode| mode & 0o777 == 0o600), "the files are this user's alone");
}

#[test]
fn listed_names_are_known_after_an_unmount() {
    let Some(mut site) = Site::new() else { return };
    let expected: Vec<String> = (0..300).map(|n| format!("name-{n:03}")).collect();
    expected.iter().for_each(|name| fs::write(site.place.srv(name), name).unwrap());
    let mount = site.mount("mnt", &[]);
    assert_eq!(crate::common::names(&mount.dir), expected);
    let mount = remounted(&mut site, &mount, &[]);
    assert_eq!(fs::metadata(mount.at("name-007")).unwrap().len(), 8);
    let nodes = site.status(&mount)["nodes"].as_u64().unwrap();
    assert!(nodes > 300, "one look-up shows {nodes} objects");
    fs::remove_file(site.place.srv("name-008")).unwrap();
    let mount = remounted(&mut site, &mount, &[]);
    assert_eq!(errno(fs::metadata(mount.at("name-008"))), Some(rustix::io::Errno::NOENT.raw_os_error()));
    assert_eq!(crate::common::names(&mount.dir).len(), 299);
}

#[test]
fn data_that_changed_while_unmounted_is_read_again() {
    let Some(mut site) = Site::new() else { return };
    for name in ["same", "changed", "gone"] {
        fs::write(site.place.srv(name), noise(100_000, 4)).unwrap();
    }
    let mount = site.mount("mnt", &["--cache", "relaxed"]);
    for name in ["same", "changed", "gone"] {
        fs::read(mount.at(name)).unwrap();
    }
    site.place.ok(&["umount", mount.path()]);
    fs::write(site.place.srv("changed"), noise(100_000, 5)).unwrap();
    fs::remove_file(site.place.srv("gone")).unwrap();
    fs::write(site.place.srv("new"), "new").unwrap();
    let mount = site.mount("mnt", &["--cache", "relaxed"]);
    assert!(fs::read(mount.at("same")).unwrap() == noise(100_000, 4));
    assert!(fs::read(mount.at("changed")).unwrap() == noise(100_000, 5));
    assert_eq!(errno(fs::read(mount.at("gone"))), Some(rustix::io::Errno::NOENT.raw_os_error()));
    assert_eq!(fs::read_to_string(mount.at("new")).unwrap(), "new");
    assert_eq!(crate::common::names(&mount.dir), ["changed", "new", "same"]);
    assert_eq!(read_bytes(&site, &mount), 100_003);
}

#[test]
fn data_evicted_from_memory_is_read_from_disk() {
    let Some(mut site) = Site::new() else { return };
    let data = noise(8_000_000, 6);
    fs::write(site.place.srv("large"), &data).unwrap();
    // Direct reads leave nothing in the kernel.
    let direct = |mount: &Mount| {
        let path = format!("if={}", mount.at("large").display());
        let out = Command::new("dd").args([&path, "of=/dev/null", "bs=1M", "iflag=direct"]).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    let mount = site.mount("mnt", &["--cache-memory", "1M"]);
    direct(&mount);
    until("the save", || disk_bytes(&site, &mount) >= 8_000_000);
    let before = read_bytes(&site, &mount);
    direct(&mount);
    assert!(fs::read(mount.at("large")).unwrap() == data);
    assert_eq!(read_bytes(&site, &mount), before);
}

#[test]
fn damaged_cache_is_set_aside_and_named() {
    let Some((mut site, mount)) = Site::mounted(&[]) else { return };
    fs::write(mount.at("file"), "data").unwrap();
    site.place.ok(&["umount", mount.path()]);
    let dir = cache_dir(&site);
    fs::write(dir.join("index.sqlite"), [b'x'; 8192]).unwrap();
    let out = site.try_mount(&mount.dir, &[]);
    out.expect(0, &["damaged", dir.join("damaged").to_str().unwrap()]);
    assert!(dir.join("damaged/index.sqlite").exists());
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "data");
    let mount = remounted(&mut site, &mount, &[]);
    assert_eq!((fs::read_to_string(mount.at("file")).unwrap().as_str(), read_bytes(&site, &mount)), ("data", 0));
}

#[test]
fn cache_size_limits_what_is_on_disk() {
    let Some(mut site) = Site::new() else { return };
    let names: Vec<String> = (0..8).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| fs::write(site.place.srv(name), noise(300_000, 8)).unwrap());
    let limits = ["--cache-size", "1M"];
    let mount = site.mount("mnt", &limits);
    names.iter().for_each(|name| drop(fs::read(mount.at(name)).unwrap()));
    let mount = remounted(&mut site, &mount, &limits);
    assert!((300_000..=1 << 20).contains(&disk_bytes(&site, &mount)));
    assert_eq!(site.status(&mount)["disk"]["limit"], 1 << 20);
    let mount = remounted(&mut site, &mount, &["--cache-size", "0"]);
    assert!(site.status(&mount)["disk"].is_null());
    assert!(fs::read(mount.at("file0")).unwrap() == noise(300_000, 8));
    site.place.run(&["mount", "--cache-size", "5k", "nfs://nas/", mount.path()]).expect(2, &["less than 1M"]);
}

#[test]
fn full_cache_disk_fails_nothing() {
    let Some(mut site) = Site::new() else { return };
    fs::create_dir(site.place.cache()).unwrap();
    let cache = site.place.cache();
    let tmpfs = ["-t", "tmpfs", "-o", "size=1m", "none", cache.to_str().unwrap()];
    assert!(Command::new("mount").args(tmpfs).status().unwrap().success());
    let mount = site.mount("mnt", &["--cache-size", "1M"]);
    let filler = fs::write(cache.join("filler"), vec![1; 2 << 20]);
    assert_eq!(errno(filler), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    let data = noise(500_000, 7);
    fs::write(mount.at("file"), &data).unwrap();
    until("the end of the disk cache", || site.status(&mount)["disk"]["error"].is_string());
    assert!(fs::read(mount.at("file")).unwrap() == data);
    assert!(site.place.ok(&["status", mount.path()]).contains("none on disk"));
    fs::write(mount.at("file"), &data[1..]).unwrap();
    assert!(fs::read(site.place.srv("file")).unwrap() == data[1..]);
    site.place.ok(&["umount", mount.path()]);
    assert!(Command::new("umount").arg(&cache).status().unwrap().success());
}

#[test]
fn cache_inside_the_mount_is_refused() {
    let Some(mut site) = Site::new() else { return };
    // The test's commands have their cache there.
    let dir = site.place.cache();
    fs::create_dir(&dir).unwrap();
    site.try_mount(&dir, &[]).expect(1, &[dir.to_str().unwrap(), "lies in the directory to be mounted"]);
}
