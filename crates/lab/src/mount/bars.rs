//! The bars of the study and the verdicts on them.

use serde::Serialize;

use super::cell::MountCell;
use super::options::MountSystem;
use super::work::Measure;

/// What a system must reach.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bar {
    /// So many times faster than the faster peer.
    Times(f64),
    /// At most so many seconds.
    Seconds(f64),
    /// At most so many times the best sender's time.
    Floor(f64),
    /// No slower than another measure of the same system.
    Own(Measure),
    /// At most so many times another measure of the same system, plus the link time of the bytes beside.
    Beside(f64, Measure),
}

const BARS: [(Measure, Bar); 13] = [
    (Measure::ListCold, Bar::Times(1.5)),
    (Measure::ListAgain, Bar::Seconds(0.5)),
    (Measure::ListLater, Bar::Own(Measure::ListCold)),
    (Measure::StatusFirst, Bar::Times(12.0)),
    (Measure::StatusAgain, Bar::Times(50.0)),
    (Measure::Read, Bar::Floor(1.15)),
    (Measure::Write, Bar::Floor(1.15)),
    (Measure::Save, Bar::Seconds(0.5)),
    (Measure::Untar, Bar::Times(1.6)),
    (Measure::Make, Bar::Times(2.0)),
    (Measure::BulkBeside, Bar::Beside(1.1, Measure::BulkAlone)),
    (Measure::Document95, Bar::Seconds(0.8)),
    (Measure::Note95, Bar::Seconds(0.6)),
];

/// What a system must reach; `None` if it is only reported. A close that waits for this machine alone is judged where
/// small files are written.
fn bar(system: MountSystem, measure: Measure) -> Option<Bar> {
    match system {
        MountSystem::Udp | MountSystem::Atp => BARS.iter().find(|(judged, _)| *judged == measure).map(|(_, bar)| *bar),
        MountSystem::Back if measure == Measure::Untar => Some(Bar::Seconds(4.0)),
        _ => None,
    }
}

/// Earlier figures of the peers (sshfs 3.7.3, Linux 6.1) on such a link, in seconds, for those that do not run here:
/// docs/results/mount.md.
const EARLIER: [(Measure, f64, f64); 5] = [
    (Measure::ListCold, 7.6, 13.8),
    (Measure::StatusFirst, 300.0, 300.0),
    (Measure::StatusAgain, 274.0, 298.0),
    (Measure::Untar, 99.8, 72.6),
    (Measure::Make, 21.8, 27.5),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    Met,
    Missed,
    /// The emulator was late in a run.
    Invalid,
}

/// A system's median beside its bar.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    pub measure: Measure,
    pub system: MountSystem,
    /// Infinite (JSON: null) if it was cut off.
    pub seconds: f64,
    pub bar_seconds: f64,
    /// What the bar comes from.
    pub compared_to: String,
    pub met: Met,
}

/// The verdicts on all systems that are judged.
pub(super) fn verdicts(cells: &[MountCell], limit_seconds: f64) -> Vec<Verdict> {
    let find =
        |measure: Measure, system: MountSystem| cells.iter().find(|c| c.measure == measure && c.system == system);
    let verdict = |cell: &MountCell| {
        let (bar_seconds, compared_to, is_compared_valid) = match bar(cell.system, cell.measure)? {
            Bar::Times(times) => {
                let (peer_seconds, peer, is_valid) = fastest_peer(cell.measure, cells, limit_seconds)?;
                (peer_seconds / times, format!("{peer} / {times}"), is_valid)
            }
            Bar::Seconds(seconds) => (seconds, "fixed".to_owned(), true),
            Bar::Floor(times) => (cell.floor_seconds? * times, format!("{times} x the link's floor"), true),
            Bar::Own(measure) => {
                let own = find(measure, cell.system)?;
                (own.seconds.median, measure.title().to_owned(), own.invalid == 0)
            }
            Bar::Beside(times, measure) => {
                let own = find(measure, cell.system)?;
                let bar = times * own.seconds.median + cell.beside_seconds?;
                (bar, format!("{times} x {} + the others' bytes", measure.title()), own.invalid == 0)
            }
        };
        let seconds = cell.seconds.median;
        let met = match seconds <= bar_seconds {
            _ if cell.invalid > 0 || !is_compared_valid => Met::Invalid,
            true => Met::Met,
            false => Met::Missed,
        };
        Some(Verdict { measure: cell.measure, system: cell.system, seconds, bar_seconds, compared_to, met })
    };
    cells.iter().filter_map(verdict).collect()
}

/// The faster peer's median, who it is, and whether its runs are valid. A peer that was cut off needs at least the
/// limit; for one that was not run its earlier figure counts.
fn fastest_peer(measure: Measure, cells: &[MountCell], limit_seconds: f64) -> Option<(f64, String, bool)> {
    let earlier = EARLIER.iter().find(|(m, ..)| *m == measure);
    let peer = |system: MountSystem| {
        if let Some(cell) = cells.iter().find(|c| c.measure == measure && c.system == system) {
            let seconds = cell.seconds.median.min(limit_seconds);
            return Some((seconds, format!("{} {seconds:.2} s", system.name()), cell.invalid == 0));
        }
        let seconds = earlier.map(|(_, sshfs, linux)| if system == MountSystem::Sshfs { *sshfs } else { *linux })?;
        Some((seconds, format!("{} {seconds:.2} s (an earlier figure)", system.name()), true))
    };
    let peers = MountSystem::ALL.into_iter().filter(|system| system.is_peer()).filter_map(peer);
    peers.min_by(|(a, ..), (b, ..)| a.total_cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::cell::tests::run;
    use crate::mount::cell::{self, WorkRun};
    use crate::mount::work::Work;

    fn all(runs: &[WorkRun]) -> Vec<Verdict> {
        verdicts(&cell::all(&MountSystem::ALL, runs, 1e6), 300.0)
    }

    fn one(runs: &[WorkRun]) -> (f64, Met, String) {
        let all = all(runs);
        let [verdict] = &all[..] else { panic!("{all:?}") };
        (verdict.bar_seconds, verdict.met, verdict.compared_to.clone())
    }

    #[test]
    fn bar_is_a_part_of_the_faster_peers_time() {
        let make = |system, seconds| run(system, Work::Make, 1, &[(Measure::Make, seconds)]);
        let ours = make(MountSystem::Udp, 9.0);
        for (peers, bar, met, who) in [
            (vec![], 10.9, Met::Met, "sshfs 21.80 s (an earlier figure) / 2"),
            (vec![make(MountSystem::Sshfs, 16.0)], 8.0, Met::Missed, "sshfs 16.00 s / 2"),
            (vec![make(MountSystem::Sshfs, 40.0)], 13.75, Met::Met, "linux 27.50 s (an earlier figure) / 2"),
            (
                vec![make(MountSystem::Sshfs, f64::INFINITY), make(MountSystem::Linux, f64::INFINITY)],
                150.0,
                Met::Met,
                "sshfs 300.00 s / 2",
            ),
        ] {
            let runs: Vec<WorkRun> = std::iter::once(ours.clone()).chain(peers).collect();
            assert_eq!(one(&runs), (bar, met, who.to_owned()));
        }
    }

    #[test]
    fn late_emulator_invalidates_the_verdict() {
        let mut save = run(MountSystem::Atp, Work::Save, 1, &[(Measure::Save, 0.4)]);
        assert_eq!(one(&[save.clone()]).1, Met::Met);
        save.result.as_mut().unwrap().fault = Some("late".into());
        assert_eq!(one(&[save]).1, Met::Invalid);
    }

    #[test]
    fn step_that_was_cut_off_misses_its_bar() {
        let save = run(MountSystem::Atp, Work::Save, 1, &[(Measure::Save, f64::INFINITY)]);
        assert_eq!(one(&[save]).1, Met::Missed);
    }

    #[test]
    fn large_write_may_take_longer_by_the_others_bytes() {
        let values = [(Measure::BulkAlone, 40.0), (Measure::BulkBeside, 48.0)];
        let mut beside = run(MountSystem::Udp, Work::Beside, 1, &values);
        assert_eq!(one(&[beside.clone()]).1, Met::Missed);
        beside.result.as_mut().unwrap().documents = 30;
        assert_eq!(one(&[beside]).1, Met::Met);
    }

    #[test]
    fn transfer_is_measured_against_the_floor() {
        let mut read = run(MountSystem::Udp, Work::Read, 1, &[(Measure::Read, 11.0)]);
        assert!(all(&[read.clone()]).is_empty(), "no floor, no verdict");
        read.result.as_mut().unwrap().floors = vec![(Measure::Read, 10.0)];
        assert_eq!(one(&[read]).1, Met::Met);
    }

    #[test]
    fn tcp_and_peers_are_not_judged() {
        for system in [MountSystem::Tcp, MountSystem::Back, MountSystem::Sshfs, MountSystem::Linux] {
            assert!(all(&[run(system, Work::Save, 1, &[(Measure::Save, 9.0)])]).is_empty(), "{system:?}");
        }
    }

    #[test]
    fn small_files_written_back_have_a_bar_of_their_own() {
        for (seconds, met) in [(3.9, Met::Met), (4.1, Met::Missed)] {
            let untar = run(MountSystem::Back, Work::Untar, 1, &[(Measure::Untar, seconds)]);
            assert_eq!(one(&[untar]), (4.0, met, "fixed".to_owned()));
        }
    }
}
