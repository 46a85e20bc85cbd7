//! One mobile's behaviour does not harm the others.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Medium, World, packet, peer};
use remora_base::{Core, Peer, Rate, Time};
use remora_link::{Class, Duplex, Link, LinkConfig};
use remora_wire::link::{Announcement, Data, Frame, FrameNumbers, HandOff, Headers, Part, Rts};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn world(duplex: Duplex) -> World {
    let mut medium = Medium::new(2);
    medium.half_duplex = duplex == Duplex::Half;
    World::new(&LinkConfig { rate: Some(Rate::mbit(1)), duplex, ..LinkConfig::default() }, medium, 3)
}

/// The longest interval without a delivery to the first mobile, since `from`.
fn longest_gap(world: &World, from: Time) -> Duration {
    let mut times: Vec<Time> = world.delivered[1].iter().map(|(at, ..)| *at).filter(|at| *at > from).collect();
    times.push(world.now);
    let before = std::iter::once(from).chain(times.iter().copied());
    before.zip(&times).map(|(a, b)| b.since(a)).max().unwrap_or_default()
}

#[test]
fn ack_late_by_seconds_delays_no_other_mobile() {
    for duplex in [Duplex::Half, Duplex::Full] {
        for seconds in [2, 15] {
            let mut world = world(duplex);
            let mut next = 0;
            // A first exchange measures the shortest RTT.
            world.send(0, 2, packet(9, 0, 100, Class::Default));
            world.run(Time::from_secs(2), |w| w.saturate(0, 1, 1, &mut next, 1400, 4));
            let late = world.now + Duration::from_secs(seconds);
            world.medium.late = Some((2, late));
            world.send(0, 2, packet(9, 1, 100, Class::Default));
            world.run(late + Duration::from_secs(5), |w| w.saturate(0, 1, 1, &mut next, 1400, 4));
            assert_eq!(world.view(0, 2).stats.acknowledged, 2, "it was answered");
            let gap = longest_gap(&world, Time::from_secs(2));
            assert!(gap <= MS(150), "{duplex:?}, {seconds} s late: nothing for {gap:?}");
        }
    }
}

/// Frame `number` of a misbehaving mobile.
fn mad(kind: &str, number: u32) -> Frame {
    let (epoch, stamp) = (5, number as u16);
    match kind {
        "probes" => Frame::Rts(Rts { epoch, floor: 1, stamp }),
        "signals" => {
            let announcement = Announcement { epoch, id: stamp };
            Frame::HandOff(HandOff { announcement, expected_ms: None })
        }
        _ => {
            // The same chunk repeatedly: each duplicate triggers an acknowledgement.
            let place = FrameNumbers::Full { epoch, seq: 1, stamp, back: 0 };
            let packet = Some(Bytes::from_static(&[0; 8]));
            Frame::Data(Data {
                place,
                prev: 0,
                poll: true,
                ack: None,
                packet,
                part: Part::WHOLE,
                headers: Headers::Full,
            })
        }
    }
}

/// Packets delivered to the first mobile in a second while the second one sends such frames at ten times the hop's
/// rate.
fn given(duplex: Duplex, kind: Option<&str>) -> usize {
    let mut world = world(duplex);
    let (mut next, mut number) = (0, 0);
    let begins = Time::from_secs(1);
    world.run(begins, |w| w.saturate(0, 1, 1, &mut next, 1400, 4));
    let mut sent = 0.0;
    for step in 0..2000 {
        world.run(begins + Duration::from_micros(500) * step, |w| w.saturate(0, 1, 1, &mut next, 1400, 4));
        while let Some(kind) = kind.filter(|_| sent < 10.0 * 1e6 / 8.0 * 0.0005 * f64::from(step)) {
            let frame = mad(kind, number).to_bytes();
            sent += frame.len() as f64 + 50.0;
            number += 1;
            world.inject(2, 0, frame);
        }
    }
    world.delivered[1].iter().filter(|(at, ..)| *at > begins).count()
}

#[test]
fn flood_of_one_mobile_leaves_share_of_others() {
    for duplex in [Duplex::Half, Duplex::Full] {
        let alone = given(duplex, None);
        for kind in ["probes", "signals", "packets"] {
            let given = given(duplex, Some(kind));
            assert!(given * 100 >= alone * 80, "{duplex:?}, {kind}: {given} packets, {alone} without");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what it costs is time")]
fn forged_datagrams_cause_no_scan_of_mobiles() {
    // A base with a thousand mobiles and a packet for each; none of them acknowledges.
    let mut link = Link::new(LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, 1, Time::ZERO);
    let mobile = |n: u32| Peer::datagram((std::net::Ipv4Addr::from(0x0a00_0000 + n), 0).into());
    for n in 0..1000 {
        link.add_peer(Time::ZERO, mobile(n));
        link.enqueue(Time::ZERO, mobile(n), packet(1, n, 100, Class::Default));
    }
    let mut now = Time::ZERO;
    for _ in 0..20 {
        while link.poll_transmit(now).is_some() {}
        now = link.poll_timeout().expect("something waits");
        link.handle_timeout(now);
    }
    while link.poll_transmit(now).is_some() {}
    let (due, began) = (link.poll_timeout(), std::time::Instant::now());
    for _ in 0..50_000 {
        link.handle_input(now, mobile(5000), Bytes::from_static(&[2, 0, 5, 0, 1, 0, 1]));
        link.handle_timeout(now);
        assert_eq!((link.poll_transmit(now), link.poll_timeout()), (None, due));
    }
    // This takes a fraction of a second. Scanning every mobile would take minutes.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn replies_beyond_burst_are_merged_and_delayed() {
    // Twenty consecutive probes get four immediate replies and a later one that covers the rest.
    let config = LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() };
    let mut link = Link::new(config, 1, Time::ZERO);
    let now = Time::from_secs(1);
    link.add_peer(now, peer(2));
    let drain = |link: &mut Link, now: Time| std::iter::from_fn(|| link.poll_transmit(now)).count();
    let mut answers = 0;
    for number in 0..20 {
        link.handle_input(now, peer(2), mad("probes", number).to_bytes());
        answers += drain(&mut link, now);
    }
    assert_eq!(answers, 4);
    let later = link.poll_timeout().expect("one is owed");
    assert!(later > now && later <= now + MS(5), "{:?}", later.since(now));
    link.handle_timeout(later);
    assert_eq!((drain(&mut link, later), link.poll_timeout()), (1, None));
}
