//! The session over a link that goes away and comes back, and with an address that changes.

mod session_world;

use std::net::SocketAddr;
use std::time::Duration;

use remora_atp::session::{Event, PeerId};
use remora_atp::{Options, Outcome, Priority};
use remora_base::Transmit;
use session_world::{Link, World, addr, object, options};

const MS: Duration = Duration::from_millis(1);

fn out_for(world: &mut World, d: Duration) {
    let (from, to) = (world.now, world.now + d);
    for node in &mut world.nodes {
        node.link.blackouts.push((from, to));
    }
}

fn count(world: &World, n: usize, what: fn(&Event) -> bool) -> usize {
    world.nodes[n].events.iter().filter(|(_, e)| what(e)).count()
}

/// An object under way when the link goes is held; when it comes back, the first bytes follow
/// within 150 ms and a round trip, and nothing was lost or sent for nothing.
#[test]
fn after_a_blackout_objects_go_on_at_once() {
    for (seconds, rtt) in [(2, 40), (30, 40), (180, 40), (30, 600)] {
        let mut world = World::pair(20, Link::new(50_000, rtt * MS / 2));
        let peer = world.meet();
        world.send(1, peer, object(1, 200_000), options(Priority::LOW));
        world.run_for(Duration::from_secs(2));
        out_for(&mut world, Duration::from_secs(seconds));
        let back = world.now + Duration::from_secs(seconds);
        world.run_for(Duration::from_millis(500 + u64::from(rtt) * 3));
        assert_eq!(count(&world, 1, |e| matches!(e, Event::Silent { .. })), 1);
        let urgent = world.send(1, peer, object(2, 800), options(Priority::HIGH));
        let wire = world.nodes[1].wire.0;
        world.run_until(back, |_| false);
        let probes = (world.nodes[1].wire.0 - wire) as f64 / seconds as f64;
        assert!(probes < 2_500.0, "{probes:.0} B/s into a dead link");
        assert!(world.received(0).is_empty());
        world.run_until(back + Duration::from_secs(20), |w| !w.received(0).is_empty());
        let took = world.now.since(back);
        // The probe's interval (longer after minutes), a round-trip time, and the object's delay and airtime.
        let probe = if seconds <= 30 { 150 } else { 500 };
        let bound = (probe + rtt + rtt / 2 + 60) * MS;
        assert!(took <= bound, "{seconds} s out, round trip {rtt} ms: {took:?} after the return, not {bound:?}");
        world.run_for(Duration::from_secs(20));
        assert_eq!(world.outcome(1, urgent), Some(Outcome::Delivered));
        assert_eq!(world.received(0).len(), 2);
        assert_eq!(count(&world, 1, |e| matches!(e, Event::Heard { .. })), 1);
    }
}

#[test]
fn a_connection_outlives_hours_of_silence() {
    let mut world = World::pair(21, Link::new(100_000, 20 * MS));
    let peer = world.meet();
    out_for(&mut world, Duration::from_secs(3 * 3600));
    let request = world.send(1, peer, object(1, 5_000), Options::default());
    world.run_for(Duration::from_secs(3 * 3600));
    assert!(world.received(0).is_empty());
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
    assert_eq!(count(&world, 1, |e| matches!(e, Event::Down { .. })), 0);
}

#[test]
fn objects_submitted_before_the_link_is_there_wait_for_it() {
    let mut world = World::pair(22, Link::new(100_000, 20 * MS));
    out_for(&mut world, Duration::from_secs(60));
    let peer = world.connect(1, 0);
    let request = world.send(1, peer, object(1, 5_000), Options::default());
    world.run_for(Duration::from_secs(59));
    assert_eq!(world.outcome(1, request), None);
    world.run_for(Duration::from_secs(6));
    assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
}

#[test]
fn a_transfer_survives_changes_of_address() {
    for (seed, rebind) in [(23, true), (24, false)] {
        let mut world = World::pair(seed, Link::new(100_000, 20 * MS));
        let client = world.meet();
        let server = world.with(0, |e, _| e.peers().next().unwrap());
        world.send(1, client, object(1, 400_000), Options::default());
        world.send(0, server, object(2, 400_000), Options::default());
        for hop in 0..3u16 {
            world.run_for(Duration::from_secs(1));
            world.nodes[1].addr = addr(10 + usize::from(hop), 5000 + hop);
            if rebind {
                world.with(1, |e, now| e.rebind(now));
            }
        }
        world.run_for(Duration::from_secs(30));
        assert_eq!((world.received(0).len(), world.received(1).len()), (1, 1), "rebind: {rebind}");
        assert_eq!(count(&world, 0, |e| matches!(e, Event::Moved { .. })), 3);
        let seen = world.with(0, |e, _| e.status(server)).unwrap().addr;
        assert_eq!(seen, world.nodes[1].addr);
    }
}

/// One packet is enough to move a path, and its source may be forged: by its address a peer is judged
/// by where its handshake took place.
#[test]
fn validated_address_survives_a_packet_from_elsewhere() {
    let mut world = World::pair(26, Link::new(100_000, 20 * MS));
    let client = world.connect(1, 0);
    let home = world.nodes[1].addr;
    // The server has the client's first packet, and not its second.
    world.run_for(50 * MS);
    let peer = world.with(0, |e, _| e.peers().next().unwrap());
    let early = world.with(0, |e, _| e.status(peer)).unwrap();
    assert_eq!((early.addr, early.came_from), (home, None), "nothing is proved yet");
    assert!(world.run_until(world.now + Duration::from_secs(5), |w| w.is_up(0)));
    // The first object comes as if from another host; what follows comes from the true address again.
    world.nodes[1].addr = addr(40, 4040);
    world.send(1, client, object(1, 500), Options::default());
    world.nodes[1].addr = home;
    assert!(world.run_until(world.now + Duration::from_secs(5), |w| !w.received(0).is_empty()));
    let status = world.with(0, |e, _| e.status(peer)).unwrap();
    assert_eq!((status.addr, status.came_from), (addr(40, 4040), Some(home)));
    assert!(world.nodes[0].events.iter().any(|(_, e)| matches!(e, Event::Up { addr, .. } if *addr == home)));
}

/// Packets with others' addresses in them, each a move, or nearly: who is there is asked, but with
/// three times the bytes that came from there and a datagram a second.
#[test]
fn addresses_that_never_answer_get_little() {
    const SECONDS: u64 = 10;
    let away = |n: u16| addr(40, 4040 + n);
    for (name, places) in [("two of another host", vec![away(0), away(1)]), ("one, and home", vec![away(0)])] {
        let mut world = World::pair(27, Link::new(1_000_000, 5 * MS));
        let client = world.meet();
        let home = world.nodes[1].addr;
        world.run_for(Duration::from_secs(1));
        for n in 0..2 {
            world.nodes[n].capture = Some(Vec::new());
        }
        let mut came = 0;
        for k in 0..SECONDS * 100 {
            let turn = (k % 3) as usize;
            world.nodes[1].addr = places.get(turn).copied().unwrap_or(home);
            let before = world.nodes[1].capture.as_ref().map_or(0, Vec::len);
            world.send(1, client, object(1, 1), Options::default());
            let sent = world.nodes[1].capture.iter().flatten().skip(before).map(|t| t.payload.len()).sum::<usize>();
            came += if world.nodes[1].addr == home { 0 } else { sent };
            world.nodes[1].addr = home;
            world.run_for(10 * MS);
        }
        let there = world.nodes[0].capture.iter().flatten().filter(|t| places.contains(&t.to.addr));
        let there: usize = there.map(|t| t.payload.len()).sum();
        let asked = 1200 * (SECONDS as usize + 2);
        assert!(came > 0 && there > 0 && there <= 3 * came + asked, "{name}: {came} bytes, answered by {there}");
        // Who is where it was is served all the while, and may move as ever.
        world.run_for(Duration::from_secs(2));
        let all = SECONDS as usize * 100;
        assert!(world.received(0).len() > all / 2, "{name}: {} of {all}", world.received(0).len());
        world.nodes[1].addr = addr(20, 2020);
        let request = world.send(1, client, object(2, 5_000), Options::default());
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.outcome(1, request), Some(Outcome::Delivered), "{name}");
    }
}

/// The server looks for the connection that the client has left, and in vain; a new one comes from the same address.
#[test]
fn reconnect_of_a_moved_client_is_not_diverted() {
    let mut world = World::pair(28, Link::new(100_000, 20 * MS));
    let old = world.meet();
    world.run_for(Duration::from_secs(1));
    let moved = world.now;
    world.nodes[0].link.blackouts.push((moved, moved + Duration::from_secs(5)));
    world.nodes[1].addr = addr(40, 4040);
    world.send(1, old, object(1, 500), Options::default());
    world.run_for(200 * MS);
    // The good-bye does not get through.
    world.nodes[1].link.blackouts.push((world.now, world.now + 10 * MS));
    world.with(1, |e, now| e.close(now, old));
    world.run_until(moved + Duration::from_secs(6), |_| false);
    let again = world.connect(1, 0);
    let request = world.send(1, again, object(2, 5_000), Options::default());
    world.run_for(Duration::from_secs(60));
    assert_eq!(count(&world, 1, |e| matches!(e, Event::Up { .. })), 2);
    assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
}

/// A client that moves during a blackout and only listens afterwards is still found: it says
/// where it is.
#[test]
fn a_client_that_moved_while_the_link_was_out_is_found_again() {
    let mut world = World::pair(25, Link::new(100_000, 20 * MS));
    world.meet();
    let server = world.with(0, |e, _| e.peers().next().unwrap());
    out_for(&mut world, Duration::from_secs(10));
    let request = world.send(0, server, object(1, 3_000), Options::default());
    world.run_for(Duration::from_secs(5));
    world.nodes[1].addr = addr(40, 4040);
    world.with(1, |e, now| e.rebind(now));
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.outcome(0, request), Some(Outcome::Delivered));
}

/// QUIC asks the new address in vain, for as long as the link is out in one direction, and would not ask again.
#[test]
fn an_address_that_could_not_answer_is_asked_again() {
    let mut world = World::pair(29, Link::new(100_000, 20 * MS));
    let client = world.meet();
    let server = world.with(0, |e, _| e.peers().next().unwrap());
    world.run_for(Duration::from_secs(1));
    world.nodes[0].link.blackouts.push((world.now, world.now + Duration::from_secs(5)));
    world.nodes[1].addr = addr(40, 4040);
    let requests = [
        (1, world.send(1, client, object(1, 500), Options::default())),
        (0, world.send(0, server, object(2, 5_000), Options::default())),
    ];
    world.run_for(Duration::from_secs(10));
    for (n, request) in requests {
        assert_eq!(world.outcome(n, request), Some(Outcome::Delivered), "of node {n}");
    }
}

/// The way to the client comes back later than the way from it, so the first questions are in vain; and who has sent
/// objects and got none says so little that QUIC gives up the place it was sent round to in between.
#[test]
fn moved_quiet_client_is_challenged_until_it_answers() {
    for (name, to) in [("another host", addr(40, 4040)), ("another port", addr(1, 4999))] {
        for (seconds, more) in [(30, 10), (8, 4), (300, 10)] {
            let mut world = World::pair(31, Link::new(100_000, 20 * MS));
            let client = world.meet();
            let request = world.send(1, client, object(1, 400_000), options(Priority::LOW));
            world.run_for(Duration::from_secs(2));
            let (now, out) = (world.now, Duration::from_secs(seconds));
            let back = now + out + Duration::from_secs(more);
            world.nodes[1].link.blackouts.push((now, now + out));
            world.nodes[0].link.blackouts.push((now, back));
            world.nodes[1].addr = to;
            let due = back + Duration::from_secs(20);
            assert!(world.run_until(due, |w| w.outcome(1, request).is_some()), "{name}, out for {seconds} s");
            assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
        }
    }
}

/// QUIC gives a new address three seconds, and an answer may take longer.
#[test]
fn an_address_whose_answers_take_seconds_is_proven() {
    for one_way in [1800, 2200, 3000] {
        let mut world = World::pair(31, Link::new(100_000, one_way * MS));
        let client = world.meet();
        world.run_for(Duration::from_secs(10));
        world.nodes[1].addr = addr(40, 4040);
        let mut last = None;
        for _ in 0..60 * 5 {
            last = Some(world.send(1, client, object(1, 300), Options::default()));
            world.run_for(200 * MS);
        }
        world.run_for(3 * one_way * MS);
        assert_eq!(last.and_then(|r| world.outcome(1, r)), Some(Outcome::Delivered), "{one_way} ms one way");
    }
}

/// Who says little is asked once with every packet, and no packet may come in the time that the answer takes.
#[test]
fn an_address_that_says_little_is_asked_with_every_packet() {
    let mut world = World::pair(31, Link::new(100_000, 2200 * MS));
    let client = world.meet();
    let server = world.with(0, |e, _| e.peers().next().unwrap());
    world.run_for(Duration::from_secs(10));
    let moved = world.now;
    // The first question is lost, and the second.
    world.nodes[0].link.blackouts.push((moved, moved + Duration::from_secs(50)));
    world.nodes[1].addr = addr(40, 4040);
    world.with(1, |e, now| e.rebind(now));
    let request = world.send(0, server, object(2, 3_000), Options::default());
    world.run_until(moved + Duration::from_secs(60), |_| false);
    world.send(1, client, object(1, 1), Options::default());
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.outcome(0, request), Some(Outcome::Delivered));
}

/// The answer comes when QUIC would be asked again, and an object right behind it, taken in with it.
#[test]
fn what_comes_with_the_answer_does_not_undo_the_proof() {
    let mut world = World::pair(31, Link::new(1_000_000, 600 * MS));
    let client = world.meet();
    let server = world.with(0, |e, _| e.peers().next().unwrap());
    world.run_for(Duration::from_secs(10));
    world.coalesced = 50 * MS;
    world.nodes[1].addr = addr(40, 4040);
    let request = world.send(0, server, object(2, 3_000), Options::default());
    world.send(1, client, object(1, 300), Options::default());
    // Nothing else comes of it before the answer.
    let moved = world.now;
    world.nodes[1].link.blackouts.push((moved + 10 * MS, moved + 1250 * MS));
    world.nodes[1].capture = Some(Vec::new());
    let is_answer = |t: &Transmit| t.payload.len() >= 1200;
    assert!(world.run_until(moved + 1500 * MS, |w| w.nodes[1].capture.iter().flatten().any(is_answer)));
    world.send(1, client, object(1, 300), Options::default());
    // The question and the answer, the object and what is said to it.
    world.run_until(moved + 3400 * MS, |_| false);
    assert_eq!(world.outcome(0, request), Some(Outcome::Delivered));
}

/// QUIC says it once, and may be at a place then that its peer was never at.
#[test]
fn the_good_bye_reaches_a_client_that_is_looked_for() {
    let mut world = World::pair(29, Link::new(100_000, 20 * MS));
    let client = world.meet();
    let server = world.with(0, |e, _| e.peers().next().unwrap());
    world.run_for(Duration::from_secs(1));
    let moved = world.now;
    world.nodes[0].link.blackouts.push((moved, moved + Duration::from_secs(3)));
    world.nodes[1].addr = addr(40, 4040);
    world.send(1, client, object(1, 500), Options::default());
    // One more of its packets gets through, and goes round.
    for (from, to) in [(10, 1090), (1120, 60_000)] {
        world.nodes[1].link.blackouts.push((moved + from * MS, moved + to * MS));
    }
    world.run_until(moved + Duration::from_secs(4), |_| false);
    world.with(0, |e, now| e.close(now, server));
    world.run_for(500 * MS);
    assert_eq!(count(&world, 1, |e| matches!(e, Event::Down { .. })), 1);
}

/// A place it was sent round to once is not where it is, however often QUIC looks there again.
#[test]
fn a_client_never_moves_to_where_none_of_its_packets_came_from() {
    let mut world = World::pair(29, Link::new(100_000, 20 * MS));
    let client = world.meet();
    world.run_for(Duration::from_secs(1));
    let places = [addr(40, 4040), addr(40, 5050)];
    for place in places {
        world.nodes[0].link.blackouts.push((world.now, world.now + Duration::from_secs(5)));
        world.nodes[1].addr = place;
        let request = world.send(1, client, object(1, 500), Options::default());
        world.run_for(Duration::from_secs(12));
        assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
    }
    assert_eq!(moves(&world), places);
}

/// It was at the place that QUIC goes back to, with one packet.
#[test]
fn returned_client_stays_when_quic_probes_its_old_address() {
    let mut world = World::pair(29, Link::new(100_000, 20 * MS));
    let client = world.meet();
    world.run_for(Duration::from_secs(1));
    let (home, place) = (world.nodes[1].addr, addr(40, 4040));
    world.nodes[1].addr = place;
    world.send(1, client, object(1, 500), Options::default());
    world.nodes[1].addr = home;
    world.nodes[0].link.blackouts.push((world.now, world.now + Duration::from_secs(5)));
    world.run_for(100 * MS);
    world.send(1, client, object(2, 500), Options::default());
    world.run_for(Duration::from_secs(12));
    assert_eq!((world.received(0).len(), moves(&world)), (2, vec![place, home]));
}

fn moves(world: &World) -> Vec<SocketAddr> {
    let moved = world.nodes[0].events.iter().filter_map(|(_, e)| match e {
        Event::Moved { addr, .. } => Some(*addr),
        _ => None,
    });
    moved.collect()
}

/// Nothing is known of the link that a client has come to, or of one that carried only signs of life for
/// hours. What leaves at once stands in front of all that is urgent, for seconds where the link is slow: a
/// few packets, whatever other links, or small packets one at a time, have carried.
#[test]
fn on_a_link_that_is_not_known_a_few_packets_leave_at_first() {
    type Before = fn(&mut World, PeerId);
    let moved: Before = |world, peer| {
        let request = world.send(1, peer, object(1, 200_000), options(Priority::LOW));
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
        world.nodes[1].addr = addr(40, 4040);
        world.with(1, |e, now| e.rebind(now));
    };
    let idle: Before = |world, peer| {
        // What comes now and then keeps the connection, and is reported.
        let server = world.with(0, |e, _| e.peers().next().unwrap());
        for k in 0..24u8 {
            world.send(0, server, object(k, 100_000), options(Priority::LOW));
            world.run_for(Duration::from_secs(540));
        }
        assert_eq!((world.received(1).len(), world.with(1, |e, _| e.status(peer).is_some())), (24, true));
    };
    for (name, before) in [("moved", moved), ("idle", idle)] {
        let mut world = World::pair(30, Link::new(1_000_000, 20 * MS));
        let peer = world.meet();
        before(&mut world, peer);
        let now = world.now;
        world.nodes[1].link.rate.push((now, 8_000));
        world.run_for(Duration::from_secs(2));
        let (_, left) = world.nodes[1].wire;
        let bulk = world.send(1, peer, object(1, 200_000), options(Priority::LOW));
        let first = world.nodes[1].wire.1 - left;
        assert!((4..=6).contains(&first), "{name}: {first} packets at once");
        world.run_for(20 * MS);
        let urgent = world.send(1, peer, object(2, 500), options(Priority::HIGH));
        let sent = world.now;
        assert!(world.run_until(sent + Duration::from_secs(9), |w| w.outcome(1, urgent).is_some()));
        let took = world.now.since(sent);
        assert!(took <= Duration::from_millis(1500), "{name}: {took:?}");
        assert_eq!(world.outcome(1, bulk), None);
    }
}
