//! What a sender could have delivered that knew the bandwidth and the objects beforehand.
//!
//! Time is mapped to bytes by the trace's integral C(t), which makes the link a machine of speed
//! one. A set of objects can be delivered in time if, and only if, for any two moments the
//! bytes whose arrival and deadline lie between them are no more than can cross between them;
//! then the earliest deadline first delivers it (Horn 1974). The largest such set is an integer
//! program with a row for each pair of moments. Rows are added when a solution breaks them; when
//! none is broken the solution is optimal. The most urgent class is served first: its number is
//! made as large as possible and kept so, then the next.
//!
//! This is an upper bound for any protocol: headers, propagation and packets cost nothing here.

use std::collections::{BTreeMap, BTreeSet};

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};
use thiserror::Error;

use super::trace::Trace;
use super::workload::{Class, Object};

/// Less than a byte: rounding.
const SLACK: f64 = 1e-3;
/// Rounds of adding rows, each of which adds at least one.
const ROUNDS_MAX: usize = 10_000;
/// Branches of one program. The paper's need a few hundred at most.
const NODES_MAX: u64 = 200_000;

/// The best that can be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Optimum {
    /// Which objects are delivered.
    pub chosen: Vec<bool>,
}

impl Optimum {
    /// How many of a class are delivered.
    pub fn delivered(&self, objects: &[Object], class: Class) -> usize {
        objects.iter().zip(&self.chosen).filter(|(o, chosen)| o.class == class && **chosen).count()
    }
}

/// Why there is no optimum.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OracleError {
    /// The solver gave up.
    #[error("the integer program was not solved: {0}")]
    Solver(String),
    /// Rows were added without end.
    #[error("the integer program was not solved in {ROUNDS_MAX} rounds")]
    Rounds,
}

/// The largest set of high objects that can be in time, with it the largest of medium ones, and
/// with these the largest of low ones.
pub fn optimum(trace: &Trace, objects: &[Object]) -> Result<Optimum, OracleError> {
    let jobs: Vec<Job> = objects.iter().enumerate().map(|(index, o)| Job::new(trace, index, o)).collect();
    let hopeful: Vec<Job> = jobs.into_iter().filter(|j| j.release + j.size() <= j.due + SLACK).collect();
    let chosen = best(&hopeful, &Class::ALL)?;
    Ok(Optimum { chosen: (0..objects.len()).map(|index| chosen.contains(&index)).collect() })
}

/// An object on a machine of speed one.
#[derive(Clone, Copy, Debug)]
struct Job {
    index: usize,
    class: Class,
    bytes: u32,
    release: f64,
    due: f64,
}

impl Job {
    fn new(trace: &Trace, index: usize, object: &Object) -> Job {
        Job {
            index,
            class: object.class,
            bytes: object.size,
            release: trace.carried(object.arrival),
            due: trace.carried(object.due()),
        }
    }

    fn size(&self) -> f64 {
        f64::from(self.bytes)
    }
}

/// The objects of the best set by the classes named, the most urgent first.
fn best(jobs: &[Job], classes: &[Class]) -> Result<BTreeSet<usize>, OracleError> {
    let Some((last, more_urgent)) = classes.split_last() else { return Ok(BTreeSet::new()) };
    let jobs: Vec<Job> = jobs.iter().copied().filter(|j| classes.contains(&j.class)).collect();
    let mut chosen = BTreeSet::new();
    for part in parts(jobs) {
        let kept = best(&part, more_urgent)?;
        chosen.extend(Program::new(&part, *last, &kept).solve()?);
    }
    Ok(chosen)
}

/// Cuts the objects apart where the machine would idle even if it took them all: what is on one
/// side then takes nothing from the other.
fn parts(mut jobs: Vec<Job>) -> Vec<Vec<Job>> {
    jobs.sort_by(|a, b| a.release.total_cmp(&b.release));
    let mut parts: Vec<Vec<Job>> = Vec::new();
    let mut busy_until = f64::NEG_INFINITY;
    for job in jobs {
        match parts.last_mut().filter(|_| job.release < busy_until) {
            Some(part) => part.push(job),
            None => parts.push(vec![job]),
        }
        busy_until = busy_until.max(job.release) + job.size();
    }
    parts
}

/// The integer program of one part: the most objects of a class, with no fewer of those more
/// urgent.
struct Program<'a> {
    /// By arrival.
    jobs: &'a [Job],
    /// Of which as many as possible are wanted.
    wanted: Class,
    /// A set that can be had, of more urgent objects.
    kept: &'a BTreeSet<usize>,
    /// How many of each more urgent class there are in it.
    quotas: BTreeMap<Class, usize>,
    /// Pairs of moments, each as a position by arrival and one by deadline.
    rows: BTreeSet<(usize, usize)>,
    /// Positions by deadline.
    by_due: Vec<usize>,
}

impl<'a> Program<'a> {
    fn new(jobs: &'a [Job], wanted: Class, kept: &'a BTreeSet<usize>) -> Program<'a> {
        let mut quotas = BTreeMap::new();
        for job in jobs.iter().filter(|j| kept.contains(&j.index)) {
            *quotas.entry(job.class).or_default() += 1;
        }
        let mut by_due: Vec<usize> = (0..jobs.len()).collect();
        by_due.sort_by(|a, b| jobs[*a].due.total_cmp(&jobs[*b].due));
        Program { jobs, wanted, kept, quotas, rows: BTreeSet::new(), by_due }
    }

    fn solve(mut self) -> Result<BTreeSet<usize>, OracleError> {
        if self.jobs.iter().all(|j| j.class != self.wanted) {
            return Ok(self.kept.clone());
        }
        // First without wholeness, which is quick and finds most rows.
        for whole in [false, true] {
            let mut round = 0;
            loop {
                let x = self.attempt(whole)?;
                let broken = self.broken(&x);
                let before = self.rows.len();
                self.rows.extend(broken);
                if self.rows.len() == before {
                    if whole {
                        return Ok(self.taken(&x));
                    }
                    break;
                }
                round += 1;
                if round > ROUNDS_MAX {
                    return Err(OracleError::Rounds);
                }
            }
        }
        Err(OracleError::Rounds)
    }

    /// The jobs that are taken.
    fn taken(&self, x: &[f64]) -> BTreeSet<usize> {
        self.jobs.iter().zip(x).filter(|(_, x)| **x > 0.5).map(|(job, _)| job.index).collect()
    }

    /// A class of which all objects are kept leaves nothing to choose.
    fn is_given(&self, class: Class) -> bool {
        class != self.wanted
            && self.quotas.get(&class).copied().unwrap_or(0) == self.jobs.iter().filter(|j| j.class == class).count()
    }

    /// The best choice by the rows so far.
    fn attempt(&self, whole: bool) -> Result<Vec<f64>, OracleError> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let given: Vec<Class> = Class::ALL.into_iter().filter(|c| self.is_given(*c)).collect();
        let variable = |job: &Job| {
            let worth = if job.class == self.wanted { 1.0 } else { 0.0 };
            let free = !given.contains(&job.class);
            free.then(|| if whole { problem.add_binary_var(worth) } else { problem.add_var(worth, (0.0, 1.0)) })
        };
        let variables: Vec<Option<Variable>> = self.jobs.iter().map(variable).collect();
        for (class, quota) in self.quotas.iter().filter(|(class, _)| !given.contains(class)) {
            let of_class = self.jobs.iter().zip(&variables).filter(|(job, _)| job.class == *class);
            let terms: Vec<(Variable, f64)> = of_class.filter_map(|(_, v)| v.map(|v| (v, 1.0))).collect();
            problem.add_constraint(terms, ComparisonOp::Ge, *quota as f64);
        }
        for row in &self.rows {
            let (terms, room) = self.row(*row, &variables);
            problem.add_constraint(terms, ComparisonOp::Le, room);
        }
        let mut options = SolveOptions::default();
        options.node_limit = Some(NODES_MAX);
        let outcome = problem.solve_with(options).map_err(|e| OracleError::Solver(e.to_string()))?;
        if !outcome.is_optimal() {
            return Err(OracleError::Solver(format!("more than {NODES_MAX} branches")));
        }
        let solution = outcome.into_solution().map_err(|_| OracleError::Solver("no solution".into()))?;
        let value = |v: &Option<Variable>| {
            v.map_or(1.0, |v| if whole { solution.var_value(v).round() } else { solution.var_value(v) })
        };
        Ok(variables.iter().map(value).collect())
    }

    /// A row's terms and its bound, both in units of what all its sizes have in common: the bound
    /// can then be rounded down, for the left side is a whole number.
    fn row(&self, row: (usize, usize), variables: &[Option<Variable>]) -> (Vec<(Variable, f64)>, f64) {
        let inside = self.inside(row);
        let unit = inside.iter().fold(0, |unit, n| gcd(unit, self.jobs[*n].bytes)).max(1);
        let units = |n: usize| f64::from(self.jobs[n].bytes / unit);
        let given: f64 = inside.iter().filter(|n| variables[**n].is_none()).map(|n| units(*n)).sum();
        let room = (self.room(row) / f64::from(unit) + SLACK).floor() - given;
        let terms: Vec<(Variable, f64)> = inside.iter().filter_map(|n| variables[*n].map(|v| (v, units(*n)))).collect();
        let scale = terms.iter().map(|(_, size)| *size).fold(1.0, f64::max);
        (terms.into_iter().map(|(v, size)| (v, size / scale)).collect(), room / scale)
    }

    /// Positions of the jobs between a row's two moments.
    fn inside(&self, (from, to): (usize, usize)) -> Vec<usize> {
        let (start, end) = (self.jobs[from].release, self.jobs[to].due);
        (0..self.jobs.len()).filter(|n| self.jobs[*n].release >= start && self.jobs[*n].due <= end).collect()
    }

    /// Bytes that can cross between them.
    fn room(&self, (from, to): (usize, usize)) -> f64 {
        self.jobs[to].due - self.jobs[from].release
    }

    /// For each deadline, the row that the choice breaks by most.
    fn broken(&self, x: &[f64]) -> Vec<(usize, usize)> {
        let worst = |to: &usize| {
            let end = self.jobs[*to].due;
            let mut demand = 0.0;
            let mut worst = (SLACK, None);
            for from in (0..self.jobs.len()).rev().filter(|n| self.jobs[*n].due <= end && x[*n] > 0.0) {
                demand += self.jobs[from].size() * x[from];
                let excess = demand - self.room((from, *to));
                if excess > worst.0 {
                    worst = (excess, Some((from, *to)));
                }
            }
            worst.1
        };
        let taken = self.by_due.iter().filter(|n| x[**n] > 0.0);
        taken.filter_map(worst).collect()
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use remora_base::Time;

    use super::super::Workload;
    use super::*;

    /// Whether the earliest deadline first delivers all of these, byte by byte of virtual time.
    fn is_feasible(trace: &Trace, objects: &[Object], set: usize) -> bool {
        let chosen = objects.iter().enumerate().filter(|(n, _)| set & 1 << n != 0);
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

    /// High, medium, low: the best by trying every set.
    fn by_force(trace: &Trace, objects: &[Object]) -> [usize; 3] {
        let counts = |set: usize| {
            Class::ALL.map(|c| objects.iter().enumerate().filter(|(n, o)| o.class == c && set & 1 << n != 0).count())
        };
        (0..1usize << objects.len()).filter(|set| is_feasible(trace, objects, *set)).map(counts).max().unwrap()
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
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn it_is_as_good_as_trying_everything(objects in prop::collection::vec(object(), 0..8)) {
            let trace = Trace::parse("0,2000\n2,500\n2,0\n3,0\n3,1500\n5,1000\n").unwrap();
            let optimum = optimum(&trace, &objects).unwrap();
            let set = optimum.chosen.iter().enumerate().filter(|(_, c)| **c).fold(0, |set, (n, _)| set | 1 << n);
            prop_assert!(is_feasible(&trace, &objects, set));
            prop_assert_eq!(counts(&optimum, &objects), by_force(&trace, &objects));
        }
    }

    #[test]
    fn the_paper_s_workloads_are_solved() {
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
}
