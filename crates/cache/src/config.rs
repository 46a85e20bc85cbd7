//! Configuration of the cache: consistency policy, sizes, clock.

use std::time::Duration;

use bytes::Bytes;

/// Consistency policy: the maximum age of the cache's answers.
///
/// The kernel adds `kernel` to what it was answered, so each bound is the sum of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// At an open, and of names that do not exist.
    pub open: Duration,
    /// At a `stat`, and of names that exist.
    pub stat: Duration,
    /// How long the kernel may keep names and attributes: at most 1 s.
    pub kernel: Duration,
}

impl Policy {
    /// Close-to-open consistency: each open and each `stat` asks the server.
    pub const STRICT: Policy = Policy { open: Duration::ZERO, stat: Duration::ZERO, kernel: Duration::ZERO };
    /// An open sees all closes that are older than 3 s; a `stat` is at most 60 s old.
    pub const DEFAULT: Policy =
        Policy { open: Duration::from_secs(2), stat: Duration::from_secs(59), kernel: Duration::from_secs(1) };
    /// An open and a `stat` are at most 60 s old.
    pub const RELAXED: Policy =
        Policy { open: Duration::from_secs(59), stat: Duration::from_secs(59), kernel: Duration::from_secs(1) };
}

/// What close(2) waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writes {
    /// The server has committed the file.
    #[default]
    Through,
    /// The store on this machine has the file.
    Back,
}

/// What a call does that needs the server while the mount is disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OfflineMiss {
    /// It waits, and a signal ends it.
    #[default]
    Wait,
    /// It fails with EHOSTUNREACH.
    Fail,
}

/// When a mount works without the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfflinePolicy {
    /// Silence of the server after which the mount is disconnected; `None` if only [`Cache::go_offline`] does that.
    ///
    /// [`Cache::go_offline`]: crate::Cache::go_offline
    pub after: Option<Duration>,
    /// What a call does for which the cache has no answer. After [`Cache::go_offline`] it fails in any case.
    ///
    /// [`Cache::go_offline`]: crate::Cache::go_offline
    pub miss: OfflineMiss,
    /// The mount begins disconnected, because the server could not be reached.
    pub starts_offline: bool,
}

impl OfflinePolicy {
    /// A mount that is never disconnected by itself.
    pub const NEVER: OfflinePolicy = OfflinePolicy { after: None, miss: OfflineMiss::Wait, starts_offline: false };
    /// Disconnected after 10 s without the server.
    pub const AUTO: OfflinePolicy =
        OfflinePolicy { after: Some(Duration::from_secs(10)), miss: OfflineMiss::Wait, starts_offline: false };
}

/// Configuration of a [`Cache`](crate::Cache).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    pub policy: Policy,
    pub writes: Writes,
    pub offline: OfflinePolicy,
    /// Maximum clean file data in memory, in bytes.
    pub memory_max: u64,
    /// Maximum file data that the server has not committed, in bytes; further writes wait.
    pub dirty_max: u64,
    /// Maximum size of a file whose data the disk cache keeps, in bytes; 0 if there is no disk cache.
    pub disk_file_max: u64,
    /// The same while disconnected; further writes fail with ENOSPC.
    pub offline_max: u64,
    /// Files with such data at a time.
    pub dirty_files_max: usize,
    /// Objects that the kernel has forgotten and the cache still knows.
    pub forgotten_max: usize,
    /// Whether every change fails with EROFS.
    pub read_only: bool,
    /// Part of the names of removed files that are still open, unique to this mount.
    pub client_id: u64,
    /// Host name for AUTH_SYS credentials and the names of conflict copies.
    pub machine: Bytes,
    /// Time since 1970 at [`Time::ZERO`](remora_base::Time::ZERO).
    pub wall_at_zero: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: Policy::DEFAULT,
            writes: Writes::Through,
            offline: OfflinePolicy::NEVER,
            memory_max: 256 << 20,
            dirty_max: 64 << 20,
            disk_file_max: 0,
            offline_max: 1 << 30,
            dirty_files_max: 20_000,
            forgotten_max: 200_000,
            read_only: false,
            client_id: 0,
            machine: Bytes::new(),
            wall_at_zero: Duration::ZERO,
        }
    }
}

/// What the client core advises for the path to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// Bytes of a READ.
    pub read_block: u32,
    /// Bytes of a WRITE.
    pub write_block: u32,
    /// Maximum bytes of a page of a listing.
    pub list_page: u32,
    /// Bytes of a file that are written synchronously at fsync and close, instead of with a COMMIT of their own; 0 where
    /// a round trip does not matter.
    pub sync_max: u64,
    /// Maximum bytes that are read ahead of a program.
    pub ahead_max: u64,
    /// Maximum bytes on the link, with headers, of small calls for which no program waits.
    pub prefetch_max: u64,
}

impl Default for LinkState {
    fn default() -> LinkState {
        LinkState {
            read_block: 32 << 10,
            write_block: 32 << 10,
            list_page: 8 << 10,
            sync_max: 0,
            ahead_max: 4 << 20,
            prefetch_max: PREFETCH_MIN,
        }
    }
}

/// Time by which small calls for which no program waits may exceed the BDP.
const PREFETCH_TIME: Duration = Duration::from_millis(60);
/// Bytes of them on the link, at least and at most. The least fits the queue of a device.
pub(crate) const PREFETCH_MIN: u64 = 16 << 10;
const PREFETCH_MAX: u64 = 1 << 20;
/// Minimum RTT below which their number does not matter.
const NEAR: Duration = Duration::from_millis(5);

impl LinkState {
    /// [`LinkState::prefetch_max`] of a link of this rate in bytes per second and this minimum RTT, as far as they are
    /// known.
    pub fn prefetch_max_of(rate: Option<f64>, min_rtt: Option<Duration>) -> u64 {
        match (rate, min_rtt) {
            (_, Some(trip)) if trip < NEAR => PREFETCH_MAX,
            (Some(rate), Some(trip)) => {
                // Calls count with their replies; on a link that is full duplex each direction carries less.
                let bytes = rate * (trip + trip / 4 + PREFETCH_TIME).as_secs_f64();
                (bytes as u64).clamp(PREFETCH_MIN, PREFETCH_MAX)
            }
            _ => PREFETCH_MIN,
        }
    }
}
