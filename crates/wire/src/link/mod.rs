//! Frames of the link protocol: DATA, ACK, RTS, CTS and the hand-off signal, after the plan
//! in NFS/W 95, section 5 (RTS-CTS-DATA-ACK by the driver). Big-endian, without padding;
//! docs/internals/link.md draws them.
//!
//! Every byte is sent over a slow hop, so numbers are 16 bits and the receiver expands them
//! around what it expects next ([`expand`]).
//!
//! Read `data`, then `frame`; `fields` has what both need.

mod data;
mod fields;
mod frame;

pub use data::{
    ACK_MIN, Ack, BITMAP_MAX, CHUNKS_MAX, CONTEXTS_MAX, DATA_HEADER_MAX, Data, FrameNumbers, Headers, PREV_MAX, Part,
    WINDOW_MAX,
};
pub use fields::{FrameError, SHORT_AHEAD_MAX, SHORT_LATE_MAX, expand, expand_byte};
pub use frame::{Announcement, Frame, HandOff, Rts};
