//! The seven workloads of ATP 02, Table 1.
//!
//! The scan of the table is misaligned; this reading agrees with the text and with the sums of
//! Table 2, except for one number: 75 objects 8 s apart would last twice as long as the trace, so
//! `reversed` has 38 of them.

use std::time::Duration;

use remora_atp::Priority;
use remora_base::{Rng, Time};

const KB: u32 = 1024;
/// Maximum delay of an object beyond its schedule, as in ATP 02, Figure 5.
const JITTER: Duration = Duration::from_millis(50);

/// The class of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    Low,
    /// In `random` only.
    Medium,
    High,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 3] = [Class::High, Class::Medium, Class::Low];

    pub const fn name(self) -> &'static str {
        match self {
            Class::Low => "low",
            Class::Medium => "medium",
            Class::High => "high",
        }
    }

    /// The class in ATP's interface.
    pub const fn priority(self) -> Priority {
        match self {
            Class::Low => Priority::LOW,
            Class::Medium => Priority::MEDIUM,
            Class::High => Priority::HIGH,
        }
    }
}

/// An object to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    pub arrival: Time,
    /// Bytes (at least 1).
    pub size: u32,
    pub class: Class,
    /// Relative to its arrival.
    pub deadline: Duration,
}

impl Object {
    /// The absolute deadline.
    pub fn due(&self) -> Time {
        self.arrival + self.deadline
    }
}

/// A row of Table 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Workload {
    /// Small objects of one class.
    Uniform,
    /// Two classes with about the same load.
    Equal,
    /// Low objects of 64 KB.
    Unequal1,
    /// Low objects of 256 KB.
    Unequal2,
    /// The large objects are the urgent ones.
    Reversed,
    /// Validations and file chunks.
    Filesystem,
    /// All parameters random.
    Random,
}

/// Objects at constant intervals.
struct Row {
    class: Class,
    size: u32,
    deadline_ms: u64,
    spacing_ms: u64,
    count: u64,
}

impl Workload {
    /// All, in the table's order.
    pub const ALL: [Workload; 7] = [
        Workload::Uniform,
        Workload::Equal,
        Workload::Unequal1,
        Workload::Unequal2,
        Workload::Reversed,
        Workload::Filesystem,
        Workload::Random,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Workload::Uniform => "uniform",
            Workload::Equal => "equal",
            Workload::Unequal1 => "unequal-1",
            Workload::Unequal2 => "unequal-2",
            Workload::Reversed => "reversed",
            Workload::Filesystem => "filesystem",
            Workload::Random => "random",
        }
    }

    /// Its objects by arrival, from `start` on. The seed draws each delay (0 to 50 ms), and
    /// everything about `random`.
    pub fn objects(self, seed: u64, start: Time) -> Vec<Object> {
        let mut rng = Rng::stream(seed, &format!("atp workload {}", self.name()));
        let mut objects = match self {
            Workload::Random => random(&mut rng),
            _ => self.rows().iter().flat_map(Row::objects).collect(),
        };
        for object in &mut objects {
            let late = Duration::from_nanos(rng.below(JITTER.as_nanos() as u64));
            object.arrival = start + object.arrival.since(Time::ZERO) + late;
        }
        objects.sort_by_key(|o| o.arrival);
        objects
    }

    /// Its classes, the most urgent first.
    pub fn classes(self) -> impl Iterator<Item = Class> {
        let has = move |class: &Class| self == Workload::Random || self.rows().iter().any(|r| r.class == *class);
        Class::ALL.into_iter().filter(has)
    }

    fn rows(self) -> &'static [Row] {
        const SMALL: Row = Row { class: Class::High, size: 4 * KB, deadline_ms: 1000, spacing_ms: 500, count: 600 };
        const fn low(kb: u32, deadline_ms: u64, spacing_ms: u64, count: u64) -> Row {
            Row { class: Class::Low, size: kb * KB, deadline_ms, spacing_ms, count }
        }
        match self {
            Workload::Uniform => const { &[SMALL] },
            Workload::Equal => const { &[SMALL, low(32, 4000, 2000, 150)] },
            Workload::Unequal1 => const { &[SMALL, low(64, 16_000, 8000, 38)] },
            Workload::Unequal2 => const { &[SMALL, low(256, 16_000, 8000, 38)] },
            Workload::Reversed => {
                const LARGE: Row =
                    Row { class: Class::High, size: 64 * KB, deadline_ms: 16_000, spacing_ms: 8000, count: 38 };
                const { &[LARGE, low(4, 1000, 500, 600)] }
            }
            Workload::Filesystem => {
                const VALIDATION: Row =
                    Row { class: Class::High, size: 64, deadline_ms: 500, spacing_ms: 100, count: 3000 };
                const { &[VALIDATION, low(64, 1000, 1000, 300)] }
            }
            Workload::Random => &[],
        }
    }
}

impl Row {
    fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let deadline = Duration::from_millis(self.deadline_ms);
        let at = |n| Time::from_millis(n * self.spacing_ms);
        (0..self.count).map(move |n| Object { arrival: at(n), size: self.size, class: self.class, deadline })
    }
}

/// As many of each class as in ATP 02, in random order.
fn random(rng: &mut Rng) -> Vec<Object> {
    let mut left = [(Class::Low, 205), (Class::Medium, 191), (Class::High, 204)];
    let mut objects = Vec::new();
    for n in 0..600 {
        let mut drawn = rng.below(left.iter().map(|(_, count)| count).sum());
        let mut class = Class::Low;
        for (of, count) in &mut left {
            if drawn < *count {
                class = *of;
                *count -= 1;
                break;
            }
            drawn -= *count;
        }
        objects.push(Object {
            arrival: Time::from_millis(n * 500),
            size: KB + rng.below(u64::from(63 * KB + 1)) as u32,
            class,
            deadline: Duration::from_micros(500_000 + rng.below(3_500_001)),
        });
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(objects: &[Object], class: Class) -> usize {
        objects.iter().filter(|o| o.class == class).count()
    }

    #[test]
    fn object_counts_are_those_of_tables_1_and_2() {
        // Table 2 sums over high objects: equal and unequal-2 600, filesystem 3000, random 204.
        let cases = [
            (Workload::Uniform, 600, 0, 0),
            (Workload::Equal, 600, 0, 150),
            (Workload::Unequal1, 600, 0, 38),
            (Workload::Unequal2, 600, 0, 38),
            (Workload::Reversed, 38, 0, 600),
            (Workload::Filesystem, 3000, 0, 300),
            (Workload::Random, 204, 191, 205),
        ];
        for (workload, high, medium, low) in cases {
            let objects = workload.objects(1, Time::ZERO);
            let counts = [Class::High, Class::Medium, Class::Low].map(|c| count(&objects, c));
            assert_eq!(counts, [high, medium, low], "{workload:?}");
            let classes = counts.iter().filter(|n| **n > 0).count();
            assert_eq!(workload.classes().count(), classes, "{workload:?}");
        }
    }

    #[test]
    fn objects_are_ordered_within_trace_and_depend_on_seed() {
        for workload in Workload::ALL {
            let objects = workload.objects(7, Time::from_secs(1));
            assert!(objects.is_sorted_by_key(|o| o.arrival));
            let last = objects.iter().map(|o| o.arrival).max().unwrap();
            assert!(last > Time::from_secs(290) && last < Time::from_secs(302), "{workload:?}: {last}");
            assert!(objects.iter().all(|o| (1..=256 * KB).contains(&o.size)));
            assert_eq!(objects, workload.objects(7, Time::from_secs(1)));
            assert_ne!(objects, workload.objects(8, Time::from_secs(1)));
        }
    }
}
