//! A directory of the local disk, on Linux.
//!
//! * **Ids** survive restarts and renames without privilege: inode, birth and
//!   a hint. File systems that do not tell an inode's birth cannot tell its lives apart; where their
//!   generation are of one mount only, so are the ids.
//! * **Bounds of the export**: one file system; of mount points inside it the directories below
//!   are seen, or if the process may not see those, names that cannot be entered. Names are single components, no symbolic link is followed, and every object is
//!   reached from the root with openat2(2)'s RESOLVE_BENEATH. A file that is moved out of the
//!   export by somebody else can be read for as long as it happens to be cached open, and a
//!   directory for as long as [`Options::revalidate_after`].
//! * **CallerCreds**: with [`Options::honour_credentials`] each call is done with its caller's
//!   user and groups, by the one thread that does it, and that may stay its caller until the next
//!   call if it is [`DedicatedThread`] to them. Without, all is done as the server's
//!   user, and what a caller may is what that user may.
//! * **Stability** is the kernel's: fdatasync(2) and fsync(2), on directories too.
//!
//! Needs /proc, openat2(2), and Linux 5.8 for the times of symbolic links.

mod creds;
mod fd_cache;
mod handles;
mod inode;
mod listing;
mod ops;
mod sync;
mod sys;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{
    Attr, CreateHow, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Status, Wcc,
};
use rustix::fs::{AtFlags, Mode, OFlags, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::{Cred, DirEnd, DirEntry, DirQuery, Features, FileId, Ledger, Made, OFFSET_MAX, Result, Vfs};
use creds::caller_creds::CallerCreds;
use creds::protected_paths::ProtectedPaths;
use creds::thread_creds;
use creds::thread_creds::keep_creds;
use fd_cache::open_dirs::DirCache;
use fd_cache::open_files;
use fd_cache::open_files::FileCache;
use handles::file_id;
use handles::file_id::{InodeKey, PathHint};
use handles::path_cache::PathCache;
use handles::resolve::OpenObject;
use handles::search_limit::SearchLimit;
use inode::fs_caps::FsCaps;
use inode::inode_generation::InodeGeneration;
use inode::inode_reuse::InodeReuseGuard;
use inode::overlay::Overlay;
use inode::pathconf::FsConventions;
use inode::{file_size_limit, stat};
use listing::open_listings::OpenListings;
use sync::dirty_files;
use sync::flush::Deferral;
use sync::syncfs_policy::SyncfsPolicy;
use sys::detached_mount;
use sys::errno::OrStatus;
use sys::inode_locks::InodeLocks;

use inode::inode_generation::HandleLifetime;
use sys::disk_failure::FailureHook;

pub use creds::thread_creds::DedicatedThread as Devoted;
pub use inode::inode_generation::HandleLifetime as HandlesEnd;
pub use sys::disk_failure::{DiskFailure as Failure, FailureHook as OnFailure};
pub use sys::fd_exhaustion::{FdExhaustion as Refused, fd_exhaustion as refused, note_fd_exhaustion as note_refused};

/// Most listings that stay open for their next page.
const LISTINGS_MAX: usize = 256;

/// How to export a directory.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first [`Vfs::verifier`]: different at every start, as random bytes or the time are.
    pub verifier: [u8; 8],
    /// Do each operation as its caller; the server must be root.
    pub honour_credentials: bool,
    /// Refuse every change with [`Status::RoFs`].
    pub read_only: bool,
    /// So many objects used last have their place remembered, and as many others at most (about 200 bytes each, and 100 more where a second name is
    /// known). Others are searched for.
    pub path_cache_max: usize,
    /// Files kept open for reading or writing; fewer if the process may not open as many.
    pub open_max: usize,
    /// Files that owe a flush and are kept open for that, whether they are among those or not; fewer likewise.
    /// Beyond that the one that has owed it for longest is flushed.
    pub dirty_files_max: usize,
    /// Directories kept open; fewer likewise.
    pub dirs_max: usize,
    /// How many exports this process has, this one included (range: from 1): what it may open is
    /// shared among them.
    pub exports: usize,
    /// How long a directory or a file kept open is taken to be where it was, and the file's mode and
    /// owner to be what they were. What somebody else moves out of the export can be reached for that long.
    pub revalidate_after: Duration,
    /// Directory entries looked at in one search for an object, before it is given up as stale: where
    /// its handle says that it was, and then as many everywhere. A second is enough for some two million.
    pub search_max: usize,
    /// Directories that nobody enters and files that nobody opens: the server's own keys. Those that are not there, or
    /// elsewhere, when the export is opened are not meant.
    pub closed: Vec<PathBuf>,
    /// Who hears of what the disk fails to do.
    pub on_failure: FailureHook,
}

impl Options {
    /// The usual ones: writable, everything done as the server's user.
    pub fn new(verifier: [u8; 8]) -> Options {
        Options {
            verifier,
            honour_credentials: false,
            read_only: false,
            path_cache_max: 1 << 18,
            open_max: 256,
            dirty_files_max: 4096,
            dirs_max: 256,
            exports: 1,
            revalidate_after: Duration::from_secs(1),
            search_max: 5_000_000,
            closed: Vec::new(),
            on_failure: FailureHook::default(),
        }
    }
}

/// See the [module](self).
pub struct LocalDisk {
    disk: Arc<Disk>,
    /// Where to note flush_locks instead of doing them.
    deferral: Option<Deferral>,
}

/// What a disk and its deferring views share.
struct Disk {
    root: Arc<OwnedFd>,
    /// Where the root was found, if it is open elsewhere: nobody is to unmount that meanwhile.
    _found: Option<OwnedFd>,
    root_key: InodeKey,
    root_id: FileId,
    fsid: u64,
    /// If it is an overlay.
    overlay: Option<Overlay>,
    /// If its inode generation do not stay their files'.
    generation: Option<InodeGeneration>,
    caps: FsCaps,
    syncfs_policy: SyncfsPolicy,
    creds: CallerCreds,
    /// This process's, which every file made is subject to.
    umask: u32,
    read_only: bool,
    /// What nobody gets at.
    protected: ProtectedPaths,
    /// See [`Vfs::file_max`], if it is known.
    file_max: Option<u64>,
    features: Features,
    conventions: FsConventions,
    search_entries: usize,
    search_limit: SearchLimit,
    paths: Mutex<PathCache>,
    files: FileCache,
    dirs: DirCache,
    /// Where cookies are places in a list that is made at each opening.
    listings: Option<OpenListings>,
    inode_reuse: Mutex<InodeReuseGuard>,
    op_locks: InodeLocks,
    /// By descriptor: see [`sync`].
    flush_locks: InodeLocks,
    /// Held by whoever changes a mode, innermost.
    mode_locks: InodeLocks,
    failure_hook: FailureHook,
    verifier: AtomicU64,
}

impl LocalDisk {
    /// Exports `dir`. Fails if it is not a directory, if /proc is missing, or if identities
    /// are to be honoured and cannot be.
    pub fn open(dir: &Path, options: Options) -> io::Result<LocalDisk> {
        LocalDisk::open_as(dir, options, |root, device| FsCaps::of(root, device))
    }

    /// The same for a disk that is what `caps` says.
    fn open_as(dir: &Path, options: Options, caps: impl FnOnce(&OwnedFd, u64) -> FsCaps) -> io::Result<LocalDisk> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = rustix::fs::open(dir, flags, Mode::empty())?;
        let generation = InodeGeneration::of(&found, &stat::of(&found)?, options.verifier);
        let (root, found) = match detached_mount::open(&found) {
            Ok(root) => (root, Some(found)),
            Err(_) => (found, None),
        };
        let mut stat = stat::of(&root)?;
        let overlay = Overlay::of(&root, &stat);
        if overlay.is_some() {
            stat.key = Overlay::root_key(&stat);
        }
        let root_id = file_id::encode(stat.key, &PathHint::default());
        let object = OpenObject { fd: Arc::new(root), key: stat.key, hint: PathHint::default(), attr: stat.attr };
        if stat::at(rustix::fs::CWD, object.proc_path().as_bytes()).is_err() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "/proc is not mounted"));
        }
        if matches!(handles::resolve::open_part(&object.fd, b"."), Err(Errno::NOSYS)) {
            let why = "openat2(2) is not available: it needs Linux 5.6, and a sandbox that allows it";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let caps = caps(&object.fd, object.attr.fsid);
        let protected = ProtectedPaths::find(&options.closed, dir, &object.fd)?;
        let conventions = FsConventions::of(&object.fd);
        let open_max = getrlimit(Resource::Nofile).maximum.map_or(usize::MAX, |max| max as usize);
        let share = open_max / options.exports.max(1);
        let volatile_cookies = caps.volatile_cookies || overlay.is_some();
        let dirs_share = if volatile_cookies { share / 64 } else { share / 32 };
        let disk = Disk {
            root_key: object.key,
            root_id: root_id.ok_or(io::ErrorKind::InvalidData)?,
            fsid: object.attr.fsid,
            overlay,
            generation,
            syncfs_policy: SyncfsPolicy::new(),
            caps,
            file_max: if options.read_only { None } else { file_size_limit::of(&object.fd) },
            root: object.fd.clone(),
            _found: found,
            creds: CallerCreds::new(options.honour_credentials)?,
            umask: creds::caller_creds::umask(),
            read_only: options.read_only,
            protected,
            features: conventions.features(&object.fd),
            conventions,
            search_entries: options.search_max,
            search_limit: SearchLimit::default(),
            paths: Mutex::new(PathCache::new(stat.key, options.path_cache_max)),
            // Where few may be opened most are left for the server's other needs.
            files: FileCache::new(
                options.open_max.min(share / 8),
                options.dirty_files_max.min(share / 16),
                options.revalidate_after,
            ),
            dirs: DirCache::new(options.dirs_max.min(dirs_share), options.revalidate_after),
            listings: volatile_cookies
                .then(|| OpenListings::new(LISTINGS_MAX.min(share / 64), u64::from_be_bytes(options.verifier))),
            inode_reuse: Mutex::new(InodeReuseGuard::new(share, caps.birth_grain)),
            op_locks: InodeLocks::new(),
            flush_locks: InodeLocks::new(),
            mode_locks: InodeLocks::new(),
            failure_hook: options.on_failure,
            verifier: AtomicU64::new(u64::from_be_bytes(options.verifier)),
        };
        Ok(LocalDisk { disk: Arc::new(disk), deferral: None })
    }

    /// If its handles go stale before their files are gone, when.
    pub fn handles_end(&self) -> Option<HandleLifetime> {
        self.disk.generation.as_ref().and_then(InodeGeneration::handle_lifetime)
    }

    /// OpenMode what is done as the server between what is done as a caller.
    fn as_server(&self) -> &LocalDisk {
        thread_creds::restore();
        self
    }

    fn paths(&self) -> MutexGuard<'_, PathCache> {
        self.disk.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change begins here.
    fn writable(&self) -> Result<()> {
        self.release_held_inodes();
        if self.disk.read_only { Err(Status::RoFs) } else { Ok(()) }
    }

    /// Gives back the room of what was removed a moment ago. If somebody else is at it, it is
    /// being done.
    fn release_held_inodes(&self) {
        let Ok(mut inode_reuse) = self.disk.inode_reuse.try_lock() else { return };
        inode_reuse.release_expired();
        let gone = inode_reuse.take_released();
        drop(inode_reuse);
        drop(gone);
    }

    /// Does `work`, and where there is no room for it once more when what was removed a moment
    /// ago has given back its own.
    fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let done = work();
        let full = matches!(done, Err(Status::NoSpc | Status::DQuot));
        let wait_and_release = || self.disk.with_inode_reuse(InodeReuseGuard::wait_and_release);
        if full && (self.disk.close_removed() | wait_and_release()) { work() } else { done }
    }
}

impl Disk {
    /// Does `work`, and closes what the inode_reuse lets go of when nobody waits for that any more.
    fn with_inode_reuse<T>(&self, work: impl FnOnce(&mut InodeReuseGuard) -> T) -> T {
        let mut inode_reuse = self.inode_reuse.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut inode_reuse);
        let gone = inode_reuse.take_released();
        drop(inode_reuse);
        drop(gone);
        done
    }
}

impl Vfs for LocalDisk {
    fn root(&self) -> FileId {
        self.disk.root_id
    }

    fn verifier(&self) -> [u8; 8] {
        self.current_verifier()
    }

    fn file_max(&self) -> u64 {
        self.disk.file_max.unwrap_or(OFFSET_MAX)
    }

    fn deferring(&self, ledger: &Arc<Ledger>) -> Option<Box<dyn Vfs>> {
        Some(Box::new(self.deferral(ledger)))
    }

    fn getattr(&self, id: &FileId) -> Result<Attr> {
        let _kept = keep_creds();
        self.disk.failure_hook.watch(self.attr_of(id))
    }

    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        self.as_server().do_setattr(cred, id, attr, guard)
    }

    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        let _kept = keep_creds();
        self.disk.failure_hook.watch(self.do_lookup(cred, dir, name))
    }

    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        let _kept = keep_creds();
        self.disk.failure_hook.watch(self.do_access(cred, id, wanted))
    }

    fn readlink(&self, _cred: &Cred, id: &FileId) -> Result<Bytes> {
        self.disk.failure_hook.watch(self.as_server().do_readlink(id))
    }

    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let _kept = keep_creds();
        self.disk.failure_hook.watch(self.do_read(cred, id, offset, count))
    }

    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        let _kept = keep_creds();
        self.do_write(cred, id, offset, data, stable)
    }

    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        let _kept = keep_creds();
        self.do_create(cred, dir, name, how)
    }

    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.as_server().do_mkdir(cred, dir, name, attr)
    }

    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.as_server().do_symlink(cred, dir, name, attr, target)
    }

    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.as_server().do_mknod(cred, dir, name, what)
    }

    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        let _kept = keep_creds();
        self.do_remove(cred, dir, name, AtFlags::empty())
    }

    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.as_server().do_remove(cred, dir, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, cred: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs> {
        self.as_server().do_rename(cred, from, to)
    }

    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.as_server().do_link(cred, id, dir, name)
    }

    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        self.disk.failure_hook.watch(self.as_server().do_readdir(cred, dir, query, take))
    }

    fn tidy(&self) {
        self.as_server().disk.close_removed();
        self.close_idle(open_files::WRITING_IDLE);
        self.disk.listings.iter().for_each(OpenListings::close_idle);
        self.release_held_inodes();
        // Behind the rest, which it might keep waiting for the disk.
        if self.disk.flush_idle(dirty_files::IDLE) {
            self.close_idle(open_files::WRITING_IDLE);
        }
    }

    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.disk.failure_hook.watch(self.as_server().resolve(id))?;
        // What is hidden gives back nothing, and each look may take a round trip.
        if !self.disk.caps.silly_renames {
            self.disk.close_removed();
        }
        self.disk.with_inode_reuse(InodeReuseGuard::release_expired);
        let s = fstatvfs(&self.disk.root).nfs()?;
        let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
        Ok(FsStatOk {
            attr: None,
            total: bytes(s.f_blocks),
            free: bytes(s.f_bfree),
            avail: bytes(s.f_bavail),
            files: s.f_files,
            files_free: s.f_ffree,
            files_avail: s.f_favail,
            invar_secs: 0,
        })
    }

    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        self.disk.failure_hook.watch(self.as_server().do_pathconf(id))
    }

    fn features(&self) -> Features {
        self.disk.features
    }

    fn commit(&self, cred: &Cred, id: &FileId, _offset: u64, _count: u32) -> Result<Wcc> {
        let _kept = keep_creds();
        self.do_commit(cred, id)
    }
}
