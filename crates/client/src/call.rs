//! A request on its way.

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::Proc;

use crate::congestion::delivery_rate::Delivered;
use crate::request::CallId;
use crate::request::{CallClass, ReplyKind};

/// A request from its submission to its answer.
#[derive(Clone, Debug)]
pub(crate) struct PendingCall {
    pub(crate) id: CallId,
    pub(crate) xid: u32,
    pub(crate) class: CallClass,
    pub(crate) expect: ReplyKind,
    pub(crate) message: Bytes,
    /// Bytes of data the reply is expected to bring.
    pub(crate) reply_data: u32,
    /// Bytes that the reply may have.
    pub(crate) reply_max: u32,
    /// It is file data that is answered only when the server's disk has it.
    pub(crate) syncs: bool,
    pub(crate) submitted: Time,
    /// `None` until it was sent.
    pub(crate) sent: Option<Transmission>,
}

impl PendingCall {
    /// Whether it is a READ or a WRITE, of whatever size.
    pub(crate) fn moves_data(&self) -> bool {
        matches!(self.expect, ReplyKind::Nfs(Proc::Read | Proc::Write))
    }

    /// Whether several requests can do what it does.
    pub(crate) fn can_be_shorter(&self) -> bool {
        self.moves_data() || self.reply_max > 0
    }

    /// Whether it waits for what the disk has still to take.
    pub(crate) fn is_commit(&self) -> bool {
        self.expect == ReplyKind::Nfs(Proc::Commit)
    }

    /// Bytes of its message and of what its reply is expected to bring.
    pub(crate) fn bytes(&self) -> u32 {
        u32::try_from(self.message.len()).unwrap_or(u32::MAX).saturating_add(self.reply_data)
    }
}

/// How a request was last sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmission {
    /// When.
    pub(crate) at: Time,
    /// When it was sent for the first time.
    pub(crate) first: Time,
    /// Its place among all that was sent: a FIFO link delivers in this order.
    pub(crate) seq: u64,
    /// Its place among what moved file data.
    pub(crate) nth: u64,
    /// How many times it was sent again.
    pub(crate) retries: u32,
    /// How many times in a row it was given up for lost while nothing else was answered.
    pub(crate) strikes: u32,
    /// It already stands in the queue of what is to be sent again.
    pub(crate) resending: bool,
    /// When something sent later was first answered.
    pub(crate) passed: Option<Time>,
    /// The same of a transmission before this one.
    pub(crate) overtaken: Option<Time>,
    /// No other request for data was on its way when it was sent.
    pub(crate) alone: bool,
    /// What had been answered when it was sent.
    pub(crate) before: Option<Delivered>,
}
