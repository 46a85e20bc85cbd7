//! Stable storage, and the verifier that tells when it failed.

use std::collections::BTreeMap;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use remora_wire::nfs3::{FileType, Stable, Status};
use rustix::io::Errno;

use super::acting;
use super::data::Data;
use super::errno;
use super::failure::Failure;
use super::ids::{Hint, Key};
use super::kind::Kind;
use super::owed::Payment;
use super::resolve::{Folder, Object};
use super::syscalls::{fdatasync, fsync, syncfs};
use super::{Disk, LocalDisk};
use crate::Result;
use crate::flush::{Flush, FlushKey, Flushing, Ledger};

/// So many flushes of single files and directories take about as long as one of the whole file system, which takes
/// with it whatever else is to be written there.
const APART_MAX: usize = 2;

/// The depth of a flush of the whole file system.
const EVERYTHING: u8 = 3;

/// Flushes are for somebody else to do.
pub(super) struct Later {
    ledger: Arc<Ledger>,
    /// The verifier before the change.
    since: u64,
}

/// A flush of something on the disk.
struct DiskFlush {
    disk: Arc<Disk>,
    key: Key,
    what: What,
    /// The verifier before the change.
    since: u64,
}

enum What {
    /// A file that was written to, as thoroughly as this. With `closes` it is closed when
    /// nothing is left to flush.
    Data { data: Data, stable: Stable, closes: bool },
    /// Attributes, or a directory's names.
    Object(Arc<OwnedFd>),
    /// The names in a directory and something new in it, or the attributes of a file: by
    /// themselves if little else waits, or else with all of the file system.
    Names(Arc<OwnedFd>, Option<Arc<OwnedFd>>),
    /// All of the file system.
    Everything,
}

impl LocalDisk {
    /// A view that notes in `ledger` what is to be flushed.
    pub(super) fn later(&self, ledger: &Arc<Ledger>) -> LocalDisk {
        let since = self.disk.verifier.load(Ordering::Acquire);
        LocalDisk { disk: self.disk.clone(), later: Some(Later { ledger: ledger.clone(), since }) }
    }

    /// What [`Vfs::verifier`](crate::Vfs::verifier) answers now.
    pub(super) fn current_verifier(&self) -> [u8; 8] {
        self.disk.verifier.load(Ordering::Acquire).to_be_bytes()
    }

    /// Makes an open file as stable as `stable` asks.
    pub(super) fn sync_data(&self, key: Key, data: Data, stable: Stable, closes: bool) -> Result<()> {
        match stable {
            Stable::Unstable => Ok(()),
            Stable::DataSync | Stable::FileSync => self.sync(key, What::Data { data, stable, closes }),
        }
    }

    /// Makes an object's attributes stable.
    pub(super) fn sync_object(&self, object: &Object) -> Result<()> {
        let own = match object.attr.kind {
            FileType::Directory => return self.sync_dir(&object.folder()),
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
    pub(super) fn sync_made(&self, dir: &Folder, made: &Object, at_once: bool) -> Result<()> {
        let names = self.open_to_sync(dir);
        if at_once && self.is_one_step(dir, made) {
            return self.sync_shared(dir.key, names);
        }
        let own = match made.attr.kind {
            FileType::Regular => Some(made.fd.clone()),
            FileType::Directory => made.folder().open_dir().ok().map(Arc::new),
            _ => None,
        };
        match (own, names) {
            (Some(own), Some(names)) if self.shares_everything() => self.sync(dir.key, What::Names(names, Some(own))),
            (Some(own), names) => {
                self.sync_fd(made.key, Some(own))?;
                self.sync_shared(dir.key, names)
            }
            (None, names) => self.sync_unopenable(|| Some((dir.key, names?))),
        }
    }

    /// Whether a journal takes what is made at once in `dir` together with its name, all of it.
    fn is_one_step(&self, dir: &Folder, made: &Object) -> bool {
        let Kind { has_journal, acl_apart, .. } = self.disk.kind;
        let may_have_acl = made.attr.kind != FileType::SymLink;
        has_journal && !(acl_apart && may_have_acl && self.hands_down_acl(dir))
    }

    /// Makes an object stable that has got one more name, in `dir`.
    pub(super) fn sync_linked(&self, dir: &Folder, object: &Object) -> Result<()> {
        match object.attr.kind {
            FileType::Regular => {
                self.sync_object(object)?;
                self.sync_dir(dir)
            }
            // Its number of names goes with the name.
            _ if self.disk.kind.has_journal => self.sync_dir(dir),
            _ => self.sync_unopenable(|| Some((dir.key, self.open_to_sync(dir)?))),
        }
    }

    /// Makes a directory's names stable.
    pub(super) fn sync_dir(&self, dir: &Folder) -> Result<()> {
        self.sync_shared(dir.key, self.open_to_sync(dir))
    }

    /// Makes names or attributes stable, with others' if they wait together.
    fn sync_shared(&self, key: Key, fd: Option<Arc<OwnedFd>>) -> Result<()> {
        match fd {
            Some(fd) if self.shares_everything() => self.sync(key, What::Names(fd, None)),
            fd => self.sync_fd(key, fd),
        }
    }

    pub(super) fn open_to_sync(&self, dir: &Folder) -> Option<Arc<OwnedFd>> {
        self.disk.dirs.syncable(dir.key, || {
            acting::own();
            dir.open_dir().ok()
        })
    }

    /// Whether changes of names that wait together are flushed with everything else.
    fn shares_everything(&self) -> bool {
        let Kind { has_journal, syncs_all, .. } = self.disk.kind;
        !has_journal && syncs_all && self.later.is_some()
    }

    fn sync_fd(&self, key: Key, fd: Option<Arc<OwnedFd>>) -> Result<()> {
        match fd {
            Some(fd) => self.sync(key, What::Object(fd)),
            None => self.sync_unopenable(|| None),
        }
    }

    /// What cannot be opened cannot be synced by itself, as symbolic links, pipes and devices: it
    /// goes with everything else, its name too. Where that does not take everything the directory that it is in
    /// is all that can be asked for beside.
    fn sync_unopenable(&self, names: impl FnOnce() -> Option<(Key, Arc<OwnedFd>)>) -> Result<()> {
        if !self.disk.kind.syncs_all
            && let Some((dir, names)) = names()
        {
            self.sync(dir, What::Object(names))?;
        }
        self.sync(self.disk.root_key, What::Everything)
    }

    /// The directory in which `key` was last seen.
    fn names_with(&self, key: Key) -> Option<(Key, Arc<OwnedFd>)> {
        let (dir, _) = self.table().place(key)?;
        let fd = self.way(dir).ok()?.fd;
        Some((dir, self.open_to_sync(&Folder { fd, key: dir, hint: Hint::default() })?))
    }

    fn sync(&self, key: Key, what: What) -> Result<()> {
        let since = self.later.as_ref().map_or_else(|| self.disk.verifier.load(Ordering::Acquire), |later| later.since);
        let flush = DiskFlush { disk: self.disk.clone(), key, what, since };
        match &self.later {
            Some(later) => {
                later.ledger.note(Flush::new(flush));
                Ok(())
            }
            None => flush.run(&[]),
        }
    }
}

impl DiskFlush {
    /// What this flush and `others` of names are of, each once; what was made comes before its name. `None`: some are of
    /// something else.
    fn apart<'a>(&'a self, others: &[&'a Flush]) -> Option<Vec<&'a OwnedFd>> {
        let (mut made, mut named) = (Vec::new(), BTreeMap::new());
        for flush in iter::once(Some(self)).chain(others.iter().map(|other| other.flushing())) {
            let DiskFlush { key, what: What::Names(names, new), .. } = flush? else { return None };
            made.extend(new.as_deref());
            named.insert(*key, &**names);
        }
        made.extend(named.into_values());
        Some(made)
    }

    /// Whether so many are better flushed each by itself.
    fn is_better_apart(&self, objects: usize) -> bool {
        objects <= APART_MAX || !self.disk.together.is_promising()
    }
}

impl Flushing for DiskFlush {
    fn key(&self) -> FlushKey {
        let disk = Arc::as_ptr(&self.disk) as usize as u64;
        let object = u128::from(self.key.ino) << 64 | u128::from(self.key.born_ns);
        match &self.what {
            What::Data { stable: Stable::DataSync, .. } => FlushKey { disk, object, depth: 0 },
            // Whichever way it was opened: the whole object is what is flushed.
            What::Data { .. } | What::Object(_) => FlushKey { disk, object, depth: 1 },
            What::Names(..) => FlushKey { disk, object: 0, depth: 2 },
            What::Everything => FlushKey { disk, object: 0, depth: EVERYTHING },
        }
    }

    /// Names are many small changes; data mostly are as much work as their flush.
    fn is_dear(&self) -> bool {
        !matches!(self.what, What::Data { .. })
    }

    fn run(&self, others: &[&Flush]) -> Result<()> {
        match &self.what {
            What::Data { data, stable, closes } => {
                let owed = self.disk.files.owed.begin(self.key);
                let holders = 1 + others.len() + owed.holders(&data.fd);
                let idle = closes.then(|| self.disk.files.idle(self.key, data, holders)).flatten();
                let flush = |fd: &OwnedFd| match stable {
                    Stable::DataSync => fdatasync(fd),
                    Stable::FileSync | Stable::Unstable => fsync(fd),
                };
                if owed.is_empty() { self.disk.synced(&data.fd, flush) } else { self.disk.pay(owed, flush) }?;
                if let Some(turn) = idle {
                    self.disk.files.close_unless_taken(self.key, data, turn);
                }
                Ok(())
            }
            // Data may wait for this, too: see `key`.
            What::Object(fd) => match self.disk.files.owed.begin(self.key) {
                owed if owed.is_empty() => self.disk.sync_fully(fd),
                owed => self.disk.pay(owed, |fd| fsync(fd)),
            },
            What::Names(..) => match self.apart(others).filter(|apart| self.is_better_apart(apart.len())) {
                Some(apart) => self.disk.sync_each(apart),
                None => self.disk.together.time(|| self.disk.sync_everything()),
            },
            What::Everything => self.disk.sync_everything(),
        }
    }

    fn verdict(&self) -> Result<()> {
        if self.disk.verifier.load(Ordering::Acquire) == self.since { Ok(()) } else { Err(Status::Io) }
    }
}

impl Disk {
    /// Flushes a file that too many others owe beside: whoever has written to it hears of a failure by the verifier.
    pub(super) fn pay_overdue(&self, owed: Payment) {
        let _ = self.pay(owed, |fd| fdatasync(fd));
    }

    /// Flushes what nobody has written to for as long as `idle`, nor committed; whether there was any. Whoever did
    /// write to it hears of a failure as above.
    pub(super) fn pay_idle(&self, idle: Duration) -> bool {
        let mut some = false;
        while let Some(owed) = self.files.owed.begin_idle(idle) {
            self.pay_overdue(owed);
            some = true;
        }
        some
    }

    /// Flushes a file by the descriptors that are told if some of what it owes was lost.
    fn pay(&self, owed: Payment, flush: impl Fn(&OwnedFd) -> rustix::io::Result<()>) -> Result<()> {
        let done = owed.descriptors().try_for_each(|fd| self.synced(fd, &flush));
        self.files.owed.end(owed);
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
            if self.kind.has_journal {
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
    pub(super) fn alone(&self, fd: &OwnedFd) -> Vec<MutexGuard<'_, ()>> {
        self.flushes.lock(&[Key { ino: fd.as_raw_fd() as u64, born_ns: 0 }])
    }

    /// Something that was written may be lost.
    pub(super) fn lost(&self, why: Errno) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
        self.on_failure.tell(Failure::Flush(why.into()));
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

    use super::super::flush_failure::{ACL, disk, me};
    use super::super::{LocalDisk, Options, identity, ids};
    use super::{DiskFlush, EVERYTHING, Kind};
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
        let owed = ledger.take();
        let keys: Vec<_> = owed.iter().map(Flush::key).collect();
        let shared = !disk.disk.kind.has_journal;
        assert_eq!([keys[0] == keys[1], keys[1] == keys[2]], [shared; 2], "{keys:?}");
        let [first, others @ ..] = &owed[..] else { panic!("{owed:?}") };
        for others in [&[][..], others] {
            let done = first.run(&others.iter().collect::<Vec<_>>());
            assert_eq!(first.verdict(done), Ok(()));
        }
    }

    /// A file system without a journal, whatever this one is.
    fn without_journal(root: &OwnedFd, device: u64) -> Kind {
        Kind { has_journal: false, syncs_all: true, ..Kind::of(root, device) }
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
            let owed = ledger.take();
            let [first, others @ ..] = &owed[..] else { panic!("{owed:?}") };
            let others: Vec<&Flush> = others.iter().collect();
            let flushing: &DiskFlush = first.flushing().unwrap();
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
        if identity::umask() & 0o022 == 0 {
            return skip::skipped(&skip::this_test(), "needs a umask");
        }
        let dir = tempfile::tempdir().unwrap();
        let kind = Kind {
            has_journal: true,
            syncs_all: true,
            acl_apart: false,
            hides_open: false,
            birth_grain: Duration::ZERO,
            lists_anew: false,
            modes_decide: true,
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
        for acl_apart in [false, true] {
            let top = tempfile::tempdir().unwrap();
            let kind = Kind {
                has_journal: true,
                syncs_all: true,
                acl_apart,
                hides_open: false,
                lists_anew: false,
                modes_decide: true,
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
            let flushes = if acl_apart { 2 } else { 1 };
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
        let owed = || {
            let owed = ledger.take();
            owed.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(())));
            owed.iter().any(|flush| flush.key().depth == EVERYTHING)
        };
        let link = view.symlink(&me(), &root, b"link", &SetAttr::NONE, b"a").unwrap();
        let at_once = disk.disk.kind.has_journal;
        assert_eq!(owed(), !at_once, "a symbolic link");
        view.mknod(&me(), &root, b"pipe", &NodeKind::Fifo(SetAttr::NONE)).unwrap();
        assert_eq!(owed(), !at_once, "a pipe");
        view.link(&me(), &link.id, &root, b"another").unwrap();
        assert_eq!(owed(), !at_once, "its number of names");
        view.remove(&me(), &root, b"another").unwrap();
        assert!(!owed(), "a name that is gone leads nowhere");
    }

    /// In each of these something is left that no flush of everything would bring to the disk.
    #[test]
    fn where_a_flush_of_all_leaves_names_out_each_directory_is_flushed_by_itself() {
        let top = tempfile::tempdir().unwrap();
        let kind = |root: &_, device| Kind { has_journal: false, syncs_all: false, ..Kind::of(root, device) };
        let disk = LocalDisk::open_as(top.path(), Options::new([1; 8]), kind).unwrap();
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::NONE };
        let dir = disk.mkdir(&me(), &disk.root(), b"dir", &attr).unwrap().id;
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        let object = |id: &FileId| {
            let key = ids::decode(id).unwrap().0;
            u128::from(key.ino) << 64 | u128::from(key.born_ns)
        };
        let flushed = || -> Vec<u128> {
            let owed = ledger.take();
            let run = |flush: &Flush| flush.verdict(flush.run(&[]));
            owed.iter().for_each(|flush| assert_eq!(run(flush), Ok(())));
            owed.iter().map(|flush| flush.key().object).collect()
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
