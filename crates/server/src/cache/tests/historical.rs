//! The caches of DRC 89, rule by rule.

use super::bench::*;
use remora_wire::nfs3::{Reply, Status};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

fn from_client(xid: u32, proc: Proc) -> Request {
    request(udp("10.0.0.1:700"), xid, proc)
}

#[test]
fn reference_cache_turns_failures_of_duplicates_into_success() {
    let five = [Proc::Create, Proc::Remove, Proc::Link, Proc::MkDir, Proc::RmDir];
    for proc in Proc::ALL {
        let mut b = Bench::new(Config::reference());
        assert_eq!(Config::reference().covers(proc), five.contains(&proc));
        let r = from_client(1, proc);
        let mut run = |done| {
            assert_eq!(
                b.cache.begin(b.now, &r, Streams::unsure(&b.live), true),
                Verdict::Execute(None),
                "it never prevents anything"
            );
            b.cache.finish(b.now, &r, None, &b.live, done).map(|f| f.reply)
        };
        assert_eq!(run(failed("first")), Some("first".into()), "an unknown failure is a failure");
        assert_eq!(run(ok("second")), Some("second".into()));
        let third = run(failed("third")).expect("a reply");
        if five.contains(&proc) {
            let mut r = Reader::new(third);
            assert_eq!(ReplyHeader::decode(&mut r), Ok(ReplyHeader { xid: 1, outcome: Outcome::Success }));
            assert_eq!(Reply::decode(proc, &mut r).map(|r| r.status()), Ok(None::<Status>));
            assert_eq!(r.remaining(), 0);
        } else {
            assert_eq!(third, "third");
        }
    }
}

#[test]
fn reference_cache_holds_its_number_of_entries() {
    let mut b = Bench::new(Config::Reference { entries: 10 });
    let mut run = |xid, done| {
        let r = from_client(xid, Proc::Remove);
        b.cache.finish(b.now, &r, None, &b.live, done).map(|f| f.reply)
    };
    (0..11).for_each(|xid| assert!(run(xid, ok("ok")).is_some()));
    assert_eq!(run(0, failed("gone")), Some("gone".into()), "the oldest is forgotten");
    assert_ne!(run(1, failed("gone")), Some("gone".into()));
}

#[test]
fn juszczak_drops_in_progress_and_recent_calls() {
    for proc in [Proc::Write, Proc::Read] {
        let mut b = Bench::new(Config::juszczak());
        let r = from_client(1, proc);
        let id = b.start(&r);
        assert_eq!(b.begin(&r), Verdict::InProgress);
        assert!(b.finish(&r, id, ok("done")).is_some());
        assert_eq!(b.begin(&r), Verdict::Recent);
        b.wait(5);
        assert_eq!(b.begin(&r), Verdict::Recent);
        assert_eq!((b.cache.stats().in_progress_dropped, b.cache.stats().throwaway_dropped), (1, 2));
    }
}

#[test]
fn juszczak_repeats_a_success_while_the_file_is_unchanged() {
    for (proc, repeats) in [(Proc::Write, true), (Proc::SetAttr, true), (Proc::Create, true), (Proc::Read, false)] {
        let mut b = Bench::new(Config::juszczak());
        let r = from_client(1, proc);
        b.run(&r, "done");
        b.wait(6);
        if !repeats {
            b.start(&r);
            continue;
        }
        for _ in 0..2 {
            let Verdict::Check(id) = b.begin(&r) else { panic!("{proc:?}") };
            assert_eq!(b.begin(&r), Verdict::InProgress, "while its times are asked for");
            assert_eq!(b.cache.checked(id, Some(times(1))), Some("done".into()));
        }
        for now in [Some(times(2)), None] {
            let Verdict::Check(id) = b.begin(&r) else { panic!("{proc:?}") };
            assert_eq!(b.cache.checked(id, now), None, "changed or gone: again as new");
            assert_eq!(b.begin(&r), Verdict::InProgress);
            assert!(b.finish(&r, id, ok("done")).is_some());
            b.wait(6);
        }
    }
}

#[test]
fn juszczak_tries_failures_again_at_once() {
    let mut b = Bench::new(Config::juszczak());
    let r = from_client(1, Proc::Write);
    for n in 0..3 {
        let id = b.start(&r);
        b.finish(&r, id, failed("no"));
        assert_eq!(b.cache.stats().executed_again, n);
    }
}

#[test]
fn juszczak_reuses_completed_entries_round_robin() {
    let mut b = Bench::new(Config::Juszczak { entries: 3, throwaway: Config::THROWAWAY });
    let r = |xid| from_client(xid, Proc::Write);
    let slow = b.start(&r(0));
    (1..20).for_each(|xid| b.run(&r(xid), "done"));
    assert_eq!(b.begin(&r(0)), Verdict::InProgress);
    assert_eq!(b.begin(&r(19)), Verdict::Recent);
    assert_eq!(b.begin(&r(18)), Verdict::Recent);
    b.start(&r(17));
    b.start(&r(21));
    assert_eq!(b.begin(&r(22)), Verdict::Execute(None), "all entries are in progress");
    assert_eq!(b.cache.stats().uncached, 1);
    assert!(b.finish(&r(0), slow, ok("done")).is_some());
    b.start(&r(23));
}
