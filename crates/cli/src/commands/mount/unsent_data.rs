//! The store of unsent data of a mount.

use std::path::Path;

use remora_host::client::Target;
use remora_host::mount::runtime_dir::MountNote;
use remora_host::mount::store::{DirtyStore, Opened, StoreError, StoreKey};

use crate::commands::mount::options::WriteMode;
use crate::config::state_dir;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Opens the store of the export at `url` for a mount at `dir`: for what close(2) leaves to it with `--writes back`,
/// for changes without the server, and for what an earlier mount left. A `through` mount does without one if it must.
/// A damaged store is left alone, and makes the mount read-only.
pub(super) fn open(url: &str, dir: &Path, writes: WriteMode, read_only: &mut bool) -> Result<Option<Opened>> {
    if *read_only {
        return Ok(None);
    }
    let is_back = writes == WriteMode::Back;
    let Some(parent) = state_dir::unsent_dir() else {
        let why = "there is no home directory to keep unsent data in";
        if is_back {
            return Err(Error::refused("--writes back", why).with_hint("set XDG_STATE_HOME"));
        }
        stdio::eprint(format_args!("{why}: the mount needs its server for every change"));
        return Ok(None);
    };
    let key = StoreKey::of(&Target::parse(url)?);
    let note = MountNote { url: url.to_owned(), dir: dir.to_owned(), pid: std::process::id() };
    match DirtyStore::open(&parent, &key, &note) {
        Ok(opened) => {
            report(&opened);
            Ok(Some(opened))
        }
        // The mount that has it sends it.
        Err(StoreError::InUse(note)) if !is_back => {
            let dir = escape::printable(note.dir.as_os_str().as_encoded_bytes());
            stdio::eprint(format_args!("the mount at {dir} keeps changes: this one needs its server for every change"));
            Ok(None)
        }
        Err(error @ StoreError::InUse(_)) => {
            Err(Error::refused(url, error.to_string()).with_hint("remora umount ends that mount"))
        }
        Err(StoreError::Damaged { dir, why }) => {
            *read_only = true;
            let dir = escape::printable(dir.as_os_str().as_encoded_bytes());
            stdio::eprint(format_args!(
                "unsent data in {dir} is damaged ({why}), so the mount is read-only. The bytes of each file are in \
                 {dir}/data. To mount for writing without them: mv {dir} {dir}.damaged"
            ));
            Ok(None)
        }
        Err(error @ StoreError::InsideMount(_)) if !is_back => {
            stdio::eprint(format_args!("{error}: the mount needs its server for every change (set XDG_STATE_HOME)"));
            Ok(None)
        }
        Err(error) => Err(Error::refused("the store of unsent data", error.to_string())),
    }
}

fn report(opened: &Opened) {
    if !opened.objects.is_empty() {
        let files = opened.objects.len();
        stdio::eprint(format_args!("unsent files of an earlier mount: {files}; they are sent now"));
    }
    let changes = opened.log.records.len();
    if changes > 0 {
        stdio::eprint(format_args!("changes of names by an earlier mount: {changes}; they are sent now"));
    }
    for aside in &opened.damaged {
        let (what, data) =
            (escape::printable(&aside.path), escape::printable(aside.data.as_os_str().as_encoded_bytes()));
        stdio::eprint(format_args!("{what} is damaged and not made; its bytes are in {data}"));
    }
    for aside in &opened.set_aside {
        let (path, data) =
            (escape::printable(&aside.path), escape::printable(aside.data.as_os_str().as_encoded_bytes()));
        stdio::eprint(format_args!("{path} was not safe on disk before the machine stopped; its bytes are in {data}"));
    }
}
