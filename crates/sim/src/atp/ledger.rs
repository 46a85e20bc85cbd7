//! What became of each object: at the receiver, and by what the sender was told.

use remora_base::Time;

use super::workload::Object;

/// What the sender knows of an object in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It is there.
    Delivered,
    /// It was given up before its deadline: for lack of bandwidth, or because others had to wait
    /// too long for it already.
    Rejected,
    /// Its deadline passed.
    Late,
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fate {
    /// When it was handed to the sender.
    pub entered: Option<Time>,
    /// When its first byte was handed down.
    pub started: Option<Time>,
    /// When all of it was at the receiver.
    pub arrived: Option<Time>,
    /// When the sender was told its end, and which.
    pub told: Option<(Time, Told)>,
}

impl Fate {
    /// When the sender was told that it is there.
    pub fn delivered(&self) -> Option<Time> {
        self.told.filter(|(_, told)| *told == Told::Delivered).map(|(at, _)| at)
    }

    /// Whether all of it was at the receiver by its deadline.
    pub fn in_time(&self, object: &Object) -> bool {
        self.arrived.is_some_and(|at| at <= self.due(object))
    }

    /// Whether the sender was told so by then.
    pub fn told_in_time(&self, object: &Object) -> bool {
        self.delivered().is_some_and(|at| at <= self.due(object))
    }

    /// Whether the sender was told that it gave up before the deadline, and it never came.
    pub fn rejected(&self, object: &Object) -> bool {
        !self.in_time(object) && self.told.is_some_and(|(_, told)| told == Told::Rejected)
    }

    fn due(&self, object: &Object) -> Time {
        self.entered.unwrap_or(object.arrival) + object.deadline
    }
}

/// The fates of all objects, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    fates: Vec<Fate>,
    told: usize,
    /// An object that was told twice, or delivered twice.
    twice: Option<usize>,
}

impl Ledger {
    /// For so many objects.
    pub fn new(objects: usize) -> Ledger {
        Ledger { fates: vec![Fate::default(); objects], told: 0, twice: None }
    }

    /// It was handed to the sender.
    pub fn entered(&mut self, object: usize, now: Time) {
        self.update(object, |fate| fate.entered.replace(now).is_some());
    }

    /// Its first byte was handed down; later calls change nothing.
    pub fn started(&mut self, object: usize, now: Time) {
        self.update(object, |fate| {
            fate.started.get_or_insert(now);
            false
        });
    }

    /// All of it is at the receiver.
    pub fn arrived(&mut self, object: usize, now: Time) {
        self.update(object, |fate| fate.arrived.replace(now).is_some());
    }

    /// The sender was told its end.
    pub fn told(&mut self, object: usize, now: Time, told: Told) {
        self.told += 1;
        self.update(object, |fate| fate.told.replace((now, told)).is_some());
    }

    /// How many objects have ended for the sender.
    pub fn ended(&self) -> usize {
        self.told
    }

    /// The fates, or the number of an object to which something happened twice.
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
