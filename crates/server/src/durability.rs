//! Which changes must be on stable storage before the reply.
//!
//! RFC 1813, section 4.8, requires it for every change except UNSTABLE WRITEs. Some servers leave names and
//! attributes to the system's write-back, which is faster; an operator may accept that risk here, too.

use remora_wire::nfs3::{Call, Stable};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Everything that RFC 1813 requires.
    #[default]
    Strict,
    /// Data as with [`Durability::Strict`]; names and attributes (CREATE, REMOVE, RENAME, SETATTR and the like) when
    /// the system writes them back, within about 30 s. A crash of the machine, not of the server alone, may undo
    /// acknowledged changes, and with a new name lose the file whose data were committed.
    NamesLater,
}

impl Durability {
    /// Whether the reply to `call` must wait until the change is stable.
    pub(crate) fn waits(self, call: &Call) -> bool {
        match call {
            Call::Write(a) => a.stable != Stable::Unstable,
            Call::Commit(_) => true,
            call => self == Durability::Strict && call.changes_names(),
        }
    }
}
