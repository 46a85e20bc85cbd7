//! State that all parts of a `cp` share: flags, counts and failures.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::config::filter::Filter;
use crate::cp::created_objects::CreatedObjects;
use crate::cp::flags::Cp;
use crate::cp::ui::progress::{Progress, summary};
use crate::interrupt::Kept;
use crate::output::exit::{Error, Result, io_text};
use crate::output::{escape, stdio};

/// Largest number of failures that are listed; further ones are counted.
const ERRORS_LISTED_MAX: usize = 1000;

/// A run of `cp`.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) recursive: bool,
    pub(crate) resume: bool,
    pub(crate) verify: bool,
    pub(crate) preserve: bool,
    pub(crate) no_clobber: bool,
    pub(crate) filter: Filter,
    verbose: bool,
    json: bool,
    pub(crate) progress: Progress,
    pub(crate) kept: Kept,
    pub(crate) counts: Counts,
    pub(crate) created: CreatedObjects,
    failures: Mutex<Failures>,
    /// The message about an unwritable journal was printed.
    is_unnoted_told: AtomicBool,
    began: Instant,
    /// Time until the first server was mounted.
    mounting: OnceLock<Duration>,
}

/// Objects copied, by type.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) files: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) symlinks: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) verified: AtomicU64,
}

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    worst: u8,
    texts: Vec<String>,
    /// The error that ends the run was printed.
    is_end_told: bool,
}

impl Failures {
    /// Counts a failure. Returns whether it was printed before, and the worst exit code so far.
    fn add(&mut self, error: &Error, fatal: bool) -> (bool, u8) {
        self.count += 1;
        self.worst = self.worst.max(error.code());
        if self.texts.len() < ERRORS_LISTED_MAX {
            self.texts.push(error.to_string());
        }
        // A lost link fails many files at once; one message is enough.
        (fatal && std::mem::replace(&mut self.is_end_told, true), self.worst)
    }
}

/// The report of `--json`, documented in the help of `cp`.
#[derive(Serialize)]
struct Report {
    files: u64,
    directories: u64,
    symlinks: u64,
    skipped: u64,
    failed: u64,
    verified: u64,
    bytes: u64,
    resumed_bytes: u64,
    hole_bytes: u64,
    seconds: f64,
    mount_seconds: f64,
    copy_seconds: f64,
    requests: u64,
    retransmissions: u64,
    errors: Vec<String>,
}

impl Counts {
    /// Number of objects copied.
    pub(crate) fn placed(&self) -> u64 {
        [&self.files, &self.directories, &self.symlinks].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Job {
    pub(crate) fn new(args: &Cp, kept: Kept) -> Job {
        Job {
            recursive: args.recursive || args.archive,
            resume: args.resume,
            verify: args.verify,
            preserve: args.preserve || args.archive,
            no_clobber: args.no_clobber,
            filter: args.filter.0.clone(),
            verbose: args.verbose,
            json: args.json,
            progress: Progress::of_copy(!args.quiet && !args.json, args.verify),
            kept,
            counts: Counts::default(),
            created: CreatedObjects::default(),
            failures: Mutex::default(),
            is_unnoted_told: AtomicBool::new(false),
            began: Instant::now(),
            mounting: OnceLock::new(),
        }
    }

    /// A server was mounted. The first one counts.
    pub(crate) fn mounted(&self) {
        let _ = self.mounting.set(self.began.elapsed());
    }

    /// `from` is copied to `to`; `-v` prints both as cp(1) does.
    pub(crate) fn copied(&self, counter: &AtomicU64, from: impl fmt::Display, to: impl fmt::Display) {
        count(counter);
        if self.verbose {
            let [from, to] = [from.to_string(), to.to_string()].map(|name| escape::printable(name.as_bytes()));
            let mut told = Ok(());
            self.progress.suspend(|| told = stdio::print(&format!("'{from}' -> '{to}'\n")));
            // A closed standard output does not stop the copy.
            let _ = self.settle(told.or_else(|e| if matches!(e, Error::Pipe) { Ok(()) } else { Err(e) }));
        }
    }

    /// `-n`: the destination stays.
    pub(crate) fn leave(&self, there: impl fmt::Display) {
        count(&self.counts.skipped);
        if self.verbose {
            self.note(&format!("{there}: skipped: it exists"));
        }
    }

    /// Records a failure, and returns it only if it ends the run.
    pub(crate) fn settle(&self, result: Result) -> Result {
        let error = match result {
            Ok(()) => return Ok(()),
            // It is recorded already and ends the run.
            Err(Error::Reported(code)) => return Err(Error::Reported(code)),
            Err(error) => error,
        };
        let fatal = error.is_lost() || error.is_full();
        let (is_told, worst) = self.failures.lock().unwrap_or_else(PoisonError::into_inner).add(&error, fatal);
        if !is_told {
            self.progress.suspend(|| stdio::print_error("cp", &error));
        }
        if fatal { Err(Error::Reported(worst)) } else { Ok(()) }
    }

    /// Whether anything has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).count > 0
    }

    /// Prints a note.
    pub(crate) fn note(&self, text: &str) {
        let text = escape::printable(text.as_bytes());
        self.progress.suspend(|| stdio::eprint(format_args!("remora: cp: {text}")));
    }

    /// Prints once that the progress of uploads cannot be recorded, and why. The copies go on.
    pub(crate) fn cannot_note(&self, why: &io::Error) {
        if !self.is_unnoted_told.swap(true, Ordering::Relaxed) {
            let what = "an interrupted copy cannot be resumed: the journal cannot be written";
            self.note(&format!("{what}: {}", io_text(why)));
        }
    }

    /// Prints the report and returns the result of the run.
    pub(crate) fn finish(&self) -> Result {
        let took = self.began.elapsed();
        let mounting = self.mounting.get().copied().unwrap_or(took);
        let (requests, retransmissions) = self.progress.calls();
        if self.progress.clear() {
            stdio::eprint(summary(self.progress.done(), took, retransmissions));
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = Ok(());
        if self.json {
            let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            told = stdio::print_json(&Report {
                files: number(&self.counts.files),
                directories: number(&self.counts.directories),
                symlinks: number(&self.counts.symlinks),
                skipped: number(&self.counts.skipped),
                failed: failures.count,
                verified: number(&self.counts.verified),
                bytes: self.progress.done(),
                resumed_bytes: self.progress.before(),
                hole_bytes: self.progress.in_holes(),
                seconds: took.as_secs_f64(),
                mount_seconds: mounting.as_secs_f64(),
                copy_seconds: took.saturating_sub(mounting).as_secs_f64(),
                requests,
                retransmissions,
                errors: std::mem::take(&mut failures.texts),
            });
        }
        match told {
            // What has failed has failed, whether or not somebody reads of it.
            Ok(()) | Err(Error::Pipe) if failures.count > 0 => Err(Error::Reported(failures.worst)),
            told => told,
        }
    }
}
