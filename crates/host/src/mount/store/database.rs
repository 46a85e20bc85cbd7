//! Opening a SQLite database that belongs to this process alone.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::Connection;

/// An open database, and the version of its tables; 0 if it has none yet.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) connection: Connection,
    pub(super) version: i64,
}

impl Database {
    /// Opens the database at `path`, and creates it if it is missing. A commit survives the end of the process, and a
    /// loss of power once the write-ahead log is synced.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Database> {
        // SQLite gives its other files the same mode.
        let _ = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok(Database { connection, version })
    }
}
