//! Which file it is, and in which state: what tells whether it is still what a copy was begun of.
//!
//! The time of modification (mtime) can be set back by who changes a file, and some programs do. The time of change
//! (ctime) cannot; but it is new, too, when a mode, an owner or a name is.

use std::fs;
use std::os::unix::fs::MetadataExt;

use remora_wire::nfs3::{Attr, NfsTime};
use serde::{Deserialize, Serialize};

use crate::exit::Error;

/// Seconds and nanoseconds.
type Instant = (i64, u32);

/// Which file, in which state: if any of it differs, a copy cannot go on.
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

    /// Of a file here.
    pub(crate) fn of_local(meta: &fs::Metadata) -> SourceIdentity {
        let mtime = (meta.mtime(), meta.mtime_nsec() as u32);
        let ctime = (meta.ctime(), meta.ctime_nsec() as u32);
        SourceIdentity { device: meta.dev(), file: meta.ino(), size: meta.size(), mtime, ctime }
    }

    /// Bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether `copy`, whose time was set to this one's, still looks like a copy of it. Times of change are never
    /// the same.
    pub(crate) fn is_copied_by(&self, copy: &SourceIdentity) -> bool {
        self.size == copy.size && self.has_dated(copy)
    }

    /// Whether `copy` has the time that was set when it was this one's copy. Some file systems keep whole
    /// seconds only.
    pub(crate) fn has_dated(&self, copy: &SourceIdentity) -> bool {
        let (mine, theirs) = (nearest(self.mtime), copy.mtime);
        i64::from(mine.secs) == theirs.0 && (mine.nanos == theirs.1 || theirs.1 == 0)
    }
}

/// What a copy on a server gets for a time. NFSv3 counts seconds from 1970 to 2106.
pub(crate) fn nearest((secs, nanos): Instant) -> NfsTime {
    match u32::try_from(secs) {
        Ok(secs) => NfsTime { secs, nanos },
        Err(_) => NfsTime { secs: if secs < 0 { 0 } else { u32::MAX }, nanos: 0 },
    }
}

/// A file's identity, and what may be new of it without a new content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceState {
    identity: SourceIdentity,
    /// Mode, owner, group and number of names. What sets one of them sets the time of change.
    attributes: (u32, u32, u32, u64),
}

impl SourceState {
    /// Of a file on a server.
    pub(crate) fn of_remote(attr: &Attr) -> SourceState {
        let attributes = (attr.mode, attr.uid, attr.gid, u64::from(attr.nlink));
        SourceState { identity: SourceIdentity::of_remote(attr), attributes }
    }

    /// Of a file here.
    pub(crate) fn of_local(meta: &fs::Metadata) -> SourceState {
        // On a server a mode is without what kind of file it is.
        let attributes = (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.nlink());
        SourceState { identity: SourceIdentity::of_local(meta), attributes }
    }

    pub(crate) fn identity(&self) -> &SourceIdentity {
        &self.identity
    }

    /// What has become of it, now that it is like this.
    pub(crate) fn change_to(&self, now: &SourceState) -> Change {
        let (was, is) = (&self.identity, &now.identity);
        if *is == *was {
            return Change::None;
        }
        if *is != (SourceIdentity { ctime: is.ctime, ..was.clone() }) {
            return Change::Content;
        }
        // A mode, an owner or a name explains a new time of change.
        if self.attributes == now.attributes { Change::Unclear } else { Change::None }
    }
}

/// What became of a source while it was copied; the last is the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    /// Nothing that matters.
    None,
    /// It has a new time of change, and nothing says why.
    Unclear,
    /// Its size or time of modification is another.
    Content,
}

impl Change {
    /// The same, now that source and copy were compared and found equal, and this has become of the source since that
    /// began: what it was when they were compared counts only if it is that still.
    pub(crate) fn compared(self, meanwhile: Change) -> Change {
        let before = if self == Change::Unclear { Change::None } else { self };
        before.max(meanwhile)
    }

    /// What is to be said of a copy of `what`.
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
    fn copies_are_recognised_by_size_and_time() {
        let a = source(100, 7);
        let copy = |nanos| SourceIdentity { device: 8, file: 8, size: 100, mtime: (7, nanos), ctime: (9, 9) };
        assert!(a.is_copied_by(&copy(5)) && a.is_copied_by(&copy(0)));
        assert!(!a.is_copied_by(&copy(6)));
        assert!(!a.is_copied_by(&source(99, 7)) && !a.is_copied_by(&source(100, 8)));
    }

    #[test]
    fn copies_of_what_nfs_has_no_time_for_are_recognised_by_the_nearest() {
        let copy = |mtime| SourceIdentity { device: 8, file: 8, size: 100, mtime, ctime: (9, 9) };
        let last = (i64::from(u32::MAX), 0);
        for (secs, nearest) in [(-1, (0, 0)), (-10_000, (0, 0)), (last.0 + 1, last), (i64::MAX, last)] {
            assert!(source(100, secs).is_copied_by(&copy(nearest)), "{secs}");
            assert!(!source(100, secs).is_copied_by(&copy((1, 0))), "{secs}");
        }
        assert!(source(100, last.0).is_copied_by(&copy((last.0, 5))) && source(100, 0).is_copied_by(&copy((0, 5))));
    }

    #[test]
    fn a_comparison_settles_what_was_before_it_only() {
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
    fn a_new_time_of_change_is_explained_or_not() {
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
