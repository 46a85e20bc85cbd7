//! Self-test of the emulator, measured from outside: by sockets in the stations and the kernel's arrival times,
//! with a stream of numbered datagrams from the base to the first mobile.

use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use remora_base::{Rate, Time};
use remora_channel::{Config, Distribution, ErrorModel, ErrorProcess, Fate, FrameRecord};

use super::emulator::Emulator;
use super::report::EmulationReport;
use super::setup::{EmulateError, EmulationSetup, Station};

/// Journal size of a measurement: more packets than any sends.
const JOURNAL: usize = 100_000;

/// Result of one measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What was measured.
    pub name: &'static str,
    /// Whether it is within its bounds.
    pub passed: bool,
    pub figures: String,
}

/// Measures an emulator like `setup` (its network, seed and lateness bound, with other channels). Takes about 20
/// seconds.
pub fn self_test(setup: EmulationSetup) -> Result<Vec<Check>, EmulateError> {
    let mut test = Test::new(setup)?;
    let spacing = test.spacing()?;
    let law = law(test.emulator.setup().seed)?;
    let [dwell, dwell_replay] = test.dwell()?;
    let [throughput, throughput_replay] = test.throughput()?;
    Ok(vec![spacing, law, dwell, dwell_replay, throughput, throughput_replay, test.lateness()])
}

struct Test {
    emulator: Emulator,
    probe: Probe,
    reports: Vec<EmulationReport>,
}

impl Test {
    fn new(setup: EmulationSetup) -> Result<Test, EmulateError> {
        let config = Config::default();
        let emulator = Emulator::start(EmulationSetup { config, mobiles: 1, journal: JOURNAL, pcap: None, ..setup })?;
        let probe = Probe::open(&emulator).map_err(EmulateError::system("a stream of datagrams"))?;
        Ok(Test { emulator, probe, reports: Vec::new() })
    }

    /// Sends a stream through a new channel; returns arrivals and report.
    fn stream(
        &mut self,
        config: Config,
        count: u64,
        bytes: usize,
        every: Duration,
    ) -> Result<(Vec<Arrival>, EmulationReport), EmulateError> {
        let full = config.rate.airtime(bytes as u64 * (config.queue_frames as u64 + 2));
        let rest = full + config.delay + Duration::from_millis(100);
        self.emulator.begin(config, self.emulator.setup().seed)?;
        let arrivals = self.probe.send(count, bytes, every, rest);
        let arrivals = arrivals.map_err(EmulateError::system("a stream of datagrams"))?;
        let report = self.emulator.report()?;
        self.reports.push(report.clone());
        Ok((arrivals, report))
    }

    /// Constant rate: packets sent together arrive spaced by their airtime.
    fn spacing(&mut self) -> Result<Check, EmulateError> {
        let count = 100;
        let config = Config { queue_frames: 200, ..Config::default() };
        let (bytes, bound) = (config.mtu, self.emulator.setup().lateness_max);
        let airtime = config.rate.airtime(bytes as u64);
        let (arrivals, report) = self.stream(config, count, bytes, Duration::ZERO)?;
        let logical = report.journal.frames.windows(2).all(|w| w[1].start.since(w[0].start) == airtime);
        let gaps: Vec<Duration> = arrivals.windows(2).map(|w| w[1].at.saturating_sub(w[0].at)).collect();
        let worst = gaps.iter().map(|g| g.abs_diff(airtime)).max().unwrap_or_default();
        let total: Duration = gaps.iter().sum();
        let mean = total / u32::try_from(gaps.len()).unwrap_or(1).max(1);
        // Each arrival has only its own lateness, so errors do not accumulate.
        let even = worst <= bound && total.abs_diff(airtime * (count as u32 - 1)) <= bound;
        Ok(Check {
            name: "constant-rate spacing",
            passed: arrivals.len() as u64 == count && logical && even,
            figures: format!(
                "{} of {count} frames arrived, {:.3} ms apart on average, {:.3} ms off at worst; airtime {:.3} ms",
                arrivals.len(),
                ms(mean),
                ms(worst),
                ms(airtime)
            ),
        })
    }

    /// Bad periods: a probe each millisecond is lost exactly during bad periods, and the gaps between arrivals are
    /// as long as the periods.
    fn dwell(&mut self) -> Result<[Check; 2], EmulateError> {
        let config = Config { rate: Rate::mbit(10), errors: weather(), ..Config::default() };
        let count = 8000;
        let (arrivals, report) = self.stream(config, count, 64, Duration::from_millis(1))?;
        let seen = Seen::new(&report, &arrivals)?;
        let bound = self.emulator.setup().lateness_max;
        let gaps = gaps(&report, &arrivals, bound)?;
        let (good, bad) = (seen.until.as_secs_f64() - seen.bad.total.as_secs_f64(), seen.bad.total.as_secs_f64());
        let check = Check {
            name: "dwell times",
            passed: seen.faithful
                && seen.bad.periods > 5
                && gaps.len() > 5
                && gaps.iter().all(|g| g.fits)
                && report.journal.frames.len() as u64 >= count,
            figures: format!(
                "{} probes, {} lost, {} of them against the weather; {} bad periods in {:.1} s, {:.1} ms long on \
                 average by the weather, {:.1} ms by the probes; {} gaps in real time, {:.1} ms longer than their \
                 periods at most; good for {good:.2} s, bad for {bad:.2} s",
                report.journal.frames.len(),
                report.journal.frames.len() - seen.arrived,
                seen.contradictions,
                seen.bad.periods,
                seen.until.as_secs_f64(),
                ms(seen.bad.total) / seen.bad.periods.max(1) as f64,
                ms(seen.observed) / seen.bad.periods.max(1) as f64,
                gaps.len(),
                gaps.iter().map(|g| ms(g.off)).fold(0.0, f64::max),
            ),
        };
        Ok([check, replay("dwell times replayed in virtual time", &report)?])
    }

    /// A saturated link carries its rate times the good time, except frames cut by the ends of good periods: one
    /// for each bad period on average, at most two.
    fn throughput(&mut self) -> Result<[Check; 2], EmulateError> {
        // Sent together, so that the link is saturated on a busy machine too.
        let count = 1000;
        let config = Config { rate: Rate::mbit(2), errors: weather(), queue_frames: count, ..Config::default() };
        let bytes = config.mtu;
        let airtime = config.rate.airtime(bytes as u64);
        let (arrivals, report) = self.stream(config, count as u64, bytes, Duration::ZERO)?;
        let seen = Seen::new(&report, &arrivals)?;
        let sent = sent(&report);
        let (before, saturated) = sent.split_at(saturated_from(&sent));
        let start = |frames: &[&FrameRecord]| frames.first().map(|f| f.start).unwrap_or_default();
        let (unsaturated, span) = (start(saturated).since(start(&sent)), span(saturated));
        let Bad { periods, total } = Bad::met(&report, saturated)?;
        let good = span.saturating_sub(total).as_secs_f64();
        let most = good / airtime.as_secs_f64();
        let expected = most - periods as f64;
        let carried = saturated.iter().filter(|f| f.fate == Fate::Delivered).count() as f64;
        let rate = carried * bytes as f64 * 8.0 / span.as_secs_f64().max(1e-9);
        let check = Check {
            name: "closed-form throughput",
            passed: seen.faithful
                && unsaturated < span / UNSATURATED_SHARE
                && periods > 3
                && (expected - periods as f64 - 1.0..=most + 1.0).contains(&carried),
            figures: format!(
                "saturated after {} frames and {:.1} ms, from then on {carried} frames carried in {:.2} s of which \
                 {good:.2} s were good, {:.0} bit/s; expected {expected:.1} frames, {:.1} to {most:.1} possible; ratio {:.4}",
                before.len(),
                ms(unsaturated),
                span.as_secs_f64(),
                rate,
                expected - periods as f64,
                carried / expected.max(1.0)
            ),
        };
        Ok([check, replay("throughput replayed in virtual time", &report)?])
    }

    fn lateness(&self) -> Check {
        let worst = self.reports.iter().map(|r| r.lateness.max).max().unwrap_or_default();
        let p99 = self.reports.iter().map(|r| r.lateness.p99).max().unwrap_or_default();
        let bound = self.emulator.setup().lateness_max;
        Check {
            name: "lateness",
            passed: self.reports.iter().all(EmulationReport::valid),
            figures: format!("99% within {:.3} ms, all within {:.3} ms; bound {:.3} ms", ms(p99), ms(worst), ms(bound)),
        }
    }
}

/// Shorter periods than the papers', so that a few seconds have many.
fn weather() -> ErrorModel {
    ErrorModel::TwoState {
        distribution: Distribution::Uniform,
        good_mean: Duration::from_millis(300),
        bad_mean: Duration::from_millis(80),
    }
}

/// Maximum share of the time before a link is saturated, as a divisor.
const UNSATURATED_SHARE: u32 = 50;

/// Step of the papers' uniform distribution.
const GRID: Duration = Duration::from_millis(20);
/// Periods in the sample.
const PERIODS: usize = 10_000;
/// Bound on the Kolmogorov-Smirnov statistic times the root of the sample size: the right distribution exceeds it
/// for one seed in 100,000.
const KS_MAX: f64 = 2.5;

/// Tests the lengths of good and bad periods against their distribution, in virtual time: each with the other kind
/// so long that hardly two merge.
fn law(seed: u64) -> Result<Check, EmulateError> {
    let short = Duration::from_millis(80);
    let long = Duration::from_secs(10);
    let of = |good_mean, bad_mean| {
        let errors = ErrorModel::TwoState { distribution: Distribution::Uniform, good_mean, bad_mean };
        ErrorProcess::new(&Config { errors, ..Config::default() }, seed)
    };
    let bad: Vec<Duration> =
        of(long, short)?.bad_periods(Time::ZERO, Time::MAX).take(PERIODS).map(|p| p.end.since(p.start)).collect();
    let ends: Vec<_> = of(short, long)?.bad_periods(Time::ZERO, Time::MAX).take(PERIODS + 1).collect();
    let good: Vec<Duration> = ends.windows(2).map(|w| w[1].start.since(w[0].end)).collect();
    let statistics = [off_uniform(&bad, short), off_uniform(&good, short)];
    let bound = KS_MAX / (PERIODS as f64).sqrt();
    Ok(Check {
        name: "dwell-time distribution",
        passed: statistics.iter().all(|s| *s <= bound),
        figures: format!(
            "{PERIODS} bad and {PERIODS} good periods of {} ms in the mean, in virtual time, against the uniform law: \
             Kolmogorov-Smirnov {:.4} and {:.4}, bound {bound:.4}",
            ms(short),
            statistics[0],
            statistics[1],
        ),
    })
}

/// Kolmogorov-Smirnov statistic of lengths against the uniform distribution on 20, 40, ... ms up to twice the mean.
/// (Periods of length 0 are invisible.)
fn off_uniform(lengths: &[Duration], mean: Duration) -> f64 {
    let steps = (2 * mean.as_nanos() / GRID.as_nanos()) as u32;
    let share = |k: u32| lengths.iter().filter(|l| **l <= GRID * k).count() as f64 / lengths.len() as f64;
    (1..=steps).map(|k| (share(k) - f64::from(k) / f64::from(steps)).abs()).fold(0.0, f64::max)
}

/// A gap between arrivals, in real time.
struct Gap {
    /// Difference from the length of its bad period.
    off: Duration,
    /// Whether it is within the probes at its ends and the lateness bound.
    fits: bool,
}

/// Gaps of lost frames that contain one bad period.
fn gaps(report: &EmulationReport, arrivals: &[Arrival], bound: Duration) -> Result<Vec<Gap>, EmulateError> {
    let mut weather = ErrorProcess::new(&report.config, report.seed)?;
    let starts: Vec<Time> = sent(report).iter().map(|f| f.start).collect();
    let start = |number: u64| starts.get(usize::try_from(number).ok()?).copied();
    let mut gap = |before: &Arrival, after: &Arrival| -> Option<Gap> {
        let (from, until) = (start(before.number)?, start(after.number)?);
        let mut periods = weather.bad_periods(from, until);
        let length = periods.next().map(|p| p.end.since(p.start)).filter(|_| periods.next().is_none())?;
        let probes = start(before.number + 1)?.since(from) + until.since(start(after.number.checked_sub(1)?)?);
        let off = after.at.saturating_sub(before.at).abs_diff(length);
        Some(Gap { off, fits: off <= probes + bound })
    };
    Ok(arrivals.windows(2).filter(|w| w[1].number > w[0].number + 1).filter_map(|w| gap(&w[0], &w[1])).collect())
}

/// Frames put on the medium, in order.
fn sent(report: &EmulationReport) -> Vec<&FrameRecord> {
    report.journal.frames.iter().filter(|f| f.fate != Fate::QueueFull).collect()
}

/// Index of the frame from which the link was continuously busy. Before it, the sender may have waited for a
/// processor.
fn saturated_from(sent: &[&FrameRecord]) -> usize {
    sent.windows(2).rposition(|w| w[0].end < w[1].start).map_or(0, |last_before| last_before + 1)
}

/// From the start of the first frame to the end of the last.
fn span(frames: &[&FrameRecord]) -> Duration {
    let start = frames.first().map(|f| f.start).unwrap_or_default();
    frames.last().map_or(Duration::ZERO, |f| f.end.since(start))
}

/// Bad periods that frames met.
struct Bad {
    periods: usize,
    total: Duration,
}

impl Bad {
    fn met(report: &EmulationReport, sent: &[&FrameRecord]) -> Result<Bad, EmulateError> {
        let mut weather = ErrorProcess::new(&report.config, report.seed)?;
        let (from, until) = (sent.first().map(|f| f.start), sent.last().map(|f| f.end));
        let periods = weather.bad_periods(from.unwrap_or_default(), until.unwrap_or_default());
        let lengths: Vec<Duration> = periods.map(|p| p.end.since(p.start)).collect();
        Ok(Bad { periods: lengths.len(), total: lengths.iter().sum() })
    }
}

/// A stream compared with the bad periods that the error process computes.
struct Seen {
    /// Number of frames that arrived.
    arrived: usize,
    /// Frames whose loss, or arrival, contradicts the bad periods.
    contradictions: usize,
    /// No contradictions, and exactly the channel's deliveries arrived.
    faithful: bool,
    /// From time zero to the end of the last frame.
    until: Time,
    bad: Bad,
    /// Length of those periods as the frames saw it: from the first loss to the next delivery.
    observed: Duration,
}

impl Seen {
    fn new(report: &EmulationReport, arrivals: &[Arrival]) -> Result<Seen, EmulateError> {
        let mut weather = ErrorProcess::new(&report.config, report.seed)?;
        let sent = sent(report);
        let lost = |f: &FrameRecord| f.fate != Fate::Delivered;
        let contradictions = sent.iter().filter(|f| weather.bad_overlaps(f.start, f.end) != lost(f)).count();
        let until = sent.last().map_or(Time::ZERO, |f| f.end);
        let observed = observed(&sent);
        let numbers: BTreeSet<u64> = arrivals.iter().map(|a| a.number).collect();
        let delivered = sent.iter().filter(|f| !lost(f)).count();
        Ok(Seen {
            arrived: arrivals.len(),
            contradictions,
            faithful: contradictions == 0 && numbers.len() == arrivals.len() && arrivals.len() == delivered,
            until,
            bad: Bad::met(report, &sent)?,
            observed,
        })
    }
}

fn observed(sent: &[&FrameRecord]) -> Duration {
    let (mut total, mut since) = (Duration::ZERO, None);
    for frame in sent {
        match (frame.fate == Fate::BadPeriod, since) {
            (true, None) => since = Some(frame.start),
            (false, Some(start)) => {
                total += frame.start.since(start);
                since = None;
            }
            _ => {}
        }
    }
    total
}

/// The same offers have the same fates in virtual time.
fn replay(name: &'static str, report: &EmulationReport) -> Result<Check, EmulateError> {
    let again = report.journal.replay(&report.config, report.seed, report.mobiles)?;
    let (frames, missed) = (&report.journal.frames, report.journal.missed);
    let same = frames.iter().zip(&again).filter(|(a, b)| a == b).count();
    Ok(Check {
        name,
        passed: missed == 0 && again.len() == frames.len() && same == frames.len() && !frames.is_empty(),
        figures: format!("{same} of {} frames have the same times and fates", frames.len()),
    })
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Bytes of the IP and UDP headers.
const HEADERS: usize = 28;
/// Receive timeout, after which a stop is checked.
const WAIT: Duration = Duration::from_millis(20);

/// Socket buffer for all datagrams of a stream, including the kernel's overhead.
const BUFFER: usize = 16 << 20;

/// The two sockets of the stream.
pub(super) struct Probe {
    from: UdpSocket,
    to: UdpSocket,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Its number, from 0.
    pub(super) number: u64,
    /// Arrival at the kernel, by the wall clock.
    pub(super) at: Duration,
}

impl Probe {
    pub(super) fn open(emulator: &Emulator) -> io::Result<Probe> {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let to = emulator.within(Station::Mobile(0), || UdpSocket::bind(any))?;
        to.set_read_timeout(Some(WAIT))?;
        setsockopt(&to, sockopt::ReceiveTimestampns, &true)?;
        // On a busy machine the receiver may sleep for a while.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, BUFFER)?;
        let from = emulator.within(Station::Base, || UdpSocket::bind(any))?;
        from.connect((emulator.addr(Station::Mobile(0)), to.local_addr()?.port()))?;
        Ok(Probe { from, to })
    }

    /// Sends `count` datagrams in frames of `bytes`, one each `every`, then waits for `rest`. Returns the arrivals
    /// in order.
    pub(super) fn send(&self, count: u64, bytes: usize, every: Duration, rest: Duration) -> io::Result<Vec<Arrival>> {
        self.forget()?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(&done));
            let began = std::time::Instant::now();
            let mut payload = vec![0; bytes.saturating_sub(HEADERS).max(8)];
            let mut sent = Ok(());
            for number in 0..count {
                let due = every.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                payload[..8].copy_from_slice(&number.to_be_bytes());
                if let Err(e) = self.from.send(&payload) {
                    sent = Err(e);
                    break;
                }
            }
            std::thread::sleep(rest);
            done.store(true, Ordering::Relaxed);
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.and(arrivals)
        })
    }

    /// Discards datagrams of an abandoned stream.
    fn forget(&self) -> io::Result<()> {
        self.to.set_nonblocking(true)?;
        while self.to.recv(&mut [0]).is_ok() {}
        self.to.set_nonblocking(false)
    }

    fn receive(&self, done: &AtomicBool) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let mut number = [0; 8];
        let mut control = nix::cmsg_space!(TimeSpec);
        while !done.load(Ordering::Relaxed) {
            let mut buffer = [IoSliceMut::new(&mut number)];
            // The rest of the datagram is not needed.
            let got = recvmsg::<()>(self.to.as_raw_fd(), &mut buffer, Some(&mut control), MsgFlags::empty());
            let time = match got {
                Ok(message) => message.cmsgs()?.find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                    _ => None,
                }),
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let at = time.ok_or_else(|| io::Error::other("the kernel gives no time with a datagram"))?;
            arrivals.push(Arrival { number: u64::from_be_bytes(number), at });
        }
        Ok(arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_channel::Side;

    #[test]
    fn error_law_is_verified_and_other_law_detected() {
        for seed in 1..=5 {
            let check = law(seed).unwrap();
            assert!(check.passed, "seed {seed}: {}", check.figures);
        }
        let mean = Duration::from_millis(80);
        let constant = vec![mean; 100];
        assert!(off_uniform(&constant, mean) > 0.3);
        let uniform: Vec<Duration> = (1..=8).map(|k| GRID * k).collect();
        assert!(off_uniform(&uniform, mean) < 1e-9);
        let one_step_long: Vec<Duration> = uniform.iter().map(|l| *l + GRID).collect();
        assert!(off_uniform(&one_step_long, mean) > KS_MAX / (PERIODS as f64).sqrt());
    }

    fn frame(start_ms: u64, end_ms: u64) -> FrameRecord {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let (from, packet) = (Side::Base, bytes::Bytes::new());
        FrameRecord {
            start: at(start_ms),
            end: at(end_ms),
            from,
            mobile: 0,
            bytes: 1500,
            fate: Fate::Delivered,
            packet,
        }
    }

    #[test]
    fn link_is_saturated_after_its_last_idle_moment() {
        for (frames, from) in [
            (&[(0, 6), (6, 12), (12, 18)][..], 0),
            (&[(0, 6), (9, 15), (15, 21)], 1),
            (&[(0, 6), (9, 15), (15, 21), (22, 28)], 3),
            (&[], 0),
        ] {
            let frames: Vec<FrameRecord> = frames.iter().map(|(start, end)| frame(*start, *end)).collect();
            assert_eq!(saturated_from(&frames.iter().collect::<Vec<_>>()), from, "{frames:?}");
        }
    }
}
