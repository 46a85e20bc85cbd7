//! The results: JSON for programs, a table for people.

use hdrhistogram::Histogram;
use remora_client::Transport;
use serde::Serialize;

use super::engine::EngineRun;
use super::operations::Operation;
use super::options::{BenchTarget, Options};
use crate::report::number::rounded;
use crate::report::statistics::Summary;
use crate::report::table::Table;

/// Above this utilisation of one of its threads the generator is the bottleneck.
const BUSY_MAX: f64 = 0.9;

#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub version: &'static str,
    pub settings: BenchSettings,
    /// URLs, in the order of `servers` in each operation.
    pub servers: Vec<String>,
    pub operations: Vec<OperationReport>,
    pub skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    /// `tcp` or `udp`, for each server.
    pub transport: Vec<&'static str>,
    pub outstanding: usize,
    pub connections: usize,
    /// Measured seconds of a run; `None` with `count`.
    pub seconds: Option<f64>,
    pub warm_up_seconds: f64,
    pub count: Option<u64>,
    /// Runs of each operation on each server.
    pub rounds: usize,
    /// Files in the directory that is listed.
    pub files: u64,
    /// Draws the order of the runs, files and offsets.
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    pub operation: &'static str,
    pub server: String,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    pub name: &'static str,
    pub about: &'static str,
    pub servers: Vec<ServerMeasurement>,
    pub ratio: Option<ServerRatio>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerMeasurement {
    pub per_second: Summary,
    /// Bytes of file data per second in the median run; 0 if none.
    pub bytes_per_second: f64,
    /// Latencies of all runs together; `None` if nothing completed.
    pub latency: Option<Latency>,
    pub runs: Vec<RunReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct RunReport {
    pub operations: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub bytes: u64,
    pub entries: u64,
    pub latency: Option<Latency>,
    pub lost: u64,
    /// Replies to calls that were already answered.
    pub late: u64,
    /// Utilisation of the busiest generator thread; 1 is a whole processor.
    pub generator_busy: f64,
    pub generator_cpus: f64,
}

/// The first server over the second: medians of the rounds' ratios, with 95 % intervals. Rounds in which a server
/// completed nothing have no ratio.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerRatio {
    /// Operations per second; above 1 the first server is faster.
    pub per_second: Summary,
    /// 99th percentile of the latency; below 1 the first server is faster.
    pub p99: Summary,
}

impl BenchReport {
    pub(super) fn new(options: &Options) -> BenchReport {
        let transport = |p: &BenchTarget| if p.target.transport == Some(Transport::Udp) { "udp" } else { "tcp" };
        BenchReport {
            version: env!("CARGO_PKG_VERSION"),
            settings: BenchSettings {
                transport: options.targets.iter().map(transport).collect(),
                outstanding: options.outstanding,
                connections: options.connections,
                seconds: options.count.is_none().then_some(options.duration.as_secs_f64()),
                warm_up_seconds: if options.count.is_none() { options.warm_up.as_secs_f64() } else { 0.0 },
                count: options.count,
                rounds: options.rounds,
                files: options.files,
                seed: options.seed,
            },
            servers: options.targets.iter().map(|p| p.url.clone()).collect(),
            operations: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn skip(&mut self, operation: &Operation, server: &str, why: String) {
        self.skipped.push(Skipped { operation: operation.name, server: server.to_owned(), why });
    }

    pub(super) fn add(&mut self, operation: &Operation, done: &[Vec<EngineRun>]) {
        let servers: Vec<ServerMeasurement> = done.iter().filter_map(|runs| ServerMeasurement::of(runs)).collect();
        let ratio = match &servers[..] {
            [a, b] => ServerRatio::of(a, b),
            _ => None,
        };
        self.operations.push(OperationReport { name: operation.name, about: operation.about, servers, ratio });
    }

    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let two = self.servers.len() == 2;
        let mut text = String::new();
        if two {
            let lines = self.servers.iter().zip(["A", "B"]).map(|(url, letter)| format!("  {letter}: {url}\n"));
            text.extend(lines);
        }
        let mut head = vec!["operation"];
        head.extend(two.then_some(""));
        head.extend(["per s", "MB/s", "p50", "p90", "p99", "p99.9", "max us"]);
        let lossy = self.operations.iter().flat_map(|o| &o.servers).any(|m| m.lost() > 0);
        head.extend(lossy.then_some("lost"));
        if two {
            head.extend(["A/B", "95 % interval", "A/B p99"]);
        }
        let rows = self.operations.iter().flat_map(|o| o.rows(two, lossy));
        text += &Table::new(1 + usize::from(two), head, rows).to_text_within(width);
        for skipped in &self.skipped {
            text += &format!("  {}: not measured: {} ({})\n", skipped.operation, skipped.why, skipped.server);
        }
        self.operations.iter().filter_map(|o| o.unfinished(self.settings.seconds)).for_each(|line| text += &line);
        let busy = |o: &&OperationReport| o.servers.iter().any(|m| m.busy() > BUSY_MAX);
        let busy: Vec<&str> = self.operations.iter().filter(busy).map(|o| o.name).collect();
        if !busy.is_empty() {
            let names = busy.join(", ");
            text += &format!("  A generator thread was the bottleneck: servers may be faster at {names}.\n");
        }
        text
    }
}

impl OperationReport {
    fn rows(&self, two: bool, lossy: bool) -> Vec<Vec<String>> {
        let row = |(nth, m): (usize, &ServerMeasurement)| {
            let mut row = vec![self.name.to_owned()];
            row.extend(two.then(|| if nth == 0 { "A" } else { "B" }.to_owned()));
            row.push(figure(m.per_second.median));
            row.push(if m.bytes_per_second > 0.0 { figure(m.bytes_per_second / 1e6) } else { String::new() });
            let columns = |l: Latency| [l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us].map(figure);
            row.extend(m.latency.map_or([const { "-" }; 5].map(str::to_owned), columns));
            row.extend(lossy.then(|| m.lost().to_string()));
            if let (true, 0, Some(r)) = (two, nth, &self.ratio) {
                row.push(format!("{:.2}", r.per_second.median));
                let interval = r.per_second.interval();
                row.push(interval.map_or("too few rounds".into(), |(low, high)| format!("{low:.2} to {high:.2}")));
                row.push(format!("{:.2}", r.p99.median));
            } else if two {
                row.extend([const { String::new() }; 3]);
            }
            row
        };
        self.servers.iter().enumerate().map(row).collect()
    }

    /// A warning if nothing completed in some runs: `seconds` is too short.
    fn unfinished(&self, seconds: Option<f64>) -> Option<String> {
        let runs = self.servers.iter().flat_map(|m| &m.runs);
        let (all, empty) = (runs.clone().count(), runs.filter(|r| r.operations == 0).count());
        let (name, seconds) = (self.name, seconds.filter(|_| empty > 0)?);
        Some(format!(
            "  {name}: no operation completed in {seconds} s in {empty} of {all} runs: use --duration or --count\n"
        ))
    }
}

impl ServerMeasurement {
    fn of(runs: &[EngineRun]) -> Option<ServerMeasurement> {
        let mut all: Option<Histogram<u64>> = None;
        for run in runs {
            match &mut all {
                // All have the same bounds.
                Some(all) => _ = all.add(&run.tally.latency),
                None => all = Some(run.tally.latency.clone()),
            }
        }
        let runs: Vec<RunReport> = runs.iter().map(RunReport::of).collect();
        let over = |f: fn(&RunReport) -> f64| Summary::of(&runs.iter().map(f).collect::<Vec<_>>());
        let (per_second, bytes) = (over(|r| r.per_second)?, over(|r| r.bytes as f64 / r.seconds.max(1e-9))?);
        Some(ServerMeasurement { per_second, bytes_per_second: bytes.median, latency: Latency::of(&all?), runs })
    }

    fn lost(&self) -> u64 {
        self.runs.iter().map(|r| r.lost).sum()
    }

    fn busy(&self) -> f64 {
        self.runs.iter().map(|r| r.generator_busy).fold(0.0, f64::max)
    }
}

impl RunReport {
    fn of(done: &EngineRun) -> RunReport {
        let tally = &done.tally;
        RunReport {
            operations: tally.operations,
            seconds: done.seconds,
            per_second: tally.operations as f64 / done.seconds.max(1e-9),
            bytes: tally.bytes,
            entries: tally.entries,
            latency: Latency::of(&tally.latency),
            lost: tally.lost,
            late: tally.late,
            generator_busy: done.busy,
            generator_cpus: done.cpu / done.wall.max(1e-9),
        }
    }
}

impl Latency {
    /// `None` if empty: percentiles would be 0.
    fn of(all: &Histogram<u64>) -> Option<Latency> {
        let at = |q: f64| all.value_at_quantile(q) as f64 / 1e3;
        let max_us = all.max() as f64 / 1e3;
        let latency = Latency { p50_us: at(0.5), p90_us: at(0.9), p99_us: at(0.99), p999_us: at(0.999), max_us };
        (!all.is_empty()).then_some(latency)
    }
}

impl ServerRatio {
    fn of(a: &ServerMeasurement, b: &ServerMeasurement) -> Option<ServerRatio> {
        let rounds = |f: fn(&RunReport) -> Option<f64>| {
            let ratio = |(a, b)| Some(f(a)? / f(b)?);
            Summary::of(&a.runs.iter().zip(&b.runs).filter_map(ratio).collect::<Vec<_>>())
        };
        let per_second = rounds(|r| r.latency.map(|_| r.per_second))?;
        Some(ServerRatio { per_second, p99: rounds(|r| Some(r.latency?.p99_us))? })
    }
}

fn figure(x: f64) -> String {
    rounded(x, 3, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lane::LaneTally;

    fn run(operations: u64, nanos: u64) -> EngineRun {
        let mut tally = LaneTally::new();
        tally.operations = operations;
        if operations > 0 {
            tally.latency.record(nanos).unwrap();
        }
        EngineRun { tally, seconds: 2.0, busy: 0.1, cpu: 0.2, wall: 2.0 }
    }

    #[test]
    fn ratio_is_the_median_of_rounds() {
        let a: Vec<EngineRun> = (1..=9).map(|n| run(200 * n, 1000)).collect();
        let b: Vec<EngineRun> = (1..=9).map(|n| run(100 * n, 4000)).collect();
        let (a, b) = (ServerMeasurement::of(&a).unwrap(), ServerMeasurement::of(&b).unwrap());
        let ratio = ServerRatio::of(&a, &b).unwrap();
        assert_eq!((ratio.per_second.median, ratio.per_second.low), (2.0, Some(2.0)));
        assert!((0.24..0.26).contains(&ratio.p99.median));
        assert_eq!((a.per_second.median, b.per_second.median), (500.0, 250.0));
        assert!((0.9..1.1).contains(&a.latency.unwrap().p50_us));
    }

    #[test]
    fn empty_run_has_no_latency_and_no_ratio() {
        let some = ServerMeasurement::of(&[run(100, 1000), run(100, 4000)]).unwrap();
        let none = ServerMeasurement::of(&[run(0, 0), run(0, 0)]).unwrap();
        let one = ServerMeasurement::of(&[run(0, 0), run(50, 2000)]).unwrap();
        assert!(none.latency.is_none() && none.per_second.median == 0.0);
        assert!(ServerRatio::of(&some, &none).is_none() && ServerRatio::of(&none, &some).is_none());
        let ratio = ServerRatio::of(&some, &one).unwrap();
        assert_eq!((ratio.per_second.runs, ratio.per_second.median), (1, 2.0));
        assert!((1.9..2.1).contains(&ratio.p99.median), "{ratio:?}");
        let report = OperationReport { name: "null", about: "", servers: vec![some, one], ratio: Some(ratio) };
        let told = report.unfinished(Some(2.0)).unwrap();
        assert_eq!(told, "  null: no operation completed in 2 s in 1 of 4 runs: use --duration or --count\n");
        let rows = OperationReport { servers: vec![none], ratio: None, ..report }.rows(false, false);
        assert_eq!(rows[0][1..], ["0.00", "", "-", "-", "-", "-", "-"]);
    }
}
