//! Where things are kept from one run to the next.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `$XDG_STATE_HOME/remora` or `~/.local/state/remora`; `None` without a home.
pub(crate) fn user_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("remora"))
}

/// Makes a directory that only its owner enters, if it is not there.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    if fs::metadata(dir).is_ok_and(|m| m.is_dir()) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// What sets the user's directory here apart from all others: random, and kept in it. Where it cannot be, each run
/// has another.
pub(crate) fn own_id() -> &'static [u8] {
    static ID: OnceLock<Vec<u8>> = OnceLock::new();
    ID.get_or_init(|| {
        // Without random numbers what else tells runs apart must do.
        let fresh = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())).to_le_bytes();
        let keep = |dir: PathBuf| {
            make_private(&dir)?;
            secret(&dir.join("id"), &fresh)
        };
        user_dir().and_then(|dir| keep(dir).ok()).filter(|id| id.len() == fresh.len()).unwrap_or_else(|| fresh.to_vec())
    })
}

/// The secret kept at `path`, which is one only if it is ours or root's and others may not read or write it; the
/// first call of all makes it `fresh`.
pub(crate) fn secret(path: &Path, fresh: &[u8]) -> io::Result<Vec<u8>> {
    match read_private(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        known => return known,
    }
    // Written apart and linked, so that of two that start at once one wins and none is torn.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // One that is there already is left over, or another's, who would read along.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(fresh)?;
    file.sync_all()?;
    let linked = fs::hard_link(&new, path);
    fs::remove_file(&new)?;
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => read_private(path),
    }
}

/// Fails if others may put something else in the place of what is kept in `dir`.
pub(crate) fn only_ours(dir: &Path) -> io::Result<()> {
    let mode = fs::metadata(dir)?.permissions().mode() & 0o7777;
    // A group may be its owner's alone, as many systems set it up; with the sticky bit each has what is his own.
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        let why = format!("others may write in it (mode {mode:03o}), and so replace keys: run chmod o-w on it");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Ours or root's: anybody else could read or change it whatever its mode.
fn owned_by_us(found: &Metadata) -> io::Result<()> {
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner == us || owner == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("belongs to user {owner}, not to user {us}, as whom this runs: run chown {us} on it")))
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    owned_by_us(&found)?;
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!("others may read or change it (mode {mode:03o}): run chmod 600 on it")));
    }
    let mut secret = Vec::new();
    file.read_to_end(&mut secret)?;
    Ok(secret)
}
