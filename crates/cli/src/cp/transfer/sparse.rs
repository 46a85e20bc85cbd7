//! Holes of a file here: what reads as zeros and takes no room on the disk.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::cp::resume::byte_ranges::ByteRanges;

/// Shorter ones are copied like all else: they save less than they take to tell.
const BYTES_MIN: u64 = 64 << 10;
/// So many are told; what lies behind the last of them is copied like all else.
const COUNT_MAX: usize = 1 << 16;
/// Blocks of this many bytes are what stat(2) counts in, whatever the disk's are.
const BLOCK: u64 = 512;

/// The holes in the file's first `size` bytes; none where its file system tells of none.
pub(crate) fn of(file: &File, size: u64) -> ByteRanges {
    let mut holes = ByteRanges::default();
    // Hardly any file has one, and those that have none are not searched.
    if !file.metadata().is_ok_and(|meta| meta.blocks().saturating_mul(BLOCK) < size) {
        return holes;
    }
    let (mut at, mut count) = (0, 0);
    while at < size && count < COUNT_MAX {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            // There is none any more.
            Err(Errno::NXIO) => size,
            Err(_) => return holes,
        };
        if data.saturating_sub(at) >= BYTES_MIN {
            holes.insert(at..data);
            count += 1;
        }
        if data >= size {
            return holes;
        }
        // A file that another program changes may be a maze: each step leads on.
        at = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole.max(data + 1),
            Err(_) => return holes,
        };
    }
    holes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_found_where_the_file_system_has_them() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        if file.metadata().unwrap().blocks() > 0 {
            // It has no holes.
            return;
        }
        assert_eq!(of(&file, 8 * MIB).missing(8 * MIB), [], "all of it");
        file.write_all_at(&[7; 100], 3 * MIB).unwrap();
        let [data] = &of(&file, 8 * MIB).missing(8 * MIB)[..] else { panic!("one at each end") };
        assert!(data.start <= 3 * MIB && data.end >= 3 * MIB + 100 && data.end - data.start <= BYTES_MIN, "{data:?}");
        // The last one ends where it is told that the file does.
        assert_eq!(of(&file, 5 * MIB).end(), 5 * MIB);
    }

    #[test]
    fn what_is_full_has_none() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 300_000], 0).unwrap();
        assert_eq!(of(&file, 300_000), ByteRanges::default());
    }
}
