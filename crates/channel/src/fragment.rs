//! How IP cuts a UDP datagram into frames (RFC 791 §3.2): a 20-byte header on each fragment,
//! the 8-byte UDP header in the first, every fragment but the last a multiple of 8 bytes.
//! An IP packet that is one already is one frame as it is.

use bytes::Bytes;

/// Bytes of an IP header without options.
pub(crate) const IP_HEADER: usize = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: usize = 8;
/// The longest payload of a UDP datagram over IPv4, in bytes.
pub const DATAGRAM_MAX: usize = 65_535 - IP_HEADER - UDP_HEADER;

/// What a datagram or packet is on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// The fragments of a UDP datagram.
    Fragments(Fragments),
    /// One IP packet of so many bytes.
    Packet(usize),
}

impl Frames {
    /// The frames of a UDP datagram of `payload` bytes; `None` if it is longer than
    /// [`DATAGRAM_MAX`]. `mtu` is at least 576.
    pub(crate) fn of_datagram(payload: usize, mtu: usize) -> Option<Frames> {
        Fragments::of(payload, mtu).map(Frames::Fragments)
    }

    /// The frame of an IP packet; `None` if it is empty or longer than the MTU.
    pub(crate) fn of_packet(bytes: usize, mtu: usize) -> Option<Frames> {
        (1..=mtu).contains(&bytes).then_some(Frames::Packet(bytes))
    }

    /// How many there are (at least 1).
    pub(crate) fn count(&self) -> usize {
        match self {
            Frames::Fragments(fragments) => fragments.count,
            Frames::Packet(_) => 1,
        }
    }

    /// Bytes of frame `index`, IP header included.
    pub(crate) fn frame_bytes(&self, index: usize) -> usize {
        match self {
            Frames::Fragments(fragments) => fragments.frame_bytes(index),
            Frames::Packet(bytes) => *bytes,
        }
    }

    /// The IP packet a frame is, where `payload` is one; empty for a fragment.
    pub(crate) fn packet(&self, payload: &Bytes) -> Bytes {
        match self {
            Frames::Fragments(_) => Bytes::new(),
            Frames::Packet(_) => payload.clone(),
        }
    }
}

/// The fragments of one UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragments {
    /// What IP carries: the UDP header and the payload, in bytes.
    total: usize,
    /// What each fragment but the last carries of it.
    step: usize,
    count: usize,
}

impl Fragments {
    fn of(payload: usize, mtu: usize) -> Option<Fragments> {
        if payload > DATAGRAM_MAX {
            return None;
        }
        let total = payload + UDP_HEADER;
        let room = mtu.saturating_sub(IP_HEADER).max(8);
        let step = room & !7;
        let count = total.saturating_sub(room).div_ceil(step) + 1;
        Some(Fragments { total, step, count })
    }

    fn frame_bytes(&self, index: usize) -> usize {
        let before = self.step * index;
        let carried = if index + 1 < self.count { self.step } else { self.total.saturating_sub(before) };
        IP_HEADER + carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(payload: usize, mtu: usize) -> Vec<usize> {
        let f = Frames::of_datagram(payload, mtu).unwrap();
        (0..f.count()).map(|i| f.frame_bytes(i)).collect()
    }

    #[test]
    fn cuts_as_ip_does() {
        assert_eq!(frames(0, 1500), [28]);
        assert_eq!(frames(1472, 1500), [1500]);
        assert_eq!(frames(1473, 1500), [1500, 21]);
        // An 8192-byte block with 120 bytes of RPC and NFS headers.
        assert_eq!(frames(8192 + 120, 1500), [1500, 1500, 1500, 1500, 1500, 940]);
        // 986 bytes of room: 984 in each fragment, but the last may use them all.
        assert_eq!(frames(984 + 986 - 8, 1006), [1004, 1006]);
        assert_eq!(frames(984 + 987 - 8, 1006), [1004, 1004, 23]);
        assert_eq!(Frames::of_datagram(DATAGRAM_MAX, 65_535).map(|f| f.count()), Some(1));
        assert_eq!(Frames::of_datagram(DATAGRAM_MAX + 1, 65_535), None);
    }

    #[test]
    fn a_packet_is_one_frame_if_it_fits() {
        for (bytes, mtu, frame) in [(0, 1500, None), (1, 1500, Some(1)), (1500, 1500, Some(1500)), (1501, 1500, None)] {
            assert_eq!(Frames::of_packet(bytes, mtu).map(|f| f.frame_bytes(0)), frame);
        }
    }

    #[test]
    fn every_byte_is_carried_once_and_every_frame_fits() {
        for mtu in [576, 577, 1006, 1492, 1500, 9000] {
            for payload in (0..20_000).step_by(37) {
                let frames = frames(payload, mtu);
                assert_eq!(frames.iter().map(|f| f - IP_HEADER).sum::<usize>(), payload + UDP_HEADER);
                assert!(frames.iter().all(|f| (IP_HEADER + 1..=mtu).contains(f)), "{payload} {mtu} {frames:?}");
                let mut whole = frames.iter().rev().skip(1);
                assert!(whole.all(|f| (f - IP_HEADER).is_multiple_of(8)));
            }
        }
    }
}
