//! What a link reports: counters, and notices of changes and faults.
//!
//! Read [`report`] first, the counters and the notices. The others select what is worth a notice: [`advice`] (a hop that
//! does not suit its settings), [`channel_notices`], [`duplicate_key`], [`strangers`] and [`unsent`].

mod advice;
mod channel_notices;
mod duplicate_key;
mod report;
mod strangers;
mod unsent;

pub(super) use advice::Advice;
pub(super) use channel_notices::ChannelNotices;
pub(super) use duplicate_key::DuplicateKeyDetector;
pub use report::{ChannelState, Drops, Figures, Notice, PeerReport, Report};
pub(super) use report::{canonical, seconds};
pub(super) use strangers::Strangers;
pub(super) use unsent::Unsent;
