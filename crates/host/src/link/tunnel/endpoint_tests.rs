//! Tests of [`super::endpoint`]: both ends in memory, with a network that loses on demand.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::Time;
use remora_wire::link::SHORT_LATE_MAX;

use super::endpoint::{GONE_AFTER, TunnelEndpoint};
use super::event::{DownReason, KnownPeer, OutgoingDatagram, TunnelEvent};
use super::handshake::{CheckedInitiation, HandshakeResponse, INITIATION_LEN, Initiation, ReceivedInitiation};
use super::key::{LinkIdentity, LinkPublicKey, SharedSecret};
use super::session::{self, DatagramKind};

const KEEPALIVE: Duration = Duration::from_secs(5);
const WALL: u64 = 1_700_000_000_000_000_000;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn known(key: LinkPublicKey) -> KnownPeer {
    KnownPeer { key, secret: None }
}

/// A base, its mobiles, and a wire that delivers immediately or not at all.
struct World {
    now: Time,
    base: TunnelEndpoint,
    identity: LinkIdentity,
    mobiles: Vec<(SocketAddr, TunnelEndpoint, LinkIdentity)>,
    base_events: Vec<TunnelEvent>,
    mobile_events: Vec<TunnelEvent>,
    /// Every datagram sent, with its source.
    wire: Vec<(SocketAddr, OutgoingDatagram)>,
    /// Whether datagrams arrive.
    open: bool,
}

const BASE: &str = "203.0.113.1:51900";

impl World {
    fn new(mobiles: usize) -> World {
        let identity = LinkIdentity::generate().unwrap();
        let keys: Vec<LinkIdentity> = (0..mobiles).map(|_| LinkIdentity::generate().unwrap()).collect();
        let all = keys.iter().map(|k| known(k.public)).collect();
        let base = TunnelEndpoint::base(identity.clone(), all, 1, WALL, Time::ZERO);
        let mobiles = keys.into_iter().enumerate().map(|(i, key)| {
            let end = mobile(&key, identity.public, 10 + i as u64, WALL, Time::ZERO);
            (SocketAddr::new([192, 0, 2, 1 + i as u8].into(), 4000), end, key)
        });
        let mobiles = mobiles.collect();
        let (base_events, mobile_events, wire) = (Vec::new(), Vec::new(), Vec::new());
        World { now: Time::ZERO, base, identity, mobiles, base_events, mobile_events, wire, open: true }
    }

    /// Delivers datagrams until no end sends any.
    fn settle(&mut self) {
        loop {
            let mut sent: Vec<(SocketAddr, OutgoingDatagram)> = Vec::new();
            while let Some(o) = self.base.poll_outgoing() {
                sent.push((at(BASE), o));
            }
            for (from, end, _) in &mut self.mobiles {
                while let Some(o) = end.poll_outgoing() {
                    sent.push((*from, o));
                }
                self.mobile_events.extend(std::iter::from_fn(|| end.poll_event()));
            }
            self.base_events.extend(std::iter::from_fn(|| self.base.poll_event()));
            if sent.is_empty() {
                return;
            }
            for (from, o) in sent {
                self.wire.push((from, o.clone()));
                if !self.open {
                    continue;
                }
                if o.to == at(BASE) {
                    self.base.receive(self.now, from, &o.bytes);
                } else if let Some((_, end, _)) = self.mobiles.iter_mut().find(|(a, ..)| *a == o.to) {
                    end.receive(self.now, from, &o.bytes);
                }
            }
        }
    }

    /// Advances time in steps of 50 ms.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(50);
            self.base.handle_timeout(self.now);
            self.mobiles.iter_mut().for_each(|(_, m, _)| m.handle_timeout(self.now));
            self.settle();
        }
    }

    fn up(mobiles: usize) -> World {
        let mut w = World::new(mobiles);
        w.pass(Duration::from_millis(100));
        assert_eq!(w.base_events.iter().filter(|e| matches!(e, TunnelEvent::Up { .. })).count(), mobiles);
        w.base_events.clear();
        w.mobile_events.clear();
        w
    }

    /// Sends a frame in each direction; true if both arrived.
    fn talks(&mut self, mobile: usize) -> bool {
        let now = self.now;
        self.base_events.clear();
        self.mobile_events.clear();
        self.mobiles[mobile].1.send(now, 0, b"up");
        self.base.send(now, mobile, b"down");
        self.settle();
        let up = TunnelEvent::Frame { peer: mobile, frame: Bytes::from_static(b"up") };
        let down = TunnelEvent::Frame { peer: 0, frame: Bytes::from_static(b"down") };
        self.base_events.contains(&up) && self.mobile_events.contains(&down)
    }

    /// The datagram of a frame, not delivered yet.
    fn hold_back(&mut self, frame: &[u8]) -> Vec<u8> {
        let now = self.now;
        self.mobiles[0].1.send(now, 0, frame);
        self.mobiles[0].1.poll_outgoing().unwrap().bytes
    }

    fn restart_base(&mut self) {
        let all = self.mobiles.iter().map(|(_, _, key)| known(key.public)).collect();
        self.base = TunnelEndpoint::base(self.identity.clone(), all, 77, WALL, self.now);
    }

    fn initiations(&self) -> usize {
        self.wire.iter().filter(|(_, o)| o.bytes[0] == 1).count()
    }
}

fn mobile(key: &LinkIdentity, base: LinkPublicKey, seed: u64, wall: u64, now: Time) -> TunnelEndpoint {
    TunnelEndpoint::mobile(key.clone(), known(base), at(BASE), KEEPALIVE, seed, wall, now)
}

#[test]
fn mobiles_connect_and_exchange_frames() {
    let mut w = World::up(3);
    assert!((0..3).all(|i| w.talks(i)));
    assert_eq!(w.base.address(1), Some(w.mobiles[1].0));
}

#[test]
fn unreachable_base_is_called_with_backoff() {
    let mut w = World::new(1);
    w.open = false;
    w.pass(Duration::from_secs(60));
    let calls = w.initiations();
    assert!((25..45).contains(&calls), "{calls} calls in a minute");
    assert_eq!(w.mobile_events, [TunnelEvent::NoAnswer { was_up: false }], "told once");
    w.open = true;
    w.pass(Duration::from_millis(2300));
    assert!(w.talks(0));
}

/// If the base took the largest timestamp, it would accept no newer one.
#[test]
fn future_timestamp_does_not_lock_mobile_out() {
    let mut w = World::new(1);
    let start = |w: &mut World, seed, wall| {
        let (_, end, key) = &mut w.mobiles[0];
        *end = mobile(key, w.identity.public, seed, wall, w.now);
        w.pass(Duration::from_millis(100));
        w.talks(0)
    };
    for (seed, wall) in [(20, u64::MAX), (21, u64::MAX / 2 + 1)] {
        assert!(!start(&mut w, seed, wall));
        assert!(w.base.counters().refused > 0);
    }
    assert!(start(&mut w, 22, WALL));
}

/// A base that rejects every timestamp as stale is not called without limit.
#[test]
fn repeated_stale_answers_cause_backoff() {
    let (base, key) = (LinkIdentity::generate().unwrap(), LinkIdentity::generate().unwrap());
    let mut end = mobile(&key, base.public, 3, WALL, Time::ZERO);
    let mut calls = 0;
    for step in 0..200 {
        let now = Time::from_millis(50 * step);
        end.handle_timeout(now);
        // Datagrams caused by these are sent in the next step.
        let sent: Vec<_> = std::iter::from_fn(|| end.poll_outgoing()).collect();
        for o in sent {
            let Some((DatagramKind::Initiation, index, rest)) = session::parse(&o.bytes) else { continue };
            calls += 1;
            let hello =
                ReceivedInitiation::read(&base, index, CheckedInitiation::check(&base.public, rest).unwrap()).unwrap();
            let (message, _) = hello.answer(None, HandshakeResponse::Stale { newest: u64::MAX }).unwrap();
            let answer = [&session::head(DatagramKind::Response, index)[..], &message].concat();
            // The response may arrive twice.
            end.receive(now, at(BASE), &answer);
            end.receive(now, at(BASE), &answer);
        }
    }
    assert!((3..15).contains(&calls), "{calls} calls in 10 s");
    let events: Vec<_> = std::iter::from_fn(|| end.poll_event()).collect();
    assert!(!events.contains(&TunnelEvent::OtherSecret), "{events:?}");
}

#[test]
fn restart_of_either_end_reconnects() {
    let mut w = World::up(2);
    w.restart_base();
    // A frame makes the mobile notice in seconds, otherwise the next keepalive does.
    w.mobiles[0].1.send(w.now, 0, b"lost");
    w.pass(Duration::from_secs(10));
    assert!(w.talks(0) && w.talks(1), "after the base's restart");
    let (_, end, key) = &mut w.mobiles[0];
    *end = mobile(key, w.identity.public, 99, WALL, w.now);
    w.pass(Duration::from_millis(100));
    assert!(w.talks(0), "after the mobile's restart");
    assert!(w.talks(1));
}

#[test]
fn restart_is_reported_and_rekeying_is_not() {
    let mut w = World::up(2);
    let at = w.now;
    w.mobiles[0].1.send(at, 0, b"of the old epoch");
    let held = w.mobiles[0].1.poll_outgoing().unwrap();
    let (from, end, key) = &mut w.mobiles[0];
    let from = *from;
    *end = mobile(key, w.identity.public, 99, WALL, w.now);
    w.pass(Duration::from_millis(100));
    assert_eq!(w.base_events, [TunnelEvent::Restarted { peer: 0 }]);
    assert_eq!(w.mobile_events, [TunnelEvent::Up { peer: 0 }]);
    // The link core has dropped the old epoch, so no message of it may follow.
    w.base_events.clear();
    w.base.receive(w.now, from, &held.bytes);
    w.settle();
    assert_eq!((w.base_events.as_slice(), w.base.counters().forged), (&[][..], 1));
    // The reverse: both mobiles detect the restart.
    w.restart_base();
    w.mobile_events.clear();
    w.pass(Duration::from_secs(10));
    assert_eq!(w.mobile_events, vec![TunnelEvent::Restarted { peer: 0 }; 2]);
    w.mobile_events.clear();
    w.pass(Duration::from_secs(3610));
    assert_eq!(w.mobile_events, vec![TunnelEvent::Renewed { peer: 0 }; 2], "the lives go on");
}

#[test]
fn removed_mobile_sees_new_epoch() {
    // The base has removed a mobile that still has its session.
    let mut w = World::up(1);
    w.base.leave(w.now);
    while w.base.poll_outgoing().is_some() {}
    w.pass(Duration::from_secs(10));
    assert_eq!(w.mobile_events, [TunnelEvent::Restarted { peer: 0 }]);
    assert_eq!(w.base_events, [TunnelEvent::Up { peer: 0 }]);
}

#[test]
fn goodbye_causes_immediate_call() {
    let mut w = World::up(1);
    w.base.leave(w.now);
    w.settle();
    w.restart_base();
    w.mobile_events.clear();
    w.pass(Duration::from_millis(300));
    assert!(w.talks(0));
    let now = w.now;
    w.mobiles[0].1.leave(now);
    w.base_events.clear();
    w.settle();
    assert_eq!(w.base_events, [TunnelEvent::Down { peer: 0, why: DownReason::Left }]);
    assert!(!w.base.send(w.now, 0, b"nobody"));
}

#[test]
fn mobile_roams_to_new_address() {
    let mut w = World::up(1);
    w.mobiles[0].0 = at("198.51.100.7:999");
    assert!(w.talks(0) || w.talks(0), "its next message tells where it is");
    assert_eq!(w.base.address(0), Some(at("198.51.100.7:999")));
}

#[test]
fn replayed_datagrams_do_not_move_peer() {
    let mut w = World::up(1);
    let now = w.now;
    w.mobiles[0].1.send(now, 0, b"one");
    let held = w.mobiles[0].1.poll_outgoing().unwrap();
    assert!(w.talks(0));
    let thief = at("198.51.100.66:1");
    w.base.receive(now, thief, &held.bytes);
    assert_eq!(w.base.address(0), Some(w.mobiles[0].0), "late: not from where the mobile is");
    let all: Vec<_> = w.wire.drain(..).filter(|(_, o)| o.to == at(BASE)).collect();
    let before = w.base.counters().replayed;
    all.iter().filter(|(_, o)| o.bytes[0] & 0x80 != 0).for_each(|(_, o)| w.base.receive(now, thief, &o.bytes));
    assert!(w.base.counters().replayed > before);
    assert_eq!(w.base.address(0), Some(w.mobiles[0].0));
}

#[test]
fn strangers_get_no_answer() {
    let mut w = World::up(1);
    let stranger = LinkIdentity::generate().unwrap();
    let mut end = mobile(&stranger, w.identity.public, 5, WALL, w.now);
    end.handle_timeout(w.now);
    let call = end.poll_outgoing().unwrap();
    let from = at("198.51.100.9:9");
    w.base.receive(w.now, from, &call.bytes);
    assert_eq!(w.base.poll_outgoing(), None);
    assert_eq!(w.base.poll_event(), Some(TunnelEvent::Stranger { key: stranger.public, from }));
    assert_eq!(w.base.counters().strangers, 1);
}

/// Such a mobile only reports that its key may be wrong.
#[test]
fn call_for_other_base_is_reported() {
    let mut w = World::up(1);
    let (stranger, other) = (LinkIdentity::generate().unwrap(), LinkIdentity::generate().unwrap());
    let mut end = mobile(&stranger, other.public, 5, WALL, w.now);
    end.handle_timeout(w.now);
    let call = end.poll_outgoing().unwrap().bytes;
    let from = at("198.51.100.9:9");
    w.base.receive(w.now, from, &call);
    assert_eq!((w.base.poll_event(), w.base.poll_outgoing()), (Some(TunnelEvent::OtherBase { from }), None));
    w.base.receive(w.now, from, &call[..call.len() - 1]);
    assert_eq!((w.base.poll_event(), w.base.counters().refused), (None, 2));
}

#[test]
fn outage_after_session_is_no_setup_error() {
    let mut w = World::up(1);
    w.mobile_events.clear();
    w.open = false;
    w.pass(Duration::from_secs(60));
    assert!(w.mobile_events.contains(&TunnelEvent::NoAnswer { was_up: true }), "{:?}", w.mobile_events);
    w.open = true;
    w.pass(Duration::from_secs(5));
    w.base.leave(w.now);
    w.pass(Duration::from_secs(1));
    w.open = false;
    w.pass(Duration::from_secs(60));
    let told: Vec<_> = w.mobile_events.iter().filter(|e| matches!(e, TunnelEvent::NoAnswer { .. })).collect();
    assert_eq!(told, [&TunnelEvent::NoAnswer { was_up: true }; 2], "also when it has left meanwhile");
}

#[test]
fn replayed_initiation_is_refused() {
    let mut w = World::up(1);
    let calls: Vec<_> = w.wire.iter().filter(|(_, o)| o.bytes[0] == 1).cloned().collect();
    let (_, end, key) = &mut w.mobiles[0];
    *end = mobile(key, w.identity.public, 99, WALL, w.now);
    w.pass(Duration::from_millis(100));
    for (_, call) in &calls {
        w.base.receive(w.now, at("198.51.100.66:1"), &call.bytes);
    }
    w.settle();
    assert!(w.talks(0), "the session is untouched");
}

#[test]
fn clock_set_back_is_corrected() {
    let mut w = World::up(1);
    let (_, end, key) = &mut w.mobiles[0];
    *end = mobile(key, w.identity.public, 99, WALL / 2, w.now);
    w.pass(Duration::from_millis(100));
    assert!(w.talks(0));
}

#[test]
fn flood_of_initiations_is_limited() {
    let mut w = World::up(1);
    let mut answers = 0;
    for _ in 0..500 {
        let mut end = mobile(&w.mobiles[0].2, w.identity.public, 5, WALL + 1_000_000, w.now);
        end.handle_timeout(w.now);
        let call = end.poll_outgoing().unwrap();
        w.base.receive(w.now, at("198.51.100.9:9"), &call.bytes);
        while let Some(o) = w.base.poll_outgoing() {
            assert!(o.bytes.len() <= call.bytes.len());
            answers += 1;
        }
    }
    assert!(answers <= 10, "{answers}");
    assert!(w.base.counters().limited >= 490);
}

#[test]
fn silence_starts_call_and_its_end_drops_it() {
    let mut w = World::up(1);
    w.open = false;
    let before = w.initiations();
    w.pass(Duration::from_secs(30));
    let calls = w.initiations() - before;
    assert!((5..20).contains(&calls), "{calls}");
    w.open = true;
    assert!(w.talks(0), "the old keys still work");
    let before = w.initiations();
    w.pass(Duration::from_secs(4));
    assert!(w.initiations() - before <= 1, "no more calls than one that was due");
}

#[test]
fn one_way_traffic_causes_no_calls() {
    let mut w = World::up(1);
    let before = w.initiations();
    for _ in 0..200 {
        let now = w.now;
        w.mobiles[0].1.send(now, 0, b"telemetry");
        w.pass(Duration::from_millis(50));
    }
    assert_eq!(w.initiations(), before);
}

#[test]
fn rekeying_loses_no_frames() {
    let mut w = World::up(1);
    for _ in 0..35 {
        w.pass(Duration::from_secs(100));
        assert!(w.talks(0));
    }
    w.pass(Duration::from_secs(99));
    w.mobile_events.clear();
    w.pass(Duration::from_secs(2));
    assert_eq!(w.mobile_events, [TunnelEvent::Renewed { peer: 0 }]);
    assert!(w.talks(0));
}

/// The link protocol sends numbers as their low bytes, so a frame that is later would be expanded wrongly.
#[test]
fn frame_reordering_is_limited_to_window() {
    for (later, counts) in [(SHORT_LATE_MAX, true), (SHORT_LATE_MAX + 1, false)] {
        let mut w = World::up(1);
        let now = w.now;
        let late = w.hold_back(b"late");
        (0..later).for_each(|_| assert!(w.mobiles[0].1.send(now, 0, b"later")));
        w.settle();
        w.base_events.clear();
        w.base.receive(now, w.mobiles[0].0, &late);
        w.settle();
        let frame = Bytes::from_static(b"late");
        assert_eq!(w.base_events.contains(&TunnelEvent::Frame { peer: 0, frame }), counts, "{later} later ones");
    }
}

#[test]
fn frame_under_old_keys_is_refused_after_rekeying() {
    let mut w = World::up(1);
    w.pass(Duration::from_secs(3599));
    let late = w.hold_back(b"late");
    w.pass(Duration::from_secs(2));
    assert!(w.base_events.contains(&TunnelEvent::Renewed { peer: 0 }));
    let before = w.base.counters().replayed;
    w.base_events.clear();
    w.base.receive(w.now, w.mobiles[0].0, &late);
    w.settle();
    assert_eq!((w.base_events.as_slice(), w.base.counters().replayed), (&[][..], before + 1));
}

#[test]
fn silent_mobile_is_down_after_timeout() {
    let mut w = World::up(1);
    w.open = false;
    w.pass(GONE_AFTER + Duration::from_secs(1));
    assert_eq!(w.base_events, [TunnelEvent::Down { peer: 0, why: DownReason::Silent }]);
    w.open = true;
    w.pass(Duration::from_millis(2500));
    assert!(w.talks(0));
}

#[test]
fn different_shared_secrets_are_refused() {
    let (base, key) = (LinkIdentity::generate().unwrap(), LinkIdentity::generate().unwrap());
    let secret = |n| Some(SharedSecret([n; 32]));
    for (theirs, agrees) in [(secret(1), true), (secret(2), false), (None, false)] {
        let all = vec![KnownPeer { key: key.public, secret: secret(1) }];
        let mut b = TunnelEndpoint::base(base.clone(), all, 1, WALL, Time::ZERO);
        let to_base = KnownPeer { key: base.public, secret: theirs };
        let mut m = TunnelEndpoint::mobile(key.clone(), to_base, at(BASE), KEEPALIVE, 2, WALL, Time::ZERO);
        m.handle_timeout(Time::ZERO);
        b.receive(Time::ZERO, at("192.0.2.1:1"), &m.poll_outgoing().unwrap().bytes);
        m.receive(Time::ZERO, at(BASE), &b.poll_outgoing().unwrap().bytes);
        let first = if agrees { TunnelEvent::Up { peer: 0 } } else { TunnelEvent::OtherSecret };
        assert_eq!(m.poll_event(), Some(first));
        // The error is reported once during the calls, and the missing response is not.
        for second in 0..if agrees { 0 } else { 60 } {
            let now = Time::from_secs(second);
            m.handle_timeout(now);
            while let Some(call) = m.poll_outgoing() {
                b.receive(now, at("192.0.2.1:1"), &call.bytes);
            }
            while let Some(answer) = b.poll_outgoing() {
                m.receive(now, at(BASE), &answer.bytes);
            }
            assert_eq!(m.poll_event(), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_datagram_is_handled_safely(noise in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..5, at in 0usize..300, bit in 0u8..8) {
        let mut w = World::up(1);
        let now = w.now;
        let mut datagrams = vec![noise.clone(), [&[kind], &noise[..]].concat()];
        // Datagrams of the exchange, truncated or with a flipped bit.
        for (_, o) in &w.wire {
            let mut changed = o.bytes.clone();
            let i = at % changed.len();
            changed[i] ^= 1 << bit;
            datagrams.push(changed);
            datagrams.push(o.bytes[..i].to_vec());
        }
        for d in &datagrams {
            w.base.receive(now, at_thief(), d);
            w.mobiles[0].1.receive(now, at_thief(), d);
        }
        w.settle();
        prop_assert_eq!(w.base.address(0), Some(w.mobiles[0].0));
        prop_assert!(w.talks(0));
    }
}

#[test]
fn junk_flood_does_not_block_mobiles() {
    let other = LinkIdentity::generate().unwrap();
    let mobile = LinkIdentity::generate().unwrap();
    let elsewhere = Initiation::new(&mobile, &other.public, None, 1, 1, 1).unwrap();
    let head = session::head(DatagramKind::Initiation, 7);
    let long = [&head[..], &elsewhere.message].concat();
    let cut = [&head[..], &[9; INITIATION_LEN]].concat();
    for junk in [&[1, 0, 0, 0, 7][..], &long, &cut] {
        let mut w = World::new(1);
        let mut n = 0;
        let mut flood = |w: &mut World, datagrams: u32| {
            for _ in 0..datagrams {
                n += 1;
                let from = SocketAddr::new(std::net::Ipv4Addr::from(0x0b00_0000 + n).into(), 9);
                w.base.receive(w.now, from, junk);
            }
        };
        flood(&mut w, 200);
        let is_up = |w: &World| w.base_events.iter().any(|e| matches!(e, TunnelEvent::Up { .. }));
        let up_after = (0..100).find(|_| {
            flood(&mut w, 200);
            w.pass(Duration::from_millis(50));
            is_up(&w)
        });
        assert!(up_after.is_some_and(|steps| steps < 20), "{} bytes: {up_after:?} of 50 ms", junk.len());
        assert_eq!(w.base.counters().limited, 0);
        assert_eq!(w.base.counters().refused, u64::from(n));
    }
}

fn at_thief() -> SocketAddr {
    at("198.51.100.66:1")
}
