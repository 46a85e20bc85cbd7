//! The cache manager of the mount: names, attributes, file data, and write-back, between the kernel's FUSE protocol
//! and an NFSv3 server.
//!
//! [`Cache`] is a pure state machine. It takes decoded requests of the kernel ([`remora_wire::fuse`]) and replies of
//! the server ([`remora_wire::nfs3`]); it answers from memory what is new enough by the [`Policy`], and emits
//! [`Call`]s with priorities for the rest. Every WRITE is answered from memory and sent in the background; close(2) and
//! fsync(2) wait until the server has committed it or, by [`Writes::Back`], until the store on this machine has it:
//! [`StoreJob`]s leave for that.
//!
//! Read `cache` first, then `state` (how an operation waits), `needs`, `ops`, `learn` (which changes are not ours),
//! `data`, `writeback`, `dirty_store` (unsent data that survives a restart), `recovery`, `disk` (what can be fetched again
//! and survives a restart), `ahead`, `prefetch` and `hoard`.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod ahead;
mod cache;
mod call;
mod cancel;
mod change_effects;
mod change_log;
mod config;
mod conflict_copies;
mod conflict_name;
mod connectivity;
mod credentials;
mod data;
mod deferred_setattr;
mod dirty_store;
mod disconnection;
mod disk;
mod errno;
#[cfg(test)]
mod example;
mod extents;
mod foresight;
mod hoard;
mod kept;
mod learn;
mod needs;
mod node;
mod node_table;
mod ops;
mod path;
mod predict;
mod prefetch;
mod ranges;
mod read_grant;
mod recovery;
mod reintegration;
mod replies;
mod stat;
mod state;
mod store_job;
mod store_queue;
mod timers;
mod writeback;

pub use cache::{Cache, Held, Status, Unsent};
pub use call::{BulkRoom, Call, CallFailure, CallId, Priority, QueueLengths};
pub use change_log::record::{
    Binding, Conflict, ConflictId, ConflictKind, LogBatch, LogChange, LogName, LogNode, LogObject, LogRecord,
    LogStatus, RecordId, Replaced, SavedLog,
};
pub use config::{Config, LinkState, OfflineMiss, OfflinePolicy, Policy, Writes};
pub use connectivity::Connectivity;
pub use disk::job::{
    DiskChild, DiskDone, DiskGrant, DiskJob, DiskJobId, DiskName, DiskObject, DiskPart, DiskPin, DiskRecord, DiskWork,
};
pub use hoard::profile::{HOARD_PRIORITY_MAX, HOARD_PRIORITY_MIN, HoardEntry, HoardOwner, HoardPlan, NameGlob};
pub use hoard::status::{HoardMiss, HoardMissReason, HoardProgress, HoardStatus};
pub use hoard::usage::DirectoryUse;
pub use predict::{FileKey, Prediction, Predictor, PredictorConfig, PredictorStateError};
pub use state::Figures;
pub use store_job::{
    DirtyAttr, DirtyPart, DirtyRecord, ObjectId, Refusal, SavedObject, StoreJob, StoreJobId, StoreWork,
};
