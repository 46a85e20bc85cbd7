//! What a file has beside its data until the server has committed it: its state in the store of unsent data, changes of
//! attributes that follow the data, and the look at the server after a restart.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use remora_base::Time;
use remora_wire::nfs3::{Attr, SetAttr, SetTime, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::ranges::RangeSet;
use crate::store_job::{ObjectId, StoreJobId};

/// What the store of unsent data has of a file.
#[derive(Debug, Default)]
pub(crate) struct KeptState {
    /// Its record there, if there is one or one is being made.
    pub(crate) object: Option<ObjectId>,
    /// Path in the record, from an earlier run.
    pub(crate) path: Vec<u8>,
    /// Written here and not in the store.
    pub(crate) unsaved: RangeSet,
    /// The record in the store is not up to date.
    pub(crate) is_record_old: bool,
    /// The save in flight.
    pub(crate) saving: Option<StoreJobId>,
    /// Ranges that the save in flight writes.
    pub(crate) saving_ranges: RangeSet,
    /// The last save failed.
    pub(crate) has_failed: bool,
    /// The record that the file had before, whose removal may be lost with the power.
    pub(crate) removed: Option<ObjectId>,
    /// When the file is saved at the latest.
    pub(crate) save_at: Option<Time>,
    /// Number of the last save that the store has done.
    pub(crate) saved: u64,
    /// Attributes that the server showed before the first WRITE that it has not committed.
    pub(crate) committed: Option<WccAttr>,
    /// Requests that wait until the file is saved.
    pub(crate) waiters: BTreeSet<u64>,
}

impl KeptState {
    /// Whether the store has everything.
    pub(crate) fn is_saved(&self) -> bool {
        self.unsaved.is_empty() && !self.is_record_old && self.saving.is_none()
    }

    /// Whether the server must not get newer data yet: after a crash the record of the store would look like a change by
    /// somebody else, or be sent again over the newer data.
    pub(crate) fn is_behind(&self) -> bool {
        self.object.is_some() && !self.has_failed && !self.is_saved()
    }

    /// Whether [`is_behind`](KeptState::is_behind) concerns these bytes.
    pub(crate) fn lacks(&self, range: &Range<u64>) -> bool {
        self.is_behind() && (self.unsaved.overlaps(range) || self.saving_ranges.overlaps(range))
    }
}

/// A change that follows the data.
#[derive(Clone, Debug)]
pub(crate) struct DeferredSetAttr {
    pub(crate) set: SetAttr,
    pub(crate) auth: Arc<AuthUnix>,
    /// When it is sent at the latest.
    pub(crate) at: Time,
}

/// `later` on top of `earlier`.
pub(crate) fn merged(earlier: &SetAttr, later: &SetAttr) -> SetAttr {
    let time = |later: SetTime, earlier: SetTime| if later == SetTime::Keep { earlier } else { later };
    SetAttr {
        mode: later.mode.or(earlier.mode),
        uid: later.uid.or(earlier.uid),
        gid: later.gid.or(earlier.gid),
        size: later.size.or(earlier.size),
        atime: time(later.atime, earlier.atime),
        mtime: time(later.mtime, earlier.mtime),
    }
}

/// A look at the server's file, before data from an earlier run is sent.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Attributes of the server's file when they were last seen.
    pub(crate) before: Option<WccAttr>,
    /// Changes made here may have been executed since; otherwise every difference is another client's.
    pub(crate) may_be_ours: bool,
    /// The server's attributes now.
    pub(crate) attr: Option<(Attr, Time)>,
    /// READs in flight.
    pub(crate) reading: u32,
    pub(crate) is_different: bool,
    /// A READ got no reply.
    pub(crate) is_unknown: bool,
}

impl Check {
    /// A look at a file that had these attributes.
    pub(crate) fn of(before: Option<WccAttr>, may_be_ours: bool) -> Check {
        Check { before, may_be_ours, attr: None, reading: 0, is_different: false, is_unknown: false }
    }
}
