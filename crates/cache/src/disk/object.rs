//! What the disk cache has of an object.

use std::collections::BTreeMap;
use std::ops::Range;

use remora_base::Time;

use crate::disk::job::{DiskJobId, DiskObject};
use crate::ranges::RangeSet;

/// What the disk cache has of an object, and what it is to get.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    pub(crate) load: Load,
    /// Data on disk that is as good as that in memory.
    pub(crate) ranges: RangeSet,
    /// Data of the saves in flight.
    pub(crate) saving: BTreeMap<DiskJobId, RangeSet>,
    /// When it is saved next.
    pub(crate) due: Option<Time>,
    /// The record on disk is not up to date.
    pub(crate) is_old: bool,
    /// Bytes that came since the last save.
    pub(crate) unsaved: u64,
    /// The disk has something of it.
    pub(crate) is_stored: bool,
}

/// The record on disk.
#[derive(Debug, Default)]
pub(crate) enum Load {
    /// It is used, or there is none.
    #[default]
    Done,
    InFlight,
    /// The server has not shown the object's attributes yet.
    Unconfirmed(Box<DiskObject>),
}

impl DiskState {
    /// Data that is on disk when all saves in flight are done.
    pub(crate) fn ranges_to_come(&self) -> RangeSet {
        let mut all = self.ranges.clone();
        self.saving.values().flat_map(RangeSet::iter).for_each(|range| all.insert(range));
        all
    }

    /// `range` of the file has other contents now, or none.
    pub(crate) fn overwrite(&mut self, range: Range<u64>) {
        self.saving.values_mut().for_each(|saving| saving.remove(range.clone()));
        self.ranges.remove(range);
        if let Load::Unconfirmed(_) = self.load {
            self.load = Load::Done;
        }
    }
}
