//! Programs that use many small files of a mount over a slow link: 1 Mbit/s half duplex, 20 ms each way, bad periods of
//! 80 ms.

use std::time::Duration;

use remora_channel::ErrorModel;
use remora_client::{ClientConfig, Transport};
use remora_sim::mount::walks::{self, Walk, WalkLoad, WalkTimes};

const SEEDS: u64 = 5;

/// The times of a walk by seed, with an idle time before the second run.
fn all_with(walk: Walk, pause: Duration) -> Vec<WalkTimes> {
    let errors = ErrorModel::bursts(Duration::from_millis(80));
    let channel = remora_channel::Config { delay: Duration::from_millis(20), errors, ..Default::default() };
    let load = WalkLoad { walk, pause, client: ClientConfig::new(Transport::Udp), channel };
    let all: Vec<WalkTimes> = (1..=SEEDS).map(|seed| walks::run(&load, seed).unwrap()).collect();
    all.iter().for_each(|times| println!("{walk:?} {pause:?}: {times:.2?}"));
    all
}

fn all(walk: Walk) -> Vec<WalkTimes> {
    all_with(walk, Duration::ZERO)
}

fn largest(all: &[WalkTimes], of: impl Fn(&WalkTimes) -> f64) -> f64 {
    all.iter().map(of).fold(0.0, f64::max)
}

#[test]
fn listing_of_many_directories_is_limited_by_the_link() {
    let all = all(Walk::List);
    let (first, again) = (largest(&all, |times| times.first), largest(&all, |times| times.again));
    assert!(first <= 4.4, "{first} s");
    assert!(again <= 0.5, "again: {again} s");
}

#[test]
fn old_attributes_are_renewed_directory_by_directory() {
    for (walk, bar) in [(Walk::List, 4.4), (Walk::GitStatus, 5.5)] {
        let again = largest(&all_with(walk, Duration::from_secs(70)), |times| times.again);
        assert!(again <= bar, "{walk:?} after 70 s: {again} s");
    }
}

#[test]
fn git_status_reads_small_files_ahead() {
    let all = all(Walk::GitStatus);
    let (first, again) = (largest(&all, |times| times.first), largest(&all, |times| times.again));
    assert!(first <= 21.0, "{first} s");
    assert!(again <= 1.0, "again: {again} s");
    let (fetched, used) = all.iter().fold((0, 0), |(f, u), t| (f + t.ahead_bytes, u + t.ahead_used_bytes));
    assert!(used * 100 >= fetched * 95, "{used} of {fetched} bytes that were read ahead are used");
}

#[test]
fn archive_of_small_files_is_unpacked_in_few_round_trips() {
    let first = largest(&all(Walk::Untar), |times| times.first);
    assert!(first <= 45.4, "{first} s");
}
