//! Records of unsent data as bytes (XDR, RFC 4506), with a version in front.

use std::ops::Range;

use bytes::Bytes;
use remora_cache::{DirtyAttr, DirtyRecord, ObjectId, Refusal};
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{Fh, SetAttr, WccAttr};
use remora_wire::rpc::AuthUnix;
use remora_wire::{Error, Reader, Xdr};

const VERSION: u32 = 2;
/// Version without [`DirtyRecord::cut`].
const VERSION_WITHOUT_CUT: u32 = 1;
/// Most ranges of a file that are read.
const RANGES_MAX: u32 = 1 << 20;
/// Value of a refusal that is not an error number.
const CHANGED: u32 = 0;

/// A record as bytes, without its number.
pub(super) fn encode(record: &DirtyRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    VERSION.encode(&mut out);
    record.fh.encode(&mut out);
    record.fileid.encode(&mut out);
    Bytes::copy_from_slice(&record.path).encode(&mut out);
    record.size.encode(&mut out);
    u32::try_from(record.ranges.len()).unwrap_or(u32::MAX).encode(&mut out);
    for range in &record.ranges {
        range.start.encode(&mut out);
        range.end.encode(&mut out);
    }
    record.before.encode(&mut out);
    record.credential.encode(&mut out);
    record.attr.is_some().encode(&mut out);
    if let Some(DirtyAttr { set, credential }) = &record.attr {
        set.encode(&mut out);
        credential.encode(&mut out);
    }
    let refusal = record.refusal.map(|refusal| match refusal {
        Refusal::Changed => CHANGED,
        Refusal::Refused(errno) => errno.0.cast_unsigned(),
    });
    refusal.encode(&mut out);
    record.cut.encode(&mut out);
    out
}

/// The record of `object`; `None` if it is damaged or of another version.
pub(super) fn decode(object: ObjectId, bytes: Vec<u8>) -> Option<DirtyRecord> {
    let mut reader = Reader::new(bytes.into());
    read(object, &mut reader).ok().filter(|_| reader.remaining() == 0)
}

fn read(object: ObjectId, r: &mut Reader) -> Result<DirtyRecord, Error> {
    let version = u32::decode(r)?;
    if version != VERSION && version != VERSION_WITHOUT_CUT {
        return Err(Error::BadDiscriminant { what: "version of a record", value: version });
    }
    let (fh, fileid, path, size) = (Fh::decode(r)?, u64::decode(r)?, Bytes::decode(r)?, u64::decode(r)?);
    let count = u32::decode(r)?;
    if count > RANGES_MAX {
        return Err(Error::TooLong { len: count, max: RANGES_MAX });
    }
    let range = |r: &mut Reader| -> Result<Range<u64>, Error> { Ok(u64::decode(r)?..u64::decode(r)?) };
    let ranges = (0..count).map(|_| range(r)).collect::<Result<_, _>>()?;
    let before = Option::<WccAttr>::decode(r)?;
    let credential = AuthUnix::decode(r)?;
    let attr = match bool::decode(r)? {
        true => Some(DirtyAttr { set: SetAttr::decode(r)?, credential: AuthUnix::decode(r)? }),
        false => None,
    };
    let refusal = Option::<u32>::decode(r)?.map(|number| match number {
        CHANGED => Refusal::Changed,
        errno => Refusal::Refused(Errno(errno.cast_signed())),
    });
    let cut = if version == VERSION_WITHOUT_CUT { None } else { Option::<u64>::decode(r)? };
    let path = path.to_vec();
    Ok(DirtyRecord { object, fh, fileid, path, size, ranges, cut, before, credential, attr, refusal })
}
