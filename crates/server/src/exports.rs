//! What is exported, to whom, and as whom callers act there.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;

use remora_vfs::{Cred, FileId, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Fh, Status};
use siphasher::sip::SipHasher24;

use crate::auth::Caller;
use crate::handle::Signer;
use crate::{Network, Version};

/// The user and group number of nobody in particular, by custom.
pub const ANONYMOUS: u32 = 65534;

/// Which callers lose their identity on an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// User and group 0 become anonymous.
    #[default]
    Root,
    /// Everybody becomes anonymous.
    All,
    /// Nobody does.
    None,
}

/// A file system and how it is shared.
#[derive(Clone)]
pub struct Export {
    /// The paths it is mounted by, such as `/` or `/share`. The first one names it for good:
    /// handles hold its hash.
    pub names: Vec<String>,
    /// The files.
    pub vfs: Arc<dyn Vfs>,
    /// Refuse every change.
    pub read_only: bool,
    /// Which callers become anonymous.
    pub squash: Squash,
    /// User number of the anonymous.
    pub anon_uid: u32,
    /// Group number of the anonymous.
    pub anon_gid: u32,
    /// Who may use it; empty for everybody who reaches the server.
    pub allow: Vec<Network>,
}

impl Export {
    /// `vfs` under `name`, for everybody, writable, with root squashed.
    pub fn new(name: impl Into<String>, vfs: Arc<dyn Vfs>) -> Export {
        Export {
            names: vec![name.into()],
            vfs,
            read_only: false,
            squash: Squash::default(),
            anon_uid: ANONYMOUS,
            anon_gid: ANONYMOUS,
            allow: Vec::new(),
        }
    }

    /// Whether the client at `ip` may use it.
    pub fn allows(&self, ip: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|n| n.contains(ip))
    }

    /// As whom `caller` acts here.
    pub(crate) fn cred(&self, caller: &Caller) -> Cred {
        let anonymous = || Cred { uid: self.anon_uid, gid: self.anon_gid, gids: Vec::new() };
        let group = |gid: u32| if gid == 0 { self.anon_gid } else { gid };
        match (caller, self.squash) {
            (None, _) | (_, Squash::All) => anonymous(),
            (Some(c), Squash::None) => c.clone(),
            (Some(c), Squash::Root) if c.uid == 0 => anonymous(),
            (Some(c), Squash::Root) => {
                Cred { uid: c.uid, gid: group(c.gid), gids: c.gids.iter().copied().map(group).collect() }
            }
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("names", &self.names).field("read_only", &self.read_only).finish_non_exhaustive()
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
    signer: Signer,
}

/// An export and its number in handles.
pub(crate) struct Exported {
    pub(crate) id: u64,
    pub(crate) export: Export,
}

impl Exports {
    /// Serves `list`. Handles stay good across restarts while `key` and the exports' first
    /// names stay.
    pub fn new(list: Vec<Export>, key: &[u8; 16]) -> Result<Exports, ExportsError> {
        let mut seen: Vec<Vec<&str>> = Vec::new();
        for name in list.iter().flat_map(|e| &e.names) {
            let usable = name.starts_with('/') && name.len() <= mount::PATH_MAX as usize;
            let parts = components(name).filter(|_| usable).ok_or_else(|| ExportsError::BadName(name.clone()))?;
            if seen.contains(&parts) {
                return Err(ExportsError::Twice(name.clone()));
            }
            seen.push(parts);
        }
        let mut exports = Exports { list: Vec::with_capacity(list.len()), signer: Signer::new(key) };
        for export in list {
            let id = export_id(export.names.first().ok_or(ExportsError::NoName)?);
            if exports.list.iter().any(|e| e.id == id) {
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

    /// Whether there is anything here for the client at `ip`.
    pub fn any_allows(&self, ip: IpAddr) -> bool {
        self.iter().any(|e| e.allows(ip))
    }

    /// The export and object behind `fh`, for the client at `ip`.
    pub(crate) fn resolve(&self, fh: &Fh, ip: IpAddr) -> Result<(&Exported, FileId), Status> {
        let (id, file) = self.signer.verify(fh, self.list.iter().map(|e| e.id))?;
        let exported = self.list.iter().find(|e| e.id == id).ok_or(Status::Stale)?;
        if exported.export.allows(ip) { Ok((exported, file)) } else { Err(Status::Access) }
    }

    /// The handle of object `id` of `exported`, for clients of `version`.
    pub(crate) fn handle(&self, exported: &Exported, id: &FileId, version: Version) -> Fh {
        self.signer.sign(exported.id, id, version)
    }

    /// The export whose name is the longest head of `path`, and the components behind it.
    pub(crate) fn find<'p>(&self, path: &'p str) -> Option<(&Exported, Vec<&'p str>)> {
        let parts = components(path)?;
        let names = self.list.iter().flat_map(|e| e.export.names.iter().map(move |n| (e, n)));
        let heads = names.filter_map(|(e, n)| components(n).filter(|n| parts.starts_with(n)).map(|n| (e, n.len())));
        let (exported, len) = heads.max_by_key(|(_, len)| *len)?;
        Some((exported, parts.get(len..).unwrap_or_default().to_vec()))
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The parts of a path without empty ones and `.`; `None` if one of them is `..`.
fn components(path: &str) -> Option<Vec<&str>> {
    let parts = path.split('/').filter(|c| !c.is_empty() && *c != ".");
    parts.map(|c| (c != "..").then_some(c)).collect()
}

/// An export's number in handles: a hash with a fixed key, because it must never change.
fn export_id(name: &str) -> u64 {
    let mut h = SipHasher24::new_with_keys(0, 0);
    h.write(name.as_bytes());
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
            ("/a/../b", None),
            ("..", None),
        ] {
            let found = exports.find(path).map(|(e, rest)| (e.export.names[0].as_str(), rest));
            assert_eq!(found, want, "{path}");
        }
        assert!(Exports::new(vec![export("/a")], &[0; 16]).unwrap().find("/b").is_none());
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
    }

    #[test]
    fn squashing_takes_away_what_it_should_and_no_more() {
        let cred = |uid, gid, gids: &[u32]| Cred { uid, gid, gids: gids.to_vec() };
        let (root, user, nobody) = (cred(0, 0, &[0, 4]), cred(7, 0, &[4, 0]), cred(1, 2, &[]));
        for (squash, caller, want) in [
            (Squash::Root, Some(root.clone()), nobody.clone()),
            (Squash::Root, Some(user.clone()), cred(7, 2, &[4, 2])),
            (Squash::All, Some(user.clone()), nobody.clone()),
            (Squash::None, Some(root.clone()), root.clone()),
            (Squash::None, Some(user.clone()), user.clone()),
            (Squash::None, None, nobody.clone()),
            (Squash::Root, None, nobody.clone()),
        ] {
            let e = Export { squash, anon_uid: 1, anon_gid: 2, ..export("/") };
            assert_eq!(e.cred(&caller), want, "{squash:?} {caller:?}");
        }
    }
}
