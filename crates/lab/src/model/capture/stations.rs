//! Counts by station and pair while a capture is read, and the network file made from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::time::Duration;

use serde::Serialize;

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("is neither pcap nor pcapng")]
    Foreign,
    #[error("is damaged after packet {packets}: {why}")]
    Damaged { packets: u64, why: String },
    /// Unknown link type.
    #[error("has packets of link type {0}, expected Ethernet, Linux cooked, BSD loopback, or raw IP")]
    LinkType(i32),
    #[error("has {0} packets, all without a time (simple packet blocks): rates need times")]
    Untimed(u64),
    /// Too few packets to compute a rate.
    #[error("has {0} packets at one moment: rates need two moments")]
    Short(u64),
}

/// Most stations and pairs; later ones count as `others`.
pub const STATIONS_MAX: usize = 10_000;
const PAIRS_MAX: usize = 50_000;
/// Name of all stations beyond the limit.
const OTHERS: &str = "others";
/// Shortest bin, in seconds.
const BIN_MIN_S: f64 = 1e-6;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    pub seconds: f64,
    pub packets: u64,
    /// Bin length of the burstiness, in seconds.
    pub bin_s: f64,
    pub stations: Vec<Station>,
    /// Traffic between stations, most packets first.
    pub pairs: Vec<Pair>,
    /// Packets that count as `others`.
    pub packets_of_others: u64,
    /// The file ends in the middle of a packet; earlier ones count.
    pub cut_short: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Station {
    pub name: String,
    pub packets: u64,
    pub packets_per_s: f64,
    /// Mean size in bytes.
    pub mean_bytes: f64,
    /// Mean square of the size in bytes squared.
    pub second_moment_bytes2: f64,
    /// Variance of the size over its mean squared: `variation` in a network's file.
    pub variation: f64,
    /// Index of dispersion of packets in complete bins: 1 for Poisson, 0 for regular arrivals. `None` below two bins,
    /// or if this station sent in none.
    pub dispersion: Option<f64>,
    /// Packets in the fullest complete bin, over the mean of the complete bins.
    pub peak_to_mean: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    pub from: String,
    pub to: String,
    pub packets_per_s: f64,
    /// Mean size in bytes.
    pub mean_bytes: f64,
    /// Variance of the size over its mean squared.
    pub variation: f64,
}

#[derive(Clone, Copy, Default)]
struct Sizes {
    packets: u64,
    sum: f64,
    squares: f64,
}

impl Sizes {
    fn add(&mut self, size: f64) {
        self.packets += 1;
        self.sum += size;
        self.squares += size * size;
    }

    fn moments(self) -> (f64, f64) {
        let n = self.packets.max(1) as f64;
        (self.sum / n, self.squares / n)
    }

    fn variation(self) -> f64 {
        let (mean, second) = self.moments();
        if mean > 0.0 { (second / (mean * mean) - 1.0).max(0.0) } else { 0.0 }
    }
}

#[derive(Clone, Copy, Default)]
struct Bins {
    now: u64,
    count: f64,
    sum: f64,
    squares: f64,
    most: f64,
}

impl Bins {
    /// Adds a packet to bin `at`. A late packet counts in the open bin.
    fn add(&mut self, at: u64) {
        if at > self.now {
            self.close();
            self.now = at;
        }
        self.count += 1.0;
    }

    fn close(&mut self) {
        self.sum += self.count;
        self.squares += self.count * self.count;
        self.most = self.most.max(self.count);
        self.count = 0.0;
    }

    /// Index of dispersion and peak over mean of the first `complete` bins, empty ones included. The bin in which the
    /// capture ends does not count: it would look like a lull.
    fn burstiness(mut self, complete: u64) -> Option<(f64, f64)> {
        if self.now < complete {
            self.close();
        }
        if complete < 2 || self.sum == 0.0 {
            return None;
        }
        let bins = complete as f64;
        let mean = self.sum / bins;
        // The mean is estimated from the same bins, hence n - 1.
        let variance = (self.squares - self.sum * mean).max(0.0) / (bins - 1.0);
        Some((variance / mean, self.most / mean))
    }
}

pub(super) struct Tally {
    bin_s: f64,
    span: Option<(f64, f64)>,
    packets: u64,
    others: u64,
    stations: BTreeMap<String, (Sizes, Bins)>,
    pairs: BTreeMap<(String, String), Sizes>,
}

impl Tally {
    pub(super) fn new(bin: Duration) -> Tally {
        Tally {
            bin_s: bin.as_secs_f64().max(BIN_MIN_S),
            span: None,
            packets: 0,
            others: 0,
            stations: BTreeMap::new(),
            pairs: BTreeMap::new(),
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Adds a packet.
    pub(super) fn add(&mut self, time_s: f64, size: u32, from: String, to: String) {
        let (first, last) = self.span.unwrap_or((time_s, time_s));
        // A clock set back before the first packet only shifts the bins.
        self.span = Some((first.min(time_s), last.max(time_s)));
        self.packets += 1;
        let fold = |name: String, known: bool, room: bool| if known || room { name } else { OTHERS.to_owned() };
        let room = self.stations.len() < STATIONS_MAX;
        let from = fold(from.clone(), self.stations.contains_key(&from), room);
        let mut pair = (from.clone(), to);
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&pair) {
            pair = (OTHERS.to_owned(), OTHERS.to_owned());
        }
        self.others += u64::from(pair.0 == OTHERS);
        let size = f64::from(size);
        let bin = ((time_s - first).max(0.0) / self.bin_s) as u64;
        let (sizes, bins) = self.stations.entry(from).or_default();
        sizes.add(size);
        bins.add(bin);
        self.pairs.entry(pair).or_default().add(size);
    }

    pub(super) fn finish(self, cut_short: bool) -> Result<Calibration, CaptureError> {
        let seconds = self.span.map_or(0.0, |(first, last)| last - first);
        if seconds <= 0.0 {
            return Err(CaptureError::Short(self.packets));
        }
        let complete = (seconds / self.bin_s) as u64;
        let station = |(name, (sizes, counted)): (String, (Sizes, Bins))| {
            let (mean_bytes, second_moment_bytes2) = sizes.moments();
            let (dispersion, peak_to_mean) = counted.burstiness(complete).unzip();
            Station {
                name,
                packets: sizes.packets,
                packets_per_s: sizes.packets as f64 / seconds,
                mean_bytes,
                second_moment_bytes2,
                variation: sizes.variation(),
                dispersion,
                peak_to_mean,
            }
        };
        let pair = |((from, to), sizes): ((String, String), Sizes)| Pair {
            from,
            to,
            packets_per_s: sizes.packets as f64 / seconds,
            mean_bytes: sizes.moments().0,
            variation: sizes.variation(),
        };
        let mut stations: Vec<Station> = self.stations.into_iter().map(station).collect();
        stations.sort_by_key(|s| std::cmp::Reverse(s.packets));
        let mut pairs: Vec<Pair> = self.pairs.into_iter().map(pair).collect();
        pairs.sort_by(|a, b| b.packets_per_s.total_cmp(&a.packets_per_s));
        let Tally { packets, bin_s, others: packets_of_others, .. } = self;
        Ok(Calibration { seconds, packets, bin_s, stations, pairs, packets_of_others, cut_short })
    }
}

/// Most flows in the file; a comment counts the others.
const FLOWS_MAX: usize = 100;
/// The largest variation that a network file accepts.
const VARIATION_MAX: f64 = 100.0;

/// A network file (TOML): one medium, a group for each address, a flow for each pair.
pub fn skeleton(calibration: &Calibration) -> String {
    // Traffic of a station to itself is not on the medium.
    let across = |p: &&Pair| p.from != p.to;
    let all: Vec<&Pair> = calibration.pairs.iter().filter(across).collect();
    let flows = &all[..all.len().min(FLOWS_MAX)];
    let names: BTreeSet<&str> = flows.iter().flat_map(|p| [p.from.as_str(), p.to.as_str()]).collect();
    let mut toml = format!(
        "# From a capture of {:.3} s with {} packets. What it cannot know, and you may: the medium and its\n\
         # rate, which stations stand behind a gateway, what a copy would do. Addresses of groups (multicast,\n\
         # broadcast) are stations of their own here.\n\n\
         [[medium]]\nname = \"network\"\ntype = \"switch\"               # or \"ethernet\", \"ring\", \"wifi\"\n\
         rate = \"100Mbit\"\n",
        calibration.seconds, calibration.packets
    );
    for name in &names {
        let _ = write!(toml, "\n[[group]]\nname = \"{name}\"\nmedium = \"network\"\nstations = 1\n");
    }
    for flow in flows {
        let _ = write!(
            toml,
            "\n[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nrate = {}\nsize = \"{}B\"\nvariation = {:.4}\n",
            flow.from,
            flow.to,
            rate(flow.packets_per_s),
            flow.mean_bytes.round().max(1.0),
            flow.variation.min(VARIATION_MAX),
        );
    }
    if flows.len() < all.len() {
        let left = &all[flows.len()..];
        let rest: f64 = left.iter().map(|p| p.packets_per_s).sum();
        let _ = write!(toml, "\n# Left out: {} smaller flows, {} packets a second together.\n", left.len(), rate(rest));
    }
    toml
}

/// About six digits, always valid as a TOML float.
fn rate(value: f64) -> String {
    format!("{value:.6}")
}
