//! Block size: bytes of a READ or WRITE.
//!
//! Over UDP a block travels as IP fragments, and one lost fragment loses the block (NFS/W 95, section 5.1). With `k`
//! frames a block, headers and the request cost about [`OVERHEAD`]` / k` additional frames for each frame. A burst of
//! losses wastes on average half a block before it and half a block after it, once in every interval `T` between
//! bursts. The sum is least at `k = sqrt(OVERHEAD * T / frame time)`: about 4 frames at 1 Mbit/s with a burst each
//! second, near the best size of NFS/W 95 and NFS/W 97, 4096 bytes; more on faster or cleaner links.
//!
//! Over TCP a lost segment does not lose the block; there a block is what the link carries in [`HEAD_OF_LINE_STREAM`],
//! or in [`HEAD_OF_LINE_SHARED`] while small requests wait behind it.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::transport::Transport;

/// IP payload of a full frame: an MTU of 1500 bytes less the IP header.
pub const FRAME_PAYLOAD: u32 = 1480;
/// MTU of Ethernet, assumed where a path's is outside [`PATH_MTUS`].
pub(crate) const MTU: u32 = 1500;
/// Plausible path MTUs; that of a loopback device says nothing.
const PATH_MTUS: RangeInclusive<u32> = 576..=9000;
const IP_HEADER: u32 = 20;
pub(crate) const UDP_HEADER: u32 = 8;
/// Overhead of a block in frames: RPC and NFS headers, the message in the other direction, and the unused part of the
/// last frame.
const OVERHEAD: f64 = 0.2;
/// Longest airtime of a block, over either transport.
const HEAD_OF_LINE: Duration = Duration::from_millis(100);
/// Longest airtime of a block over a stream, where a loss does not lose the block.
const HEAD_OF_LINE_STREAM: Duration = Duration::from_millis(150);
/// Longest airtime of a block while users wait for small requests behind it.
const HEAD_OF_LINE_SHARED: Duration = Duration::from_millis(25);
/// Longest airtime of a block above a link layer that fragments and retransmits frames, while it loses nothing and
/// nobody waits: only headers count there, and other traffic overtakes such blocks.
const HEAD_OF_LINE_CUT: Duration = Duration::from_millis(200);
/// RTT from which retransmissions of that link delay such a block for too long.
const CUT_TRIP_MAX: Duration = Duration::from_millis(100);
/// RTT from which a path is long, and its first blocks are.
const LONG_TRIP: Duration = Duration::from_millis(200);
/// Largest block over UDP in bytes: a datagram has at most 65,507.
const UDP_MAX: u32 = 61_440;
/// Largest block over UDP that is chosen from the link, in bytes: a few of them fit a device queue of 50 frames.
const UDP_CHOSEN_MAX: u32 = 16 << 10;
/// The same above a link layer that fragments, and counts frames instead of packets.
const UDP_CUT_MAX: u32 = 26 << 10;
/// Largest block over TCP in bytes.
const TCP_MAX: u32 = 1 << 20;
/// The rule for the block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockSize {
    /// Always this many bytes, clamped to 1 KiB to 1 MiB (over UDP 60 KiB).
    Fixed(u32),
    /// Chosen from the speed and the losses of the link.
    FromLink,
}

/// Frames of a datagram of `len` bytes.
pub fn fragments(len: u32) -> u32 {
    len.saturating_add(UDP_HEADER).div_ceil(FRAME_PAYLOAD)
}

/// Airtime of messages of `bytes` bytes in all, in full frames.
pub(crate) fn frames(bytes: u32) -> f64 {
    let wire = bytes.saturating_add(IP_HEADER * (fragments(bytes) + 1));
    f64::from(wire) / f64::from(FRAME_PAYLOAD + IP_HEADER)
}

/// Whether a path with this MTU has a link layer that fragments packets into frames.
pub(crate) fn is_cut(mtu: u32) -> bool {
    PATH_MTUS.contains(&mtu) && mtu > MTU
}

/// What the block size is chosen from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PathView {
    /// Time of a full frame on the slowest hop.
    pub frame_time: Option<Duration>,
    /// Interval between bursts of losses.
    pub burst_interval: Duration,
    /// Minimum RTT of small calls.
    pub min_rtt: Option<Duration>,
    /// Something was lost already.
    pub is_bad: bool,
    /// Whether users wait for small requests.
    pub foreground: Foreground,
    /// Path MTU in bytes.
    pub mtu: u32,
}

/// Whether users wait for small requests beside file data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foreground {
    Active,
    /// They did a moment ago.
    Recent,
    Idle,
}

impl PathView {
    /// Bytes of data that fit one packet beside a header of `header` bytes.
    pub(crate) fn frame(self, header: u32) -> u32 {
        let mtu = if PATH_MTUS.contains(&self.mtu) { self.mtu.min(MTU) } else { MTU };
        (mtu - IP_HEADER - UDP_HEADER).saturating_sub(header).max(4) & !3
    }

    /// Whether a link layer retransmits all losses soon.
    fn is_repaired(self) -> bool {
        is_cut(self.mtu) && !self.is_bad && self.min_rtt.is_some_and(|t| t < CUT_TRIP_MAX)
    }

    fn head_of_line(self) -> Duration {
        match self.foreground {
            Foreground::Active => HEAD_OF_LINE_SHARED,
            Foreground::Idle if self.is_repaired() => HEAD_OF_LINE_CUT,
            Foreground::Idle | Foreground::Recent => HEAD_OF_LINE,
        }
    }

    fn chosen_max(self) -> u32 {
        if self.is_repaired() { UDP_CUT_MAX } else { UDP_CHOSEN_MAX }
    }
}

impl BlockSize {
    /// Bytes of data in a block with a header of `header` bytes.
    pub(crate) fn bytes(self, transport: Transport, header: u32, link: PathView) -> u32 {
        let max = if transport == Transport::Udp { UDP_MAX } else { TCP_MAX };
        match (self, transport) {
            (BlockSize::Fixed(n), _) => n.clamp(1024, max),
            (BlockSize::FromLink, Transport::Udp) => from_frames(udp_frames(link), header, link),
            (BlockSize::FromLink, Transport::Tcp | Transport::Atp) => tcp_bytes(link),
        }
    }
}

fn udp_frames(link: PathView) -> u32 {
    // Before anything is measured: the papers' knee, or a single frame after a loss; more on a long path, where
    // measuring takes long.
    let is_long = link.min_rtt.is_some_and(|t| t >= LONG_TRIP);
    let first = if link.is_bad {
        1
    } else if is_long {
        8
    } else {
        4
    };
    let Some(frame) = link.frame_time.map(|t| t.as_secs_f64().max(1e-9)) else { return first };
    let most = link.head_of_line().as_secs_f64() / frame;
    let reckoned = (OVERHEAD * link.burst_interval.as_secs_f64() / frame).sqrt();
    let best = if link.is_repaired() { most } else { reckoned };
    best.min(most).round().clamp(1.0, 64.0) as u32
}

/// Bytes of data in a block of `frames` frames. It fills packets that are shorter or longer than a frame, too: a partly
/// filled packet costs as much as a full one.
fn from_frames(frames: u32, header: u32, link: PathView) -> u32 {
    let mtu = if PATH_MTUS.contains(&link.mtu) { link.mtu } else { MTU };
    // All fragments but the last are multiples of 8 bytes (RFC 791).
    let packet = (mtu - IP_HEADER) & !7;
    let payload = if packet <= FRAME_PAYLOAD {
        frames * packet
    } else {
        let bytes = frames * FRAME_PAYLOAD;
        let packets = if link.foreground == Foreground::Active { bytes / packet } else { bytes.div_ceil(packet) };
        packets.clamp(1, link.chosen_max() / packet) * packet
    };
    let data = payload.saturating_sub(UDP_HEADER + header) & !3;
    data.clamp(1024, link.chosen_max())
}

fn tcp_bytes(link: PathView) -> u32 {
    let Some(frame) = link.frame_time.map(|t| t.as_secs_f64().max(1e-9)) else { return 16 << 10 };
    let most = if link.foreground == Foreground::Active { HEAD_OF_LINE_SHARED } else { HEAD_OF_LINE_STREAM };
    let bytes = f64::from(FRAME_PAYLOAD) * most.as_secs_f64() / frame;
    let bytes = bytes.clamp(4096.0, f64::from(TCP_MAX)) as u32;
    1 << bytes.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the RTT is known.
    fn unknown(trip_ms: Option<u64>, is_bad: bool) -> PathView {
        let trip = trip_ms.map(Duration::from_millis);
        PathView {
            frame_time: None,
            burst_interval: Duration::from_secs(1),
            min_rtt: trip,
            is_bad,
            foreground: Foreground::Idle,
            mtu: MTU,
        }
    }

    #[test]
    fn first_blocks_are_long_only_on_a_long_path() {
        for (trip_ms, is_bad, frames) in
            [(None, false, 4), (Some(100), false, 4), (Some(600), false, 8), (Some(600), true, 1)]
        {
            let bytes = BlockSize::FromLink.bytes(Transport::Udp, 128, unknown(trip_ms, is_bad));
            assert_eq!(fragments(bytes + 128), frames, "{trip_ms:?} {is_bad}");
        }
    }

    fn udp(frame_us: u64, burst_ms: u64) -> u32 {
        let link = PathView {
            frame_time: Some(Duration::from_micros(frame_us)),
            burst_interval: Duration::from_millis(burst_ms),
            min_rtt: None,
            is_bad: true,
            foreground: Foreground::Idle,
            mtu: MTU,
        };
        BlockSize::FromLink.bytes(Transport::Udp, 128, link)
    }

    #[test]
    fn blocks_fill_their_frames() {
        for (frame_us, burst_ms, frames) in [(12_000, 1000, 4), (12_000, 120, 1), (187_500, 1000, 1), (1_200, 200, 6)] {
            let bytes = udp(frame_us, burst_ms);
            assert_eq!(fragments(bytes + 128), frames, "{frame_us} us, a burst each {burst_ms} ms");
            assert!(fragments(bytes + 128 + 4) > frames);
        }
    }

    #[test]
    fn blocks_fill_the_packets_of_the_path() {
        for (mtu, foreground, frames, packets, of) in [
            (1420, false, 4, 4, 1400),
            (4292, false, 4, 2, 4272),
            (4292, true, 4, 1, 4272),
            (4292, false, 1, 1, 4272),
            (4292, false, 20, 3, 4272),
            (9000, false, 8, 1, 8976),
            (65_536, false, 4, 4, 1480),
            (0, false, 4, 4, 1480),
        ] {
            let link = PathView {
                mtu,
                foreground: if foreground { Foreground::Active } else { Foreground::Idle },
                ..unknown(None, false)
            };
            let message = from_frames(frames, 128, link) + 128 + UDP_HEADER;
            assert_eq!(message.div_ceil(of), packets, "{mtu}: {message}");
            assert!(message + 4 > packets * of, "{mtu}: {message}");
        }
    }

    #[test]
    fn blocks_are_long_above_a_retransmitting_link() {
        for (trip_ms, is_bad, foreground, mtu, packets) in [
            (7, false, Foreground::Idle, 4292, 6),
            (7, false, Foreground::Recent, 4292, 3),
            (7, false, Foreground::Active, 4292, 1),
            (7, true, Foreground::Idle, 4292, 2),
            (100, false, Foreground::Idle, 4292, 2),
            (7, false, Foreground::Idle, 1420, 4),
        ] {
            let frame_time = Some(Duration::from_millis(12));
            let link = PathView { frame_time, mtu, foreground, ..unknown(Some(trip_ms), is_bad) };
            let message = BlockSize::FromLink.bytes(Transport::Udp, 128, link) + 128 + UDP_HEADER;
            assert_eq!(message.div_ceil((mtu - IP_HEADER) & !7), packets, "{trip_ms} {is_bad} {foreground:?} {mtu}");
        }
    }

    #[test]
    fn large_blocks_fit_a_device_queue() {
        assert_eq!(udp(12, 20_000), UDP_CHOSEN_MAX);
        assert!(3 * fragments(UDP_CHOSEN_MAX + 128) < 50);
    }

    #[test]
    fn tcp_blocks_follow_the_rate() {
        let at = |us, foreground| {
            let link = PathView {
                frame_time: Some(Duration::from_micros(us)),
                burst_interval: Duration::from_secs(1),
                min_rtt: None,
                is_bad: false,
                foreground: if foreground { Foreground::Active } else { Foreground::Idle },
                mtu: MTU,
            };
            BlockSize::FromLink.bytes(Transport::Tcp, 128, link)
        };
        assert_eq!(
            [at(12_000, false), at(1_200, false), at(12, false), at(1, false)],
            [16 << 10, 128 << 10, 1 << 20, 1 << 20]
        );
        assert_eq!([at(12_000, true), at(1_200, true), at(100_000, false)], [4096, 16 << 10, 4096]);
    }

    #[test]
    fn fixed_sizes_are_clamped() {
        let link = unknown(None, false);
        let fixed = |n, t| BlockSize::Fixed(n).bytes(t, 128, link);
        assert_eq!(fixed(0, Transport::Udp), 1024);
        assert_eq!(fixed(8192, Transport::Udp), 8192);
        assert_eq!(fixed(u32::MAX, Transport::Tcp), 1 << 20);
    }
}
