//! What programs do with files comes to the server, and back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::common::{names, noise, until};
use crate::kit::{Site, errno, program};

#[test]
fn changes_through_the_mount_are_on_the_server() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/a"), "one").unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("dir/a")).unwrap(), "one", "close waits for the server");
    OpenOptions::new().append(true).open(mount.at("dir/a")).unwrap().write_all(b" two").unwrap();
    assert_eq!(fs::read_to_string(mount.at("dir/a")).unwrap(), "one two");
    fs::rename(mount.at("dir/a"), mount.at("b")).unwrap();
    assert_eq!(fs::read_to_string(site.place.srv("b")).unwrap(), "one two");
    fs::set_permissions(mount.at("b"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(site.place.srv("b")).unwrap().mode() & 0o7777, 0o640);
    OpenOptions::new().write(true).open(mount.at("b")).unwrap().set_len(3).unwrap();
    assert_eq!(fs::metadata(mount.at("b")).unwrap().len(), 3);
    assert_eq!(fs::read_to_string(site.place.srv("b")).unwrap(), "one");
    symlink("b", mount.at("link")).unwrap();
    assert_eq!(fs::read_link(site.place.srv("link")).unwrap().to_str(), Some("b"));
    assert_eq!(fs::read_to_string(mount.at("link")).unwrap(), "one");
    fs::hard_link(mount.at("b"), mount.at("c")).unwrap();
    assert_eq!(fs::metadata(mount.at("c")).unwrap().nlink(), 2);
    assert_eq!(names(&mount.dir), ["b", "c", "dir", "link"]);
    for name in ["b", "c", "link"] {
        fs::remove_file(mount.at(name)).unwrap();
    }
    assert_eq!(errno(fs::remove_file(mount.at("b"))), Some(Errno::NOENT.raw_os_error()));
    fs::remove_dir(mount.at("dir")).unwrap();
    assert!(names(&mount.dir).is_empty() && names(&site.place.srv("")).is_empty());
}

#[test]
fn large_file_is_written_and_read_back() {
    let Some((mut site, mount)) = Site::mounted(&[]) else { return };
    let data = noise(5_000_000, 1);
    fs::write(mount.at("large"), &data).unwrap();
    assert!(fs::read(site.place.srv("large")).unwrap() == data, "the server has other bytes");
    let other = site.mount("other", &[]);
    assert!(fs::read(other.at("large")).unwrap() == data, "the mount reads other bytes");
    let mut file = File::options().read(true).write(true).open(other.at("large")).unwrap();
    file.write_all_at(b"middle", 2_500_000).unwrap();
    file.seek(SeekFrom::Start(2_499_999)).unwrap();
    let mut read = [0; 8];
    file.read_exact(&mut read).unwrap();
    assert_eq!(read[1..7], *b"middle");
    assert_eq!([read[0], read[7]], [data[2_499_999], data[2_500_006]]);
    file.sync_all().unwrap();
    assert_eq!(fs::read(site.place.srv("large")).unwrap()[2_500_000..2_500_006], *b"middle");
}

#[test]
fn directory_of_many_names_is_listed_whole() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    let expected: Vec<String> = (0..1500).map(|n| format!("name-{n:04}")).collect();
    expected.iter().for_each(|name| fs::write(site.place.srv(name), name).unwrap());
    assert_eq!(names(&mount.dir), expected);
    assert_eq!(fs::read_to_string(mount.at("name-0777")).unwrap(), "name-0777");
    expected.iter().for_each(|name| fs::remove_file(mount.at(name)).unwrap());
    assert!(names(&site.place.srv("")).is_empty() && names(&mount.dir).is_empty());
}

#[test]
fn removed_file_is_read_until_it_is_closed() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    fs::write(mount.at("file"), "data").unwrap();
    let mut file = File::open(mount.at("file")).unwrap();
    fs::remove_file(mount.at("file")).unwrap();
    assert!(!mount.at("file").exists());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "data");
    drop(file);
    until("the removal at the last close", || names(&site.place.srv("")).is_empty());
}

#[test]
fn exclusive_creation_of_an_existing_name_fails() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    let create = |mode| OpenOptions::new().write(true).create_new(true).mode(mode).open(mount.at("lock"));
    drop(create(0o600).unwrap());
    assert_eq!(errno(create(0o600)), Some(Errno::EXIST.raw_os_error()));
    assert_eq!(fs::metadata(site.place.srv("lock")).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn open_sees_what_another_mount_closed_before() {
    let Some((mut site, first)) = Site::mounted(&["--cache", "strict"]) else { return };
    let second = site.mount("second", &["--cache", "strict"]);
    for round in 0..10 {
        let text = format!("round {round}, {}", "x".repeat(round * 100));
        fs::write(first.at("shared"), &text).unwrap();
        assert_eq!(fs::read_to_string(second.at("shared")).unwrap(), text);
        fs::write(second.at("answer"), &text).unwrap();
        assert_eq!(fs::read_to_string(first.at("answer")).unwrap(), text);
    }
    fs::remove_file(first.at("shared")).unwrap();
    assert_eq!(errno(fs::metadata(second.at("shared"))), Some(Errno::NOENT.raw_os_error()));
}

#[test]
fn read_only_mount_changes_nothing() {
    let Some((site, mount)) = Site::mounted(&["--ro"]) else { return };
    fs::write(site.place.srv("file"), "data").unwrap();
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "data");
    for changed in [fs::write(mount.at("new"), ""), fs::remove_file(mount.at("file")), fs::create_dir(mount.at("dir"))]
    {
        assert_eq!(errno(changed), Some(Errno::ROFS.raw_os_error()));
    }
    assert_eq!(names(&site.place.srv("")), ["file"]);
}

/// Waits for a write lock of a whole file by fcntl(2), F_SETLKW, then says so.
const LOCKER: &str = r#"
use Fcntl;
open(my $file, "+<", $ARGV[0]) or die "open: $!";
my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($file, F_SETLKW, $lock) or die "lock: $!";
print "locked";
"#;

#[test]
fn waiting_lock_ends_by_signal_or_unlock() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    fs::write(mount.at("file"), "data").unwrap();
    let ours = File::options().write(true).open(mount.at("file")).unwrap();
    fcntl_lock(&ours, FlockOperation::LockExclusive).unwrap();
    let mut waiters = [(); 2].map(|()| program("perl", &["-e".as_ref(), LOCKER.as_ref(), &mount.at("file")]));
    for waiter in &mut waiters {
        let is_waiting = format!("-> POSIX  ADVISORY  WRITE {} ", waiter.pid());
        until("a program that waits for the lock", || {
            assert!(!waiter.has_ended(), "a second program got the lock");
            fs::read_to_string("/proc/locks").unwrap().contains(&is_waiting)
        });
    }
    // Locks are local: the server need not answer.
    site.server.signal("STOP");
    let [killed, served] = waiters;
    killed.signal("TERM");
    assert_ne!(killed.finish().code, 0);
    fcntl_lock(&ours, FlockOperation::Unlock).unwrap();
    let out = served.finish();
    assert_eq!((out.code, out.stdout.as_str()), (0, "locked"), "{}", out.stderr);
}
