//! Small operations on a mount while a large file crosses a slow link: 1 Mbit/s half duplex, 20 ms each way, bad
//! periods of 80 ms.

use std::time::Duration;

use remora_channel::ErrorModel;
use remora_client::{ClientConfig, Transport};
use remora_sim::copy::Direction;
use remora_sim::mount::busy_link::{self, Load, Times};

const SEEDS: u64 = 20;
/// Bytes of the link in a second.
const RATE: f64 = 125_000.0;

fn load(direction: Direction, bytes: usize, has_small: bool) -> Load {
    let errors = ErrorModel::bursts(Duration::from_millis(80));
    let channel = remora_channel::Config { delay: Duration::from_millis(20), errors, ..Default::default() };
    Load { client: ClientConfig::new(Transport::Udp), channel, direction, bytes, has_small }
}

fn quantile(times: &[f64], q: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[((times.len() as f64 * q) as usize).min(times.len() - 1)]
}

#[test]
fn small_operations_are_short_while_a_large_file_is_written() {
    let (mut all, mut alone, mut mixed, mut small_bytes) = (Times::default(), 0.0, 0.0, 0);
    for seed in 1..=SEEDS {
        alone += busy_link::run(&load(Direction::Write, 4 << 20, false), seed).unwrap().large;
        let times = busy_link::run(&load(Direction::Write, 4 << 20, true), seed).unwrap();
        mixed += times.large;
        small_bytes += times.small_bytes();
        all.documents.extend(times.documents);
        all.creations.extend(times.creations);
        all.saves.extend(times.saves);
    }
    let [document, creation, save] = [&all.documents, &all.creations, &all.saves].map(|t| quantile(t, 0.95));
    let share = (mixed - small_bytes as f64 / RATE) / alone;
    println!("p95: document {document:.3} s, creation {creation:.3} s, save {save:.3} s; large file {share:.3}");
    println!("medians: {:.3?}", [&all.documents, &all.creations, &all.saves].map(|t| quantile(t, 0.5)));
    assert!(document <= 0.75, "a document of 20 KiB: {document} s");
    assert!(creation <= 0.6, "a file of 100 bytes: {creation} s");
    assert!(save <= 1.1, "a save of 20 KiB: {save} s");
    assert!(share <= 1.1, "the large file takes {share} of its time alone");
}

#[test]
fn megabyte_takes_little_more_than_the_link_needs() {
    for direction in [Direction::Read, Direction::Write] {
        let seconds = |seed| busy_link::run(&load(direction, 1 << 20, false), seed).unwrap().large;
        let mean = (1..=SEEDS).map(seconds).sum::<f64>() / SEEDS as f64;
        println!("{direction:?}: {mean:.2} s");
        assert!(mean <= 11.0, "{direction:?}: {mean} s");
    }
}
