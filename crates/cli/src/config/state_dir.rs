//! The state directory: identifiers and keys kept between runs.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use rustix::fs::OFlags;

use crate::output::exit::{Error, io_text};

/// `$XDG_STATE_HOME/remora` or `~/.local/state/remora`; `None` without a home.
pub(crate) fn user_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("remora"))
}

/// Where the unsent data of this user's mounts is kept: `unsent` in [`user_dir`]; for root without `$XDG_STATE_HOME`,
/// `/var/lib/remora/unsent`.
pub(crate) fn unsent_dir() -> Option<PathBuf> {
    Some(mount_state_dir()?.join("unsent"))
}

/// Where mounts note what the next ones need to start without the server: `mounts` beside `unsent`.
pub(crate) fn mounts_dir() -> Option<PathBuf> {
    Some(mount_state_dir()?.join("mounts"))
}

fn mount_state_dir() -> Option<PathBuf> {
    let is_system = std::env::var_os("XDG_STATE_HOME").is_none() && rustix::process::geteuid().is_root();
    if is_system { Some("/var/lib/remora".into()) } else { user_dir() }
}

/// Where the disk caches of this user's mounts are: `remora` in `$XDG_CACHE_HOME` or `~/.cache`; for root without
/// `$XDG_CACHE_HOME`, `/var/cache/remora`.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let own = absolute("XDG_CACHE_HOME");
    let is_system = own.is_none() && rustix::process::geteuid().is_root();
    let cache =
        if is_system { Some("/var/cache".into()) } else { own.or_else(|| Some(absolute("HOME")?.join(".cache"))) };
    Some(cache?.join("remora"))
}

/// Where this user's own settings are: `remora` in `$XDG_CONFIG_HOME` or `~/.config`; `None` without a home.
pub(crate) fn config_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("remora"))
}

/// Creates a directory with mode 0700 if it is missing.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    if fs::metadata(dir).is_ok_and(|m| m.is_dir()) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Fails if more than the last directory of a key file that the user named is missing: a mistyped path makes no tree.
pub(crate) fn check_named(file: &Path) -> Result<(), Error> {
    let Some(above) = file.parent().and_then(Path::parent).filter(|dir| !dir.as_os_str().is_empty()) else {
        return Ok(());
    };
    match fs::metadata(above) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Error::refused(file.display(), format!("there is no directory {}", above.display())))
        }
        _ => Ok(()),
    }
}

/// Identifier of this user on this machine.
#[derive(Debug)]
pub(crate) struct OwnId {
    /// The random identifier.
    pub(crate) bytes: Vec<u8>,
    /// Why it could not be stored; then each run has another one.
    pub(crate) unkept: Option<String>,
}

/// The identifier of this user.
pub(crate) fn own_id() -> &'static OwnId {
    static ID: OnceLock<OwnId> = OnceLock::new();
    ID.get_or_init(|| {
        // Without random numbers, the process id and the time distinguish runs.
        let fresh = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())).to_le_bytes();
        let Some(dir) = user_dir() else {
            return OwnId { bytes: fresh.to_vec(), unkept: Some("there is no home directory".into()) };
        };
        let path = dir.join("id");
        match make_private(&dir).and_then(|()| kept_id(&path, &fresh)) {
            Ok(bytes) => OwnId { bytes, unkept: None },
            Err(e) => OwnId { bytes: fresh.to_vec(), unkept: Some(format!("{}: {}", path.display(), io_text(&e))) },
        }
    })
}

/// Reads the identifier at `path`, or replaces it by `fresh` if it is unreadable. It is not secret: names on servers
/// contain it.
fn kept_id(path: &Path, fresh: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(id) = read_id(path, fresh.len())? {
        return Ok(id);
    }
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => make(path, fresh)?,
    }
    let another = || io::Error::other("another file replaces it");
    read_id(path, fresh.len())?.ok_or_else(another)
}

/// `None` if what is there is none of this length, or cannot be read.
fn read_id(path: &Path, length: usize) -> io::Result<Option<Vec<u8>>> {
    let (file, _) = match open_regular(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return Ok(None),
        opened => opened?,
    };
    let mut id = Vec::new();
    file.take(length as u64 + 1).read_to_end(&mut id)?;
    Ok(Some(id).filter(|id| id.len() == length))
}

/// Reads the secret at `path`, or creates it from `fresh`. Fails unless this user or root owns it and others have no
/// access.
pub(crate) fn secret(path: &Path, fresh: &[u8]) -> io::Result<Vec<u8>> {
    match read_private(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        known => return known,
    }
    make(path, fresh)?;
    read_private(path)
}

/// Creates the file at `path` with mode 0600 unless another run is faster.
pub(super) fn make(path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_linked(path, bytes, |new| fs::hard_link(new, path))
}

fn make_linked(path: &Path, bytes: &[u8], link: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    // Write a temporary file and link it, so that concurrent runs agree on one complete file.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // One that is there already is left over, or another's, who would read along.
    let _ = fs::remove_file(&new);
    write_new(&new, bytes)?;
    let linked = link(&new);
    // A concurrent run may have removed it.
    let _ = fs::remove_file(&new);
    let made = match linked {
        // A file system without hard links. Here, too, one run wins.
        Err(e) if !is_lost_race(&e) => write_new(path, bytes),
        linked => linked,
    };
    made.or_else(|e| if is_lost_race(&e) { Ok(()) } else { Err(e) })
}

fn is_lost_race(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound)
}

/// Writes a new file, or leaves none.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Removes temporary files of runs that died while they created the secret at `path`.
pub(crate) fn sweep(path: &Path) {
    let (Some(dir), Some(stem)) = (path.parent(), path.file_stem()) else { return };
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = PathBuf::from(entry.file_name());
        let maker = name.extension().and_then(|e| e.to_str()?.strip_prefix("new-")?.parse::<u32>().ok());
        if name.file_stem() == Some(stem) && maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Syncs the entries of `dir` and, if it is new, the entry of `dir` itself. An earlier run that created them may have
/// died before it did so.
pub(crate) fn settle(dir: &Path) -> io::Result<()> {
    for dir in made_on(dir)? {
        match File::open(&dir) {
            Ok(dir) => sync_dir(&dir)?,
            // What we may not read others have made.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn sync_dir(dir: &File) -> io::Result<()> {
    match dir.sync_all() {
        // The file system does not support syncing directories.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::ReadOnlyFilesystem) => Ok(()),
        synced => synced,
    }
}

/// `dir` and the directories above that it may have been made with: those of its file system.
fn made_on(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = fs::canonicalize(dir)?;
    let device = fs::metadata(&dir)?.dev();
    let above = dir.ancestors().take_while(|above| fs::metadata(above).is_ok_and(|m| m.dev() == device));
    Ok(above.map(Path::to_owned).collect())
}

/// Fails if another user can replace files in `dir`.
pub(crate) fn only_ours(dir: &Path) -> io::Result<()> {
    let found = fs::metadata(dir)?;
    owned_by_us(&found)?;
    let mode = found.permissions().mode() & 0o7777;
    // Group write access is accepted: many systems give each user a group. The sticky bit protects the files of
    // others.
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        let why = format!("others can write to it (mode {mode:03o}) and replace keys: run chmod o-w on it");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// The owner must be this user or root: any other owner can change the file regardless of its mode.
fn owned_by_us(found: &Metadata) -> io::Result<()> {
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner == us || owner == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("belongs to user {owner}, but remora runs as user {us}: run chown {us} on it")))
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, found) = open_regular(path)?;
    owned_by_us(&found)?;
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!("others can read or change it (mode {mode:03o}): run chmod 600 on it")));
    }
    let mut secret = Vec::new();
    file.read_to_end(&mut secret)?;
    Ok(secret)
}

fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Opening a FIFO without a writer would block for ever.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        let what = if found.is_dir() { "a directory" } else { "no regular file" };
        return Err(io::Error::other(format!("is {what}, not a file: move it away, and remora creates the file")));
    }
    Ok((file, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        // No process has a number as high.
        let (dead, alive) = ("key.new-4294967295", format!("key.new-{}", std::process::id()));
        let others = [alive.as_str(), "key.new-", "key.new-x", "other.new-4294967295", "key"];
        for name in others.iter().chain([&dead]) {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        sweep(&path);
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
        assert!(!dir.path().join(dead).exists());
    }

    #[test]
    fn invalid_id_is_replaced_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        for (old, want) in [
            (None, b"1st fresh"),
            (Some(&b""[..]), b"2nd fresh"),
            (Some(b"short"), b"3rd fresh"),
            (Some(b"much too long"), b"4th fresh"),
            (Some(b"usable as"), b"usable as"),
        ] {
            old.iter().for_each(|old| fs::write(&path, old).unwrap());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap_or_default();
            assert_eq!(kept_id(&path, want).unwrap(), want);
            assert_eq!(kept_id(&path, b"of no use").unwrap(), want);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(kept_id(&path, b"1st fresh").unwrap_err().to_string().contains("is a directory"));
    }

    #[test]
    fn first_creator_wins_without_hard_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let unable = |_: &Path| Err(rustix::io::Errno::PERM.into());
        for bytes in [b"first", b"later"] {
            make_linked(&path, bytes, unable).unwrap();
            assert_eq!(read_private(&path).unwrap(), b"first");
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        }
    }

    #[test]
    fn new_directories_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        make_private(&top.join("a/b")).unwrap();
        let way = made_on(&top.join("a/b")).unwrap();
        assert_eq!(way[..3], [top.join("a/b"), top.join("a"), top]);
        assert!(way.iter().all(|d| !d.starts_with("/proc")));
        assert!(!made_on(Path::new("/proc/self")).unwrap().contains(&PathBuf::from("/")), "a file system of its own");
        settle(&dir.path().join("a/b")).unwrap();
        assert!(settle(&dir.path().join("c")).is_err());
    }
}
