//! Translates NFSv3 replies to NFSv2.

use remora_wire::mount::{MountError, Mounted};
use remora_wire::nfs2::{self, Data, DirOpOk, PATH_MAX, Path, Proc, ReadOk, Reply, Res, StatFsOk, Status};
use remora_wire::nfs3::{self, Attr, Failed, FileType, FsStatOk, MadeOk, NfsTime, Reply as V3, SpecData};

use super::encoding::{device, kind};

/// The block size in STATFS, in bytes.
const BLOCK_SIZE: u32 = 4096;
/// Most blocks in STATFS: many clients decode a signed number.
const BLOCKS_MAX: u64 = i32::MAX as u64;

/// The reply to `proc` from that of the NFSv3 procedure that was executed for it.
pub(crate) fn from_v3(proc: Proc, reply: V3) -> Reply {
    match (proc, reply) {
        (Proc::GetAttr, V3::GetAttr(res)) => Reply::GetAttr(ok(res).map(|a| attr(&a))),
        (Proc::SetAttr, V3::SetAttr(res)) => Reply::SetAttr(ok(res).and_then(|wcc| known(wcc.after))),
        (Proc::Lookup, V3::Lookup(res)) => Reply::Lookup(ok(res).and_then(|ok| found(Some(ok.fh), ok.attr))),
        (Proc::ReadLink, V3::ReadLink(res)) => Reply::ReadLink(ok(res).and_then(|ok| path(ok.target))),
        (Proc::Read, V3::Read(res)) => {
            Reply::Read(ok(res).and_then(|ok| Ok(ReadOk { attr: known(ok.attr)?, data: Data(ok.data) })))
        }
        (Proc::Write, V3::Write(res)) => Reply::Write(ok(res).and_then(|ok| known(ok.wcc.after))),
        (Proc::Create, V3::Create(res)) => Reply::Create(ok(res).and_then(file)),
        (Proc::Create, V3::MkNod(res)) => Reply::Create(ok(res).and_then(|made| found(made.fh, made.attr))),
        (Proc::MkDir, V3::MkDir(res)) => Reply::MkDir(ok(res).and_then(|made| found(made.fh, made.attr))),
        (Proc::Remove, V3::Remove(res)) => Reply::Remove(ok(res).map(drop)),
        (Proc::RmDir, V3::RmDir(res)) => Reply::RmDir(ok(res).map(drop)),
        (Proc::Rename, V3::Rename(res)) => Reply::Rename(ok(res).map(drop)),
        (Proc::Link, V3::Link(res)) => Reply::Link(ok(res).map(drop)),
        (Proc::SymLink, V3::SymLink(res)) => Reply::SymLink(ok(res).map(drop)),
        (Proc::StatFs, V3::FsStat(res)) => Reply::StatFs(ok(res).map(|room| stat_fs(&room))),
        // No call is translated to another procedure.
        (proc, _) => Reply::failed(proc, Status::Io),
    }
}

/// The reply to CREATE. NFSv3 reports what kind of object existed.
fn file(made: MadeOk) -> Res<DirOpOk> {
    match &made.attr {
        Some(attr) if attr.kind != FileType::Regular => Err(Status::Exist),
        _ => found(made.fh, made.attr),
    }
}

fn ok<O, I>(res: nfs3::Res<O, I>) -> Res<O> {
    res.map_err(|Failed { status: s, .. }| status(s))
}

/// The closest NFSv2 error.
pub(crate) fn status(status: nfs3::Status) -> Status {
    use nfs3::Status as S;
    match status {
        S::Perm => Status::Perm,
        S::NoEnt => Status::NoEnt,
        S::NxIo => Status::NxIo,
        S::Access => Status::Access,
        S::Exist => Status::Exist,
        S::NoDev => Status::NoDev,
        S::NotDir => Status::NotDir,
        S::IsDir => Status::IsDir,
        S::Inval => Status::Inval,
        S::FBig => Status::FBig,
        S::NoSpc => Status::NoSpc,
        S::RoFs => Status::RoFs,
        S::NameTooLong => Status::NameTooLong,
        S::NotEmpty => Status::NotEmpty,
        S::DQuot => Status::DQuot,
        S::Stale | S::BadHandle => Status::Stale,
        S::Io
        | S::XDev
        | S::MLink
        | S::Remote
        | S::NotSync
        | S::BadCookie
        | S::NotSupp
        | S::TooSmall
        | S::ServerFault
        | S::BadType
        | S::Jukebox => Status::Io,
    }
}

/// NFSv3 attributes are optional, NFSv2's are not.
fn known(attr3: Option<Attr>) -> Res<nfs2::Attr> {
    attr3.as_ref().map(attr).ok_or(Status::Io)
}

fn found(fh: Option<nfs3::Fh>, attr: Option<Attr>) -> Res<DirOpOk> {
    Ok(DirOpOk { fh: fh.as_ref().and_then(handle).ok_or(Status::Io)?, attr: known(attr)? })
}

/// The reply to MNT of version 1, whose errors are UNIX errno values; two of version 3's are not.
pub(crate) fn mounted(res: Result<Mounted, MountError>) -> Result<nfs2::Fh, MountError> {
    match res {
        Ok(mounted) => handle(&mounted.fh).ok_or(MountError::Io),
        Err(MountError::NotSupp | MountError::ServerFault) => Err(MountError::Io),
        Err(e) => Err(e),
    }
}

fn handle(fh: &nfs3::Fh) -> Option<nfs2::Fh> {
    fh.0.as_ref().try_into().ok().map(nfs2::Fh)
}

fn path(target: bytes::Bytes) -> Res<Path> {
    if target.len() > PATH_MAX as usize { Err(Status::NameTooLong) } else { Ok(Path(target)) }
}

fn attr(a: &Attr) -> nfs2::Attr {
    let (file_type, bits) = match a.kind {
        FileType::Regular => (nfs2::FileType::Regular, kind::REGULAR),
        FileType::Directory => (nfs2::FileType::Directory, kind::DIRECTORY),
        FileType::Block => (nfs2::FileType::Block, kind::BLOCK),
        FileType::Char => (nfs2::FileType::Char, kind::CHAR),
        FileType::SymLink => (nfs2::FileType::SymLink, kind::SYMLINK),
        FileType::Socket => (nfs2::FileType::Socket, kind::SOCKET),
        FileType::Fifo => (nfs2::FileType::Char, kind::FIFO),
    };
    let is_device = matches!(a.kind, FileType::Block | FileType::Char);
    nfs2::Attr {
        kind: file_type,
        mode: bits | a.mode & kind::PERMISSIONS,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: clamp(a.size),
        block_size: BLOCK_SIZE,
        rdev: if is_device { device::pack(a.rdev) } else { nfs2::Attr::NO_DEVICE },
        blocks: clamp(a.used.div_ceil(512)),
        fsid: fsid(a.fsid),
        fileid: fileid(a.fileid),
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
    }
}

fn time(t: NfsTime) -> nfs2::Time {
    nfs2::Time { secs: t.secs, micros: t.nanos / 1000 }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The file system id: a packed device number, so that no two are equal; other numbers are folded.
fn fsid(n: u64) -> u32 {
    let device = SpecData { major: (n >> 32) as u32, minor: n as u32 };
    let packed = device::pack(device);
    if device::unpack(packed) == device { packed } else { fold(n) }
}

fn fold(n: u64) -> u32 {
    (n >> 32) as u32 ^ n as u32
}

/// The file id in 32 bits. Never 0, which marks deleted entries for some clients.
pub(crate) fn fileid(n: u64) -> u32 {
    fold(n).max(1)
}

/// STATFS, in blocks large enough for their number to fit NFSv2's.
fn stat_fs(room: &FsStatOk) -> StatFsOk {
    let mut block_size = BLOCK_SIZE;
    while room.total / u64::from(block_size) > BLOCKS_MAX && block_size < 1 << 30 {
        block_size *= 2;
    }
    let blocks = |bytes: u64| clamp((bytes / u64::from(block_size)).min(BLOCKS_MAX));
    StatFsOk {
        transfer_size: nfs2::DATA_MAX,
        block_size,
        blocks: blocks(room.total),
        free: blocks(room.free),
        avail: blocks(room.avail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v3_attr(kind: FileType) -> Attr {
        let t = |secs| NfsTime { secs, nanos: 123_456_789 };
        Attr {
            kind,
            mode: 0o4755,
            nlink: 1,
            uid: 2,
            gid: 3,
            size: 5 << 32,
            used: 513,
            rdev: SpecData { major: 8, minor: 1 },
            fsid: 0x1_0000_0001,
            fileid: 1 << 32 | 7,
            atime: t(1),
            mtime: t(2),
            ctime: t(3),
        }
    }

    #[test]
    fn attributes_fit_32_bits_and_modes_have_types() {
        let a = attr(&v3_attr(FileType::Regular));
        assert_eq!((a.mode, a.size, a.blocks, a.rdev), (0o104_755, u32::MAX, 2, nfs2::Attr::NO_DEVICE));
        assert_eq!((a.fsid, a.fileid, a.mtime), (0x101, 6, nfs2::Time { secs: 2, micros: 123_456 }));
        for (kind, want, mode, rdev) in [
            (FileType::Directory, nfs2::FileType::Directory, 0o044_755, u32::MAX),
            (FileType::SymLink, nfs2::FileType::SymLink, 0o124_755, u32::MAX),
            (FileType::Char, nfs2::FileType::Char, 0o024_755, 0x801),
            (FileType::Block, nfs2::FileType::Block, 0o064_755, 0x801),
            (FileType::Fifo, nfs2::FileType::Char, 0o014_755, u32::MAX),
            (FileType::Socket, nfs2::FileType::Socket, 0o144_755, u32::MAX),
        ] {
            let a = attr(&v3_attr(kind));
            assert_eq!((a.kind, a.mode, a.rdev), (want, mode, rdev));
        }
        assert_eq!([fileid(0), fileid(9), fileid(3 << 32 | 3)], [1, 9, 1]);
    }

    /// A client takes files with equal ids in file systems with equal ids for the same file.
    #[test]
    fn file_systems_on_different_devices_have_different_numbers() {
        let of = |major: u64, minor: u64| attr(&Attr { fsid: major << 32 | minor, ..v3_attr(FileType::Regular) }).fsid;
        for (one, other) in [((252, 1), (253, 0)), ((8, 1), (9, 0)), ((0, 0x101), (1, 1)), ((0, 0xf_ffff), (0, 0xff))] {
            assert_ne!(of(one.0, one.1), of(other.0, other.1), "{one:?} {other:?}");
        }
        assert_eq!([of(8, 1), of(0, 0x2d)], [0x801, 0x2d], "as stat(2) has it");
        assert_eq!(of(0x1000, 1), 0x1001, "no device of Linux's: folded");
    }

    #[test]
    fn large_file_systems_have_large_blocks() {
        let room = |total| FsStatOk {
            attr: None,
            total,
            free: total / 2,
            avail: total / 4,
            files: 0,
            files_free: 0,
            files_avail: 0,
            invar_secs: 0,
        };
        for (total, block_size, blocks) in [
            (0, 4096, 0),
            (1 << 40, 4096, 1 << 28),
            (1 << 43, 8192, 1 << 30),
            (1 << 50, 1 << 20, 1 << 30),
            (u64::MAX, 1 << 30, i32::MAX as u32),
        ] {
            let got = stat_fs(&room(total));
            assert_eq!((got.transfer_size, got.block_size, got.blocks), (8192, block_size, blocks), "{total}");
            assert!(got.avail <= got.free && got.free <= got.blocks);
        }
    }

    #[test]
    fn overlong_path_is_not_sent_in_version_2() {
        assert!(path(vec![b'x'; 1024].into()).is_ok());
        assert_eq!(path(vec![b'x'; 1025].into()), Err(Status::NameTooLong));
    }

    #[test]
    fn errors_known_to_version_2_keep_their_numbers() {
        use remora_wire::{Reader, Xdr};
        let read = |n: u32| Reader::new(n.to_bytes());
        for n in (1..100).chain(10_001..10_010) {
            let Ok(v3) = nfs3::Status::decode(&mut read(n)) else { continue };
            let same = Status::decode(&mut read(n)).ok();
            let want = same.unwrap_or(if v3 == nfs3::Status::BadHandle { Status::Stale } else { Status::Io });
            assert_eq!(status(v3), want, "{v3:?}");
        }
    }
}
