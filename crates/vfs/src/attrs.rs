//! Attributes a client sets: what every file system here checks and fills in alike.

use remora_wire::nfs3::{Attr, NfsTime, SetAttr, SetTime, Status};

use crate::{Cred, Result};

/// Mode of a file whose maker did not say: its own until it does.
pub(crate) const FILE_MODE: u32 = 0o600;
/// Mode of a directory whose maker did not say.
pub(crate) const DIR_MODE: u32 = 0o700;
/// The bits of a mode that can be set.
pub(crate) const MODE_MASK: u32 = 0o7777;

/// Refuses times that are none.
pub(crate) fn check(attr: &SetAttr) -> Result<()> {
    let bad = |t: SetTime| matches!(t, SetTime::To(t) if t.nanos > 999_999_999);
    if bad(attr.atime) || bad(attr.mtime) { Err(Status::Inval) } else { Ok(()) }
}

/// The attributes a new object gets. Only root makes objects for others; everybody else's
/// wish for an owner is passed over, since the object gets the caller's (as knfsd does).
pub(crate) fn for_new(cred: &Cred, attr: &SetAttr, default_mode: u32) -> SetAttr {
    let root = cred.uid == 0;
    SetAttr {
        mode: Some(attr.mode.unwrap_or(default_mode) & MODE_MASK),
        uid: attr.uid.filter(|_| root),
        gid: attr.gid.filter(|_| root),
        ..attr.clone()
    }
}

/// In nanoseconds.
const HALF_SECOND: u32 = 500_000_000;

/// The verifier of an exclusive CREATE, as access and modification time: that is where it
/// outlives a restart (RFC 1813, section 3.3.8). Seconds keep within 31 bits, which every file
/// system can store; the two bits left over are half seconds, for many keep less than nanoseconds.
pub(crate) fn exclusive_times(verf: [u8; 8]) -> (NfsTime, NfsTime) {
    let split = |v: u32| NfsTime { secs: v & 0x7fff_ffff, nanos: (v >> 31) * HALF_SECOND };
    let v = u64::from_be_bytes(verf);
    (split((v >> 32) as u32), split(v as u32))
}

/// Whether a file that looks like that was made with `verf`, and nothing else was done to it. What has data was
/// written to since, whoever set its times back, and is no new file to anybody. A disk may keep whole seconds only, as is seen by
/// the time of the last change, and there the rest has to do.
pub(crate) fn is_exclusive(verf: [u8; 8], file: &Attr) -> bool {
    let whole = [file.atime, file.mtime, file.ctime].iter().all(|time| time.nanos == 0);
    let kept = |made: NfsTime, now: NfsTime| made.secs == now.secs && (made.nanos == now.nanos || whole);
    let (a, m) = exclusive_times(verf);
    file.size == 0 && kept(a, file.atime) && kept(m, file.mtime)
}

/// The attributes of a file made with `verf`.
pub(crate) fn for_exclusive(verf: [u8; 8]) -> SetAttr {
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
    fn every_bit_of_an_exclusive_verifier_counts() {
        let base = exclusive_times([0; 8]);
        for bit in 0..64 {
            assert_ne!(exclusive_times((1u64 << bit).to_be_bytes()), base, "bit {bit}");
        }
        let (a, m) = exclusive_times([0xff; 8]);
        assert!([a, m].iter().all(|t| t.secs == 0x7fff_ffff && t.nanos == HALF_SECOND));
    }

    #[test]
    fn an_exclusive_file_is_known_where_the_disk_keeps_coarse_times() {
        // NTFS and CIFS, UDF, and as coarse as any that keeps parts of a second.
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
    fn an_exclusive_file_is_known_where_the_disk_keeps_whole_seconds() {
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
