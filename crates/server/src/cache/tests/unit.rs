//! The full cache, rule by rule.

use super::bench::*;
use crate::cache::full::ENTRY_OVERHEAD;

fn write(peer: Peer, xid: u32) -> Request {
    request(peer, xid, Proc::Write)
}

#[test]
fn completed_request_is_replayed_byte_for_byte() {
    let mut b = Bench::new(Config::full());
    let (a, c) = (write(udp("10.0.0.1:700"), 1), write(udp("10.0.0.1:700"), 2));
    b.run(&a, "done");
    let id = b.start(&c);
    b.finish(&c, id, failed("no space"));
    for _ in 0..3 {
        b.wait(60);
        assert_eq!(b.begin(&a), Verdict::Replay("done".into()));
        assert_eq!(b.begin(&c), Verdict::Replay("no space".into()));
    }
    assert_eq!(b.cache.stats().replays, 6);
}

#[test]
fn any_difference_makes_another_request() {
    let mut b = Bench::new(Config::full());
    let a = write(udp("10.0.0.1:700"), 1);
    b.run(&a, "done");
    for other in [
        Request { xid: 2, ..a },
        Request { version: Version::V2, ..a },
        Request { proc: Proc::SetAttr, ..a },
        Request { len: 101, ..a },
        Request { hash: 8, ..a },
        Request { peer: udp("10.0.0.1:701"), ..a },
        Request { peer: udp("10.0.0.2:700"), ..a },
        Request { peer: tcp("10.0.0.1:700", 1), ..a },
    ] {
        b.start(&other);
    }
}

#[test]
fn a_parked_duplicate_is_answered_once_on_the_newest_live_path() {
    let paths = |n: u64| (0..n).map(|i| write(tcp("10.0.0.1:700", i), 1)).collect::<Vec<_>>();
    // (how many connections it came in on, which of them are gone, where the reply goes)
    for (came, gone, want) in [
        (1, &[][..], Some(0)),
        (2, &[], Some(1)),
        (3, &[0, 1], Some(2)),
        (3, &[2], Some(1)),
        (3, &[0, 1, 2], None),
        (9, &[], Some(8)),
    ] {
        let mut b = Bench::new(Config::full());
        let requests = paths(came);
        let id = b.start(&requests[0]);
        for r in &requests[1..] {
            assert_eq!(b.begin(r), Verdict::InProgress);
        }
        gone.iter().for_each(|i: &usize| b.live.gone(requests[*i].peer));
        let sent = b.finish(&requests[0], id, ok("done"));
        assert_eq!(sent.map(|f| f.to), want.map(|i: usize| requests[i].peer), "{came} {gone:?}");
        assert_eq!(b.finish(&requests[0], id, ok("done")), None, "a second completion is no reply");
        assert_eq!(b.begin(&write(tcp("10.0.0.1:700", 99), 1)), Verdict::Replay("done".into()));
    }
}

/// The client reuses its port, and a request of its earlier connection is read later.
#[test]
fn reply_goes_to_the_newest_connection_in_any_read_order() {
    let mut b = Bench::new(Config::full());
    let [old, new] = [1, 3].map(|id| write(tcp("10.0.0.1:700", id), 1));
    let id = b.start(&new);
    assert_eq!(b.begin(&old), Verdict::InProgress);
    assert_eq!(b.finish(&new, id, ok("done")).map(|f| f.to), Some(new.peer));

    // The same after the reply: a request from another port, on a connection older than the newest, is another
    // client's.
    assert_eq!(b.begin(&old), Verdict::Replay("done".into()));
    b.start(&write(tcp("10.0.0.1:999", 2), 1));
}

#[test]
fn older_of_two_live_connections_has_requests_of_its_own() {
    let mut b = Bench::new(Config::full());
    let older = write(tcp("10.0.0.1:700", 1), 1);
    let newer = write(tcp("10.0.0.1:999", 2), 1);
    b.run(&newer, "done apart");
    let separate = b.start(&older);
    b.finish(&older, separate, ok("done"));
    b.live.gone(older.peer);
    b.live.gone(newer.peer);
    // An equal port comes first, even on a third connection.
    assert_eq!(b.begin(&write(tcp("10.0.0.1:999", 3), 1)), Verdict::Replay("done apart".into()));
    assert_eq!(b.cache.stats().from_new_port, 0);
    // A fourth connection finds the entry whose connections have ended.
    assert_eq!(b.begin(&write(tcp("10.0.0.1:555", 4), 1)), Verdict::Replay("done".into()));
    assert_eq!(b.cache.stats().from_new_port, 1);
    // The entry has that port now.
    assert_eq!(b.begin(&write(tcp("10.0.0.1:555", 4), 1)), Verdict::Replay("done".into()));
    assert_eq!(b.cache.stats().from_new_port, 1);
}

#[test]
fn reconnected_client_gets_the_reply_in_progress() {
    let mut b = Bench::new(Config::full());
    let (old, new) = (write(tcp("10.0.0.1:700", 1), 1), write(tcp("10.0.0.1:999", 2), 1));
    let id = b.start(&old);
    b.live.gone(old.peer);
    assert_eq!(b.begin(&new), Verdict::InProgress);
    assert_eq!(b.finish(&old, id, ok("done")).map(|f| f.to), Some(new.peer));
}

#[test]
fn client_that_reconnects_unnoticed_is_recognised() {
    let mut b = Bench::new(Config::full());
    let (old, new) = (write(tcp("10.0.0.1:700", 1), 1), write(tcp("10.0.0.1:999", 2), 1));
    let id = b.start(&old);
    assert_eq!(b.begin(&new), Verdict::InProgress);
    assert_eq!(b.finish(&old, id, ok("done")).map(|f| f.to), Some(new.peer));
    assert_eq!(b.begin(&write(tcp("10.0.0.1:555", 3), 1)), Verdict::Replay("done".into()));
}

/// The fate of the connection on which a request was answered.
#[derive(Clone, Copy, Debug)]
enum Old {
    /// Open; the client has received everything.
    Arrived,
    /// Open; what the client has received is unknown.
    Unsure,
    /// Open; the reply is still being sent.
    BeingSent,
    /// Broken off by the client.
    Broken,
    /// Ended by the client after it received everything.
    Ended,
    /// The same, after a further call.
    WentOn,
}

#[test]
fn restarted_program_gets_no_reply_of_its_earlier_run() {
    // The fate of the old connection, the XID that began it, the XID of the request, the XID that began the new
    // connection, and whether the request is executed again.
    for (old, began, xid, begins, again) in [
        (Old::Arrived, 10, 11, 10, true),
        (Old::Arrived, 10, 10, 10, true),
        (Old::Arrived, 10, 11, 11, false),
        (Old::Unsure, 10, 11, 10, false),
        (Old::BeingSent, 10, 11, 10, false),
        (Old::Broken, 10, 11, 10, false),
        (Old::Broken, 10, 10, 10, false),
        (Old::Ended, 10, 11, 10, true),
        (Old::Ended, 10, 10, 10, false),
        (Old::Ended, 10, 11, 11, false),
        (Old::WentOn, 10, 10, 10, true),
        (Old::WentOn, 10, 10, 11, false),
        (Old::WentOn, 10, 11, 11, false),
    ] {
        let what = format!("{old:?}, {began}, {xid}, {begins}");
        let mut b = Bench::new(Config::full());
        let (first, second) = (write(tcp("10.0.0.1:700", 1), xid), write(tcp("10.0.0.1:999", 2), xid));
        if began != xid {
            b.live.heard(first.peer, Some(began));
            b.live.answered(first.peer);
        }
        let id = b.start(&first);
        let sent = b.finish(&first, id, ok("done"));
        b.live.answered(first.peer);
        let held = matches!(old, Old::BeingSent).then_some(sent);
        match old {
            Old::Arrived | Old::Unsure | Old::BeingSent => {}
            Old::Broken => b.live.gone(first.peer),
            Old::Ended => b.live.ended(first.peer),
            Old::WentOn => {
                b.live.heard(first.peer, Some(xid + 1));
                b.live.answered(first.peer);
                b.live.ended(first.peer);
            }
        }
        b.live.heard(second.peer, Some(begins));
        if begins != xid {
            b.live.heard(second.peer, Some(xid));
        }
        let arrived = if matches!(old, Old::Arrived | Old::BeingSent) { vec![1] } else { Vec::new() };
        match b.decide(&second, &TestEnds { arrived, broken: Vec::new() }) {
            Verdict::Execute(Some(id)) => {
                assert!(again, "{what}");
                b.finish(&second, id, ok("done again"));
                assert_eq!(b.begin(&second), Verdict::Replay("done again".into()), "{what}");
            }
            verdict => assert_eq!((verdict, again), (Verdict::Replay("done".into()), false), "{what}"),
        }
        drop(held);
    }
}

#[test]
fn client_that_pings_before_a_duplicate_is_no_new_program() {
    // The NULL calls of both connections, the calls that began them, the request, and whether it is executed again.
    for (nulls, began, xid, begins, again) in [
        (Some([0, 0]), 77, 77, 77, false),
        (Some([0, 0]), 76, 77, 77, false),
        (Some([0, 1]), 77, 78, 77, false),
        (Some([0, 0]), 77, 78, 77, true),
        (None, 77, 78, 77, true),
    ] {
        let mut b = Bench::new(Config::full());
        let (first, second) = (write(tcp("10.0.0.1:700", 1), xid), write(tcp("10.0.0.1:999", 2), xid));
        for (n, (peer, xid)) in [(first.peer, began), (second.peer, begins)].into_iter().enumerate() {
            if let Some(nulls) = nulls {
                b.live.heard_null(peer, nulls[n]);
                b.live.answered(peer);
            }
            b.live.heard(peer, Some(xid));
            b.live.answered(peer);
        }
        b.run(&first, "done");
        b.live.answered(first.peer);
        let verdict = b.decide(&second, &TestEnds { arrived: vec![1, 2], broken: Vec::new() });
        let is_replay = verdict == Verdict::Replay("done".into());
        assert_eq!(is_replay, !again, "{nulls:?}, {began}, {xid}, {begins}: {verdict:?}");
    }
}

#[test]
fn pipelined_duplicates_are_no_new_program() {
    for null_between in [false, true] {
        let mut b = Bench::new(Config::full());
        let [old, new] = [("700", 1), ("701", 2)].map(|(port, id)| tcp(&format!("10.0.0.1:{port}"), id));
        let calls = |peer| [1, 2, 3].map(|xid| write(peer, xid));
        let ids = calls(old).map(|call| b.start(&call));
        for (call, id) in calls(old).iter().zip(ids) {
            b.finish(call, id, ok("done"));
            b.live.answered(old);
        }
        // A middlebox acknowledged the replies and ended the connection, not the client.
        b.live.ended(old);
        for call in calls(new) {
            assert_eq!(b.begin(&call), Verdict::Replay("done".into()), "{call:?}");
            if null_between {
                b.live.heard_null(new, 9);
            }
        }
    }
}

#[test]
fn request_read_late_on_a_broken_connection_is_a_duplicate() {
    for (broken, answered) in [(true, true), (true, false), (false, true)] {
        let mut b = Bench::new(Config::full());
        let (late, again) = (write(tcp("10.0.0.1:700", 1), 1), write(tcp("10.0.0.1:701", 2), 1));
        b.live.heard(late.peer, Some(1));
        let id = b.start(&again);
        if answered {
            b.finish(&again, id, ok("done"));
        }
        let told = TestEnds { arrived: Vec::new(), broken: if broken { vec![1] } else { Vec::new() } };
        let want = if answered { Verdict::Replay("done".into()) } else { Verdict::InProgress };
        let verdict = b.decide(&late, &told);
        assert_eq!(verdict == want, broken, "where both are open they are two programs': {verdict:?}");
        // The entry stays with the newer connection.
        assert_eq!(b.begin(&write(tcp("10.0.0.1:702", 3), 1)) == want, broken);
    }
}

#[test]
fn connection_ended_with_an_open_call_proves_no_delivery() {
    let mut b = Bench::new(Config::full());
    let [one, two, three] = [("700", 1), ("701", 2), ("702", 3)].map(|(p, id)| tcp(&format!("10.0.0.1:{p}"), id));
    let (y, x) = (b.start(&write(one, 1)), b.start(&write(one, 2)));
    b.live.gone(one);
    assert_eq!([1, 2].map(|xid| b.begin(&write(two, xid))), [Verdict::InProgress, Verdict::InProgress]);
    b.live.ended(two);
    assert_eq!(b.finish(&write(one, 1), y, ok("Y")), None);
    assert_eq!(b.finish(&write(one, 2), x, ok("X")), None);
    b.live.heard(three, Some(1));
    assert_eq!(b.begin(&write(three, 2)), Verdict::Replay("X".into()));
}

#[test]
fn without_room_only_new_requests_are_turned_away() {
    let mut b = Bench::new(Config::full());
    let (a, c, d) = (write(udp("10.0.0.1:1"), 1), write(udp("10.0.0.1:1"), 2), write(udp("10.0.0.1:1"), 3));
    b.run(&a, "done");
    b.start(&c);
    let mut begin = |r| b.cache.begin(b.now, r, Streams::unsure(&b.live), false);
    assert_eq!(begin(&a), Verdict::Replay("done".into()));
    assert_eq!(begin(&c), Verdict::InProgress);
    assert_eq!(begin(&d), Verdict::NoRoom);
    b.start(&d);
}

#[test]
fn replies_expire_some_time_after_they_were_last_asked_for() {
    let mut b = Bench::new(Config::full());
    let (a, c) = (write(udp("10.0.0.1:1"), 1), write(udp("10.0.0.1:1"), 2));
    b.run(&a, "a");
    b.run(&c, "c");
    b.wait(100);
    assert_eq!(b.begin(&a), Verdict::Replay("a".into()));
    b.wait(100);
    let due = b.cache.next_expiry().expect("something is kept");
    assert!(due <= b.now, "c is due");
    b.cache.expire(b.now);
    assert_eq!(b.begin(&a), Verdict::Replay("a".into()));
    b.start(&c);
    assert_eq!(b.cache.stats().expirations, 1);
}

#[test]
fn replays_keep_a_reply_four_times_as_long_at_most() {
    let mut b = Bench::new(Config::full());
    let a = write(tcp("10.0.0.1:700", 1), 1);
    b.run(&a, "done");
    let keep = Config::KEEP.as_secs();
    let lasted = (1..100).find(|_| {
        b.wait(keep - 1);
        b.begin(&a) != Verdict::Replay("done".into())
    });
    assert_eq!(lasted, Some(5), "the fourth time it was not kept any longer");
}

#[test]
fn expiry_does_bounded_work_and_frees_everything_in_the_end() {
    let mut b = Bench::new(Config::full());
    for xid in 0..1000 {
        b.run(&write(udp("10.0.0.1:1"), xid), "done");
    }
    b.wait(1000);
    b.cache.expire(b.now);
    assert!((1..=100).contains(&b.cache.stats().expirations));
    while b.cache.next_expiry().is_some() {
        b.cache.expire(b.now);
    }
    assert_eq!(b.cache.bytes(), 0);
}

#[test]
fn a_flood_stays_within_the_bound_and_spares_the_quiet() {
    let bytes_max = 1 << 20;
    let mut b = Bench::new(Config::Full { bytes_max, keep: Config::KEEP });
    let quiet: Vec<_> = (0..200).map(|xid| write(udp("10.0.0.2:1"), xid)).collect();
    quiet.iter().for_each(|r| b.run(r, "quiet"));
    for xid in 0..100_000 {
        b.run(&write(udp("10.0.0.1:1"), xid), "flood");
        assert!(b.cache.bytes() <= bytes_max);
    }
    assert!(b.cache.bytes() > bytes_max - 2 * ENTRY_OVERHEAD, "room is used");
    for r in &quiet {
        assert_eq!(b.begin(r), Verdict::Replay("quiet".into()));
    }
    assert!(b.cache.stats().evictions > 90_000);
    let kept =
        (99_000..100_000).filter(|xid| b.begin(&write(udp("10.0.0.1:1"), *xid)) == Verdict::Replay("flood".into()));
    assert!(kept.count() > 500, "the flooder keeps its newest");
}

#[test]
fn a_flood_from_many_addresses_stays_within_the_bound() {
    let bytes_max = 256 << 10;
    let mut b = Bench::new(Config::Full { bytes_max, keep: Config::KEEP });
    for i in 0..10_000u32 {
        let peer = Peer::datagram((std::net::Ipv4Addr::from(i), 1).into());
        b.run(&write(peer, 1), "flood");
        assert!(b.cache.bytes() <= bytes_max);
    }
}

#[test]
fn large_replies_are_kept_like_small_ones() {
    let mut b = Bench::new(Config::full());
    let a = write(udp("10.0.0.1:1"), 1);
    let large = "x".repeat(1 << 20);
    b.run(&a, &large);
    assert_eq!(b.begin(&a), Verdict::Replay(large.into()));
}
