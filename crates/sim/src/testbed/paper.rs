//! The papers' measurements: NFS/W 95, tables 1 to 9, and the figures of NFS/W 97 as far as its
//! text states them. Seconds for a file of 1 MB in blocks of 4096 bytes, 10 runs each.

use super::setup::Treatment;
use crate::copy::Direction;

/// Minimum, mean and maximum of ten runs, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seconds {
    pub min: f64,
    pub avg: f64,
    pub max: f64,
}

/// One cell of the tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// Number of the paper's table.
    pub table: u32,
    pub treatment: Treatment,
    pub direction: Direction,
    /// Mean length of bad periods in ms; 0 without errors.
    pub bad_mean_ms: u64,
    /// Concurrent mobiles; the times are those of the first.
    pub mobiles: usize,
    pub seconds: Seconds,
}

const fn cell(
    table: u32,
    treatment: Treatment,
    direction: Direction,
    bad_mean_ms: u64,
    mobiles: usize,
    [min, avg, max]: [f64; 3],
) -> Cell {
    Cell { table, treatment, direction, bad_mean_ms, mobiles, seconds: Seconds { min, avg, max } }
}

use Direction::{Read, Write};
use Treatment::{Both, Linear, NoChanges, Retransmit};

/// Tables 1 to 4 and 7 to 9. Tables 5 and 6 repeat the means of tables 1 to 4.
pub const CELLS: [Cell; 26] = [
    cell(1, NoChanges, Read, 40, 1, [43.3, 49.2, 51.9]),
    cell(1, NoChanges, Write, 40, 1, [22.5, 24.7, 27.7]),
    cell(1, NoChanges, Read, 80, 1, [54.8, 67.7, 78.4]),
    cell(1, NoChanges, Write, 80, 1, [33.4, 45.5, 54.4]),
    cell(2, Linear, Read, 40, 1, [42.1, 48.0, 54.4]),
    cell(2, Linear, Write, 40, 1, [21.9, 24.6, 26.7]),
    cell(2, Linear, Read, 80, 1, [43.8, 48.7, 52.9]),
    cell(2, Linear, Write, 80, 1, [22.6, 24.4, 27.5]),
    cell(3, Retransmit, Read, 40, 1, [35.1, 38.3, 41.8]),
    cell(3, Retransmit, Write, 40, 1, [14.2, 16.9, 20.0]),
    cell(3, Retransmit, Read, 80, 1, [31.1, 31.7, 33.5]),
    cell(3, Retransmit, Write, 80, 1, [15.0, 15.3, 15.6]),
    cell(4, Both, Read, 40, 1, [34.0, 37.0, 42.2]),
    cell(4, Both, Write, 40, 1, [15.3, 16.7, 18.0]),
    cell(4, Both, Read, 80, 1, [31.3, 31.9, 33.2]),
    cell(4, Both, Write, 80, 1, [14.3, 14.8, 15.1]),
    cell(7, NoChanges, Read, 0, 1, [30.1, 30.7, 32.2]),
    cell(7, NoChanges, Write, 0, 1, [13.9, 14.2, 14.9]),
    cell(8, NoChanges, Read, 40, 2, [50.0, 56.1, 64.5]),
    cell(8, NoChanges, Read, 80, 2, [52.3, 61.9, 70.4]),
    cell(8, Both, Read, 40, 2, [30.6, 33.4, 36.9]),
    cell(8, Both, Read, 80, 2, [32.9, 35.2, 38.5]),
    cell(9, NoChanges, Write, 40, 2, [35.9, 46.1, 51.6]),
    cell(9, NoChanges, Write, 80, 2, [31.7, 45.0, 68.1]),
    cell(9, Both, Write, 40, 2, [20.0, 25.3, 34.4]),
    cell(9, Both, Write, 80, 2, [20.5, 25.5, 30.2]),
];

/// The papers' measurement, if any.
pub fn seconds(treatment: Treatment, direction: Direction, bad_mean_ms: u64, mobiles: usize) -> Option<Seconds> {
    let same = |c: &&Cell| {
        (c.treatment, c.direction, c.bad_mean_ms, c.mobiles) == (treatment, direction, bad_mean_ms, mobiles)
    };
    CELLS.iter().find(same).map(|c| c.seconds)
}

/// A treatment's reduction of the mean time in percent, if both were measured.
pub fn reduction(treatment: Treatment, direction: Direction, bad_mean_ms: u64, mobiles: usize) -> Option<f64> {
    let before = seconds(NoChanges, direction, bad_mean_ms, mobiles)?.avg;
    let after = seconds(treatment, direction, bad_mean_ms, mobiles)?.avg;
    Some(super::setup::reduction(before, after))
}

/// Bad means of the figures of NFS/W 97, in ms.
pub const BAD_MEANS_MS: [u64; 5] = [0, 40, 80, 120, 160];
/// Block sizes of both papers, in bytes.
pub const BLOCKS: [u32; 4] = [1024, 2048, 4096, 8192];
/// NFS/W 97: maximum reduction over all bad means, in percent.
pub const REDUCTION_MAX: f64 = 62.0;
/// NFS/W 97: with both changes at a bad mean of 40 ms, maximum deviation from the times without
/// errors, in percent.
pub const FROM_ZERO_ERRORS_MAX: f64 = 5.0;
/// NFS/W 97: one read at a bad mean of 160 ms, without and with both changes, in KB/s.
pub const READ_AT_160_MS: [f64; 2] = [8.4, 19.2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_unique_and_in_order() {
        for (n, c) in CELLS.iter().enumerate() {
            assert!(c.seconds.min <= c.seconds.avg && c.seconds.avg <= c.seconds.max, "{c:?}");
            let found = seconds(c.treatment, c.direction, c.bad_mean_ms, c.mobiles);
            assert_eq!(found, Some(c.seconds), "cell {n} is there twice");
        }
    }

    #[test]
    fn reductions_are_those_the_paper_states() {
        // NFS/W 95, abstract and sections 4.2, 4.3 and 4.5.
        let stated = [
            (Linear, Read, 80, 1, 28.0),
            (Retransmit, Read, 80, 1, 53.0),
            (Both, Write, 80, 1, 67.0),
            (Both, Read, 80, 2, 43.0),
            (Both, Write, 40, 2, 45.0),
        ];
        for (treatment, direction, bad, mobiles, percent) in stated {
            let r = reduction(treatment, direction, bad, mobiles).expect("measured");
            assert!((r - percent).abs() < 1.0, "{treatment:?} {direction:?} at {bad} ms: {r} %");
        }
        assert_eq!(reduction(Linear, Read, 120, 1), None);
    }
}
