//! `remora bench --atp`: how fast ATP is where the link is not what limits it, beside plain QUIC.
//!
//! Both send the same objects over 127.0.0.1 within this program, in turns: ATP by its endpoints
//! as applications have them, QUIC by quinn with its default configuration, a stream for each
//! object. Both seal with ring, in packets of the size that they find out to fit. An object counts
//! when the receiving program has it whole; a run ends when all have come and the sender has been
//! told so of each.
//!
//! A round has a run of either, in random order, and a ratio of their rates; what is reported is
//! the median of the rounds and its interval. What the machine does beside them falls on both.

mod ours;
mod plain;

use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_base::Rng;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

pub use crate::report::error::Error;
use crate::report::error::failed;
use crate::report::statistics::Summary;
use crate::report::table::Table;

/// ATP's rate, at least so many times QUIC's.
pub const BAR: f64 = 1.0;
/// Objects under way at a time.
const AHEAD: usize = 16;
/// The most bytes of a run.
pub const BYTES_MAX: u64 = 16 << 30;
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Objects in a run (at least 1).
    pub objects: u64,
    /// Bytes of each (1 to 64 MiB).
    pub size: usize,
    /// Rounds; fewer than 6 give no interval.
    pub rounds: usize,
    /// Draws the order of the runs.
    pub seed: u64,
    /// The largest datagrams that both try and take, in bytes without IP and UDP headers (1200 to
    /// 65527); `None`: each as it is by default.
    pub datagram: Option<u16>,
}

impl Default for Options {
    /// 256 MiB in objects of 1 MiB, seven rounds.
    fn default() -> Options {
        Options { objects: 256, size: 1 << 20, rounds: 7, seed: 1, datagram: None }
    }
}

/// What sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// ATP's endpoints.
    Atp,
    /// quinn.
    Quinn,
}

impl Carrier {
    const BOTH: [Carrier; 2] = [Carrier::Atp, Carrier::Quinn];

    fn name(self) -> &'static str {
        match self {
            Carrier::Atp => "ATP",
            Carrier::Quinn => "QUIC (quinn)",
        }
    }

    fn run(self, load: &Load) -> Result<Duration, Error> {
        match self {
            Carrier::Atp => ours::run(load),
            Carrier::Quinn => plain::run(load),
        }
    }
}

/// What one run sends.
#[derive(Clone, Debug)]
struct Load {
    /// Always the same one, which is not copied to be sent.
    object: Bytes,
    count: u64,
    datagram: Option<u16>,
}

impl Load {
    fn bytes(&self) -> u64 {
        self.object.len() as u64 * self.count
    }
}

/// The figures of one carrier.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub carrier: Carrier,
    /// Bytes of objects a second.
    pub bytes_per_second: Summary,
    /// Processor time of both ends, in nanoseconds a byte.
    pub cpu_ns_per_byte: Summary,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of Remora that ran it.
    pub version: &'static str,
    /// Objects in a run.
    pub objects: u64,
    /// Bytes of each.
    pub size: usize,
    /// The largest datagrams of both, if they were held to the same.
    pub datagram: Option<u16>,
    /// ATP and QUIC.
    pub rows: Vec<Row>,
    /// ATP's rate over QUIC's, round by round.
    pub ratio: Summary,
}

/// Runs it: some seconds on a fast machine.
pub fn run(options: &Options) -> Result<Report, Error> {
    let object = Bytes::from(vec![0x5a; options.size]);
    let load = Load { object, count: options.objects.max(1), datagram: options.datagram };
    let mut rng = Rng::stream(options.seed, "atp-loopback");
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut costs: [Vec<f64>; 2] = Default::default();
    for _ in 0..options.rounds.max(1) {
        let order = if rng.chance(0.5) { [0, 1] } else { [1, 0] };
        for n in order {
            let before = cpu();
            let took = Carrier::BOTH[n].run(&load)?;
            let spent = cpu().saturating_sub(before);
            rates[n].push(load.bytes() as f64 / took.as_secs_f64());
            costs[n].push(spent.as_nanos() as f64 / load.bytes() as f64);
        }
    }
    let none = || failed("the figures")("there are none");
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(a, b)| a / b).collect();
    let row = |n: usize| {
        let (bytes_per_second, cpu_ns_per_byte) = (Summary::of(&rates[n])?, Summary::of(&costs[n])?);
        Some(Row { carrier: Carrier::BOTH[n], bytes_per_second, cpu_ns_per_byte })
    };
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        objects: load.count,
        size: options.size,
        datagram: options.datagram,
        rows: [0, 1].into_iter().map(row).collect::<Option<_>>().ok_or_else(none)?,
        ratio: Summary::of(&ratios).ok_or_else(none)?,
    })
}

/// Processor time of this program so far.
fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Until when a run must be over.
fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

impl Report {
    /// Whether the bar is held.
    pub fn holds(&self) -> bool {
        self.ratio.median >= BAR
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let head = ["carrier", "MB/s", "95 %", "CPU ns a byte"];
        let interval = |s: &Summary, unit: f64, digits: usize| match s.interval() {
            Some((low, high)) => format!("{:.digits$}..{:.digits$}", low / unit, high / unit),
            None => String::new(),
        };
        let row = |r: &Row| {
            vec![
                r.carrier.name().to_owned(),
                format!("{:.0}", r.bytes_per_second.median / 1e6),
                interval(&r.bytes_per_second, 1e6, 0),
                format!("{:.2}", r.cpu_ns_per_byte.median),
            ]
        };
        let table = Table::new(1, head, self.rows.iter().map(row)).to_text();
        let interval = interval(&self.ratio, 1.0, 2);
        let interval = if interval.is_empty() { interval } else { format!(" (95 %: {interval})") };
        let held = self.datagram.map_or_else(String::new, |bytes| format!(" in datagrams of {bytes}"));
        format!(
            "{} objects of {} bytes{held} over loopback, {} rounds, medians\n\n{table}\nATP is {:.2} times as fast as \
             QUIC{interval}; bar: {BAR:.1}\n",
            self.objects, self.size, self.ratio.runs, self.ratio.median
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_deliver_everything_and_the_report_says_how_fast() {
        let options = Options { objects: 12, size: 40_000, rounds: 1, seed: 3, datagram: Some(1452) };
        let report = run(&options).unwrap();
        assert_eq!(report.rows.iter().map(|r| r.carrier).collect::<Vec<_>>(), Carrier::BOTH);
        assert!(report.rows.iter().all(|r| r.bytes_per_second.median > 1e4 && r.cpu_ns_per_byte.median > 0.0));
        let [a, b] = [0, 1].map(|n: usize| report.rows[n].bytes_per_second.median);
        assert!((report.ratio.median - a / b).abs() < 1e-9);
        let text = report.to_text();
        assert!(
            text.contains("12 objects of 40000 bytes in datagrams of 1452") && text.contains("QUIC (quinn)"),
            "{text}"
        );
    }
}
