//! Contention: ATP hosts among themselves on one bottleneck and in one cell, and beside TCP.

use std::time::Duration;

use plotters::prelude::*;
use remora_base::Time;
use remora_sim::atp::BULK_RATE;
use remora_sim::atp::contention::{BIN, ContentionRun, END, HostKind, HostRun, JOIN, SETTLED};
use serde::Serialize;

use super::contest::{Contest, contests};
use super::job::{Job, JobResult};
use crate::report::number::or_empty;
use crate::report::plot::{self, Axis};
use crate::report::statistics::{Summary, jain, percentile, sorted};
use crate::report::table::Table;

pub(super) const TITLE: &str = "Contention: hosts on one bottleneck or in one cell, the last one joins after 30 s";
pub(super) const NOTE: &str = "Each host sends without a pause; an ATP host also sends an urgent object of 4 KB every \
                               half second, due within a second. cubic and bbr are stand-ins for TCP: QUIC's loss \
                               recovery with CUBIC (RFC 9438) and BBR version 1. Shares, Jain's index and use count \
                               from 60 to 90 s; a share of 1 is the fair one. Joined: seconds until the newcomer has \
                               80 % of its fair share for a second.";

/// Part of its fair share at which a newcomer has arrived, and the window in which it has it.
const ARRIVED: f64 = 0.8;
const WINDOW: Duration = Duration::from_secs(1);

/// The figures of a contest over its seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContentionRow {
    pub place: &'static str,
    /// The last one joins.
    pub hosts: String,
    /// Jain's index of the settled rates.
    pub jain: Option<Summary>,
    /// Mean rate of the hosts of a kind over the fair share.
    pub shares: Vec<Share>,
    /// Seconds until the newcomer has its share; infinite if never.
    pub joined_s: Option<Summary>,
    /// Share of the urgent objects that were complete by their deadlines.
    pub in_time: Option<Summary>,
    /// 95th percentile of the time until an urgent object was complete.
    pub urgent_p95_ms: Option<Summary>,
    /// Share of the bottleneck that was used.
    pub used: Option<Summary>,
    /// Share of the senders' packets that were lost.
    pub lost: Option<Summary>,
    /// Bytes a second of each host in each second, with the first seed.
    pub curves: Vec<Vec<f64>>,
}

/// What the hosts of a kind have.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    pub kind: &'static str,
    pub of_fair: Option<Summary>,
}

/// A row for each contest that was run.
pub(super) fn rows(done: &[(Job, JobResult)]) -> Vec<ContentionRow> {
    let row = |contest: Contest| {
        let runs: Vec<&ContentionRun> = done
            .iter()
            .filter_map(|(job, done)| match (job, done) {
                (Job::Contention(c, _), JobResult::Contention(run)) if *c == contest => Some(run),
                _ => None,
            })
            .collect();
        (!runs.is_empty()).then(|| self::row(contest, &runs))
    };
    contests().filter_map(row).collect()
}

fn row(contest: Contest, runs: &[&ContentionRun]) -> ContentionRow {
    let summary = |of: &dyn Fn(&ContentionRun) -> Option<f64>| {
        Summary::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
    };
    let mut kinds: Vec<HostKind> = contest.hosts.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    let share = |kind: HostKind| Share { kind: kind.name(), of_fair: summary(&|run| of_fair(run, kind)) };
    ContentionRow {
        place: contest.place.name(),
        hosts: contest.words(),
        jain: summary(&|run| jain(&settled(run))),
        shares: kinds.into_iter().map(share).collect(),
        joined_s: summary(&|run| Some(joined(run))),
        in_time: summary(&in_time),
        urgent_p95_ms: summary(&urgent_p95_ms),
        used: summary(&|run| Some(settled(run).iter().sum::<f64>() / BULK_RATE)),
        lost: summary(&lost),
        curves: runs.first().map_or(Vec::new(), |run| run.hosts.iter().map(curve).collect()),
    }
}

/// Bytes a second that a host received in an interval.
fn rate(host: &HostRun, from: Time, to: Time) -> f64 {
    let bin = |at: Time| (at.since(Time::ZERO).as_nanos() / BIN.as_nanos()) as usize;
    let bytes: u64 = host.received.iter().take(bin(to)).skip(bin(from)).sum();
    bytes as f64 / to.since(from).as_secs_f64()
}

fn settled(run: &ContentionRun) -> Vec<f64> {
    run.hosts.iter().map(|host| rate(host, SETTLED, END)).collect()
}

fn fair(run: &ContentionRun) -> f64 {
    settled(run).iter().sum::<f64>() / run.hosts.len().max(1) as f64
}

fn of_fair(run: &ContentionRun, kind: HostKind) -> Option<f64> {
    let hosts: Vec<f64> = run.hosts.iter().filter(|h| h.kind == kind).map(|h| rate(h, SETTLED, END)).collect();
    let fair = fair(run);
    (fair > 0.0 && !hosts.is_empty()).then(|| hosts.iter().sum::<f64>() / hosts.len() as f64 / fair)
}

/// Seconds from the join to the end of the first window in which the newcomer has its share; infinite
/// if there is none.
fn joined(run: &ContentionRun) -> f64 {
    let (Some(newcomer), fair) = (run.hosts.last(), fair(run)) else { return f64::INFINITY };
    let steps = (END.since(JOIN).saturating_sub(WINDOW).as_nanos() / BIN.as_nanos()) as u32;
    let windows = (0..=steps).map(|n| JOIN + BIN * n);
    let has_arrived = |from: &Time| rate(newcomer, *from, *from + WINDOW) >= ARRIVED * fair;
    windows.into_iter().find(has_arrived).map_or(f64::INFINITY, |from| (from + WINDOW).since(JOIN).as_secs_f64())
}

fn in_time(run: &ContentionRun) -> Option<f64> {
    let count = |of: fn(&HostRun) -> usize| run.hosts.iter().map(of).sum::<usize>() as f64;
    let objects = count(|h| h.urgent.objects);
    (objects > 0.0).then(|| count(|h| h.urgent.in_time) / objects)
}

fn urgent_p95_ms(run: &ContentionRun) -> Option<f64> {
    let took: Vec<f64> = run.hosts.iter().flat_map(|h| &h.urgent.took).map(|took| took.as_secs_f64() * 1e3).collect();
    percentile(&sorted(&took), 95)
}

fn lost(run: &ContentionRun) -> Option<f64> {
    let count = |of: fn(&HostRun) -> u64| run.hosts.iter().map(of).sum::<u64>() as f64;
    let sent = count(|h| h.sent_packets);
    (sent > 0.0).then(|| 1.0 - count(|h| h.received_packets) / sent)
}

fn curve(host: &HostRun) -> Vec<f64> {
    let second = Duration::from_secs(1);
    (0..END.as_secs_f64() as u32).map(|n| rate(host, Time::ZERO + second * n, Time::ZERO + second * (n + 1))).collect()
}

pub(super) fn table(rows: &[ContentionRow]) -> Table {
    let head = ["place", "hosts", "Jain", "atp", "cubic", "bbr", "joined, s", "in time", "p95, ms", "used", "lost"];
    let digits = |summary: Option<Summary>, digits: usize| or_empty(summary, |s| format!("{:.digits$}", s.median));
    let percent = |summary: Option<Summary>| or_empty(summary, |s| format!("{:.1} %", 100.0 * s.median));
    let seconds = |s: Summary| if s.median.is_finite() { format!("{:.1}", s.median) } else { "never".to_owned() };
    let line = |r: &ContentionRow| {
        let share = |kind: HostKind| r.shares.iter().find(|s| s.kind == kind.name()).and_then(|s| s.of_fair);
        let shares = [HostKind::Atp, HostKind::Cubic, HostKind::Bbr].map(|kind| digits(share(kind), 2));
        let [atp, cubic, bbr] = shares;
        vec![
            r.place.to_owned(),
            r.hosts.clone(),
            digits(r.jain, 3),
            atp,
            cubic,
            bbr,
            or_empty(r.joined_s, seconds),
            percent(r.in_time),
            digits(r.urgent_p95_ms, 0),
            percent(r.used),
            percent(r.lost),
        ]
    };
    Table::new(2, head, rows.iter().map(line))
}

/// The hosts' rates over time; the newcomer's line is the thick one.
pub(super) fn svg(row: &ContentionRow) -> Result<String, String> {
    let top = row.curves.iter().flatten().copied().fold(1.0, f64::max) / 1024.0 * 1.05;
    let seconds = row.curves.first().map_or(1, Vec::len);
    plot::svg(plot::Size { width: 760, height: 260 }, |root| {
        let x = Axis::linear("seconds", 0.0..seconds as f64);
        let mut canvas = plot::axes(root, x, Axis::linear("KB/s", 0.0..top))?;
        for (n, curve) in row.curves.iter().enumerate() {
            let points = (0u32..).zip(curve).map(|(second, rate)| (f64::from(second) + 0.5, rate / 1024.0)).collect();
            let width = if n + 1 == row.curves.len() { 3 } else { 1 };
            plot::line(&mut canvas, points, plot::colour(n).stroke_width(width))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use remora_sim::atp::contention::{Place, Urgent};

    use super::*;

    /// A host that receives 100 bytes in each bin from `from` on, and twice as much from `doubled` on.
    fn host(kind: HostKind, from: Time, doubled: Time) -> HostRun {
        let bins = (END.since(Time::ZERO).as_nanos() / BIN.as_nanos()) as u32;
        let at = |bin: u32| Time::ZERO + BIN * bin;
        let bytes = |bin| if at(bin) < from { 0 } else { 100 + 100 * u64::from(at(bin) >= doubled) };
        let urgent = Urgent { objects: 4, in_time: 3, took: vec![Duration::from_millis(20)] };
        HostRun { kind, received: (0..bins).map(bytes).collect(), sent_packets: 10, received_packets: 9, urgent }
    }

    #[test]
    fn newcomer_joins_when_it_has_its_share() {
        let steady = host(HostKind::Cubic, Time::ZERO, Time::ZERO);
        let run = |newcomer| ContentionRun { hosts: vec![steady.clone(), newcomer] };
        let late = JOIN + Duration::from_secs(5);
        // 60 % in addition to the half that it has at once.
        assert_eq!(joined(&run(host(HostKind::Atp, JOIN, late))), 5.6);
        assert_eq!(joined(&run(host(HostKind::Atp, late, late))), 5.8);
        assert_eq!(joined(&run(host(HostKind::Atp, END, END))), f64::INFINITY);
    }

    #[test]
    fn row_has_the_shares_of_each_kind() {
        let hosts = vec![host(HostKind::Cubic, Time::ZERO, Time::ZERO), host(HostKind::Atp, JOIN, END)];
        let contest = Contest { place: Place::Bottleneck, hosts: &[HostKind::Cubic, HostKind::Atp] };
        let done = [(Job::Contention(contest, 1), JobResult::Contention(ContentionRun { hosts }))];
        let rows = rows(&done);
        let cells = &table(&rows).rows[0];
        assert_eq!(cells[..6], ["bottleneck", "1 cubic, 1 atp", "0.900", "0.67", "1.33", ""]);
        assert_eq!(cells[6..], ["never", "75.0 %", "20", "0.6 %", "10.0 %"]);
        assert!(svg(&rows[0]).unwrap().contains("<svg"));
    }
}
