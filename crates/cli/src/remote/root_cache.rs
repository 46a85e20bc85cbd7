//! Cache of root handles of distant servers, kept between runs.
//!
//! A command looks up files below the cached root while the mount is verified. The file is a hint only: errors and
//! wrong contents are ignored.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use remora_host::client::{KnownRoot, Session, Target};
use serde::{Deserialize, Serialize};

use crate::config::state_dir;

/// On shorter ways there is nothing to be gained.
const TRIP_MIN: Duration = Duration::from_millis(2);
/// RootCache remembered; those that were found last stay.
const ROOTS_MAX: usize = 64;
/// A day in seconds.
const DAY: u64 = 86_400;
/// A longer file is none of ours.
const BYTES_MAX: u64 = 64 << 10;

/// The cache file and its contents.
#[derive(Debug)]
pub(crate) struct RootCache {
    path: Option<PathBuf>,
}

/// Key: the mounted target and path.
type List = BTreeMap<String, CachedRoot>;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CachedRoot {
    known: KnownRoot,
    /// When it was found, in seconds since 1970.
    found: u64,
}

impl RootCache {
    /// Those of this user.
    pub(crate) fn of_user() -> RootCache {
        RootCache { path: state_dir::user_dir().map(|dir| dir.join("roots")) }
    }

    /// What `path` of this server was, and which of the paths that is: the first of which something is
    /// known.
    pub(crate) fn recall(&self, target: &Target, paths: &[String]) -> Option<(usize, KnownRoot)> {
        let list = self.load()?;
        paths.iter().enumerate().find_map(|(nth, path)| Some((nth, list.get(&key(target, path))?.known.clone())))
    }

    /// Stores the root of a mount. Errors are ignored.
    pub(crate) fn note(&self, target: &Target, path: &str, session: &Session) {
        let is_far = session.min_rtt().is_some_and(|trip| trip >= TRIP_MIN);
        let known = KnownRoot::of(session).filter(|_| is_far);
        let mut list = self.load().unwrap_or_default();
        let key = key(target, path);
        let found = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_new = |root: &CachedRoot| root.found.saturating_add(DAY) > found;
        // What is right is noted again now and then, so that what is used stays.
        if list.get(&key).map(|root| &root.known) == known.as_ref() && list.get(&key).is_none_or(is_new) {
            return;
        }
        match known {
            Some(known) => list.insert(key, CachedRoot { known, found }),
            None => list.remove(&key),
        };
        while list.len() > ROOTS_MAX {
            let oldest = list.iter().min_by_key(|(_, root)| root.found).map(|(key, _)| key.clone());
            list.remove(&oldest.unwrap_or_default());
        }
        let _ = self.store(&list);
    }

    fn load(&self) -> Option<List> {
        let path = self.path.as_ref()?;
        if fs::metadata(path).ok()?.len() > BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Replaces it. Of two that do so at once, one has its way.
    fn store(&self, list: &List) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(dir) = path.parent() {
            state_dir::make_private(dir)?;
        }
        let new = path.with_extension(format!("new-{}", std::process::id()));
        // One that is there already is left over, or another's.
        let _ = fs::remove_file(&new);
        // Private: a file handle grants access to its holder.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(&serde_json::to_vec(list)?).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// What a root is found by. Neither another port nor another transport need lead to the same server.
fn key(target: &Target, path: &str) -> String {
    let Target { host, port, mount_port, transport, .. } = target;
    format!("{host} {port:?} {mount_port:?} {transport:?} {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(n: u64) -> CachedRoot {
        let known = format!("{{\"server\":\"10.0.0.1:2049\",\"root\":[{n}]}}");
        CachedRoot { known: serde_json::from_str(&known).unwrap(), found: n }
    }

    #[test]
    fn longest_cached_path_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let roots = RootCache { path: Some(dir.path().join("state/roots")) };
        let target = Target::parse("nfs://server/").unwrap();
        let other = Target::parse("nfs://server:2050/").unwrap();
        assert_eq!(roots.recall(&target, &["/".into()]), None);
        let list: List = [(key(&target, "/"), root(1)), (key(&target, "/a"), root(2))].into();
        roots.store(&list).unwrap();
        let paths = ["/a/b", "/a", "/"].map(String::from);
        assert_eq!(roots.recall(&target, &paths), Some((1, root(2).known)));
        assert_eq!(roots.recall(&target, &paths[2..]), Some((0, root(1).known)));
        assert_eq!(roots.recall(&other, &paths), None);
        let path = roots.path.as_ref().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o777, 0o600);
        fs::write(path, b"{\"x\":").unwrap();
        assert_eq!(roots.recall(&target, &paths), None, "a torn file is none");
        assert_eq!(RootCache { path: None }.recall(&target, &paths), None);
    }
}
