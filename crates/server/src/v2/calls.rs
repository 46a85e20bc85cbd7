//! Translates NFSv2 calls to NFSv3.

use bytes::Bytes;
use remora_wire::nfs2::{self, Call, DATA_MAX, PATH_MAX, Reply, Status};
use remora_wire::nfs3::{self, CreateHow, NfsTime, NodeKind, SetAttr, SetTime, Stable};

use super::encoding::{device, kind};

/// The NFSv3 call that does what `call` asks for, or the reply if nothing is to be done.
pub(crate) fn to_v3(call: Call) -> Result<nfs3::Call, Reply> {
    Ok(match call {
        Call::Null => return Err(Reply::Null),
        // Obsolete, with empty results.
        Call::Root => return Err(Reply::Root),
        Call::WriteCache => return Err(Reply::WriteCache),
        Call::GetAttr(fh) => nfs3::Call::GetAttr(handle(fh)),
        Call::SetAttr(a) => {
            nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh: handle(a.fh), attr: set_attr(&a.attr), guard: None })
        }
        Call::Lookup(a) => nfs3::Call::Lookup(dir_op(a)),
        Call::ReadLink(fh) => nfs3::Call::ReadLink(handle(fh)),
        Call::Read(a) => nfs3::Call::Read(read(&a)),
        Call::Write(a) => nfs3::Call::Write(write(a)?),
        Call::Create(a) => create(a)?,
        Call::Remove(a) => nfs3::Call::Remove(dir_op(a)),
        Call::Rename(a) => nfs3::Call::Rename(nfs3::RenameArgs { from: dir_op(a.from), to: dir_op(a.to) }),
        Call::Link(a) => nfs3::Call::Link(nfs3::LinkArgs { fh: handle(a.fh), at: dir_op(a.at) }),
        Call::SymLink(a) => symlink(a)?,
        Call::MkDir(a) => {
            nfs3::Call::MkDir(nfs3::MkDirArgs { at: dir_op(a.at), attr: SetAttr { size: None, ..set_attr(&a.attr) } })
        }
        Call::RmDir(a) => nfs3::Call::RmDir(dir_op(a)),
        Call::ReadDir(a) => nfs3::Call::ReadDir(nfs3::ReadDirArgs {
            dir: handle(a.dir),
            cookie: u64::from(a.cookie),
            verf: [0; 8],
            count: a.count.min(DATA_MAX),
        }),
        Call::StatFs(fh) => nfs3::Call::FsStat(handle(fh)),
    })
}

fn handle(fh: nfs2::Fh) -> nfs3::Fh {
    nfs3::Fh(Bytes::copy_from_slice(&fh.0))
}

fn dir_op(a: nfs2::DirOp) -> nfs3::DirOp {
    nfs3::DirOp { dir: handle(a.dir), name: a.name }
}

/// A READ ends where NFSv2's sizes end.
fn read(a: &nfs2::ReadArgs) -> nfs3::ReadArgs {
    let below = u32::MAX - a.offset;
    nfs3::ReadArgs { fh: handle(a.fh), offset: u64::from(a.offset), count: a.count.min(DATA_MAX).min(below) }
}

fn write(a: nfs2::WriteArgs) -> Result<nfs3::WriteArgs, Reply> {
    let data = a.data.0;
    let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
    if a.offset.checked_add(count).is_none() {
        return Err(Reply::Write(Err(Status::FBig)));
    }
    let offset = u64::from(a.offset);
    Ok(nfs3::WriteArgs { fh: handle(a.fh), offset, count, stable: Stable::FileSync, data })
}

/// READLINK could not return a longer target.
fn symlink(a: nfs2::SymLinkArgs) -> Result<nfs3::Call, Reply> {
    if a.target.len() > PATH_MAX as usize {
        return Err(Reply::SymLink(Err(Status::NameTooLong)));
    }
    let attr = SetAttr { size: None, ..set_attr(&a.attr) };
    Ok(nfs3::Call::SymLink(nfs3::SymLinkArgs { at: dir_op(a.at), attr, target: a.target }))
}

/// CREATE makes files and, by convention, everything that MKNOD makes.
fn create(a: nfs2::CreateArgs) -> Result<nfs3::Call, Reply> {
    let (mode, size) = (a.attr.mode.filter(|mode| *mode != KEEP_MODE).unwrap_or(0), a.attr.size);
    let attr = set_attr(&a.attr);
    let plain = SetAttr { size: None, ..attr.clone() };
    let spec = || device::unpack(size.unwrap_or(0));
    let what = match mode & kind::MASK {
        0 | kind::REGULAR => {
            let how = CreateHow::Unchecked(attr);
            return Ok(nfs3::Call::Create(nfs3::CreateArgs { at: dir_op(a.at), how }));
        }
        kind::CHAR if size.is_none() => NodeKind::Fifo(plain),
        kind::CHAR => NodeKind::Char(plain, spec()),
        kind::BLOCK => NodeKind::Block(plain, spec()),
        kind::FIFO => NodeKind::Fifo(plain),
        kind::SOCKET => NodeKind::Socket(plain),
        _ => return Err(Reply::Create(Err(Status::Io))),
    };
    Ok(nfs3::Call::MkNod(nfs3::MkNodArgs { at: dir_op(a.at), what }))
}

/// The mode by which old Sun clients leave the mode unchanged.
const KEEP_MODE: u32 = 0xffff;

fn set_attr(a: &nfs2::SetAttr) -> SetAttr {
    let to_server = a.mtime.is_some_and(|t| t.micros == nfs2::Time::SERVER);
    let time = |t: Option<nfs2::Time>| match t {
        None => SetTime::Keep,
        Some(_) if to_server => SetTime::Server,
        Some(t) => SetTime::To(NfsTime { secs: t.secs, nanos: t.micros.min(999_999) * 1000 }),
    };
    SetAttr {
        mode: a.mode.filter(|m| *m != KEEP_MODE).map(|m| m & kind::PERMISSIONS),
        uid: a.uid,
        gid: a.gid,
        size: a.size.map(u64::from),
        atime: time(a.atime),
        mtime: time(a.mtime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs2::{Data, Fh, Time};

    const FH: Fh = Fh([3; 32]);

    #[test]
    fn unset_attributes_stay() {
        let time = |secs, micros| Some(Time { secs, micros });
        let to = |secs, nanos| SetTime::To(NfsTime { secs, nanos });
        let none = nfs2::SetAttr::NONE;
        for (given, want) in [
            (none.clone(), SetAttr::NONE),
            (nfs2::SetAttr { mode: Some(0xffff), ..none.clone() }, SetAttr::NONE),
            (
                nfs2::SetAttr { mode: Some(0o100_640), uid: Some(0), size: Some(0), ..none.clone() },
                SetAttr { mode: Some(0o640), uid: Some(0), size: Some(0), ..SetAttr::NONE },
            ),
            (
                nfs2::SetAttr { atime: time(1, 2), mtime: time(3, 999_999), ..none.clone() },
                SetAttr { atime: to(1, 2000), mtime: to(3, 999_999_000), ..SetAttr::NONE },
            ),
            (
                nfs2::SetAttr { atime: time(1, 2), mtime: time(3, 1_000_000), ..none.clone() },
                SetAttr { atime: SetTime::Server, mtime: SetTime::Server, ..SetAttr::NONE },
            ),
            (
                nfs2::SetAttr { mtime: time(3, 1_000_000), ..none.clone() },
                SetAttr { mtime: SetTime::Server, ..SetAttr::NONE },
            ),
            (
                nfs2::SetAttr { atime: time(1, u32::MAX - 1), ..none },
                SetAttr { atime: to(1, 999_999_000), ..SetAttr::NONE },
            ),
        ] {
            assert_eq!(set_attr(&given), want, "{given:?}");
        }
    }

    #[test]
    fn create_makes_the_type_of_its_mode() {
        let attr = |mode, size| nfs2::SetAttr { mode: Some(mode), size, ..nfs2::SetAttr::NONE };
        let made = |attr| match create(nfs2::CreateArgs { at: nfs2::DirOp { dir: FH, name: "n".into() }, attr }) {
            Ok(nfs3::Call::Create(a)) => format!("{:?}", a.how),
            Ok(nfs3::Call::MkNod(a)) => format!("{:?}", a.what),
            other => format!("{other:?}"),
        };
        for (mode, size, want) in [
            (0o644, Some(0), "Unchecked"),
            (0o100_644, None, "Unchecked"),
            (0o020_600, Some(0x0103), "Char"),
            (0o020_600, None, "Fifo"),
            (0o010_600, None, "Fifo"),
            (0o060_600, Some(0x0801), "Block"),
            (0o140_600, None, "Socket"),
            (0o040_700, None, "Err"),
            (0o120_700, None, "Err"),
        ] {
            let got = made(attr(mode, size));
            assert!(got.starts_with(want), "{mode:o} {size:?}: {got} instead of {want}");
        }
        assert!(made(attr(0o060_600, Some(0x0801))).contains("major: 8, minor: 1"));
    }

    #[test]
    fn nothing_reaches_beyond_32_bits() {
        let call = |offset, len: usize| {
            let data = Data(vec![0; len].into());
            write(nfs2::WriteArgs { fh: FH, begin_offset: 0, offset, total_count: 0, data })
        };
        assert!(call(u32::MAX - 10, 10).is_ok());
        assert_eq!(call(u32::MAX - 10, 11), Err(Reply::Write(Err(Status::FBig))));
        let count = |offset, count| read(&nfs2::ReadArgs { fh: FH, offset, count, total_count: 0 }).count;
        assert_eq!([count(0, u32::MAX), count(u32::MAX - 5, 100), count(u32::MAX, 1)], [DATA_MAX, 5, 0]);
    }
}
