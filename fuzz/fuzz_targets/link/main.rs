//! Two ends of the link protocol with arbitrary frames between them: neither panics, both stay
//! within their bounds, and what either sends the decoder accepts.
//!
//! The input is a row of commands `kind length bytes`: a frame for one of them, a packet, or
//! time that passes.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_base::{Core, Peer, Time};
use remora_link::{Class, Config, HandOffPhase, Link, Packet};
use remora_wire::link::Frame;

const BASE: Peer = Peer::datagram(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));
const MOBILE: Peer = Peer::datagram(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2));

struct World {
    now: Time,
    base: Link,
    mobile: Link,
    /// Frames between the two are lost while this is set.
    lossy: bool,
}

impl World {
    fn new() -> World {
        let config = Config { rate: None, ..Config::default() };
        let mut base = Link::new(config.clone(), 1, Time::ZERO);
        let mut mobile = Link::new(config, 2, Time::ZERO);
        base.add_peer(Time::ZERO, MOBILE);
        mobile.add_peer(Time::ZERO, BASE);
        World { now: Time::ZERO, base, mobile, lossy: false }
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        let (link, other) = if kind & 1 == 0 { (&mut self.base, MOBILE) } else { (&mut self.mobile, BASE) };
        match (kind >> 1) % 6 {
            0 => link.handle_input(self.now, other, Bytes::copy_from_slice(bytes)),
            1 => {
                let packet = Packet {
                    flow: bytes.len() as u64 % 3,
                    responsive: false,
                    class: Class::Default,
                    bytes: Bytes::copy_from_slice(bytes),
                };
                link.enqueue(self.now, other, packet);
            }
            2 => self.now += Duration::from_millis(u64::from(kind) + bytes.len() as u64 * 4),
            3 => self.lossy = !self.lossy,
            4 => link.announce_handoff(
                self.now,
                HandOffPhase::Begin { expected: Duration::from_millis(bytes.len() as u64) },
            ),
            _ => link.announce_handoff(self.now, HandOffPhase::End),
        }
        self.settle();
    }

    /// Lets both ends come to rest at this moment.
    fn settle(&mut self) {
        for link in [&mut self.base, &mut self.mobile] {
            if link.poll_timeout().is_some_and(|at| at <= self.now) {
                link.handle_timeout(self.now);
            }
        }
        // What is sent at one moment is bounded: windows and queues are.
        for _ in 0..10_000 {
            let down = self.base.poll_transmit(self.now);
            let up = self.mobile.poll_transmit(self.now);
            let quiet = down.is_none() && up.is_none();
            for (transmit, to, from) in [(down, &mut self.mobile, BASE), (up, &mut self.base, MOBILE)] {
                if let Some(transmit) = transmit {
                    Frame::decode(transmit.payload.clone()).expect("a link sends frames");
                    if !self.lossy {
                        to.handle_input(self.now, from, transmit.payload);
                    }
                }
            }
            while self.base.poll_event().is_some() || self.mobile.poll_event().is_some() {}
            if quiet {
                break;
            }
        }
        for link in [&self.base, &self.mobile] {
            for view in link.snapshot().peers {
                assert!(view.unacknowledged <= 2040 && view.held <= 2040, "{view:?}");
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(frame) = Frame::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
    }
    let mut world = World::new();
    let mut rest = data;
    while let [kind, len, more @ ..] = rest {
        let (bytes, after) = more.split_at(usize::from(*len).min(more.len()));
        world.command(*kind, bytes);
        rest = after;
    }
});
