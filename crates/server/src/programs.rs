//! The programs served at an address. A port that is opened for one program serves no other.

use remora_wire::{mount, portmap};

/// The programs served at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Programs {
    #[default]
    All,
    Mount,
    /// Only the portmapper, whose port may be reachable where that of NFS is not.
    Portmap,
}

impl Programs {
    pub(crate) fn have(self, program: u32) -> bool {
        match self {
            Programs::All => true,
            Programs::Mount => program == mount::PROGRAM,
            Programs::Portmap => program == portmap::PROGRAM,
        }
    }
}
