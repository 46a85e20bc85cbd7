//! The result of work on an object, and what the walk lends to it.

use remora_base::Time;
use remora_wire::nfs3::Name;

use crate::credentials::Caller;
use crate::hoard::status::HoardMissReason;
use crate::hoard::walk_state::Visit;

/// How far an object is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A call or a disk job for it is in flight.
    Wait,
    /// Too many others are in flight.
    Starved,
    /// The disk cache has it, with so many bytes of data, and keeps it.
    There,
    Missing(HoardMissReason),
    /// It was removed meanwhile.
    Gone,
}

/// What a walk lends to the work on an object.
pub(crate) struct Work<'w> {
    pub(crate) began: Time,
    pub(crate) stamp: u64,
    pub(crate) caller: Caller,
    /// Bytes of data that may be asked for.
    pub(crate) room: u64,
    /// Bytes of the disk cache that nothing is planned for.
    pub(crate) disk_room: u64,
    /// Where the objects of a directory go, and names that are not there.
    pub(crate) found: &'w mut Vec<Visit>,
    pub(crate) lost: &'w mut Vec<(Name, HoardMissReason)>,
}
