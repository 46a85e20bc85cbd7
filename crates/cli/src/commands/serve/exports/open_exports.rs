//! From a plan to exports that can be served, reusing what is open already.

use remora_host::server::Serving;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remora_host::server::{Descriptors, ServerOptions, raise_limit};
use remora_server::{Export, Exports};
use remora_vfs::{LocalDisk, local};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use crate::commands::serve::exports::plan;
use crate::commands::serve::exports::plan::Plan;
use crate::commands::serve::exports::share::Share;
use crate::commands::serve::keys::{Keys, random};
use crate::commands::serve::output::notices::Failures;
use crate::commands::serve::output::warnings;
use crate::output::exit::{Error, Result};

/// Exports with their directories open.
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    pub(crate) exports: Arc<Exports>,
    pub(crate) failures: Arc<Failures>,
    /// The disk of each share, in the same order.
    disks: Vec<Opened>,
}

#[derive(Clone)]
struct Opened {
    place: DirIdentity,
    disk: Arc<LocalDisk>,
}

/// A directory as long as nothing is mounted over it and nothing else takes its path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct DirIdentity {
    path: PathBuf,
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

/// Opens what is planned, each directory once, by however many names it goes. One that `before` has open is taken
/// from there, with its write verifier and all that is known about its files: to clients nothing happens to it.
pub(crate) fn open(mut plan: Plan, keys: &Keys, before: Option<&Loaded>) -> Result<Loaded> {
    // Each takes some. Before they are opened, or many would not be.
    raise_limit();
    let failures = before.map_or_else(Failures::start, |before| Ok(before.failures.clone()))?;
    let (count, opened) = (plan.shares.len(), before.map_or(0, |b| b.disks.len()));
    let room = || Descriptors::count(opened, ServerOptions::default_threads()).with_exports(count);
    if before.is_none() {
        room().check().map_err(|e| Error::refused("cannot start", e.to_string()))?;
    }
    let mut known = before.map_or_else(HashMap::new, Loaded::by_place);
    let options = |share: &Share| {
        Ok(local::Options {
            // Only root can act as somebody else.
            honour_credentials: rustix::process::geteuid().is_root(),
            exports: count,
            protected_paths: keys.closed.clone(),
            failure_hook: failures.of(&share.dir),
            ..local::Options::new(random().map_err(|e| io::Error::other(e.to_string()))?)
        })
    };
    // Always writable: access is checked per client, and the rules can change on reload.
    let open = |share| disk(share, &mut known, || options(share)).map_err(|e| (share, e));
    let disks = plan.shares.iter().map(open).collect::<std::result::Result<Vec<Opened>, (&Share, io::Error)>>();
    // What was opened in vain is closed again: it is not to be counted.
    drop(known);
    let disks = disks.map_err(|(share, e)| match Errno::from_io_error(&e) {
        Some(Errno::MFILE) => Error::refused("cannot open the exports", room().too_few().to_string()),
        _ => Error::local(share.dir.display())(e),
    })?;
    let ends = plan.shares.iter().zip(&disks);
    plan.notes.extend(
        ends.filter_map(|(share, opened)| Some(warnings::of_handles(&share.dir, opened.disk.handle_lifetime()?))),
    );
    let export = |(share, opened): (&Share, &Opened)| Export {
        names: share.names.clone(),
        unlisted: share.unlisted.clone(),
        vfs: opened.disk.clone(),
        access: share.access.clone(),
    };
    let list = plan.shares.iter().zip(&disks).map(export).collect();
    let exports = Exports::new(list, &keys.handles).map_err(|e| plan::wrong_name(&plan.shares, &e))?;
    Ok(Loaded { plan, exports: Arc::new(exports), failures, disks })
}

impl Loaded {
    fn by_place(&self) -> HashMap<DirIdentity, Arc<LocalDisk>> {
        self.disks.iter().map(|d| (d.place.clone(), d.disk.clone())).collect()
    }

    /// The shares, and whether each is of the same directory as the one of `before` that it
    /// took it from.
    pub(crate) fn same_directory(&self, before: &Loaded, share: usize, was: usize) -> bool {
        let disk = |loaded: &Loaded, i: usize| loaded.disks.get(i).map(|d| Arc::as_ptr(&d.disk));
        disk(self, share) == disk(before, was)
    }
}

fn disk(
    share: &Share,
    known: &mut HashMap<DirIdentity, Arc<LocalDisk>>,
    options: impl FnOnce() -> io::Result<local::Options>,
) -> io::Result<Opened> {
    let place = place(&share.dir)?;
    if let Some(disk) = known.get(&place).cloned() {
        return Ok(Opened { place, disk });
    }
    let disk = Arc::new(LocalDisk::open(&share.dir, options()?)?);
    known.insert(place.clone(), disk.clone());
    Ok(Opened { place, disk })
}

fn place(dir: &Path) -> io::Result<DirIdentity> {
    let found = statx(CWD, dir, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok(DirIdentity {
        path: dir.to_owned(),
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mount: found.stx_mnt_id,
    })
}

/// What there is to say about how many may connect.
pub(crate) fn room(serving: &Serving, loaded: &Loaded) -> Option<String> {
    warnings::of_room(serving.connections_max(), loaded.plan.shares.len(), serving.descriptors_max())
}
