//! From a plan to exports that can be served, reusing what is open already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use remora_host::server::raise_limit;
use remora_server::{Export, Exports};
use remora_vfs::{LocalDisk, local};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::failures::Failures;
use super::key::random;
use super::notes;
use super::share::{Plan, Share};
use crate::exit::{Error, Result};

/// Exports with their directories open.
pub(super) struct Loaded {
    pub(super) plan: Plan,
    pub(super) exports: Arc<Exports>,
    pub(super) failures: Arc<Failures>,
    /// By share.
    disks: Vec<Opened>,
}

#[derive(Clone)]
struct Opened {
    place: Place,
    disk: Arc<LocalDisk>,
}

/// A directory as long as nothing is mounted over it and nothing else takes its path.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    path: PathBuf,
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

/// Opens what is planned. A directory that `before` has open is taken from there, with its
/// write verifier and all that is known about its files: to clients nothing happens to it.
pub(super) fn open(mut plan: Plan, key: &[u8; 16], before: Option<&Loaded>) -> Result<Loaded> {
    // Each takes some. Before they are opened, or many would not be.
    raise_limit();
    let failures = before.map_or_else(Failures::start, |before| Ok(before.failures.clone()))?;
    let open = |share| disk(share, plan.shares.len(), &failures, before);
    let disks = plan.shares.iter().map(open).collect::<Result<Vec<Opened>>>()?;
    let ends = plan.shares.iter().zip(&disks);
    plan.notes
        .extend(ends.filter_map(|(share, opened)| Some(notes::of_handles(&share.dir, opened.disk.handles_end()?))));
    let export = |(share, opened): (&Share, &Opened)| Export {
        names: share.names.clone(),
        unlisted: share.unlisted.clone(),
        vfs: opened.disk.clone(),
        access: share.access.clone(),
    };
    let list = plan.shares.iter().zip(&disks).map(export).collect();
    let exports = Exports::new(list, key).map_err(|e| Error::Usage(e.to_string()))?;
    Ok(Loaded { plan, exports: Arc::new(exports), failures, disks })
}

impl Loaded {
    /// The shares, and whether each is of the same directory as the one of `before` that it
    /// took it from.
    pub(super) fn same_directory(&self, before: &Loaded, share: usize, was: usize) -> bool {
        let disk = |loaded: &Loaded, i: usize| loaded.disks.get(i).map(|d| Arc::as_ptr(&d.disk));
        disk(self, share) == disk(before, was)
    }
}

fn disk(share: &Share, exports: usize, failures: &Arc<Failures>, before: Option<&Loaded>) -> Result<Opened> {
    let place = place(&share.dir).map_err(Error::local(share.dir.display()))?;
    if let Some(known) = before.and_then(|b| b.disks.iter().find(|d| d.place == place)) {
        return Ok(known.clone());
    }
    // Never read-only: who may change what is up to each client's terms, and those may change.
    let options = local::Options {
        // Only root can act as somebody else.
        honour_credentials: rustix::process::geteuid().is_root(),
        exports,
        on_failure: failures.of(&share.dir),
        ..local::Options::new(random()?)
    };
    let disk = LocalDisk::open(&share.dir, options).map_err(Error::local(share.dir.display()))?;
    Ok(Opened { place, disk: Arc::new(disk) })
}

fn place(dir: &Path) -> std::io::Result<Place> {
    let found = statx(CWD, dir, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok(Place {
        path: dir.to_owned(),
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mount: found.stx_mnt_id,
    })
}
