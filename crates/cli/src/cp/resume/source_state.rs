//! Identity and state of a source: whether it is still what a copy was begun of.
//!
//! A program can set the time of modification (mtime) back. It cannot set the time of change (ctime), but that is also
//! new after a change of mode, owner or name.

use std::fs;
use std::os::unix::fs::MetadataExt;

use remora_wire::nfs3::{Attr, NfsTime};
use serde::{Deserialize, Serialize};

use crate::output::exit::Error;

/// Seconds and nanoseconds.
type Instant = (i64, u32);

/// Identity and state of a source. If any field differs, a copy starts again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SourceIdentity {
    device: u64,
    file: u64,
    size: u64,
    mtime: Instant,
    ctime: Instant,
}

impl SourceIdentity {
    /// Of a file on a server.
    pub(crate) fn of_remote(attr: &Attr) -> SourceIdentity {
        let [mtime, ctime] = [attr.mtime, attr.ctime].map(|time| (i64::from(time.secs), time.nanos));
        SourceIdentity { device: attr.fsid, file: attr.fileid, size: attr.size, mtime, ctime }
    }

    /// Of a local file.
    pub(crate) fn of_local(meta: &fs::Metadata) -> SourceIdentity {
        let mtime = (meta.mtime(), meta.mtime_nsec() as u32);
        let ctime = (meta.ctime(), meta.ctime_nsec() as u32);
        SourceIdentity { device: meta.dev(), file: meta.ino(), size: meta.size(), mtime, ctime }
    }

    /// Bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether `copy` looks like a copy: same size and mtime. Some file systems keep whole seconds only.
    pub(crate) fn is_copied_by(&self, copy: &SourceIdentity) -> bool {
        let (mine, theirs) = (nearest(self.mtime.0, self.mtime.1), copy.mtime);
        let same_time = i64::from(mine.secs) == theirs.0 && (mine.nanos == theirs.1 || theirs.1 == 0);
        self.size == copy.size && same_time
    }
}

/// The nearest time that NFSv3 has: 1970 to 2106.
pub(crate) fn nearest(secs: i64, nanos: u32) -> NfsTime {
    match u32::try_from(secs) {
        Ok(secs) => NfsTime { secs, nanos },
        Err(_) => NfsTime { secs: if secs < 0 { 0 } else { u32::MAX }, nanos: 0 },
    }
}

/// Identity and attributes of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceState {
    identity: SourceIdentity,
    /// Mode, owner, group and link count: each of them explains a new ctime.
    attributes: (u32, u32, u32, u64),
}

impl SourceState {
    /// Of a file on a server.
    pub(crate) fn of_remote(attr: &Attr) -> SourceState {
        let attributes = (attr.mode, attr.uid, attr.gid, u64::from(attr.nlink));
        SourceState { identity: SourceIdentity::of_remote(attr), attributes }
    }

    /// Of a local file.
    pub(crate) fn of_local(meta: &fs::Metadata) -> SourceState {
        // A mode on a server has no file type.
        let attributes = (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.nlink());
        SourceState { identity: SourceIdentity::of_local(meta), attributes }
    }

    pub(crate) fn identity(&self) -> &SourceIdentity {
        &self.identity
    }

    pub(crate) fn change_to(&self, now: &SourceState) -> Change {
        let (was, is) = (&self.identity, &now.identity);
        if *is == *was {
            return Change::None;
        }
        if *is != (SourceIdentity { ctime: is.ctime, ..was.clone() }) {
            return Change::Content;
        }
        // A mode, an owner or a name explains a new ctime.
        if self.attributes == now.attributes { Change::Unclear } else { Change::None }
    }
}

/// Change of a source while it is copied, in order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    /// No change of content.
    None,
    /// A new ctime without explanation.
    Unclear,
    /// A new size or mtime.
    Content,
}

impl Change {
    /// The change after source and copy were compared and found equal, with the change `meanwhile`. An unexplained
    /// ctime before the comparison does not matter.
    pub(crate) fn compared(self, meanwhile: Change) -> Change {
        let before = if self == Change::Unclear { Change::None } else { self };
        before.max(meanwhile)
    }

    /// The error for a copy of `what`.
    pub(crate) fn error(self, what: impl std::fmt::Display) -> Option<Error> {
        match self {
            Change::None => None,
            Change::Unclear => Some(Error::perhaps_mixed(what)),
            Change::Content => Some(Error::mixed(what)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn source(size: u64, secs: i64) -> SourceIdentity {
        SourceIdentity { device: 1, file: 2, size, mtime: (secs, 5), ctime: (secs, 6) }
    }

    #[test]
    fn copy_is_recognised_by_size_and_mtime() {
        let a = source(100, 7);
        let copy = |nanos| SourceIdentity { device: 8, file: 8, size: 100, mtime: (7, nanos), ctime: (9, 9) };
        assert!(a.is_copied_by(&copy(5)) && a.is_copied_by(&copy(0)));
        assert!(!a.is_copied_by(&copy(6)));
        assert!(!a.is_copied_by(&source(99, 7)) && !a.is_copied_by(&source(100, 8)));
    }

    #[test]
    fn copy_with_time_outside_nfs_range_matches_the_nearest() {
        let copy = |mtime| SourceIdentity { device: 8, file: 8, size: 100, mtime, ctime: (9, 9) };
        let last = (i64::from(u32::MAX), 0);
        for (secs, nearest) in [(-1, (0, 0)), (-10_000, (0, 0)), (last.0 + 1, last), (i64::MAX, last)] {
            assert!(source(100, secs).is_copied_by(&copy(nearest)), "{secs}");
            assert!(!source(100, secs).is_copied_by(&copy((1, 0))), "{secs}");
        }
        assert!(source(100, last.0).is_copied_by(&copy((last.0, 5))) && source(100, 0).is_copied_by(&copy((0, 5))));
    }

    #[test]
    fn comparison_settles_an_earlier_unexplained_ctime_only() {
        use Change::{Content, None, Unclear};
        for (before, meanwhile, want) in [
            (None, None, None),
            (Unclear, None, None),
            (Content, None, Content),
            (None, Unclear, Unclear),
            (Unclear, Unclear, Unclear),
            (Unclear, Content, Content),
        ] {
            assert_eq!(before.compared(meanwhile), want, "{before:?}, {meanwhile:?}");
        }
    }

    #[test]
    fn new_ctime_is_explained_by_changed_attributes() {
        let was = SourceState { identity: source(100, 7), attributes: (0o644, 1, 1, 1) };
        let touched = SourceIdentity { ctime: (8, 6), ..source(100, 7) };
        let with = |identity: &SourceIdentity, attributes| SourceState { identity: identity.clone(), attributes };
        for (now, want) in [
            (was.clone(), Change::None),
            (with(&touched, (0o644, 1, 1, 1)), Change::Unclear),
            (with(&touched, (0o600, 1, 1, 1)), Change::None),
            (with(&touched, (0o644, 1, 1, 2)), Change::None),
            (with(&source(100, 8), (0o600, 1, 1, 1)), Change::Content),
            (with(&source(101, 7), (0o644, 1, 1, 1)), Change::Content),
        ] {
            assert_eq!(was.change_to(&now), want, "{now:?}");
        }
    }
}
