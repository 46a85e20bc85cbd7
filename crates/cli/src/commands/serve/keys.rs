//! The server's keys: one signs handles, one is its ATP identity. The state directory may lie inside an export (a
//! home directory); the server hides it there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use remora_atp::session::Identity;
use remora_host::atp::keys;

use crate::commands::serve::flags::Serve;
use crate::config::{state_dir, state_version};
use crate::output::exit::{Error, Result, io_text};

/// Their files in the state directory.
const HANDLE_KEY: &str = "handle-key";
const ATP_KEY: &str = "atp.key";

/// What exports are opened with. The default signs nothing that is to be kept to oneself.
#[derive(Default)]
pub(crate) struct Keys {
    /// Secret that signs file handles.
    pub(crate) handles: [u8; 16],
    /// No client gets at these.
    pub(crate) closed: Vec<PathBuf>,
}

/// The keys; made at the first start. Clients' handles stay good for as long as theirs stays.
pub(crate) fn of(args: &Serve) -> Result<Keys> {
    let dir = state_dir(args)?;
    let handles = key(&dir)?;
    if args.atp.is_some() {
        // So that its file is there to be closed.
        identity(args)?;
    }
    // The files as well, of which clients may have handles from when nothing was closed.
    let files = [dir.join(HANDLE_KEY), dir.join(ATP_KEY)];
    // And where other commands keep theirs, whatever --state says.
    let usual: Vec<PathBuf> = usual_dir().into_iter().chain(state_dir::user_dir()).collect();
    for dir in usual.iter().filter(|dir| !is_in_foreign_home(dir)) {
        // Only what exists is closed: keys that another command makes later must find their directory there.
        // Without rights to make it the server starts nevertheless.
        let _ = state_dir::make_private(dir);
    }
    let others = args.atp_key.clone().into_iter().chain(keys::earlier_path());
    Ok(Keys { handles, closed: [dir].into_iter().chain(files).chain(usual).chain(others).collect() })
}

/// The state directory of who gives none.
fn usual_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() { Some(PathBuf::from("/var/lib/remora")) } else { state_dir::user_dir() }
}

/// Whether this is root with the home of other users (`sudo -E`), who could not use a directory that root makes there.
fn is_in_foreign_home(dir: &Path) -> bool {
    let nearest = dir.ancestors().find_map(|at| std::fs::metadata(at).ok());
    rustix::process::geteuid().is_root() && nearest.is_some_and(|at| at.uid() != 0 || at.mode() & 0o022 != 0)
}

fn state_dir(args: &Serve) -> Result<PathBuf> {
    match &args.state {
        Some(dir) => Ok(dir.clone()),
        None => usual_dir().ok_or_else(|| {
            Error::Usage("no home directory for the handle key: give a directory with --state DIR".into())
        }),
    }
}

fn key(dir: &Path) -> Result<[u8; 16]> {
    let path = dir.join(HANDLE_KEY);
    state_dir::make_private(dir).map_err(|e| {
        Error::refused(dir.display(), format!("{}; choose another directory with --state DIR", io_text(&e)))
    })?;
    state_dir::only_ours(dir).map_err(Error::local(dir.display()))?;
    state_version::check_and_note(dir)?;
    let fresh = random::<16>()?;
    let bytes = state_dir::secret(&path, &fresh).map_err(Error::local(path.display()))?;
    state_dir::sweep(&path);
    // Before the first handle is signed with it: a power cut would make all of them worthless.
    state_dir::settle(dir).map_err(Error::local(dir.display()))?;
    bytes.try_into().map_err(|_| {
        Error::refused(path.display(), "is not a key of 16 bytes; remove it, and remora creates a new one")
    })
}

/// Who the server is over ATP; made at the first start. Clients know it by that.
pub(crate) fn identity(args: &Serve) -> Result<Identity> {
    let path = match &args.atp_key {
        Some(path) => {
            state_dir::check_named(path)?;
            path.clone()
        }
        None => {
            let dir = state_dir(args)?;
            state_dir::make_private(&dir)
                .and_then(|()| state_dir::only_ours(&dir))
                .map_err(Error::local(dir.display()))?;
            dir.join(ATP_KEY)
        }
    };
    keys::load_or_create(&path).map_err(|e| Error::refused(path.display(), e.to_string()))
}

/// Bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::refused("no random numbers from the system", e.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_key_is_created_once_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = key(&state).unwrap();
        std::fs::write(state.join("handle-key.new-4294967295"), b"torn").unwrap();
        assert_eq!(key(&state).unwrap(), first);
        assert_eq!(
            std::fs::read_dir(&state).unwrap().count(),
            2,
            "a key and the version: what a run left that died is gone"
        );
        let mode = std::fs::metadata(state.join("handle-key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for mode in [0o666, 0o640, 0o602] {
            std::fs::set_permissions(state.join("handle-key"), std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(key(&state).unwrap_err().to_string().contains("handle-key: others can read"), "{mode:o}");
        }
        std::fs::set_permissions(state.join("handle-key"), std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(key(&state).unwrap(), first);
        std::fs::set_permissions(state.join("handle-key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        for mode in [0o707, 0o777] {
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(key(&state).unwrap_err().to_string().contains("others can write to it"), "{mode:o}");
        }
        for mode in [0o755, 0o775, 0o1777] {
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(key(&state).is_ok(), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&state, Some(5001), None).unwrap();
            let why = key(&state).unwrap_err().to_string();
            assert!(why.contains("state: belongs to user 5001, but remora runs as user 0: run chown 0 on it"), "{why}");
            std::os::unix::fs::chown(&state, Some(0), None).unwrap();
            std::os::unix::fs::chown(state.join("handle-key"), Some(5001), None).unwrap();
            assert!(key(&state).unwrap_err().to_string().contains("belongs to user 5001"));
            std::os::unix::fs::chown(state.join("handle-key"), Some(0), None).unwrap();
        }
        std::fs::write(state.join("handle-key"), b"short").unwrap();
        assert!(key(&state).unwrap_err().to_string().contains("16 bytes"));
    }
    #[test]
    fn key_path_of_a_pipe_is_refused_without_blocking() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let (pipe, folder) = (dir.path().join("pipe"), dir.path().join("folder"));
        for state in [&pipe, &folder] {
            state_dir::make_private(state).unwrap();
        }
        mknodat(CWD, pipe.join("handle-key"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::create_dir(folder.join("handle-key")).unwrap();
        for (state, what) in [(&pipe, "no regular file"), (&folder, "a directory")] {
            let why = key(state).unwrap_err().to_string();
            assert!(why.contains(&format!("handle-key: is {what}")), "{why}");
        }
    }
}
