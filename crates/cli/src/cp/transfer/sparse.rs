//! Holes of a local file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::cp::resume::byte_ranges::ByteRanges;

/// Shortest hole in bytes that is left out.
const BYTES_MIN: u64 = 64 << 10;
/// Largest number of holes that are left out.
const COUNT_MAX: usize = 1 << 16;
/// Unit of `st_blocks` in bytes.
const BLOCK: u64 = 512;

/// Holes in the first `size` bytes; none where the file system reports none.
pub(crate) fn of(file: &File, size: u64) -> ByteRanges {
    let mut holes = ByteRanges::default();
    // Most files have none and are not searched.
    if !file.metadata().is_ok_and(|meta| meta.blocks().saturating_mul(BLOCK) < size) {
        return holes;
    }
    let (mut at, mut count) = (0, 0);
    while at < size && count < COUNT_MAX {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            // No data follows.
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
        // Another program may change the file: each step moves on.
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
            // The file system has no holes.
            return;
        }
        assert_eq!(of(&file, 8 * MIB).missing(8 * MIB), [], "all of it");
        file.write_all_at(&[7; 100], 3 * MIB).unwrap();
        let [data] = &of(&file, 8 * MIB).missing(8 * MIB)[..] else { panic!("one at each end") };
        assert!(data.start <= 3 * MIB && data.end >= 3 * MIB + 100 && data.end - data.start <= BYTES_MIN, "{data:?}");
        // The last hole ends at the given size.
        assert_eq!(of(&file, 5 * MIB).end(), 5 * MIB);
    }

    #[test]
    fn file_without_gaps_has_no_holes() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 300_000], 0).unwrap();
        assert_eq!(of(&file, 300_000), ByteRanges::default());
    }
}
