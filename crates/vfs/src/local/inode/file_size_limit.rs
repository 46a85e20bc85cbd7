//! How large a file may become on a disk.
//!
//! Linux keeps the bound (`s_maxbytes`: 4 TiB on ext4 with blocks of 1 KiB) to itself, but lets nobody
//! seek beyond it. Clients that are told of it refuse a write beyond at once, instead of when it is
//! flushed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SeekFrom, openat, seek};

/// The size in bytes, as a file without a name in `dir` shows it; `None` where there is no such file.
pub(crate) fn of(dir: impl AsFd) -> Option<u64> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    Some(greatest(|offset| seeks(&file, offset)))
}

fn seeks(file: &OwnedFd, offset: u64) -> bool {
    seek(file, SeekFrom::Start(offset)).is_ok()
}

/// The greatest number up to that of the largest offset which `fits`, where all below one that fits do.
fn greatest(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, i64::MAX as u64);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_found_wherever_it_is() {
        let end = i64::MAX as u64;
        for bound in [0, 1, 2, (1 << 32) - 1, 1 << 42, (1 << 42) + 4095, end - 1, end] {
            assert_eq!(greatest(|offset| offset <= bound), bound);
        }
    }
}
