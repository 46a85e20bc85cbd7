//! Arguments of operations: valid names (RFC 1813, section 3.2), attributes of new objects, exclusive verifiers.

use remora_wire::nfs3::{Attr, NfsTime, SetAttr, SetTime, Status};

use crate::types::{Cred, Result};

/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest target of a symbolic link in bytes: PATH_MAX of Linux without its NUL.
pub(crate) const TARGET_MAX: usize = 4095;

/// Checks a name for LOOKUP, which allows `.` and `..`.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::Access);
    }
    if name.len() > NAME_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

/// Checks the name of a new object.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if is_dots(name) { Err(Status::Exist) } else { Ok(()) }
}

/// Checks a name to remove or rename.
pub(crate) fn check_old_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if is_dots(name) { Err(Status::Inval) } else { Ok(()) }
}

/// Checks the target of a symbolic link. Only clients follow it, so any path will do.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Status::Inval);
    }
    if target.len() > TARGET_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The mode of a file that is created without one.
pub(crate) const FILE_MODE: u32 = 0o600;
/// The mode of a directory that is created without one.
pub(crate) const DIR_MODE: u32 = 0o700;
/// The mode bits that a client can set.
pub(crate) const MODE_MASK: u32 = 0o7777;

/// Rejects invalid times.
pub(crate) fn check_attrs(attr: &SetAttr) -> Result<()> {
    let bad = |t: SetTime| matches!(t, SetTime::To(t) if t.nanos > 999_999_999);
    if bad(attr.atime) || bad(attr.mtime) { Err(Status::Inval) } else { Ok(()) }
}

/// The attributes of a new object. Ignores a requested owner unless the caller is root, as knfsd does.
pub(crate) fn new_attrs(cred: &Cred, attr: &SetAttr, default_mode: u32) -> SetAttr {
    let root = cred.uid == 0;
    SetAttr {
        mode: Some(attr.mode.unwrap_or(default_mode) & MODE_MASK),
        uid: attr.uid.filter(|_| root),
        gid: attr.gid.filter(|_| root),
        ..attr.clone()
    }
}

const HALF_SECOND_NS: u32 = 500_000_000;

/// Encodes the verifier of an exclusive CREATE as access and modification time, where it survives a restart (RFC 1813,
/// section 3.3.8). Seconds use 31 bits, which every file system can store. The two remaining bits are half seconds,
/// because many file systems store no nanoseconds.
pub(crate) fn exclusive_times(verf: [u8; 8]) -> (NfsTime, NfsTime) {
    let split = |v: u32| NfsTime { secs: v & 0x7fff_ffff, nanos: (v >> 31) * HALF_SECOND_NS };
    let v = u64::from_be_bytes(verf);
    (split((v >> 32) as u32), split(v as u32))
}

/// Whether `file` was created with `verf` and not written since. On a file system that keeps whole seconds, as its
/// ctime shows, the half seconds do not count.
pub(crate) fn is_exclusive(verf: [u8; 8], file: &Attr) -> bool {
    let whole = [file.atime, file.mtime, file.ctime].iter().all(|time| time.nanos == 0);
    let kept = |made: NfsTime, now: NfsTime| made.secs == now.secs && (made.nanos == now.nanos || whole);
    let (a, m) = exclusive_times(verf);
    file.size == 0 && kept(a, file.atime) && kept(m, file.mtime)
}

/// The attributes of a new file that stores `verf`.
pub(crate) fn exclusive_attrs(verf: [u8; 8]) -> SetAttr {
    let (atime, mtime) = exclusive_times(verf);
    SetAttr { mode: Some(FILE_MODE), atime: SetTime::To(atime), mtime: SetTime::To(mtime), ..SetAttr::NONE }
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, SpecData};

    use super::*;

    fn file() -> Attr {
        let (none, rdev, kind) = (NfsTime { secs: 0, nanos: 0 }, SpecData { major: 0, minor: 0 }, FileType::Regular);
        let (mode, uid, gid, size, used, fsid, fileid) = (0o600, 0, 0, 0, 0, 1, 2);
        Attr { kind, mode, nlink: 1, uid, gid, size, used, rdev, fsid, fileid, atime: none, mtime: none, ctime: none }
    }

    #[test]
    fn exclusive_times_use_every_verifier_bit() {
        let base = exclusive_times([0; 8]);
        for bit in 0..64 {
            assert_ne!(exclusive_times((1u64 << bit).to_be_bytes()), base, "bit {bit}");
        }
        let (a, m) = exclusive_times([0xff; 8]);
        assert!([a, m].iter().all(|t| t.secs == 0x7fff_ffff && t.nanos == HALF_SECOND_NS));
    }

    #[test]
    fn exclusive_file_is_recognised_with_coarse_times() {
        // NTFS and CIFS, UDF, exFAT.
        for grain in [100, 1_000, 10_000_000] {
            let kept = |t: NfsTime| NfsTime { nanos: t.nanos / grain * grain, ..t };
            let ctime = NfsTime { secs: 1_700_000_000, nanos: 120_000_000 };
            let verifiers = [0, 1 << 31, 1 << 63, 1 << 63 | 1 << 31].map(u64::to_be_bytes);
            for made in verifiers {
                let (a, m) = exclusive_times(made);
                let there = Attr { atime: kept(a), mtime: kept(m), ctime, ..file() };
                for asked in verifiers {
                    assert_eq!(is_exclusive(asked, &there), asked == made, "{grain} ns: {made:?} {asked:?}");
                }
            }
        }
    }

    #[test]
    fn exclusive_file_is_recognised_with_whole_seconds() {
        let whole = |t: NfsTime| NfsTime { nanos: 0, ..t };
        let changed = NfsTime { secs: 1_700_000_000, nanos: 7 };
        let is = |verf: [u8; 8], (atime, mtime), ctime| is_exclusive(verf, &Attr { atime, mtime, ctime, ..file() });
        let (a, m) = exclusive_times([0xff; 8]);
        for (times, ctime, known) in [
            ((a, m), changed, true),
            ((whole(a), whole(m)), whole(changed), true),
            ((whole(a), whole(m)), changed, false),
            ((whole(a), m), whole(changed), false),
            ((NfsTime { nanos: 2, ..a }, m), changed, false),
            ((a, NfsTime { secs: 1, ..m }), changed, false),
        ] {
            assert_eq!(is([0xff; 8], times, ctime), known, "{times:?} {ctime:?}");
        }
        let (a, m) = exclusive_times([0; 8]);
        assert!(!is([0; 8], (NfsTime { nanos: 1, ..a }, m), changed), "another's");
        assert!(!is([0x80, 0, 0, 0, 0x80, 0, 0, 0], (a, m), changed), "another's, on a disk that keeps all");
    }
}
