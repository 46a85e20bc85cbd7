//! A request on its way.

use bytes::Bytes;
use remora_base::Time;

use crate::CallId;
use crate::request::{Class, Expect};

/// A request from its submission to its answer.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: CallId,
    pub(crate) xid: u32,
    pub(crate) class: Class,
    pub(crate) expect: Expect,
    pub(crate) message: Bytes,
    /// Bytes of data the reply is expected to bring.
    pub(crate) reply_data: u32,
    pub(crate) submitted: Time,
    /// `None` until it was sent.
    pub(crate) sent: Option<Sent>,
}

/// How a request was last sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When.
    pub(crate) at: Time,
    /// Its place among all that was sent: a FIFO link delivers in this order.
    pub(crate) seq: u64,
    /// How many times it was sent again.
    pub(crate) retries: u32,
    /// How many times in a row it was given up for lost while nothing else was answered.
    pub(crate) strikes: u32,
    /// It already stands in the queue of what is to be sent again.
    pub(crate) resending: bool,
    /// No other request for data was on its way when it was sent.
    pub(crate) alone: bool,
}
