//! A channel whose stations collide, as on an Ethernet.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Rate, Time};
use remora_channel::{Access, Channel, Config, Fate, FrameRecord, Lane, Side};

const LATE: Time = Time::from_secs(100_000);

fn ethernet() -> Config {
    Config {
        rate: Rate::mbit(10),
        access: Access::Collisions,
        delay: Duration::from_micros(1),
        trace_frames: 100_000,
        ..Config::default()
    }
}

fn send(c: &mut Channel, at: Time, lane: Lane, bytes: usize) {
    c.send_packet(at, lane, Bytes::from(vec![0; bytes]));
}

fn mobile(mobile: usize) -> Lane {
    Lane { mobile, from: Side::Mobile }
}

fn trace(c: &mut Channel) -> Vec<FrameRecord> {
    c.handle_timeout(LATE);
    std::iter::from_fn(|| c.poll_trace()).collect()
}

#[test]
fn station_alone_sends_frames_one_gap_apart() {
    let mut c = Channel::with_mobiles(ethernet(), 1, 3).unwrap();
    let begin = Time::from_millis(1);
    (0..3).for_each(|_| send(&mut c, begin, mobile(1), 1500));
    // Only after a propagation time is the station known to be alone.
    assert_eq!(c.poll_timeout(), Some(begin + Duration::from_micros(1)));
    let arrivals: Vec<Time> = std::iter::from_fn(|| c.poll_delivery(LATE)).map(|d| d.at).collect();
    // 1526 bytes, 1 us to all stations, and 9.6 us before the next.
    let frame = Duration::from_nanos(1_220_800);
    let apart = frame + Duration::from_nanos(10_600);
    let expected: Vec<Time> = (0..3).map(|n| begin + frame + Duration::from_micros(1) + n * apart).collect();
    assert_eq!((arrivals, c.collisions()), (expected, 0));
    assert_eq!(c.stats(mobile(1)).airtime, 3 * frame);
}

#[test]
fn simultaneous_starts_collide_and_retry() {
    let mut c = Channel::with_mobiles(ethernet(), 1, 2).unwrap();
    for lane in [mobile(0), mobile(1)] {
        send(&mut c, Time::ZERO, lane, 1000);
    }
    let frames = trace(&mut c);
    assert!(c.collisions() >= 1 && frames.len() == 2);
    assert!(frames.iter().all(|f| f.fate == Fate::Delivered && f.start > Time::ZERO), "{frames:?}");
}

#[test]
fn full_queue_excludes_the_frame_in_the_transmitter() {
    let config = Config { queue_frames: 5, ..ethernet() };
    let mut c = Channel::with_mobiles(config, 1, 1).unwrap();
    (0..9).for_each(|_| send(&mut c, Time::ZERO, mobile(0), 1500));
    let fates: Vec<Fate> = trace(&mut c).iter().map(|f| f.fate).collect();
    assert_eq!(fates.iter().filter(|f| **f == Fate::QueueFull).count(), 3, "{fates:?}");
    assert_eq!(c.stats(mobile(0)).frames_sent, 6);
}

#[test]
fn base_station_has_one_transmitter_for_all_mobiles() {
    let mut c = Channel::with_mobiles(ethernet(), 1, 3).unwrap();
    for to in [2, 0, 1, 2] {
        send(&mut c, Time::ZERO, Lane { mobile: to, from: Side::Base }, 500);
    }
    let order: Vec<usize> = trace(&mut c).iter().map(|f| f.mobile).collect();
    assert_eq!((order, c.collisions()), (vec![2, 0, 1, 2], 0), "in the order they were sent, and no collision");
}

#[test]
fn same_seed_has_the_same_collisions() {
    let run = |seed| {
        let mut c = Channel::with_mobiles(ethernet(), seed, 4).unwrap();
        (0..40).for_each(|n| send(&mut c, Time::from_micros(n * 300), mobile(n as usize % 4), 1000));
        trace(&mut c)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

proptest! {
    /// Frames are a gap apart, each meets one fate, and polling often changes nothing.
    #[test]
    fn any_traffic_has_one_frame_at_a_time(
        seed in 0u64..1000,
        offers in prop::collection::vec((0u64..3_000, 0usize..5, any::<bool>(), 40usize..1500), 1..120),
        step_us in 1u64..5_000,
    ) {
        let new = || Channel::with_mobiles(ethernet(), seed, 4).unwrap();
        let lane = |to: usize| if to == 4 { Lane { mobile: 1, from: Side::Base } } else { mobile(to) };
        let (mut lazy, mut eager) = (new(), new());
        let (mut at, mut polled) = (Time::ZERO, Time::ZERO);
        for (gap, by, together, bytes) in &offers {
            at += Duration::from_micros(if *together { 0 } else { *gap });
            while polled < at {
                eager.handle_timeout(polled);
                polled += Duration::from_micros(step_us);
            }
            send(&mut lazy, at, lane(*by), *bytes);
            send(&mut eager, at, lane(*by), *bytes);
        }
        let frames = trace(&mut lazy);
        prop_assert_eq!(&frames, &trace(&mut eager));
        prop_assert_eq!(frames.len(), offers.len());
        let sent: Vec<&FrameRecord> = frames.iter().filter(|f| f.fate == Fate::Delivered).collect();
        for pair in sent.windows(2) {
            prop_assert!(pair[1].start >= pair[0].end + Duration::from_nanos(9_600), "{:?}", pair);
        }
        for lane in (0..5).map(lane) {
            let stats = lazy.stats(lane);
            prop_assert_eq!(
                stats.frames_offered,
                stats.frames_sent + stats.frames_queue_full + stats.frames_collided
            );
            prop_assert_eq!(lazy.queued_frames(lane), 0);
        }
    }
}
