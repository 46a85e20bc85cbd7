//! The server, or the mount's own process, goes away and comes back.

use std::fs;
use std::process::Command;

use rustix::io::Errno;

use crate::common::until;
use crate::kit::{Site, errno, program, promptly, wait_for_end};

#[test]
fn stopped_server_holds_only_what_needs_it() {
    let Some((site, mount)) = Site::mounted(&["--offline", "never"]) else { return };
    for name in ["a", "b", "c"] {
        fs::write(site.place.srv(name), name).unwrap();
    }
    assert_eq!(fs::read_to_string(mount.at("a")).unwrap(), "a");
    site.server.signal("STOP");
    let dir = mount.dir.clone();
    promptly("stat of the mount point", move || fs::metadata(dir).unwrap());
    let dir = mount.dir.clone();
    promptly("statfs", move || rustix::fs::statfs(&dir).unwrap());
    let killed = program("cat", &[&mount.at("b")]);
    site.until_held(&mount, "cat");
    killed.signal("KILL");
    promptly("a killed program", move || killed.finish());
    let released = program("cat", &[&mount.at("c")]);
    site.until_held(&mount, "cat");
    site.place.run(&["release", mount.path()]).expect(0, &["ended 1 call"]);
    let released = promptly("a released program", move || released.finish());
    released.expect(1, &["Interrupted system call"]);
    let waiting = program("cat", &[&mount.at("c")]);
    site.until_held(&mount, "cat");
    site.server.signal("CONT");
    assert_eq!(waiting.finish().stdout, "c", "the call goes on by itself");
}

#[test]
fn stopped_server_does_not_prevent_umount() {
    let Some((site, mount)) = Site::mounted(&["--offline", "never"]) else { return };
    site.server.signal("STOP");
    let held = program("ls", &[&mount.at("missing")]);
    site.until_held(&mount, "ls");
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    assert_eq!(site.place.run(&["mount", "--list", "--json"]).stdout.matches(mount.path()).count(), 0);
    promptly("a program of an ended mount", move || held.finish());
    assert!(fs::read_dir(&mount.dir).unwrap().next().is_none(), "the directory is the local one again");
}

#[test]
fn restarted_server_is_used_again() {
    let Some((mut site, mount)) = Site::mounted(&[]) else { return };
    fs::write(mount.at("before"), "1").unwrap();
    let port = site.server.port();
    fs::write(site.place.srv("unread"), "2").unwrap();
    let killed = std::mem::replace(&mut site.server, site.place.serve(&[]));
    killed.kill();
    let waiting = program("cat", &[&mount.at("unread")]);
    site.until_held(&mount, "cat");
    site.server = site.place.serve_at(port, &[]);
    assert_eq!(waiting.finish().stdout, "2");
    fs::write(mount.at("before"), "3").unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("before")).unwrap(), "3");
}

#[test]
fn soft_mount_fails_calls_of_a_silent_server() {
    let Some((site, mount)) = Site::mounted(&["--soft", "1s"]) else { return };
    fs::write(site.place.srv("file"), "data").unwrap();
    site.server.signal("STOP");
    let file = mount.at("file");
    let failed = promptly("a call of a soft mount", move || errno(fs::read(file)));
    assert!([Errno::IO, Errno::TIMEDOUT].map(|e| Some(e.raw_os_error())).contains(&failed), "{failed:?}");
    site.server.signal("CONT");
    until("the server", || fs::read_to_string(mount.at("file")).is_ok_and(|text| text == "data"));
}

#[test]
fn killed_mount_leaves_no_hang_and_mounts_again() {
    let Some((mut site, mount)) = Site::mounted(&[]) else { return };
    let pid = site.pid(&mount).to_string();
    assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().unwrap().success());
    let dir = mount.dir.clone();
    wait_for_end(&pid);
    let found = promptly("a dead mount", move || errno(fs::read_dir(dir)));
    // A call that the process had not read yet is aborted.
    assert!([Errno::NOTCONN, Errno::CONNABORTED].map(|e| Some(e.raw_os_error())).contains(&found), "{found:?}");
    let mount = site.mount("mnt", &[]);
    fs::write(mount.at("file"), "data").unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("file")).unwrap(), "data");
    let pid = site.pid(&mount).to_string();
    assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().unwrap().success());
    wait_for_end(&pid);
    site.place.run(&["umount", mount.path()]).expect(0, &[]);
    assert!(fs::read_dir(&mount.dir).unwrap().next().is_none());
}

#[test]
fn stopped_mount_is_listed_and_ended_by_force() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    let pid = site.pid(&mount).to_string();
    assert!(Command::new("kill").args(["-s", "STOP", &pid]).status().unwrap().success());
    site.place.run(&["status", mount.path()]).expect(1, &["does not answer", &pid]);
    assert!(site.place.ok(&["mount", "--list"]).contains("silent"));
    site.place.run(&["umount", "--force", mount.path()]).expect(0, &[]);
    let dir = mount.dir.clone();
    assert_eq!(promptly("the local directory", move || fs::read_dir(dir).unwrap().count()), 0);
}
