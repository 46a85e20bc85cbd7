//! Key files: one secret each, readable by its owner only. The link and ATP store their private keys in them.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use remora_base::key_text::{self, KEY_LEN};
use rustix::fs::{CWD, OFlags, RenameFlags, fcntl_getfl, fcntl_setfl, renameat_with};

/// Bytes read of a key file, far more than a key has.
const TEXT_MAX: u64 = 4096;
/// Most names tried for a temporary file.
const NAMES_MAX: u32 = 100;

/// Why a key cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The text is not a key.
    #[error("not a key: expected 44 characters of base64")]
    Text,
    /// The file is empty.
    #[error("it is empty and no key: remove it, and a new one is made (which the other ends are then to be told)")]
    Empty,
    /// The path is occupied.
    #[error("it is a symbolic link that leads to no file: remove it, or make the file it leads to")]
    Dangling,
    /// The file cannot be read or created.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Other users can read the file.
    #[error("others may read it (mode {mode:03o}): run chmod 600 on it")]
    Open { mode: u32 },
    /// Another user owns the file and can read or change it.
    #[error("it belongs to user {owner}, not to user {us}, as whom this runs: run chown {us} on it")]
    Theirs {
        owner: u32,
        /// The user ID of this process.
        us: u32,
    },
    /// The system provides no random numbers, or the cipher library rejects its own keys.
    #[error("no key can be made: the system gives no random numbers")]
    Random,
    /// Neither `XDG_STATE_HOME` nor `HOME` is set.
    #[error("no place for a key: neither XDG_STATE_HOME nor HOME is set")]
    NoHome,
}

/// Loads the secret at `path`, or stores one from `make` there if there is none. Creates missing directories with
/// access for their owner only.
pub(crate) fn load_or_create(
    path: &Path,
    make: impl FnOnce() -> Option<[u8; KEY_LEN]>,
) -> Result<[u8; KEY_LEN], KeyFileError> {
    match load(path) {
        Err(KeyFileError::File(e)) if e.kind() == io::ErrorKind::NotFound => {}
        known => return known,
    }
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let fresh = make().ok_or(KeyFileError::Random)?;
    match write_new(path, &format!("{}\n", key_text::encode(&fresh))) {
        // Another process created the file first; its key is used.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => load(path).map_err(|e| match e {
            KeyFileError::File(e) if e.kind() == io::ErrorKind::NotFound => KeyFileError::Dangling,
            other => other,
        }),
        written => Ok(written.map(|()| fresh)?),
    }
}

/// Creates a file that becomes visible only when it is complete and on disk, and never replaces another.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let (mut file, unfinished) = open_beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let made = written.and_then(|()| match fs::hard_link(&unfinished, path) {
        // File systems without hard links.
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Ok(renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE)?)
        }
        linked => linked,
    });
    let _ = fs::remove_file(&unfinished);
    made?;
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// Creates a file in the same directory: `PATH.0`, or the next free name.
fn open_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    for n in 0..NAMES_MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((opened?, name.into())),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Loads the secret from `path`, a file of this user or root that only its owner can read.
pub(crate) fn load(path: &Path) -> Result<[u8; KEY_LEN], KeyFileError> {
    let (file, meta) = open(path)?;
    let mut text = String::new();
    match file.take(TEXT_MAX).read_to_string(&mut text) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(KeyFileError::Text),
        read => read?,
    };
    let mode = meta.permissions().mode() & 0o777;
    let (owner, us) = (meta.uid(), rustix::process::geteuid().as_raw());
    if meta.file_type().is_file() && owner != us && owner != 0 {
        return Err(KeyFileError::Theirs { owner, us });
    }
    // A pipe (`--key <(pass ...)`) has no other readers.
    if meta.file_type().is_file() && meta.nlink() > 0 && mode & 0o077 != 0 {
        return Err(KeyFileError::Open { mode });
    }
    if text.is_empty() && meta.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, and nobody writes a key to it").into());
    }
    if text.trim().is_empty() {
        Err(KeyFileError::Empty)
    } else {
        key_text::decode(text.trim()).ok_or(KeyFileError::Text)
    }
}

/// Opens a file or a pipe. A pipe without a writer would block forever.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() && !meta.file_type().is_fifo() {
        return Err(io::Error::other(if meta.is_dir() { "it is a directory" } else { "it is no regular file" }));
    }
    // The writer may not have written yet.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok((file, meta))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    /// Loads or creates a key that differs from those of earlier calls.
    fn load_or_create_at(path: &Path) -> Result<[u8; KEY_LEN], KeyFileError> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        load_or_create(path, || Some([NEXT.fetch_add(1, Ordering::Relaxed); KEY_LEN]))
    }

    #[test]
    fn key_file_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/link.key");
        let made = load_or_create_at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create_at(&path).unwrap(), made);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::Open { mode: 0o644 })));
    }

    #[test]
    fn key_file_of_other_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.key");
        let made = load_or_create_at(&path).unwrap();
        if !rustix::process::geteuid().is_root() {
            return skip::skipped(&skip::this_test(), "needs root, to give a file away");
        }
        std::os::unix::fs::chown(&path, Some(2001), None).unwrap();
        for refused in [load(&path), load_or_create_at(&path)] {
            assert!(matches!(refused, Err(KeyFileError::Theirs { owner: 2001, us: 0 })));
        }
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        assert_eq!(load(&path).unwrap(), made);
    }

    #[test]
    fn concurrent_key_creation_yields_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.key");
        // A temporary file left by a crash is no key and does no harm.
        fs::write(dir.path().join("link.key.0"), "").unwrap();
        let keys = std::thread::scope(|s| {
            let makers: Vec<_> = (0..8).map(|_| s.spawn(|| load_or_create_at(&path).unwrap())).collect();
            makers.into_iter().map(|m| m.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(keys.iter().all(|k| *k == load(&path).unwrap()), "{keys:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn dangling_symlink_is_named_in_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.key");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &path).unwrap();
        assert!(matches!(load_or_create_at(&path), Err(KeyFileError::Dangling)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn empty_key_file_is_reported_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link.key");
        fs::write(&path, "\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load_or_create_at(&path), Err(KeyFileError::Empty)));
        assert_eq!(fs::read(&path).unwrap(), b"\n");
    }

    /// `--key <(pass ...)` is a pipe, too. One without a writer returns an error immediately.
    #[test]
    fn pipe_with_writer_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let error = |path: &Path| load(path).unwrap_err().to_string();
        assert!(error(&pipe).contains("nobody writes"), "{}", error(&pipe));
        assert!(error(dir.path()).contains("a directory") && error(Path::new("/dev/zero")).contains("no regular file"));
        let _reader = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&pipe);
        let mut writer = OpenOptions::new().write(true).open(&pipe).unwrap();
        std::thread::scope(|s| {
            let loaded = s.spawn(|| load(&pipe).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
            writer.write_all(key_text::encode(&[7; KEY_LEN]).as_bytes()).unwrap();
            drop(writer);
            assert_eq!(loaded.join().unwrap(), [7; KEY_LEN]);
        });
    }

    #[test]
    fn file_that_is_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .unwrap()
            .write_all(&[0xff; 44])
            .unwrap();
        assert!(matches!(load(&file), Err(KeyFileError::Text)), "no text at all");
    }
}
