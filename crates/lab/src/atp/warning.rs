//! How early the sender learns that an object may not be in time, and what the probabilities are worth.

use remora_sim::atp::{Class, Fate, Object, Protocol, Workload};
use serde::Serialize;

use super::job::{Job, JobResult};
use super::options::Options;
use crate::report::number::or_empty;
use crate::report::statistics::{Summary, percentile, sorted};
use crate::report::table::Table;

pub(super) const TITLE: &str = "Warnings of high objects, medians over seeds: lead is the time from the first report \
                                that an object may not or will not be in time, to its deadline";
pub(super) const NOTE: &str = "Missed: not delivered in time. Ahead: those of which the sender learned before the \
                               deadline. Lead: their median. Warned: objects whose forecast was unknown. Expected and \
                               delivered: the sum of the probabilities of these, and how many were in time.";

/// The warnings of a workload, class and scheme.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WarningRow {
    pub workload: &'static str,
    pub class: &'static str,
    pub scheme: &'static str,
    /// Objects not at the receiver by their deadlines.
    pub missed: Option<Summary>,
    /// Of these, objects that were reported at risk or given up before.
    pub ahead: Option<Summary>,
    /// Median time from the first report of a missed object to its deadline.
    pub lead_s: Option<Summary>,
    /// Objects with a probability.
    pub warned: Option<Summary>,
    /// Sum of these probabilities.
    pub expected: Option<Summary>,
    /// Of the objects with a probability, those delivered in time.
    pub warned_delivered: Option<Summary>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    missed: f64,
    ahead: f64,
    lead_s: Option<f64>,
    warned: f64,
    expected: f64,
    warned_delivered: f64,
}

impl Counts {
    fn of(class: Class, objects: &[Object], fates: &[Fate]) -> Counts {
        let mut counts = Counts::default();
        let mut leads = Vec::new();
        for (object, fate) in objects.iter().zip(fates).filter(|(object, _)| object.class == class) {
            let in_time = fate.in_time(object);
            if !in_time {
                let lead = fate.lead(object).as_secs_f64();
                counts.missed += 1.0;
                counts.ahead += f64::from(u8::from(lead > 0.0));
                leads.push(lead);
            }
            if let Some((_, probability)) = fate.warned {
                counts.warned += 1.0;
                counts.expected += probability.get();
                counts.warned_delivered += f64::from(u8::from(in_time));
            }
        }
        counts.lead_s = percentile(&sorted(&leads), 50);
        counts
    }
}

/// A row for each scheme that ran, of each class of each workload.
pub(super) fn rows(options: &Options, done: &[(Job, JobResult)]) -> Vec<WarningRow> {
    let mut rows = Vec::new();
    for &workload in &options.workloads {
        for class in workload.classes() {
            rows.extend(options.protocols.iter().filter_map(|protocol| row(workload, class, *protocol, done)));
        }
    }
    rows
}

fn row(workload: Workload, class: Class, protocol: Protocol, done: &[(Job, JobResult)]) -> Option<WarningRow> {
    let counts: Vec<Counts> = done
        .iter()
        .filter_map(|(job, done)| match (job, done) {
            (Job::Cell(w, p, _), JobResult::Fates(objects, fates)) if (*w, *p) == (workload, protocol) => {
                Some(Counts::of(class, objects, fates))
            }
            _ => None,
        })
        .collect();
    let summary = |of: fn(&Counts) -> f64| Summary::of(&counts.iter().map(of).collect::<Vec<_>>());
    (!counts.is_empty()).then(|| WarningRow {
        workload: workload.name(),
        class: class.name(),
        scheme: protocol.name(),
        missed: summary(|c| c.missed),
        ahead: summary(|c| c.ahead),
        lead_s: Summary::of(&counts.iter().filter_map(|c| c.lead_s).collect::<Vec<_>>()),
        warned: summary(|c| c.warned),
        expected: summary(|c| c.expected),
        warned_delivered: summary(|c| c.warned_delivered),
    })
}

pub(super) fn table(rows: &[WarningRow]) -> Table {
    let head = ["workload", "scheme", "missed", "ahead", "lead, s", "warned", "expected", "delivered"];
    let digits = |summary: Option<Summary>, digits: usize| or_empty(summary, |s| format!("{:.digits$}", s.median));
    let line = |r: &WarningRow| {
        vec![
            r.workload.to_owned(),
            r.scheme.to_owned(),
            digits(r.missed, 1),
            digits(r.ahead, 1),
            digits(r.lead_s, 3),
            digits(r.warned, 1),
            digits(r.expected, 1),
            digits(r.warned_delivered, 1),
        ]
    };
    Table::new(2, head, rows.iter().filter(|r| r.class == Class::High.name()).map(line))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remora_atp::Probability;
    use remora_base::Time;
    use remora_sim::atp::FinalStatus;

    use super::*;
    use crate::atp::options::Experiment;

    #[test]
    fn lead_runs_from_the_first_report_to_the_deadline() {
        let object = Object { arrival: Time::ZERO, size: 1, class: Class::High, deadline: Duration::from_secs(1) };
        let entered = Fate { entered: Some(Time::ZERO), ..Fate::default() };
        let at = Time::from_millis;
        let warned = |ms, p| Fate { warned: Some((at(ms), Probability::new(p))), ..entered };
        let fates = [
            Fate { told: Some((at(1000), FinalStatus::Late)), ..warned(100, 0.25) },
            Fate { told: Some((at(400), FinalStatus::Rejected)), ..entered },
            Fate { told: Some((at(1000), FinalStatus::Late)), ..entered },
            Fate { arrived: Some(at(900)), told: Some((at(950), FinalStatus::Delivered)), ..warned(0, 0.5) },
        ];
        let options = Options {
            workloads: vec![Workload::Uniform],
            protocols: vec![Protocol::Atp],
            ..Options::simulated(&[Experiment::Deadlines])
        };
        let cell = Job::Cell(Workload::Uniform, Protocol::Atp, 1);
        let rows = rows(&options, &[(cell, JobResult::Fates(vec![object; 4], fates.to_vec()))]);
        assert_eq!(table(&rows).rows, [["uniform", "atp", "3.0", "2.0", "0.600", "2.0", "0.8", "1.0"]]);
    }
}
