//! One seed, one bad network and one run: objects of random sizes, priorities and deadlines go
//! both ways through losses, reordering, duplicates, blackouts and changes of address; then the
//! network heals and everything must come to its end. See `check`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Endpoint, Event, PeerId, Status};
use remora_atp::{Command, Options, Outcome, Priority, RequestId, Upcall};
use remora_base::{Rng, Time};

use super::{Link, World, addr};

/// What a run did, so that a swarm can show that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub delivered: usize,
    pub not_delivered: usize,
    pub packets: u64,
}

struct Sent {
    request: RequestId,
    object: Bytes,
    ask: Options,
}

/// Runs the world of `seed`. Panics, saying what, if an object came twice, came damaged, came
/// though it was never sent, was called delivered and never came, or if a request has not
/// exactly one end.
pub fn run(seed: u64) -> Tally {
    let mut rng = Rng::stream(seed, "swarm");
    let mut world = World::pair(seed, Link::new(1, Duration::ZERO));
    for n in 0..2 {
        world.nodes[n].link = bad_link(&mut rng);
    }
    let client = world.connect(1, 0);
    let mut sent: [Vec<Sent>; 2] = [Vec::new(), Vec::new()];
    let objects = 2 + rng.below(10);
    for k in 0..objects {
        world.run_for(Duration::from_millis(rng.below(1_500)));
        act(&mut world, &mut rng, client, &mut sent, k);
    }
    heal(&mut world);
    let all = sent[0].len() + sent[1].len();
    let end = world.now + Duration::from_secs(600);
    let ended = |w: &World| w.finals(0).len() + w.finals(1).len() >= all;
    if !world.run_until(end, ended) {
        let ended = world.finals(0).len() + world.finals(1).len();
        let told = endings(&world);
        panic!("seed {seed}: {ended} of {all} requests ended: {told:?}; {:?}", statuses(&mut world));
    }
    world.run_for(Duration::from_secs(5));
    check(seed, &world, &sent)
}

fn bad_link(rng: &mut Rng) -> Link {
    let rate = [2_000, 20_000, 100_000, 2_000_000][rng.below(4) as usize];
    let mut link = Link::new(rate, Duration::from_millis(rng.below(200)));
    link.loss = [0.0, 0.01, 0.1, 0.3][rng.below(4) as usize];
    link.duplicate = [0.0, 0.05][rng.below(2) as usize];
    link.reorder = [0.0, 0.1, 0.5][rng.below(3) as usize];
    link.jitter = Duration::from_millis(1 + rng.below(100));
    let mut at = Time::from_millis(rng.below(4_000));
    for _ in 0..rng.below(3) {
        let to = at + Duration::from_millis(50 + rng.below(8_000));
        link.blackouts.push((at, to));
        at = to + Duration::from_millis(rng.below(3_000));
    }
    link
}

fn act(world: &mut World, rng: &mut Rng, client: PeerId, sent: &mut [Vec<Sent>; 2], k: u64) {
    match rng.below(8) {
        // QUIC's client may not move before the handshake is confirmed (RFC 9000, section 9).
        0 if world.is_up(0) => {
            // The client's address changes; it may or may not notice.
            world.nodes[1].addr = addr(1 + rng.below(2) as usize, 4000 + k as u16 + 1);
            if rng.chance(0.5) {
                world.with(1, |e, now| e.rebind(now));
            }
        }
        1 => {
            let n = rng.below(2) as usize;
            let which = rng.below(sent[n].len() as u64) as usize;
            if let Some(s) = sent[n].get_mut(which) {
                let request = s.request;
                let command = match rng.below(4) {
                    0 => Command::Cancel,
                    1 => Command::Prioritise(Priority::HIGH),
                    2 => {
                        s.ask.deadline = Some(Duration::from_secs(5));
                        Command::Deadline(s.ask.deadline)
                    }
                    _ => Command::Inspect,
                };
                let _ = world.with(n, |e, now| e.control(now, request, command));
            }
        }
        _ => {
            let n = rng.below(2) as usize;
            let peer = if n == 1 { Some(client) } else { the_client(world) };
            if let Some(peer) = peer {
                submit(world, rng, n, peer, sent, k);
            }
        }
    }
}

/// The server's name for the client, once it is there.
fn the_client(world: &World) -> Option<PeerId> {
    world.nodes[0].events.iter().find_map(|(_, e)| match e {
        Event::Up { peer, .. } => Some(*peer),
        _ => None,
    })
}

fn submit(world: &mut World, rng: &mut Rng, n: usize, peer: PeerId, sent: &mut [Vec<Sent>; 2], k: u64) {
    let len = [0, 1, 100, 1_500, 9_000][rng.below(5) as usize];
    let mut object = vec![0; len + 8];
    rng.fill(&mut object);
    object[..8].copy_from_slice(&k.to_be_bytes());
    let object = Bytes::from(object);
    let ask = Options {
        priority: Priority::new(rng.below(16) as u8).unwrap_or_default(),
        deadline: rng.chance(0.3).then(|| Duration::from_millis(100 + rng.below(10_000))),
        ..Options::default()
    };
    let request = world.with(n, |e, now| e.send(now, peer, object.clone(), ask));
    if let Ok(request) = request {
        sent[n].push(Sent { request, object, ask });
    }
}

/// Safety has been tried; now the network is good, and liveness is asked for.
fn heal(world: &mut World) {
    let now = world.now;
    for node in &mut world.nodes {
        let delay = node.link.delay;
        node.link = Link::new(100_000, delay);
        // A queue of the bad times empties by itself.
        node.link.blackouts = vec![(Time::ZERO, now)];
    }
}

/// How the endpoints think they are doing.
fn statuses(world: &mut World) -> Vec<Status> {
    let all = |e: &mut Endpoint, _| {
        let ids: Vec<PeerId> = e.peers().collect();
        ids.into_iter().filter_map(|id| e.status(id)).collect::<Vec<_>>()
    };
    (0..2).flat_map(|n| world.with(n, all)).collect()
}

/// The events of the endpoints, to diagnose a failure.
fn endings(world: &World) -> Vec<(usize, Time, String)> {
    let about = |e: &Event| !matches!(e, Event::Upcall(_) | Event::Received { .. });
    let told = world.nodes.iter().enumerate().flat_map(|(n, node)| node.events.iter().map(move |(at, e)| (n, *at, e)));
    told.filter(|(_, _, e)| about(e)).map(|(n, at, e)| (n, at, format!("{e:?}"))).collect()
}

fn check(seed: u64, world: &World, sent: &[Vec<Sent>; 2]) -> Tally {
    let mut tally = Tally { packets: world.nodes.iter().map(|n| n.wire.1).sum(), ..Tally::default() };
    for (n, sent) in sent.iter().enumerate() {
        let mut arrived: BTreeMap<Bytes, usize> = BTreeMap::new();
        for (_, object) in world.received(1 - n) {
            *arrived.entry(object).or_default() += 1;
        }
        let known: BTreeSet<&Bytes> = sent.iter().map(|s| &s.object).collect();
        for (object, times) in &arrived {
            assert_eq!(*times, 1, "seed {seed}: an object came {times} times");
            assert!(known.contains(object), "seed {seed}: an object came that nobody sent");
        }
        let finals = world.finals(n);
        assert_eq!(finals.len(), sent.len(), "seed {seed}: as many ends as requests");
        for s in sent {
            let ends: Vec<_> = finals.iter().filter(|f| f.request == s.request).collect();
            assert_eq!(ends.len(), 1, "seed {seed}: {:?} has {} ends", s.request, ends.len());
            let came = arrived.contains_key(&s.object);
            match ends[0].outcome {
                Outcome::Delivered => {
                    assert!(came, "seed {seed}: {:?} delivered, they say", s.request);
                    tally.delivered += 1;
                }
                Outcome::Lost => panic!("seed {seed}: {:?} lost, and nobody closed: {:?}", s.request, endings(world)),
                _ => tally.not_delivered += 1,
            }
            assert!(
                s.ask.deadline.is_some() || ends[0].outcome != Outcome::Evicted,
                "seed {seed}: evicted for nothing"
            );
        }
        let down = world.nodes[n].events.iter().any(|(_, e)| matches!(e, Event::Down { .. } | Event::Refused { .. }));
        assert!(!down, "seed {seed}: a connection ended: {:?}", endings(world));
        let upcalls_late =
            world.nodes[n].events.iter().filter(|(_, e)| matches!(e, Event::Upcall(Upcall::Final(_)))).count();
        assert_eq!(upcalls_late, finals.len());
    }
    tally
}
