//! Exports: their names, and the lookup of paths and handles.

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

/// A file system and its access rules.
#[derive(Clone)]
pub struct Export {
    /// The paths that clients mount, such as `/` or `/share`. Handles contain a hash of the first one, which must
    /// therefore never change. MOUNT's EXPORT lists the last one.
    pub names: Vec<String>,
    /// Further paths that clients can mount, which EXPORT does not list.
    pub unlisted: Vec<String>,
    pub vfs: Arc<dyn Vfs>,
    pub access: Access,
}

impl Export {
    /// Exports `vfs` under `name` to everybody, writable, with [`Squash::Root`](crate::Squash::Root).
    pub fn new(name: impl Into<String>, vfs: Arc<dyn Vfs>) -> Export {
        Export { names: vec![name.into()], unlisted: Vec::new(), vfs, access: Access::everybody(Terms::default()) }
    }

    /// All paths, listed or not.
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

/// An error in a list of exports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportsError {
    #[error("an export has no name")]
    NoName,
    /// A name that no client can mount.
    #[error("'{0}' cannot be an export's name: it must begin with '/', have no '..' in it and at most 1024 bytes")]
    BadName(String),
    /// Two exports with the same name.
    #[error("'{0}' is exported twice")]
    Twice(String),
}

/// All exports of a server, and the key that signs its handles.
pub struct Exports {
    list: Vec<Exported>,
    /// The index in the list, by name.
    names: Tree,
    signer: Signer,
}

/// An export and its number in handles.
pub(crate) struct Exported {
    pub(crate) id: u64,
    /// The first name.
    name: Arc<str>,
    pub(crate) export: Export,
}

impl Exports {
    /// Exports `list`. Handles stay valid across restarts while `key` and the exports' first names stay, in any
    /// spelling.
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
            exports.list.push(Exported { id, name: name.as_str().into(), export });
        }
        Ok(exports)
    }

    /// The exports in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.list.iter().map(|e| &e.export)
    }

    /// Whether requests from `from` may use any export.
    pub fn any_allows(&self, from: SocketAddr) -> bool {
        self.iter().any(|e| e.access.terms(from).is_some())
    }

    /// Whether the client at `ip` may use any export, from some port.
    pub(crate) fn any_is_for(&self, ip: IpAddr) -> bool {
        // Port 0 counts as reserved.
        self.any_allows(SocketAddr::new(ip, 0))
    }

    /// The export and object of `fh`, and the terms for requests from `from`.
    pub(crate) fn resolve(&self, fh: &Fh, from: SocketAddr) -> Result<(&Exported, &Terms, FileId), Status> {
        let (id, file) = self.signer.verify(fh, self.list.iter().map(|e| e.id))?;
        let exported = self.list.iter().find(|e| e.id == id).ok_or(Status::Stale)?;
        let terms = exported.export.access.terms(from).ok_or(Status::Access)?;
        Ok((exported, terms, file))
    }

    /// The first name of the export that `fh` belongs to.
    pub(crate) fn name_of(&self, fh: &Fh) -> Option<Arc<str>> {
        let (id, _) = self.signer.verify(fh, self.list.iter().map(|e| e.id)).ok()?;
        self.list.iter().find(|e| e.id == id).map(|exported| exported.name.clone())
    }

    /// Whether `call` names an export that requests from `from` may not use.
    pub(crate) fn refuses(&self, call: &Call, from: SocketAddr) -> bool {
        call.target().is_some_and(|fh| matches!(self.resolve(fh, from), Err(Status::Access)))
    }

    /// The handle of object `id`, for clients of `version`.
    pub(crate) fn handle(&self, exported: &Exported, id: &FileId, version: Version) -> Fh {
        self.signer.sign(exported.id, id, version)
    }

    /// Whether `path` is inside an export.
    pub(crate) fn exports(&self, path: &[u8]) -> bool {
        self.find(path).is_some()
    }

    /// The export with the longest name that is a prefix of `path`, and the remaining components.
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

/// An export's number in handles: a hash, with a fixed key, of the normalized name. It must never change.
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
    fn path_belongs_to_the_longest_export_prefix() {
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
    fn invalid_export_lists_are_refused() {
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
