//! Jobs for the disk cache, and the records in it.
//!
//! The disk cache keeps what can be fetched again. It executes jobs in their order, and may drop any object at any time.

use std::ops::Range;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, Fh, Name};

/// Identifies a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiskJobId(pub u64);

/// A job for the disk cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskJob {
    pub id: DiskJobId,
    /// Handle of the object that the job is about.
    pub fh: Fh,
    pub work: DiskWork,
}

/// What a job does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskWork {
    /// Replaces the record, drops the data outside `kept`, and adds `data`, all or nothing. Without a record the data is
    /// of use only until the end of the process.
    Save { record: Option<Box<DiskRecord>>, kept: Vec<Range<u64>>, data: Vec<DiskPart> },
    /// Returns the object.
    Load,
    /// Returns the data in the range that is there and undamaged.
    Read(Range<u64>),
    /// Drops the object.
    Remove,
    /// Evicts the object after all that is not pinned, and returns what is there. The number says which pins belong together.
    Pin(u64),
    /// Unpins all objects but those of this number. The job's handle does not matter.
    Unpin { all_but: u64 },
}

/// The result of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskDone {
    /// Of [`DiskWork::Save`], [`DiskWork::Remove`] and [`DiskWork::Unpin`].
    Changed,
    Loaded(Option<Box<DiskObject>>),
    Read(Vec<DiskPart>),
    /// What there is of a pinned object; `None` without a record.
    Pinned(Option<DiskPin>),
    /// The disk cache cannot be used any more.
    Failed,
}

/// Data at an offset of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPart {
    pub offset: u64,
    pub data: Bytes,
}

/// What the disk cache has of a pinned object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPin {
    /// Ranges of the file's data.
    pub ranges: Vec<Range<u64>>,
    /// Bytes that it takes.
    pub bytes: u64,
}

/// An object as the disk cache has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskObject {
    pub record: DiskRecord,
    /// Ranges of the file's data.
    pub ranges: Vec<Range<u64>>,
}

/// What is known of an object beside its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRecord {
    /// Attributes to which all else belongs.
    pub attr: Attr,
    /// All names of a directory; `None` where some may be missing.
    pub names: Option<Vec<DiskName>>,
    pub grants: Vec<DiskGrant>,
    pub link_target: Option<Bytes>,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskName {
    pub name: Name,
    pub fileid: u64,
    /// The handle and the last known attributes; `None` if a listing showed the name alone.
    pub child: Option<DiskChild>,
}

/// The object of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskChild {
    pub fh: Fh,
    pub attr: Attr,
}

/// An answer to ACCESS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskGrant {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// `ACCESS_*` bits that the server was asked about.
    pub tested: u32,
    pub granted: u32,
}
