//! Objects on the wire, and their fates at the receiver and as reported to the sender.
//!
//! On a stream an object is a heading of eight bytes and its content; by itself it begins with its
//! number.

use std::time::Duration;

use remora_atp::Probability;
use remora_base::Time;

use super::workload::Object;

/// The final status of an object at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinalStatus {
    Delivered,
    /// Given up before its deadline, for lack of bandwidth or because it would delay others too
    /// long.
    Rejected,
    /// Its deadline passed.
    Late,
}

/// The events of an object.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fate {
    /// Submission to the sender.
    pub entered: Option<Time>,
    /// Transmission of its first byte.
    pub started: Option<Time>,
    /// Complete arrival at the receiver.
    pub arrived: Option<Time>,
    /// First warning while the forecast was unknown, with the probability that it arrives in time.
    pub warned: Option<(Time, Probability)>,
    /// Report of the final status to the sender.
    pub told: Option<(Time, FinalStatus)>,
}

impl Fate {
    /// When the sender learned of the delivery.
    pub fn delivered(&self) -> Option<Time> {
        self.told.filter(|(_, told)| *told == FinalStatus::Delivered).map(|(at, _)| at)
    }

    /// Whether it arrived by its deadline.
    pub fn in_time(&self, object: &Object) -> bool {
        self.arrived.is_some_and(|at| at <= self.due(object))
    }

    /// Whether the sender learned of the delivery by the deadline.
    pub fn told_in_time(&self, object: &Object) -> bool {
        self.delivered().is_some_and(|at| at <= self.due(object))
    }

    /// Whether the sender gave it up before the deadline, and it never arrived.
    pub fn rejected(&self, object: &Object) -> bool {
        !self.in_time(object) && self.told.is_some_and(|(_, told)| told == FinalStatus::Rejected)
    }

    /// Time from the first report that it may not or will not be in time, to its deadline; zero if none
    /// came before.
    pub fn lead(&self, object: &Object) -> Duration {
        let told = self.told.filter(|(_, told)| *told != FinalStatus::Delivered).map(|(at, _)| at);
        let first = self.warned.map(|(at, _)| at).into_iter().chain(told).min();
        first.map_or(Duration::ZERO, |at| self.due(object).since(at))
    }

    fn due(&self, object: &Object) -> Time {
        self.entered.unwrap_or(object.arrival) + object.deadline
    }
}

/// The fates of all objects, by number.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    fates: Vec<Fate>,
    told: usize,
    /// An object reported or delivered twice.
    twice: Option<usize>,
}

impl Ledger {
    pub fn new(objects: usize) -> Ledger {
        Ledger { fates: vec![Fate::default(); objects], told: 0, twice: None }
    }

    /// The object was submitted.
    pub fn entered(&mut self, object: usize, now: Time) {
        self.update(object, |fate| fate.entered.replace(now).is_some());
    }

    /// Its first byte was sent; later calls change nothing.
    pub fn started(&mut self, object: usize, now: Time) {
        self.update(object, |fate| {
            fate.started.get_or_insert(now);
            false
        });
    }

    /// The sender learned that its deadline is at risk; later calls change nothing.
    pub fn warned(&mut self, object: usize, now: Time, probability: Probability) {
        self.update(object, |fate| {
            fate.warned.get_or_insert((now, probability));
            false
        });
    }

    /// It arrived completely.
    pub fn arrived(&mut self, object: usize, now: Time) {
        self.update(object, |fate| fate.arrived.replace(now).is_some());
    }

    /// The sender learned its final status.
    pub fn told(&mut self, object: usize, now: Time, told: FinalStatus) {
        self.told += 1;
        self.update(object, |fate| fate.told.replace((now, told)).is_some());
    }

    /// The fate of `object` so far.
    pub fn fate(&self, object: usize) -> Option<&Fate> {
        self.fates.get(object)
    }

    /// Objects with a final status.
    pub fn ended(&self) -> usize {
        self.told
    }

    /// The fates, or the number of an object with a duplicate event.
    pub fn into_fates(self) -> Result<Vec<Fate>, usize> {
        match self.twice {
            None => Ok(self.fates),
            Some(object) => Err(object),
        }
    }

    fn update(&mut self, object: usize, change: impl FnOnce(&mut Fate) -> bool) {
        let again = self.fates.get_mut(object).is_none_or(change);
        if again {
            self.twice.get_or_insert(object);
        }
    }
}
