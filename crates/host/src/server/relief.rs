//! More threads while those there are wait for disks.
//!
//! Few threads are enough for what is in memory: as many as processors, and some. Those that read from a disk, or write
//! faster than it does, wait for it, and while they do the disk has no more to do than they ask for, and whoever wants
//! something of memory alone waits as well. On one that hangs (it is dying, or its file system is frozen, or comes
//! from a machine that has gone) they wait for ever.
//!
//! So when tasks wait, every thread has one, and yet fewer threads run or could than there are processors, more
//! threads come: half as many again each time. When they find the processors busy some go again, and one that has had nothing to do
//! for a while goes by itself. There is an end to that: who asks a disk that hangs for more than [`THREADS_MAX`]
//! things at a time still stops everybody.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::crew::Crew;
use super::executor;
use super::hub::Hub;
use super::options::cores;

/// Between two looks: as long as threads come, and at most. Two in a row have to agree before one comes.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(80);
/// How long a thread stays when there is nothing to do.
const STAY: Duration = Duration::from_secs(5);
/// Most at a time, unless it is said otherwise.
pub(super) const THREADS_MAX: usize = 60;

/// Who looks after the threads.
pub(super) struct Relief {
    hub: Arc<Hub>,
    crew: Arc<Crew>,
    more: Arc<More>,
    pause: Duration,
    /// What the last look found.
    were_held_up: bool,
    /// How many tasks had been taken by then.
    taken: usize,
}

/// The threads that have come.
struct More {
    max: usize,
    there: AtomicUsize,
    /// How many of them are to go.
    to_go: AtomicUsize,
}

impl Relief {
    /// For the threads of `crew`, which up to `max` may join.
    pub(super) fn new(hub: Arc<Hub>, crew: Arc<Crew>, max: usize) -> Relief {
        let more = Arc::new(More { max, there: AtomicUsize::new(0), to_go: AtomicUsize::new(0) });
        Relief { hub, crew, more, pause: LOOK_MIN, were_held_up: false, taken: 0 }
    }

    /// Starts the thread that looks, until there will be no more tasks.
    pub(super) fn start(mut self) -> io::Result<JoinHandle<()>> {
        Builder::new().name("disk-relief".into()).spawn(move || {
            let hub = self.hub.clone();
            while hub.jobs.tasks().await_shortage() {
                while hub.jobs.tasks().rest(self.pause) && self.look() {}
            }
        })
    }

    /// Does what is to be done. Whether tasks wait.
    fn look(&mut self) -> bool {
        let short = self.hub.jobs.tasks().is_short();
        let held_up = short && self.are_held_up();
        let come = if held_up && self.were_held_up { self.send_for_more() } else { 0 };
        if short && !held_up {
            self.more.dismiss_some();
        } else {
            self.more.keep_all();
        }
        let look_soon = come > 0 || held_up && !self.were_held_up;
        self.pause = if look_soon { LOOK_MIN } else { (2 * self.pause).min(LOOK_MAX) };
        self.were_held_up = held_up;
        short
    }

    /// Whether the threads wait for disks. Where the system does not say, they do if none of them has taken a task since
    /// the last look.
    fn are_held_up(&mut self) -> bool {
        let taken = self.hub.jobs.tasks().taken();
        let before = std::mem::replace(&mut self.taken, taken);
        self.crew.is_held_up(cores()).unwrap_or(before == taken)
    }

    /// How many came.
    fn send_for_more(&self) -> usize {
        let wanted = (self.crew.len() / 2).clamp(1, self.hub.jobs.tasks().waiting().max(1));
        (0..wanted).take_while(|_| self.send_for_one()).count()
    }

    /// Whether one came. The system may have none to give now; it is asked again.
    fn send_for_one(&self) -> bool {
        let (hub, crew, more) = (self.hub.clone(), self.crew.clone(), self.more.clone());
        let work = move || {
            executor::work_while(&hub, &crew, STAY, || !more.is_to_go());
            more.there.fetch_sub(1, Relaxed);
        };
        if !self.more.make_room() {
            return false;
        }
        let came = Builder::new().name("disk-more".into()).spawn(work).is_ok();
        if !came {
            self.more.there.fetch_sub(1, Relaxed);
        }
        came
    }
}

impl More {
    /// Whether there is room for one more, which is taken.
    fn make_room(&self) -> bool {
        self.keep_all();
        self.there.fetch_update(Relaxed, Relaxed, |there| (there < self.max).then_some(there + 1)).is_ok()
    }

    /// Who was to go and has not gone may stay.
    fn keep_all(&self) {
        self.to_go.store(0, Relaxed);
    }

    fn dismiss_some(&self) {
        self.to_go.store(self.there.load(Relaxed).div_ceil(4), Relaxed);
    }

    /// Whether one is to go: who asks.
    fn is_to_go(&self) -> bool {
        self.to_go.load(Relaxed) > 0 && self.to_go.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_come_than_there_is_room_for_and_no_more_go_than_are_to() {
        let more = More { max: 3, there: AtomicUsize::new(0), to_go: AtomicUsize::new(0) };
        assert_eq!([more.make_room(), more.make_room(), more.make_room(), more.make_room()], [true, true, true, false]);
        assert!(!more.is_to_go(), "nobody is");
        more.dismiss_some();
        assert_eq!([more.is_to_go(), more.is_to_go()], [true, false], "a quarter of three");
        more.dismiss_some();
        assert!(!more.make_room() && !more.is_to_go(), "who is needed again need not go");
    }
}
