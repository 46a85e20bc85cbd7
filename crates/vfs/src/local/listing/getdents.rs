//! Reads directory entries with getdents64(2).

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use remora_wire::nfs3::Status;
use rustix::fs::{RawDir, RawDirEntry, SeekFrom, seek};
use rustix::io::Errno;

use crate::local::sys::errors::OrStatus;
use crate::types::Result;

/// Bytes of entries per system call, some 300 entries.
const BATCH: usize = 16 * 1024;

/// Calls `each` with the entries after `cookie` until it returns false. Returns whether the directory's end was
/// reached.
pub(crate) fn scan(
    dir: impl AsFd,
    cookie: u64,
    mut each: impl FnMut(&RawDirEntry<'_>) -> Result<bool>,
) -> Result<bool> {
    seek(&dir, SeekFrom::Start(cookie)).map_err(|_| Status::BadCookie)?;
    let mut batch = vec![MaybeUninit::uninit(); BATCH];
    let mut entries = RawDir::new(dir, &mut batch);
    while let Some(entry) = entries.next() {
        match entry {
            // The kernel did not issue this cookie.
            Err(Errno::INVAL) if cookie != 0 => return Err(Status::BadCookie),
            entry => {
                if !each(&entry.nfs()?)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
