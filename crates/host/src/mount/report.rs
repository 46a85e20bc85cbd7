//! What a mount reports over its control socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// State of a mount. Times in milliseconds, sizes in bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MountReport {
    pub url: String,
    pub dir: PathBuf,
    pub pid: u32,
    pub state: MountState,
    /// The consistency policy: `strict`, `default` or `relaxed`.
    pub cache: String,
    pub read_only: bool,
    /// What close(2) waits for: `through` for the server, `back` for this machine's disk.
    pub writes: String,
    /// Silence after which calls fail; `None` for a hard mount.
    pub soft_ms: Option<u64>,
    pub server: ServerReport,
    pub connection: ConnectionReport,
    pub log: LogReport,
    /// File data that the server has not committed.
    pub dirty_bytes: u64,
    /// Files with unsent data or attributes.
    pub unsent_files: usize,
    /// Files that the server lacks something of, the first 1000.
    pub unsent: Vec<UnsentReport>,
    /// Clean file data in memory.
    pub cached_bytes: u64,
    /// The cache on disk; `None` if there is none.
    pub disk: Option<DiskReport>,
    /// Objects that the cache knows.
    pub nodes: usize,
    /// Calls that wait for room in the window.
    pub calls_waiting: usize,
    /// The same by priority.
    pub queue: QueueReport,
    /// Calls without a reply.
    pub calls_in_flight: usize,
    /// Requests of programs that were answered from the cache, and those that had to wait.
    pub hits: u64,
    pub misses: u64,
    /// File data that the server has sent and taken since the mount.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// System calls that wait for the server.
    pub held: Vec<HeldReport>,
}

/// The connection to the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    pub state: ConnectionState,
    /// How long it has had this state.
    pub since_ms: u64,
    /// `remora offline` asked for it.
    pub is_asked: bool,
    /// What is wrong, beside silence.
    pub problem: Option<String>,
}

/// State of the connection to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    Connected,
    /// The link is slow, or drops.
    Weak,
    /// What is cached is used without the server, and changes are kept.
    Disconnected,
}

/// The change log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogReport {
    /// Changes of names that the server lacks, with those that it refused.
    pub records: usize,
    pub refused: usize,
    /// Changes that are being sent.
    pub in_flight: usize,
    /// Changes that were sent since the mount.
    pub sent: u64,
    /// Conflicts that nobody has dismissed.
    pub conflicts: usize,
    /// The refused changes, the first 1000.
    pub refusals: Vec<RefusedChange>,
    /// Paths that programs needed and the cache did not have while disconnected, the latest last.
    pub missed: Vec<String>,
}

/// A change that the server refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedChange {
    pub path: String,
    /// `make`, `link`, `remove`, `rename` or `attributes`.
    pub change: String,
    pub why: String,
}

/// A conflict between a change here and one of another client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConflictReport {
    pub id: u64,
    pub kind: ConflictName,
    /// Path of the server's version, from the mounted directory.
    pub path: String,
    /// Path of our version, if it has another name.
    pub copy: Option<String>,
    /// When our change was made, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Kind of a conflict; see [`remora_cache::ConflictKind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictName {
    Content,
    Type,
    RemovedThere,
    ChangedThere,
    Renamed,
    Skipped,
    DirectoryRemovedThere,
    Attributes,
}

/// The answer to `dismiss`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dismissed {
    /// Whether there was such a conflict.
    pub was_known: bool,
}

/// Calls that wait for room in the window, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QueueReport {
    /// A program waits.
    pub foreground: usize,
    /// A program waits for fsync(2) or close(2).
    pub durable: usize,
    pub write_back: usize,
    pub read_ahead: usize,
    pub prefetch: usize,
}

/// The cache on disk. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskReport {
    pub bytes: u64,
    pub limit: u64,
    /// File data that it gave to programs since the mount.
    pub read_bytes: u64,
    /// Why it is not used any more.
    pub error: Option<String>,
}

/// A file that the server lacks something of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnsentReport {
    pub path: String,
    pub bytes: u64,
    /// Why it is kept and not sent; `None` if it is being sent.
    pub refused: Option<String>,
    /// The file on this machine that has the bytes, at their offsets; `None` if memory alone has them.
    pub data: Option<PathBuf>,
}

/// Life of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountState {
    Mounted,
    /// Detached from its directory; dirty data is still sent.
    Unmounting,
}

/// The server, as the client core sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    pub address: String,
    /// `udp`, `tcp` or `atp`.
    pub transport: String,
    /// How long it has owed a reply.
    pub silent_ms: u64,
    /// How long it has asked to try again later.
    pub deferred_ms: u64,
    /// Minimum round-trip time.
    pub rtt_ms: Option<f64>,
    /// Congestion window, in READs and WRITEs of the present length.
    pub window: u32,
    /// Full frames per second of the slowest hop, in bits per second.
    pub rate_bits: Option<u64>,
    /// Share of frames lost independently, 0 to 1.
    pub loss: Option<f64>,
}

/// A system call that waits for the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldReport {
    pub pid: u32,
    /// Name of the program; empty if the process cannot be seen.
    pub program: String,
    pub operation: String,
    pub path: String,
    pub waits_ms: u64,
}

/// A line of the answer to `unmount`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnmountProgress {
    /// File data that the server has not committed.
    pub dirty_bytes: u64,
    /// Files whose data stays on this machine's disk for the next mount.
    pub kept_files: usize,
    /// Changes of names that stay there, too.
    pub kept_changes: usize,
    /// The process ends now; what is still dirty and not kept is lost.
    pub is_done: bool,
}

/// What becomes of dirty data at an unmount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnmountMode {
    /// It is sent; if the server is silent, it is kept where it can be.
    Send,
    /// It is kept for the next mount.
    Keep,
    Drop,
}

/// State of hoarding. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HoardReport {
    /// Entries of the profile.
    pub entries: usize,
    /// The walk waits for the server.
    pub is_paused: bool,
    /// There is a cache on disk that works.
    pub has_disk: bool,
    /// What hoarded objects may take of the cache on disk.
    pub bytes_max: u64,
    /// The walk that is going on.
    pub running: Option<HoardProgressReport>,
    /// The last walk that came to its end with this profile, and how long ago that was.
    pub last: Option<HoardProgressReport>,
    pub finished_ms: Option<u64>,
    /// Why the profile could not be read.
    pub error: Option<String>,
}

/// Figures of a walk. Files are all objects that are not directories.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HoardProgressReport {
    pub files_wanted: u64,
    pub bytes_wanted: u64,
    pub files_missing: u64,
    pub bytes_missing: u64,
    pub directories: u64,
    /// Time to read what is missing at the rate of the link.
    pub seconds_left: Option<u64>,
    /// What the hoarded objects take on disk.
    pub disk_bytes: u64,
    /// The profile wants more than hoarded objects may take.
    pub is_full: bool,
    /// The profile names more objects than a walk takes.
    pub is_cut: bool,
    /// Paths that are missing, the first 1000.
    pub missing: Vec<MissingReport>,
}

/// A path of the profile that is not in the cache on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingReport {
    /// From the mounted directory.
    pub path: String,
    pub bytes: u64,
    pub reason: String,
}

/// The answer to `hoard usage`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HoardUsage {
    /// Directories whose files programs opened since the mount, those with the most opens first.
    pub used: Vec<HoardUseReport>,
    /// Paths that programs missed while the mount was disconnected, the latest last.
    pub missed: Vec<String>,
}

/// Opens of the files of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoardUseReport {
    /// From the mounted directory.
    pub path: String,
    pub opens: u64,
    /// Different files, at most 256.
    pub files: usize,
    /// Opens by program.
    pub programs: BTreeMap<String, u64>,
}

/// The answer to `release`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Released {
    /// System calls that were ended.
    pub calls: usize,
}
