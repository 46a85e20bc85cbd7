//! The index of the disk cache in SQLite: a record and extents for each object.
//!
//! Each record and each extent has a checksum, which covers the handle, too. After a loss of power a row may be on the
//! disk without its data, so what does not match is not there.

use std::hash::Hasher;
use std::ops::Range;
use std::path::Path;

use remora_cache::DiskRecord;
use remora_wire::nfs3::Fh;
use rusqlite::{Connection, OptionalExtension, params};
use siphasher::sip::SipHasher13;

use super::database::Database;
use super::disk_record_codec;

/// Version of the tables.
const VERSION: i64 = 2;
const TABLES: &str = "
    CREATE TABLE objects (
        object INTEGER PRIMARY KEY,
        fh BLOB NOT NULL UNIQUE,
        record BLOB,
        sum INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        used INTEGER NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX by_use ON objects (pinned, used);
    CREATE TABLE extents (
        object INTEGER NOT NULL,
        start INTEGER NOT NULL,
        len INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (object, start)
    ) WITHOUT ROWID;
    PRAGMA user_version = 2;
";
/// What version 1 lacks.
const UPGRADE: &str = "
    ALTER TABLE objects ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    DROP INDEX by_use;
    CREATE INDEX by_use ON objects (pinned, used);
    PRAGMA user_version = 2;
";
/// Space that the rows of an object and of an extent take, in bytes.
const OBJECT_BYTES: u64 = 200;
const EXTENT_BYTES: u64 = 40;

/// An open index, which no other process uses.
#[derive(Debug)]
pub(super) struct DiskIndex {
    connection: Connection,
    /// Order of uses.
    clock: i64,
    /// Bytes of all objects, with their rows.
    pub(super) bytes: u64,
}

/// Data of a file that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) range: Range<u64>,
    pub(super) sum: i64,
}

/// A row of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ObjectRow {
    pub(super) object: i64,
    pub(super) bytes: u64,
}

/// The checksum of data of the object `fh` at an offset.
pub(super) fn checksum(fh: &Fh, offset: u64, bytes: &[u8]) -> i64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&fh.0);
    hasher.write_u64(offset);
    hasher.write(bytes);
    hasher.finish().cast_signed()
}

impl DiskIndex {
    pub(super) fn open(path: &Path) -> rusqlite::Result<DiskIndex> {
        let Database { connection, version } = Database::open(path)?;
        match version {
            0 => connection.execute_batch(&format!("BEGIN; {TABLES} COMMIT;"))?,
            1 => connection.execute_batch(&format!("BEGIN; {UPGRADE} COMMIT;"))?,
            VERSION => {}
            _ => return Err(rusqlite::Error::InvalidQuery),
        }
        // Without a record, data was of use only to the process that has ended.
        connection.execute_batch(
            "BEGIN; DELETE FROM objects WHERE record IS NULL;
             DELETE FROM extents WHERE object NOT IN (SELECT object FROM objects); COMMIT;",
        )?;
        let sums = "SELECT coalesce(sum(bytes), 0), coalesce(max(used), 0) FROM objects";
        let (bytes, clock): (i64, i64) = connection.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(DiskIndex { connection, clock, bytes: bytes.cast_unsigned() })
    }

    /// Changes from now on happen together, at [`commit`](DiskIndex::commit).
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN")
    }

    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")
    }

    /// Numbers of all objects.
    pub(super) fn objects(&self) -> rusqlite::Result<Vec<i64>> {
        let mut query = self.connection.prepare("SELECT object FROM objects ORDER BY object")?;
        query.query_map([], |row| row.get(0))?.collect()
    }

    pub(super) fn find(&self, fh: &Fh) -> rusqlite::Result<Option<ObjectRow>> {
        let mut query = self.connection.prepare_cached("SELECT object, bytes FROM objects WHERE fh = ?1")?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(ObjectRow { object: row.get(0)?, bytes: row.get::<_, i64>(1)?.cast_unsigned() })
        };
        query.query_row([&fh.0[..]], row).optional()
    }

    /// The record, if it is undamaged.
    pub(super) fn record(&self, fh: &Fh, row: ObjectRow) -> rusqlite::Result<Option<DiskRecord>> {
        let mut query = self.connection.prepare_cached("SELECT record, sum FROM objects WHERE object = ?1")?;
        let (record, sum): (Option<Vec<u8>>, i64) =
            query.query_row([row.object], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let record = record.filter(|record| checksum(fh, 0, record) == sum);
        Ok(record.and_then(disk_record_codec::decode))
    }

    /// Extents that overlap `range`, in order.
    pub(super) fn extents(&self, row: ObjectRow, range: Range<u64>) -> rusqlite::Result<Vec<Extent>> {
        let mut query = self.connection.prepare_cached(
            "SELECT start, len, sum FROM extents WHERE object = ?1 AND start < ?3 AND start + len > ?2 ORDER BY start",
        )?;
        let limit = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let extents = query.query_map(params![row.object, limit(range.start), limit(range.end)], |row| {
            let (start, len, sum): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Extent { range: start.cast_unsigned()..start.saturating_add(len).cast_unsigned(), sum })
        })?;
        extents.collect()
    }

    /// The row of an object, with this record.
    pub(super) fn put(&mut self, fh: &Fh, record: Option<&DiskRecord>) -> rusqlite::Result<ObjectRow> {
        let before = self.find(fh)?.map_or(0, |row| row.bytes);
        let record = record.map(disk_record_codec::encode);
        let sum = checksum(fh, 0, record.as_deref().unwrap_or_default());
        self.clock += 1;
        let mut put = self.connection.prepare_cached(
            "INSERT INTO objects (fh, record, sum, bytes, used) VALUES (?1, ?2, ?3, 0, ?4)
             ON CONFLICT (fh) DO UPDATE SET record = ?2, sum = ?3, used = ?4 RETURNING object",
        )?;
        let object = put.query_row(params![&fh.0[..], record, sum, self.clock], |row| row.get(0))?;
        Ok(ObjectRow { object, bytes: before })
    }

    pub(super) fn remove_extent(&mut self, row: ObjectRow, extent: &Extent) -> rusqlite::Result<()> {
        let mut remove = self.connection.prepare_cached("DELETE FROM extents WHERE object = ?1 AND start = ?2")?;
        remove.execute(params![row.object, extent.range.start.cast_signed()]).map(drop)
    }

    pub(super) fn add_extent(&mut self, row: ObjectRow, extent: &Extent) -> rusqlite::Result<()> {
        let mut add = self.connection.prepare_cached("INSERT OR REPLACE INTO extents VALUES (?1, ?2, ?3, ?4)")?;
        let Extent { range, sum } = extent;
        add.execute(params![row.object, range.start.cast_signed(), (range.end - range.start).cast_signed(), sum])
            .map(drop)
    }

    /// Counts the bytes of an object after its change.
    pub(super) fn count(&mut self, row: ObjectRow) -> rusqlite::Result<()> {
        let mut sum = self.connection.prepare_cached(
            "SELECT coalesce((SELECT length(record) FROM objects WHERE object = ?1), 0),
                    coalesce(sum(len), 0), count(*) FROM extents WHERE object = ?1",
        )?;
        let sums =
            |row: &rusqlite::Row<'_>| -> rusqlite::Result<[i64; 3]> { Ok([row.get(0)?, row.get(1)?, row.get(2)?]) };
        let [record, data, extents] = sum.query_row([row.object], sums)?.map(i64::cast_unsigned);
        let bytes = OBJECT_BYTES + record + data + extents * EXTENT_BYTES;
        let mut set = self.connection.prepare_cached("UPDATE objects SET bytes = ?2 WHERE object = ?1")?;
        set.execute(params![row.object, bytes.cast_signed()])?;
        self.bytes = self.bytes.saturating_sub(row.bytes) + bytes;
        Ok(())
    }

    /// The object was used now.
    pub(super) fn touch(&mut self, row: ObjectRow) -> rusqlite::Result<()> {
        self.clock += 1;
        let mut set = self.connection.prepare_cached("UPDATE objects SET used = ?2 WHERE object = ?1")?;
        set.execute(params![row.object, self.clock]).map(drop)
    }

    /// Evicts the object after all that is not pinned.
    pub(super) fn pin(&mut self, row: ObjectRow, stamp: u64) -> rusqlite::Result<()> {
        let mut set = self.connection.prepare_cached("UPDATE objects SET pinned = ?2 WHERE object = ?1")?;
        set.execute(params![row.object, stamp.cast_signed()]).map(drop)
    }

    /// Unpins all objects but those with this stamp.
    pub(super) fn unpin(&mut self, all_but: u64) -> rusqlite::Result<()> {
        let sql = "UPDATE objects SET pinned = 0 WHERE pinned > 0 AND pinned != ?1";
        self.connection.prepare_cached(sql)?.execute([all_but.cast_signed()]).map(drop)
    }

    /// The object that is evicted first: of those that are not pinned, if there are any, the one that was used least
    /// recently.
    pub(super) fn oldest(&self) -> rusqlite::Result<Option<ObjectRow>> {
        let mut query =
            self.connection.prepare_cached("SELECT object, bytes FROM objects ORDER BY pinned, used LIMIT 1")?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(ObjectRow { object: row.get(0)?, bytes: row.get::<_, i64>(1)?.cast_unsigned() })
        };
        query.query_row([], row).optional()
    }

    pub(super) fn remove(&mut self, row: ObjectRow) -> rusqlite::Result<()> {
        for table in ["DELETE FROM extents WHERE object = ?1", "DELETE FROM objects WHERE object = ?1"] {
            self.connection.prepare_cached(table)?.execute([row.object])?;
        }
        self.bytes = self.bytes.saturating_sub(row.bytes);
        Ok(())
    }

    /// Makes every later use fail as a damaged file does.
    #[cfg(test)]
    pub(super) fn break_for_test(&mut self) {
        self.connection.execute_batch("DROP TABLE objects").unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_version_1_is_upgraded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let old = TABLES.replace("used INTEGER NOT NULL,", "used INTEGER NOT NULL");
        let old = old.replace("pinned INTEGER NOT NULL DEFAULT 0", "").replace("(pinned, used)", "(used)");
        let old = old.replace("user_version = 2", "user_version = 1");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(&old).unwrap();
        connection.execute("INSERT INTO objects VALUES (1, x'61', x'00', 0, 300, 1)", []).unwrap();
        drop(connection);
        let mut index = DiskIndex::open(&path).unwrap();
        let row = index.find(&Fh("a".into())).unwrap().unwrap();
        assert_eq!((index.bytes, row.bytes), (300, 300));
        index.pin(row, 5).unwrap();
        assert_eq!(index.oldest().unwrap().unwrap().object, 1);
    }
}
