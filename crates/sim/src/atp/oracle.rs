//! The optimum: the most that a sender could deliver that knew bandwidth and objects in advance.
//!
//! The trace's integral C(t) maps time to bytes, which makes the link a machine of speed one. A set
//! of objects can be delivered in time if, and only if, the earliest deadline first delivers it
//! (Horn 1974).
//!
//! The search processes the objects by arrival, and keeps every choice so far that may be part of
//! the optimum. The future depends only on a choice's *load*: for each deadline ahead, the bytes
//! taken that must cross by then and have not. So a choice is dropped if another one has at least
//! the same worth and nowhere a larger load: any addition to the one is possible for the other. Few
//! objects overlap, so few choices remain, and the result is exact.
//!
//! It is an upper bound for any protocol: headers, propagation and packets cost nothing here.

use thiserror::Error;

use super::trace::Trace;
use super::workload::{Class, Object};

/// Fractions of a byte. Arrivals are rounded down and deadlines up, so that the bound holds.
const PARTS: f64 = 1024.0;
/// Maximum of choices; the workloads of ATP 02 need some hundreds.
const CHOICES_MAX: usize = 100_000;
/// Bits of the count of a class: more than there are objects.
const COUNT_BITS: u32 = 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Optimum {
    /// Whether each object is delivered.
    pub chosen: Vec<bool>,
}

impl Optimum {
    pub fn delivered(&self, objects: &[Object], class: Class) -> usize {
        objects.iter().zip(&self.chosen).filter(|(o, chosen)| o.class == class && **chosen).count()
    }
}

/// An optimum that cannot be found.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OracleError {
    /// Too many objects overlap.
    #[error("more than {CHOICES_MAX} choices at a time")]
    Choices,
    /// Too many objects.
    #[error("more than {} objects", 1u64 << COUNT_BITS)]
    Objects,
}

/// The largest set of high objects that can be in time, with it the largest of medium ones, and
/// with these the largest of low ones.
pub fn optimum(trace: &Trace, objects: &[Object]) -> Result<Optimum, OracleError> {
    if objects.len() >> COUNT_BITS > 0 {
        return Err(OracleError::Objects);
    }
    let mut jobs: Vec<Job> = objects.iter().enumerate().map(|(index, o)| Job::new(trace, index, o)).collect();
    jobs.retain(|j| j.release + j.size <= j.due);
    jobs.sort_by_key(|j| j.release);
    let mut chosen = vec![false; objects.len()];
    for index in best(&jobs)? {
        if let Some(chosen) = chosen.get_mut(index) {
            *chosen = true;
        }
    }
    Ok(Optimum { chosen })
}

/// An object on a machine of speed one; times and sizes in [`PARTS`] of a byte.
#[derive(Clone, Copy, Debug)]
struct Job {
    index: usize,
    /// One, in the digits of its class.
    worth: u64,
    size: u64,
    release: u64,
    due: u64,
}

impl Job {
    fn new(trace: &Trace, index: usize, object: &Object) -> Job {
        let rank = match object.class {
            Class::Low => 0,
            Class::Medium => 1,
            Class::High => 2,
        };
        Job {
            index,
            worth: 1 << (rank * COUNT_BITS),
            size: u64::from(object.size) * PARTS as u64,
            release: (trace.carried(object.arrival) * PARTS).floor() as u64,
            due: (trace.carried(object.due()) * PARTS).ceil() as u64,
        }
    }
}

/// A choice among the objects that have arrived.
#[derive(Clone, Debug, Default)]
struct Choice {
    /// Chosen objects of each class, the most urgent in the highest digits.
    worth: u64,
    /// For each deadline ahead: chosen bytes that must cross by then and have not.
    load: Vec<u64>,
    /// The last chosen object, as an index into the trail.
    last: Option<usize>,
}

/// The objects of the optimum; `jobs` are by arrival.
fn best(jobs: &[Job]) -> Result<Vec<usize>, OracleError> {
    let earliest_due = earliest_due_after(jobs);
    let (mut now, mut dues) = (0, Vec::new());
    let mut choices = vec![Choice::default()];
    // Chosen objects, each with the one chosen before it.
    let mut trail: Vec<(usize, Option<usize>)> = Vec::new();
    for (job, later_due) in jobs.iter().zip(earliest_due) {
        let passed = dues.partition_point(|due| *due <= job.release);
        dues.drain(..passed);
        let place = dues.partition_point(|due| *due < job.due);
        dues.insert(place, job.due);
        for choice in &mut choices {
            choice.wait(job.release - now, passed);
            choice.mark(place);
        }
        now = job.release;
        for n in 0..choices.len() {
            let taken = choices.get(n).and_then(|choice| choice.with(job, place, now, &dues));
            choices.extend(taken.map(|choice| Choice { last: note(&mut trail, job.index, choice.last), ..choice }));
        }
        // Of the deadlines to come, only what must have crossed by then counts.
        let settled = dues.partition_point(|due| *due <= later_due).saturating_sub(1);
        choices = undominated(choices, settled);
        if choices.len() > CHOICES_MAX {
            return Err(OracleError::Choices);
        }
    }
    let best = choices.into_iter().max_by_key(|choice| choice.worth);
    let mut next = best.and_then(|choice| choice.last);
    let mut chosen = Vec::new();
    while let Some((index, before)) = next.and_then(|n| trail.get(n)) {
        chosen.push(*index);
        next = *before;
    }
    Ok(chosen)
}

/// For each job the earliest deadline of those that arrive after it.
fn earliest_due_after(jobs: &[Job]) -> Vec<u64> {
    let (mut earliest, mut after) = (u64::MAX, Vec::with_capacity(jobs.len()));
    for job in jobs.iter().rev() {
        after.push(earliest);
        earliest = earliest.min(job.due);
    }
    after.reverse();
    after
}

fn note(trail: &mut Vec<(usize, Option<usize>)>, index: usize, before: Option<usize>) -> Option<usize> {
    trail.push((index, before));
    Some(trail.len() - 1)
}

impl Choice {
    /// `crossed` bytes cross; `passed` deadlines pass.
    fn wait(&mut self, crossed: u64, passed: usize) {
        self.load.drain(..passed.min(self.load.len()));
        for load in &mut self.load {
            *load = load.saturating_sub(crossed);
        }
    }

    /// Adds a deadline.
    fn mark(&mut self, place: usize) {
        let before = place.checked_sub(1).and_then(|p| self.load.get(p)).copied().unwrap_or(0);
        self.load.insert(place.min(self.load.len()), before);
    }

    /// The choice with the job, if feasible.
    fn with(&self, job: &Job, place: usize, now: u64, dues: &[u64]) -> Option<Choice> {
        let fits = |(load, due): (&u64, &u64)| load + job.size <= due - now;
        if !self.load.iter().zip(dues).skip(place).all(fits) {
            return None;
        }
        let mut load = self.load.clone();
        load.iter_mut().skip(place).for_each(|load| *load += job.size);
        Some(Choice { worth: self.worth + job.worth, load, last: self.last })
    }

    /// Whether it dominates the other, whatever follows; deadlines before `settled` no longer
    /// matter.
    fn is_as_good_as(&self, other: &Choice, settled: usize) -> bool {
        self.worth >= other.worth && self.load.iter().zip(&other.load).skip(settled).all(|(a, b)| a <= b)
    }
}

/// The choices that no other one dominates.
fn undominated(mut choices: Vec<Choice>, settled: usize) -> Vec<Choice> {
    // The best ones first: they dominate most others.
    choices.sort_by(|a, b| b.worth.cmp(&a.worth).then_with(|| a.load.iter().rev().cmp(b.load.iter().rev())));
    let mut kept: Vec<Choice> = Vec::new();
    for choice in choices {
        if !kept.iter().any(|better| better.is_as_good_as(&choice, settled)) {
            kept.push(choice);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use remora_base::Time;

    use super::super::Workload;
    use super::*;

    /// Less than a byte: rounding.
    const SLACK: f64 = 1e-2;

    /// Whether the earliest deadline first delivers all of these, byte by byte of virtual time.
    fn is_feasible(trace: &Trace, objects: &[Object], is_in: impl Fn(usize) -> bool) -> bool {
        let chosen = objects.iter().enumerate().filter(|(n, _)| is_in(*n));
        let on_machine = |o: &Object| (trace.carried(o.arrival), trace.carried(o.due()), f64::from(o.size));
        let mut waiting: Vec<(f64, f64, f64)> = chosen.map(|(_, o)| on_machine(o)).collect();
        let mut now = 0.0;
        while let Some(first) = waiting.iter().map(|w| w.0).min_by(f64::total_cmp) {
            now = f64::max(now, first);
            let ready = (0..waiting.len()).filter(|n| waiting[*n].0 <= now);
            let urgent = ready.min_by(|a, b| waiting[*a].1.total_cmp(&waiting[*b].1)).unwrap();
            let next = waiting.iter().map(|w| w.0).filter(|r| *r > now).fold(f64::INFINITY, f64::min);
            let spent = waiting[urgent].2.min(next - now);
            now += spent;
            waiting[urgent].2 -= spent;
            if now > waiting[urgent].1 + SLACK {
                return false;
            }
            if waiting[urgent].2 <= 0.0 {
                waiting.remove(urgent);
            }
        }
        true
    }

    /// High, medium, low: the optimum by exhaustive search.
    fn by_force(trace: &Trace, objects: &[Object]) -> [usize; 3] {
        let counts = |set: usize| {
            Class::ALL.map(|c| objects.iter().enumerate().filter(|(n, o)| o.class == c && set & 1 << n != 0).count())
        };
        (0..1usize << objects.len())
            .filter(|set| is_feasible(trace, objects, |n| set & 1 << n != 0))
            .map(counts)
            .max()
            .unwrap()
    }

    fn counts(optimum: &Optimum, objects: &[Object]) -> [usize; 3] {
        Class::ALL.map(|c| optimum.delivered(objects, c))
    }

    fn object() -> impl Strategy<Value = Object> {
        (0u64..4000, 1u32..2000, 0usize..3, 1u64..2500).prop_map(|(at, size, class, deadline)| Object {
            arrival: Time::from_millis(at),
            size,
            class: Class::ALL[class],
            deadline: Duration::from_millis(deadline),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]
        #[test]
        fn optimum_equals_that_of_exhaustive_search(objects in prop::collection::vec(object(), 0..10)) {
            let trace = Trace::parse("0,2000\n2,500\n2,0\n3,0\n3,1500\n5,1000\n").unwrap();
            let optimum = optimum(&trace, &objects).unwrap();
            prop_assert!(is_feasible(&trace, &objects, |n| optimum.chosen[n]));
            prop_assert_eq!(counts(&optimum, &objects), by_force(&trace, &objects));
        }
    }

    #[test]
    fn workloads_of_the_paper_are_solved() {
        let trace = Trace::paper();
        let cases = [
            (Workload::Uniform, [541, 0, 0]),
            (Workload::Equal, [541, 0, 134]),
            (Workload::Unequal1, [541, 0, 35]),
            (Workload::Unequal2, [541, 0, 33]),
            (Workload::Reversed, [36, 0, 533]),
            (Workload::Filesystem, [2714, 0, 200]),
            (Workload::Random, [167, 167, 172]),
        ];
        for (workload, expected) in cases {
            let objects = workload.objects(1, Time::ZERO);
            assert_eq!(counts(&optimum(&trace, &objects).unwrap(), &objects), expected, "{workload:?}");
        }
    }

    #[test]
    fn optimum_of_any_seed_is_feasible() {
        let trace = Trace::paper();
        for workload in Workload::ALL {
            for seed in 1..=40 {
                let objects = workload.objects(seed, Time::ZERO);
                let optimum = optimum(&trace, &objects).unwrap();
                if seed <= 4 && workload != Workload::Filesystem {
                    assert!(is_feasible(&trace, &objects, |n| optimum.chosen[n]), "{workload:?}, seed {seed}");
                }
            }
        }
    }
}
