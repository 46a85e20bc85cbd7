//! What must be on stable storage before a reply says that it is done.
//!
//! RFC 1813 (section 4.8) asks it of every change but WRITEs that are UNSTABLE. Some servers
//! leave names and attributes to the system's own write-back and are faster for it; who takes
//! that risk knowingly may have it here, too.

use remora_wire::nfs3::{Call, Stable};

/// How much is on stable storage before the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// All that RFC 1813 asks for.
    #[default]
    Strict,
    /// Data, as [`Durability::Strict`]; names and attributes (CREATE, REMOVE, RENAME, SETATTR and
    /// their like) whenever the system writes them back, within about half a minute. A crash of
    /// the machine, not of the server alone, may undo what was acknowledged since, and with a
    /// new name the file whose data were committed.
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
