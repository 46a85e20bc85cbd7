//! Sender and receiver, connected directly.

use super::*;
use crate::Class;
use crate::arq::receiver::{Arrival, Receiver};
use crate::queueing::queue::{Queue, codel_params};
use etherparse::PacketBuilder;
use remora_wire::link::CONTEXTS_MAX;

struct Ends {
    sender: Sender,
    receiver: Receiver,
    config: LinkConfig,
}

impl Ends {
    fn new() -> Ends {
        Ends { sender: Sender::new(1, 0), receiver: Receiver::default(), config: LinkConfig::default() }
    }

    fn send(&mut self, now: Time, port: u16) -> Data {
        let seq = self.admit(now, port, datagram(port));
        self.sender.take(seq);
        self.transmit(now, seq)
    }

    /// Numbers a packet and returns the number of its first chunk.
    fn admit(&mut self, now: Time, port: u16, bytes: Bytes) -> u64 {
        let mut queue = Queue::new(now);
        let packet = Packet { flow: port.into(), class: Class::Default, responsive: true, bytes };
        queue.push(now, packet, &self.config);
        let waiting =
            queue.pop(now, &codel_params(&self.config, Duration::ZERO, 1, Duration::ZERO), &self.config).unwrap();
        let seq = self.sender.next_number();
        self.sender.admit(waiting, true, Duration::ZERO, &self.config);
        seq
    }

    /// Retransmits the next chunk due.
    fn send_again(&mut self, now: Time) -> Data {
        let seq = self.sender.take_due(now).unwrap();
        self.transmit(now, seq)
    }

    fn transmit(&mut self, now: Time, seq: u64) -> Data {
        let data = self.sender.frame(now, seq, true, &self.config).unwrap();
        self.sender.sent(seq, true, Departure::default());
        data
    }

    fn arrive(&mut self, now: Time, data: Data) -> (Arrival, Option<Bytes>) {
        (self.receiver.data(now, data, &self.config), self.receiver.pop(now))
    }

    /// Delivers the acknowledgement; returns the number of packets that it acknowledges.
    fn acknowledge(&mut self) -> u64 {
        let ack = self.receiver.take_ack(&self.config).unwrap();
        self.sender.acknowledged(&ack).packets
    }
}

fn datagram(port: u16) -> Bytes {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(port, 2049).write(&mut packet, b"call").unwrap();
    packet.into()
}

/// The frame that arrived defined no context, and the receiver ignores the duplicate's headers.
#[test]
fn retransmission_without_context_id_defines_no_context() {
    let (mut ends, ms) = (Ends::new(), Time::from_millis);
    for port in 0..CONTEXTS_MAX.into() {
        let data = ends.send(Time::ZERO, port);
        ends.arrive(Time::ZERO, data);
        ends.acknowledge();
    }
    let (b, early, late) = (9999, ms(41_900), ms(42_100));
    let first = ends.send(early, b);
    assert_eq!(first.headers, Headers::Full, "all names are in use");
    let other = ends.send(early, 0);
    ends.arrive(early, other);
    let ack = ends.receiver.take_ack(&ends.config).unwrap();
    assert_eq!(ends.arrive(early, first), (Arrival::New, Some(datagram(b))));
    ends.sender.acknowledged(&ack);
    let again = ends.send_again(late);
    assert_eq!(ends.arrive(late, again), (Arrival::Duplicate, None));
    ends.acknowledge();
    for _ in 0..2 {
        let next = ends.send(late, b);
        assert_eq!(ends.arrive(late, next), (Arrival::New, Some(datagram(b))));
        ends.acknowledge();
    }
    let brief = ends.send(late, b);
    assert_eq!(brief.headers, Headers::Brief(1), "a name that was free by then");
    assert_eq!(ends.arrive(late, brief), (Arrival::New, Some(datagram(b))));
}

/// Of a packet of two chunks, the second arrives first.
#[test]
fn packet_of_two_chunks_is_counted_once() {
    for arrives in [false, true] {
        let mut ends = Ends::new();
        let long = ends.config.chunk_max() + 1;
        let first = ends.admit(Time::ZERO, 1, vec![0; long].into());
        assert_eq!(ends.sender.unacknowledged(), 1);
        let data = [first, first + 1].map(|seq| {
            ends.sender.take(seq);
            ends.transmit(Time::ZERO, seq)
        });
        ends.arrive(Time::ZERO, data[1].clone());
        assert_eq!((ends.acknowledge(), ends.sender.unacknowledged()), (0, 1), "half of it");
        if arrives {
            ends.arrive(Time::ZERO, data[0].clone());
            assert_eq!(ends.acknowledge(), 1);
        }
        ends.sender.expire(Time::ZERO + Duration::from_secs(60));
        assert_eq!(ends.sender.take_gave_up().total(), u64::from(!arrives));
        assert_eq!(ends.sender.unacknowledged(), 0);
    }
}

/// A receiver takes a packet without predecessor for one of a flow absent from the last 255 chunks.
#[test]
fn flow_is_kept_while_its_last_chunk_can_be_referenced() {
    for (others, prev) in [(253, 254), (254, 255), (255, 0)] {
        let mut ends = Ends::new();
        for port in 0..=others {
            let data = ends.send(Time::ZERO, port);
            ends.arrive(Time::ZERO, data);
            ends.acknowledge();
        }
        assert_eq!(ends.send(Time::ZERO, 0).prev, prev, "{others} others in between");
    }
}

/// Chunks sent in an outage are abandoned and replaced by new ones.
#[test]
fn numbers_in_outage_stay_expandable() {
    let mut ends = Ends::new();
    let before = ends.send(Time::ZERO, 1);
    ends.arrive(Time::ZERO, before);
    ends.acknowledge();
    let mut now = Time::ZERO;
    for _ in 0..40 {
        for _ in 0..1000 {
            if ends.sender.has_room(&ends.config) {
                ends.send(now, 1);
            }
        }
        now += Duration::from_secs(21);
        ends.sender.expire(now);
    }
    let rts = ends.sender.rts();
    ends.sender.probed(Departure::default());
    ends.receiver.rts(now, rts, &ends.config);
    ends.acknowledge();
    assert!(ends.sender.has_room(&ends.config) && !ends.sender.owes_floor());
    let after = ends.send(now, 1);
    assert_eq!(ends.arrive(now, after), (Arrival::New, Some(datagram(1))));
}
