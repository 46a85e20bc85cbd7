//! Timeout cycles of an old RPC layer (DRC 89, section 2.1): after some retransmissions the client calls again with a
//! new xid, so that no cache recognises the duplicate.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};

/// Replaces the xids of a client's messages as its RPC layer would.
#[derive(Debug)]
pub(crate) struct TimeoutCycles {
    /// Retransmissions before a new cycle.
    retries: u32,
    calls: BTreeMap<u32, Call>,
    /// The client's xid of every new xid.
    originals: BTreeMap<u32, u32>,
    /// The next new xid, once there was a call.
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    sent: u32,
    xid: u32,
}

/// Bytes of an xid, with which every message begins.
const XID: usize = 4;
/// Keeps new xids apart from the client's, which count up from a random one.
const APART: u32 = 1 << 31;

impl TimeoutCycles {
    pub(crate) fn new(retries: u32) -> TimeoutCycles {
        TimeoutCycles { retries, calls: BTreeMap::new(), originals: BTreeMap::new(), next: None }
    }

    /// The call as it is sent.
    pub(crate) fn outgoing(&mut self, message: Bytes) -> Bytes {
        let Some(xid) = xid(&message) else { return message };
        let next = self.next.get_or_insert(xid.wrapping_add(APART));
        let call = self.calls.entry(xid).or_insert(Call { sent: 0, xid });
        if call.sent > self.retries {
            call.sent = 0;
            call.xid = *next;
            *next = next.wrapping_add(1);
            self.originals.insert(call.xid, xid);
        }
        call.sent += 1;
        with_xid(&message, call.xid)
    }

    /// The reply as the client sees it; `None` if it belongs to an earlier cycle or to no outstanding call.
    pub(crate) fn incoming(&mut self, message: &Bytes) -> Option<Bytes> {
        let on_wire = xid(message)?;
        let original = self.original(on_wire);
        self.calls.get(&original).filter(|call| call.xid == on_wire)?;
        self.calls.remove(&original);
        Some(with_xid(message, original))
    }

    /// The client's own xid of a message on the wire.
    pub(crate) fn original(&self, on_wire: u32) -> u32 {
        self.originals.get(&on_wire).copied().unwrap_or(on_wire)
    }
}

fn xid(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|xid| u32::from_be_bytes(*xid))
}

fn with_xid(message: &Bytes, xid: u32) -> Bytes {
    let mut with = BytesMut::with_capacity(message.len());
    with.put_u32(xid);
    with.put_slice(message.get(XID..).unwrap_or_default());
    with.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(xid: u32) -> Bytes {
        with_xid(&Bytes::from_static(b"....rest"), xid)
    }

    #[test]
    fn third_transmission_of_a_cycle_of_two_has_a_new_xid() {
        let mut cycles = TimeoutCycles::new(1);
        let sent: Vec<Bytes> = (0..5).map(|_| cycles.outgoing(message(7))).collect();
        assert_eq!((&sent[0], &sent[1]), (&message(7), &message(7)));
        assert!(sent[2] == sent[3] && sent[2] != sent[0] && sent[4] != sent[2]);
        assert!(sent.iter().all(|s| cycles.original(xid(s).unwrap()) == 7));
        let others: Vec<Bytes> = (0..5).map(|_| cycles.outgoing(message(6))).collect();
        assert!(others.iter().all(|other| !sent.contains(other)), "no two calls share an xid");
        // Only the reply to the last cycle counts, and only once.
        assert_eq!([&sent[0], &sent[2]].map(|reply| cycles.incoming(reply)), [None, None]);
        assert_eq!(cycles.incoming(&sent[4]), Some(message(7)));
        assert_eq!(cycles.incoming(&sent[4]), None);
    }
}
