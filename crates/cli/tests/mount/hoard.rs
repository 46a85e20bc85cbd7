//! Hoarding: what the profile names is on this machine, stays there, and is reported.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Output, noise, until};
use crate::kit::{Mount, Site, promptly};

/// Exit code of `hoard check` and `hoard walk` where something is missing.
const MISSING: i32 = 6;

fn hoard(site: &Site, args: &[&str]) -> Output {
    site.place.run(&[&["hoard"], args].concat())
}

/// `remora hoard check --json` of a mount.
fn check(site: &Site, mount: &Mount) -> Value {
    serde_json::from_str(&hoard(site, &["check", "--json", mount.path()]).stdout).unwrap()
}

/// Writes a tree of 30 files in three directories below `project`.
fn project(site: &Site) -> Vec<(String, Vec<u8>)> {
    let path = |n: u64| format!("project/{}/file{n:02}", ["a", "b", "b/c"][n as usize % 3]);
    let files: Vec<_> = (0..30).map(|n| (path(n), noise(20_000 + 1000 * n as usize, n + 1))).collect();
    for (path, data) in &files {
        fs::create_dir_all(site.place.srv(path).parent().unwrap()).unwrap();
        fs::write(site.place.srv(path), data).unwrap();
    }
    files
}

/// Reads a file past the kernel's cache.
fn read_directly(path: &Path) -> Vec<u8> {
    let input = format!("if={}", path.display());
    let out = Command::new("dd").args([&input, "bs=1M", "iflag=direct", "status=none"]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    out.stdout
}

#[test]
fn hoarded_tree_survives_eviction_and_a_stopped_server() {
    let Some(mut site) = Site::new() else { return };
    let files = project(&site);
    for n in 0..8 {
        fs::write(site.place.srv(&format!("other{n}")), noise(500_000, 50 + n)).unwrap();
    }
    // What programs have seen is used for a minute without the server.
    let mount = site.mount("mnt", &["--cache", "relaxed", "--cache-size", "2M", "--cache-memory", "1M"]);
    hoard(&site, &["check", mount.path()]).expect(MISSING, &[]);
    hoard(&site, &["add", "--recursive", mount.at("project").to_str().unwrap()]).expect(0, &[]);
    let walked = hoard(&site, &["walk", mount.path()]);
    assert!(walked.code == 0 && walked.stdout.starts_with("ready to leave: 30 files, 1.0 MB"), "{walked:?}");
    for n in 0..8 {
        let name = format!("other{n}");
        assert!(read_directly(&mount.at(&name)) == noise(500_000, 50 + n));
    }
    // Programs look at the names, as a relaxed mount lets them.
    files.iter().for_each(|(path, _)| drop(fs::File::open(mount.at(path)).unwrap()));
    site.server.signal("STOP");
    let ready = hoard(&site, &["check", mount.path()]);
    assert!(ready.code == 0 && ready.stdout.starts_with("ready to leave: 30 files"), "{ready:?}");
    let before = site.status(&mount);
    let dir = mount.dir.clone();
    let wanted = files.clone();
    promptly("a read of hoarded files", move || {
        for (path, data) in wanted {
            assert!(read_directly(&dir.join(&path)) == data, "{path}");
        }
    });
    let after = site.status(&mount);
    assert_eq!(after["read_bytes"], before["read_bytes"], "nothing comes from the server");
    let from_disk = |status: &Value| status["disk"]["read_bytes"].as_u64().unwrap();
    assert!(from_disk(&after) > from_disk(&before), "memory had evicted it");
    assert!(after["disk"]["bytes"].as_u64().unwrap() <= 2 << 20);
}

#[test]
fn missing_files_are_listed_with_the_reason() {
    let Some(mut site) = Site::new() else { return };
    fs::create_dir(site.place.srv("dir")).unwrap();
    fs::write(site.place.srv("dir/small"), noise(10_000, 1)).unwrap();
    fs::write(site.place.srv("dir/large"), noise(900_000, 2)).unwrap();
    let mount = site.mount("mnt", &["--cache-size", "1M"]);
    for path in ["dir", "absent"] {
        hoard(&site, &["add", mount.at(path).to_str().unwrap()]).expect(0, &[]);
    }
    let walked = hoard(&site, &["walk", mount.path()]);
    assert_eq!(walked.code, MISSING, "{walked:?}");
    assert!(walked.stdout.starts_with("not ready: 2 files missing, 900 kB"), "{}", walked.stdout);
    let state = check(&site, &mount);
    assert_eq!((&state["is_ready"], &state["files"], &state["entries"]), (&false.into(), &3.into(), &2.into()));
    let missing = state["missing"].as_array().unwrap();
    let reason = |path: &str| missing.iter().find(|miss| miss["path"] == path).map(|miss| miss["reason"].clone());
    assert_eq!(reason("/dir/large"), Some("too large for the cache on disk".into()));
    assert_eq!(reason("/absent"), Some("no such file or directory".into()));
}

#[test]
fn profile_is_kept_across_mounts_and_edited_by_hand() {
    let Some((mut site, mount)) = Site::mounted(&[]) else { return };
    fs::write(site.place.srv("a"), "a").unwrap();
    fs::write(site.place.srv("b"), "b").unwrap();
    let at = |name: &str| mount.at(name).to_str().unwrap().to_owned();
    hoard(&site, &["add", "--priority", "90", &at("a")]).expect(0, &[]);
    hoard(&site, &["remove", &at("b")]).expect(1, &["no such entry", "hoard list"]);
    let listed = hoard(&site, &["list", mount.path()]).stdout;
    assert_eq!(listed, format!(" 90  /a  ({})\n", site.server.url("/")));
    let profile = site.place.config().join("remora/hoard.toml");
    let text = fs::read_to_string(&profile).unwrap();
    fs::write(&profile, format!("{text}\n[[entry]]\nurl = \"{}\"\npath = \"/b\"\n", site.server.url("/"))).unwrap();
    site.place.ok(&["umount", mount.path()]);
    let mount = site.mount("mnt", &[]);
    until("a walk", || check(&site, &mount)["is_ready"] == true);
    assert_eq!(check(&site, &mount)["files"], 2);
    fs::write(&profile, format!("{text}priority = 500\n")).unwrap();
    hoard(&site, &["walk", mount.path()]).expect(1, &["hoard.toml", "line"]);
    hoard(&site, &["list"]).expect(1, &["hoard.toml", "line", "hint: remora hoard --help"]);
    fs::write(&profile, &text).unwrap();
    hoard(&site, &["remove", &at("a")]).expect(0, &[]);
    hoard(&site, &["list"]).expect(0, &["no entries"]);
    hoard(&site, &["add", "/tmp"]).expect(1, &["nothing is mounted there"]);
}

#[test]
fn used_directory_is_suggested_with_its_programs() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    fs::create_dir(site.place.srv("mail box")).unwrap();
    let names: Vec<String> = (0..6).map(|n| format!("mail box/{n}")).collect();
    names.iter().for_each(|name| fs::write(site.place.srv(name), name).unwrap());
    let paths = names.iter().map(|name| mount.at(name));
    assert!(Command::new("cat").args(paths).output().unwrap().status.success());
    let found = hoard(&site, &["suggest", mount.path()]).stdout;
    let command = format!("remora hoard add '{}'\n", mount.at("mail box").display());
    assert_eq!(found, format!("# 6 opens of 6 files (cat 6)\n{command}"));
    hoard(&site, &["add", mount.at("mail box").to_str().unwrap()]).expect(0, &[]);
    hoard(&site, &["suggest", mount.path()]).expect(0, &["nothing to propose"]);
}
