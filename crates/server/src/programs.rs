//! Which programs are there for whom: a port that is opened for one of them is a door to no other.

use remora_wire::{mount, portmap};

/// What is answered where a message came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Programs {
    /// All that the server has.
    #[default]
    All,
    /// MOUNT, and nothing else.
    Mount,
    /// The portmapper, and nothing else: its port is open where that of NFS is not to be.
    Portmap,
}

impl Programs {
    /// Whether `program` is one of them.
    pub(crate) fn have(self, program: u32) -> bool {
        match self {
            Programs::All => true,
            Programs::Mount => program == mount::PROGRAM,
            Programs::Portmap => program == portmap::PROGRAM,
        }
    }
}
