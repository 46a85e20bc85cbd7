//! A request in the call table and its last transmission.

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::Proc;
use remora_wire::urgency::Urgency;

use crate::congestion::delivery_rate::Delivered;
use crate::request::CallId;
use crate::request::{CallClass, ReplyKind};

/// Queue of a request, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Bypasses the window.
    Small,
    /// Little file data that a program waits for: the window admits it whatever other file data is in flight.
    Urgent,
    /// Other file data.
    Bulk,
}

/// A request from its submission to its reply.
#[derive(Clone, Debug)]
pub(crate) struct PendingCall {
    pub(crate) id: CallId,
    pub(crate) xid: u32,
    pub(crate) class: CallClass,
    /// As the caller says, if it does.
    pub(crate) urgency: Option<Urgency>,
    pub(crate) expect: ReplyKind,
    pub(crate) message: Bytes,
    /// Expected bytes of data in the reply.
    pub(crate) reply_data: u32,
    /// Largest reply in bytes.
    pub(crate) reply_max: u32,
    /// A synchronous WRITE: answered when the data is on the server's disk.
    pub(crate) syncs: bool,
    pub(crate) submitted: Time,
    /// `None` until it is sent.
    pub(crate) sent: Option<Transmission>,
}

impl PendingCall {
    pub(crate) fn lane(&self) -> Lane {
        match self.urgency {
            _ if !self.class.is_bulk() => Lane::Small,
            Some(Urgency::Foreground | Urgency::Sync) => Lane::Urgent,
            _ => Lane::Bulk,
        }
    }

    /// Whether it is a READ or a WRITE of any size.
    pub(crate) fn moves_data(&self) -> bool {
        matches!(self.expect, ReplyKind::Nfs(Proc::Read | Proc::Write))
    }

    /// Whether several shorter requests can replace it.
    pub(crate) fn can_be_shorter(&self) -> bool {
        self.moves_data() || self.reply_max > 0
    }

    /// Whether it is a COMMIT, which waits for the disk.
    pub(crate) fn is_commit(&self) -> bool {
        self.expect == ReplyKind::Nfs(Proc::Commit)
    }

    /// Bytes of the message and of the expected data in the reply.
    pub(crate) fn bytes(&self) -> u32 {
        u32::try_from(self.message.len()).unwrap_or(u32::MAX).saturating_add(self.reply_data)
    }
}

/// The last transmission of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmission {
    /// When it was sent.
    pub(crate) at: Time,
    /// When the request was first sent.
    pub(crate) first: Time,
    /// Sequence number of the transmission: a FIFO link delivers in this order.
    pub(crate) seq: u64,
    /// Sequence number among the transmissions of file data.
    pub(crate) nth: u64,
    pub(crate) retries: u32,
    /// Losses in a row while nothing else was answered.
    pub(crate) strikes: u32,
    /// The request is queued for a retransmission.
    pub(crate) resending: bool,
    /// When a later transmission was first answered.
    pub(crate) passed: Option<Time>,
    /// When a later transmission than an earlier one of this request was first answered.
    pub(crate) overtaken: Option<Time>,
    /// No other file data was in flight.
    pub(crate) alone: bool,
    /// Frames delivered when it was sent.
    pub(crate) before: Option<Delivered>,
}
