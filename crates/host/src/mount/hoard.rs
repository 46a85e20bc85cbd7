//! Hoarding on the host: the profile of the user, and the report over the control socket.

use remora_base::Time;
use remora_cache::{HoardEntry, HoardMissReason, HoardOwner, HoardPlan, HoardProgress, HoardStatus};

use super::report::{HoardProgressReport, HoardReport, HoardUseReport, MissingReport};

/// Share of the disk cache that hoarded objects may take, in percent. An eviction leaves 90 %, so others keep a tenth.
const SHARE_PERCENT: u64 = 80;

/// Reads the profile of the mounted export.
pub type ProfileSource = Box<dyn Fn() -> Result<Vec<HoardEntry>, String> + Send + Sync>;

/// Whose profile it is, and where it comes from.
pub struct HoardSource {
    pub owner: HoardOwner,
    pub profile: ProfileSource,
}

impl HoardSource {
    /// What to hoard on a disk cache of `limit` bytes.
    pub(super) fn plan(&self, limit: u64) -> Result<HoardPlan, String> {
        let entries = (self.profile)()?;
        Ok(HoardPlan { entries, owner: self.owner.clone(), bytes_max: limit / 100 * SHARE_PERCENT })
    }
}

/// What the core says of hoarding, for the control socket. `rate_bits` is the rate of the link.
pub(super) fn report(status: HoardStatus, now: Time, rate_bits: Option<u64>) -> HoardReport {
    let HoardStatus { entries, running, is_paused, last, finished, bytes_max, has_disk } = status;
    let progress = |progress: HoardProgress| progress_report(progress, rate_bits);
    HoardReport {
        entries,
        is_paused,
        has_disk,
        bytes_max,
        running: running.map(progress),
        last: last.map(progress),
        finished_ms: finished.map(|at| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX)),
        error: None,
    }
}

fn progress_report(progress: HoardProgress, rate_bits: Option<u64>) -> HoardProgressReport {
    let (files_missing, bytes_missing) = (progress.files_missing(), progress.bytes_missing());
    let seconds = |rate: u64| (bytes_missing * 8).div_ceil(rate);
    HoardProgressReport {
        files_wanted: progress.files_wanted,
        bytes_wanted: progress.bytes_wanted,
        files_missing,
        bytes_missing,
        directories: progress.directories,
        seconds_left: rate_bits.filter(|rate| *rate > 0).map(seconds),
        disk_bytes: progress.pinned_bytes,
        is_full: progress.is_full,
        is_cut: progress.is_cut,
        missing: progress
            .missing
            .into_iter()
            .map(|miss| MissingReport {
                path: String::from_utf8_lossy(&miss.path).into_owned(),
                bytes: miss.bytes,
                reason: reason(miss.reason).to_owned(),
            })
            .collect(),
    }
}

fn reason(reason: HoardMissReason) -> &'static str {
    match reason {
        HoardMissReason::NotYet => "not read yet",
        HoardMissReason::NotFound => "no such file or directory",
        HoardMissReason::NoPermission => "permission denied",
        HoardMissReason::TooLarge => "too large for the cache on disk",
        HoardMissReason::NoRoom => "no room in the cache on disk",
        HoardMissReason::Changing => "it is being changed",
        HoardMissReason::Failed => "it could not be read",
    }
}

/// What programs opened.
pub(super) fn use_report(used: remora_cache::DirectoryUse) -> HoardUseReport {
    HoardUseReport {
        path: String::from_utf8_lossy(&used.path).into_owned(),
        opens: used.opens,
        files: used.files,
        programs: used.programs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_take_time_at_the_rate_of_the_link() {
        let progress = HoardProgress {
            files_wanted: 5,
            files_there: 2,
            bytes_wanted: 13_000_000,
            bytes_there: 1_000_000,
            ..HoardProgress::default()
        };
        let report = |rate| progress_report(progress.clone(), rate);
        let known = report(Some(1_000_000));
        assert_eq!((known.files_missing, known.bytes_missing, known.seconds_left), (3, 12_000_000, Some(96)));
        assert_eq!((report(None).seconds_left, report(Some(0)).seconds_left), (None, None));
    }
}
