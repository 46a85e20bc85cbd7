//! Tests of states that an endpoint reaches only after years.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_base::{Core, Peer as From, Time};

use super::event::{Event, PeerId};
use super::{Bottleneck, Config, Endpoint, Guests, Identity};
use crate::{Command, Options, Outcome, RequestId, Upcall};

/// Two endpoints on a link without delay and loss.
struct Wire {
    now: Time,
    ends: [(Endpoint, SocketAddr); 2],
    events: [Vec<Event>; 2],
}

impl Wire {
    #[expect(clippy::disallowed_methods, reason = "an Instant to count from; nobody looks at the clock again")]
    fn new() -> Wire {
        let (now, epoch) = (Time::from_secs(1), Instant::now());
        let config = Config { guests: Guests::Anyone, bottleneck: Bottleneck::PerPeer, ..Config::default() };
        let end = |n: u8| {
            let identity = Identity::from_secret([n; 32]).unwrap();
            let endpoint = Endpoint::new(config.clone(), identity, epoch, now, n.into()).unwrap();
            (endpoint, SocketAddr::from(([10, 0, 0, n], 7)))
        };
        Wire { now, ends: [end(1), end(2)], events: Default::default() }
    }

    fn run_for(&mut self, d: Duration) {
        let end = self.now + d;
        while self.now < end {
            while self.carry(0) | self.carry(1) {}
            self.now += Duration::from_millis(1);
            self.ends.iter_mut().for_each(|(e, _)| e.handle_timeout(self.now));
        }
    }

    /// Delivers the packets of end `n`; returns whether there were any.
    fn carry(&mut self, n: usize) -> bool {
        let mut some = false;
        while let Some(transmit) = self.ends[n].0.poll_transmit(self.now) {
            let from = From::datagram(self.ends[n].1);
            self.ends[1 - n].0.handle_input(self.now, from, transmit.payload);
            some = true;
        }
        self.events[n].extend(std::iter::from_fn(|| self.ends[n].0.poll_event()));
        some
    }

    fn connect(&mut self) {
        let (key, addr) = (self.ends[0].0.public_key(), self.ends[0].1);
        self.ends[1].0.connect(self.now, addr, key).unwrap();
        self.run_for(Duration::from_millis(100));
    }

    fn send(&mut self, peer: PeerId, len: usize) -> RequestId {
        self.ends[0].0.send(self.now, peer, Bytes::from(vec![0; len]), Options::default()).unwrap()
    }

    fn outcome(&self, request: RequestId) -> Option<Outcome> {
        self.events[0].iter().find_map(|e| match e {
            Event::Upcall(Upcall::Final(end)) if end.request == request => Some(end.outcome),
            _ => None,
        })
    }
}

/// Requests of each peer stay distinct after any number of connections.
#[test]
fn requests_keep_apart_after_any_number_of_connections() {
    for first in [0, (1 << 24) - 1, 1 << 24, u32::MAX] {
        let mut wire = Wire::new();
        wire.connect();
        let oldest = wire.ends[0].0.peers().next().unwrap();
        assert_eq!(oldest, PeerId(0));
        wire.ends[0].0.next_peer = first;
        wire.connect();
        wire.connect();
        let peers: Vec<PeerId> = wire.ends[0].0.peers().collect();
        assert_eq!(peers.len(), 3, "{first}: {peers:?}");
        let requests: Vec<RequestId> = peers.iter().map(|peer| wire.send(*peer, 1_000)).collect();
        for (peer, request) in peers.iter().zip(&requests) {
            let progress = wire.ends[0].0.control(wire.now, *request, Command::Inspect);
            assert_eq!(progress.map(|p| p.dest), Ok(peer.dest()), "{first}: {request:?}");
            assert_eq!(requests.iter().filter(|r| *r == request).count(), 1, "{first}");
        }
        let given_up = wire.send(peers[2], 1 << 20);
        assert!(wire.ends[0].0.control(wire.now, given_up, Command::Cancel).is_ok());
        wire.run_for(Duration::from_secs(1));
        assert!(requests.iter().all(|r| wire.outcome(*r) == Some(Outcome::Delivered)), "{first}");
        assert_eq!(wire.outcome(given_up), Some(Outcome::Cancelled));
        assert!(wire.ends[0].0.control(wire.now, given_up, Command::Inspect).is_err(), "it is over");
    }
}
