//! What the commands print, and what they refuse.

use std::fs;

use serde_json::Value;

use crate::common::Place;
use crate::kit::{Site, errno, program};

#[test]
fn mount_that_cannot_begin_says_why_and_what_to_do() {
    let p = Place::new();
    let dir = |name: &str| p.here(name).to_str().unwrap().to_owned();
    let url = "nfs://127.0.0.1:9/";
    p.run(&["mount", url, &dir("missing")]).expect(1, &["no such directory", "mkdir"]);
    fs::create_dir(p.here("full")).unwrap();
    fs::write(p.here("full/x"), "").unwrap();
    p.run(&["mount", url, &dir("full")]).expect(1, &["not empty", "-o nonempty"]);
    p.run(&["mount", "http://nas/", &dir("full")]).expect(2, &["http"]);
    p.run(&["mount", url]).expect(2, &["DIR"]);
    p.run(&["mount", "-o", "vers=4", url, &dir("full")]).expect(2, &["only version 3"]);
    fs::create_dir(p.here("empty")).unwrap();
    p.run(&["mount", "--timeout", "1", url, &dir("empty")]).expect(3, &["127.0.0.1:9"]);
    for command in ["umount", "release", "status"] {
        p.run(&[command, &dir("empty")]).expect(1, &["nothing is mounted there", "remora mount --list"]);
    }
    p.run(&["top"]).expect(2, &["needs a terminal", "remora status --json"]);
}

#[test]
fn running_mount_is_listed_and_reported() {
    let Some((mut site, mount)) = Site::mounted(&["--cache", "relaxed"]) else { return };
    let status = site.status(&mount);
    assert_eq!(status["dir"], mount.path());
    assert_eq!((&status["state"], &status["cache"]), (&"mounted".into(), &"relaxed".into()));
    assert_eq!(status["server"]["address"], site.server.addr.to_string());
    assert_eq!(status["server"]["transport"], "tcp", "it is on loopback");
    let below = mount.at("some/where");
    let of_below: Value = {
        fs::create_dir_all(&below).unwrap();
        serde_json::from_str(&site.place.ok(&["status", "--json", below.to_str().unwrap()])).unwrap()
    };
    assert_eq!(of_below["dir"], status["dir"], "a directory in it means the same mount");
    let text = site.place.ok(&["status", mount.path()]);
    assert!(text.contains("mounted") && text.contains(&site.server.addr.to_string()), "{text}");
    assert!(site.place.ok(&["mount", "--list"]).contains(mount.path()));
    let dir = mount.dir.clone();
    site.try_mount(&dir, &[]).expect(1, &["mounted there already", "remora umount"]);
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    assert!(!site.place.run(&["mount", "--list"]).stdout.contains(mount.path()));
}

#[test]
fn mount_takes_alias_and_flags_of_a_configuration() {
    let Some(mut site) = Site::new() else { return };
    let (dir, file) = (site.place.here("mnt"), site.place.here("c.toml"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(site.place.srv("sub")).unwrap();
    fs::write(site.place.srv("sub/file"), "data").unwrap();
    let host = format!("[hosts.nas]\naddress = \"{}\"\n", site.server.addr);
    fs::write(&file, format!("{host}[mount]\ncache = \"relaxed\"\nro = true\n")).unwrap();
    site.adopt(&dir);
    let at = dir.to_str().unwrap();
    for (flags, cache) in [(&[][..], "relaxed"), (&["--cache", "strict"], "strict")] {
        site.place.run(&[&["--config", "c.toml", "mount", "nas:sub", at], flags].concat()).expect(0, &[]);
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "data");
        let status: Value = serde_json::from_str(&site.place.ok(&["status", "--json", at])).unwrap();
        assert_eq!((&status["cache"], &status["read_only"]), (&cache.into(), &true.into()));
        site.place.run(&["umount", at]).expect(0, &[]);
    }
}

#[test]
fn foreground_mount_ends_in_good_order_at_ctrl_c() {
    let Some(site) = Site::new() else { return };
    fs::create_dir(site.place.here("mnt")).unwrap();
    let dir = site.place.here("mnt");
    let running = site.place.start(&["mount", "-f", &site.server.url("/"), dir.to_str().unwrap()]);
    crate::common::until("the mount", || site.place.run(&["status", dir.to_str().unwrap()]).code == 0);
    fs::write(dir.join("file"), "data").unwrap();
    site.server.signal("STOP");
    let held = program("ls", &[&dir.join("missing")]);
    // The line comes after half that time.
    crate::common::until("a long silence", || {
        let status = site.place.ok(&["status", "--json", dir.to_str().unwrap()]);
        serde_json::from_str::<Value>(&status).unwrap()["server"]["silent_ms"].as_u64() >= Some(6000)
    });
    site.server.signal("CONT");
    held.finish().expect(2, &["No such file"]);
    running.signal("INT");
    running.finish().expect(0, &["mounted at", "has not answered for 3 s"]);
    assert_eq!(fs::read_to_string(site.place.srv("file")).unwrap(), "data");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

/// As mount(8) calls it for a line of fstab(5).
#[test]
fn mount_helper_takes_the_words_of_mount8() {
    let Some(mut site) = Site::new() else { return };
    let (dir, helper) = (site.place.here("mnt"), site.place.here("mount.remora"));
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_remora"), &helper).unwrap();
    let options = format!("rw,_netdev,noatime,port={},soft=30s", site.server.port());
    site.adopt(&dir);
    let run = |flags: &str| {
        let mut helper = std::process::Command::new(&helper);
        helper.args(["127.0.0.1:/", dir.to_str().unwrap(), flags, "-o", &options]);
        helper.env("XDG_STATE_HOME", site.place.state()).env("XDG_CACHE_HOME", site.place.cache());
        assert!(helper.status().unwrap().success());
    };
    run("-f");
    assert!(!site.place.run(&["mount", "--list"]).stdout.contains(dir.to_str().unwrap()), "-f mounts nothing");
    run("-n");
    fs::write(dir.join("file"), "data").unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("file")).unwrap(), "data");
    let status: Value = serde_json::from_str(&site.place.ok(&["status", "--json", dir.to_str().unwrap()])).unwrap();
    assert_eq!(status["soft_ms"], 30_000);
}

/// As mount(8) calls it for `mount -o remount,ro DIR`.
#[test]
fn remounted_directory_is_read_only_and_writable_again() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    let helper = site.place.here("mount.fuse.remora");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_remora"), &helper).unwrap();
    let run = |options: &str| {
        let mut helper = std::process::Command::new(&helper);
        assert!(helper.args(["nas:/", mount.path(), "-o", options]).status().unwrap().success());
    };
    run("rw,nosuid,nodev,remount,ro");
    assert_eq!(errno(fs::write(mount.at("file"), "data")), Some(rustix::io::Errno::ROFS.raw_os_error()));
    run("ro,nosuid,nodev,remount,rw");
    fs::write(mount.at("file"), "data").unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("file")).unwrap(), "data");
}
