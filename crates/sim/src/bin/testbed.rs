//! `testbed`: prints the tables of NFS/W 95 and the figures of NFS/W 97, simulated and as measured
//! in the papers.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use remora_sim::copy::{CopyError, Direction};
use remora_sim::testbed::{self, BLOCK, Measured, Treatment, paper};

/// Maximum difference of a reproduced reduction, in percentage points.
const NEAR: f64 = 12.0;

/// Copies 1 MB on the papers' testbed in virtual time and prints the papers' tables beside the
/// results.
#[derive(Parser)]
#[command(name = "testbed")]
struct Args {
    /// Seeds for each cell.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed. The constants were fitted on seeds 1 to 40 and chosen on 5001 to 5080.
    #[arg(long, default_value_t = 10_001)]
    from: u64,
    /// Number of worker threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Prints only the tables, not block sizes and figures.
    #[arg(long)]
    tables: bool,
}

/// The configuration of a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cell {
    treatment: Treatment,
    direction: Direction,
    bad_mean_ms: u64,
    block: u32,
    mobiles: usize,
}

/// Cells and their times.
struct Results(Vec<(Cell, Measured)>);

impl Results {
    fn of(&self, cell: Cell) -> Option<&Measured> {
        self.0.iter().find(|(c, _)| *c == cell).map(|(_, m)| m)
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];

fn cells(tables_only: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut add = |treatment, direction, bad_mean_ms, block, mobiles| {
        let cell = Cell { treatment, direction, bad_mean_ms, block, mobiles };
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    };
    for direction in DIRECTIONS {
        for c in paper::CELLS.iter().filter(|c| c.direction == direction) {
            add(c.treatment, direction, c.bad_mean_ms, BLOCK, c.mobiles);
        }
        if tables_only {
            continue;
        }
        for bad_mean_ms in paper::BAD_MEANS_MS {
            paper::BLOCKS.into_iter().for_each(|b| add(Treatment::NoChanges, direction, bad_mean_ms, b, 1));
            Treatment::ALL.into_iter().for_each(|t| add(t, direction, bad_mean_ms, BLOCK, 1));
        }
    }
    cells
}

#[expect(clippy::disallowed_methods, reason = "the program has threads; the worlds it runs have not")]
fn measure_all(args: &Args) -> Result<Results, CopyError> {
    let cells = cells(args.tables);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let bad_mean = Duration::from_millis(cell.bad_mean_ms);
                    let config =
                        testbed::copy_config(cell.treatment, cell.direction, bad_mean, cell.block, cell.mobiles);
                    let measured = testbed::measure(&config, args.from..args.from.saturating_add(args.seeds));
                    let row = measured.map(|m| (*cell, m));
                    done.lock().unwrap_or_else(|e| e.into_inner()).push(row);
                }
            });
        }
    });
    let rows = done.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok(Results(rows.into_iter().collect::<Result<_, _>>()?))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let results = match measure_all(&args) {
        Ok(results) => results,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "Seconds for 1 MB, mean of {} seeds from {} (least and longest); the paper's mean.",
        args.seeds, args.from
    );
    tables(&results, 1);
    println!("\nTwo mobiles (tables 8 and 9)");
    tables(&results, 2);
    if !args.tables {
        blocks(&results);
        figures(&results);
    }
    ExitCode::SUCCESS
}

fn tables(results: &Results, mobiles: usize) {
    println!("bad  op     treatment           seconds              paper   reduction          paper");
    let (mut near, mut counted) = (0, 0);
    for c in paper::CELLS.iter().filter(|c| c.mobiles == mobiles) {
        let cell =
            Cell { treatment: c.treatment, direction: c.direction, bad_mean_ms: c.bad_mean_ms, block: BLOCK, mobiles };
        let Some(m) = results.of(cell) else { continue };
        let head = format!("{:3}  {:5}  {:18}", c.bad_mean_ms, name(c.direction), c.treatment.name());
        print!("{head}  {:5.1} ({:.1}..{:.1})  {:6.1}", m.mean(), m.min(), m.max(), c.seconds.avg);
        let before = results.of(Cell { treatment: Treatment::NoChanges, ..cell });
        let stated = paper::reduction(c.treatment, c.direction, c.bad_mean_ms, mobiles);
        if let (Some(before), Some(stated), true) = (before, stated, c.treatment != Treatment::NoChanges) {
            let reduction = testbed::reduction(before.mean(), m.mean());
            let error = error_of_reduction(before, m);
            let ok = (reduction - stated).abs() <= NEAR;
            near += usize::from(ok);
            counted += 1;
            print!("   {reduction:5.1} +- {error:.1} %  {stated:5.1} %{}", if ok { "" } else { "  off" });
        }
        println!("{}", if m.censored > 0 { format!("  {} censored", m.censored) } else { String::new() });
    }
    println!("{near} of {counted} reductions are within {NEAR} points of the paper's.");
}

/// One standard error of a reduction in percent, from the errors of both means. With the same seeds
/// in both, an upper estimate.
fn error_of_reduction(before: &Measured, after: &Measured) -> f64 {
    let relative = |m: &Measured| m.standard_error() / m.mean();
    100.0 * after.mean() / before.mean() * relative(before).hypot(relative(after))
}

fn blocks(results: &Results) {
    println!("\nBlock size, no changes (NFS/W 95, Figure 4; NFS/W 97, Figures 3 and 4)");
    println!("bad  op       1024   2048   4096   8192");
    for direction in DIRECTIONS {
        for bad_mean_ms in paper::BAD_MEANS_MS {
            print!("{bad_mean_ms:3}  {:5}", name(direction));
            for block in paper::BLOCKS {
                let cell = Cell { treatment: Treatment::NoChanges, direction, bad_mean_ms, block, mobiles: 1 };
                print!("  {:5.1}", results.of(cell).map_or(f64::NAN, Measured::mean));
            }
            println!();
        }
    }
}

fn figures(results: &Results) {
    println!("\nTreatments over all bad means (NFS/W 97, Figures 5 and 6)");
    println!("bad  op     no changes  linear  retransmit  both");
    for direction in DIRECTIONS {
        for bad_mean_ms in paper::BAD_MEANS_MS {
            print!("{bad_mean_ms:3}  {:5}", name(direction));
            for (treatment, width) in Treatment::ALL.into_iter().zip([11, 8, 12, 6]) {
                let cell = Cell { treatment, direction, bad_mean_ms, block: BLOCK, mobiles: 1 };
                print!("{:width$.1}", results.of(cell).map_or(f64::NAN, Measured::mean));
            }
            println!();
        }
    }
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}
