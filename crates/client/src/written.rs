//! What a server says of a file while it is written: the attributes in WRITE's replies (RFC 1813, section 2.6).

use remora_wire::nfs3::Attr;

/// What the server said of a file while it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The greatest size it had, if any reply said.
    pub size: Option<u64>,
    /// The latest time of change (ctime) in seconds and nanoseconds, if every reply said one.
    pub changed: Option<(u32, u32)>,
}

impl Written {
    /// Takes what a WRITE's reply says; `first`: it is the first.
    pub(crate) fn take(&mut self, after: Option<&Attr>, first: bool) {
        self.size = self.size.max(after.map(|a| a.size));
        let known = if first { Some((0, 0)) } else { self.changed };
        self.changed = known.zip(after).map(|(known, a)| known.max(ctime(a)));
    }

    /// Whether `attr` are of after the last of it, by the server's clock.
    pub fn is_before(&self, attr: &Attr) -> bool {
        self.changed.is_some_and(|changed| changed < ctime(attr))
    }
}

/// When it was last changed, in seconds and nanoseconds.
pub(crate) fn ctime(attr: &Attr) -> (u32, u32) {
    (attr.ctime.secs, attr.ctime.nanos)
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;

    fn attr(secs: u32) -> Attr {
        let time = NfsTime { secs, nanos: 3 };
        let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
        let (mode, nlink, uid, gid, size, used, fsid, fileid) = (0o600, 1, 0, 0, 5, 0, 1, 2);
        let (atime, mtime, ctime) = (time, time, time);
        Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
    }

    #[test]
    fn the_latest_change_is_known_if_every_reply_told_one() {
        for (replies, changed) in [
            (vec![Some(attr(7)), Some(attr(6))], Some((7, 3))),
            (vec![Some(attr(7)), None, Some(attr(9))], None),
            (vec![None], None),
        ] {
            let mut written = Written::default();
            for (nth, reply) in replies.iter().enumerate() {
                written.take(reply.as_ref(), nth == 0);
            }
            assert_eq!(written.changed, changed, "{replies:?}");
            let later = [7, 8].map(|secs| written.is_before(&attr(secs)));
            assert_eq!(later, [false, changed.is_some()], "{replies:?}");
        }
    }
}
