//! The two halves with nothing between them.

use super::*;
use crate::Class;
use crate::arq::receiver::{Arrival, Receiver};
use crate::queueing::queue::{Queue, aim};
use etherparse::PacketBuilder;
use remora_wire::link::CONTEXTS_MAX;

/// The two ends, and nothing between them.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    config: Config,
}

impl Ends {
    fn new() -> Ends {
        Ends { sender: Sender::new(1, 0), receiver: Receiver::default(), config: Config::default() }
    }

    /// Sends a packet of the flow from `port`.
    fn send(&mut self, now: Time, port: u16) -> Data {
        let seq = self.admit(now, port, datagram(port));
        self.sender.take(seq);
        self.transmit(now, seq)
    }

    /// Numbers a packet; the number of its first chunk.
    fn admit(&mut self, now: Time, port: u16, bytes: Bytes) -> u64 {
        let mut queue = Queue::new(now);
        let packet = Packet { flow: port.into(), class: Class::Default, responsive: true, bytes };
        queue.push(now, packet, &self.config);
        let waiting = queue.pop(now, &aim(&self.config, Duration::ZERO, 1, Duration::ZERO), &self.config).unwrap();
        let seq = self.sender.next_number();
        self.sender.admit(waiting, true, Duration::ZERO, &self.config);
        seq
    }

    /// Sends again what is due.
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

    /// How many packets that acknowledged.
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

/// The one that arrived had no name in it, and the other end looks into no duplicates.
#[test]
fn what_went_without_a_name_does_not_make_one_known_when_it_is_sent_again() {
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

/// Of one in two chunks the second arrives.
#[test]
fn a_packet_has_one_end_whatever_becomes_of_its_chunks() {
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

/// The other end takes who is not named for a flow of which none was among the last 255.
#[test]
fn a_flow_is_known_by_its_last_chunk_as_long_as_that_may_be_named() {
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

/// What is sent in an outage is given up, and the next takes its place.
#[test]
fn numbers_do_not_go_beyond_what_the_other_end_makes_of_their_low_bits() {
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
