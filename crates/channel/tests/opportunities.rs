//! Recorded links: frames leave at the trace's delivery opportunities, byte for byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, Config, Fate, FrameRecord, Lane, Opportunities, Outage, PerSide, Side};

const LATE: Time = Time::from_secs(100_000);

fn trace(lines: &str) -> Option<Arc<Opportunities>> {
    Some(Arc::new(Opportunities::parse(lines).unwrap()))
}

/// A channel whose base station sends at the opportunities of a trace, and with no delay.
fn channel(lines: &str, config: Config) -> Channel {
    let trace = PerSide { base: trace(lines), mobile: None };
    Channel::new(Config { trace, delay: Duration::ZERO, trace_frames: 1000, ..config }, 1).unwrap()
}

fn send(c: &mut Channel, at_ms: u64, bytes: usize) {
    c.send_packet(Time::from_millis(at_ms), Side::Base, Bytes::from(vec![0; bytes]));
}

fn frames(c: &mut Channel) -> Vec<FrameRecord> {
    c.handle_timeout(LATE);
    std::iter::from_fn(|| c.poll_trace()).collect()
}

/// First and last milliseconds of the frames.
fn times(c: &mut Channel) -> Vec<(u64, u64)> {
    frames(c).iter().map(|f| (f.start.as_nanos() / 1_000_000, f.end.as_nanos() / 1_000_000)).collect()
}

#[test]
fn full_frames_leave_one_per_opportunity() {
    let mut c = channel("10\n10\n30\n", Config::default());
    for _ in 0..7 {
        send(&mut c, 0, 1500);
    }
    assert_eq!(times(&mut c), [10, 10, 30, 40, 40, 60, 70].map(|t| (t, t)));
}

#[test]
fn rest_of_opportunity_goes_to_the_next_frame() {
    let mut c = channel("10\n20\n", Config::default());
    for bytes in [1000, 500, 1000, 1000, 1000, 1] {
        send(&mut c, 0, bytes);
    }
    assert_eq!(times(&mut c), [(10, 10), (10, 10), (20, 20), (20, 30), (30, 30), (40, 40)]);
}

#[test]
fn unused_opportunity_is_lost() {
    let mut c = channel("10\n10\n30\n", Config::default());
    send(&mut c, 0, 100); // uses 100 bytes at 10 ms
    send(&mut c, 10, 1400); // the rest of them: just in time
    send(&mut c, 11, 1400); // too late for the second opportunity at 10 ms
    send(&mut c, 12, 101); // 100 bytes are left at 30 ms
    assert_eq!(times(&mut c), [(10, 10), (10, 10), (30, 30), (30, 40)]);
}

#[test]
fn long_frame_spans_opportunities() {
    let mut c = channel("5\n7\n9\n", Config { mtu: 9000, ..Config::default() });
    send(&mut c, 6, 4501);
    assert_eq!(times(&mut c), [(7, 9 + 7)]);
    assert_eq!(c.stats(Side::Base).airtime, Duration::from_millis(9));
}

#[test]
fn opportunity_in_bad_period_loses_its_frame() {
    let outages =
        |start, length| vec![Outage { start: Time::from_millis(start), length: Duration::from_millis(length) }];
    for (start, length, hold, want) in [
        (20, 1, false, [(10, Fate::Delivered), (20, Fate::BadPeriod), (30, Fate::Delivered)]),
        (21, 9, false, [(10, Fate::Delivered), (20, Fate::Delivered), (30, Fate::Delivered)]),
        (15, 5, false, [(10, Fate::Delivered), (20, Fate::Delivered), (30, Fate::Delivered)]),
        (20, 1, true, [(10, Fate::Delivered), (30, Fate::Delivered), (40, Fate::Delivered)]),
        (5, 30, true, [(40, Fate::Delivered), (50, Fate::Delivered), (60, Fate::Delivered)]),
    ] {
        let mut c = channel("10\n", Config { outages: outages(start, length), hold, ..Config::default() });
        for _ in 0..3 {
            send(&mut c, 0, 1500);
        }
        let got: Vec<_> = frames(&mut c).iter().map(|f| (f.end.as_nanos() / 1_000_000, f.fate)).collect();
        assert_eq!(got, want, "{start} {length} {hold}");
    }
}

#[test]
fn queue_fills_between_opportunities() {
    let mut c = channel("1000\n", Config { queue_frames: 3, ..Config::default() });
    for ms in 0..6 {
        send(&mut c, ms, 1500);
    }
    // The first has left for the device; three wait.
    assert_eq!((c.queued_frames(Side::Base), c.stats(Side::Base).frames_queue_full), (3, 2));
    assert_eq!(c.poll_timeout(), Some(Time::from_secs(1)));
}

#[test]
fn other_direction_has_its_own_rate_and_medium() {
    let mut c = channel("100\n", Config::default());
    send(&mut c, 0, 1500);
    for _ in 0..3 {
        c.send_packet(Time::ZERO, Side::Mobile, Bytes::from(vec![0; 1500]));
    }
    let mut arrivals = std::iter::from_fn(|| c.poll_delivery(LATE)).map(|d| (d.to, d.at.as_nanos() / 1_000_000));
    let want = [(Side::Base, 12), (Side::Base, 24), (Side::Base, 36), (Side::Mobile, 100)];
    assert!(arrivals.by_ref().eq(want));
}

#[test]
fn mobiles_share_the_opportunities_of_their_side() {
    let trace = PerSide { base: None, mobile: trace("10\n") };
    let mut c = Channel::with_mobiles(Config { trace, ..Config::default() }, 1, 2).unwrap();
    for _ in 0..2 {
        for mobile in 0..2 {
            c.send_packet(Time::ZERO, Lane { mobile, from: Side::Mobile }, Bytes::from(vec![0; 1500]));
        }
    }
    let arrivals = std::iter::from_fn(|| c.poll_delivery(LATE)).map(|d| (d.mobile, d.at.as_nanos() / 1_000_000));
    assert!(arrivals.eq([(0, 12), (1, 22), (0, 32), (1, 42)]));
}
