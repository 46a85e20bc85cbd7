//! A fluid link under the scheduler: packets cross one by one at the rate of a trace, without loss, and the scheduler
//! gets the true rate 0.1 s late. It tests the policy only; session and estimator have their own tests.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_atp::estimate::{Forecast, Knowledge};
use remora_atp::{Config, Dest, Options, Outcome, Policy, Priority, RequestId, Scheduler, Upcall};
use remora_base::{Rate, Rng, Time};

/// How late the scheduler knows the rate.
const DELAY: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(50);
const ONE_WAY: Duration = Duration::from_millis(5);
const STEP_NS: u64 = 1_000_000;

/// ATP 02's trace as far as its text and Figure 5 tell it (reconstructed): lines of seconds and
/// bytes a second, straight lines between.
const TRACE: &str = include_str!("../../../../docs/examples/atp02-trace.csv");

/// Bytes that have crossed by each millisecond.
pub(crate) struct Link(Vec<f64>);

impl Link {
    /// ATP 02's, reconstructed.
    pub(crate) fn paper() -> Link {
        let knots = TRACE.lines().filter_map(|line| line.split_once(','));
        let knots = knots.filter_map(|(at, rate)| Some((at.parse().ok()?, rate.parse().ok()?)));
        Link::of(&knots.collect::<Vec<_>>())
    }

    /// The same rate throughout, bytes a second.
    pub(crate) fn steady(rate: f64) -> Link {
        Link::of(&[(0.0, rate), (400.0, rate)])
    }

    fn of(knots: &[(f64, f64)]) -> Link {
        let mut sum = 0.0;
        let carried = (0..320_000u32).map(|ms| {
            let at = f64::from(ms) / 1e3;
            let after = knots.iter().position(|k| k.0 > at).unwrap_or(knots.len());
            let (a, b) = (knots[after - 1], knots.get(after).copied().unwrap_or(knots[knots.len() - 1]));
            let part = if b.0 > a.0 { (at - a.0) / (b.0 - a.0) } else { 0.0 };
            let before = sum;
            sum += (a.1 + (b.1 - a.1) * part) / 1e3;
            before
        });
        Link(carried.collect())
    }

    pub(crate) fn carried(&self, at: Time) -> f64 {
        let (ms, rest) = (at.as_nanos() / STEP_NS, at.as_nanos() % STEP_NS);
        let i = (ms as usize).min(self.0.len() - 2);
        self.0[i] + (self.0[i + 1] - self.0[i]) * rest as f64 / STEP_NS as f64
    }

    /// When `bytes` more than at `from` have crossed.
    fn crossed(&self, from: Time, bytes: f64) -> Time {
        let goal = self.carried(from) + bytes;
        let i = self.0.partition_point(|c| *c < goal).clamp(1, self.0.len() - 1);
        let (a, b) = (self.0[i - 1], self.0[i]);
        let part = if b > a { ((goal - a) / (b - a)).clamp(0.0, 1.0) } else { 1.0 };
        Time::from_nanos((i as u64 - 1) * STEP_NS + (part * STEP_NS as f64) as u64).max(from)
    }

    /// When an object may cross, in bytes carried.
    pub(crate) fn window(&self, job: &Job, config: &Config) -> Window {
        let wire = job.size + job.size.div_ceil(config.payload).max(1) * config.overhead;
        (self.carried(job.at), self.carried(job.at + job.deadline - ONE_WAY), wire as f64)
    }

    fn rate(&self, at: Time) -> f64 {
        self.carried(at + Duration::from_millis(1)) * 1e3 - self.carried(at) * 1e3
    }
}

/// Something to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) at: Time,
    pub(crate) size: u64,
    pub(crate) priority: Priority,
    pub(crate) deadline: Duration,
}

/// A row of ATP 02's Table 1: priority, bytes, deadline and spacing in milliseconds, count.
type Row = (Priority, u64, u64, u64, u64);

/// Its workloads but for `random`.
pub(crate) const ROWS: [(&str, &[Row]); 6] = {
    const SMALL: Row = (Priority::HIGH, 4096, 1000, 500, 600);
    [
        ("uniform", &[SMALL]),
        ("equal", &[SMALL, (Priority::LOW, 32 << 10, 4000, 2000, 150)]),
        ("unequal-1", &[SMALL, (Priority::LOW, 64 << 10, 16_000, 8000, 38)]),
        ("unequal-2", &[SMALL, (Priority::LOW, 256 << 10, 16_000, 8000, 38)]),
        ("reversed", &[(Priority::HIGH, 64 << 10, 16_000, 8000, 38), (Priority::LOW, 4096, 1000, 500, 600)]),
        ("filesystem", &[(Priority::HIGH, 64, 500, 100, 3000), (Priority::LOW, 64 << 10, 1000, 1000, 300)]),
    ]
};

/// The workload's objects by arrival, each up to 50 ms late.
pub(crate) fn jobs(rows: &[Row], seed: u64) -> Vec<Job> {
    let mut rng = Rng::stream(seed, "jobs");
    let ms = Duration::from_millis;
    let mut jobs: Vec<Job> = if rows.is_empty() {
        (0..600)
            .map(|i| {
                let priority = [Priority::LOW, Priority::MEDIUM, Priority::HIGH][rng.below(3) as usize];
                let (size, deadline) = (1024 + rng.below(63 * 1024), ms(500 + rng.below(3500)));
                Job { at: Time::from_millis(i * 500), size, priority, deadline }
            })
            .collect()
    } else {
        rows.iter()
            .flat_map(|&(priority, size, deadline, spacing, n)| {
                (0..n).map(move |i| Job { at: Time::from_millis(i * spacing), size, priority, deadline: ms(deadline) })
            })
            .collect()
    };
    for job in &mut jobs {
        job.at += Duration::from_micros(rng.below(50_000));
    }
    jobs.sort_by_key(|j| j.at);
    jobs
}

/// What came of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Objects that were there by their deadlines, by priority.
    pub(crate) delivered: BTreeMap<Priority, u64>,
    /// Those the sender says were delivered.
    pub(crate) told: u64,
    pub(crate) rejected: u64,
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
    /// Bytes written of objects that were not delivered.
    pub(crate) wasted: u64,
    /// Number of final upcalls.
    pub(crate) finals: u64,
}

/// Runs the jobs through a scheduler over the link.
pub(crate) fn run(link: &Link, jobs: &[Job], config: Config) -> Tally {
    let mut s = Scheduler::new(config);
    let mut tally = Tally::default();
    let mut by_id: BTreeMap<RequestId, Job> = BTreeMap::new();
    let (mut next_job, mut next_tick) = (0, Time::ZERO);
    let mut flying: Option<(Time, RequestId, bool)> = None;
    let mut acks: std::collections::VecDeque<(Time, RequestId)> = Default::default();
    let end = jobs.iter().map(|j| j.at + j.deadline).max().unwrap_or_default() + Duration::from_secs(1);
    let mut now;
    loop {
        let due = [
            jobs.get(next_job).map(|j| j.at),
            flying.map(|f| f.0),
            acks.front().map(|a| a.0),
            s.poll_timeout(),
            Some(next_tick),
        ];
        now = due.into_iter().flatten().min().unwrap();
        if now > end {
            return tally;
        }
        if next_tick <= now {
            s.forecast(now, forecast(link, now, config.policy));
            next_tick = now + TICK;
        }
        while let Some(job) = jobs.get(next_job).filter(|j| j.at <= now) {
            let options = Options { priority: job.priority, deadline: Some(job.deadline), ..Options::default() };
            by_id.insert(s.submit(now, Dest(0), job.size, options), *job);
            next_job += 1;
        }
        if let Some((_, id, last)) = flying.take_if(|f| f.0 <= now)
            && last
        {
            let job = by_id[&id];
            if now + ONE_WAY <= job.at + job.deadline {
                *tally.delivered.entry(job.priority).or_default() += 1;
            }
            acks.push_back((now + ONE_WAY * 2, id));
        }
        while let Some((_, id)) = acks.front().copied().filter(|a| a.0 <= now) {
            acks.pop_front();
            s.delivered(now, id);
        }
        s.handle_timeout(now);
        if flying.is_none()
            && let Some(pick) = s.pick(now, &mut |_| true)
        {
            let job = by_id[&pick.request];
            assert!(now < job.at + job.deadline, "picked an expired object");
            let bytes = pick.remaining.min(config.payload);
            s.written(now, pick.request, bytes);
            let end = link.crossed(now, (bytes + config.overhead) as f64);
            flying = Some((end, pick.request, bytes == pick.remaining));
        }
        while let Some(upcall) = s.poll_upcall() {
            let Upcall::Final(f) = upcall else { continue };
            tally.finals += 1;
            match f.outcome {
                Outcome::Delivered => tally.told += 1,
                Outcome::Rejected(_) => tally.rejected += 1,
                Outcome::Evicted => tally.evicted += 1,
                _ => tally.expired += 1,
            }
            tally.wasted += if f.outcome == Outcome::Delivered { 0 } else { f.written };
        }
        while s.poll_reset().is_some() {}
    }
}

fn forecast(link: &Link, now: Time, policy: Policy) -> Forecast {
    let rate = link.rate(now - DELAY);
    let known = Rate::from_bits((rate * 8.0).max(1.0) as u64);
    let silent = policy == Policy::Remora && rate < 1.0;
    let state = if silent { Knowledge::Blackout { since: now } } else { Knowledge::Known };
    Forecast { rate: known, available: known, at_most: known, state, measured: Some(now) }
}

/// What a clairvoyant could have delivered, class by class: by deadline, each object that fits
/// beside what is kept, the largest of its class going where it does not. Exact where the objects
/// of a class are alike.
pub(crate) fn clairvoyant(link: &Link, jobs: &[Job], config: &Config) -> BTreeMap<Priority, u64> {
    let mut kept: Vec<Window> = Vec::new();
    let mut counts = BTreeMap::new();
    for priority in [Priority::HIGH, Priority::MEDIUM, Priority::LOW] {
        let mut class: Vec<&Job> = jobs.iter().filter(|j| j.priority == priority).collect();
        class.sort_by_key(|j| j.at + j.deadline);
        let mut own: Vec<Window> = Vec::new();
        for job in class {
            let window = link.window(job, config);
            own.push(window);
            if !feasible(&kept, &own, window) {
                // The largest that overlaps goes, if that helps.
                let mut by_size: Vec<usize> = (0..own.len()).filter(|i| own[*i].1 > window.0).collect();
                by_size.sort_by(|a, b| own[*b].2.total_cmp(&own[*a].2));
                let helps = by_size.into_iter().take(6).find(|i| {
                    let mut without = own.clone();
                    without.remove(*i);
                    feasible(&kept, &without, window)
                });
                own.remove(helps.unwrap_or(own.len() - 1));
            }
        }
        counts.insert(priority, own.len() as u64);
        kept.extend(own);
    }
    counts
}

/// Whether all fit, as far as those near `window` tell.
fn feasible(kept: &[Window], own: &[Window], window: Window) -> bool {
    let near = |j: &&Window| j.1 >= window.0 - 4e6 && j.0 <= window.1 + 4e6;
    fits(kept.iter().chain(own).filter(near).copied().collect())
}

/// A release, a deadline and a length, all in bytes that the link has carried.
pub(crate) type Window = (f64, f64, f64);

/// Whether the earliest deadline first meets them all: if not, nothing does.
pub(crate) fn fits(mut jobs: Vec<Window>) -> bool {
    jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ready: Vec<(f64, f64)> = Vec::new(); // deadline, left
    let (mut at, mut next) = (jobs.first().map_or(0.0, |j| j.0), 0);
    loop {
        while next < jobs.len() && jobs[next].0 <= at {
            ready.push((jobs[next].1, jobs[next].2));
            next += 1;
        }
        let arrival = jobs.get(next).map_or(f64::INFINITY, |j| j.0);
        let Some(first) = (0..ready.len()).min_by(|a, b| ready[*a].0.total_cmp(&ready[*b].0)) else {
            if next >= jobs.len() {
                return true;
            }
            at = arrival;
            continue;
        };
        let served = ready[first].1.min(arrival - at);
        at += served;
        ready[first].1 -= served;
        if at > ready[first].0 + 1e-6 {
            return false;
        }
        if ready[first].1 <= 0.0 {
            ready.swap_remove(first);
        }
    }
}
