//! The change log as bytes (XDR, RFC 4506), with a version in front of each record.

use bytes::Bytes;
use remora_cache::{Binding, Conflict, ConflictId, ConflictKind, LogChange, LogName, LogNode, LogObject, LogRecord};
use remora_cache::{RecordId, Replaced};
use remora_wire::nfs3::{Fh, FileType, Name, NfsTime, NodeKind, SetAttr};
use remora_wire::rpc::AuthUnix;
use remora_wire::{Error, Reader, Xdr};

const VERSION: u32 = 1;

/// Discriminants of [`LogChange`].
const MAKE: u32 = 1;
const LINK: u32 = 2;
const REMOVE: u32 = 3;
const RENAME: u32 = 4;
const SET_ATTR: u32 = 5;

/// Discriminants of [`LogObject`].
const FILE: u32 = 1;
const DIRECTORY: u32 = 2;
const SYM_LINK: u32 = 3;
const SPECIAL: u32 = 4;

/// Kinds of conflicts; the place in the list is the number.
const KINDS: [ConflictKind; 8] = [
    ConflictKind::Content,
    ConflictKind::Type,
    ConflictKind::RemovedThere,
    ConflictKind::ChangedThere,
    ConflictKind::Renamed,
    ConflictKind::Skipped,
    ConflictKind::DirectoryRemovedThere,
    ConflictKind::Attributes,
];

/// A record as bytes, without its number.
pub(super) fn encode_record(record: &LogRecord) -> Vec<u8> {
    let LogRecord { id: _, change, credential, at, path, refusal } = record;
    let mut out = Vec::with_capacity(512);
    VERSION.encode(&mut out);
    credential.encode(&mut out);
    at.encode(&mut out);
    Bytes::copy_from_slice(path).encode(&mut out);
    refusal.encode(&mut out);
    encode_change(change, &mut out);
    out
}

/// The record of this number.
pub(super) fn decode_record(id: RecordId, bytes: Vec<u8>) -> Result<LogRecord, Error> {
    whole(bytes, |r| {
        let (credential, at, path) = (AuthUnix::decode(r)?, NfsTime::decode(r)?, Bytes::decode(r)?.to_vec());
        let refusal = Option::decode(r)?;
        Ok(LogRecord { id, change: decode_change(r)?, credential, at, path, refusal })
    })
}

/// A binding as bytes, without its provisional handle.
pub(super) fn encode_binding(binding: &Binding) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    VERSION.encode(&mut out);
    binding.fh.encode(&mut out);
    binding.fileid.encode(&mut out);
    out
}

/// The binding of this provisional handle.
pub(super) fn decode_binding(provisional: Fh, bytes: Vec<u8>) -> Result<Binding, Error> {
    whole(bytes, |r| Ok(Binding { provisional, fh: Fh::decode(r)?, fileid: u64::decode(r)? }))
}

/// A conflict as bytes, without its number.
pub(super) fn encode_conflict(conflict: &Conflict) -> Vec<u8> {
    let Conflict { id: _, kind, path, copy, at } = conflict;
    let mut out = Vec::with_capacity(256);
    VERSION.encode(&mut out);
    let number = KINDS.iter().position(|known| known == kind).unwrap_or(KINDS.len());
    u32::try_from(number).unwrap_or(u32::MAX).encode(&mut out);
    Bytes::copy_from_slice(path).encode(&mut out);
    copy.as_ref().map(|copy| Bytes::copy_from_slice(copy)).encode(&mut out);
    at.encode(&mut out);
    out
}

/// The conflict of this number.
pub(super) fn decode_conflict(id: ConflictId, bytes: Vec<u8>) -> Result<Conflict, Error> {
    whole(bytes, |r| {
        let number = u32::decode(r)?;
        let kind = KINDS.get(number as usize).copied();
        let kind = kind.ok_or(Error::BadDiscriminant { what: "kind of a conflict", value: number })?;
        let path = Bytes::decode(r)?.to_vec();
        let copy = Option::<Bytes>::decode(r)?.map(|copy| copy.to_vec());
        Ok(Conflict { id, kind, path, copy, at: NfsTime::decode(r)? })
    })
}

/// Decodes all of `bytes` behind the version.
fn whole<T>(bytes: Vec<u8>, decode: impl FnOnce(&mut Reader) -> Result<T, Error>) -> Result<T, Error> {
    let mut reader = Reader::new(bytes.into());
    let version = u32::decode(&mut reader)?;
    if version != VERSION {
        return Err(Error::BadDiscriminant { what: "version of a record", value: version });
    }
    let value = decode(&mut reader)?;
    match u32::try_from(reader.remaining()) {
        Ok(0) => Ok(value),
        rest => Err(Error::TooLong { len: rest.unwrap_or(u32::MAX), max: 0 }),
    }
}

fn encode_change(change: &LogChange, out: &mut Vec<u8>) {
    match change {
        LogChange::Make { at, object, what, attr, verifier } => {
            MAKE.encode(out);
            encode_name(at, out);
            encode_node(object, out);
            encode_object(what, out);
            attr.encode(out);
            verifier.encode(out);
        }
        LogChange::Link { object, at } => {
            LINK.encode(out);
            encode_node(object, out);
            encode_name(at, out);
        }
        LogChange::Remove { at, object, seen, is_directory } => {
            REMOVE.encode(out);
            encode_name(at, out);
            encode_node(object, out);
            seen.encode(out);
            is_directory.encode(out);
        }
        LogChange::Rename { from, to, object, seen, replaced } => {
            RENAME.encode(out);
            encode_name(from, out);
            encode_name(to, out);
            encode_node(object, out);
            seen.encode(out);
            replaced.is_some().encode(out);
            if let Some(Replaced { object, seen }) = replaced {
                encode_node(object, out);
                seen.encode(out);
            }
        }
        LogChange::SetAttr { object, set, seen } => {
            SET_ATTR.encode(out);
            encode_node(object, out);
            set.encode(out);
            seen.encode(out);
        }
    }
}

fn decode_change(r: &mut Reader) -> Result<LogChange, Error> {
    Ok(match u32::decode(r)? {
        MAKE => LogChange::Make {
            at: decode_name(r)?,
            object: decode_node(r)?,
            what: decode_object(r)?,
            attr: SetAttr::decode(r)?,
            verifier: <[u8; 8]>::decode(r)?,
        },
        LINK => LogChange::Link { object: decode_node(r)?, at: decode_name(r)? },
        REMOVE => LogChange::Remove {
            at: decode_name(r)?,
            object: decode_node(r)?,
            seen: Option::decode(r)?,
            is_directory: bool::decode(r)?,
        },
        RENAME => LogChange::Rename {
            from: decode_name(r)?,
            to: decode_name(r)?,
            object: decode_node(r)?,
            seen: Option::decode(r)?,
            replaced: match bool::decode(r)? {
                true => Some(Replaced { object: decode_node(r)?, seen: Option::decode(r)? }),
                false => None,
            },
        },
        SET_ATTR => LogChange::SetAttr { object: decode_node(r)?, set: SetAttr::decode(r)?, seen: Option::decode(r)? },
        value => return Err(Error::BadDiscriminant { what: "change", value }),
    })
}

fn encode_name(at: &LogName, out: &mut Vec<u8>) {
    encode_node(&at.dir, out);
    at.name.encode(out);
}

fn decode_name(r: &mut Reader) -> Result<LogName, Error> {
    Ok(LogName { dir: decode_node(r)?, name: Name::decode(r)? })
}

fn encode_node(LogNode { fh, kind, fileid }: &LogNode, out: &mut Vec<u8>) {
    fh.encode(out);
    kind.encode(out);
    fileid.encode(out);
}

fn decode_node(r: &mut Reader) -> Result<LogNode, Error> {
    Ok(LogNode { fh: Fh::decode(r)?, kind: FileType::decode(r)?, fileid: u64::decode(r)? })
}

fn encode_object(what: &LogObject, out: &mut Vec<u8>) {
    match what {
        LogObject::File => FILE.encode(out),
        LogObject::Directory => DIRECTORY.encode(out),
        LogObject::SymLink(target) => {
            SYM_LINK.encode(out);
            target.encode(out);
        }
        LogObject::Special(kind) => {
            SPECIAL.encode(out);
            kind.encode(out);
        }
    }
}

fn decode_object(r: &mut Reader) -> Result<LogObject, Error> {
    Ok(match u32::decode(r)? {
        FILE => LogObject::File,
        DIRECTORY => LogObject::Directory,
        SYM_LINK => LogObject::SymLink(Bytes::decode(r)?),
        SPECIAL => LogObject::Special(NodeKind::decode(r)?),
        value => return Err(Error::BadDiscriminant { what: "type of an object", value }),
    })
}

/// Values of every variant, for tests of the codec and of the store.
#[cfg(test)]
pub(super) mod samples {
    use remora_wire::nfs3::{SetTime, SpecData, WccAttr};

    use super::*;

    fn fh(name: &'static str) -> Fh {
        Fh(name.as_bytes().into())
    }

    fn node(name: &'static str) -> LogNode {
        LogNode { fh: fh(name), kind: FileType::Regular, fileid: 9 }
    }

    fn name(name: &'static str) -> LogName {
        let dir = LogNode { fh: fh("directory"), kind: FileType::Directory, fileid: 10 };
        LogName { dir, name: name.into() }
    }

    fn seen() -> Option<WccAttr> {
        let time = NfsTime { secs: 5, nanos: 6 };
        Some(WccAttr { size: 4, mtime: time, ctime: time })
    }

    fn changes() -> Vec<LogChange> {
        let attr = SetAttr { mode: Some(0o640), mtime: SetTime::To(NfsTime { secs: 1, nanos: 2 }), ..SetAttr::NONE };
        let spec = SpecData { major: 1, minor: 2 };
        let objects = [
            LogObject::File,
            LogObject::Directory,
            LogObject::SymLink("target".into()),
            LogObject::Special(NodeKind::Char(attr.clone(), spec)),
            LogObject::Special(NodeKind::Block(attr.clone(), spec)),
            LogObject::Special(NodeKind::Socket(attr.clone())),
            LogObject::Special(NodeKind::Fifo(attr.clone())),
            LogObject::Special(NodeKind::Other(77)),
        ];
        let make = |what| LogChange::Make {
            at: name("made"),
            object: node("remora1"),
            what,
            attr: attr.clone(),
            verifier: *b"verifier",
        };
        let mut changes: Vec<LogChange> = objects.into_iter().map(make).collect();
        changes.push(LogChange::Link { object: node("remora1"), at: name("linked") });
        for (seen, is_directory) in [(None, true), (seen(), false)] {
            changes.push(LogChange::Remove { at: name("gone"), object: node("x"), seen, is_directory });
        }
        let replaced = |seen| Some(Replaced { object: node("y"), seen });
        for replaced in [None, replaced(None), replaced(seen())] {
            let (from, to) = (name("from"), name("to"));
            changes.push(LogChange::Rename { from, to, object: node("x"), seen: seen(), replaced });
        }
        changes.push(LogChange::SetAttr { object: node("x"), set: attr, seen: seen() });
        changes
    }

    /// A record of each variant, numbered from 1 on.
    pub(in super::super) fn records() -> Vec<LogRecord> {
        let credential = AuthUnix { uid: 7, gid: 8, gids: vec![9, 10], ..AuthUnix::default() };
        let record = |(n, change)| LogRecord {
            id: RecordId(n),
            change,
            credential: credential.clone(),
            at: NfsTime { secs: 11, nanos: 12 },
            path: b"/a\xff".to_vec(),
            refusal: (n % 2 == 0).then_some(13),
        };
        (1..).zip(changes()).map(record).collect()
    }

    pub(in super::super) fn binding() -> Binding {
        Binding { provisional: fh("remora1"), fh: fh("handle"), fileid: 14 }
    }

    /// A conflict of each kind, numbered from 1 on.
    pub(in super::super) fn conflicts() -> Vec<Conflict> {
        let conflict = |(n, kind)| Conflict {
            id: ConflictId(n),
            kind,
            path: b"/a\xff".to_vec(),
            copy: (n % 2 == 0).then(|| b"/b".to_vec()),
            at: NfsTime { secs: 15, nanos: 16 },
        };
        (1..).zip(KINDS).map(conflict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_variants_round_trip() {
        for record in samples::records() {
            assert_eq!(decode_record(record.id, encode_record(&record)), Ok(record));
        }
        let binding = samples::binding();
        assert_eq!(decode_binding(binding.provisional.clone(), encode_binding(&binding)), Ok(binding));
        for conflict in samples::conflicts() {
            assert_eq!(decode_conflict(conflict.id, encode_conflict(&conflict)), Ok(conflict));
        }
    }

    #[test]
    fn truncated_or_longer_record_is_an_error() {
        for record in samples::records() {
            let bytes = encode_record(&record);
            for len in 0..bytes.len() {
                assert!(decode_record(record.id, bytes[..len].to_vec()).is_err(), "{len} bytes of {record:?}");
            }
            let longer = [&bytes[..], &[0; 4]].concat();
            assert_eq!(decode_record(record.id, longer), Err(Error::TooLong { len: 4, max: 0 }));
            let newer = [&[0, 0, 0, 99], &bytes[4..]].concat();
            let error = Error::BadDiscriminant { what: "version of a record", value: 99 };
            assert_eq!(decode_record(record.id, newer), Err(error));
        }
    }

    proptest::proptest! {
        /// Damage anywhere gives a value or an error.
        #[test]
        fn damaged_bytes_never_panic(nth in 0..13_usize, at in 0..200_usize, with: u8, bytes: Vec<u8>) {
            let records = samples::records();
            let mut damaged = encode_record(&records[nth % records.len()]);
            let at = at % damaged.len();
            damaged[at] = with;
            let _ = decode_record(RecordId(1), damaged);
            let _ = decode_record(RecordId(1), bytes.clone());
            let _ = decode_binding(Fh(Bytes::new()), bytes.clone());
            let _ = decode_conflict(ConflictId(1), bytes);
        }
    }
}
