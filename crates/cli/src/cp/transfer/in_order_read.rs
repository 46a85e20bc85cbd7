//! Reads a remote file in order.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use remora_host::client::{ClientError, download};
use remora_wire::nfs3::Fh;

use crate::remote::filesystem::Remote;
use crate::remote::listing::Node;

/// Bytes per step. Replies come in any order; this limits those that wait for an earlier one.
const STEP: u64 = 16 << 20;

/// Reads the file up to its size when it was found, or to its end. `take` gets the bytes in order. Returns the end.
pub(crate) async fn read(
    remote: &Remote,
    file: &Node,
    take: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<u64, ClientError> {
    read_range(remote, &file.fh, 0..file.attr.size, take).await
}

/// Reads a range of a file.
pub(crate) async fn read_range(
    remote: &Remote,
    fh: &Fh,
    range: Range<u64>,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<u64, ClientError> {
    let limits = remote.limits().await?;
    let mut at = range.start;
    while at < range.end {
        let step = at..range.end.min(at.saturating_add(STEP));
        let mut next = step.start;
        let mut early: BTreeMap<u64, Bytes> = BTreeMap::new();
        let sink = |offset, data| {
            early.insert(offset, data);
            while let Some(data) = early.remove(&next) {
                take(&data)?;
                next += data.len() as u64;
            }
            Ok(())
        };
        let end = download(remote.session(), fh.clone(), step.clone(), limits, sink).await?;
        if end < step.end {
            return Ok(end);
        }
        at = step.end;
    }
    Ok(range.end)
}
