//! Unit tests of the scheduler. Random tests are in `tests/scheduler_model.rs`, comparisons of the policies in
//! `tests/scheduler_fluid.rs`.

use std::time::Duration;

use remora_base::{Rate, Time};

use super::queue::Admission;
use super::{Config, Policy, Scheduler};
use crate::estimate::{Forecast, Knowledge, Outage};
use crate::object::{
    Command, Dest, Final, Gone, OnShortage, Options, Outcome, Priority, QueueId, Rejection, RequestId, State, Upcall,
    Why,
};

const D: Dest = Dest(0);

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn rate(bytes_per_second: u64) -> Option<Rate> {
    Rate::from_bits(bytes_per_second * 8)
}

fn known(bytes_per_second: u64) -> Forecast {
    let rate = rate(bytes_per_second);
    Forecast { rate, available: rate, at_most: rate, state: Knowledge::Known, measured: None }
}

fn blackout(frozen: u64) -> Forecast {
    Forecast { state: Knowledge::Blackout { since: Time::ZERO }, ..known(frozen) }
}

fn scheduler(policy: Policy) -> Scheduler {
    // Without overhead and latency, so that the sums are simple.
    Scheduler::new(Config { policy, payload: 1000, overhead: 0, latency: Duration::ZERO, ..Config::default() })
}

fn options(priority: Priority, deadline_ms: u64) -> Options {
    let deadline = (deadline_ms > 0).then(|| Duration::from_millis(deadline_ms));
    Options { priority, deadline, ..Options::default() }
}

fn asked(priority: Priority, deadline_ms: u64) -> Options {
    Options { on_shortage: OnShortage::Suspend, ..options(priority, deadline_ms) }
}

fn upcalls(s: &mut Scheduler) -> Vec<Upcall> {
    std::iter::from_fn(|| s.poll_upcall()).collect()
}

fn finals(s: &mut Scheduler) -> Vec<(u64, Outcome)> {
    let finals = upcalls(s).into_iter().filter_map(|u| match u {
        Upcall::Final(f) => Some((f.request.0, f.outcome)),
        _ => None,
    });
    finals.collect()
}

/// Sends up to `packets` packets at once; returns their requests.
fn send(s: &mut Scheduler, now: Time, packets: usize) -> Vec<u64> {
    let mut sent = Vec::new();
    while sent.len() < packets
        && let Some(pick) = s.pick(now, &mut |_| true)
    {
        s.written(now, pick.request, pick.remaining.min(1000));
        sent.push(pick.request.0);
    }
    sent
}

fn state(s: &Scheduler, id: RequestId) -> State {
    s.progress(id).unwrap().state
}

#[test]
fn priority_then_deadline_then_shortest() {
    for policy in [Policy::Paper, Policy::Remora] {
        let mut s = scheduler(policy);
        let submissions = [
            (2000, options(Priority::LOW, 100)),
            (2000, options(Priority::HIGH, 900)),
            (1000, options(Priority::HIGH, 800)),
            (3000, options(Priority::HIGH, 0)),
            (1000, options(Priority::HIGH, 0)),
            (1000, options(Priority::MEDIUM, 0)),
        ];
        for (size, o) in submissions {
            s.submit(ms(1), D, size, o);
        }
        assert_eq!(send(&mut s, ms(1), 99), [2, 1, 1, 4, 3, 3, 3, 5, 0, 0], "{policy:?}");
        assert_eq!(finals(&mut s), []);
        assert_eq!(state(&s, RequestId(0)), State::Finishing);
        s.delivered(ms(99), RequestId(0));
        s.handle_timeout(ms(801));
        assert_eq!(finals(&mut s), [(0, Outcome::Delivered), (2, Outcome::Expired)]);
        assert_eq!((s.poll_reset(), s.poll_reset()), (Some((RequestId(2), D)), None));
        assert_eq!(s.poll_timeout(), Some(ms(901)));
    }
}

/// Figure 5 of ATP 02: a large object is rejected at 20,682 B/s, and the one before it is given up at 14,181 B/s,
/// long before its deadline.
#[test]
fn the_papers_figure_5() {
    let mut s = scheduler(Policy::Paper);
    s.forecast(ms(137_000), known(54_005));
    let large = s.submit(ms(137_054), D, 256 << 10, options(Priority::LOW, 16_000));
    // By 144.5 s about 120 KB of it are left.
    for _ in 0..142 {
        s.written(ms(144_000), large, 1000);
    }
    s.forecast(ms(144_500), known(20_682));
    let small = s.submit(ms(144_564), D, 4096, options(Priority::HIGH, 1000));
    let rejected = s.submit(ms(144_564), D, 256 << 10, options(Priority::LOW, 16_000));
    let needed = rate((4096 + 262_144 - 142_000 + 262_144u64).div_ceil(16)).unwrap();
    let why = Rejection::InsufficientBandwidth { needed, available: rate(20_682).unwrap() };
    assert_eq!(finals(&mut s), [(rejected.0, Outcome::Rejected(why))]);
    assert_eq!(s.poll_reset(), None, "there never was a stream");
    assert_eq!(send(&mut s, ms(144_600), 1), [small.0]);
    s.forecast(ms(147_054), known(14_181));
    assert_eq!(finals(&mut s), [(small.0, Outcome::Expired), (large.0, Outcome::Evicted)]);
    assert_eq!(s.take_rejected(), 2);
}

#[test]
fn paper_rejects_displacing_equals_and_displaces_lower_objects() {
    let cases = [
        // (priority, deadline) of the present object, then of the new one; 100 KB each at 100 KB/s.
        ("a peer with a later deadline stays", Priority::HIGH, 1500, Some(false)),
        ("a lower one goes", Priority::LOW, 1500, Some(true)),
        ("both fit", Priority::LOW, 2500, None),
    ];
    for (name, priority, deadline, displaced) in cases {
        let mut s = scheduler(Policy::Paper);
        s.forecast(ms(0), known(100_000));
        let there = s.submit(ms(0), D, 100_000, options(priority, deadline));
        let newcomer = s.submit(ms(0), D, 100_000, options(Priority::HIGH, 1200));
        let expected = match displaced {
            None => vec![],
            Some(true) => vec![(there.0, Outcome::Evicted)],
            Some(false) => vec![(newcomer.0, Outcome::Rejected(Rejection::WouldDisplace(there)))],
        };
        assert_eq!(finals(&mut s), expected, "{name}");
    }
}

#[test]
fn paper_suspension_lasts_until_the_application_restarts() {
    let mut s = scheduler(Policy::Paper);
    s.forecast(ms(0), known(100_000));
    let id = s.submit(ms(0), D, 100_000, asked(Priority::HIGH, 2000));
    s.forecast(ms(0), known(40_000));
    let (needed, available) = (rate(50_000).unwrap(), rate(40_000).unwrap());
    assert_eq!(upcalls(&mut s), [Upcall::InsufficientBandwidth { request: id, needed, available }]);
    assert_eq!(state(&s, id), State::Suspended(Why::InsufficientBandwidth));
    s.forecast(ms(10), known(100_000));
    assert_eq!(send(&mut s, ms(20), 1), []);
    s.control(ms(20), id, Command::Restart).unwrap();
    assert_eq!(send(&mut s, ms(60), 1), [id.0]);
    assert_eq!(upcalls(&mut s), []);
}

#[test]
fn remora_suspends_and_resumes_without_wavering() {
    let mut s = scheduler(Policy::Remora);
    s.forecast(ms(0), known(100_000));
    let id = s.submit(ms(0), D, 100_000, asked(Priority::HIGH, 2000));
    assert_eq!(upcalls(&mut s), []);
    let mut told = Vec::new();
    for (at, bytes) in [(1, 40_000), (2, 56_000), (3, 40_000), (4, 56_000), (5, 80_000), (6, 60_000), (7, 40_000)] {
        s.forecast(ms(at), known(bytes));
        told.extend(upcalls(&mut s).into_iter().map(|u| (at, matches!(u, Upcall::Resumed { .. }))));
    }
    assert_eq!(told, [(1, false), (5, true), (7, false)]);
    assert_eq!(s.take_rejected(), 2);
    s.handle_timeout(ms(2000));
    assert_eq!(finals(&mut s), [(id.0, Outcome::Expired)]);
}

#[test]
fn suspended_object_resumes_without_its_deadline() {
    for policy in [Policy::Paper, Policy::Remora] {
        let mut s = scheduler(policy);
        s.forecast(ms(0), known(100_000));
        let id = s.submit(ms(0), D, 100_000, asked(Priority::HIGH, 2000));
        s.forecast(ms(0), known(40_000));
        assert_eq!((send(&mut s, ms(1), 1), upcalls(&mut s).len()), (vec![], 1));
        s.control(ms(1), id, Command::Deadline(None)).unwrap();
        assert_eq!(upcalls(&mut s), [Upcall::Resumed { request: id }], "{policy:?}");
        assert_eq!(send(&mut s, ms(50), 1), [id.0]);
    }
}

#[test]
fn suspension_for_bandwidth_survives_other_commands() {
    for policy in [Policy::Paper, Policy::Remora] {
        let mut s = scheduler(policy);
        s.forecast(ms(0), known(100_000));
        let id = s.submit(ms(0), D, 100_000, asked(Priority::HIGH, 2000));
        s.forecast(ms(0), known(40_000));
        assert_eq!(upcalls(&mut s).len(), 1);
        s.control(ms(1), id, Command::Prioritise(Priority::MAX)).unwrap();
        s.control(ms(2), id, Command::Suspend).unwrap();
        s.dest_down(ms(3), D, Outage::new(ms(3)));
        s.dest_up(ms(4), D);
        assert_eq!(state(&s, id), State::Suspended(Why::Asked), "{policy:?}");
        s.dest_down(ms(5), D, Outage::new(ms(5)));
        s.control(ms(6), id, Command::Deadline(Some(Duration::from_millis(1900)))).unwrap();
        s.dest_up(ms(7), D);
        assert_eq!((send(&mut s, ms(60), 1), upcalls(&mut s)), (vec![], vec![]), "{policy:?}");
    }
}

#[test]
fn remora_gives_up_the_largest_of_the_lowest() {
    // At 100 KB/s; the deadlines are 1 s from now, except the last.
    type Sizes = &'static [(u64, Priority, u64)];
    let cases: &[(&str, Sizes, &[u64])] = &[
        ("what fits", &[(40_000, Priority::HIGH, 1000), (50_000, Priority::LOW, 1000)], &[0, 1]),
        ("the lower goes, newcomer or not", &[(50_000, Priority::LOW, 1000), (50_000, Priority::HIGH, 1000)], &[1]),
        (
            "one large one rather than two small ones",
            &[(30_000, Priority::LOW, 1000), (50_000, Priority::LOW, 1000), (40_000, Priority::LOW, 1000)],
            &[0, 2],
        ),
        ("no small high one for a large low one", &[(1000, Priority::HIGH, 1000), (95_000, Priority::LOW, 1000)], &[0]),
        (
            "what is due later does not matter",
            &[(90_000, Priority::HIGH, 1000), (90_000, Priority::LOW, 2000)],
            &[0, 1],
        ),
    ];
    for (name, sizes, kept) in cases {
        let mut s = scheduler(Policy::Remora);
        s.config.tuning.foresight = 0.0;
        s.forecast(ms(0), known(100_000));
        for (size, priority, deadline) in *sizes {
            s.submit(ms(0), D, *size, options(*priority, *deadline));
        }
        let queue = &s.queues[&QueueId(0)];
        let stands = queue.timeline().filter(|(_, e)| matches!(e.admission, Admission::Fits | Admission::Urgent));
        let mut ids: Vec<u64> = stands.map(|(key, _)| key.1.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, *kept, "{name}");
        assert_eq!(finals(&mut s), [], "{name}: there is hope yet");
    }
}

#[test]
fn remora_ends_what_has_no_hope_and_turns_to_what_has() {
    let mut s = scheduler(Policy::Remora);
    s.forecast(ms(0), known(10_000));
    let never = s.submit(ms(0), D, 50_000, options(Priority::HIGH, 1000));
    let [Upcall::Final(Final { request, outcome: Outcome::Rejected(why), .. })] = upcalls(&mut s)[..] else { panic!() };
    let needed = rate(50_000).unwrap();
    assert_eq!((request, why), (never, Rejection::InsufficientBandwidth { needed, available: rate(10_000).unwrap() }));
    // Behind the first object the second does not fit; after its cancellation it does.
    let first = s.submit(ms(0), D, 9000, options(Priority::HIGH, 1000));
    let second = s.submit(ms(0), D, 9000, options(Priority::LOW, 1000));
    assert_eq!(send(&mut s, ms(0), 3), [first.0; 3]);
    s.control(ms(10), first, Command::Cancel).unwrap();
    assert_eq!(finals(&mut s), [(first.0, Outcome::Cancelled)]);
    let wake = s.poll_timeout().unwrap();
    assert!(wake <= ms(30), "{wake}");
    s.handle_timeout(wake);
    assert_eq!(send(&mut s, wake, 1), [second.0]);
    // 8 KB are left: 0.8 s at 10 KB/s, 0.4 s at twice that rate. After 0.6 s the object is infeasible.
    for at in (40..1000).step_by(10) {
        let _ = s.pick(ms(at), &mut |_| true);
    }
    let [Upcall::Final(f)] = upcalls(&mut s)[..] else { panic!() };
    assert_eq!((f.request, f.outcome, f.written), (second, Outcome::Evicted, 1000));
    assert!((ms(600)..ms(650)).contains(&f.at), "{}", f.at);
}

#[test]
fn remora_evicts_nothing_without_an_upper_bound() {
    let evicted = Some(Outcome::Evicted);
    for (name, at_most, on_shortage, ends, packets) in [
        ("no hope by a rate that one gap has shown", None, OnShortage::Drop, None, 1),
        ("nor is anybody asked", None, OnShortage::Suspend, None, 1),
        ("the link may exceed the rate", rate(2_000_000), OnShortage::Drop, None, 1),
        ("no hope", rate(10_000), OnShortage::Drop, evicted, 0),
    ] {
        let mut s = scheduler(Policy::Remora);
        let id = s.submit(ms(0), D, 1_000_000, Options { on_shortage, ..options(Priority::LOW, 1000) });
        s.forecast(ms(1), Forecast { at_most, ..known(10_000) });
        assert_eq!(finals(&mut s), Vec::from_iter(ends.map(|end| (id.0, end))), "{name}");
        assert_eq!(send(&mut s, ms(2), 1).len(), packets, "{name}");
    }
}

#[test]
fn remora_rejects_no_newcomer_on_a_guess() {
    for (at_most, taken) in [(None, true), (rate(2_000_000), true), (rate(10_000), false)] {
        let mut s = scheduler(Policy::Remora);
        s.forecast(ms(0), Forecast { at_most, ..known(10_000) });
        s.submit(ms(1), D, 1_000_000, options(Priority::LOW, 1000));
        assert_eq!(s.objects() == 1, taken, "{at_most:?}");
    }
}

#[test]
fn remora_low_object_precedes_high_ones_within_their_reserve() {
    let cases = [
        ("time enough for both: the low one first", 60_000, 16_000, true),
        ("the low one can wait", 3000, 16_000, false),
        ("the high one is due soon", 60_000, 1300, false),
        ("no deadline: no stepping back", 60_000, 0, false),
    ];
    for (name, size, deadline, low_first) in cases {
        let mut s = scheduler(Policy::Remora);
        s.config.tuning.foresight = 0.0;
        s.forecast(ms(0), known(60_000));
        let high = s.submit(ms(0), D, size, options(Priority::HIGH, deadline));
        let low = s.submit(ms(0), D, 4000, options(Priority::LOW, 900));
        let expected = if low_first { low } else { high };
        assert_eq!(send(&mut s, ms(0), 1), [expected.0], "{name}");
    }
}

#[test]
fn a_blackout_holds_everything_but_deadlines() {
    let mut s = scheduler(Policy::Remora);
    s.forecast(ms(0), known(50_000));
    let long = s.submit(ms(0), D, 100_000, asked(Priority::HIGH, 40_000));
    let short = s.submit(ms(0), D, 10_000, options(Priority::HIGH, 5000));
    s.forecast(ms(100), blackout(100));
    let late = s.submit(ms(200), D, 1_000_000, options(Priority::LOW, 35_000));
    assert_eq!(upcalls(&mut s), [], "nothing is rejected, evicted or suspended");
    s.handle_timeout(ms(5000));
    assert_eq!(finals(&mut s), [(short.0, Outcome::Expired)]);
    assert_eq!(state(&s, long), State::Waiting);
    s.forecast(ms(30_000), known(50_000));
    assert_eq!(send(&mut s, ms(30_000), 1), [long.0]);
    assert_eq!(finals(&mut s), [(late.0, Outcome::Evicted)]);
}

#[test]
fn a_destination_that_comes_back_goes_on_where_it_was() {
    let mut s = scheduler(Policy::Remora);
    let (a, b) = (
        s.submit(ms(0), Dest(1), 3000, options(Priority::HIGH, 0)),
        s.submit(ms(0), D, 1000, options(Priority::LOW, 0)),
    );
    assert_eq!(send(&mut s, ms(0), 1), [a.0]);
    s.dest_down(ms(1), Dest(1), Outage::new(ms(1)));
    assert_eq!(state(&s, a), State::Suspended(Why::Disconnected));
    let c = s.submit(ms(1), Dest(1), 1000, options(Priority::MAX, 50));
    assert_eq!(send(&mut s, ms(2), 9), [b.0]);
    s.dest_up(ms(10), Dest(1));
    assert_eq!(state(&s, a), State::Sending);
    assert_eq!(send(&mut s, ms(10), 1), [c.0]);
    let pick = s.pick(ms(10), &mut |_| true).unwrap();
    assert_eq!((pick.request, pick.offset, pick.remaining), (a, 1000, 2000));
    s.forget(ms(11), Dest(1));
    assert_eq!(finals(&mut s), [(a.0, Outcome::Lost), (c.0, Outcome::Lost)]);
    assert_eq!(s.objects(), 1);
}

/// The warnings that wait, with probabilities in percent.
fn warnings(s: &mut Scheduler) -> Vec<(u64, u64)> {
    let warning = |upcall| match upcall {
        Upcall::Uncertain { request, probability } => Some((request.0, (probability.get() * 100.0).round() as u64)),
        _ => None,
    };
    upcalls(s).into_iter().filter_map(warning).collect()
}

#[test]
fn outage_warns_of_each_deadline_at_once() {
    let mut s = scheduler(Policy::Remora);
    s.forecast(ms(0), known(1000));
    let urgent = s.submit(ms(0), D, 1000, options(Priority::HIGH, 4000));
    let low = s.submit(ms(0), D, 1000, options(Priority::LOW, 19_000));
    let free = s.submit(ms(0), D, 1000, options(Priority::LOW, 0));
    let other = s.submit(ms(0), Dest(1), 1000, options(Priority::MEDIUM, 9000));
    assert_eq!(warnings(&mut s), [], "the forecast is known");
    // A second is over, and each thousand bytes take another.
    s.dest_down(ms(1000), D, Outage::new(ms(0)));
    assert_eq!(warnings(&mut s), [(urgent.0, 50), (low.0, 88)]);
    let hopeless = s.submit(ms(2000), D, 1000, options(Priority::HIGH, 500));
    assert_eq!(warnings(&mut s), [(hopeless.0, 0)]);
    s.control(ms(2000), low, Command::Deadline(None)).unwrap();
    s.control(ms(2000), free, Command::Deadline(Some(Duration::from_secs(8)))).unwrap();
    s.control(ms(2000), free, Command::Suspend).unwrap();
    assert_eq!(warnings(&mut s), [(free.0, 57)]);
    s.dest_up(ms(2100), D);
    s.submit(ms(2100), D, 1000, options(Priority::HIGH, 9000));
    assert_eq!(warnings(&mut s), []);
    assert_eq!(state(&s, other), State::Waiting);
}

#[test]
fn deadline_before_the_first_measurement_is_uncertain() {
    for policy in [Policy::Paper, Policy::Remora] {
        let mut s = scheduler(policy);
        let id = s.submit(ms(0), D, 1000, options(Priority::HIGH, 1000));
        assert_eq!(warnings(&mut s), [(id.0, 50)], "{policy:?}");
        s.forecast(ms(1), known(100_000));
        s.submit(ms(1), D, 1000, options(Priority::HIGH, 1000));
        assert_eq!(warnings(&mut s), [], "{policy:?}");
    }
}

#[test]
fn deadline_moved_to_now_expires_whatever_the_rate() {
    for policy in [Policy::Paper, Policy::Remora] {
        let mut s = scheduler(policy);
        s.forecast(ms(0), known(100_000));
        let id = s.submit(ms(0), D, 100_000, options(Priority::HIGH, 2000));
        s.control(ms(1), id, Command::Deadline(Some(Duration::ZERO))).unwrap();
        assert_eq!(finals(&mut s), [(id.0, Outcome::Expired)], "{policy:?}");
    }
}

#[test]
fn requests_change_in_flight() {
    let mut s = scheduler(Policy::Remora);
    let a = s.submit(ms(0), D, 5000, options(Priority::LOW, 1000));
    let b = s.submit(ms(0), D, 5000, options(Priority::MEDIUM, 1000));
    assert_eq!(send(&mut s, ms(0), 2), [b.0; 2]);
    let progress = s.control(ms(1), a, Command::Prioritise(Priority::HIGH)).unwrap();
    assert_eq!(progress.priority, Priority::HIGH);
    assert_eq!(send(&mut s, ms(1), 1), [a.0]);
    s.control(ms(2), a, Command::Suspend).unwrap();
    assert_eq!(state(&s, a), State::Suspended(Why::Asked));
    assert_eq!(send(&mut s, ms(2), 1), [b.0]);
    assert_eq!(s.control(ms(3), a, Command::Deadline(None)).unwrap().deadline, None);
    s.control(ms(3), b, Command::Deadline(Some(Duration::from_millis(10)))).unwrap();
    s.control(ms(3), a, Command::Restart).unwrap();
    assert_eq!(send(&mut s, ms(3), 1), [a.0]);
    s.handle_timeout(ms(13));
    assert_eq!(finals(&mut s), [(b.0, Outcome::Expired)]);
    s.handle_timeout(ms(1001));
    assert_eq!(s.control(ms(1001), a, Command::Inspect).unwrap().written, 2000);
    assert_eq!(s.control(ms(1001), b, Command::Inspect), Err(Gone));
    assert_eq!(s.control(ms(1001), a, Command::Cancel).unwrap().state, State::Sending);
    assert_eq!(finals(&mut s), [(a.0, Outcome::Cancelled)]);
}

#[test]
fn queues_share_by_the_priorities_at_their_heads() {
    let mut s = scheduler(Policy::Remora);
    for (queue, priority) in [(1, Priority::HIGH), (2, Priority::LOW)] {
        s.submit(ms(0), D, 10_000_000, Options { queue: QueueId(queue), ..options(priority, 0) });
    }
    let sent = send(&mut s, ms(0), 1800);
    let first = sent.iter().filter(|id| **id == 0).count();
    assert!((1299..=1301).contains(&first), "{first} of 1800, 13 to 5");
}

#[test]
fn every_table_is_bounded() {
    let config = Config { objects_max: 3, bytes_max: 10_000, size_max: 6000, queues_max: 2, ..Config::default() };
    let queue = |queue| Options { queue: QueueId(queue), ..Options::default() };
    let mut s = Scheduler::new(config);
    let mut rejection = |size, queue| {
        s.submit(ms(0), D, size, queue);
        finals(&mut s).first().map(|(_, outcome)| *outcome)
    };
    assert_eq!(rejection(6001, queue(1)), Some(Outcome::Rejected(Rejection::TooLarge)));
    assert_eq!(rejection(6000, queue(1)), None);
    assert_eq!(rejection(4001, queue(1)), Some(Outcome::Rejected(Rejection::TooManyBytes)));
    assert_eq!(rejection(1000, queue(2)), None);
    assert_eq!(rejection(1000, queue(3)), Some(Outcome::Rejected(Rejection::TooManyQueues)));
    assert_eq!(rejection(0, queue(1)), None);
    assert_eq!(rejection(0, queue(1)), Some(Outcome::Rejected(Rejection::TooMany)));
    for id in 0..7 {
        s.failed(ms(1), RequestId(id), Outcome::Lost);
    }
    s.submit(ms(2), D, 1, queue(3));
    assert_eq!(finals(&mut s).len(), 3, "queues that are empty make room");
}

#[test]
fn zero_deadline_expires_at_once_and_paper_wakes_each_interval() {
    let mut s = scheduler(Policy::Paper);
    let at_once = Options { deadline: Some(Duration::ZERO), ..Options::default() };
    let id = s.submit(ms(7), D, 10, at_once);
    assert_eq!(s.poll_timeout(), Some(ms(7)));
    s.handle_timeout(ms(7));
    assert_eq!(finals(&mut s), [(id.0, Outcome::Expired)]);
    s.forecast(ms(7), known(40_000));
    s.submit(ms(7), D, 100_000, Options::default());
    assert_eq!(send(&mut s, ms(7), 99).len(), 2, "2000 bytes in 50 ms");
    assert_eq!(s.poll_timeout(), Some(ms(50)));
    s.handle_timeout(ms(50));
    assert_eq!(send(&mut s, ms(50), 99).len(), 2);
    assert_eq!(s.poll_timeout(), Some(ms(100)));
}
