//! Benches without work: which of them a run gets.

use super::super::job::System;
use super::Needs;
use super::bench::Bench;

/// What a bench has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Equipment {
    pub(super) mobiles: usize,
    pub(super) link: bool,
    pub(super) guest: bool,
}

impl Equipment {
    /// How many of the things that it has or lacks suit a run.
    fn fits(self, needs: Needs) -> usize {
        usize::from(self.link == needs.link) + 2 * usize::from(self.mobiles == needs.mobiles)
    }
}

/// Benches without work.
#[derive(Debug, Default)]
pub(super) struct Idle(pub(super) Vec<Bench>);

impl Idle {
    /// The one that is equipped best for a run. One with another number of mobiles makes room for the one that is
    /// started then.
    pub(super) fn pop_best(&mut self, needs: Needs) -> Option<Bench> {
        let all: Vec<Equipment> = self.0.iter().map(Bench::equipment).collect();
        let best = best(&all, needs)?;
        Some(self.0.swap_remove(best)).filter(|bench| bench.equipment().mobiles == needs.mobiles)
    }
}

/// Which one a run takes. A guest lives as long as its bench and is started when a run that wants one gets none here:
/// so there are never more of them than such runs at a time if those take one wherever there is one, and others none.
fn best(all: &[Equipment], needs: Needs) -> Option<usize> {
    let wants_guest = needs.system == Some(System::Linux);
    let guest = wants_guest && all.iter().any(|bench| bench.guest);
    let fit = all.iter().enumerate().filter(|(_, bench)| bench.guest == guest);
    Some(fit.max_by_key(|(_, bench)| bench.fits(needs))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Equipment = Equipment { mobiles: 1, link: false, guest: false };
    const LINKED: Equipment = Equipment { link: true, ..PLAIN };
    const MANY: Equipment = Equipment { mobiles: 8, link: true, guest: false };
    const GUEST: Equipment = Equipment { guest: true, ..PLAIN };

    #[test]
    fn a_run_gets_the_bench_that_is_equipped_best() {
        let cases = [
            (&[MANY, LINKED, PLAIN][..], Needs::of(None), Some(2)),
            (&[MANY, PLAIN], Needs::of(Some(System::LinkAdaptive)), Some(1)),
            (&[PLAIN, LINKED, MANY], Needs { mobiles: 8, ..Needs::of(None) }, Some(2)),
            (&[PLAIN, GUEST], Needs::of(Some(System::Linux)), Some(1)),
            (&[LINKED, PLAIN], Needs::of(Some(System::Linux)), Some(1)),
            (&[], Needs::of(None), None),
        ];
        for (all, needs, taken) in cases {
            assert_eq!(best(all, needs), taken, "{needs:?} of {all:?}");
        }
    }

    #[test]
    fn a_guest_is_taken_by_who_wants_one_only() {
        assert_eq!(best(&[GUEST], Needs::of(None)), None);
        assert_eq!(best(&[GUEST, MANY], Needs::of(None)), Some(1));
        let far = Equipment { mobiles: 2, ..GUEST };
        assert_eq!(best(&[PLAIN, far], Needs::of(Some(System::Linux))), Some(1), "it makes room for the new one");
    }
}
