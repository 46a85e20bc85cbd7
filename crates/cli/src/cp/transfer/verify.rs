//! `--verify`: comparison of source and copy.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use remora_host::client::ClientError;
use rustix::fs::{Advice, fadvise};

use crate::config::units;
use crate::cp::resume::byte_ranges::ByteRanges;
use crate::cp::transfer::in_order_read;
use crate::cp::ui::job::Job;
use crate::cp::ui::progress::Progress;
use crate::remote::filesystem::Remote;
use crate::remote::listing::Node;

/// Block in which differences are found and copied again, in bytes.
const BLOCK: u64 = 16 << 10;
/// How often differences are copied again.
pub(crate) const AGAIN_MAX: u32 = 3;
/// Largest number of differing blocks that are copied again.
const PLACES_MAX: u64 = 1 << 16;

/// Whether a local and a remote file have the same content.
pub(crate) async fn same(progress: &Progress, local: &File, remote: &Remote, node: &Node) -> Result<bool, ClientError> {
    let found = differing(progress, local, remote, node, all(node)).await?;
    Ok(found.is_some_and(|found| found.is_empty()))
}

/// The whole file.
pub(crate) fn all(node: &Node) -> Vec<Range<u64>> {
    Some(0..node.attr.size).into_iter().filter(|range| !range.is_empty()).collect()
}

/// Differing ranges within `ranges`; `None` if the files cannot be mended.
pub(crate) async fn differing(
    progress: &Progress,
    local: &File,
    remote: &Remote,
    node: &Node,
    ranges: Vec<Range<u64>>,
) -> Result<Option<Vec<Range<u64>>>, ClientError> {
    if local.metadata()?.len() != node.attr.size {
        return Ok(None);
    }
    progress.expect_comparison(ranges.iter().map(|range| range.end - range.start).sum());
    // Compares the disk, not the page cache; best effort.
    let _ = fadvise(local, 0, None, Advice::DontNeed);
    let (mut found, mut places, mut here) = (ByteRanges::default(), 0, Vec::new());
    for range in ranges {
        let mut at = range.start;
        let compare = |there: &[u8]| {
            here.resize(there.len(), 0);
            if !is_read(local, &mut here, at)? || here != there {
                places += u64::from(mark(&mut found, &here, there, at));
            }
            at += there.len() as u64;
            progress.compare(there.len() as u64);
            Ok(())
        };
        let end = in_order_read::read_range(remote, &node.fh, range.clone(), compare).await?;
        if end < range.end || places > PLACES_MAX {
            return Ok(None);
        }
    }
    // Blocks may end after the file.
    Ok(Some(found.within(node.attr.size)))
}

/// Adds the differing blocks to `found`; returns their number.
fn mark(found: &mut ByteRanges, here: &[u8], there: &[u8], at: u64) -> u32 {
    let mut places = 0;
    // Blocks are aligned, whatever pieces arrive.
    let (mut from, end) = (at, at + there.len() as u64);
    while from < end {
        let next = (from / BLOCK + 1) * BLOCK;
        let piece = (from - at) as usize..(next.min(end) - at) as usize;
        if here.get(piece.clone()) != there.get(piece) {
            found.insert(next - BLOCK..next);
            places += 1;
        }
        from = next;
    }
    places
}

/// Fills `to` from `at`; `false` at the end of the file.
fn is_read(file: &File, to: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(to, at) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Prints that these ranges of `what` are copied again.
pub(crate) fn tell(job: &Job, what: &str, ranges: &[Range<u64>]) {
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let bytes = units::human(bytes);
    job.note(&format!("{what}: the copy differs from its source; copying {bytes} again"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_marked_in_whole_blocks() {
        let there = vec![0; 3 * BLOCK as usize];
        for (at, wrong, want) in [
            (0, &[5][..], 0..BLOCK),
            (0, &[BLOCK as usize - 1, BLOCK as usize], 0..2 * BLOCK),
            (BLOCK / 2, &[0], 0..BLOCK),
            (BLOCK / 2, &[BLOCK as usize], BLOCK..2 * BLOCK),
            (7 * BLOCK, &[2 * BLOCK as usize], 9 * BLOCK..10 * BLOCK),
        ] {
            let mut here = there.clone();
            wrong.iter().for_each(|i| here[*i] = 1);
            let mut found = ByteRanges::default();
            assert!(mark(&mut found, &here, &there, at) > 0);
            assert_eq!(found.within(u64::MAX), Vec::from_iter(Some(want)), "{at}, {wrong:?}");
        }
        let mut none = ByteRanges::default();
        assert_eq!(mark(&mut none, &there, &there, 5), 0);
        assert_eq!(none.within(u64::MAX), []);
    }
}
