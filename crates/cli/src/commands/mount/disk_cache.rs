//! The disk cache of a mount.

use std::path::Path;

use remora_host::client::Target;
use remora_host::mount::runtime_dir::MountNote;
use remora_host::mount::store::{DiskCache, OpenedCache, StoreError, StoreKey};

use crate::config::state_dir;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Opens the disk cache of the export at `url` for a mount at `dir`, with this limit; 0 is none. A mount that cannot have
/// one says so and caches in memory.
pub(super) fn open(url: &str, dir: &Path, limit: Option<u64>) -> Result<Option<DiskCache>> {
    if limit == Some(0) {
        return Ok(None);
    }
    let Some(parent) = state_dir::cache_dir() else {
        stdio::eprint("no home directory for a disk cache: the mount caches in memory only");
        return Ok(None);
    };
    let key = StoreKey::of(&Target::parse(url)?);
    let note = MountNote { url: url.to_owned(), dir: dir.to_owned(), pid: std::process::id() };
    match DiskCache::open(&parent, &key, &note, limit) {
        Ok(OpenedCache { cache, set_aside }) => {
            if let Some(aside) = set_aside {
                let aside = escape::printable(aside.as_os_str().as_encoded_bytes());
                stdio::eprint(format_args!(
                    "the disk cache was damaged: it is set aside in {aside}, and a fresh one begins"
                ));
            }
            Ok(Some(cache))
        }
        Err(StoreError::InsideMount(path)) => {
            let why = format!("the disk cache {} lies in the directory to be mounted", path.display());
            Err(Error::refused(dir.display(), why).with_hint("set XDG_CACHE_HOME, or say --cache-size 0"))
        }
        Err(StoreError::InUse(note)) => {
            let dir = escape::printable(note.dir.as_os_str().as_encoded_bytes());
            stdio::eprint(format_args!("the mount at {dir} has the disk cache: this one caches in memory only"));
            Ok(None)
        }
        Err(error) => {
            stdio::eprint(format_args!("no disk cache: {error}; the mount caches in memory only"));
            Ok(None)
        }
    }
}
