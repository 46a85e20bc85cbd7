//! Settings of real runs, and the choice of a bench for a run.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::wireless::job::System;

#[derive(Clone, Debug)]
pub struct Setup {
    pub binary: PathBuf,
    /// Largest lateness of a frame in a valid run.
    pub lateness_max: Duration,
    pub others: Option<Others>,
}

#[derive(Clone, Debug)]
pub struct Others {
    /// Concurrent guests for the Linux kernel's client.
    pub guests: NonZeroUsize,
    /// An unpacked kernel package for the guests; `None`: search.
    pub kernel: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) system: Option<System>,
    pub(super) link: bool,
    pub(super) mobiles: usize,
}

impl Needs {
    pub(super) fn of(system: Option<System>) -> Needs {
        Needs { system, link: system.is_some_and(System::has_link), mobiles: 1 }
    }
}

/// A counting semaphore.
#[derive(Debug)]
pub(super) struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(count: usize) -> Turns {
        Turns { free: Mutex::new(count), given_back: Condvar::new() }
    }

    pub(super) fn take(&self) -> Turn<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.given_back.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Equipment {
    pub(super) mobiles: usize,
    pub(super) link: bool,
    pub(super) guest: bool,
}

impl Equipment {
    /// Score of a bench for a run.
    fn fits(self, needs: Needs) -> usize {
        usize::from(self.link == needs.link) + 2 * usize::from(self.mobiles == needs.mobiles)
    }
}

/// The bench that a run takes. A guest lives as long as its bench. Runs with a guest take a bench that has one, other
/// runs take none of those; so there are never more guests than concurrent runs that need one.
pub(super) fn best(all: &[Equipment], needs: Needs) -> Option<usize> {
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
    fn run_gets_the_best_equipped_bench() {
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
    fn guest_goes_to_a_run_that_needs_one() {
        assert_eq!(best(&[GUEST], Needs::of(None)), None);
        assert_eq!(best(&[GUEST, MANY], Needs::of(None)), Some(1));
        let far = Equipment { mobiles: 2, ..GUEST };
        assert_eq!(best(&[PLAIN, far], Needs::of(Some(System::Linux))), Some(1), "it makes room for the new one");
    }
}
