//! Stable storage, and the verifier that tells when it failed.

use std::collections::BTreeMap;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use remora_wire::nfs3::{FileType, Stable, Status};
use rustix::io::Errno;

use crate::Result;
use crate::flush::{Flush, FlushKey, Flushing, Ledger};
use crate::local::Disk;
use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_files::OpenFile;
use crate::local::handles::file_id::{InodeKey, PathHint};
use crate::local::handles::resolve::{OpenDir, OpenObject};
use crate::local::inode::fs_caps::FsCaps;
use crate::local::sync::dirty_files::DirtySet;
use crate::local::sys::disk_failure::DiskFailure;
use crate::local::sys::errno;
use crate::local::sys::syscalls::{fdatasync, fsync, syncfs};

/// So many flushes of single files and directories take about as long as one of the whole file system, which takes
/// with it whatever else is to be written there.
const APART_MAX: usize = 2;

/// The depth of a flush of the whole file system.
const EVERYTHING: u8 = 3;

/// Flushes are for somebody else to do.
pub(crate) struct Deferral {
    ledger: Arc<Ledger>,
    /// The verifier before the change.
    since: u64,
}

/// A flush of something on the disk.
struct LocalFlush {
    disk: Arc<Disk>,
    key: InodeKey,
    what: FlushTarget,
    /// The verifier before the change.
    since: u64,
}

enum FlushTarget {
    /// A file that was written to, as thoroughly as this. With `closes` it is closed when
    /// nothing is left to flush.
    Data { data: OpenFile, stable: Stable, closes: bool },
    /// Attributes, or a directory's names.
    OpenObject(Arc<OwnedFd>),
    /// The names in a directory and something new in it, or the attributes of a file: by
    /// themselves if little else waits, or else with all of the file system.
    Names(Arc<OwnedFd>, Option<Arc<OwnedFd>>),
    /// All of the file system.
    Everything,
}

impl LocalDisk {
    /// A view that notes in `ledger` what is to be flushed.
    pub(crate) fn deferral(&self, ledger: &Arc<Ledger>) -> LocalDisk {
        let since = self.disk.verifier.load(Ordering::Acquire);
        LocalDisk { disk: self.disk.clone(), deferral: Some(Deferral { ledger: ledger.clone(), since }) }
    }

    /// FlushTarget [`Vfs::verifier`](crate::Vfs::verifier) answers now.
    pub(crate) fn current_verifier(&self) -> [u8; 8] {
        self.disk.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    /// Makes an open file as stable as `stable` asks.
    pub(crate) fn sync_data(&self, key: InodeKey, data: OpenFile, stable: Stable, closes: bool) -> Result<()> {
        match stable {
            Stable::Unstable => Ok(()),
            Stable::DataSync | Stable::FileSync => self.sync(key, FlushTarget::Data { data, stable, closes }),
        }
    }

    /// Makes an object's attributes stable.
    pub(crate) fn sync_object(&self, object: &OpenObject) -> Result<()> {
        let own = match object.attr.kind {
            FileType::Directory => return self.sync_dir(&object.open_dir_of()),
            FileType::Regular => self.open_for_sync(object).map(Arc::new),
            _ => None,
        };
        match own {
            Some(own) => self.sync_shared(object.key, Some(own)),
            None => self.sync_unopenable(|| self.names_with(object.key)),
        }
    }

    /// Makes what was made in `dir` stable, and its name. A regular file is open for its data.
    /// `at_once`: it was made in one step.
    pub(crate) fn sync_made(&self, dir: &OpenDir, made: &OpenObject, at_once: bool) -> Result<()> {
        let names = self.open_to_sync(dir);
        if at_once && self.is_one_step(dir, made) {
            return self.sync_shared(dir.key, names);
        }
        let own = match made.attr.kind {
            FileType::Regular => Some(made.fd.clone()),
            FileType::Directory => made.open_dir_of().open_dir().ok().map(Arc::new),
            _ => None,
        };
        match (own, names) {
            (Some(own), Some(names)) if self.shares_everything() => {
                self.sync(dir.key, FlushTarget::Names(names, Some(own)))
            }
            (Some(own), names) => {
                self.sync_fd(made.key, Some(own))?;
                self.sync_shared(dir.key, names)
            }
            (None, names) => self.sync_unopenable(|| Some((dir.key, names?))),
        }
    }

    /// Whether a journal takes what is made at once in `dir` syncfs_policy with its name, all of it.
    fn is_one_step(&self, dir: &OpenDir, made: &OpenObject) -> bool {
        let FsCaps { has_journal, acl_after_create, .. } = self.disk.caps;
        let may_have_acl = made.attr.kind != FileType::SymLink;
        has_journal && !(acl_after_create && may_have_acl && self.hands_down_acl(dir))
    }

    /// Makes an object stable that has got one more name, in `dir`.
    pub(crate) fn sync_linked(&self, dir: &OpenDir, object: &OpenObject) -> Result<()> {
        match object.attr.kind {
            FileType::Regular => {
                self.sync_object(object)?;
                self.sync_dir(dir)
            }
            // Its number of names goes with the name.
            _ if self.disk.caps.has_journal => self.sync_dir(dir),
            _ => self.sync_unopenable(|| Some((dir.key, self.open_to_sync(dir)?))),
        }
    }

    /// Makes a directory's names stable.
    pub(crate) fn sync_dir(&self, dir: &OpenDir) -> Result<()> {
        self.sync_shared(dir.key, self.open_to_sync(dir))
    }

    /// Makes names or attributes stable, with others' if they wait syncfs_policy.
    fn sync_shared(&self, key: InodeKey, fd: Option<Arc<OwnedFd>>) -> Result<()> {
        match fd {
            Some(fd) if self.shares_everything() => self.sync(key, FlushTarget::Names(fd, None)),
            fd => self.sync_fd(key, fd),
        }
    }

    pub(crate) fn open_to_sync(&self, dir: &OpenDir) -> Option<Arc<OwnedFd>> {
        self.disk.dirs.syncable(dir.key, || {
            thread_creds::restore();
            dir.open_dir().ok()
        })
    }

    /// Whether changes of names that wait syncfs_policy are flushed with everything else.
    fn shares_everything(&self) -> bool {
        let FsCaps { has_journal, syncfs_is_complete, .. } = self.disk.caps;
        !has_journal && syncfs_is_complete && self.deferral.is_some()
    }

    fn sync_fd(&self, key: InodeKey, fd: Option<Arc<OwnedFd>>) -> Result<()> {
        match fd {
            Some(fd) => self.sync(key, FlushTarget::OpenObject(fd)),
            None => self.sync_unopenable(|| None),
        }
    }

    /// FlushTarget cannot be opened cannot be synced by itself, as symbolic links, pipes and devices: it
    /// goes with everything else, its name too. Where that does not take everything the directory that it is in
    /// is all that can be asked for beside.
    fn sync_unopenable(&self, names: impl FnOnce() -> Option<(InodeKey, Arc<OwnedFd>)>) -> Result<()> {
        if !self.disk.caps.syncfs_is_complete
            && let Some((dir, names)) = names()
        {
            self.sync(dir, FlushTarget::OpenObject(names))?;
        }
        self.sync(self.disk.root_key, FlushTarget::Everything)
    }

    /// The directory in which `key` was last seen.
    fn names_with(&self, key: InodeKey) -> Option<(InodeKey, Arc<OwnedFd>)> {
        let (dir, _) = self.paths().place(key)?;
        let fd = self.open_path(dir).ok()?.fd;
        Some((dir, self.open_to_sync(&OpenDir { fd, key: dir, hint: PathHint::default() })?))
    }

    fn sync(&self, key: InodeKey, what: FlushTarget) -> Result<()> {
        let since = self
            .deferral
            .as_ref()
            .map_or_else(|| self.disk.verifier.load(Ordering::Acquire), |deferral| deferral.since);
        let flush = LocalFlush { disk: self.disk.clone(), key, what, since };
        match &self.deferral {
            Some(deferral) => {
                deferral.ledger.note(Flush::new(flush));
                Ok(())
            }
            None => flush.run(&[]),
        }
    }
}

impl LocalFlush {
    /// FlushTarget this flush and `others` of names are of, each once; what was made comes before its name. `None`: some are of
    /// something else.
    fn apart<'a>(&'a self, others: &[&'a Flush]) -> Option<Vec<&'a OwnedFd>> {
        let (mut made, mut named) = (Vec::new(), BTreeMap::new());
        for flush in iter::once(Some(self)).chain(others.iter().map(|other| other.flushing())) {
            let LocalFlush { key, what: FlushTarget::Names(names, new), .. } = flush? else { return None };
            made.extend(new.as_deref());
            named.insert(*key, &**names);
        }
        made.extend(named.into_values());
        Some(made)
    }

    /// Whether so many are better flushed each by itself.
    fn is_better_apart(&self, objects: usize) -> bool {
        objects <= APART_MAX || !self.disk.syncfs_policy.is_worthwhile()
    }
}

impl Flushing for LocalFlush {
    fn key(&self) -> FlushKey {
        let disk = Arc::as_ptr(&self.disk) as usize as u64;
        let object = u128::from(self.key.ino) << 64 | u128::from(self.key.birth_ns);
        match &self.what {
            FlushTarget::Data { stable: Stable::DataSync, .. } => FlushKey { disk, object, depth: 0 },
            // Whichever way it was opened: the whole object is what is flushed.
            FlushTarget::Data { .. } | FlushTarget::OpenObject(_) => FlushKey { disk, object, depth: 1 },
            FlushTarget::Names(..) => FlushKey { disk, object: 0, depth: 2 },
            FlushTarget::Everything => FlushKey { disk, object: 0, depth: EVERYTHING },
        }
    }

    /// Names are many small changes; data mostly are as much work as their flush.
    fn is_dear(&self) -> bool {
        !matches!(self.what, FlushTarget::Data { .. })
    }

    fn run(&self, others: &[&Flush]) -> Result<()> {
        match &self.what {
            FlushTarget::Data { data, stable, closes } => {
                let dirty = self.disk.files.dirty.begin_flush(self.key);
                let holders = 1 + others.len() + dirty.holders(&data.fd);
                let idle = closes.then(|| self.disk.files.idle(self.key, data, holders)).flatten();
                let flush = |fd: &OwnedFd| match stable {
                    Stable::DataSync => fdatasync(fd),
                    Stable::FileSync | Stable::Unstable => fsync(fd),
                };
                if dirty.is_empty() { self.disk.synced(&data.fd, flush) } else { self.disk.flush_dirty(dirty, flush) }?;
                if let Some(turn) = idle {
                    self.disk.files.close_unless_taken(self.key, data, turn);
                }
                Ok(())
            }
            // OpenFile may wait for this, too: see `key`.
            FlushTarget::OpenObject(fd) => match self.disk.files.dirty.begin_flush(self.key) {
                dirty if dirty.is_empty() => self.disk.sync_fully(fd),
                dirty => self.disk.flush_dirty(dirty, |fd| fsync(fd)),
            },
            FlushTarget::Names(..) => match self.apart(others).filter(|apart| self.is_better_apart(apart.len())) {
                Some(apart) => self.disk.sync_each(apart),
                None => self.disk.syncfs_policy.time(|| self.disk.sync_everything()),
            },
            FlushTarget::Everything => self.disk.sync_everything(),
        }
    }

    fn verdict(&self) -> Result<()> {
        if self.disk.verifier.load(Ordering::Acquire) == self.since { Ok(()) } else { Err(Status::Io) }
    }
}

impl Disk {
    /// Flushes a file that too many others owe beside: whoever has written to it hears of a failure by the verifier.
    pub(crate) fn flush_overdue(&self, dirty: DirtySet) {
        let _ = self.flush_dirty(dirty, |fd| fdatasync(fd));
    }

    /// Flushes what nobody has written to for as long as `idle`, nor committed; whether there was any. Whoever did
    /// write to it hears of a failure as above.
    pub(crate) fn flush_idle(&self, idle: Duration) -> bool {
        let mut some = false;
        while let Some(dirty) = self.files.dirty.begin_idle_flush(idle) {
            self.flush_overdue(dirty);
            some = true;
        }
        some
    }

    /// Flushes a file by the descriptors that are told if some of what it owes was lost.
    fn flush_dirty(&self, dirty: DirtySet, flush: impl Fn(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let done = dirty.descriptors().try_for_each(|fd| self.synced(fd, &flush));
        self.files.dirty.end_flush(dirty);
        done
    }

    fn sync_fully(&self, fd: &OwnedFd) -> Result<()> {
        self.sync_each([fd])
    }

    /// Flushes these one after the other. With the first that cannot be synced by itself goes everything else.
    fn sync_each<'a>(&self, fds: impl IntoIterator<Item = &'a OwnedFd>) -> Result<()> {
        for fd in fds {
            if !self.sync_by_itself(fd)? {
                return self.sync_everything();
            }
        }
        Ok(())
    }

    /// Whether that is possible.
    fn sync_by_itself(&self, fd: &OwnedFd) -> Result<bool> {
        let mut possible = true;
        self.synced(fd, |fd| match fsync(fd) {
            Err(Errno::INVAL) => {
                possible = false;
                Ok(())
            }
            done => done,
        })?;
        Ok(possible)
    }

    /// Without a journal syncfs(2) is not enough on ext4: it sends the device's flush when the
    /// last metadata is still under way, which may then lie in the device's cache. An fsync(2)
    /// sends another, even if there is nothing left to write.
    fn sync_everything(&self) -> Result<()> {
        self.synced(&self.root, |root| {
            syncfs(root)?;
            if self.caps.has_journal {
                return Ok(());
            }
            match fsync(root) {
                // Nothing more can be asked of it.
                Err(Errno::INVAL) => Ok(()),
                flushed => flushed,
            }
        })
    }

    /// Held by whoever flushes by this descriptor.
    pub(crate) fn alone(&self, fd: &OwnedFd) -> Vec<MutexGuard<'_, ()>> {
        self.flush_locks.lock(&[InodeKey { ino: fd.as_raw_fd() as u64, birth_ns: 0 }])
    }

    /// Something that was written may be lost.
    pub(crate) fn lost(&self, why: Errno) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
        self.failure_hook.tell(DiskFailure::Flush(why.into()));
    }

    /// A failed flush may have lost what was written since the last good one: clients must send
    /// their uncommitted data again. The kernel reports it once for each open file, so flushes
    /// of one are done one at a time: who flushes it next, and hears of nothing, sees that the
    /// verifier has changed.
    fn synced(&self, fd: &OwnedFd, flush: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let _alone = self.alone(fd);
        flush(fd).map_err(|why| {
            self.lost(why);
            match errno::status(why) {
                // Some file systems find room for what was written only when it is flushed.
                full @ (Status::NoSpc | Status::DQuot) => full,
                _ => Status::Io,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use remora_wire::nfs3::{CreateHow, SetAttr};
    use rustix::fs::{XattrFlags, setxattr};
    use rustix::io::Errno;

    use super::{EVERYTHING, LocalFlush};
    use crate::local::FsCaps;
    use crate::local::LocalDisk;
    use crate::local::Options;
    use crate::local::creds::caller_creds;
    use crate::local::handles::file_id;
    use crate::local::tests::flush_failure::{ACL, disk, me};
    use crate::{FileId, Flush, Ledger, NodeKind, Vfs};

    #[test]
    fn names_and_attributes_share_a_flush_unless_a_journal_makes_their_own_cheap() {
        let (_dir, disk, [a, b]) = disk();
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        for file in [&a, &b] {
            view.setattr(&me(), file, &SetAttr { mode: Some(0o600), ..SetAttr::NONE }, None).unwrap();
        }
        view.remove(&me(), &disk.root(), b"b").unwrap();
        let dirty = ledger.take();
        let keys: Vec<_> = dirty.iter().map(Flush::key).collect();
        let shared = !disk.disk.caps.has_journal;
        assert_eq!([keys[0] == keys[1], keys[1] == keys[2]], [shared; 2], "{keys:?}");
        let [first, others @ ..] = &dirty[..] else { panic!("{dirty:?}") };
        for others in [&[][..], others] {
            let done = first.run(&others.iter().collect::<Vec<_>>());
            assert_eq!(first.verdict(done), Ok(()));
        }
    }

    /// A file system without a journal, whatever this one is.
    fn without_journal(root: &OwnedFd, device: u64) -> FsCaps {
        FsCaps { has_journal: false, syncfs_is_complete: true, ..FsCaps::of(root, device) }
    }

    #[test]
    fn few_names_that_wait_together_are_not_flushed_with_all_that_others_have_left_to_write() {
        let top = tempfile::tempdir().unwrap();
        let disk = LocalDisk::open_as(top.path(), Options::new([1; 8]), without_journal).unwrap();
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        let [a, b] = [b"a", b"b"].map(|name| disk.mkdir(&me(), &disk.root(), name, &SetAttr::NONE).unwrap().id);
        let remove = |dir: &FileId, name: &str| {
            view.remove(&me(), dir, name.as_bytes()).unwrap();
        };
        let make = |dir: &FileId, name: &str| {
            view.create(&me(), dir, name.as_bytes(), &CreateHow::Guarded(SetAttr::NONE)).unwrap();
        };
        let apart = || {
            let dirty = ledger.take();
            let [first, others @ ..] = &dirty[..] else { panic!("{dirty:?}") };
            let others: Vec<&Flush> = others.iter().collect();
            let flushing: &LocalFlush = first.flushing().unwrap();
            let objects = flushing.apart(&others).unwrap().len();
            let apart = flushing.is_better_apart(objects);
            // The other way it may take long, and be avoided then.
            if apart {
                assert_eq!(first.verdict(first.run(&others)), Ok(()));
            }
            (objects, apart)
        };
        let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
        for name in &names {
            make(&a, name);
            assert_eq!(apart(), (2, true), "a file and its name");
        }
        names[..4].iter().for_each(|name| remove(&a, name));
        assert_eq!(apart(), (1, true), "names of one directory");
        remove(&a, "4");
        make(&a, "new");
        remove(&a, "5");
        assert_eq!(apart(), (2, true), "one file, and names of its directory");
        for name in &names[6..] {
            view.rename(&me(), (&a, name.as_bytes()), (&b, name.as_bytes())).unwrap();
        }
        assert_eq!(apart(), (2, true), "names of two directories");
        make(&a, "one");
        make(&a, "two");
        assert_eq!(apart(), (3, false), "two files");
        make(&a, "three");
        remove(&b, "6");
        assert_eq!(apart(), (3, false), "a file, its name and one elsewhere");
    }

    #[test]
    fn what_a_umask_took_and_is_given_back_is_a_second_step() {
        if caller_creds::umask() & 0o022 == 0 {
            return skip::skipped(&skip::this_test(), "needs a umask");
        }
        let dir = tempfile::tempdir().unwrap();
        let kind = FsCaps {
            has_journal: true,
            syncfs_is_complete: true,
            acl_after_create: false,
            silly_renames: false,
            birth_grain: Duration::ZERO,
            volatile_cookies: false,
            local_permissions: true,
        };
        let disk = LocalDisk::open_as(dir.path(), Options::new([1; 8]), |_, _| kind).unwrap();
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        for (mode, flushes) in [(0o600, 1), (0o666, 2)] {
            let how = CreateHow::Guarded(SetAttr { mode: Some(mode), ..SetAttr::NONE });
            let made = view.create(&me(), &disk.root(), format!("{mode:o}").as_bytes(), &how).unwrap();
            assert_eq!((made.attr.mode, ledger.take().len()), (mode, flushes), "{mode:o}");
        }
    }

    #[test]
    fn an_acl_that_is_handed_down_behind_the_making_is_a_second_step() {
        for acl_after_create in [false, true] {
            let top = tempfile::tempdir().unwrap();
            let kind = FsCaps {
                has_journal: true,
                syncfs_is_complete: true,
                acl_after_create,
                silly_renames: false,
                volatile_cookies: false,
                local_permissions: true,
                birth_grain: Duration::ZERO,
            };
            let disk = LocalDisk::open_as(top.path(), Options::new([1; 8]), |_, _| kind).unwrap();
            let ledger = Arc::<Ledger>::default();
            let view = disk.deferring(&ledger).unwrap();
            let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), ..SetAttr::NONE });
            let dir = disk.root();
            view.create(&me(), &dir, b"without", &how).unwrap();
            assert_eq!(ledger.take().len(), 1, "no ACL");
            let set = setxattr(top.path(), c"system.posix_acl_default", &ACL, XattrFlags::empty());
            if set == Err(Errno::OPNOTSUPP) {
                return skip::skipped(&skip::this_test(), "the file system has no ACLs");
            }
            let flushes = if acl_after_create { 2 } else { 1 };
            view.create(&me(), &dir, b"file", &how).unwrap();
            assert_eq!(ledger.take().len(), flushes, "a file");
            view.mkdir(&me(), &dir, b"dir", &SetAttr::NONE).unwrap();
            assert_eq!(ledger.take().len(), flushes, "a directory");
            view.symlink(&me(), &dir, b"link", &SetAttr::NONE, b"file").unwrap();
            assert_eq!(ledger.take().len(), 1, "a link has no ACL");
        }
    }

    /// A directory's own sync writes the names in it, not what they lead to.
    #[test]
    fn what_cannot_be_opened_is_synced_with_everything() {
        let (_dir, disk, _) = disk();
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        let root = disk.root();
        let dirty = || {
            let dirty = ledger.take();
            dirty.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(())));
            dirty.iter().any(|flush| flush.key().depth == EVERYTHING)
        };
        let link = view.symlink(&me(), &root, b"link", &SetAttr::NONE, b"a").unwrap();
        let at_once = disk.disk.caps.has_journal;
        assert_eq!(dirty(), !at_once, "a symbolic link");
        view.mknod(&me(), &root, b"pipe", &NodeKind::Fifo(SetAttr::NONE)).unwrap();
        assert_eq!(dirty(), !at_once, "a pipe");
        view.link(&me(), &link.id, &root, b"another").unwrap();
        assert_eq!(dirty(), !at_once, "its number of names");
        view.remove(&me(), &root, b"another").unwrap();
        assert!(!dirty(), "a name that is gone leads nowhere");
    }

    /// In each of these something is left that no flush of everything would bring to the disk.
    #[test]
    fn where_a_flush_of_all_leaves_names_out_each_directory_is_flushed_by_itself() {
        let top = tempfile::tempdir().unwrap();
        let kind =
            |root: &_, device| FsCaps { has_journal: false, syncfs_is_complete: false, ..FsCaps::of(root, device) };
        let disk = LocalDisk::open_as(top.path(), Options::new([1; 8]), kind).unwrap();
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::NONE };
        let dir = disk.mkdir(&me(), &disk.root(), b"dir", &attr).unwrap().id;
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        let object = |id: &FileId| {
            let key = file_id::decode(id).unwrap().0;
            u128::from(key.ino) << 64 | u128::from(key.birth_ns)
        };
        let flushed = || -> Vec<u128> {
            let dirty = ledger.take();
            let run = |flush: &Flush| flush.verdict(flush.run(&[]));
            dirty.iter().for_each(|flush| assert_eq!(run(flush), Ok(())));
            dirty.iter().map(|flush| flush.key().object).collect()
        };
        let make = |name: &[u8]| view.create(&me(), &dir, name, &CreateHow::Guarded(attr.clone())).unwrap().id;
        let (a, b) = (make(b"a"), make(b"b"));
        assert_eq!(flushed(), [object(&a), object(&dir), object(&b), object(&dir)]);
        view.remove(&me(), &dir, b"b").unwrap();
        view.setattr(&me(), &a, &attr, None).unwrap();
        assert_eq!(flushed(), [object(&dir), object(&a)]);

        const ALL: u128 = 0;
        let link = view.symlink(&me(), &dir, b"link", &SetAttr::NONE, b"a").unwrap().id;
        assert_eq!(flushed(), [object(&dir), ALL], "a symbolic link");
        let pipe = view.mknod(&me(), &dir, b"pipe", &NodeKind::Fifo(attr.clone())).unwrap().id;
        assert_eq!(flushed(), [object(&dir), ALL], "a pipe");
        view.setattr(&me(), &pipe, &attr, None).unwrap();
        assert_eq!(flushed(), [object(&dir), ALL], "its mode");
        view.link(&me(), &link, &disk.root(), b"another").unwrap();
        assert_eq!(flushed(), [object(&disk.root()), ALL], "its new name");
    }
}
