//! The state of an export, and how it is opened.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_wire::nfs3::Status;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::local::creds::protected_paths::ProtectedPaths;
use crate::local::creds::thread_creds::{self, CredPolicy};
use crate::local::fd_cache::open_dirs::DirCache;
use crate::local::fd_cache::open_files::FileCache;
use crate::local::handles::file_id::{self, PathHint};
use crate::local::handles::path_cache::PathCache;
use crate::local::handles::search_limit::SearchLimit;
use crate::local::handles::tree::{ExportTree, open_beneath, proc_path};
use crate::local::inode::fs_caps::{FsCaps, file_size_max};
use crate::local::inode::fs_conventions::FsConventions;
use crate::local::inode::inode_generation::{HandleLifetime, InodeGeneration};
use crate::local::inode::inode_locks::InodeLocks;
use crate::local::inode::inode_reuse::InodeReuseGuard;
use crate::local::inode::overlay::Overlay;
use crate::local::inode::stat;
use crate::local::listing::open_listings::OpenListings;
use crate::local::sync::flush::{Deferral, FlushContext};
use crate::local::sys::detached_mount;
use crate::local::sys::errors::FailureHook;
use crate::types::{Features, Result};

/// Most listings that stay open between pages.
const LISTINGS_MAX: usize = 256;

/// How to export a directory.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first [write verifier](crate::Vfs::verifier). It must differ at each start: random bytes or the time.
    pub verifier: [u8; 8],
    /// Execute each operation with its caller's credentials. Needs root.
    pub honour_credentials: bool,
    /// Reject every change with [`Status::RoFs`].
    pub read_only: bool,
    /// Most objects whose path is cached (about 200 bytes each, and 100 more for a second name). Others need a search.
    pub path_cache_max: usize,
    /// Most files kept open, and fewer if the process may not open as many.
    pub open_max: usize,
    /// Most files with unflushed data, which stay open beside those; fewer likewise. Beyond that the oldest is flushed.
    pub dirty_files_max: usize,
    /// Most directories kept open; fewer likewise.
    pub dirs_max: usize,
    /// The number of exports of this process, this one included (range: from 1). They share the limit on open files.
    pub exports: usize,
    /// How long the path of an open directory or file, and a file's mode and owner, are trusted. What another program
    /// moves out of the export stays reachable for that long.
    pub revalidate_after: Duration,
    /// Most directory entries that a search examines at the path that the handle hints at, and again in the whole tree.
    /// A second is enough for some two million.
    pub search_max: usize,
    /// Directories that clients cannot enter and files that they cannot open: the server's own keys. Paths that do not
    /// exist or are not in the export are skipped.
    pub protected_paths: Vec<PathBuf>,
    /// Called at each disk failure.
    pub failure_hook: FailureHook,
}

impl Options {
    /// The defaults: writable, all operations with the server's credentials.
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
            protected_paths: Vec::new(),
            failure_hook: FailureHook::default(),
        }
    }
}

/// An exported directory of this machine: see the [module](crate::local).
pub struct LocalDisk {
    pub(crate) disk: Arc<Disk>,
    /// Present in a view that defers its flushes.
    pub(crate) deferral: Option<Deferral>,
}

/// What an export and its deferring views share.
pub(crate) struct Disk {
    pub(crate) tree: ExportTree,
    pub(crate) flushes: Arc<FlushContext>,
    pub(crate) creds: CredPolicy,
    /// The umask of this process, which the kernel applies to every created file.
    pub(crate) umask: u32,
    pub(crate) read_only: bool,
    /// The maximum file size in bytes, if known.
    pub(crate) file_size_max: Option<u64>,
    pub(crate) features: Features,
    pub(crate) conventions: FsConventions,
    /// Where cookies are valid for one descriptor only.
    pub(crate) listings: Option<OpenListings>,
    inode_reuse: Mutex<InodeReuseGuard>,
    /// Make operations atomic.
    pub(crate) op_locks: InodeLocks,
    /// Held during a change of mode; always the innermost lock.
    pub(crate) mode_locks: InodeLocks,
    /// Keeps the mount of the exported directory busy if the root is open in a detached mount.
    _exported: Option<OwnedFd>,
}

impl LocalDisk {
    /// Exports `dir`. Fails if it is not a directory, if /proc or openat2(2) is missing, or if the process may not take
    /// on callers' credentials.
    pub fn open(dir: &Path, options: Options) -> io::Result<LocalDisk> {
        LocalDisk::open_with(dir, options, |root, device| FsCaps::of(root, device))
    }

    /// As [`open`](LocalDisk::open), for a file system with the capabilities that `caps` returns.
    pub(crate) fn open_with(
        dir: &Path,
        options: Options,
        caps: impl FnOnce(&OwnedFd, u64) -> FsCaps,
    ) -> io::Result<LocalDisk> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let exported = rustix::fs::open(dir, flags, Mode::empty())?;
        let generation = InodeGeneration::of(&exported, &stat::of(&exported)?, options.verifier);
        let (root, exported) = match detached_mount::open(&exported) {
            Ok(root) => (root, Some(exported)),
            Err(_) => (exported, None),
        };
        let root = Arc::new(root);
        let mut stat = stat::of(&root)?;
        let overlay = Overlay::of(&root, &stat);
        if overlay.is_some() {
            stat.key = Overlay::root_key(&stat);
        }
        check_system(&root)?;
        let caps = caps(&root, stat.attr.fsid);
        let conventions = FsConventions::of(&root);
        let limits = Limits::new(&options, caps.volatile_cookies || overlay.is_some());
        let tree = ExportTree {
            root_key: stat.key,
            root_id: file_id::encode(stat.key, &PathHint::default()).ok_or(io::ErrorKind::InvalidData)?,
            fsid: stat.attr.fsid,
            overlay,
            generation,
            protected: ProtectedPaths::find(&options.protected_paths, dir, &root)?,
            paths: Mutex::new(PathCache::new(stat.key, options.path_cache_max)),
            dirs: DirCache::new(limits.dirs, options.revalidate_after),
            search_limit: SearchLimit::default(),
            search_entries_max: options.search_max,
            root: root.clone(),
        };
        let files = FileCache::new(limits.files, limits.dirty_files, options.revalidate_after);
        let disk = Disk {
            tree,
            creds: CredPolicy::new(options.honour_credentials)?,
            umask: thread_creds::umask(),
            read_only: options.read_only,
            file_size_max: if options.read_only { None } else { file_size_max(&root) },
            features: conventions.features(&root),
            conventions,
            listings: limits.listings.map(|max| OpenListings::new(max, u64::from_be_bytes(options.verifier))),
            inode_reuse: Mutex::new(InodeReuseGuard::new(limits.share, caps.birth_grain)),
            op_locks: InodeLocks::new(),
            mode_locks: InodeLocks::new(),
            _exported: exported,
            flushes: Arc::new(FlushContext::new(root, caps, files, options.failure_hook, options.verifier)),
        };
        Ok(LocalDisk { disk: Arc::new(disk), deferral: None })
    }

    /// How long file handles are valid, if not as long as their files exist.
    pub fn handle_lifetime(&self) -> Option<HandleLifetime> {
        self.disk.tree.generation.as_ref().and_then(InodeGeneration::handle_lifetime)
    }

    /// Begins a change: fails if the export is read-only.
    pub(crate) fn begin_change(&self) -> Result<()> {
        self.disk.release_expired_inodes();
        if self.disk.read_only { Err(Status::RoFs) } else { Ok(()) }
    }

    /// Runs `work`. If the disk is full, releases the space of removed files and runs it once more.
    pub(crate) fn with_space<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let done = work();
        let full = matches!(done, Err(Status::NoSpc | Status::DQuot));
        let wait = || self.disk.with_inode_reuse(InodeReuseGuard::wait_and_release);
        if full && (self.disk.close_removed() | wait()) { work() } else { done }
    }
}

impl Disk {
    pub(crate) fn files(&self) -> &FileCache {
        &self.flushes.files
    }

    pub(crate) fn caps(&self) -> &FsCaps {
        &self.flushes.caps
    }

    /// Closes what another program removed. Returns whether that may free space.
    pub(crate) fn close_removed(&self) -> bool {
        self.listings.iter().for_each(OpenListings::close_removed);
        self.tree.dirs.close_removed() | self.files().close_removed()
    }

    /// Runs `work` on the inodes held against reuse. Closes the released ones without the lock.
    pub(crate) fn with_inode_reuse<T>(&self, work: impl FnOnce(&mut InodeReuseGuard) -> T) -> T {
        let mut guard = self.inode_reuse.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut guard);
        let released = guard.take_released();
        drop(guard);
        drop(released);
        done
    }

    /// Releases inodes that need not be held any more, unless another thread does.
    pub(crate) fn release_expired_inodes(&self) {
        let Ok(mut guard) = self.inode_reuse.try_lock() else { return };
        guard.release_expired();
        let released = guard.take_released();
        drop(guard);
        drop(released);
    }
}

/// Most descriptors of each kind, from the options and the limit of the process.
struct Limits {
    /// All descriptors of this export.
    share: usize,
    files: usize,
    dirty_files: usize,
    dirs: usize,
    listings: Option<usize>,
}

impl Limits {
    fn new(options: &Options, keeps_listings: bool) -> Limits {
        let process_max = getrlimit(Resource::Nofile).maximum.map_or(usize::MAX, |max| max as usize);
        let share = process_max / options.exports.max(1);
        // A low limit leaves most descriptors to the rest of the server.
        Limits {
            share,
            files: options.open_max.min(share / 8),
            dirty_files: options.dirty_files_max.min(share / 16),
            dirs: options.dirs_max.min(if keeps_listings { share / 64 } else { share / 32 }),
            listings: keeps_listings.then(|| LISTINGS_MAX.min(share / 64)),
        }
    }
}

/// Fails if /proc or openat2(2) is missing.
fn check_system(root: &Arc<OwnedFd>) -> io::Result<()> {
    let unsupported = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
    if stat::at(CWD, proc_path(root).as_bytes()).is_err() {
        return unsupported("/proc is not mounted");
    }
    if matches!(open_beneath(root, b"."), Err(Errno::NOSYS)) {
        return unsupported("openat2(2) is not available: it needs Linux 5.6, and a sandbox must allow it");
    }
    Ok(())
}
