//! Taking leave of an object that loses a name.
//!
//! On most disks what is open when it loses its last name is without one from then on, and an open descriptor tells
//! whether that has happened. Where it would go on under another name ([`Kind::hides_open`](super::kind::Kind)), and its
//! directory could not be removed for that, nothing is kept open of it: as knfsd does (EXPORT_OP_CLOSE_BEFORE_UNLINK).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use remora_wire::nfs3::FileType;
use rustix::io::Errno;

use super::ids::Key;
use super::listings::Listings;
use super::resolve::{Folder, Object};
use super::syscalls::fdatasync;
use super::{Disk, LocalDisk, stat};

/// What was written to a file and could not be saved. Whoever wrote it hears of that by the verifier when this is
/// dropped, unless the file is gone by then and there is nothing to write again.
struct Unsaved {
    disk: Arc<Disk>,
    why: Errno,
    is_missed: bool,
}

impl Unsaved {
    /// Nobody need be told.
    fn forget(mut self) {
        self.is_missed = false;
    }
}

impl Drop for Unsaved {
    fn drop(&mut self) {
        if self.is_missed {
            self.disk.lost(self.why);
        }
    }
}

/// An object that is to lose a name.
pub(super) struct Leaving {
    key: Key,
    kind: FileType,
    /// Open to name it, unless it must not be.
    fd: Option<Arc<OwnedFd>>,
    /// What could not be saved of it.
    unsaved: Option<Unsaved>,
}

impl Leaving {
    /// What is known of it stays open.
    pub(super) fn open(object: Object) -> Leaving {
        Leaving { key: object.key, kind: object.attr.kind, fd: Some(object.fd), unsaved: None }
    }

    /// Whether it has no name any more.
    fn is_gone(&self) -> bool {
        match &self.fd {
            Some(fd) => stat::links(fd) == Ok(0),
            // How many names a file had may be from before it was locked, told by a cache, or made up, as by sshfs.
            None => self.kind == FileType::Directory,
        }
    }
}

impl Disk {
    /// What is listed of a directory that is going has been listed.
    fn close_listings(&self, object: &Object) {
        if object.attr.kind == FileType::Directory {
            self.listings.iter().for_each(|listings| listings.close(object.key));
        }
    }

    /// Closes what somebody else removed; whether there was any that may give back room.
    pub(super) fn close_removed(&self) -> bool {
        self.listings.iter().for_each(Listings::close_removed);
        self.dirs.close_removed() | self.files.close_removed()
    }
}

impl LocalDisk {
    /// `object` is about to lose a name.
    pub(super) fn leave(&self, object: Object) -> Leaving {
        self.disk.close_listings(&object);
        if !self.disk.kind.hides_open {
            return Leaving::open(object);
        }
        let Object { fd, key, attr, .. } = object;
        // It may live on, under another name or because it cannot be removed: what was written to it must not be lost
        // without anybody being told.
        let mut unsaved = self.pay_last(key);
        // It does live on: who asks next must know.
        drop(unsaved.take_if(|_| stat::fresh(&fd).is_ok_and(|now| now.attr.nlink > 1)));
        drop(fd);
        self.disk.files.close(key);
        self.disk.dirs.close(key);
        Leaving { key, kind: attr.kind, fd: None, unsaved }
    }

    /// Flushes a file that is about to lose a name, and may be gone then.
    fn pay_last(&self, key: Key) -> Option<Unsaved> {
        let owed = self.disk.files.owed.begin(key);
        let done = owed.descriptors().try_for_each(|fd| {
            let _alone = self.disk.alone(fd);
            fdatasync(fd)
        });
        self.disk.files.owed.end(owed);
        done.err().map(|why| Unsaved { disk: self.disk.clone(), why, is_missed: true })
    }

    /// `name` in `dir` no longer leads to it.
    pub(super) fn lost_name(&self, dir: &Folder, name: &[u8], leaving: Leaving) {
        if !leaving.is_gone() {
            // Where that cannot be told a search will, if anybody asks for it.
            self.table().forget_name(leaving.key, dir.key, name);
            if leaving.fd.is_none() {
                self.disk.files.close(leaving.key);
            }
            // It had one name, and no other is known.
            if self.table().place(leaving.key).is_none() {
                leaving.unsaved.into_iter().for_each(Unsaved::forget);
            }
            return;
        }
        let Leaving { key, fd, .. } = leaving;
        self.table().removed(key);
        self.disk.files.gone(key);
        self.disk.dirs.close(key);
        if let Some(fd) = fd {
            self.bury(key, fd);
        }
    }

    /// Takes leave of an object that has lost its last name.
    pub(super) fn bury(&self, key: Key, fd: Arc<OwnedFd>) {
        self.disk.with_graveyard(|yard| yard.bury(key, fd));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use remora_wire::nfs3::{CreateHow, SetAttr, Stable, Status};
    use rustix::fs::AtFlags;

    use super::super::data::For;
    use super::super::flush_failure::me;
    use super::super::kind::Kind;
    use super::super::syscalls::{lose, open_at_removals, unlinkat};
    use super::super::{LocalDisk, Options, ids};
    use crate::{FileId, Ledger, Vfs};

    fn disk(hides_open: bool) -> (tempfile::TempDir, LocalDisk) {
        let dir = tempfile::tempdir().unwrap();
        let kind = |root: &_, device| Kind { hides_open, ..Kind::of(root, device) };
        let disk = LocalDisk::open_as(dir.path(), Options::new([1; 8]), kind).unwrap();
        (dir, disk)
    }

    /// A file that was written to and read, in the root.
    fn file(disk: &LocalDisk, name: &[u8]) -> FileId {
        let made = disk.create(&me(), &disk.root(), name, &CreateHow::Guarded(SetAttr::NONE)).unwrap().id;
        disk.write(&me(), &made, 0, &Bytes::from_static(b"text"), Stable::Unstable).unwrap();
        disk.read(&me(), &made, 0, 4).unwrap();
        made
    }

    #[test]
    fn nothing_is_open_of_what_loses_a_name_where_it_would_be_hidden_for_that() {
        for hides in [false, true] {
            let (_dir, disk) = disk(hides);
            let root = disk.root();
            for name in [b"removed", b"forgone", b"another"] {
                file(&disk, name);
            }
            let folder = disk.mkdir(&me(), &root, b"folder", &SetAttr::NONE).unwrap().id;
            disk.lookup(&me(), &folder, b"none").unwrap_err();
            let open = open_at_removals(|| {
                disk.remove(&me(), &root, b"removed").unwrap();
                disk.rename(&me(), (&root, b"another"), (&root, b"forgone")).unwrap();
                disk.rmdir(&me(), &root, b"folder").unwrap();
            });
            assert_eq!(open.len(), 3);
            assert!(open.iter().all(|open| (*open == 0) == hides), "{open:?}, hides: {hides}");
        }
    }

    #[test]
    fn who_asks_for_room_waits_for_a_look_at_each_file_only_where_that_gives_back_some() {
        for hides in [false, true] {
            let (dir, disk) = disk(hides);
            let key = ids::decode(&file(&disk, b"a")).unwrap().0;
            std::fs::remove_file(dir.path().join("a")).unwrap();
            disk.fsstat(&disk.root()).unwrap();
            assert_eq!(disk.disk.files.held(key).is_some(), hides);
            disk.tidy();
            assert!(disk.disk.files.held(key).is_none());
        }
    }

    #[test]
    fn what_is_closed_before_it_loses_a_name_is_gone_with_the_last_and_lives_on_with_another() {
        let (_dir, disk) = disk(true);
        let root = disk.root();
        let id = file(&disk, b"a");
        disk.link(&me(), &id, &root, b"b").unwrap();
        disk.write(&me(), &id, 0, &Bytes::from_static(b"TEXT"), Stable::Unstable).unwrap();
        let (before, key) = (disk.verifier(), ids::decode(&id).unwrap().0);
        lose(disk.disk.files.held(key).unwrap());
        disk.remove(&me(), &root, b"a").unwrap();
        assert_ne!(disk.verifier(), before, "that what was written is lost could not be told later");
        assert_eq!(disk.read(&me(), &id, 0, 4).unwrap().0, b"TEXT"[..]);
        disk.rename(&me(), (&root, b"b"), (&root, b"b")).unwrap();
        disk.remove(&me(), &root, b"b").unwrap();
        assert_eq!(disk.getattr(&id), Err(Status::Stale));
        assert!(disk.disk.files.held(key).is_none());
    }

    #[test]
    fn what_got_another_name_before_it_was_locked_lives_on_whoever_gave_it() {
        for beside in ["before", "after"] {
            let (dir, disk) = disk(true);
            let id = file(&disk, b"a");
            let root = disk.folder(&disk.root()).unwrap();
            let object = disk.open_child(&root, b"a").unwrap();
            let link = || std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
            if beside == "before" {
                link();
            }
            let leaving = disk.leave(object);
            if beside == "after" {
                link();
            }
            unlinkat(&root.fd, b"a", AtFlags::empty()).unwrap();
            disk.lost_name(&root, b"a", leaving);
            assert_eq!(disk.getattr(&id).map(|attr| attr.nlink), Ok(1), "{beside} it was looked at");
        }
    }

    #[test]
    fn what_was_opened_to_read_while_it_was_removed_is_closed_soon() {
        let (_dir, disk) = disk(true);
        let id = file(&disk, b"a");
        let (object, key) = (disk.resolve(&id).unwrap(), ids::decode(&id).unwrap().0);
        disk.remove(&me(), &disk.root(), b"a").unwrap();
        disk.data_of(&me(), &object, For::Reading).unwrap();
        disk.close_idle(Duration::from_secs(3600));
        assert!(disk.disk.files.held(key).is_some(), "it was used just now");
        disk.close_idle(Duration::ZERO);
        assert!(disk.disk.files.held(key).is_none());
    }

    #[test]
    fn what_is_lost_with_its_file_is_told_to_nobody_unless_the_file_stays() {
        let (dir, disk) = disk(true);
        let root = disk.root();
        let unsaved = |name: &[u8]| {
            let id = file(&disk, name);
            lose(disk.disk.files.held(ids::decode(&id).unwrap().0).unwrap());
        };
        let before = disk.verifier();
        for change in ["REMOVE", "RENAME"] {
            unsaved(b"a");
            file(&disk, b"b");
            let ledger = Arc::<Ledger>::default();
            let view = disk.deferring(&ledger).unwrap();
            match change {
                "REMOVE" => drop(view.remove(&me(), &root, b"a").unwrap()),
                _ => drop(view.rename(&me(), (&root, b"b"), (&root, b"a")).unwrap()),
            }
            let owed = ledger.take();
            assert!(!owed.is_empty());
            owed.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(()), "{change}"));
            assert_eq!(disk.verifier(), before, "{change}");
            std::fs::read_dir(dir.path()).unwrap().for_each(|f| std::fs::remove_file(f.unwrap().path()).unwrap());
        }
        unsaved(b"a");
        disk.rmdir(&me(), &root, b"a").unwrap_err();
        assert_ne!(disk.verifier(), before, "it is there");
    }
}
