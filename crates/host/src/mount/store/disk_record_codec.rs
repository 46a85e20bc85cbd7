//! Records of the disk cache as bytes (XDR, RFC 4506), with a version in front.

use bytes::Bytes;
use remora_cache::{DiskChild, DiskGrant, DiskName, DiskRecord};
use remora_wire::nfs3::{Attr, Fh};
use remora_wire::{Error, Reader, Xdr};

const VERSION: u32 = 1;
/// Most entries of a list that are read.
const LIST_MAX: u32 = 1 << 20;

/// A record as bytes.
pub(super) fn encode(record: &DiskRecord) -> Vec<u8> {
    let DiskRecord { attr, names, grants, link_target } = record;
    let mut out = Vec::with_capacity(256 + names.as_ref().map_or(0, |names| names.len() * 192));
    VERSION.encode(&mut out);
    attr.encode(&mut out);
    link_target.encode(&mut out);
    len(grants.len(), &mut out);
    for DiskGrant { uid, gid, groups, tested, granted } in grants {
        [*uid, *gid, *tested, *granted].iter().for_each(|number| number.encode(&mut out));
        len(groups.len(), &mut out);
        groups.iter().for_each(|group| group.encode(&mut out));
    }
    names.is_some().encode(&mut out);
    let names = names.as_deref().unwrap_or_default();
    len(names.len(), &mut out);
    for DiskName { name, fileid, child } in names {
        name.encode(&mut out);
        fileid.encode(&mut out);
        child.is_some().encode(&mut out);
        if let Some(DiskChild { fh, attr }) = child {
            fh.encode(&mut out);
            attr.encode(&mut out);
        }
    }
    out
}

fn len(len: usize, out: &mut Vec<u8>) {
    u32::try_from(len).unwrap_or(u32::MAX).encode(out);
}

/// The record; `None` if it is of another version.
pub(super) fn decode(bytes: Vec<u8>) -> Option<DiskRecord> {
    let mut reader = Reader::new(bytes.into());
    read(&mut reader).ok().filter(|_| reader.remaining() == 0)
}

fn read(r: &mut Reader) -> Result<DiskRecord, Error> {
    let version = u32::decode(r)?;
    if version != VERSION {
        return Err(Error::BadDiscriminant { what: "version of a record", value: version });
    }
    let attr = Attr::decode(r)?;
    let link_target = Option::<Bytes>::decode(r)?;
    let grants = list(r, |r| {
        let (uid, gid, tested, granted) = (u32::decode(r)?, u32::decode(r)?, u32::decode(r)?, u32::decode(r)?);
        Ok(DiskGrant { uid, gid, tested, granted, groups: list(r, u32::decode)? })
    })?;
    let has_names = bool::decode(r)?;
    let names = list(r, |r| {
        let (name, fileid) = (Bytes::decode(r)?, u64::decode(r)?);
        let has_child = bool::decode(r)?;
        let child = if has_child { Some(DiskChild { fh: Fh::decode(r)?, attr: Attr::decode(r)? }) } else { None };
        Ok(DiskName { name, fileid, child })
    })?;
    Ok(DiskRecord { attr, names: Some(names).filter(|_| has_names), grants, link_target })
}

fn list<T>(r: &mut Reader, item: impl Fn(&mut Reader) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let count = u32::decode(r)?;
    if count > LIST_MAX {
        return Err(Error::TooLong { len: count, max: LIST_MAX });
    }
    (0..count).map(|_| item(r)).collect()
}
