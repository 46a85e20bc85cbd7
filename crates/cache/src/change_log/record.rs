//! Records of the change log: changes of names and attributes that the server does not have yet.
//!
//! They are those of Coda's client modification log. Contents of files are in the store of unsent data. A record refers
//! to objects by file handles; an object that was made here has a provisional handle until the server has made it.

use bytes::Bytes;
use remora_wire::nfs3::{Fh, FileType, Name, NfsTime, NodeKind, SetAttr, WccAttr};
use remora_wire::rpc::AuthUnix;

/// Identifies a record. Of two changes to one name or object, the later one has the larger number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordId(pub u64);

/// An object of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogNode {
    pub fh: Fh,
    pub kind: FileType,
    /// The server's number, or the one that programs see of an object that was made here.
    pub fileid: u64,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogName {
    pub dir: LogNode,
    pub name: Name,
}

/// An object that loses its name by a rename.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    pub object: LogNode,
    /// What the server showed of it before.
    pub seen: Option<WccAttr>,
}

/// A change that the server does not have yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    pub id: RecordId,
    pub change: LogChange,
    pub credential: AuthUnix,
    /// Time of the change by the server's clock, as far as it is known.
    pub at: NfsTime,
    /// Path of the subject when the change was made, for people.
    pub path: Vec<u8>,
    /// Why the record is kept and not sent (number of the error); `None` while it is to be sent.
    pub refusal: Option<u32>,
}

/// What a record changes. `seen` is what the server showed of the object before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogChange {
    /// CREATE, MKDIR, SYMLINK or MKNOD.
    Make {
        at: LogName,
        /// Its handle is provisional.
        object: LogNode,
        what: LogObject,
        attr: SetAttr,
        /// Verifier of an exclusive creation, the same at each attempt.
        verifier: [u8; 8],
    },
    Link {
        object: LogNode,
        at: LogName,
    },
    /// REMOVE or RMDIR.
    Remove {
        at: LogName,
        object: LogNode,
        seen: Option<WccAttr>,
        is_directory: bool,
    },
    Rename {
        from: LogName,
        to: LogName,
        object: LogNode,
        seen: Option<WccAttr>,
        replaced: Option<Replaced>,
    },
    /// Attributes of an object that is not a regular file.
    SetAttr {
        object: LogNode,
        set: SetAttr,
        seen: Option<WccAttr>,
    },
}

/// Type of an object that was made here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogObject {
    File,
    Directory,
    SymLink(Bytes),
    Special(NodeKind),
}

/// The server has made an object: its provisional handle stands for another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    pub provisional: Fh,
    pub fh: Fh,
    pub fileid: u64,
}

/// Identifies a reported conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConflictId(pub u64);

/// Two conflicting changes of one name or object, and the resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub id: ConflictId,
    pub kind: ConflictKind,
    /// Path of the server's version, from the mounted directory.
    pub path: Vec<u8>,
    /// Path of our version, if it has another name.
    pub copy: Option<Vec<u8>>,
    pub at: NfsTime,
}

/// What excludes what, and the rule that was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConflictKind {
    /// Both wrote the file, or made one of this name: ours has the name `copy`.
    Content,
    /// The server's object is of another type: ours has the name `copy`.
    Type,
    /// We wrote a file that another client removed: it is there again.
    RemovedThere,
    /// We removed what another client changed: it stays.
    ChangedThere,
    /// Both renamed the object: the server's name stays.
    Renamed,
    /// A directory that we removed is not empty, or a rename would make a cycle: skipped.
    Skipped,
    /// Another client removed a directory in which we changed something: it is there again.
    DirectoryRemovedThere,
    /// Both changed the attributes: the server's stay.
    Attributes,
}

/// Changes of the stored log, all or nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogBatch {
    /// Records that are new or replace those with the same number.
    pub put: Vec<LogRecord>,
    pub removed: Vec<RecordId>,
    pub bound: Vec<Binding>,
    /// Provisional handles that no record uses any more.
    pub unbound: Vec<Fh>,
    pub conflicts: Vec<Conflict>,
    pub dismissed: Vec<ConflictId>,
}

/// The log as the store returns it after a restart, records in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedLog {
    pub records: Vec<LogRecord>,
    pub bindings: Vec<Binding>,
    pub conflicts: Vec<Conflict>,
}

/// Figures of the change log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStatus {
    /// Records that the server does not have, with those that it refused.
    pub records: usize,
    /// Those of them that the server refused.
    pub refused: usize,
    /// Records that are being sent.
    pub in_flight: usize,
    /// Records that were sent since the mount began.
    pub sent: u64,
    /// Conflicts that nobody has dismissed.
    pub conflicts: usize,
}
