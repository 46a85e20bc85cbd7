//! The radio: clients' datagrams over the air, fragmented on one side and reassembled on the other.
//! A mobile may have several clients.
//!
//! Packets are complete with headers, as a host sends them (RFC 791, section 3.2), because the link
//! protocol examines them; only UDP's checksum is omitted (RFC 768: zero). Addresses identify the client.

use bytes::{BufMut, Bytes, BytesMut};
use etherparse::defrag::IpDefragPool;
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, NetSlice, SlicedPacket, UdpHeader};
use remora_base::Time;
use remora_channel::{Channel, ConfigError, Lane, Side};
use remora_link::{Class, HandOffPhase};
use remora_wire::urgency::is_probe;

use super::air::Air;
use super::background::{Background, BackgroundLoad, Carried};

/// A radio cell with a base station, behind which the server is, and mobiles.
#[derive(Debug)]
pub struct Radio {
    air: Air,
    fragmenter: Fragmenter,
    /// Incomplete datagrams at the base and at the mobile, for each mobile.
    reassemblers: Vec<[Reassembler; 2]>,
    /// Capacity of a mobile's device queue in frames, if less than the base station's.
    mobile_frames: Option<usize>,
    /// Stations that load the medium, on mobiles behind those of clients.
    background: Option<Background>,
}

impl Radio {
    /// A cell with `mobiles` mobiles (range: 1 to 64), and the link protocol if given.
    pub fn new(
        config: remora_channel::Config,
        link: Option<&remora_link::LinkConfig>,
        seed: u64,
        mobiles: usize,
    ) -> Result<Radio, ConfigError> {
        Radio::loaded(config, link, seed, mobiles, None)
    }

    /// The same with a background load: its stations are mobiles, too, and share the 64.
    pub fn loaded(
        config: remora_channel::Config,
        link: Option<&remora_link::LinkConfig>,
        seed: u64,
        mobiles: usize,
        load: Option<&BackgroundLoad>,
    ) -> Result<Radio, ConfigError> {
        let (mtu, stations) = (config.mtu, load.map_or(0, |load| load.stations));
        let channel = Channel::with_mobiles(config, seed, mobiles.saturating_add(stations))?;
        Ok(Radio {
            air: Air::new(channel, mtu, link, seed),
            fragmenter: Fragmenter::default(),
            reassemblers: (0..mobiles).map(|_| Default::default()).collect(),
            mobile_frames: None,
            background: load.map(|load| Background::new(load, mobiles, seed)),
        })
    }

    /// What the medium carried until now; `None` without a background load.
    pub fn carried(&self, now: Time) -> Option<Carried> {
        self.background.as_ref().map(|background| background.carried(self.channel(), now))
    }

    /// Limits the mobiles' device queues to `frames` frames; further ones are dropped.
    pub fn limit_mobiles(&mut self, frames: usize) {
        self.mobile_frames = Some(frames);
    }

    pub fn channel(&self) -> &Channel {
        self.air.channel()
    }

    pub fn air(&self) -> &Air {
        &self.air
    }

    /// Sends a datagram between `client`, on the lane's mobile, and the server. Without that mobile
    /// it is lost.
    pub fn send(&mut self, now: Time, lane: Lane, client: usize, datagram: &Bytes) {
        if lane.mobile >= self.reassemblers.len() {
            return;
        }
        // The client's socket marks probes the same way.
        let class = if is_probe(datagram) { Class::Probe } else { Class::Default };
        for packet in self.fragmenter.fragment(client, datagram, self.air.mtu()) {
            if lane.from == Side::Base || self.mobile_has_room(lane) {
                self.air.send(now, lane, client as u64, class, packet);
            }
        }
    }

    fn mobile_has_room(&self, lane: Lane) -> bool {
        self.mobile_frames.is_none_or(|frames| self.channel().queued_frames(lane) < frames)
    }

    /// The next datagram that arrived by `now`: sender's side, client, payload.
    pub fn poll(&mut self, now: Time) -> Option<(Side, usize, Bytes)> {
        while let Some((lane, packet)) = self.air.poll(now) {
            // The load's packets go to nobody.
            let Some(reassemblers) = self.reassemblers.get_mut(lane.mobile) else { continue };
            let reassembler = &mut reassemblers[lane.from as usize];
            if let Some((client, datagram)) = reassembler.take(&packet) {
                return Some((lane.from, client, datagram));
            }
        }
        None
    }

    /// When an event is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let background = self.background.as_ref().and_then(Background::poll_timeout);
        self.air.poll_timeout().into_iter().chain(background).min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((at, lane, packet)) = self.background.as_mut().and_then(|background| background.poll(now)) {
            self.air.send(at, lane, lane.mobile as u64, Class::Default, packet);
        }
        self.air.handle_timeout(now);
    }

    /// Every mobile announces a hand-off to the base station.
    pub fn announce(&mut self, now: Time, phase: HandOffPhase) {
        (0..self.reassemblers.len()).for_each(|mobile| self.air.announce(now, mobile, phase));
    }
}

/// Bytes of a UDP header.
const UDP_HEADER: usize = UdpHeader::LEN;
/// Maximum payload of a UDP datagram, in bytes.
const DATAGRAM_MAX: usize = 65_535 - Ipv4Header::MIN_LEN - UDP_HEADER;
/// Age in packets at which an incomplete datagram is dropped. Few of each client are in flight at a
/// time; an older one lost a fragment.
const PARTIAL_AGE_MAX: u64 = 2048;
/// Packets between two searches for old datagrams.
const LOOK_EVERY: u64 = 256;
const HOPS: u8 = 64;
const NFS_PORT: u16 = 2049;

/// Fragments a station's datagrams into packets.
#[derive(Debug, Default)]
pub(crate) struct Fragmenter {
    next_ident: u16,
}

impl Fragmenter {
    /// The packets of a datagram from or to `client`, none longer than `mtu` bytes; none if it is
    /// too long for UDP.
    pub(crate) fn fragment(&mut self, client: usize, datagram: &[u8], mtu: usize) -> Vec<Bytes> {
        let (Ok(client), 0..=DATAGRAM_MAX) = (u16::try_from(client), datagram.len()) else { return Vec::new() };
        let identification = self.next_ident;
        self.next_ident = identification.wrapping_add(1);
        let length = (UDP_HEADER + datagram.len()) as u16;
        let udp = UdpHeader { source_port: NFS_PORT, destination_port: NFS_PORT, length, checksum: 0 };
        let whole = [&udp.to_bytes(), datagram].concat();
        let room = mtu.saturating_sub(Ipv4Header::MIN_LEN).max(UDP_HEADER);
        let mut packets = Vec::with_capacity(whole.len() / room + 1);
        let mut offset = 0;
        while offset < whole.len() {
            let rest = whole.len() - offset;
            let carried = if rest <= room { rest } else { room & !7 };
            let mut ip = Ipv4Header {
                identification,
                more_fragments: carried < rest,
                fragment_offset: IpFragOffset::try_new((offset / 8) as u16).unwrap_or_default(),
                time_to_live: HOPS,
                protocol: IpNumber::UDP,
                total_len: (Ipv4Header::MIN_LEN + carried) as u16,
                ..Ipv4Header::default()
            };
            let [high, low] = client.to_be_bytes();
            (ip.source, ip.destination) = ([10, 0, high, low], [10, 1, high, low]);
            ip.header_checksum = ip.calc_header_checksum();
            let mut packet = BytesMut::with_capacity(Ipv4Header::MIN_LEN + carried);
            packet.put_slice(&ip.to_bytes());
            packet.put_slice(&whole[offset..offset + carried]);
            packets.push(packet.freeze());
            offset += carried;
        }
        packets
    }
}

/// Reassembles the datagrams of one station's [`Fragmenter`].
#[derive(Debug)]
pub(crate) struct Reassembler {
    partial: IpDefragPool<u64>,
    taken: u64,
}

impl Default for Reassembler {
    fn default() -> Reassembler {
        Reassembler { partial: IpDefragPool::new(), taken: 0 }
    }
}

impl Reassembler {
    /// Handles a packet; returns the datagram that it completes, and its client.
    pub(crate) fn take(&mut self, packet: &Bytes) -> Option<(usize, Bytes)> {
        let sliced = SlicedPacket::from_ip(packet).ok()?;
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else { return None };
        let [_, _, high, low] = ip.header().destination();
        let client = usize::from(u16::from_be_bytes([high, low]));
        if !ip.header().is_fragmenting_payload() {
            return Some((client, packet.slice_ref(ip.payload().payload.get(UDP_HEADER..)?)));
        }
        self.taken += 1;
        let taken = self.taken;
        if taken.is_multiple_of(LOOK_EVERY) {
            self.partial.retain(|touched| touched + PARTIAL_AGE_MAX > taken);
        }
        let whole = self.partial.process_sliced_packet(&sliced, taken, ()).ok()??;
        let whole = Bytes::from(whole.payload);
        (whole.len() >= UDP_HEADER).then(|| (client, whole.slice(UDP_HEADER..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(len: usize) -> Bytes {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    fn lengths(len: usize, mtu: usize) -> Vec<usize> {
        Fragmenter::default().fragment(0, &datagram(len), mtu).iter().map(Bytes::len).collect()
    }

    #[test]
    fn fragments_have_the_lengths_of_ip() {
        assert_eq!(lengths(0, 1500), [28]);
        assert_eq!(lengths(1472, 1500), [1500]);
        assert_eq!(lengths(1473, 1500), [1500, 21]);
        assert_eq!(lengths(8192 + 120, 1500), [1500, 1500, 1500, 1500, 1500, 940]);
        assert_eq!(lengths(DATAGRAM_MAX + 1, 1500), [0; 0]);
    }

    #[test]
    fn datagrams_reassemble_despite_reordering_and_loss() {
        for mtu in [576, 1006, 1438, 1500] {
            let (mut fragmenter, mut reassembler) = (Fragmenter::default(), Reassembler::default());
            for len in (0..20_000).step_by(613) {
                let sent = datagram(len);
                let mut lossy = fragmenter.fragment(3, &sent, mtu);
                lossy.pop();
                assert!(lossy.iter().all(|p| reassembler.take(p).is_none()), "one packet is missing");

                let mut packets = fragmenter.fragment(3, &sent, mtu);
                packets.reverse();
                let doubled: Vec<Bytes> = packets.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
                let whole: Vec<(usize, Bytes)> = doubled.iter().filter_map(|p| reassembler.take(p)).collect();
                assert_eq!(whole.first(), Some(&(3, sent)), "{len} bytes in packets of {mtu}");
            }
        }
    }

    #[test]
    fn malformed_packet_is_dropped() {
        let mut reassembler = Reassembler::default();
        for bad in [&b""[..], &[0; 19], &[0xff; 20], &[0; 28], &[0xff; 1500]] {
            assert_eq!(reassembler.take(&Bytes::copy_from_slice(bad)), None);
        }
    }
}
