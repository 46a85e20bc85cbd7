//! From a URL to a session.
//!
//! [`procedure`] mounts, [`happy_eyeballs`] races transports and addresses, [`known_root`] goes
//! on with what an earlier run mounted, [`earlier_mount`] even if the server does not answer yet.

pub(crate) mod earlier_mount;
pub(crate) mod happy_eyeballs;
pub(crate) mod known_root;
pub(crate) mod procedure;
