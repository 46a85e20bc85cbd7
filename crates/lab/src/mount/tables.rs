//! The report as text.

use super::bars::{Met, Verdict};
use super::cell::MountCell;
use super::options::MountSystem;
use super::outcome::{MountFailure, MountReport};
use super::work::Measure;
use crate::report::number::{count, rounded};
use crate::report::table::Table;

impl MountReport {
    pub fn to_text(&self) -> String {
        let mut text = self.notes().join("\n") + "\n\n" + &self.table().to_text();
        if !self.verdicts.is_empty() {
            text += &format!("\n{}", self.verdict_table().to_text());
        }
        text + &format!("\n{}\n", self.made.command)
    }

    /// The conditions, and the runs that were skipped or are invalid.
    pub(super) fn notes(&self) -> Vec<String> {
        let rate = self.rate_bits_per_s as f64 / 1e6;
        let mut notes = vec![format!(
            "Seconds, medians of {}; {rate} Mbit/s, {} ms each way; steps are cut off after {} s",
            count(self.made.seeds, "seed"),
            self.delay_ms,
            self.limit_seconds,
        )];
        for peer in &self.peers {
            let name = peer.system.name();
            notes.push(match (&peer.missing, &peer.version) {
                (Some(why), _) => format!("SKIPPED {name}: {why}"),
                (None, version) => format!("{name}: {}", version.as_deref().unwrap_or("unknown version")),
            });
        }
        let of = |word: &str, failure: &MountFailure| {
            let (system, work) = (failure.system.name(), failure.work.name());
            format!("{word} {system} {work}, seed {}: {}", failure.seed, failure.why)
        };
        notes.extend(self.failures.iter().map(|failure| of("FAILED", failure)));
        notes.extend(self.invalid.iter().map(|failure| of("INVALID", failure)));
        if !self.complete {
            notes.push("The study was interrupted: runs are missing".into());
        }
        notes
    }

    /// A row for each measure, with the systems' medians and how many times faster than the faster peer they are.
    pub(super) fn table(&self) -> Table {
        let systems = self.systems();
        let ours: Vec<MountSystem> = systems.iter().copied().filter(|system| !system.is_peer()).collect();
        let head = systems.iter().map(|system| system.name().to_owned());
        let ratios = ours.iter().map(|system| format!("peer/{}", system.name()));
        let head = std::iter::once(String::new()).chain(head).chain(ratios);
        let row = |measure: &Measure| {
            let median = |system: &MountSystem| self.cell(*measure, *system).map(|cell| cell.seconds.median);
            let peers = systems.iter().filter(|system| system.is_peer()).filter_map(median);
            let peer = peers.reduce(f64::min);
            let seconds =
                systems.iter().map(|system| self.cell(*measure, *system).map_or("-".into(), |c| self.shown(c)));
            let ratio = |system: &MountSystem| match (peer, median(system)) {
                (Some(peer), Some(ours)) if ours.is_finite() && ours > 0.0 => {
                    let bound = if peer.is_finite() { "" } else { ">" };
                    format!("{bound}{}", rounded(peer.min(self.limit_seconds) / ours, 3, 2))
                }
                _ => "-".into(),
            };
            let row = std::iter::once(measure.title().to_owned()).chain(seconds).chain(ours.iter().map(ratio));
            row.collect::<Vec<_>>()
        };
        let measured = |measure: &&Measure| self.cells.iter().any(|cell| cell.measure == **measure);
        Table::new(1, head, Measure::ALL.iter().filter(measured).map(row))
    }

    /// A row for each verdict.
    pub(super) fn verdict_table(&self) -> Table {
        let row = |verdict: &Verdict| {
            let met = match verdict.met {
                Met::Met => "met",
                Met::Missed => "MISSED",
                Met::Invalid => "INVALID",
            };
            vec![
                verdict.measure.title().to_owned(),
                verdict.system.name().to_owned(),
                verdict.compared_to.clone(),
                self.seconds(verdict.seconds),
                self.seconds(verdict.bar_seconds),
                met.to_owned(),
            ]
        };
        Table::new(3, ["bar", "system", "compared to", "s", "at most s", "verdict"], self.verdicts.iter().map(row))
    }

    /// Systems with figures, in order.
    pub(super) fn systems(&self) -> Vec<MountSystem> {
        let has_figures = |system: &MountSystem| self.cells.iter().any(|cell| cell.system == *system);
        MountSystem::ALL.into_iter().filter(has_figures).collect()
    }

    pub(super) fn cell(&self, measure: Measure, system: MountSystem) -> Option<&MountCell> {
        self.cells.iter().find(|cell| cell.measure == measure && cell.system == system)
    }

    /// A median; `!` marks one with an invalid run.
    fn shown(&self, cell: &MountCell) -> String {
        format!("{}{}", self.seconds(cell.seconds.median), if cell.invalid > 0 { "!" } else { "" })
    }

    fn seconds(&self, seconds: f64) -> String {
        if seconds.is_finite() { rounded(seconds, 3, 2) } else { format!("above {}", self.limit_seconds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::cell::tests::run;
    use crate::mount::outcome::tests::report;
    use crate::mount::work::Work;

    #[test]
    fn table_has_medians_and_ratios_to_the_faster_peer() {
        let make = |system, seconds| run(system, Work::Make, 1, &[(Measure::Make, seconds)]);
        for (ours, peers, row) in [
            (5.0, vec![], "make, 11 C files  5.00         -"),
            (
                5.0,
                vec![(MountSystem::Sshfs, 20.0), (MountSystem::Linux, 15.0)],
                "make, 11 C files  5.00   20.0   15.0      3.00",
            ),
            (5.0, vec![(MountSystem::Sshfs, f64::INFINITY)], "make, 11 C files  5.00  above 300     >60.0"),
            (f64::INFINITY, vec![(MountSystem::Sshfs, 20.0)], "make, 11 C files  above 300   20.0         -"),
        ] {
            let peers = peers.into_iter().map(|(system, seconds)| make(system, seconds));
            let runs: Vec<_> = std::iter::once(make(MountSystem::Udp, ours)).chain(peers).collect();
            let text = report(&runs).table().to_text();
            assert!(text.lines().any(|line| line.trim() == row), "{text}");
        }
    }

    #[test]
    fn text_names_what_was_skipped_invalid_or_missed() {
        let mut save = run(MountSystem::Udp, Work::Save, 7, &[(Measure::Save, 0.9)]);
        let text = report(&[save.clone()]).to_text();
        assert!(text.contains("SKIPPED linux: install it") && text.contains("MISSED"), "{text}");
        save.result.as_mut().unwrap().fault = Some("a frame was late".into());
        let text = report(&[save]).to_text();
        assert!(text.contains("INVALID udp save, seed 7: a frame was late") && text.contains("0.90!"), "{text}");
    }
}
