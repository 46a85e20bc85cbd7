//! The papers' results on the simulated testbed: the treatments' reductions, the optimum block
//! size, and two mobiles (NFS/W 95, section 4).

use std::collections::BTreeMap;
use std::time::Duration;

use remora_sim::copy::{self, Direction};
use remora_sim::testbed::{self, BLOCK, Treatment, paper};

/// The first seed. The constants were fitted on seeds 1 to 40 and chosen on 5001 to 5080.
const FIRST_SEED: u64 = 10_001;
/// Maximum difference from the paper's reductions, in percentage points.
const NEAR: f64 = 12.0;
const NEAR_MIN: usize = 8;
/// The same of both treatments for two mobiles; times without changes scatter more there.
const TWO_MOBILES_NEAR: f64 = 16.0;

/// A copy on the testbed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cell {
    treatment: Treatment,
    direction: Direction,
    bad_mean_ms: u64,
    block: u32,
    mobiles: usize,
}

impl Cell {
    /// One mobile's copy in blocks of 4096 bytes.
    fn new(treatment: Treatment, direction: Direction, bad_mean_ms: u64) -> Cell {
        Cell { treatment, direction, bad_mean_ms, block: BLOCK, mobiles: 1 }
    }
}

/// Seeds for a cell: enough for a stable mean, few enough for a debug build. Compared cells have
/// the same: times with exponential back-off scatter widely, mostly with the errors of the seed.
fn seeds(cell: &Cell) -> u64 {
    match cell.bad_mean_ms {
        0 => 2,
        _ => 40,
    }
}

/// The seconds of each cell by seed, two cells at a time; none for a censored run.
#[expect(clippy::disallowed_methods, reason = "the test has threads; the worlds it runs have not")]
fn seconds(cells: &[Cell]) -> BTreeMap<Cell, Vec<Option<f64>>> {
    let of_seed = |cell: Cell, seed: u64| {
        let Cell { treatment, direction, bad_mean_ms, block, mobiles } = cell;
        let bad_mean = Duration::from_millis(bad_mean_ms);
        let config = testbed::copy_config(treatment, direction, bad_mean, block, mobiles);
        copy::run(&config, seed).unwrap_or_else(|e| panic!("{cell:?}, seed {seed}: {e}")).first().seconds
    };
    let of_cell = |cell: &Cell| {
        (*cell, (FIRST_SEED..FIRST_SEED + seeds(cell)).map(|seed| of_seed(*cell, seed)).collect::<Vec<_>>())
    };
    let half = |odd: usize| cells.iter().skip(odd).step_by(2).map(of_cell).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut all: BTreeMap<Cell, Vec<Option<f64>>> = half(0).into_iter().collect();
        all.extend(other.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        all
    })
}

fn mean(seconds: impl Iterator<Item = f64>) -> f64 {
    let (sum, runs) = seconds.fold((0.0, 0u32), |(sum, runs), s| (sum + s, runs + 1));
    sum / f64::from(runs)
}

/// The mean seconds of each cell.
fn means(cells: &[Cell]) -> BTreeMap<Cell, f64> {
    seconds(cells).into_iter().map(|(cell, seconds)| (cell, mean(seconds.into_iter().flatten()))).collect()
}

/// Reduction of the mean in percent, over the seeds done by the limit in both.
fn reduction(before: &[Option<f64>], after: &[Option<f64>]) -> f64 {
    let pairs: Vec<(f64, f64)> = before.iter().zip(after).filter_map(|(b, a)| b.zip(*a)).collect();
    testbed::reduction(mean(pairs.iter().map(|p| p.0)), mean(pairs.iter().map(|p| p.1)))
}

/// A treatment's reductions in percent of the papers' cells with `mobiles` mobiles, with the
/// paper's numbers.
fn reductions(mobiles: usize) -> Vec<(Cell, f64, f64)> {
    let of = |c: &paper::Cell| Cell { mobiles, ..Cell::new(c.treatment, c.direction, c.bad_mean_ms) };
    let cells: Vec<Cell> = paper::CELLS.iter().filter(|c| c.mobiles == mobiles && c.bad_mean_ms > 0).map(of).collect();
    let seconds = seconds(&cells);
    let treated = cells.into_iter().filter(|c| c.treatment != Treatment::NoChanges);
    treated
        .map(|cell| {
            let before = &seconds[&Cell { treatment: Treatment::NoChanges, ..cell }];
            let stated = paper::reduction(cell.treatment, cell.direction, cell.bad_mean_ms, mobiles).expect("measured");
            (cell, reduction(before, &seconds[&cell]), stated)
        })
        .collect()
}

#[test]
fn treatments_reduce_times_as_in_the_paper() {
    let all = reductions(1);
    assert_eq!(all.len(), 12);
    let near = all.iter().filter(|(_, reduction, stated)| (reduction - stated).abs() <= NEAR).count();
    assert!(near >= NEAR_MIN, "{near} of 12 are within {NEAR} points: {all:#?}");
}

#[test]
fn two_mobiles_have_the_papers_reductions_but_one() {
    let all = reductions(2);
    assert!(all.iter().all(|(_, reduction, _)| *reduction > 8.0), "{all:#?}");
    let near = all.iter().filter(|(_, reduction, stated)| (reduction - stated).abs() <= TWO_MOBILES_NEAR).count();
    // Writes at 40 ms gain 18 % here and 45 % in the paper: docs/results/testbed.md.
    assert!(near >= 3, "{near} of 4 are within {TWO_MOBILES_NEAR} points: {all:#?}");
}

#[test]
fn blocks_of_4096_bytes_write_fastest_at_80_ms() {
    let cells = paper::BLOCKS.map(|block| Cell { block, ..Cell::new(Treatment::NoChanges, Direction::Write, 80) });
    let means = means(&cells);
    let best = cells.into_iter().min_by(|a, b| means[a].total_cmp(&means[b])).expect("four sizes");
    assert_eq!(best.block, BLOCK, "{means:?}");
}

#[test]
fn copy_without_errors_takes_the_papers_time() {
    let cells = [Direction::Read, Direction::Write].map(|d| Cell::new(Treatment::NoChanges, d, 0));
    let means = means(&cells);
    for cell in cells {
        let measured = paper::seconds(cell.treatment, cell.direction, 0, 1).expect("measured").avg;
        let ratio = means[&cell] / measured;
        assert!((0.8..1.25).contains(&ratio), "{:?}: {} s, the paper: {measured} s", cell.direction, means[&cell]);
    }
}

#[test]
fn largest_reduction_and_remainder_are_as_stated() {
    for direction in [Direction::Read, Direction::Write] {
        let cell = |treatment, bad_mean_ms| Cell::new(treatment, direction, bad_mean_ms);
        let (before, after) = (cell(Treatment::NoChanges, 160), cell(Treatment::Both, 160));
        let (without, at_40) = (cell(Treatment::NoChanges, 0), cell(Treatment::Both, 40));
        let seconds = seconds(&[before, after, without, at_40]);
        let means: BTreeMap<Cell, f64> =
            seconds.iter().map(|(cell, seconds)| (*cell, mean(seconds.iter().copied().flatten()))).collect();
        let reduction = reduction(&seconds[&before], &seconds[&after]);
        assert!((reduction - paper::REDUCTION_MAX).abs() <= NEAR, "{direction:?}: {reduction} %");
        let above = (means[&at_40] / means[&without] - 1.0) * 100.0;
        assert!(above <= paper::FROM_ZERO_ERRORS_MAX, "{direction:?}: {above} % above zero errors");
        for (cell, stated) in [before, after].iter().zip(paper::READ_AT_160_MS) {
            let rate = 1024.0 / means[cell];
            // One run of the paper's, of reading. Here the hold that emulates retransmission costs nothing but the bad
            // periods, so that both changes give 1.6 times the paper's rate.
            let is_near = direction == Direction::Write || (stated / 1.7..stated * 1.7).contains(&rate);
            assert!(is_near, "{rate} KB/s, the paper: {stated}");
        }
    }
}

/// The papers' two readers are no faster than one (tables 4, 7 and 8): 33 to 35 s after 31 to 37 s.
#[test]
fn second_mobile_makes_no_copy_faster() {
    for direction in [Direction::Read, Direction::Write] {
        for (treatment, bad_mean_ms) in [(Treatment::NoChanges, 0), (Treatment::Both, 80)] {
            let one = Cell::new(treatment, direction, bad_mean_ms);
            let two = Cell { mobiles: 2, ..one };
            let means = means(&[one, two]);
            assert!(means[&two] >= 0.99 * means[&one], "{one:?}: {} s, with another {} s", means[&one], means[&two]);
        }
    }
}
