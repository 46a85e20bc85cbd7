//! Records of unsent data and of the change log in SQLite.
//!
//! In the mode WAL a commit survives the end of the process, and after a barrier a loss of power. Each record is there
//! twice: as it is, and as it was at the last barrier. After a loss of power only the latter counts, in all tables, so
//! that a change never comes back without those on which it depends. A record that was removed since the last barrier
//! comes back, too: the server has what it says, and reintegration finds that out when it sends it again.

use std::io;
use std::path::Path;

use remora_cache::{ConflictId, DirtyRecord, LogBatch, ObjectId, RecordId, SavedLog};
use remora_wire::nfs3::Fh;
use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, ToSql, Transaction, params};

use super::database::Database;
use super::{log_codec, record_codec};

/// Version of the tables.
pub(super) const VERSION: i64 = 2;
const OBJECTS: &str = "
    CREATE TABLE objects (object INTEGER PRIMARY KEY, path BLOB NOT NULL, record BLOB, synced BLOB);
    CREATE INDEX objects_changed ON objects (object) WHERE record IS NOT synced;
";
const BOOT: &str = "
    CREATE TABLE boot (id TEXT NOT NULL, barriers INTEGER NOT NULL);
    INSERT INTO boot VALUES ('', 0);
";
/// Tables of the change log, since version 2.
const LOG: &str = "
    CREATE TABLE log (id INTEGER PRIMARY KEY, record BLOB, synced BLOB);
    CREATE INDEX log_changed ON log (id) WHERE record IS NOT synced;
    CREATE TABLE bindings (provisional BLOB PRIMARY KEY, record BLOB, synced BLOB) WITHOUT ROWID;
    CREATE INDEX bindings_changed ON bindings (provisional) WHERE record IS NOT synced;
    CREATE TABLE conflicts (id INTEGER PRIMARY KEY, record BLOB, synced BLOB);
    CREATE INDEX conflicts_changed ON conflicts (id) WHERE record IS NOT synced;
    PRAGMA user_version = 2;
";

/// A table whose rows have a key, a record as it is (NULL if it was removed), and the record as of the last barrier
/// (NULL if it is younger).
#[derive(Clone, Copy, Debug)]
struct Table {
    name: &'static str,
    key: &'static str,
}

const OBJECT_TABLE: Table = Table { name: "objects", key: "object" };
const LOG_TABLE: Table = Table { name: "log", key: "id" };
const BINDING_TABLE: Table = Table { name: "bindings", key: "provisional" };
const CONFLICT_TABLE: Table = Table { name: "conflicts", key: "id" };
const ALL: [Table; 4] = [OBJECT_TABLE, LOG_TABLE, BINDING_TABLE, CONFLICT_TABLE];

/// The records of a store.
#[derive(Debug)]
pub(super) struct Records {
    connection: Connection,
}

/// Why the records cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordsError {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error("its tables have version {0}")]
    Newer(i64),
}

/// Which of the two forms of a record counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Present,
    /// As of the last barrier.
    Synced,
}

/// The record of an object as it was found.
#[derive(Debug)]
pub(super) struct FoundObject {
    pub(super) object: ObjectId,
    pub(super) path: Vec<u8>,
    pub(super) state: FoundState,
}

#[derive(Debug)]
pub(super) enum FoundState {
    /// With the data of an earlier process, which may not be synced.
    Unsynced(Box<DirtyRecord>),
    Synced(Box<DirtyRecord>),
    /// It cannot be decoded, or is younger than the last barrier before a loss of power.
    Lost,
    /// It was removed since the last barrier.
    Removed,
}

/// The change log as it was found.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    pub(super) log: SavedLog,
    pub(super) damaged: Vec<DamagedRow>,
}

/// A row that cannot be decoded.
#[derive(Debug)]
pub(super) struct DamagedRow {
    /// What it is, for people.
    pub(super) what: String,
    /// A name for the file that gets its bytes.
    pub(super) file: String,
    pub(super) bytes: Vec<u8>,
    key: DamagedKey,
}

#[derive(Debug)]
enum DamagedKey {
    Record(u64),
    Binding(Vec<u8>),
    Conflict(u64),
}

/// A change of the records.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordChange<'j> {
    Put(&'j DirtyRecord),
    Remove(ObjectId),
    Log(&'j LogBatch),
}

/// What a store keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptCounts {
    /// Files that the server lacks something of.
    pub files: u64,
    /// Changes of names that the server lacks.
    pub changes: u64,
    /// Conflicts that nobody has dismissed.
    pub conflicts: u64,
}

impl KeptCounts {
    pub fn is_empty(self) -> bool {
        self == KeptCounts::default()
    }
}

impl Records {
    pub(super) fn open(store: &Path) -> Result<Records, RecordsError> {
        let Database { connection, version } = Database::open(&store.join("records.sqlite"))?;
        match version {
            0 => connection.execute_batch(&format!("BEGIN; {OBJECTS} {BOOT} {LOG} COMMIT;"))?,
            1 => connection.execute_batch(&format!(
                "BEGIN; ALTER TABLE objects RENAME TO old; {OBJECTS}
                 INSERT INTO objects SELECT object, path, record, synced FROM old; DROP TABLE old; {LOG} COMMIT;"
            ))?,
            VERSION => {}
            newer => return Err(RecordsError::Newer(newer)),
        }
        let check: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        if check != "ok" {
            return Err(rusqlite::Error::InvalidQuery.into());
        }
        Ok(Records { connection })
    }

    pub(super) fn counts(&self) -> rusqlite::Result<KeptCounts> {
        let count = |table: Table| -> rusqlite::Result<u64> {
            let query = format!("SELECT count(*) FROM {} WHERE record IS NOT NULL", table.name);
            let count: i64 = self.connection.query_row(&query, [], |row| row.get(0))?;
            Ok(u64::try_from(count).unwrap_or(0))
        };
        let (files, changes) = (count(OBJECT_TABLE)?, count(LOG_TABLE)?);
        Ok(KeptCounts { files, changes, conflicts: count(CONFLICT_TABLE)? })
    }

    /// The records of all objects, the oldest first.
    pub(super) fn objects(&self, form: Form) -> rusqlite::Result<Vec<FoundObject>> {
        let mut query = self.connection.prepare("SELECT object, path, record, synced FROM objects ORDER BY object")?;
        let found = query.query_map([], |row| {
            let (object, record, synced): (i64, Option<Vec<u8>>, Option<Vec<u8>>) =
                (row.get(0)?, row.get(2)?, row.get(3)?);
            let object = ObjectId(object.cast_unsigned());
            let is_synced = record == synced || form == Form::Synced;
            let decode = |bytes: Vec<u8>| match record_codec::decode(object, bytes).map(Box::new) {
                Some(record) if is_synced => FoundState::Synced(record),
                Some(record) => FoundState::Unsynced(record),
                None => FoundState::Lost,
            };
            let state = match form {
                Form::Present => record.map_or(FoundState::Removed, decode),
                Form::Synced => synced.map_or(FoundState::Lost, decode),
            };
            Ok(FoundObject { object, path: row.get(1)?, state })
        })?;
        found.collect()
    }

    /// The change log, in the order of its numbers.
    pub(super) fn log(&self, form: Form) -> rusqlite::Result<FoundLog> {
        let mut found = FoundLog::default();
        for (id, bytes) in self.rows::<i64>(LOG_TABLE, form)? {
            let id = id.cast_unsigned();
            match log_codec::decode_record(RecordId(id), bytes.clone()) {
                Ok(record) => found.log.records.push(record),
                Err(_) => found.damaged.push(DamagedRow {
                    what: format!("change {id} of the log"),
                    file: format!("change-{id}"),
                    bytes,
                    key: DamagedKey::Record(id),
                }),
            }
        }
        for (n, (provisional, bytes)) in self.rows::<Vec<u8>>(BINDING_TABLE, form)?.into_iter().enumerate() {
            match log_codec::decode_binding(Fh(provisional.clone().into()), bytes.clone()) {
                Ok(binding) => found.log.bindings.push(binding),
                Err(_) => found.damaged.push(DamagedRow {
                    what: format!("binding {n} of the log"),
                    file: format!("binding-{n}"),
                    bytes,
                    key: DamagedKey::Binding(provisional),
                }),
            }
        }
        for (id, bytes) in self.rows::<i64>(CONFLICT_TABLE, form)? {
            let id = id.cast_unsigned();
            match log_codec::decode_conflict(ConflictId(id), bytes.clone()) {
                Ok(conflict) => found.log.conflicts.push(conflict),
                Err(_) => found.damaged.push(DamagedRow {
                    what: format!("conflict {id} of the log"),
                    file: format!("conflict-{id}"),
                    bytes,
                    key: DamagedKey::Conflict(id),
                }),
            }
        }
        Ok(found)
    }

    /// Keys and records of a table in the order of the keys.
    fn rows<K: FromSql>(&self, table: Table, form: Form) -> rusqlite::Result<Vec<(K, Vec<u8>)>> {
        let Table { name, key } = table;
        let column = match form {
            Form::Present => "record",
            Form::Synced => "synced",
        };
        let query = format!("SELECT {key}, {column} FROM {name} WHERE {column} IS NOT NULL ORDER BY {key}");
        let mut query = self.connection.prepare(&query)?;
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Drops a row that cannot be decoded.
    pub(super) fn drop_row(&mut self, row: &DamagedRow) -> rusqlite::Result<()> {
        match &row.key {
            DamagedKey::Record(id) => self.drop_key(LOG_TABLE, id.cast_signed()),
            DamagedKey::Binding(provisional) => self.drop_key(BINDING_TABLE, provisional),
            DamagedKey::Conflict(id) => self.drop_key(CONFLICT_TABLE, id.cast_signed()),
        }
    }

    /// Drops an object whose data is not whole.
    pub(super) fn drop_object(&mut self, object: ObjectId) -> rusqlite::Result<()> {
        self.drop_key(OBJECT_TABLE, object.0.cast_signed())
    }

    /// Drops both forms of a record.
    fn drop_key(&mut self, Table { name, key }: Table, value: impl ToSql) -> rusqlite::Result<()> {
        self.connection.execute(&format!("DELETE FROM {name} WHERE {key} = ?1"), params![value]).map(drop)
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
        let synced = self.commit_barrier();
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        synced
    }

    fn commit_barrier(&mut self) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for Table { name, .. } in ALL {
            let removed = format!("DELETE FROM {name} WHERE record IS NOT synced AND record IS NULL");
            transaction.prepare_cached(&removed)?.execute([])?;
            let changed = format!("UPDATE {name} SET synced = record WHERE record IS NOT synced");
            transaction.prepare_cached(&changed)?.execute([])?;
        }
        // A commit without a change would not reach the disk.
        transaction.execute("UPDATE boot SET barriers = barriers + 1", [])?;
        transaction.commit()
    }

    /// Whether the machine has been started since the store was used last.
    pub(super) fn is_other_boot(&self, boot: &str) -> rusqlite::Result<bool> {
        let known: String = self.connection.query_row("SELECT id FROM boot", [], |row| row.get(0))?;
        Ok(known != boot)
    }

    /// The store is used in this run of the machine: undoes all changes since the last barrier if it is another one.
    pub(super) fn begin_boot(&mut self, boot: &str) -> rusqlite::Result<()> {
        if !self.is_other_boot(boot)? {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        for Table { name, .. } in ALL {
            transaction.execute(&format!("DELETE FROM {name} WHERE synced IS NULL"), [])?;
            transaction.execute(&format!("UPDATE {name} SET record = synced WHERE record IS NOT synced"), [])?;
        }
        transaction.execute("UPDATE boot SET id = ?1", [boot])?;
        transaction.commit()
    }
}

fn apply(transaction: &Transaction<'_>, change: RecordChange<'_>) -> rusqlite::Result<()> {
    match change {
        RecordChange::Put(record) => {
            let mut put = transaction.prepare_cached(
                "INSERT INTO objects (object, path, record) VALUES (?1, ?2, ?3)
                 ON CONFLICT (object) DO UPDATE SET path = ?2, record = ?3",
            )?;
            put.execute(params![record.object.0.cast_signed(), record.path, record_codec::encode(record)]).map(drop)
        }
        RecordChange::Remove(object) => remove(transaction, OBJECT_TABLE, object.0.cast_signed()),
        RecordChange::Log(batch) => apply_log(transaction, batch),
    }
}

fn apply_log(transaction: &Transaction<'_>, batch: &LogBatch) -> rusqlite::Result<()> {
    let LogBatch { put: records, removed, bound, unbound, conflicts, dismissed } = batch;
    for record in records {
        put(transaction, LOG_TABLE, record.id.0.cast_signed(), log_codec::encode_record(record))?;
    }
    for id in removed {
        remove(transaction, LOG_TABLE, id.0.cast_signed())?;
    }
    for binding in bound {
        put(transaction, BINDING_TABLE, &binding.provisional.0[..], log_codec::encode_binding(binding))?;
    }
    for provisional in unbound {
        remove(transaction, BINDING_TABLE, &provisional.0[..])?;
    }
    for conflict in conflicts {
        put(transaction, CONFLICT_TABLE, conflict.id.0.cast_signed(), log_codec::encode_conflict(conflict))?;
    }
    for id in dismissed {
        remove(transaction, CONFLICT_TABLE, id.0.cast_signed())?;
    }
    Ok(())
}

fn put(transaction: &Transaction<'_>, table: Table, key: impl ToSql, record: Vec<u8>) -> rusqlite::Result<()> {
    let Table { name, key: column } = table;
    let put = format!(
        "INSERT INTO {name} ({column}, record) VALUES (?1, ?2) ON CONFLICT ({column}) DO UPDATE SET record = ?2"
    );
    transaction.prepare_cached(&put)?.execute(params![key, record]).map(drop)
}

/// Removes a record; its form of the last barrier stays until the next one.
fn remove(transaction: &Transaction<'_>, table: Table, key: impl ToSql) -> rusqlite::Result<()> {
    let Table { name, key: column } = table;
    let young = format!("DELETE FROM {name} WHERE {column} = ?1 AND synced IS NULL");
    transaction.prepare_cached(&young)?.execute(params![key])?;
    let old = format!("UPDATE {name} SET record = NULL WHERE {column} = ?1");
    transaction.prepare_cached(&old)?.execute(params![key]).map(drop)
}

/// The error of SQLite as one of the file system.
pub(super) fn io_error(error: &rusqlite::Error) -> io::Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other(error.to_string()),
    }
}
