//! Taking leave of an object that loses a name.
//!
//! On most disks what is open when it loses its last name is without one from then on, and an open descriptor tells
//! whether that has happened. Where it would go on under another name ([`FsCaps::silly_renames`](crate::local::inode::fs_caps::FsCaps)), and its
//! directory could not be removed for that, nothing is kept open of it: as knfsd does (EXPORT_OP_CLOSE_BEFORE_UNLINK).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use remora_wire::nfs3::FileType;
use rustix::io::Errno;

use crate::local::Disk;
use crate::local::LocalDisk;
use crate::local::handles::file_id::InodeKey;
use crate::local::handles::resolve::{OpenDir, OpenObject};
use crate::local::inode::stat;
use crate::local::listing::open_listings::OpenListings;
use crate::local::sys::syscalls::fdatasync;

/// What was written to a file and could not be saved. Whoever wrote it hears of that by the verifier when this is
/// dropped, unless the file is gone by then and there is nothing to write again.
struct LostWrites {
    disk: Arc<Disk>,
    why: Errno,
    is_missed: bool,
}

impl LostWrites {
    /// Nobody need be told.
    fn forget(mut self) {
        self.is_missed = false;
    }
}

impl Drop for LostWrites {
    fn drop(&mut self) {
        if self.is_missed {
            self.disk.lost(self.why);
        }
    }
}

/// An object that is to lose a name.
pub(crate) struct UnlinkTarget {
    key: InodeKey,
    kind: FileType,
    /// Open to name it, unless it must not be.
    fd: Option<Arc<OwnedFd>>,
    /// What could not be saved of it.
    lost_writes: Option<LostWrites>,
}

impl UnlinkTarget {
    /// What is known of it stays open.
    pub(crate) fn open(object: OpenObject) -> UnlinkTarget {
        UnlinkTarget { key: object.key, kind: object.attr.kind, fd: Some(object.fd), lost_writes: None }
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
    fn close_listings(&self, object: &OpenObject) {
        if object.attr.kind == FileType::Directory {
            self.listings.iter().for_each(|listings| listings.close(object.key));
        }
    }

    /// Closes what somebody else removed; whether there was any that may give back room.
    pub(crate) fn close_removed(&self) -> bool {
        self.listings.iter().for_each(OpenListings::close_removed);
        self.dirs.close_removed() | self.files.close_removed()
    }
}

impl LocalDisk {
    /// `object` is about to lose a name.
    pub(crate) fn prepare_unlink(&self, object: OpenObject) -> UnlinkTarget {
        self.disk.close_listings(&object);
        if !self.disk.caps.silly_renames {
            return UnlinkTarget::open(object);
        }
        let OpenObject { fd, key, attr, .. } = object;
        // It may live on, under another name or because it cannot be removed: what was written to it must not be lost
        // without anybody being told.
        let mut lost_writes = self.flush_before_unlink(key);
        // It does live on: who asks next must know.
        drop(lost_writes.take_if(|_| stat::fresh(&fd).is_ok_and(|now| now.attr.nlink > 1)));
        drop(fd);
        self.disk.files.close(key);
        self.disk.dirs.close(key);
        UnlinkTarget { key, kind: attr.kind, fd: None, lost_writes }
    }

    /// Flushes a file that is about to lose a name, and may be gone then.
    fn flush_before_unlink(&self, key: InodeKey) -> Option<LostWrites> {
        let dirty = self.disk.files.dirty.begin_flush(key);
        let done = dirty.descriptors().try_for_each(|fd| {
            let _alone = self.disk.alone(fd);
            fdatasync(fd)
        });
        self.disk.files.dirty.end_flush(dirty);
        done.err().map(|why| LostWrites { disk: self.disk.clone(), why, is_missed: true })
    }

    /// `name` in `dir` no longer leads to it.
    pub(crate) fn finish_unlink(&self, dir: &OpenDir, name: &[u8], target: UnlinkTarget) {
        if !target.is_gone() {
            // Where that cannot be told a search will, if anybody asks for it.
            self.paths().forget_name(target.key, dir.key, name);
            if target.fd.is_none() {
                self.disk.files.close(target.key);
            }
            // It had one name, and no other is known.
            if self.paths().place(target.key).is_none() {
                target.lost_writes.into_iter().for_each(LostWrites::forget);
            }
            return;
        }
        let UnlinkTarget { key, fd, .. } = target;
        self.paths().removed(key);
        self.disk.files.gone(key);
        self.disk.dirs.close(key);
        if let Some(fd) = fd {
            self.hold_inode(key, fd);
        }
    }

    /// Takes leave of an object that has lost its last name.
    pub(crate) fn hold_inode(&self, key: InodeKey, fd: Arc<OwnedFd>) {
        self.disk.with_inode_reuse(|guard| guard.hold(key, fd));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use remora_wire::nfs3::{CreateHow, SetAttr, Stable, Status};
    use rustix::fs::AtFlags;

    use crate::local::LocalDisk;
    use crate::local::Options;
    use crate::local::fd_cache::open_files::OpenMode;
    use crate::local::handles::file_id;
    use crate::local::inode::fs_caps::FsCaps;
    use crate::local::sys::syscalls::{lose, open_at_removals, unlinkat};
    use crate::local::tests::flush_failure::me;
    use crate::{FileId, Ledger, Vfs};

    fn disk(silly_renames: bool) -> (tempfile::TempDir, LocalDisk) {
        let dir = tempfile::tempdir().unwrap();
        let kind = |root: &_, device| FsCaps { silly_renames, ..FsCaps::of(root, device) };
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
            let open_dir_of = disk.mkdir(&me(), &root, b"open_dir_of", &SetAttr::NONE).unwrap().id;
            disk.lookup(&me(), &open_dir_of, b"none").unwrap_err();
            let open = open_at_removals(|| {
                disk.remove(&me(), &root, b"removed").unwrap();
                disk.rename(&me(), (&root, b"another"), (&root, b"forgone")).unwrap();
                disk.rmdir(&me(), &root, b"open_dir_of").unwrap();
            });
            assert_eq!(open.len(), 3);
            assert!(open.iter().all(|open| (*open == 0) == hides), "{open:?}, hides: {hides}");
        }
    }

    #[test]
    fn who_asks_for_room_waits_for_a_look_at_each_file_only_where_that_gives_back_some() {
        for hides in [false, true] {
            let (dir, disk) = disk(hides);
            let key = file_id::decode(&file(&disk, b"a")).unwrap().0;
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
        let (before, key) = (disk.verifier(), file_id::decode(&id).unwrap().0);
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
            let root = disk.open_dir_of(&disk.root()).unwrap();
            let object = disk.open_child(&root, b"a").unwrap();
            let link = || std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
            if beside == "before" {
                link();
            }
            let target = disk.prepare_unlink(object);
            if beside == "after" {
                link();
            }
            unlinkat(&root.fd, b"a", AtFlags::empty()).unwrap();
            disk.finish_unlink(&root, b"a", target);
            assert_eq!(disk.getattr(&id).map(|attr| attr.nlink), Ok(1), "{beside} it was looked at");
        }
    }

    #[test]
    fn what_was_opened_to_read_while_it_was_removed_is_closed_soon() {
        let (_dir, disk) = disk(true);
        let id = file(&disk, b"a");
        let (object, key) = (disk.resolve(&id).unwrap(), file_id::decode(&id).unwrap().0);
        disk.remove(&me(), &disk.root(), b"a").unwrap();
        disk.data_of(&me(), &object, OpenMode::Read).unwrap();
        disk.close_idle(Duration::from_secs(3600));
        assert!(disk.disk.files.held(key).is_some(), "it was used just now");
        disk.close_idle(Duration::ZERO);
        assert!(disk.disk.files.held(key).is_none());
    }

    #[test]
    fn what_is_lost_with_its_file_is_told_to_nobody_unless_the_file_stays() {
        let (dir, disk) = disk(true);
        let root = disk.root();
        let lost_writes = |name: &[u8]| {
            let id = file(&disk, name);
            lose(disk.disk.files.held(file_id::decode(&id).unwrap().0).unwrap());
        };
        let before = disk.verifier();
        for change in ["REMOVE", "RENAME"] {
            lost_writes(b"a");
            file(&disk, b"b");
            let ledger = Arc::<Ledger>::default();
            let view = disk.deferring(&ledger).unwrap();
            match change {
                "REMOVE" => drop(view.remove(&me(), &root, b"a").unwrap()),
                _ => drop(view.rename(&me(), (&root, b"b"), (&root, b"a")).unwrap()),
            }
            let dirty = ledger.take();
            assert!(!dirty.is_empty());
            dirty.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(()), "{change}"));
            assert_eq!(disk.verifier(), before, "{change}");
            std::fs::read_dir(dir.path()).unwrap().for_each(|f| std::fs::remove_file(f.unwrap().path()).unwrap());
        }
        lost_writes(b"a");
        disk.rmdir(&me(), &root, b"a").unwrap_err();
        assert_ne!(disk.verifier(), before, "it is there");
    }
}
