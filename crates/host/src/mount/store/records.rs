//! Records of unsent data in SQLite.
//!
//! In the mode WAL a commit survives the end of the process, and after a barrier a loss of power. Each record is there
//! twice: as it is, and as it was at the last barrier, which alone counts after a loss of power.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use remora_cache::{DirtyRecord, ObjectId};
use rusqlite::{Connection, ErrorCode, Transaction, params};

use super::record_codec;

/// Version of the tables.
const VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE objects (
        object INTEGER PRIMARY KEY,
        path BLOB NOT NULL,
        size INTEGER NOT NULL,
        record BLOB NOT NULL,
        synced BLOB
    );
    CREATE TABLE boot (id TEXT NOT NULL, barriers INTEGER NOT NULL);
    INSERT INTO boot VALUES ('', 0);
    PRAGMA user_version = 1;
";

/// The records of a store.
#[derive(Debug)]
pub(super) struct Records {
    connection: Connection,
}

/// A record as it was found.
#[derive(Debug)]
pub(super) struct FoundRecord {
    pub(super) object: ObjectId,
    pub(super) path: Vec<u8>,
    /// `None` if it cannot be decoded.
    pub(super) record: Option<DirtyRecord>,
    /// As of the last barrier; `None` if it is younger.
    pub(super) synced: Option<DirtyRecord>,
}

/// A change of the records.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordChange<'j> {
    Put(&'j DirtyRecord),
    Remove(ObjectId),
}

impl Records {
    pub(super) fn open(store: &Path) -> rusqlite::Result<Records> {
        let path = store.join("records.sqlite");
        // SQLite gives its other files the same mode.
        let _ = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            0 => connection.execute_batch(&format!("BEGIN; {TABLES} COMMIT;"))?,
            VERSION => {}
            _ => return Err(rusqlite::Error::InvalidQuery),
        }
        let check: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        if check != "ok" {
            return Err(rusqlite::Error::InvalidQuery);
        }
        Ok(Records { connection })
    }

    pub(super) fn len(&self) -> rusqlite::Result<u64> {
        let count: i64 = self.connection.query_row("SELECT count(*) FROM objects", [], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// All records, the oldest first.
    pub(super) fn all(&self) -> rusqlite::Result<Vec<FoundRecord>> {
        let mut query = self.connection.prepare("SELECT object, path, record, synced FROM objects ORDER BY object")?;
        let found = query.query_map([], |row| {
            let (object, record, synced): (i64, Vec<u8>, Option<Vec<u8>>) = (row.get(0)?, row.get(2)?, row.get(3)?);
            let object = ObjectId(object.cast_unsigned());
            let decode = |bytes: Vec<u8>| record_codec::decode(object, bytes);
            Ok(FoundRecord { object, path: row.get(1)?, record: decode(record), synced: synced.and_then(decode) })
        })?;
        found.collect()
    }

    /// Makes changes together: after a return without an error they survive the end of the process.
    pub(super) fn change(&mut self, changes: &[RecordChange<'_>]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        changes.iter().try_for_each(|change| apply(&transaction, *change))?;
        transaction.commit()
    }

    /// Makes all changes survive a loss of power.
    pub(super) fn sync(&mut self) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        // A commit without a change would not reach the disk.
        let synced = self.connection.execute_batch(
            "BEGIN; UPDATE objects SET synced = record WHERE synced IS NOT record;
             UPDATE boot SET barriers = barriers + 1; COMMIT;",
        );
        if synced.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        synced
    }

    /// Whether the machine has been started since the store was used last.
    pub(super) fn is_other_boot(&self, boot: &str) -> rusqlite::Result<bool> {
        let known: String = self.connection.query_row("SELECT id FROM boot", [], |row| row.get(0))?;
        Ok(known != boot)
    }

    pub(super) fn set_boot(&mut self, boot: &str) -> rusqlite::Result<()> {
        self.connection.execute("UPDATE boot SET id = ?1", [boot]).map(drop)
    }
}

fn apply(transaction: &Transaction<'_>, change: RecordChange<'_>) -> rusqlite::Result<()> {
    match change {
        RecordChange::Put(record) => {
            let mut put = transaction.prepare_cached(
                "INSERT INTO objects (object, path, size, record) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (object) DO UPDATE SET path = ?2, size = ?3, record = ?4",
            )?;
            let (object, size) = (record.object.0.cast_signed(), record.size.cast_signed());
            put.execute(params![object, record.path, size, record_codec::encode(record)]).map(drop)
        }
        RecordChange::Remove(object) => {
            let mut remove = transaction.prepare_cached("DELETE FROM objects WHERE object = ?1")?;
            remove.execute([object.0.cast_signed()]).map(drop)
        }
    }
}

/// The error of SQLite as one of the file system.
pub(super) fn io_error(error: &rusqlite::Error) -> io::Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other(error.to_string()),
    }
}
