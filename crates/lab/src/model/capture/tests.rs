//! Synthetic captures, valid and damaged.

use std::borrow::Cow;
use std::time::Duration;

use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use proptest::prelude::*;

use super::*;

const BIN: Duration = Duration::from_millis(100);

/// A UDP datagram in an Ethernet frame.
fn frame(from: u8, to: u8, len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to])
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .udp(1000, 2000);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &vec![0; len - 42]).unwrap();
    bytes
}

/// Ten seconds: station 1 sends 100 bytes every 10 ms; station 2 sends 20 packets of 200 and 600 bytes
/// in turn at the start of every second.
fn traffic() -> Vec<(Duration, Vec<u8>)> {
    let mut all: Vec<(Duration, Vec<u8>)> =
        (0..=1000u64).map(|i| (Duration::from_millis(10 * i), frame(1, 2, 100))).collect();
    for second in 0..10u64 {
        let at = |i: u64| Duration::from_micros(second * 1_000_000 + i);
        all.extend((0..20).map(|i| (at(i), frame(2, 1, if i % 2 == 0 { 200 } else { 600 }))));
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

fn pcap_bytes(link: DataLink, packets: &[(Duration, Vec<u8>)]) -> Vec<u8> {
    let header = PcapHeader { datalink: link, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (at, data) in packets {
        writer.write_packet(&PcapPacket::new(*at, data.len() as u32, data)).unwrap();
    }
    writer.into_writer()
}

/// Clock units of 10^-`digits` seconds.
fn pcapng_bytes(digits: u8, packets: &[(Duration, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let options = vec![InterfaceDescriptionOption::IfTsResol(digits)];
    let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0xffff, options };
    writer.write_pcapng_block(interface).unwrap();
    for (at, data) in packets {
        let units = at.as_nanos() as u64 / 10u64.pow(9 - u32::from(digits));
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(units),
            original_len: data.len() as u32,
            data: Cow::Borrowed(data),
            options: Vec::new(),
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    writer.into_inner()
}

#[test]
fn capture_of_any_format_gives_the_same_rates() {
    for bytes in [pcap_bytes(DataLink::ETHERNET, &traffic()), pcapng_bytes(6, &traffic()), pcapng_bytes(9, &traffic())]
    {
        let got = calibrate_from(&bytes[..], BIN).unwrap();
        assert!((got.seconds - 10.0).abs() < 1e-6 && got.packets == 1201, "{got:?}");
        let [steady, bursts] = &got.stations[..] else { panic!("{got:?}") };
        assert_eq!((steady.name.as_str(), bursts.name.as_str()), ("10.0.0.1", "10.0.0.2"));
        assert!((steady.packets_per_s - 100.1).abs() < 1e-6 && steady.mean_bytes == 100.0 && steady.variation == 0.0);
        let (dispersion, peak) = (steady.dispersion.unwrap(), steady.peak_to_mean.unwrap());
        assert!(dispersion < 0.06 && peak < 1.2, "{steady:?}");
        assert!((bursts.mean_bytes - 400.0).abs() < 1e-9);
        assert!((bursts.second_moment_bytes2 - 200_000.0).abs() < 1e-6 && (bursts.variation - 0.25).abs() < 1e-9);
        // 20 in one bin of ten, 0 in the others: variance 36.4 of 100 bins, mean 2.
        let (dispersion, peak) = (bursts.dispersion.unwrap(), bursts.peak_to_mean.unwrap());
        assert!((dispersion - 18.18).abs() < 0.01 && (peak - 10.0).abs() < 0.01, "{bursts:?}");
        assert_eq!(got.pairs.len(), 2);
    }
}

/// Burstiness of a station that sends at `times`, in seconds. Another station sends at both ends of the capture.
fn burstiness(times: impl Iterator<Item = f64>, seconds: f64, bin: Duration) -> (Option<f64>, Option<f64>) {
    let mut tally = Tally::new(bin);
    let add = |tally: &mut Tally, time_s: f64, from: &str| tally.add(time_s, 100, from.to_owned(), "all".to_owned());
    add(&mut tally, 0.0, "ends");
    times.take_while(|t| *t <= seconds).for_each(|t| add(&mut tally, t, "station"));
    add(&mut tally, seconds, "ends");
    let got = tally.finish(false).unwrap();
    let station = got.stations.iter().find(|s| s.name == "station").unwrap();
    (station.dispersion, station.peak_to_mean)
}

/// Capture and bin lengths: whole bins, slightly more, almost one more.
const LENGTHS: [(f64, u64); 7] =
    [(60.0, 100), (60.1, 10_000), (69.9, 10_000), (10.003, 100), (10.05, 100), (10.0, 1000), (2.5, 1000)];

#[test]
fn poisson_has_dispersion_1_at_any_length() {
    for (seconds, bin_ms) in LENGTHS {
        let bin = Duration::from_millis(bin_ms);
        let bins = (seconds / bin.as_secs_f64()).floor();
        let (mut sum, runs) = (0.0, 20);
        for seed in 0..runs {
            let mut rng = remora_base::Rng::stream(seed, "arrivals");
            let mut now = 0.0;
            let mean = Duration::from_millis(2);
            let times = std::iter::from_fn(|| {
                now += rng.exponential(mean).as_secs_f64();
                Some(now)
            });
            let (dispersion, peak) = burstiness(times, seconds, bin);
            sum += dispersion.unwrap();
            assert!(peak.unwrap() >= 1.0 && peak.unwrap() < 2.0, "{peak:?} of {bin:?} in {seconds} s");
        }
        // Five standard deviations of the mean.
        let (mean, far) = (sum / runs as f64, 5.0 * (2.0 / ((bins - 1.0) * runs as f64)).sqrt());
        assert!((mean - 1.0).abs() < far, "{mean} of {bin:?} in {seconds} s");
    }
}

#[test]
fn steady_beat_has_dispersion_0_at_any_length() {
    for (seconds, bin_ms) in LENGTHS {
        let bin = Duration::from_millis(bin_ms);
        let (dispersion, peak) = burstiness((0..).map(|i| f64::from(i) * 0.002 + 0.001), seconds, bin);
        // Rounding may move a packet to the next bin.
        assert!(dispersion.unwrap() < 0.03 && peak.unwrap() < 1.03, "{dispersion:?} of {bin:?} in {seconds} s");
    }
}

#[test]
fn burstiness_uses_complete_bins_only() {
    let second = Duration::from_secs(1);
    for (times, seconds, expected) in [
        // Fewer than two bins.
        (&[0.1, 0.2][..], 0.5, None),
        (&[0.1, 0.2], 1.9, None),
        // Silent in the last, which is cut off, or in the one before: 1 and 3, mean 2, variance 2.
        (&[0.1, 1.1, 1.2, 1.3], 2.5, Some((1.0, 1.5))),
        (&[0.1, 1.1, 1.2, 1.3, 2.1, 2.2, 2.3, 2.4], 2.5, Some((1.0, 1.5))),
        (&[0.1, 0.2, 0.3, 2.1], 3.0, Some((7.0 / 4.0, 9.0 / 4.0))),
        // Only in the one that is cut off.
        (&[2.1], 2.5, None),
    ] {
        let got = burstiness(times.iter().copied(), seconds, second);
        let near = |got: Option<f64>, expected: Option<f64>| match (got, expected) {
            (Some(got), Some(expected)) => (got - expected).abs() < 1e-9,
            (got, expected) => got == expected,
        };
        let (dispersion, peak) = expected.unzip();
        assert!(near(got.0, dispersion) && near(got.1, peak), "{got:?} of {times:?} in {seconds} s");
    }
}

#[test]
fn skeleton_has_a_group_per_address_and_flow_per_pair() {
    let toml = skeleton(&calibrate_from(&pcap_bytes(DataLink::ETHERNET, &traffic())[..], BIN).unwrap());
    for (words, count) in
        [("[[medium]]", 1), ("[[group]]", 2), ("[[flow]]", 2), ("size = \"400B\"\nvariation = 0.2500", 1)]
    {
        assert_eq!(toml.matches(words).count(), count, "{toml}");
    }
}

#[test]
fn raw_ip_and_other_frames_have_names() {
    let raw = [(Duration::ZERO, frame(1, 2, 100)[14..].to_vec()), (Duration::from_secs(1), vec![0xff; 3])];
    let got = calibrate_from(&pcap_bytes(DataLink::RAW, &raw)[..], BIN).unwrap();
    let names: Vec<&str> = got.stations.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.1", "unknown"]);
    let mut hello = frame(1, 2, 60);
    hello[12..14].copy_from_slice(&[0x88, 0xcc]);
    let got =
        calibrate_from(&pcap_bytes(DataLink::ETHERNET, &[(Duration::ZERO, hello.clone()), (BIN, hello)])[..], BIN);
    assert_eq!(got.unwrap().stations[0].name, "02:00:00:00:00:01");
}

#[test]
fn bad_capture_is_refused_with_a_reason() {
    let good = pcap_bytes(DataLink::ETHERNET, &traffic());
    let one = pcap_bytes(DataLink::ETHERNET, &traffic()[..1]);
    for (bytes, words) in [
        (&b""[..], "neither pcap nor pcapng"),
        (b"GET / HTTP/1.1", "neither pcap nor pcapng"),
        (&good[..20], "damaged after packet 0: it ends in the middle"),
        (&good[..60], "damaged after packet 0: it ends in the middle"),
        (&good[..24], "0 packets"),
        (&one, "1 packets at one moment"),
        (&pcap_bytes(DataLink::IEEE802_11, &traffic()), "link type 105, expected Ethernet"),
    ] {
        let why = calibrate_from(bytes, BIN).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn snap_length_keeps_sizes_on_the_wire() {
    let whole = pcap_bytes(DataLink::ETHERNET, &traffic());
    let mut cut = whole[..16].to_vec();
    cut.extend(64u32.to_be_bytes());
    cut.extend(&whole[20..24]);
    for (at, data) in traffic() {
        let kept = data.len().min(64);
        let words = [at.as_secs() as u32, at.subsec_micros(), kept as u32, data.len() as u32];
        cut.extend(words.into_iter().flat_map(u32::to_be_bytes));
        cut.extend(&data[..kept]);
    }
    assert_eq!(calibrate_from(&cut[..], BIN).unwrap(), calibrate_from(&whole[..], BIN).unwrap());
}

#[test]
fn truncated_file_counts_its_whole_packets() {
    for whole in [pcap_bytes(DataLink::ETHERNET, &traffic()), pcapng_bytes(6, &traffic())] {
        assert!(!calibrate_from(&whole[..], BIN).unwrap().cut_short);
        for missing in [3, 110] {
            let got = calibrate_from(&whole[..whole.len() - missing], BIN).unwrap();
            assert!(got.cut_short && got.packets == 1200, "{missing}: {got:?}");
        }
    }
}

#[test]
fn damaged_file_is_not_a_truncated_one() {
    let mut bytes = pcap_bytes(DataLink::ETHERNET, &traffic());
    let at = 24 + 16 + traffic()[0].1.len() + 4;
    bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
    let why = calibrate_from(&bytes[..], BIN).unwrap_err().to_string();
    assert!(why.contains("after packet 1: a time with 4294967295 parts"), "{why}");
}

#[test]
fn many_stations_count_as_others() {
    let mut tally = Tally::new(BIN);
    for i in 0..60_000u32 {
        tally.add(f64::from(i), 100, format!("from {i}"), format!("to {i}"));
    }
    let got = tally.finish(false).unwrap();
    assert!(got.stations.len() <= STATIONS_MAX + 1, "{}", got.stations.len());
    assert_eq!(got.packets_of_others, 60_000 - STATIONS_MAX as u64);
    assert_eq!(got.stations.iter().map(|s| s.packets).sum::<u64>(), 60_000);
}

proptest! {
    #[test]
    fn random_capture_does_not_panic(ng in any::<bool>(), at in 0usize..4000, with in any::<[u8; 4]>(), cut in 24usize..4000) {
        let packets = &traffic()[..30];
        let mut bytes = if ng { pcapng_bytes(6, packets) } else { pcap_bytes(DataLink::ETHERNET, packets) };
        let at = at % (bytes.len() - 4);
        bytes[at..at + 4].copy_from_slice(&with);
        bytes.truncate(cut);
        let _ = calibrate_from(&bytes[..], BIN).map(|c| skeleton(&c).len());
    }
}
