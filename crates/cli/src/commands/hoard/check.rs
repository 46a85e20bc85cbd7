//! `remora hoard check`: whether everything of the profile is on this machine, and what is missing.

use remora_host::mount::report::{HoardProgressReport, HoardReport, MissingReport};
use serde::Serialize;

use crate::commands::hoard::flags::Check;
use crate::commands::mount::known_mounts;
use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Exit code where something is missing.
pub(crate) const MISSING: u8 = 6;
/// Missing paths that the text shows.
const SHOWN: usize = 20;

pub(crate) fn run(args: &Check) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let report = mount.hoard().map_err(|error| known_mounts::unanswered(&mount, error))?;
    if args.json {
        stdio::print_json(&Readiness::new(&report))?;
        return verdict(&report);
    }
    explain(&report)
}

/// Prints what is there and what is missing. Fails with [`MISSING`] if something is.
pub(super) fn explain(report: &HoardReport) -> Result {
    stdio::print(&text(report))?;
    verdict(report)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Readiness<'r> {
    is_ready: bool,
    entries: usize,
    files: u64,
    bytes: u64,
    files_missing: u64,
    bytes_missing: u64,
    seconds_left: Option<u64>,
    disk_bytes: u64,
    disk_bytes_max: u64,
    is_full: bool,
    is_paused: bool,
    is_walking: bool,
    age_ms: Option<u64>,
    missing: &'r [MissingReport],
}

impl<'r> Readiness<'r> {
    fn new(report: &'r HoardReport) -> Readiness<'r> {
        let shown = report.last.as_ref().or(report.running.as_ref());
        let figure = |get: fn(&HoardProgressReport) -> u64| shown.map_or(0, get);
        Readiness {
            is_ready: is_ready(report),
            entries: report.entries,
            files: figure(|progress| progress.files_wanted),
            bytes: figure(|progress| progress.bytes_wanted),
            files_missing: figure(|progress| progress.files_missing),
            bytes_missing: figure(|progress| progress.bytes_missing),
            seconds_left: shown.and_then(|progress| progress.seconds_left),
            disk_bytes: figure(|progress| progress.disk_bytes),
            disk_bytes_max: report.bytes_max,
            is_full: shown.is_some_and(|progress| progress.is_full),
            is_paused: report.is_paused,
            is_walking: report.running.is_some(),
            age_ms: report.finished_ms,
            missing: shown.map_or(&[], |progress| &progress.missing),
        }
    }
}

/// Whether the last walk found everything.
pub(super) fn is_ready(report: &HoardReport) -> bool {
    let has_profile = report.has_disk && report.entries > 0;
    has_profile && report.last.as_ref().is_some_and(|last| last.files_missing == 0 && !last.is_cut)
}

fn verdict(report: &HoardReport) -> Result {
    if is_ready(report) { Ok(()) } else { Err(Error::Reported(MISSING)) }
}

fn text(report: &HoardReport) -> String {
    if !report.has_disk {
        return "not ready: the mount has no cache on disk (mount without --cache-size 0)\n".to_owned();
    }
    if report.entries == 0 {
        return "not ready: the profile names nothing of this mount (remora hoard add PATH)\n".to_owned();
    }
    let waits = if report.is_paused { "; the walk waits for the server" } else { "" };
    let (progress, age) = match (&report.last, &report.running) {
        (Some(last), _) => (last, format!(" (as of {} ago)", time(report.finished_ms.unwrap_or(0) / 1000))),
        (None, Some(running)) => (running, format!(" so far; a walk is going on{waits}")),
        (None, None) => return format!("not ready: no walk over the profile yet{waits}\n"),
    };
    if is_ready(report) {
        let there = format!("{}, {}", files(progress.files_wanted), units::human(progress.bytes_wanted));
        return format!("ready to leave: {there}{age}\n");
    }
    let mut text = format!("not ready: {}{age}\n", missing(progress));
    for miss in progress.missing.iter().take(SHOWN) {
        let path = escape::printable(miss.path.as_bytes());
        text += &format!("  {path} ({}): {}\n", units::human(miss.bytes), miss.reason);
    }
    let more = progress.files_missing.saturating_sub(progress.missing.len().min(SHOWN) as u64);
    if more > 0 && !progress.missing.is_empty() {
        text += &format!("  and {more} more; --json lists the first 1000\n");
    }
    if progress.is_full {
        let max = units::human(report.bytes_max);
        text += &format!("hoarded files may take {max} of the cache on disk: mount with a larger --cache-size\n");
    }
    if progress.is_cut {
        text += "the profile names more objects than a walk takes: add less\n";
    }
    text
}

/// What is missing, in words: "3 files missing, 12 MB, 2 min".
fn missing(progress: &HoardProgressReport) -> String {
    let left = progress.seconds_left.map_or(String::new(), |seconds| format!(", {}", time(seconds)));
    format!("{} missing, {}{left}", files(progress.files_missing), units::human(progress.bytes_missing))
}

fn files(count: u64) -> String {
    format!("{count} file{}", if count == 1 { "" } else { "s" })
}

/// A length of time in one unit.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(last: Option<HoardProgressReport>, running: Option<HoardProgressReport>) -> HoardReport {
        HoardReport { entries: 1, has_disk: true, last, running, finished_ms: Some(65_000), ..HoardReport::default() }
    }

    fn progress(files_missing: u64) -> HoardProgressReport {
        let miss = MissingReport { path: "/a".into(), bytes: 12_000_000, reason: "not read yet".into() };
        HoardProgressReport {
            files_wanted: 10,
            bytes_wanted: 40_000_000,
            files_missing,
            bytes_missing: 12_000_000 * files_missing.min(1),
            seconds_left: Some(96),
            missing: vec![miss; files_missing.min(30) as usize],
            ..HoardProgressReport::default()
        }
    }

    #[test]
    fn check_says_what_is_missing_and_how_long_it_takes() {
        let known = text(&report(Some(progress(3)), None));
        assert!(
            known.starts_with("not ready: 3 files missing, 12 MB, 2 min (as of 2 min ago)\n  /a (12 MB): not"),
            "{known}"
        );
        assert_eq!(known.lines().count(), 4);
        let many = text(&report(None, Some(progress(50))));
        assert!(
            many.contains("so far; a walk is going on\n")
                && many.ends_with("  and 30 more; --json lists the first 1000\n")
        );
        let ready = report(Some(progress(0)), Some(progress(5)));
        assert_eq!(text(&ready), "ready to leave: 10 files, 40 MB (as of 2 min ago)\n", "a later walk does not matter");
        assert!(verdict(&ready).is_ok());
    }

    #[test]
    fn check_without_a_walk_or_a_disk_is_not_ready() {
        let none = report(None, None);
        assert!(text(&none).starts_with("not ready: no walk"));
        let no_disk = HoardReport { has_disk: false, ..report(Some(progress(0)), None) };
        assert!(text(&no_disk).contains("no cache on disk"));
        let nothing = HoardReport { entries: 0, ..report(Some(progress(0)), None) };
        assert!(text(&nothing).contains("hoard add"));
        for report in [none, no_disk, nothing] {
            assert!(matches!(verdict(&report), Err(Error::Reported(MISSING))));
        }
    }
}
