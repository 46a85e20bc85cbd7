//! NFSv2, MOUNT v1 and the portmapper, byte for byte against messages written by hand after RFC
//! 1094 and RFC 1833.

use bytes::Bytes;
use remora_wire::nfs2::*;
use remora_wire::rpcbind::{Netid, Service};
use remora_wire::{Error, Reader, Xdr, mount, portmap, rpcbind};

const FH: Fh = Fh([7; FH_SIZE]);

/// Words, with bytes between them.
macro_rules! wire {
    ($($part:expr),* $(,)?) => {{
        let mut out: Vec<u8> = Vec::new();
        $(Part::from($part).put(&mut out);)*
        out
    }};
}

enum Part {
    Word(u32),
    Raw(Vec<u8>),
}

impl Part {
    fn put(self, out: &mut Vec<u8>) {
        match self {
            Part::Word(w) => out.extend(w.to_be_bytes()),
            Part::Raw(bytes) => out.extend(bytes),
        }
    }
}

impl From<u32> for Part {
    fn from(w: u32) -> Part {
        Part::Word(w)
    }
}

impl<const N: usize> From<&[u8; N]> for Part {
    fn from(bytes: &[u8; N]) -> Part {
        Part::Raw(bytes.to_vec())
    }
}

fn attr() -> Attr {
    let time = |secs| Time { secs, micros: secs + 1 };
    Attr {
        kind: FileType::Regular,
        mode: 0o100644,
        nlink: 1,
        uid: 2,
        gid: 3,
        size: 4,
        block_size: 5,
        rdev: 6,
        blocks: 7,
        fsid: 8,
        fileid: 9,
        atime: time(10),
        mtime: time(12),
        ctime: time(14),
    }
}

#[test]
fn nfs2_call_has_the_bytes_of_the_rfc() {
    let at = |name: &str| DirOp { dir: FH, name: Bytes::copy_from_slice(name.as_bytes()) };
    let attr = SetAttr { mode: Some(0o644), size: Some(0), atime: Some(Time { secs: 1, micros: 2 }), ..SetAttr::NONE };
    let sattr = wire!(0o644, u32::MAX, u32::MAX, 0, 1, 2, u32::MAX, u32::MAX);
    for (call, want) in [
        (Call::GetAttr(FH), wire!(&[7; 32])),
        (Call::SetAttr(SetAttrArgs { fh: FH, attr: attr.clone() }), [wire!(&[7; 32]), sattr.clone()].concat()),
        (Call::Lookup(at("ab")), wire!(&[7; 32], 2, b"ab\0\0")),
        (Call::Read(ReadArgs { fh: FH, offset: 1, count: 2, total_count: 3 }), wire!(&[7; 32], 1, 2, 3)),
        (
            Call::Write(WriteArgs { fh: FH, begin_offset: 1, offset: 2, total_count: 3, data: Data("abcde".into()) }),
            wire!(&[7; 32], 1, 2, 3, 5, b"abcde\0\0\0"),
        ),
        (
            Call::SymLink(SymLinkArgs { at: at("l"), target: "to".into(), attr }),
            [wire!(&[7; 32], 1, b"l\0\0\0", 2, b"to\0\0"), sattr].concat(),
        ),
        (Call::ReadDir(ReadDirArgs { dir: FH, cookie: 8, count: 9 }), wire!(&[7; 32], 8, 9)),
        (Call::Root, vec![]),
    ] {
        let mut out = Vec::new();
        call.encode(&mut out);
        assert_eq!(out, want, "{call:?}");
    }
}

#[test]
fn nfs2_reply_has_the_bytes_of_the_rfc() {
    let fattr = wire!(1, 0o100644, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let entry = |fileid, name: &'static str, cookie| Entry { fileid, name: name.into(), cookie };
    let list = vec![entry(5, "a", 6), entry(7, "bcde", 8)];
    for (reply, want) in [
        (Reply::GetAttr(Ok(attr())), [wire!(0), fattr.clone()].concat()),
        (Reply::Lookup(Ok(DirOpOk { fh: FH, attr: attr() })), [wire!(0, &[7; 32]), fattr.clone()].concat()),
        (
            Reply::Read(Ok(ReadOk { attr: attr(), data: Data("x".into()) })),
            [wire!(0), fattr, wire!(1, b"x\0\0\0")].concat(),
        ),
        (Reply::Remove(Ok(())), wire!(0)),
        (Reply::Remove(Err(Status::NotEmpty)), wire!(66)),
        (Reply::ReadLink(Ok(Path("to".into()))), wire!(0, 2, b"to\0\0")),
        (
            Reply::ReadDir(Ok(remora_wire::nfs3::Entries { list, eof: true })),
            wire!(0, 1, 5, 1, b"a\0\0\0", 6, 1, 7, 4, b"bcde", 8, 0, 1),
        ),
        (
            Reply::StatFs(Ok(StatFsOk { transfer_size: 1, block_size: 2, blocks: 3, free: 4, avail: 5 })),
            wire!(0, 1, 2, 3, 4, 5),
        ),
        (Reply::WriteCache, vec![]),
    ] {
        let mut out = Vec::new();
        reply.encode(&mut out);
        assert_eq!(out, want, "{reply:?}");
    }
}

#[test]
fn mount_1_reply_has_a_bare_handle_or_an_error() {
    for (reply, want) in [
        (mount::ReplyV1::Mnt(Ok(FH)), wire!(0, &[7; 32])),
        (mount::ReplyV1::Mnt(Err(mount::MountError::Access)), wire!(13)),
    ] {
        let mut out = Vec::new();
        reply.encode(&mut out);
        assert_eq!(out, want);
    }
}

#[test]
fn portmap_has_the_bytes_of_the_rfc_and_no_callit() {
    let mapping = portmap::Mapping { prog: 100_003, vers: 2, prot: portmap::IPPROTO_UDP, port: 2049 };
    let mut out = Vec::new();
    portmap::Call::GetPort(mapping).encode(&mut out);
    assert_eq!(out, wire!(100_003, 2, 17, 2049));
    out.clear();
    portmap::Reply::Dump(vec![mapping]).encode(&mut out);
    assert_eq!(out, wire!(1, 100_003, 2, 17, 2049, 0));
    assert!(portmap::Call::decode(5, &mut Reader::new(vec![0; 100].into())).is_none());
}

#[test]
fn rpcbind_has_the_bytes_of_the_rfc_and_no_callit() {
    let nfs = Service { prog: 100_003, vers: 3, netid: Netid::Tcp6, at: "[::1]:2049".parse().unwrap() };
    let mut out = Vec::new();
    rpcbind::Call::GetAddr(nfs.binding("me")).encode(&mut out);
    let binding = wire!(100_003, 3, 4, b"tcp6", 7, b"::1.8.1\0", 2, b"me\0\0");
    assert_eq!(out, binding);
    assert_eq!(nfs.mapping(), None, "version 2 knows IPv4 only");
    out.clear();
    rpcbind::Reply::Dump(vec![nfs.binding("me")]).encode(&mut out);
    assert_eq!(out, [wire!(1), binding, wire!(0)].concat());
    out.clear();
    rpcbind::Reply::Addr(rpcbind::universal(nfs.at)).encode(&mut out);
    assert_eq!(out, wire!(7, b"::1.8.1\0"));
    for (vers, proc, is_there) in
        [(3, 3, true), (3, 5, false), (3, 9, false), (4, 5, false), (4, 9, true), (4, 10, false)]
    {
        let call = rpcbind::Call::decode(vers, proc, &mut Reader::new(vec![0; 100].into()));
        assert_eq!(call.is_some(), is_there, "version {vers}, procedure {proc}");
    }
}

#[test]
fn half_set_time_is_kept() {
    for (secs, micros, want) in [
        (u32::MAX, u32::MAX, None),
        (u32::MAX, 0, None),
        (0, u32::MAX, None),
        (1, Time::SERVER, Some(Time { secs: 1, micros: Time::SERVER })),
    ] {
        let message = wire!(u32::MAX, u32::MAX, u32::MAX, u32::MAX, secs, micros, u32::MAX, u32::MAX);
        assert_eq!(SetAttr::decode(&mut Reader::new(message.into())).unwrap().atime, want);
    }
}

#[test]
fn data_over_version_2_limit_is_refused() {
    let write = |len: u32| {
        let mut message = wire!(&[7; 32], 0, 0, 0, len);
        message.resize(message.len() + len as usize, 0);
        Call::decode(Proc::Write, &mut Reader::new(message.into()))
    };
    assert!(write(DATA_MAX).is_ok());
    assert_eq!(write(DATA_MAX + 4), Err(Error::TooLong { len: DATA_MAX + 4, max: DATA_MAX }));
}
