//! What a link reports: counters, and notices of changes and faults.
//!
//! Read [`report`] first, the counters and the notices, then [`conditions`] (what is worth a notice) and [`throttle`]
//! (how often).

mod conditions;
mod report;
mod throttle;

pub(super) use conditions::{PeerConditions, UnreachablePeers};
pub use report::{ChannelState, Drops, LinkNotice, LinkReport, PeerFigures, PeerReport};
pub(super) use report::{canonical, seconds};
pub(super) use throttle::{NoticeThrottle, Topic};
