//! What the comparison with ATP 02 is evidence for, and what not: the reconstructed trace, Table 2's sums, and the
//! claim of 15 to 20 %.

use remora_sim::atp::{Class, Protocol, Workload};

use super::outcome::AtpReport;
use super::verdict::{Paper, Row};

const RECONSTRUCTED: &str = "The trace was reconstructed with the help of Table 2. That atp-paper is near Table 2's \
                             counts is therefore no evidence; differences between schemes on this trace are.";

impl Paper {
    /// Objects that the three counts together lack: a sign of a misprint.
    pub(super) fn missing(&self, objects: usize) -> usize {
        objects.saturating_sub((self.delivered + self.rejected + self.late) as usize)
    }
}

impl AtpReport {
    /// Remarks on the comparison, for below the tables.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.rows.iter().any(|row| row.paper.is_some()) {
            remarks.push(RECONSTRUCTED.to_owned());
        }
        remarks.extend(self.rows.iter().filter_map(misprint));
        remarks.extend(self.claim());
        remarks
    }

    /// "ATP performing 15-20 % better for both priority levels" than M-TCP in `filesystem` (ATP 02, section 4.3), as
    /// it is here.
    fn claim(&self) -> Option<String> {
        let of = |class: Class, scheme: &str| {
            let row = self
                .rows
                .iter()
                .find(|r| (r.workload, r.class, r.scheme) == (Workload::Filesystem.name(), class.name(), scheme))?;
            row.delivered.map(|summary| summary.median)
        };
        let best = |class: Class| {
            let rivals = Protocol::ALL.into_iter().map(Protocol::name).filter(|name| name.starts_with("mtcp"));
            rivals.filter_map(|name| Some((name, of(class, name)?))).max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let against = |scheme: &str, class: Class| {
            let ((rival, theirs), ours) = (best(class)?, of(class, scheme)?);
            Some(format!("{} {:+.1} % ({rival})", class.name(), 100.0 * (ours / theirs - 1.0)))
        };
        let found: Vec<String> = [Protocol::Atp, Protocol::AtpPaper]
            .into_iter()
            .filter_map(|p| {
                let classes = [against(p.name(), Class::High)?, against(p.name(), Class::Low)?];
                Some(format!("{}: {}", p.name(), classes.join(", ")))
            })
            .collect();
        (!found.is_empty()).then(|| {
            format!(
                "ATP 02 reports 15 to 20 % more objects than M-TCP at both priorities of filesystem. Found here, against \
                 the best of each priority: {}.",
                found.join("; ")
            )
        })
    }
}

fn misprint(row: &Row) -> Option<String> {
    let paper = row.paper.as_ref()?;
    let missing = paper.missing(row.objects);
    let Paper { delivered, rejected, late } = paper;
    let sum = delivered + rejected + late;
    (missing > 0).then(|| {
        format!(
            "ATP 02, Table 2, {}, {}: {delivered}, {rejected} and {late} make {sum} of {} objects. {delivered} is \
             probably a misprint of {}.",
            row.workload,
            row.scheme,
            row.objects,
            *delivered as usize + missing
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atp::options::{Experiment, Options};
    use crate::atp::verdict::high;
    use crate::report::statistics::Summary;

    fn row(scheme: &'static str, class: Class, protocol: Protocol, delivered: f64) -> Row {
        Row {
            workload: Workload::Filesystem.name(),
            class: class.name(),
            scheme,
            objects: 3000,
            oracle: None,
            delivered: Summary::of(&[delivered]),
            delivered_by_seed: std::collections::BTreeMap::new(),
            told: None,
            rejected: None,
            late: None,
            of_oracle: None,
            paper: high(Workload::Filesystem, protocol).filter(|_| class == Class::High),
        }
    }

    fn remarks(rows: Vec<Row>) -> Vec<String> {
        let options = Options::simulated(&[Experiment::Deadlines]);
        AtpReport { rows, ..AtpReport::new(&options, std::iter::empty()) }.evidence()
    }

    #[test]
    fn count_that_breaks_its_sum_is_marked_as_misprint() {
        let text = remarks(vec![row("mtcp-2", Class::High, Protocol::Mtcp(2), 2500.0)]).join("\n");
        assert!(text.contains("1783 is probably a misprint of 2243"), "{text}");
        assert!(text.contains("no evidence"), "{text}");
        let sound = remarks(vec![row("tcp", Class::High, Protocol::Tcp, 2500.0)]).join("\n");
        assert!(!sound.contains("misprint"), "{sound}");
        assert_eq!(remarks(Vec::new()), Vec::<String>::new());
    }

    #[test]
    fn claim_is_reported_as_found_for_both_priorities() {
        let rows = vec![
            row("atp", Class::High, Protocol::Atp, 2700.0),
            row("atp", Class::Low, Protocol::Atp, 190.0),
            row("mtcp-1", Class::High, Protocol::Mtcp(1), 2500.0),
            row("mtcp-1", Class::Low, Protocol::Mtcp(1), 200.0),
            row("mtcp-2", Class::High, Protocol::Mtcp(2), 2400.0),
            row("mtcp-2", Class::Low, Protocol::Mtcp(2), 180.0),
        ];
        let text = remarks(rows).join("\n");
        assert!(text.contains("atp: high +8.0 % (mtcp-1), low -5.0 % (mtcp-1)."), "{text}");
    }
}
