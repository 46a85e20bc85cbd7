//! Attributes as the kernel wants them.

use std::time::Duration;

use remora_wire::fuse::{self, Entry, FileKind, Timestamp};
use remora_wire::nfs3::{FileType, NfsTime};

use crate::deferred_setattr;
use crate::node::NodeId;
use crate::state::State;

/// Preferred length of reads and writes that `stat` shows, in bytes.
const BLOCK_SIZE: u32 = 64 << 10;
/// Unit of allocated space that `stat` shows, in bytes.
const SECTOR: u64 = 512;

/// The attributes of an object, with local writes; zeros if none are known.
pub(crate) fn attr(state: &State, id: NodeId) -> fuse::Attr {
    let Some(node) = state.nodes.get(id) else { return fuse::Attr::default() };
    let Some(cached) = &node.attr else { return fuse::Attr::default() };
    let attr = &deferred_setattr::overlaid(node, &cached.attr);
    let size = node.size();
    let is_dirty = node.file.as_ref().is_some_and(|file| file.size.is_some());
    let now = state.server_time();
    let is_written = is_dirty && !deferred_setattr::has_mtime(node);
    let logged_mtime = node.logged.as_ref().and_then(|logged| logged.mtime);
    let shown_ctime = node.shown_ctime.or(logged_mtime).unwrap_or(attr.ctime);
    let (mtime, ctime) = match is_written {
        true => (now, now),
        false => (timestamp(logged_mtime.unwrap_or(attr.mtime)), timestamp(shown_ctime)),
    };
    let links = node.logged.as_ref().map_or(0, |logged| logged.links);
    let nlink = u32::try_from((i64::from(attr.nlink) + links).max(0)).unwrap_or(u32::MAX);
    fuse::Attr {
        ino: node.shown_fileid(),
        size,
        blocks: if is_dirty { attr.used.max(size) } else { attr.used }.div_ceil(SECTOR),
        atime: timestamp(attr.atime),
        mtime,
        ctime,
        mode: attr.mode & 0o7777 | kind(attr.kind).mode_bits(),
        nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device(attr.rdev.major, attr.rdev.minor),
        blksize: BLOCK_SIZE,
    }
}

/// An answer to LOOKUP and its relatives. The caller counts the reference.
pub(crate) fn entry(state: &State, id: NodeId) -> Entry {
    let valid = validity(state, id);
    Entry { nodeid: id.0, generation: 0, attr: attr(state, id), entry_valid: valid, attr_valid: valid }
}

/// How long the kernel may keep the attributes of an object.
pub(crate) fn validity(state: &State, id: NodeId) -> Duration {
    let asked = state.nodes.get(id).and_then(|node| node.attr.as_ref()).map(|cached| cached.asked);
    asked.map_or(Duration::ZERO, |asked| state.kernel_validity(asked, state.config.policy.stat))
}

pub(crate) fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::Regular => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Block => FileKind::BlockDevice,
        FileType::Char => FileKind::CharDevice,
        FileType::SymLink => FileKind::SymLink,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
    }
}

fn timestamp(time: NfsTime) -> Timestamp {
    Timestamp { secs: i64::from(time.secs), nanos: time.nanos.min(999_999_999) }
}

/// A device number as the kernel encodes it in FUSE (new_encode_dev).
fn device(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The major and minor number of a device.
pub(crate) fn device_numbers(rdev: u32) -> remora_wire::nfs3::SpecData {
    remora_wire::nfs3::SpecData { major: rdev >> 8 & 0xfff, minor: rdev & 0xff | rdev >> 12 & !0xff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_kernel_encoding() {
        for (major, minor) in [(0, 0), (8, 1), (1, 300), (0xfff, 0xfffff)] {
            let numbers = device_numbers(device(major, minor));
            assert_eq!((numbers.major, numbers.minor), (major, minor), "{major}:{minor}");
        }
    }
}
