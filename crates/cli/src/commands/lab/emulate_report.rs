//! The report on an emulated channel, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use remora_channel::{Config, Duplex, ErrorModel, Side};
use remora_host::emulate::{Check, EmulationReport, LaneReport};
use serde::Serialize;

use crate::output::exit::Result;
use crate::output::stdio;

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Object {
    seed: u64,
    mobiles: usize,
    congestion: String,
    seconds: f64,
    channel: Channel,
    lanes: Vec<Lane>,
    lateness: Lateness,
    /// Packets without a destination station, or not IPv4.
    strays: u64,
    /// Packets the kernel did not take.
    overflowed: u64,
    refused: u64,
    captures_missed: u64,
    valid: bool,
    exit_code: u8,
}

#[derive(Serialize)]
struct Channel {
    /// `None` where both directions have a trace.
    rate_bits: Option<u64>,
    trace_up: bool,
    trace_down: bool,
    /// `None` where a direction has a trace: each has a medium of its own then, which its mobiles share.
    duplex: Option<&'static str>,
    delay_ms: f64,
    queue_frames: usize,
    mtu: usize,
    loss: f64,
    good_mean_ms: f64,
    bad_mean_ms: f64,
    distribution: String,
    /// Start and length.
    outages_ms: Vec<(f64, f64)>,
    hold: bool,
}

#[derive(Serialize)]
struct Lane {
    mobile: usize,
    from: &'static str,
    frames: u64,
    bytes: u64,
    sent: u64,
    delivered: u64,
    too_long: u64,
    queue_full: u64,
    bad: u64,
    random: u64,
    receiver_full: u64,
    /// `None` with a trace: its opportunities take no time.
    airtime_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Lateness {
    deliveries: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    bound_ms: f64,
}

impl Object {
    pub(crate) fn new(r: &EmulationReport, exit_code: u8) -> Object {
        Object {
            seed: r.seed,
            mobiles: r.mobiles,
            congestion: r.congestion.clone(),
            seconds: r.until.as_secs_f64(),
            channel: Channel::new(&r.config),
            lanes: lanes(r).collect(),
            lateness: Lateness {
                deliveries: r.lateness.count,
                p50_ms: ms(r.lateness.p50),
                p99_ms: ms(r.lateness.p99),
                max_ms: ms(r.lateness.max),
                bound_ms: ms(r.lateness_max),
            },
            strays: r.strays,
            overflowed: r.overflowed,
            refused: r.refused,
            captures_missed: r.captures_missed,
            valid: r.valid(),
            exit_code,
        }
    }
}

impl Channel {
    fn new(c: &Config) -> Channel {
        let (good_mean, bad_mean, distribution) = match &c.errors {
            ErrorModel::None => (Duration::ZERO, Duration::ZERO, "none".to_owned()),
            ErrorModel::TwoState { distribution, good_mean, bad_mean } => {
                (*good_mean, *bad_mean, format!("{distribution:?}").to_lowercase())
            }
        };
        let (trace_up, trace_down) = (c.trace.mobile.is_some(), c.trace.base.is_some());
        let outage = |o: &remora_channel::Outage| (o.start.as_secs_f64() * 1e3, ms(o.length));
        Channel {
            rate_bits: (!trace_up || !trace_down).then(|| c.rate.bits()),
            trace_up,
            trace_down,
            duplex: match c.duplex {
                _ if trace_up || trace_down => None,
                Duplex::Half => Some("half"),
                Duplex::Full => Some("full"),
            },
            delay_ms: ms(c.delay),
            queue_frames: c.queue_frames,
            mtu: c.mtu,
            loss: c.loss,
            good_mean_ms: ms(good_mean),
            bad_mean_ms: ms(bad_mean),
            distribution,
            outages_ms: c.outages.iter().map(outage).collect(),
            hold: c.hold,
        }
    }
}

fn lanes(r: &EmulationReport) -> impl Iterator<Item = Lane> {
    r.lanes.iter().map(|l| Lane::new(l, &r.config))
}

impl Lane {
    fn new(l: &LaneReport, c: &Config) -> Lane {
        let s = &l.stats;
        let (from, trace) = match l.lane.from {
            Side::Base => ("base", &c.trace.base),
            Side::Mobile => ("mobile", &c.trace.mobile),
        };
        Lane {
            mobile: l.lane.mobile + 1,
            from,
            frames: s.frames_offered,
            bytes: s.bytes_offered,
            sent: s.frames_sent,
            delivered: s.datagrams_delivered,
            too_long: s.datagrams_refused,
            queue_full: s.frames_queue_full,
            bad: s.frames_bad,
            random: s.frames_random_loss,
            receiver_full: s.frames_receiver_full,
            airtime_seconds: trace.is_none().then_some(s.airtime.as_secs_f64()),
        }
    }
}

/// A few lines for people.
pub(crate) fn text(r: &EmulationReport) -> String {
    let mut text = format!("emulated {:.1} s, seed {}, TCP {}\n", r.until.as_secs_f64(), r.seed, r.congestion);
    for lane in lanes(r) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}", lane.text());
    }
    for (count, what) in [
        (r.strays, "packets without a station, or not IPv4"),
        (r.overflowed, "packets dropped before the channel: they were sent faster than the emulator reads"),
        (r.refused, "packets that the kernel refused"),
        (r.captures_missed, "frames missing from the captures: the machine or the disk was too slow, or the disk full"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  {count} {what}");
        }
    }
    let (l, verdict) = (&r.lateness, if r.valid() { "VALID" } else { "INVALID" });
    let _ = write!(
        text,
        "  lateness: half within {:.3} ms, 99% within {:.3} ms, all within {:.3} ms (bound {} ms): {verdict}",
        ms(l.p50),
        ms(l.p99),
        ms(l.max),
        ms(r.lateness_max)
    );
    text
}

impl Lane {
    fn text(&self) -> String {
        let mobile = format!("mobile {}", self.mobile);
        let (from, to) = if self.from == "base" { ("base", &mobile[..]) } else { (&mobile[..], "base") };
        let reasons = [
            (self.queue_full, "queue full"),
            (self.bad, "bad period"),
            (self.random, "random"),
            (self.receiver_full, "receiver full"),
            (self.too_long, "too long"),
        ];
        let lost: Vec<String> = reasons.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
        let lost = if lost.is_empty() { "none lost".to_owned() } else { format!("lost: {}", lost.join(", ")) };
        let airtime = self.airtime_seconds.map_or("-".to_owned(), |s| format!("{s:.2} s"));
        format!(
            "{from} to {to}: {} frames, {} bytes, {} delivered, {lost}; airtime {airtime}",
            self.frames, self.bytes, self.delivered
        )
    }
}

/// What `--self-test --json` prints.
#[derive(Serialize)]
struct SelfTest<'a> {
    passed: bool,
    checks: Vec<Measured<'a>>,
}

#[derive(Serialize)]
struct Measured<'a> {
    name: &'a str,
    passed: bool,
    figures: &'a str,
}

/// The self-test's results, a line each.
pub(crate) fn show_checks(checks: &[Check], json: bool) -> Result {
    if !json {
        let line = |c: &Check| format!("{} {}: {}\n", if c.passed { "pass" } else { "FAIL" }, c.name, c.figures);
        return stdio::print(&checks.iter().map(line).collect::<String>());
    }
    let all = checks.iter().map(|c| Measured { name: c.name, passed: c.passed, figures: &c.figures });
    stdio::print_json(&SelfTest { passed: checks.iter().all(|c| c.passed), checks: all.collect() })
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
