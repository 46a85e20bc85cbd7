//! A log of packet numbers over time, by which NFS/W 95 (Figure 3) and NFS/W 97 show the effect of
//! a retransmission policy.

use std::collections::BTreeSet;

use remora_base::Time;
use remora_wire::nfs3;

/// Offset of the procedure in an RPC call: after xid, type, RPC version, program and version.
const PROC_AT: usize = 20;
/// Capacity of a log; a copy of 1 GiB has fewer calls.
const PACKETS_MAX: usize = 1 << 20;

/// A message sent or received by a client, as seen by a monitor beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    pub at: Time,
    /// Number of the call: its xid, counted from the client's first.
    pub number: u32,
    pub kind: PacketKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PacketKind {
    /// First transmission of a call.
    Call,
    Retransmission,
    /// A NULL call that tests whether the link is up.
    Probe,
    Reply,
}

/// The packets of one client, up to a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketLog {
    first: Option<u32>,
    called: BTreeSet<u32>,
    packets: Vec<Packet>,
}

impl PacketLog {
    pub(crate) fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Logs a call sent.
    pub(crate) fn call(&mut self, at: Time, message: &[u8]) {
        let Some(number) = self.number(message) else { return };
        let proc = message.get(PROC_AT..).and_then(|rest| rest.first_chunk()).map(|p| u32::from_be_bytes(*p));
        let kind = match proc {
            Some(p) if p == nfs3::Proc::Null as u32 => PacketKind::Probe,
            _ if self.called.insert(number) => PacketKind::Call,
            _ => PacketKind::Retransmission,
        };
        self.push(Packet { at, number, kind });
    }

    /// Logs a reply received.
    pub(crate) fn reply(&mut self, at: Time, message: &[u8]) {
        if let Some(number) = self.number(message) {
            self.push(Packet { at, number, kind: PacketKind::Reply });
        }
    }

    fn number(&mut self, message: &[u8]) -> Option<u32> {
        let xid = message.first_chunk().map(|head| u32::from_be_bytes(*head))?;
        Some(xid.wrapping_sub(*self.first.get_or_insert(xid)))
    }

    fn push(&mut self, packet: Packet) {
        if self.packets.len() < PACKETS_MAX {
            self.packets.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(xid: u32, proc: u32) -> Vec<u8> {
        [xid, 0, 2, nfs3::PROGRAM, nfs3::VERSION, proc].iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn calls_are_numbered_from_the_first_with_their_kind() {
        let mut log = PacketLog::default();
        log.call(Time::from_secs(1), &call(u32::MAX, 6));
        log.call(Time::from_secs(2), &call(0, 6));
        log.call(Time::from_secs(3), &call(u32::MAX, 6));
        log.call(Time::from_secs(4), &call(1, 0));
        log.reply(Time::from_secs(5), &0u32.to_be_bytes());
        log.reply(Time::from_secs(6), b"noise that is short"[..3].as_ref());
        let seen: Vec<(u32, PacketKind)> = log.packets().iter().map(|p| (p.number, p.kind)).collect();
        use PacketKind::*;
        assert_eq!(seen, [(0, Call), (1, Call), (0, Retransmission), (2, Probe), (1, Reply)]);
    }
}
