//! What is exported, under which names, and the way from a handle or a path to it.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use remora_vfs::{FileId, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Call, Fh, Status};
use siphasher::sip::SipHasher24;

use crate::handle::Signer;
use crate::paths::{Tree, components, leads_up, plain_path};
use crate::{Access, Terms, Version};

/// A file system and how it is shared.
#[derive(Clone)]
pub struct Export {
    /// The paths it is mounted by, such as `/` or `/share`. The first one names it for good:
    /// handles hold its hash. The last one is told to who asks what is exported.
    pub names: Vec<String>,
    /// Further paths it is mounted by, which nobody is told.
    pub unlisted: Vec<String>,
    /// The files.
    pub vfs: Arc<dyn Vfs>,
    /// Who may use it, and on what terms.
    pub access: Access,
}

impl Export {
    /// `vfs` under `name`, for everybody, writable, with root squashed.
    pub fn new(name: impl Into<String>, vfs: Arc<dyn Vfs>) -> Export {
        Export { names: vec![name.into()], unlisted: Vec::new(), vfs, access: Access::everybody(Terms::default()) }
    }

    /// All paths it is mounted by.
    fn paths(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(&self.unlisted)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&String> = self.paths().collect();
        f.debug_struct("Export").field("paths", &paths).field("access", &self.access).finish_non_exhaustive()
    }
}

/// Why a list of exports cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportsError {
    /// An export without a name.
    #[error("an export has no name")]
    NoName,
    /// A name that no client could mount.
    #[error("'{0}' cannot be an export's name: it must begin with '/', have no '..' in it and at most 1024 bytes")]
    BadName(String),
    /// Two exports of the same name.
    #[error("'{0}' is exported twice")]
    Twice(String),
}

/// All that a server exports, and the key that signs its handles.
pub struct Exports {
    list: Vec<Exported>,
    /// Where in the list what is of each name.
    names: Tree,
    signer: Signer,
}

/// An export and its number in handles.
pub(crate) struct Exported {
    pub(crate) id: u64,
    pub(crate) export: Export,
}

impl Exports {
    /// Serves `list`. Handles stay good across restarts while `key` and the exports' first
    /// names stay, however these are spelt.
    pub fn new(list: Vec<Export>, key: &[u8; 16]) -> Result<Exports, ExportsError> {
        let mut names = Tree::default();
        for (n, name) in list.iter().enumerate().flat_map(|(n, e)| e.paths().map(move |name| (n, name))) {
            if !name.starts_with('/') || name.len() > mount::PATH_MAX as usize || leads_up(name.as_bytes()) {
                return Err(ExportsError::BadName(name.clone()));
            }
            if !names.insert(&components(name.as_bytes()), n) {
                return Err(ExportsError::Twice(name.clone()));
            }
        }
        let mut exports = Exports { list: Vec::with_capacity(list.len()), names, signer: Signer::new(key) };
        let mut ids = BTreeSet::new();
        for export in list {
            let name = export.names.first().ok_or(ExportsError::NoName)?;
            let id = export_id(name);
            if !ids.insert(id) {
                return Err(ExportsError::Twice(export.names.join(", ")));
            }
            exports.list.push(Exported { id, export });
        }
        Ok(exports)
    }

    /// The exports in the order they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.list.iter().map(|e| &e.export)
    }

    /// Whether there is anything here for requests from `from`.
    pub fn any_allows(&self, from: SocketAddr) -> bool {
        self.iter().any(|e| e.access.terms(from).is_some())
    }

    /// Whether there is anything here for the client at `ip`, from whichever port.
    pub(crate) fn any_is_for(&self, ip: IpAddr) -> bool {
        // Port 0 is a reserved one.
        self.any_allows(SocketAddr::new(ip, 0))
    }

    /// The export and object behind `fh`, and the terms for requests from `from`.
    pub(crate) fn resolve(&self, fh: &Fh, from: SocketAddr) -> Result<(&Exported, &Terms, FileId), Status> {
        let (id, file) = self.signer.verify(fh, self.list.iter().map(|e| e.id))?;
        let exported = self.list.iter().find(|e| e.id == id).ok_or(Status::Stale)?;
        let terms = exported.export.access.terms(from).ok_or(Status::Access)?;
        Ok((exported, terms, file))
    }

    /// Whether `call` is about an export that requests from `from` may not use.
    pub(crate) fn refuses(&self, call: &Call, from: SocketAddr) -> bool {
        call.target().is_some_and(|fh| matches!(self.resolve(fh, from), Err(Status::Access)))
    }

    /// The handle of object `id` of `exported`, for clients of `version`.
    pub(crate) fn handle(&self, exported: &Exported, id: &FileId, version: Version) -> Fh {
        self.signer.sign(exported.id, id, version)
    }

    /// Whether `path` lies in an export.
    pub(crate) fn exports(&self, path: &[u8]) -> bool {
        self.find(path).is_some()
    }

    /// The export whose name is the longest head of `path`, and the components behind it.
    pub(crate) fn find<'p>(&self, path: &'p [u8]) -> Option<(&Exported, Vec<&'p [u8]>)> {
        let parts = components(path);
        let (n, len) = self.names.longest_head(&parts)?;
        let exported = self.list.get(n)?;
        Some((exported, parts.get(len..).unwrap_or_default().to_vec()))
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An export's number in handles: a hash with a fixed key, because it must never change, of its name
/// in its plain spelling, because it is the same one in any other.
fn export_id(name: &str) -> u64 {
    let mut h = SipHasher24::new_with_keys(0, 0);
    h.write(&plain_path(name.as_bytes()));
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_vfs::MemFs;

    fn export(name: &str) -> Export {
        Export::new(name, Arc::new(MemFs::new(1)))
    }

    #[test]
    fn a_path_belongs_to_the_longest_name_that_heads_it() {
        let mut list = ["/", "/a/b", "/a"].map(export).to_vec();
        list[2].names.push("/other".into());
        list[2].unlisted.push("/hidden".into());
        let exports = Exports::new(list, &[0; 16]).unwrap();
        for (path, want) in [
            ("/", Some(("/", vec![]))),
            ("", Some(("/", vec![]))),
            ("/x/y", Some(("/", vec!["x", "y"]))),
            ("/a", Some(("/a", vec![]))),
            ("//a/./c/", Some(("/a", vec!["c"]))),
            ("/a/b/c", Some(("/a/b", vec!["c"]))),
            ("/ab", Some(("/", vec!["ab"]))),
            ("/other/z", Some(("/a", vec!["z"]))),
            ("/hidden/z", Some(("/a", vec!["z"]))),
            ("/a/../b", Some(("/", vec!["b"]))),
            ("/a/x/../y//", Some(("/a", vec!["y"]))),
            ("/a/b/..", Some(("/a", vec![]))),
            ("/a/b/../../ab/..", Some(("/", vec![]))),
            ("..", Some(("/", vec![]))),
        ] {
            let found = exports.find(path.as_bytes()).map(|(e, rest)| (e.export.names[0].as_str(), rest));
            let want = want.map(|(name, rest)| (name, rest.into_iter().map(str::as_bytes).collect::<Vec<_>>()));
            assert_eq!(found, want, "{path}");
        }
        let alone = Exports::new(vec![export("/a/b")], &[0; 16]).unwrap();
        for outside in ["/b", "/a/b/..", "/a/b/../..", "/a/b/../c", "/a/b/c/../.."] {
            assert!(alone.find(outside.as_bytes()).is_none(), "{outside}");
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let nameless = Export { names: vec![], ..export("/") };
        let refused = |list| Exports::new(list, &[0; 16]).err();
        assert_eq!(refused(vec![nameless]), Some(ExportsError::NoName));
        for bad in ["", "share", "/a/../b", &format!("/{}", "x".repeat(1024))] {
            assert_eq!(refused(vec![export(bad)]), Some(ExportsError::BadName(bad.into())));
        }
        assert_eq!(refused(vec![export("/a"), export("/a/")]), Some(ExportsError::Twice("/a/".into())));
        let hidden = Export { unlisted: vec!["/a".into()], ..export("/b") };
        assert_eq!(refused(vec![export("/a"), hidden]), Some(ExportsError::Twice("/a".into())));
    }
}
