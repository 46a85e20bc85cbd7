//! Rare variants of capture files, byte by byte.

use std::io::Read;

use super::*;

const BIN: Duration = Duration::from_millis(100);
const PACKETS: u64 = 200;
const LEN: usize = 84;
const GAP_US: u64 = 10_000;

/// An IPv4 datagram from 10.0.0.1 to 10.0.0.9.
fn datagram() -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, LEN as u8, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9];
    bytes.resize(LEN, 0);
    bytes
}

fn times_us() -> impl Iterator<Item = u64> {
    (0..PACKETS).map(|i| 1_700_000_000_000_000 + i * GAP_US)
}

#[derive(Clone, Copy)]
struct Order {
    is_big_endian: bool,
}

const LITTLE: Order = Order { is_big_endian: false };
const BIG: Order = Order { is_big_endian: true };

impl Order {
    fn u16(self, n: u16) -> [u8; 2] {
        if self.is_big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn u32(self, n: u32) -> [u8; 4] {
        if self.is_big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn u64(self, n: u64) -> [u8; 8] {
        if self.is_big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|n| self.u32(*n)).collect()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let len = self.u32(padded as u32 + 12);
        let padding = vec![0; padded - body.len()];
        [&self.u32(kind), &len[..], body, &padding, &len].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&self.u16(code), &self.u16(value.len() as u16)[..], value, &padding].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, options: &[u8]) -> Vec<u8> {
        self.block(1, &[&self.u16(link)[..], &[0; 2], &self.u32(0), options].concat())
    }

    fn packet(self, interface: u32, units: u64, original: usize, options: &[u8]) -> Vec<u8> {
        let lens = [LEN as u32, original as u32];
        let head = self.words(&[interface, (units >> 32) as u32, units as u32, lens[0], lens[1]]);
        self.block(6, &[&head, &datagram()[..], options].concat())
    }

    fn packets(self, options: &[u8]) -> Vec<u8> {
        times_us().flat_map(|at| self.packet(0, at, LEN, options)).collect()
    }
}

const RAW: u16 = 101;
const END: [u8; 4] = [0; 4];

struct Pcap {
    order: Order,
    magic: u32,
    link: u32,
    units_in_us: u64,
    /// Bytes between a record's header and its packet.
    pad: usize,
    original: usize,
    packet: Vec<u8>,
}

impl Default for Pcap {
    fn default() -> Pcap {
        let (order, link, packet) = (LITTLE, RAW.into(), datagram());
        Pcap { order, magic: 0xa1b2_c3d4, link, units_in_us: 1, pad: 0, original: LEN, packet }
    }
}

impl Pcap {
    /// The file, with a snap length of 0, which some programs write for "all".
    fn bytes(&self) -> Vec<u8> {
        let order = self.order;
        let version = [order.u16(2), order.u16(4)].concat();
        let mut bytes = [&order.u32(self.magic)[..], &version, &order.words(&[0, 0, 0, self.link])].concat();
        for at in times_us() {
            let (seconds, fraction) = (at / 1_000_000, at % 1_000_000 * self.units_in_us);
            let lens = [self.packet.len() as u32, self.original as u32];
            bytes.extend(order.words(&[seconds as u32, fraction as u32, lens[0], lens[1]]));
            bytes.extend(vec![0; self.pad]);
            bytes.extend(&self.packet);
        }
        bytes
    }
}

fn figures(what: &str, bytes: &[u8]) -> Calibration {
    calibrate_from(bytes, BIN).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Asserts that all packets are counted, from one station, at their times.
fn assert_whole(what: &str, bytes: &[u8], mean_bytes: f64) {
    let got = figures(what, bytes);
    let seconds = (PACKETS - 1) as f64 * GAP_US as f64 / 1e6;
    assert!(got.packets == PACKETS && (got.seconds - seconds).abs() < 1e-5 && !got.cut_short, "{what}: {got:?}");
    let [station] = &got.stations[..] else { panic!("{what}: {got:?}") };
    assert_eq!((station.name.as_str(), station.mean_bytes), ("10.0.0.1", mean_bytes), "{what}");
}

#[test]
fn pcap_variants_give_the_same_figures() {
    for (what, file) in [
        ("as most", Pcap::default()),
        ("big-endian", Pcap { order: BIG, ..Pcap::default() }),
        ("nanoseconds", Pcap { magic: 0xa1b2_3c4d, units_in_us: 1000, ..Pcap::default() }),
        ("big-endian nanoseconds", Pcap { order: BIG, magic: 0xa1b2_3c4d, units_in_us: 1000, ..Pcap::default() }),
        ("modified", Pcap { magic: 0xa1b2_cd34, pad: 8, ..Pcap::default() }),
        ("length of check sequences", Pcap { link: 0x2400_0000 | u32::from(RAW), ..Pcap::default() }),
        ("raw IP of OpenBSD", Pcap { link: 14, ..Pcap::default() }),
    ] {
        assert_whole(what, &file.bytes(), LEN as f64);
    }
}

#[test]
fn pseudo_headers_give_ip_stations() {
    let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &datagram()].concat();
    let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &datagram()].concat();
    let loopback = [&[2, 0, 0, 0][..], &datagram()].concat();
    for (what, link, packet) in
        [("SLL", 113, sll), ("SLL2", 276, sll2), ("NULL", 0, loopback.clone()), ("LOOP", 108, loopback)]
    {
        let original = packet.len();
        let whole = Pcap { link, original, packet, ..Pcap::default() };
        assert_whole(what, &whole.bytes(), original as f64);
        let cut = Pcap { packet: whole.packet[..whole.packet.len() - 40].to_vec(), ..whole };
        assert_whole(&format!("{what}, cut to a snap length"), &cut.bytes(), original as f64);
    }
}

#[test]
fn captured_length_above_original_counts() {
    let original = LEN - 10;
    assert_whole("pcap", &Pcap { original, ..Pcap::default() }.bytes(), LEN as f64);
    let packets: Vec<u8> = times_us().flat_map(|at| LITTLE.packet(0, at, original, &[])).collect();
    assert_whole("pcapng", &[LITTLE.section(), LITTLE.interface(RAW, &[]), packets].concat(), LEN as f64);
}

#[test]
fn odd_options_change_no_figure() {
    for order in [LITTLE, BIG] {
        let microseconds = order.option(9, &[6]);
        let with_end = |options: &[u8]| [options, &END].concat();
        for (what, of_interface, of_packets) in [
            ("as most", with_end(&microseconds), Vec::new()),
            ("interface without opt_endofopt", microseconds.clone(), Vec::new()),
            ("packets without opt_endofopt", Vec::new(), order.option(2, &[0, 0, 0, 1])),
            ("interface named in Latin-1", with_end(&order.option(2, b"R\xe9seau")), Vec::new()),
            ("comment in Latin-1", Vec::new(), with_end(&order.option(1, b"caf\xe9"))),
            ("empty comment", Vec::new(), with_end(&order.option(1, b""))),
            ("option longer than its block", Vec::new(), [order.u16(1), order.u16(999)].concat()),
            ("option of a wrong length", with_end(&order.option(14, &[1])), order.option(2, &[1])),
        ] {
            let bytes = [order.section(), order.interface(RAW, &of_interface), order.packets(&of_packets)].concat();
            assert_whole(what, &bytes, LEN as f64);
        }
    }
}

#[test]
fn blocks_without_packets_are_skipped() {
    for order in [LITTLE, BIG] {
        let junk = b"\xff\xfe not what this block should hold";
        // Name resolution, statistics, journal, secrets, custom, unknown.
        let others: Vec<u8> =
            [4, 5, 9, 10, 0xbad, 0x4000_0bad, 0x1234_5678].iter().flat_map(|kind| order.block(*kind, junk)).collect();
        let (simple, interface) = (order.block(3, &[&order.u32(4)[..], b"abcd"].concat()), order.interface(RAW, &[]));
        let bytes = [order.section(), others.clone(), interface, others.clone(), simple, order.packets(&[]), others];
        assert_whole("others", &bytes.concat(), LEN as f64);
    }
}

#[test]
fn packet_blocks_of_old_captures_count() {
    for order in [LITTLE, BIG] {
        let packet = |at: u64| {
            let head = order.words(&[(at >> 32) as u32, at as u32, LEN as u32, LEN as u32]);
            order.block(2, &[&order.u16(1)[..], &order.u16(77), &head, &datagram()].concat())
        };
        let interfaces = [order.interface(1, &[]), order.interface(RAW, &[])].concat();
        let bytes = [order.section(), interfaces, times_us().flat_map(packet).collect()].concat();
        assert_whole("packet blocks", &bytes, LEN as f64);
    }
}

#[test]
fn interfaces_keep_their_clocks_and_link_types() {
    for (first, second) in [(LITTLE, LITTLE), (BIG, BIG), (LITTLE, BIG)] {
        // Nanoseconds; then units of 2^-20 s that begin at 1.7e9 s, of IPv4 alone.
        let nanoseconds = first.option(9, &[9]);
        let binary = [second.option(9, &[0x80 | 20]), second.option(14, &second.u64(1_700_000_000)), END.to_vec()];
        let mut bytes = [first.section(), first.interface(RAW, &nanoseconds)].concat();
        let (one, two): (Vec<u64>, Vec<u64>) = times_us().partition(|at| at % 1_000_000 < 500_000);
        // The second section numbers its own interfaces.
        let in_binary = |at: u64| ((at - 1_700_000_000_000_000) as f64 / 1e6 * f64::from(1 << 20)).round() as u64;
        let of_two: Vec<u8> = two.into_iter().flat_map(|at| second.packet(1, in_binary(at), LEN, &[])).collect();
        bytes.extend(one.into_iter().flat_map(|at| first.packet(0, at * 1000, LEN, &[])));
        bytes.extend(
            [second.section(), second.interface(1, &[]), second.interface(228, &binary.concat()), of_two].concat(),
        );
        assert_whole("two sections", &bytes, LEN as f64);
    }
}

#[test]
fn simple_packets_alone_are_refused_by_name() {
    let simple = LITTLE.block(3, &[&LITTLE.u32(LEN as u32)[..], &datagram()].concat());
    let bytes = [LITTLE.section(), LITTLE.interface(RAW, &[]), simple.clone(), simple].concat();
    let why = calibrate_from(&bytes[..], BIN).unwrap_err().to_string();
    assert!(why.contains("2 packets, all without a time"), "{why}");
}

#[test]
fn impossible_lengths_are_damage() {
    let ng =
        |block: Vec<u8>| [LITTLE.section(), LITTLE.interface(RAW, &[]), LITTLE.packet(0, 0, LEN, &[]), block].concat();
    let mut too_long = LITTLE.packet(0, 0, LEN, &[]);
    too_long[20..24].copy_from_slice(&1000u32.to_le_bytes());
    let huge = LITTLE.words(&[6, u32::MAX - 3, 0, 0]);
    let mut pcap = Pcap::default().bytes();
    pcap[24 + 8..24 + 12].copy_from_slice(&[0xff; 4]);
    for (what, bytes, words) in [
        ("a packet longer than its block", ng(too_long), "after packet 1: an unreadable block (packet)"),
        ("a block shorter than its header", ng(LITTLE.words(&[6, 8, 8])), "after packet 1: an unreadable block"),
        ("a block of 4 GiB", ng(huge), "after packet 1: a record of 42949672"),
        ("a packet of 4 GiB", pcap, "after packet 0: a record of 42949673"),
        ("no interface", ng(LITTLE.packet(1, 0, LEN, &[])), "after packet 1: no interface 1"),
    ] {
        let why = calibrate_from(&bytes[..], BIN).unwrap_err().to_string();
        assert!(why.contains(words), "{what}: {why}");
    }
}

/// A reader that returns one byte at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(1);
        self.0.read(&mut into[..len])
    }
}

#[test]
fn pipe_that_trickles_gives_the_same_figures() {
    let ng = [LITTLE.section(), LITTLE.interface(RAW, &[]), LITTLE.packets(&[])].concat();
    for bytes in [Pcap::default().bytes(), ng] {
        assert_eq!(calibrate_from(Trickle(&bytes), BIN).unwrap(), figures("at once", &bytes));
    }
}
