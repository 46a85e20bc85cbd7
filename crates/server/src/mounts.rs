//! MOUNT's lists of exports and of mounts (RFC 1813, appendix I). The list of mounts is for people to read: clients
//! that crash leave their entries behind, so nothing may depend on it.

use std::collections::VecDeque;
use std::net::IpAddr;

use bytes::Bytes;
use remora_wire::mount::{self, MountEntry};

use crate::paths::plain_path;
use crate::{Clients, Exports, Rule};

/// The list of mounts. A full list drops its oldest entry.
#[derive(Debug)]
pub(crate) struct Mounts {
    list: VecDeque<(IpAddr, Bytes)>,
    max: usize,
    bytes: usize,
}

/// The bytes that an entry takes in addition to its path.
const LINE_OVERHEAD: usize = size_of::<(IpAddr, Bytes)>() + 32;

impl Mounts {
    /// An empty list of at most `max` entries.
    pub(crate) fn new(max: usize) -> Mounts {
        Mounts { list: VecDeque::new(), max, bytes: 0 }
    }

    /// Adds an entry. The path is normalized: a client with a thousand spellings of one directory must not push all
    /// other entries out.
    pub(crate) fn add(&mut self, ip: IpAddr, path: &[u8]) {
        // A path that gets too long by its slash would make the whole list undecodable.
        let fits = |path: &Vec<u8>| path.len() <= mount::PATH_MAX as usize;
        let Some(path) = Some(plain_path(path)).filter(fits).map(Bytes::from) else { return };
        if self.list.iter().any(|(i, p)| *i == ip && *p == path) {
            return;
        }
        self.bytes += LINE_OVERHEAD + path.len();
        self.list.push_back((ip, path));
        while self.list.len() > self.max {
            self.bytes -= self.list.pop_front().map_or(0, |(_, p)| LINE_OVERHEAD + p.len());
        }
    }

    /// Removes the entry of `path`, or all entries of `ip` without a path.
    pub(crate) fn remove(&mut self, ip: IpAddr, path: Option<&[u8]>) {
        let is_meant = |p: &Bytes| path.is_none_or(|path| *p == plain_path(path));
        self.list.retain(|(i, p)| *i != ip || !is_meant(p));
        self.count();
    }

    fn count(&mut self) {
        self.bytes = self.list.iter().map(|(_, p)| LINE_OVERHEAD + p.len()).sum();
    }

    /// Removes the entries whose path fails `keep`.
    pub(crate) fn keep(&mut self, keep: impl Fn(&Bytes) -> bool) {
        self.list.retain(|(_, path)| keep(path));
        self.count();
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = MountEntry> {
        self.list.iter().map(|(ip, dir)| MountEntry { host: ip.to_string().into(), dir: dir.clone() })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// MOUNT's list of exports: each under its last name only, because clients that mount everything below the mounted
/// path (libnfs) must not meet an export twice.
pub(crate) fn export_list(exports: &Exports) -> impl Iterator<Item = mount::Export> {
    exports.iter().filter_map(|e| {
        let dir = e.names.last()?.clone().into();
        Some(mount::Export { dir, groups: groups(e.access.rules()) })
    })
}

/// The clients that the rules name. Empty if the only rule is for everybody.
fn groups(rules: &[Rule]) -> Vec<Bytes> {
    match rules {
        [Rule { clients: Clients::Everybody, .. }] => Vec::new(),
        _ => rules.iter().map(|r| r.clients.to_string().into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_single_bounded_and_removable() {
        let mut m = Mounts::new(3);
        let [a, b]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|s| s.parse().unwrap());
        let lines = |m: &Mounts| m.entries().map(|e| (e.host, e.dir)).collect::<Vec<_>>();
        for (ip, path) in [(a, "/x"), (a, "/x"), (a, "/./x/"), (a, "/y"), (a, "/z/../y"), (b, "/x")] {
            m.add(ip, path.as_bytes());
        }
        assert_eq!(lines(&m).len(), 3);
        m.add(b, b"/z/./");
        assert_eq!(
            lines(&m),
            [("10.0.0.1", "/y"), ("10.0.0.2", "/x"), ("10.0.0.2", "/z")].map(|(h, d)| (h.into(), d.into()))
        );
        m.remove(b, Some(b"//x"));
        assert_eq!(lines(&m).len(), 2);
        m.keep(|path| path != "/z");
        assert_eq!(lines(&m), [("10.0.0.1".into(), "/y".into())]);
        m.remove(b, None);
        m.remove(a, None);
        assert_eq!((lines(&m).len(), m.bytes()), (0, 0));
    }
}
