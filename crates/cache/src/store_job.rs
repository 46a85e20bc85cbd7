//! Jobs for the store of unsent data, and the records in it.
//!
//! The store keeps what the server has not committed, so that it survives the end of this process and, after a barrier,
//! a loss of power. It executes jobs in their order.

use std::ops::Range;

use bytes::Bytes;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{Fh, SetAttr, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::change_log::record::LogBatch;

/// Identifies a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoreJobId(pub u64);

/// Identifies an object in the store. Never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectId(pub u64);

/// A job for the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreJob {
    pub id: StoreJobId,
    pub work: StoreWork,
}

/// What a job does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreWork {
    /// Writes the data, then the record, so that both survive the end of the process.
    Save { record: Box<DirtyRecord>, data: Vec<DirtyPart> },
    /// Forgets an object, because the server has it.
    Remove(ObjectId),
    /// Changes the log so that the change survives the end of the process.
    Log(Box<LogBatch>),
    /// Makes all that was saved before survive a loss of power.
    Barrier,
}

/// Written data at an offset of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyPart {
    pub offset: u64,
    pub data: Bytes,
}

/// Attributes that were changed after the data, and the credential that changes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyAttr {
    pub set: SetAttr,
    pub credential: AuthUnix,
}

/// What the server lacks of a file, without the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirtyRecord {
    pub object: ObjectId,
    pub fh: Fh,
    pub fileid: u64,
    /// Path from the mounted directory, for people.
    pub path: Vec<u8>,
    /// Size in bytes with the local writes.
    pub size: u64,
    /// Ranges that the server may lack.
    pub ranges: Vec<Range<u64>>,
    /// Size in bytes to which the server's file is cut before the data is sent.
    pub cut: Option<u64>,
    /// Attributes of the server's file when they were last seen.
    pub before: Option<WccAttr>,
    /// Credential of the last writer.
    pub credential: AuthUnix,
    pub attr: Option<DirtyAttr>,
    pub refusal: Option<Refusal>,
}

/// An object as the store returns it after a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedObject {
    pub record: DirtyRecord,
    pub data: Vec<DirtyPart>,
}

/// Why data is kept and not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another client changed the file before the data was sent.
    Changed,
    /// The server refused it with this error.
    Refused(Errno),
}
