//! Figures of hoarding.

use remora_base::Time;

/// Missing paths that are listed.
pub(crate) const MISSING_MAX: usize = 1000;

/// Why something of the profile is not in the disk cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoardMissReason {
    /// The walk has not come to its end.
    NotYet,
    /// There is no such name.
    NotFound,
    /// The server does not let the owner of the mount read it.
    NoPermission,
    /// A file of more than half the disk cache, or a directory of too many names.
    TooLarge,
    /// What hoarded objects may take of the disk cache is taken by others.
    NoRoom,
    /// It changes while it is read.
    Changing,
    /// The server, or the disk cache, failed.
    Failed,
}

/// Something of the profile that is not in the disk cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoardMiss {
    /// Path from the mounted directory.
    pub path: Vec<u8>,
    pub bytes: u64,
    pub reason: HoardMissReason,
}

/// Figures of a walk. Files are all objects that are not directories.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoardProgress {
    pub files_wanted: u64,
    pub bytes_wanted: u64,
    pub files_there: u64,
    pub bytes_there: u64,
    pub directories: u64,
    /// Bytes that the hoarded objects take in the disk cache.
    pub pinned_bytes: u64,
    /// Paths that are missing, the first 1000.
    pub missing: Vec<HoardMiss>,
    /// The profile wants more than hoarded objects may take.
    pub is_full: bool,
    /// The profile names more objects than a walk takes.
    pub is_cut: bool,
}

impl HoardProgress {
    pub fn files_missing(&self) -> u64 {
        self.files_wanted.saturating_sub(self.files_there)
    }

    pub fn bytes_missing(&self) -> u64 {
        self.bytes_wanted.saturating_sub(self.bytes_there)
    }

    pub(crate) fn miss(&mut self, miss: HoardMiss) {
        if self.missing.len() < MISSING_MAX {
            self.missing.push(miss);
        }
    }
}

/// State of hoarding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoardStatus {
    /// Entries of the profile.
    pub entries: usize,
    /// The walk that is going on.
    pub running: Option<HoardProgress>,
    /// It waits for the server.
    pub is_paused: bool,
    /// The last walk that came to its end with this profile.
    pub last: Option<HoardProgress>,
    pub finished: Option<Time>,
    /// Maximum bytes of the disk cache that hoarded objects take.
    pub bytes_max: u64,
    /// There is a disk cache that works.
    pub has_disk: bool,
}
