//! How connections and objects come to their ends when the last word about them is lost: half-open
//! connections, resets after a move, refusals of what has arrived whole.

mod session_world;

use std::time::Duration;

use remora_atp::estimate::{self, Kind};
use remora_atp::session::{Config, Ending, Event, Guests, PeerId, Refusal};
use remora_atp::{Command, Options, Outcome, Policy, Priority, Rejection, scheduler};
use remora_base::{Rate, Time};
use session_world::{Link, World, addr, config, identity, object};

const MS: Duration = Duration::from_millis(1);

fn server() -> Config {
    Config { guests: Guests::Anyone, ..config() }
}

fn is_told(world: &World, n: usize, what: impl Fn(&Event) -> bool) -> bool {
    world.nodes[n].events.iter().any(|(_, e)| what(e))
}

/// The client has done its part, its last flight is lost, and the link stays away: ten minutes later its
/// object goes through. A server's idea of how long a handshake may take does not matter, nor do
/// the client's other timers, nor how long the first round trip was.
#[test]
fn a_half_open_connection_is_held_as_any_other() {
    for keep_alive in [None, Some(Duration::from_secs(1))] {
        for delay in [20 * MS, 1500 * MS] {
            let mut world = World::new(30);
            let link = Link::new(50_000, delay);
            world.add(server(), link.clone());
            world.add(Config { keep_alive, ..config() }, link);
            let peer = world.connect(1, 0);
            // Of what the client sends, only the first packet arrives.
            let (out, back) = (world.now + 30 * MS, world.now + Duration::from_secs(600));
            world.nodes[1].link.blackouts.push((out, back));
            world.run_for(Duration::from_secs(30));
            let request = world.send(1, peer, object(1, 5_000), Options::default());
            world.run_until(back, |_| false);
            assert!(!world.is_up(0) && !world.is_up(1) && world.outcome(1, request).is_none());
            world.run_until(back + Duration::from_secs(4) + 8 * delay, |w| w.outcome(1, request).is_some());
            assert_eq!(world.outcome(1, request), Some(Outcome::Delivered), "{keep_alive:?}, {delay:?}");
            assert_eq!(world.received(0).len(), 1);
        }
    }
}

/// Bounds are registered for a connected peer. The bandwidth is that of the shared link, but bounds for a peer that
/// refused the connection are an error.
#[test]
fn bounds_of_a_peer_that_is_gone_are_refused() {
    let mut world = World::new(36);
    let link = Link::new(50_000, 20 * MS);
    world.add(server(), link.clone());
    world.add(config(), link);
    let peer = world.connect(1, 0);
    let low = Rate::from_bits(1000);
    world.run_until(world.now + Duration::from_secs(5), |w| w.is_up(1));
    assert!(world.with(1, |e, now| e.bounds(now, peer, low, None)).is_ok());
    world.with(1, |e, now| e.close(now, peer));
    world.run_for(10 * MS);
    assert!(world.with(1, |e, now| e.bounds(now, peer, low, None)).is_err());
}

/// Places of half-open connections are given to newcomers when there are no others, but only
/// after half a minute.
#[test]
fn a_half_open_connection_makes_room_when_it_has_had_its_time() {
    let mut world = World::new(31);
    let link = Link::new(50_000, 20 * MS);
    world.add(Config { peers: 1, ..server() }, link.clone());
    world.add(config(), link.clone());
    world.add(config(), link);
    world.connect(1, 0);
    let start = world.now;
    world.nodes[1].link.blackouts.push((start + 10 * MS, Time::MAX));
    world.run_for(Duration::from_secs(20));
    world.connect(2, 0);
    world.run_for(Duration::from_secs(5));
    assert!(is_told(&world, 2, |e| matches!(e, Event::Refused { why: Refusal::Full, .. })));
    world.run_for(Duration::from_secs(10));
    world.connect(2, 0);
    world.run_for(Duration::from_secs(5));
    assert!(world.is_up(2) && world.is_up(0));
    assert_eq!(world.with(0, |e, _| e.usage().peers), 1);
}

/// Who begins handshakes without end and finishes none has its share of the places, or gives way.
#[test]
fn one_host_s_half_open_connections_keep_nobody_out() {
    // Where places are many it has a quarter; where they are few, all, until somebody comes.
    for (peers, has) in [(128, 32), (8, 8)] {
        let mut world = World::new(35);
        let link = Link::new(1_000_000, 20 * MS);
        world.add(Config { peers, ..server() }, link.clone());
        world.add(config(), link.clone());
        world.add(config(), link);
        world.deaf.push(world.nodes[1].addr);
        for _ in 0..2 * peers {
            world
                .with(1, |e, now| {
                    let key = identity(1).public();
                    e.connect(now, addr(0, 4000), key).map(drop)
                })
                .unwrap_or_default();
            world.run_for(10 * MS);
        }
        world.run_for(500 * MS);
        assert_eq!(world.with(0, |e, _| e.usage().peers), has, "of {peers}");
        let client = world.connect(2, 0);
        let request = world.send(2, client, object(1, 500), Options::default());
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.outcome(2, request), Some(Outcome::Delivered), "of {peers}");
    }
}

/// Who went without a word makes room long before its place is given up, and who is only idle does not.
#[test]
fn a_silent_peer_makes_room_and_an_idle_one_does_not() {
    for is_gone in [true, false] {
        let mut world = World::new(34);
        let link = Link::new(50_000, 20 * MS);
        let idle = Duration::from_secs(60);
        world.add(Config { peers: 1, idle, ..server() }, link.clone());
        world.add(Config { idle: Duration::from_secs(86_400), ..config() }, link.clone());
        world.add(config(), link);
        world.connect(1, 0);
        world.run_for(Duration::from_secs(1));
        if is_gone {
            let from = world.now;
            world.nodes[1].link.blackouts.push((from, Time::MAX));
        }
        world.run_for(Duration::from_secs(50));
        world.connect(2, 0);
        world.run_for(Duration::from_secs(5));
        assert!(is_told(&world, 2, |e| matches!(e, Event::Refused { why: Refusal::Full, .. })));
        if is_gone {
            world.run_for(Duration::from_secs(70));
            world.connect(2, 0);
            world.run_for(Duration::from_secs(5));
            assert!(world.is_up(2));
            assert!(is_told(&world, 0, |e| matches!(e, Event::Down { why: Ending::Silent, .. })));
        }
    }
}

/// The same where there are places, but not for that host: those that ended without a word make room for it.
#[test]
fn a_silent_peer_makes_room_for_its_own_host() {
    const SHARE: usize = 32;
    let mut world = World::new(36);
    let link = Link::new(1_000_000, 20 * MS);
    world.add(Config { peers: 4 * SHARE, idle: Duration::from_secs(60), ..server() }, link.clone());
    for n in 1..=SHARE + 1 {
        world.add(Config { idle: Duration::from_secs(86_400), ..config() }, link.clone());
        world.nodes[n].addr = std::net::SocketAddr::new(addr(1, 4000).ip(), 5000 + n as u16);
    }
    for n in 1..=SHARE {
        world.connect(n, 0);
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.with(0, |e, _| e.usage().peers), SHARE);
    let from = world.now;
    (1..=SHARE).for_each(|n| world.nodes[n].link.blackouts.push((from, Time::MAX)));
    world.run_for(Duration::from_secs(45));
    world.connect(SHARE + 1, 0);
    world.run_for(Duration::from_secs(5));
    assert!(is_told(&world, SHARE + 1, |e| matches!(e, Event::Refused { why: Refusal::Full, .. })));
    world.run_for(Duration::from_secs(80));
    world.connect(SHARE + 1, 0);
    world.run_for(Duration::from_secs(5));
    assert!(world.is_up(SHARE + 1));
    assert!(is_told(&world, 0, |e| matches!(e, Event::Down { why: Ending::Silent, .. })));
    assert_eq!(world.with(0, |e, _| e.usage().peers), SHARE, "one for one");
}

fn listed(peers: usize, clients: &[u8]) -> Config {
    let keys = clients.iter().map(|n| identity(n + 1).public()).collect();
    Config { guests: Guests::Only(keys), peers, idle: Duration::from_secs(86_400), ..config() }
}

fn is_refused_a_place(e: &Event) -> bool {
    matches!(e, Event::Refused { why: Refusal::Full, .. })
}

/// The connections of a client that its server has, by its key.
fn held(world: &mut World, client: u8) -> usize {
    let key = identity(client + 1).public();
    world.with(0, |e, _| {
        let peers: Vec<PeerId> = e.peers().collect();
        peers.into_iter().filter(|id| e.status(*id).is_some_and(|s| s.key == Some(key))).count()
    })
}

/// A key that holds all places shares them with the next one, whether its connections live or not, down to equal shares.
#[test]
fn key_with_all_places_makes_room_for_another() {
    for is_gone in [false, true] {
        let mut world = World::new(37);
        let link = Link::new(1_000_000, 20 * MS);
        world.add(listed(4, &[1, 2]), link.clone());
        world.add(config(), link.clone());
        world.add(config(), link);
        for _ in 0..4 {
            world.connect(1, 0);
        }
        world.run_for(Duration::from_secs(2));
        assert_eq!(held(&mut world, 1), 4);
        if is_gone {
            let from = world.now;
            world.nodes[1].link.blackouts.push((from, Time::MAX));
        }
        for (own, left) in [(1, 3), (2, 2), (2, 2)] {
            world.connect(2, 0);
            world.run_for(Duration::from_secs(3));
            assert_eq!((held(&mut world, 2), held(&mut world, 1)), (own, left), "gone: {is_gone}");
        }
        assert!(is_told(&world, 2, is_refused_a_place), "the one too many");
        let ups = world.nodes[2].events.iter().filter(|(_, e)| matches!(e, Event::Up { .. })).count();
        assert_eq!(ups, 2, "the refused connection never was up");
        let makes_room = |e: &Event| matches!(e, Event::Down { why: Ending::Full, .. });
        assert!(is_told(&world, 1, makes_room), "those that made room");
        assert_eq!(world.with(0, |e, _| e.usage().peers), 4);
    }
}

/// Where anyone is let in, keys are free: hosts share the places.
#[test]
fn host_with_all_places_makes_room_for_another() {
    let mut world = World::new(39);
    let link = Link::new(1_000_000, 20 * MS);
    world.add(Config { peers: 4, idle: Duration::from_secs(86_400), ..server() }, link.clone());
    world.add(config(), link.clone());
    world.add(config(), link);
    for _ in 0..4 {
        world.connect(1, 0);
    }
    world.run_for(Duration::from_secs(2));
    for (own, left) in [(1, 3), (2, 2), (2, 2)] {
        world.connect(2, 0);
        world.run_for(Duration::from_secs(3));
        assert_eq!((held(&mut world, 2), held(&mut world, 1)), (own, left));
    }
    assert!(is_told(&world, 2, is_refused_a_place), "the one too many");
    assert!(is_told(&world, 1, |e| matches!(e, Event::Down { why: Ending::Full, .. })), "those that made room");
}

/// A client that was killed and is back does not wait until its earlier connection is given up.
#[test]
fn silent_connection_makes_room_for_its_own_key() {
    let mut world = World::new(38);
    let link = Link::new(1_000_000, 20 * MS);
    world.add(listed(2, &[1, 2]), link.clone());
    world.add(config(), link.clone());
    world.add(config(), link);
    for n in 1..=2 {
        world.connect(n, 0);
    }
    world.run_for(Duration::from_secs(2));
    world.restart(1, config());
    world.nodes[1].addr = addr(1, 5000);
    world.connect(1, 0);
    world.run_for(Duration::from_secs(2));
    assert!(is_told(&world, 1, is_refused_a_place), "it may be an outage");
    world.run_for(Duration::from_secs(60));
    world.connect(1, 0);
    world.run_for(Duration::from_secs(2));
    assert_eq!((held(&mut world, 1), held(&mut world, 2)), (1, 1));
    assert_eq!(world.with(0, |e, _| e.usage().peers), 2);
}

/// Who is asked to prove its address first may be out of reach before it can.
#[test]
fn outage_during_address_validation_is_no_refusal() {
    let mut world = World::new(35);
    let link = Link::new(50_000, 20 * MS);
    let idle = Duration::from_secs(60);
    world.add(Config { peers: 1, idle, ..server() }, link.clone());
    world.add(Config { idle: Duration::from_secs(86_400), ..config() }, link.clone());
    world.add(config(), link);
    world.connect(1, 0);
    world.run_for(Duration::from_secs(1));
    world.nodes[1].link.blackouts.push((world.now, Time::MAX));
    world.run_for(Duration::from_secs(125));
    let peer = world.connect(2, 0);
    world.run_for(50 * MS);
    world.nodes[2].link.blackouts.push((world.now, world.now + Duration::from_secs(40)));
    let request = world.send(2, peer, object(1, 500), Options::default());
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.outcome(2, request), Some(Outcome::Delivered));
}

/// A client that changed its address uses another connection id of its server. It still detects that the server
/// restarted.
#[test]
fn a_peer_that_restarted_is_noticed_after_a_move() {
    let mut world = World::pair(32, Link::new(100_000, 20 * MS));
    let peer = world.meet();
    world.run_for(Duration::from_secs(1));
    world.nodes[1].addr = addr(9, 4009);
    world.restart(0, server());
    world.with(1, |e, now| e.rebind(now));
    let request = world.send(1, peer, object(1, 500), Options::default());
    world.run_for(Duration::from_secs(5));
    assert!(is_told(&world, 1, |e| matches!(e, Event::Down { why: Ending::Restarted, .. })));
    assert_eq!(world.outcome(1, request), Some(Outcome::Lost));
    assert_eq!(world.with(1, |e, _| e.usage().peers), 0);
}

/// The paper's estimator forgets its rate with the path, so what is under way is far above the new
/// window: answers and probes leave all the same.
#[test]
fn migration_with_a_full_window_keeps_the_paper_sending() {
    let paper = |guests| Config {
        guests,
        scheduler: scheduler::Config { policy: Policy::Paper, ..scheduler::Config::default() },
        estimator: estimate::Config::new(Kind::Paper),
        ..config()
    };
    let mut world = World::new(33);
    let link = Link::new(200_000, 100 * MS);
    world.add(paper(Guests::Anyone), link.clone());
    world.add(paper(Guests::Nobody), link);
    let peer = world.meet();
    let request = world.send(1, peer, object(1, 2_000_000), Options::default());
    world.run_for(Duration::from_secs(8));
    let (from, to) = (world.now, world.now + Duration::from_secs(6));
    for node in &mut world.nodes {
        node.link.blackouts.push((from, to));
    }
    for hop in 0..3u16 {
        world.run_for(Duration::from_secs(2));
        world.nodes[1].addr = addr(20 + usize::from(hop), 5000 + hop);
        world.with(1, |e, now| e.rebind(now));
    }
    assert!(world.run_until(world.now + Duration::from_secs(60), |w| w.outcome(1, request).is_some()));
    assert_eq!((world.outcome(1, request), world.received(0).len()), (Some(Outcome::Delivered), 1));
}

/// An object that fits into a packet has arrived whole before it is refused, and was acknowledged
/// by QUIC, however many of the receiver's packets are lost.
#[test]
fn what_is_refused_is_never_called_delivered() {
    for loss in [0.0, 0.3] {
        let mut world = World::new(34);
        let link = Link { loss, ..Link::new(100_000, 20 * MS) };
        world.add(Config { object_max: 500, ..server() }, link.clone());
        world.add(config(), link);
        let peer = world.meet();
        let sizes = [900, 400, 501, 500, 1_100, 0, 499];
        let requests: Vec<_> =
            (0u8..7).zip(sizes).map(|(k, size)| world.send(1, peer, object(k, size), Options::default())).collect();
        world.run_for(Duration::from_secs(60));
        for (request, size) in requests.into_iter().zip(sizes) {
            let refused = Some(Outcome::Rejected(Rejection::TooLarge));
            let expected = if size <= 500 { Some(Outcome::Delivered) } else { refused };
            assert_eq!(world.outcome(1, request), expected, "{size} bytes, {loss} lost");
        }
        assert_eq!(world.received(0).len(), 4);
    }
}

/// A receiver keeps room for a whole object until it knows that no more of it will come.
#[test]
fn what_expires_between_two_packets_is_taken_back_at_once() {
    let delay = 20 * MS;
    let mut world = World::pair(39, Link::new(50_000, delay));
    let peer = world.meet();
    let (start, limit) = (world.now, Duration::from_secs(5));
    let request = world.send(1, peer, object(1, 100_000), Options { deadline: Some(limit), ..Options::default() });
    world.run_for(Duration::from_secs(1));
    world.with(1, |e, now| e.control(now, request, Command::Suspend)).unwrap();
    world.run_until(start + limit - MS, |_| false);
    let room = |world: &mut World| world.with(0, |e, _| e.usage().received_bytes);
    assert!(world.outcome(1, request).is_none() && room(&mut world) >= 100_000);
    world.run_for(MS + 3 * delay);
    assert_eq!((world.outcome(1, request), room(&mut world)), (Some(Outcome::Expired), 0));
}

/// Who has what it wanted and leaves at once has answered before: the sender's object is delivered,
/// and not lost with the connection.
#[test]
fn what_came_is_answered_before_the_good_bye() {
    let mut world = World::new(33);
    let link = Link::new(50_000, 20 * MS);
    world.add(server(), link.clone());
    world.add(config(), link);
    let peer = world.connect(1, 0);
    assert!(world.run_until(world.now + Duration::from_secs(5), |w| w.is_up(1) && w.is_up(0)));
    let request = world.send(1, peer, object(1, 100), Options::default());
    assert!(world.run_until(world.now + Duration::from_secs(5), |w| w.received(0).len() == 1));
    assert_eq!(world.outcome(1, request), None, "the answer is not there yet");
    let client = world.with(0, |e, _| e.peers().next()).unwrap();
    world.with(0, |e, now| e.close(now, client));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.outcome(1, request), Some(Outcome::Delivered));
}

/// Of an object without bytes a part of its head may be all for which the peer has room: it is not sent yet.
#[test]
fn an_empty_object_ends_although_its_head_had_room_only_in_part() {
    for size in 1985..=1996 {
        let mut world = World::new(38);
        let link = Link::new(100_000, 20 * MS);
        world.add(Config { window: 2_000, ..server() }, link.clone());
        world.add(config(), link);
        let peer = world.meet();
        let full = Options { priority: Priority::HIGH, ..Options::default() };
        let none = Options { priority: Priority::LOW, ..Options::default() };
        let requests = [(size, full), (0, none)];
        let requests = world.with(1, |e, now| requests.map(|(size, how)| e.send(now, peer, object(1, size), how)));
        world.run_for(Duration::from_secs(60));
        let ends = requests.map(|request| world.outcome(1, request.unwrap()));
        assert_eq!(ends, [Some(Outcome::Delivered); 2], "beside {size} bytes");
    }
}

/// What is known of the link they share goes with the peer that it was known from: to another, nothing is
/// rejected for lack of a rate that nobody has seen.
#[test]
fn the_rate_to_a_peer_that_is_gone_is_forgotten() {
    let mut world = World::new(37);
    let slow = Link::new(5_000, 20 * MS);
    world.add(server(), slow.clone());
    for n in [1, 2] {
        world.add(config(), Link::new(1_000_000, 20 * MS));
        world.connect(n, 0);
        assert!(world.run_until(world.now + Duration::from_secs(30), |w| w.is_up(n) && ups(w).len() == n));
    }
    let [gone, other] = ups(&world)[..] else { panic!("two are up") };
    let first = world.send(0, gone, object(1, 60_000), Options::default());
    assert!(world.run_until(world.now + Duration::from_secs(60), |w| w.outcome(0, first).is_some()));
    assert_eq!(world.outcome(0, first), Some(Outcome::Delivered));
    let timed = Options { deadline: Some(Duration::from_secs(5)), ..Options::default() };
    let known = world.send(0, gone, object(2, 100_000), timed);
    assert!(matches!(world.outcome(0, known), Some(Outcome::Rejected(Rejection::InsufficientBandwidth { .. }))));
    world.with(0, |e, now| e.close(now, gone));
    let now = world.now;
    world.nodes[0].link.rate.push((now, 1_000_000));
    for second in 0..5 {
        let request = world.send(0, other, object(3, 100_000), timed);
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.outcome(0, request), Some(Outcome::Delivered), "after {second} s");
    }
}

/// The peers that node 0 was told are up, in order.
fn ups(world: &World) -> Vec<PeerId> {
    let peers = world.nodes[0].events.iter().filter_map(|(_, e)| match e {
        Event::Up { peer, .. } => Some(*peer),
        _ => None,
    });
    peers.collect()
}
