//! What all parts of one `cp` share: its flags, its counts and its failures.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::Cp;
use crate::cp::created_objects::CreatedObjects;
use crate::cp::ui::progress::{Progress, summary};
use crate::exit::{self, Error, Result, io_text};
use crate::filter::Filter;
use crate::interrupt::Kept;
use crate::out;

/// How many failures are listed; further ones are only counted.
const ERRORS_LISTED_MAX: usize = 1000;

/// One run of `cp`.
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
    /// That what has arrived cannot be noted was said.
    is_unnoted_told: AtomicBool,
    began: Instant,
    /// Until the first server was mounted.
    mounting: OnceLock<Duration>,
}

/// How many of what have been copied.
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
    /// It was said why nothing more is tried.
    is_end_told: bool,
}

impl Failures {
    /// One more. Says whether it was told already, and the code of the worst so far.
    fn add(&mut self, error: &Error, fatal: bool) -> (bool, u8) {
        self.count += 1;
        self.worst = self.worst.max(error.code());
        if self.texts.len() < ERRORS_LISTED_MAX {
            self.texts.push(error.to_string());
        }
        // One lost link fails many files at once; once is enough.
        (fatal && std::mem::replace(&mut self.is_end_told, true), self.worst)
    }
}

/// What `--json` prints at the end; documented in the help of `cp`.
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
    /// How many copies are in their places.
    pub(crate) fn placed(&self) -> u64 {
        [&self.files, &self.directories, &self.symlinks].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// One more.
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

    /// A server was mounted. Of several the first counts: others are mounted between copies.
    pub(crate) fn mounted(&self) {
        let _ = self.mounting.set(self.began.elapsed());
    }

    /// A copy of `from` is in its place at `to`; `-v` prints both as cp(1) does.
    pub(crate) fn copied(&self, counter: &AtomicU64, from: impl fmt::Display, to: impl fmt::Display) {
        count(counter);
        if self.verbose {
            let [from, to] = [from.to_string(), to.to_string()].map(|name| out::shown(name.as_bytes()));
            let mut told = Ok(());
            self.progress.suspend(|| told = out::text(&format!("'{from}' -> '{to}'\n")));
            // Whether or not somebody reads it, there is the next file to copy.
            let _ = self.settle(told.or_else(|e| if matches!(e, Error::Pipe) { Ok(()) } else { Err(e) }));
        }
    }

    /// With `-n` what is at the destination stays.
    pub(crate) fn leave(&self, there: impl fmt::Display) {
        count(&self.counts.skipped);
        if self.verbose {
            self.note(&format!("{there}: skipped, because it exists"));
        }
    }

    /// Takes note of a failure; only what makes all that follows fail, too, is passed on.
    pub(crate) fn settle(&self, result: Result) -> Result {
        let error = match result {
            Ok(()) => return Ok(()),
            // It has been settled, and makes all that follows fail, too.
            Err(Error::Reported(code)) => return Err(Error::Reported(code)),
            Err(error) => error,
        };
        let fatal = error.is_lost() || error.is_full();
        let (is_told, worst) = self.failures.lock().unwrap_or_else(PoisonError::into_inner).add(&error, fatal);
        if !is_told {
            self.progress.suspend(|| exit::show("cp", &error));
        }
        if fatal { Err(Error::Reported(worst)) } else { Ok(()) }
    }

    /// Whether anything has failed so far.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).count > 0
    }

    /// Something that is skipped, or worth knowing.
    pub(crate) fn note(&self, text: &str) {
        let text = out::shown(text.as_bytes());
        self.progress.suspend(|| out::say(format_args!("remora: cp: {text}")));
    }

    /// What has arrived of uploads cannot be noted here, and why. The copies are worth more than that they can be
    /// resumed; said once, for it will be the same for all.
    pub(crate) fn cannot_note(&self, why: &io::Error) {
        if !self.is_unnoted_told.swap(true, Ordering::Relaxed) {
            let what = "if the copy is interrupted it begins anew: what has arrived could not be noted here";
            self.note(&format!("{what}: {}", io_text(why)));
        }
    }

    /// The end: prints the report and says how it went.
    pub(crate) fn finish(&self) -> Result {
        let took = self.began.elapsed();
        let mounting = self.mounting.get().copied().unwrap_or(took);
        let (requests, retransmissions) = self.progress.calls();
        if self.progress.clear() {
            out::say(summary(self.progress.done(), took, retransmissions));
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = Ok(());
        if self.json {
            let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            told = out::json(&Report {
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
