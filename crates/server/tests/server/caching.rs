//! The duplicate request cache at work in the server.

use std::time::Duration;

use remora_server::{Limits, cache};
use remora_wire::nfs3::{Call, Proc, Reply, Status};

use crate::world::{World, at, create, decode, set_size, tcp, udp, write};

#[test]
fn a_repeated_request_is_executed_once_and_answered_each_time() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let remove = Call::Remove(at(&root, "f"));
    w.file(&root, "f");
    w.send(udp(), 1, &remove);
    w.send(udp(), 1, &remove);
    assert_eq!((w.jobs.len(), w.sent.len()), (1, 0));
    w.run_all();
    assert_eq!(w.sent.len(), 1, "the duplicate in progress adds no reply");
    w.send(udp(), 1, &remove);
    assert_eq!((w.jobs.len(), w.sent.len()), (0, 2));
    assert_eq!(w.sent[0], w.sent[1]);
    assert_eq!(decode(Proc::Remove, 1, w.sent[0].payload.clone()).status(), None);
    let stats = w.server.stats();
    assert_eq!((stats.cache.in_progress_parked, stats.cache.replays), (1, 1));
}

#[test]
fn idempotent_requests_are_executed_as_often_as_they_come() {
    let mut w = World::new(cache::Config::full());
    let get = Call::GetAttr(w.root());
    (0..3).for_each(|_| w.send(udp(), 1, &get));
    assert_eq!(w.jobs.len(), 3);
    w.run_all();
    assert_eq!((w.sent.len(), w.server.stats().cache.requests), (3, 0));
}

#[test]
fn reconnected_client_is_answered_on_its_new_connection() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let call = create(&root, "f");
    w.send(tcp(1), 1, &call);
    let job = w.take_job();
    w.server.disconnected(tcp(1));
    let new = remora_base::Peer::stream("10.0.0.1:999".parse().unwrap(), 2);
    w.send(new, 1, &call);
    assert!(w.jobs.is_empty(), "parked");
    w.run(job);
    assert_eq!(w.sent.iter().map(|t| t.to).collect::<Vec<_>>(), [new]);
}

#[test]
fn reply_goes_to_the_newest_open_connection() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let connections = [1, 2, 3].map(|id| remora_base::Peer::stream(([10, 0, 0, 1], 700 + id as u16).into(), id));
    let owed = |w: &World| {
        let all: Vec<_> = w.server.owed().collect();
        connections.map(|peer| {
            assert_eq!(w.server.owes(peer), all.contains(&peer));
            all.contains(&peer)
        })
    };
    for peer in connections {
        w.send(peer, 1, &create(&root, "f"));
    }
    let job = w.take_job();
    assert_eq!(owed(&w), [false, false, true]);
    w.server.disconnected(connections[2]);
    assert_eq!(owed(&w), [false, true, false]);
    w.server.disconnected(connections[0]);
    w.run(job);
    assert_eq!(owed(&w), [false; 3]);
    assert_eq!(w.sent.iter().map(|t| t.to).collect::<Vec<_>>(), [connections[1]]);
}

#[test]
fn reply_to_an_ended_connection_is_dropped_but_cached() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let call = create(&root, "f");
    w.send(tcp(1), 1, &call);
    w.send(tcp(1), 2, &Call::GetAttr(root));
    w.server.disconnected(tcp(1));
    w.run_all();
    assert_eq!((w.sent.len(), w.server.stats().unreachable), (0, 2));
    w.send(tcp(2), 1, &call);
    assert_eq!((w.jobs.len(), w.sent.len()), (0, 1));
}

#[test]
fn juszczak_reads_the_file_times_before_a_replay() {
    let mut w = World::new(cache::Config::juszczak());
    let root = w.root();
    let f = w.file(&root, "f");
    let first = write(&f, 0, b"first");
    let send = |w: &mut World, xid, call: &Call, wait| {
        w.wait(Duration::from_secs(wait));
        w.send(udp(), xid, call);
        let check = w.jobs.front().is_some_and(|e| e.job.is_cache_check());
        w.run_all();
        (check, w.sent.pop().map(|t| t.payload))
    };
    let (check, reply) = send(&mut w, 1, &first, 1);
    assert!(!check);
    assert_eq!(send(&mut w, 1, &first, 3), (false, None), "inside the window");
    assert_eq!(send(&mut w, 1, &first, 4), (true, reply.clone()), "unchanged: the same reply");
    send(&mut w, 2, &write(&f, 0, b"later"), 1);
    let (check, again) = send(&mut w, 1, &first, 7);
    assert!(check && again != reply);
    assert_eq!(w.content("f"), "first", "changed in between: executed as new");
    let stats = w.server.stats().cache;
    assert_eq!((stats.throwaway_dropped, stats.replays, stats.executed_again), (1, 1, 1));
}

#[test]
fn the_reference_cache_turns_a_repeated_failure_into_success() {
    let mut w = World::new(cache::Config::reference());
    let root = w.root();
    w.file(&root, "f");
    let remove = Call::Remove(at(&root, "f"));
    for (xid, want) in [(1, None), (1, None), (2, Some(Status::NoEnt))] {
        w.send(udp(), xid, &remove);
        w.run_all();
        assert_eq!(decode(Proc::Remove, xid, w.sent.pop().unwrap().payload).status(), want);
    }
    assert_eq!(w.server.stats().cache.replays, 1);
}

#[test]
fn abandoned_job_is_answered_and_not_executed_again() {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let call = create(&root, "f");
    w.send(udp(), 1, &call);
    let e = w.take_job();
    let answer = e.job.abandon();
    w.server.complete(w.now, e.ticket, answer.clone());
    w.server.complete(w.now, e.ticket, answer);
    w.drain();
    assert_eq!((w.sent.len(), w.server.stats().stray_answers), (1, 1));
    w.send(udp(), 1, &call);
    assert_eq!((w.jobs.len(), w.sent.len()), (0, 2));
}

#[test]
fn a_flood_stays_within_the_bound() {
    let bytes_max = 1 << 20;
    let mut w = World::new(cache::Config::Full { bytes_max, keep: cache::Config::KEEP });
    let root = w.root();
    let f = w.file(&root, "f");
    let call = set_size(&f, 1);
    let mut most = 0;
    for xid in 0..100_000 {
        w.send(udp(), xid, &call);
        w.run_all();
        w.sent.clear();
        most = most.max(w.server.memory());
    }
    assert!((bytes_max / 2..bytes_max + 4096).contains(&most), "{most}");
    let Reply::GetAttr(Ok(attr)) = w.call(&Call::GetAttr(f)) else { panic!() };
    assert_eq!(attr.size, 1);
}

#[test]
fn everything_is_forgotten_in_the_end() {
    let mut w = World::with(cache::Config::full(), Limits { mounts_max: 0, ..Limits::default() }, |_| {});
    let root = w.root();
    (0..500).for_each(|i| drop(w.file(&root, &i.to_string())));
    assert!(w.server.memory() > 0);
    while let Some(at) = remora_base::Core::poll_timeout(&w.server) {
        w.wait(at.since(w.now));
    }
    assert_eq!(w.server.memory(), 0);
    assert!(w.now.as_secs_f64() < 1_000.0 + 160.0);
}
