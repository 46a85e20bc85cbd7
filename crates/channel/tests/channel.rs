//! The channel with one mobile, against closed forms.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rate, Time};
use remora_channel::{
    Channel, Config, DATAGRAM_MAX, Delivery, Duplex, Fate, FrameRecord, Outage, Receiver, Side, SideStats,
};

const LATE: Time = Time::from_secs(100_000);

fn payload(bytes: usize) -> Bytes {
    Bytes::from(vec![0; bytes])
}

fn channel(config: Config) -> Channel {
    Channel::new(Config { trace_frames: 10_000, ..config }, 1).unwrap()
}

fn deliveries(c: &mut Channel) -> Vec<Delivery> {
    std::iter::from_fn(|| c.poll_delivery(LATE)).collect()
}

fn arrival_ms(c: &mut Channel) -> Vec<f64> {
    deliveries(c).iter().map(|d| d.at.as_nanos() as f64 / 1e6).collect()
}

fn trace(c: &mut Channel) -> Vec<FrameRecord> {
    std::iter::from_fn(|| c.poll_trace()).collect()
}

fn outage(start_ms: u64, length_ms: u64) -> Vec<Outage> {
    vec![Outage { start: Time::from_millis(start_ms), length: Duration::from_millis(length_ms) }]
}

#[test]
fn datagram_takes_its_airtime_and_the_delay() {
    // Bytes of payload, bytes on the medium with a header on each fragment.
    for (bytes, on_medium) in [(0, 28), (100, 128), (1472, 1500), (1473, 1521), (8192 + 120, 8320 + 6 * 20)] {
        let mut c = channel(Config::default());
        c.send(Time::from_millis(5), Side::Mobile, payload(bytes));
        let at = Time::from_millis(5 + 2) + Rate::mbit(1).airtime(on_medium);
        assert_eq!(c.poll_delivery(at - Duration::from_nanos(1)), None, "{bytes}");
        let got = c.poll_delivery(at).unwrap();
        assert_eq!((got.to, got.datagram.len(), got.at), (Side::Base, bytes, at));
        assert_eq!(c.poll_timeout(), None);
        assert_eq!(c.stats(Side::Mobile).airtime, Rate::mbit(1).airtime(on_medium));
    }
}

#[test]
fn full_frames_arrive_at_a_constant_spacing() {
    let mut c = channel(Config::default());
    for _ in 0..40 {
        c.send(Time::ZERO, Side::Base, payload(1472));
    }
    let want: Vec<f64> = (1..=40).map(|n| (12 * n + 2) as f64).collect();
    assert_eq!(arrival_ms(&mut c), want);
}

#[test]
fn full_queue_drops_the_tail() {
    let mut c = channel(Config { queue_frames: 3, ..Config::default() });
    for size in 1..=6 {
        c.send(Time::ZERO, Side::Base, payload(size));
        assert_eq!(c.queued_frames(Side::Base), 3.min(size - 1));
    }
    // One in the air and three waiting.
    assert_eq!(deliveries(&mut c).iter().map(|d| d.datagram.len()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(c.stats(Side::Base).frames_queue_full, 2);
    assert_eq!(c.stats(Side::Mobile), &SideStats::default());
}

#[test]
fn datagram_over_queue_capacity_wastes_airtime() {
    let mut c = channel(Config { queue_frames: 3, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(8192)); // six frames
    c.send(Time::from_millis(36), Side::Base, payload(72)); // the third frame has just left
    assert_eq!(arrival_ms(&mut c), [48.8 + 2.0]);
    let stats = c.stats(Side::Base);
    assert_eq!((stats.frames_sent, stats.frames_queue_full, stats.datagrams_delivered), (5, 2, 1));
}

#[test]
fn lost_fragment_loses_its_datagram() {
    // Bad from 13 to 14 ms: the second of three frames.
    let mut c = channel(Config { outages: outage(13, 1), ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(3 * 1480 - 8));
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!(arrival_ms(&mut c), [50.0]);
    let fates: Vec<_> = trace(&mut c).iter().map(|f| f.fate).collect();
    assert_eq!(fates, [Fate::Delivered, Fate::BadPeriod, Fate::Delivered, Fate::Delivered]);
}

#[test]
fn frame_at_edge_of_bad_period_is_delivered() {
    for (start, length, lives) in [(12, 5, true), (11, 1, false), (0, 1, false), (30, 1, true)] {
        let mut c = channel(Config { outages: outage(start, length), ..Config::default() });
        c.send(Time::ZERO, Side::Base, payload(1472));
        assert_eq!(deliveries(&mut c).len(), usize::from(lives), "{start} {length}");
    }
    let mut c = channel(Config { outages: outage(0, 10), ..Config::default() });
    c.send(Time::from_millis(10), Side::Base, payload(1472));
    assert_eq!(deliveries(&mut c).len(), 1);
}

#[test]
fn half_duplex_takes_turns_full_duplex_does_not_wait() {
    for (duplex, last_ms) in [(Duplex::Half, 242.0), (Duplex::Full, 122.0)] {
        let mut c = channel(Config { duplex, ..Config::default() });
        for _ in 0..10 {
            c.send(Time::ZERO, Side::Base, payload(1472));
        }
        for _ in 0..10 {
            c.send(Time::from_millis(1), Side::Mobile, payload(1472));
        }
        let all = deliveries(&mut c);
        assert_eq!(all.last().map(|d| d.at.as_nanos() as f64 / 1e6), Some(last_ms + f64::from(duplex == Duplex::Full)));
        assert!(all.windows(2).all(|two| two[0].to != two[1].to), "{duplex:?}");
    }
}

#[test]
fn stations_take_turns_by_frame_not_by_datagram() {
    let mut c = channel(Config::default());
    c.send(Time::ZERO, Side::Base, payload(8192));
    c.send(Time::from_millis(1), Side::Mobile, payload(100));
    let first = deliveries(&mut c).remove(0);
    assert_eq!((first.to, first.at), (Side::Base, Time::from_micros(12_000 + 1024 + 2000)));
}

#[test]
fn held_frames_of_both_directions_wait_for_good_period() {
    // The first frame ends as the outage begins; the next two wait for its end.
    let mut c = channel(Config { outages: outage(12, 100), hold: true, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(1472));
    c.send(Time::ZERO, Side::Base, payload(1472));
    c.send(Time::from_millis(50), Side::Mobile, payload(1472));
    assert_eq!(arrival_ms(&mut c), [14.0, 126.0, 138.0]);
    let forever = vec![Outage { start: Time::ZERO, length: Duration::MAX }];
    let mut c = channel(Config { outages: forever, hold: true, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!((deliveries(&mut c).len(), c.stats(Side::Base).frames_bad), (0, 1));
}

#[test]
fn held_frame_blocks_its_medium() {
    for (duplex, want) in [(Duplex::Half, [126.0, 126.8]), (Duplex::Full, [4.8, 126.0])] {
        let mut c = channel(Config { outages: outage(12, 100), hold: true, duplex, ..Config::default() });
        c.send(Time::from_millis(1), Side::Base, payload(1472)); // ends too late
        c.send(Time::from_millis(2), Side::Mobile, payload(72)); // would fit
        assert_eq!(arrival_ms(&mut c), want, "{duplex:?}");
    }
}

#[test]
fn held_frame_leaves_the_device_queue() {
    let mut c = channel(Config { outages: outage(5, 100), hold: true, queue_frames: 2, ..Config::default() });
    for (at_ms, queued) in [(0, 0), (0, 1), (1, 2), (2, 2), (118, 2), (119, 2)] {
        c.send(Time::from_millis(at_ms), Side::Base, payload(1472));
        assert_eq!(c.queued_frames(Side::Base), queued, "{at_ms}");
    }
    assert_eq!(arrival_ms(&mut c), [119.0, 131.0, 143.0, 155.0]);
    assert_eq!(c.stats(Side::Base).frames_queue_full, 2);
}

#[test]
fn independent_loss_takes_its_share_of_frames() {
    let mut c = channel(Config { loss: 0.1, rate: Rate::mbit(1000), queue_frames: 20_000, ..Config::default() });
    for _ in 0..20_000 {
        c.send(Time::ZERO, Side::Mobile, payload(100));
    }
    let lost = 20_000 - deliveries(&mut c).len() as u64;
    assert!((1850..2150).contains(&lost), "{lost}");
    assert_eq!(c.stats(Side::Mobile).frames_random_loss, lost);
}

#[test]
fn datagram_too_long_for_udp_is_counted_and_dropped() {
    let mut c = channel(Config::default());
    c.send(Time::ZERO, Side::Base, payload(DATAGRAM_MAX + 1));
    c.send(Time::ZERO, Side::Base, payload(DATAGRAM_MAX));
    let stats = c.stats(Side::Base);
    assert_eq!((stats.datagrams_offered, stats.datagrams_refused, stats.frames_offered), (2, 1, 45));
}

#[test]
fn trace_keeps_the_newest_frames() {
    let mut c = Channel::new(Config { trace_frames: 2, ..Config::default() }, 1).unwrap();
    for size in [10, 20, 30] {
        c.send(Time::ZERO, Side::Base, payload(size));
    }
    c.handle_timeout(LATE);
    assert_eq!(trace(&mut c).iter().map(|f| f.bytes).collect::<Vec<_>>(), [48, 58]);
    assert_eq!(c.trace_overwritten(), 1);
}

#[test]
fn time_before_earlier_time_counts_as_earlier_time() {
    let mut c = channel(Config::default());
    c.send(Time::from_secs(1), Side::Base, payload(1472));
    c.send(Time::ZERO, Side::Base, payload(1472));
    assert_eq!(arrival_ms(&mut c), [1014.0, 1026.0]);
    c.send(Time::MAX, Side::Base, payload(60_000));
    assert_eq!(c.poll_delivery(Time::MAX).map(|d| d.at), Some(Time::MAX));
}

#[test]
fn packet_is_one_frame_and_its_bytes_are_traced() {
    let mut c = channel(Config { queue_frames: 1, ..Config::default() });
    let packets: Vec<Bytes> = (1..=3u8).map(|n| Bytes::from(vec![n; 1500])).collect();
    for packet in &packets {
        c.send_packet(Time::ZERO, Side::Base, packet.clone());
    }
    c.send(Time::from_millis(1), Side::Mobile, payload(1472));
    let arrived: Vec<_> = deliveries(&mut c).into_iter().filter(|d| d.to == Side::Mobile).collect();
    assert_eq!(arrived.iter().map(|d| d.at.as_nanos() / 1_000_000).collect::<Vec<_>>(), [14, 38]);
    assert_eq!(arrived.iter().map(|d| &d.datagram).collect::<Vec<_>>(), [&packets[0], &packets[1]]);
    let traced: Vec<_> = trace(&mut c).into_iter().map(|f| (f.packet, f.fate)).collect();
    let want = [(0, Fate::Delivered), (2, Fate::QueueFull)].map(|(n, fate)| (packets[n].clone(), fate));
    assert_eq!(traced[..2], want);
    assert_eq!(traced[2], (Bytes::new(), Fate::Delivered), "a fragment is not traced");
    assert_eq!(traced[3].0, packets[1]);
}

#[test]
fn packet_empty_or_over_mtu_is_counted_and_dropped() {
    let mut c = channel(Config::default());
    for bytes in [0, 1501, 1500, 1] {
        c.send_packet(Time::ZERO, Side::Mobile, payload(bytes));
    }
    assert_eq!(deliveries(&mut c).iter().map(|d| d.datagram.len()).collect::<Vec<_>>(), [1500, 1]);
    let stats = c.stats(Side::Mobile);
    assert_eq!((stats.datagrams_offered, stats.datagrams_refused, stats.frames_offered), (4, 2, 2));
}

#[test]
fn slow_mobile_loses_frames_that_find_buffer_full() {
    // A frame every 12 ms and 30 ms for each: with room for two, about one in 2.5 gets in.
    let receiver = Some(Receiver { frames: 2, service: Duration::from_millis(30) });
    let mut c = channel(Config { receiver, ..Config::default() });
    for _ in 0..6 {
        c.send(Time::ZERO, Side::Base, payload(1472));
    }
    // They come at 14, 26, 38, 50, 62 and 74 ms; those taken leave at 44, 74 and 104 ms. The last
    // one comes just as the second leaves.
    assert_eq!(arrival_ms(&mut c), [44.0, 74.0, 104.0, 134.0]);
    let fates: Vec<_> = trace(&mut c).iter().map(|f| f.fate).collect();
    let (got, full) = (Fate::Delivered, Fate::ReceiverFull);
    assert_eq!(fates, [got, got, full, got, full, got]);
    let stats = c.stats(Side::Base);
    assert_eq!((stats.frames_sent, stats.frames_receiver_full, stats.datagrams_delivered), (6, 2, 4));
}

#[test]
fn datagram_arrives_when_mobile_takes_its_last_frame() {
    let receiver = Some(Receiver { frames: 3, service: Duration::from_millis(30) });
    let mut c = channel(Config { receiver, ..Config::default() });
    c.send(Time::ZERO, Side::Base, payload(3 * 1480 - 8));
    c.send(Time::from_millis(36), Side::Mobile, payload(3 * 1480 - 8));
    assert_eq!(arrival_ms(&mut c), [74.0, 14.0 + 3.0 * 30.0]);
    assert_eq!(c.stats(Side::Mobile).datagrams_delivered, 1);
}

#[test]
fn jitter_delays_frames_and_datagram_waits_for_latest() {
    let jitter = Duration::from_millis(40);
    let mut c = channel(Config { jitter, queue_frames: 1000, ..Config::default() });
    for n in 0..200u8 {
        c.send(Time::ZERO, Side::Base, Bytes::from(vec![n; if n < 100 { 1472 } else { 4000 }]));
    }
    let got = deliveries(&mut c);
    let ends: Vec<Time> = trace(&mut c).iter().map(|f| f.end + Duration::from_millis(2)).collect();
    assert!(got.is_sorted_by_key(|d| d.at) && got.len() == 200);
    let late = |d: &Delivery| match usize::from(d.datagram[0]) {
        n if n < 100 => d.at.since(ends[n]),
        n => d.at.since(ends[100 + (n - 100) * 3 + 2]),
    };
    assert!(got.iter().all(|d| late(d) <= jitter));
    let mean = |range: std::ops::Range<u8>| {
        let of = got.iter().filter(|d| range.contains(&d.datagram[0]));
        of.map(|d| late(d).as_secs_f64()).sum::<f64>() / f64::from(range.len() as u32) * 1e3
    };
    assert!((18.0..22.0).contains(&mean(0..100)), "{}", mean(0..100));
    assert!(mean(100..200) > mean(0..100));
    assert!(!got.is_sorted_by_key(|d| d.datagram[0]), "none has overtaken another");
}
