//! Stores of a mount on this machine's disk.
//!
//! `store_dir` is the directory of an export's unsent data, with its lock. `records` has what the server lacks of each
//! file, and the change log, in SQLite (`database`, `log_codec`), `data_files` the bytes in sparse files beside it;
//! [`DirtyStore`] executes the jobs of the cache core on both, on the thread of `store_thread`. [`DiskCache`] has what
//! can be fetched again, with a thread of its own.

mod data_files;
mod database;
mod dirty_store;
mod disk_cache;
mod disk_index;
mod disk_record_codec;
mod log_codec;
mod record_codec;
mod records;
mod store_dir;
mod store_thread;

pub(super) use data_files::{StoreDisk, data_path};
pub use dirty_store::{DirtyStore, Opened, SetAside};
pub use disk_cache::{DiskCache, DiskFigures, OpenedCache};
pub use records::KeptCounts;
pub use store_dir::{KeptExport, StoreError, StoreKey, has_store, kept_exports};
pub(super) use store_thread::StoreThread;
