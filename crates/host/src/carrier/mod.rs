//! TCP connections over an ATP session, for gateway and forward.
//!
//! A [`Carrier`] runs the core ([`Streams`](remora_atp::stream::Streams)) on an ATP connection; [`pump`] copies
//! bytes between the core and a TCP connection. The core's bounds provide back-pressure: a slow reader stops only
//! its own writer at the other end.

mod pump;
mod streams;

pub(crate) use pump::{KEEP_ALIVE, Tcp, pump};
pub(crate) use streams::{Carrier, StreamHandle, StreamRequest};
