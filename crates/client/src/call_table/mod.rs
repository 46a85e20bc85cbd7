//! The call table: every request from its submission to its one event.
//!
//! Read [`client`] first, which has the table; [`state`] has parts of it. [`transmission`] sends, retransmits and probes;
//! [`interruption`] is about broken connections, silence and hand-offs.

pub(crate) mod client;
pub(crate) mod interruption;
pub(crate) mod state;
pub(crate) mod transmission;
