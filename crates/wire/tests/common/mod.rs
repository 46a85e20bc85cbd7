//! Arbitrary messages, drawn from arbitrary bytes: proptest shrinks the bytes, and fewer and
//! smaller bytes yield a simpler message.

use bytes::Bytes;
use proptest::prelude::*;
use remora_wire::nfs3::*;
use remora_wire::portmap::Mapping;
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, portmap};

/// The source of values; zeros when the bytes are used up.
pub(crate) struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    /// A source of these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Draw<'a> {
        Draw(bytes)
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, max: usize) -> Bytes {
        let len = usize::from(self.byte()) % (max + 1);
        (0..len).map(|_| self.byte()).collect()
    }

    fn list<T: Arb>(&mut self, max: u8) -> Vec<T> {
        (0..self.byte() % (max + 1)).map(|_| T::arb(self)).collect()
    }

    /// A value of an XDR enumeration: one of its valid numbers.
    fn pick<T: Xdr>(&mut self) -> T {
        let numbers = (0..100u32).chain(10_000..10_010);
        let mut all: Vec<T> = numbers.filter_map(|n| T::decode(&mut Reader::new(n.to_bytes())).ok()).collect();
        all.swap_remove(usize::from(self.byte()) % all.len())
    }
}

/// A value that can be drawn.
pub(crate) trait Arb: Sized {
    fn arb(d: &mut Draw<'_>) -> Self;
}

/// Any value of `T`.
pub(crate) fn any_of<T: Arb + std::fmt::Debug>() -> impl Strategy<Value = T> {
    proptest::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| T::arb(&mut Draw::new(&bytes)))
}

/// An NFSv3 call of `proc`.
pub(crate) fn nfs3_call(proc: Proc, d: &mut Draw<'_>) -> Call {
    macro_rules! call {
        ($($v:ident)*) => { match proc { Proc::Null => Call::Null, $(Proc::$v => Call::$v(Arb::arb(d)),)* } };
    }
    call!(GetAttr SetAttr Lookup Access ReadLink Read Write Create MkDir SymLink MkNod Remove RmDir Rename Link
          ReadDir ReadDirPlus FsStat FsInfo PathConf Commit)
}

/// An NFSv3 reply to `proc`.
pub(crate) fn nfs3_reply(proc: Proc, d: &mut Draw<'_>) -> Reply {
    macro_rules! reply {
        ($($v:ident)*) => { match proc { Proc::Null => Reply::Null, $(Proc::$v => Reply::$v(Arb::arb(d)),)* } };
    }
    reply!(GetAttr SetAttr Lookup Access ReadLink Read Write Create MkDir SymLink MkNod Remove RmDir Rename Link
           ReadDir ReadDirPlus FsStat FsInfo PathConf Commit)
}

fn any_proc(d: &mut Draw<'_>) -> Proc {
    Proc::ALL[usize::from(d.byte()) % Proc::ALL.len()]
}

macro_rules! arb {
    ($($t:ty: $d:ident => $e:expr;)*) => { $(impl Arb for $t { fn arb($d: &mut Draw<'_>) -> $t { $e } })* };
}

/// Structs, field by field.
macro_rules! arb_structs {
    ($($t:ident { $($f:ident)* })*) => { $(impl Arb for $t {
        fn arb(d: &mut Draw<'_>) -> $t { $t { $($f: Arb::arb(d),)* } }
    })* };
}

// After the macros, which they use.
pub(crate) mod nfs2;
pub(crate) mod nfsacl;

arb! {
    (): _d => ();
    bool: d => d.byte() % 2 == 1;
    u32: d => u32::from_be_bytes([d.byte(), d.byte(), d.byte(), d.byte()]);
    u64: d => u64::from(u32::arb(d)) << 32 | u64::from(u32::arb(d));
    [u8; 8]: d => u64::arb(d).to_be_bytes();
    Bytes: d => d.bytes(200);
    Fh: d => Fh(d.bytes(64));
    Status: d => d.pick();
    Stable: d => d.pick();
    FileType: d => d.pick();
    mount::MountError: d => d.pick();
    SetTime: d => match d.byte() % 3 { 0 => SetTime::Keep, 1 => SetTime::Server, _ => SetTime::To(Arb::arb(d)) };
    CreateHow: d => match d.byte() % 3 {
        0 => CreateHow::Unchecked(Arb::arb(d)),
        1 => CreateHow::Guarded(Arb::arb(d)),
        _ => CreateHow::Exclusive(Arb::arb(d)),
    };
    NodeKind: d => match FileType::arb(d) {
        FileType::Char => NodeKind::Char(Arb::arb(d), Arb::arb(d)),
        FileType::Block => NodeKind::Block(Arb::arb(d), Arb::arb(d)),
        FileType::Socket => NodeKind::Socket(Arb::arb(d)),
        FileType::Fifo => NodeKind::Fifo(Arb::arb(d)),
        other => NodeKind::Other(other as u32),
    };
    Call: d => nfs3_call(any_proc(d), d);
    Reply: d => nfs3_reply(any_proc(d), d);
    OpaqueAuth: d => OpaqueAuth { flavor: Arb::arb(d), body: d.bytes(400) };
    AuthUnix: d => AuthUnix {
        stamp: Arb::arb(d), machine: d.bytes(255), uid: Arb::arb(d), gid: Arb::arb(d), gids: d.list(16),
    };
    Outcome: d => match d.byte() % 8 {
        0 => Outcome::Success,
        1 => Outcome::ProgUnavail,
        2 => Outcome::ProgMismatch { low: Arb::arb(d), high: Arb::arb(d) },
        3 => Outcome::ProcUnavail,
        4 => Outcome::GarbageArgs,
        5 => Outcome::SystemErr,
        6 => Outcome::RpcMismatch { low: Arb::arb(d), high: Arb::arb(d) },
        _ => Outcome::AuthError(Arb::arb(d)),
    };
    mount::Mounted: d => mount::Mounted { fh: Arb::arb(d), flavors: d.list(64) };
    mount::MountEntry: d => mount::MountEntry { host: Arb::arb(d), dir: Arb::arb(d) };
    mount::Export: d => mount::Export { dir: Arb::arb(d), groups: d.list(4) };
    mount::Call: d => match d.byte() % 6 {
        0 => mount::Call::Null,
        1 => mount::Call::Mnt(Arb::arb(d)),
        2 => mount::Call::Dump,
        3 => mount::Call::Umnt(Arb::arb(d)),
        4 => mount::Call::UmntAll,
        _ => mount::Call::Export,
    };
    mount::Reply: d => mount_reply(d);
    mount::ReplyV1: d => mount_reply(d);
    portmap::Call: d => match d.byte() % 5 {
        0 => portmap::Call::Null,
        1 => portmap::Call::Set(Arb::arb(d)),
        2 => portmap::Call::Unset(Arb::arb(d)),
        3 => portmap::Call::GetPort(Arb::arb(d)),
        _ => portmap::Call::Dump,
    };
}

arb_structs! {
    Mapping { prog vers prot port }
    CallHeader { xid prog vers proc cred verf }
    ReplyHeader { xid outcome }
    NfsTime { secs nanos }
    SpecData { major minor }
    Attr { kind mode nlink uid gid size used rdev fsid fileid atime mtime ctime }
    WccAttr { size mtime ctime }
    Wcc { before after }
    SetAttr { mode uid gid size atime mtime }
    DirOp { dir name }
    SetAttrArgs { fh attr guard }
    AccessArgs { fh access }
    ReadArgs { fh offset count }
    WriteArgs { fh offset count stable data }
    CreateArgs { at how }
    MkDirArgs { at attr }
    SymLinkArgs { at attr target }
    MkNodArgs { at what }
    RenameArgs { from to }
    LinkArgs { fh at }
    ReadDirArgs { dir cookie verf count }
    ReadDirPlusArgs { dir cookie verf dir_count max_count }
    CommitArgs { fh offset count }
    LookupOk { fh attr dir }
    AccessOk { attr access }
    ReadLinkOk { attr target }
    ReadOk { attr count eof data }
    WriteOk { wcc count committed verf }
    MadeOk { fh attr dir }
    RenameDirs { from to }
    LinkAttrs { attr dir }
    ReadDirOk { dir verf entries }
    Entry { fileid name cookie }
    ReadDirPlusOk { dir verf entries }
    EntryPlus { fileid name cookie attr fh }
    FsStatOk { attr total free avail files files_free files_avail invar_secs }
    FsInfoOk { attr read_max read_pref read_mult write_max write_pref write_mult dir_pref max_file time_delta properties }
    PathConfOk { attr link_max name_max no_trunc chown_restricted case_insensitive case_preserving }
    CommitOk { wcc verf }
}

impl<T: Arb> Arb for Option<T> {
    fn arb(d: &mut Draw<'_>) -> Option<T> {
        bool::arb(d).then(|| T::arb(d))
    }
}

impl<T: Arb> Arb for Entries<T> {
    fn arb(d: &mut Draw<'_>) -> Entries<T> {
        Entries { list: d.list(5), eof: Arb::arb(d) }
    }
}

impl<O: Arb, I: Arb> Arb for Res<O, I> {
    fn arb(d: &mut Draw<'_>) -> Res<O, I> {
        if bool::arb(d) { Err(Failed { status: Arb::arb(d), info: Arb::arb(d) }) } else { Ok(O::arb(d)) }
    }
}

fn mount_reply<M: Arb>(d: &mut Draw<'_>) -> mount::ReplyOf<M> {
    match d.byte() % 5 {
        0 => mount::ReplyOf::Void,
        1 => mount::ReplyOf::Mnt(Ok(Arb::arb(d))),
        2 => mount::ReplyOf::Mnt(Err(Arb::arb(d))),
        3 => mount::ReplyOf::Dump(d.list(5)),
        _ => mount::ReplyOf::Export(d.list(5)),
    }
}

/// The procedure that `reply` may answer.
fn mount_proc<M>(reply: &mount::ReplyOf<M>) -> u32 {
    match reply {
        mount::ReplyOf::Void => 0,
        mount::ReplyOf::Mnt(_) => 1,
        mount::ReplyOf::Dump(_) => 2,
        mount::ReplyOf::Export(_) => 5,
    }
}

fn portmap_reply(d: &mut Draw<'_>) -> (u32, portmap::Reply) {
    match d.byte() % 4 {
        0 => (0, portmap::Reply::Void),
        1 => (1, portmap::Reply::Done(Arb::arb(d))),
        2 => (portmap::PROC_GETPORT, portmap::Reply::Port(Arb::arb(d))),
        _ => (4, portmap::Reply::Dump(d.list(5))),
    }
}

/// A message of any supported kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    CallHeader(CallHeader),
    ReplyHeader(ReplyHeader),
    AuthUnix(AuthUnix),
    Nfs3Call(Call),
    Nfs3Reply(Reply),
    Nfs2Call(remora_wire::nfs2::Call),
    Nfs2Reply(remora_wire::nfs2::Reply),
    AclCall(remora_wire::nfsacl::Call),
    AclReply(remora_wire::nfsacl::Reply),
    MountCall(mount::Call),
    /// A reply and the procedure it answers.
    MountReply(u32, mount::Reply),
    MountReplyV1(u32, mount::ReplyV1),
    PortmapCall(portmap::Call),
    PortmapReply(u32, portmap::Reply),
}

impl Arb for Message {
    fn arb(d: &mut Draw<'_>) -> Message {
        match d.byte() % 16 {
            0..4 => Message::Nfs3Call(Arb::arb(d)),
            4..8 => Message::Nfs3Reply(Arb::arb(d)),
            8 if bool::arb(d) => Message::AuthUnix(Arb::arb(d)),
            8 => Message::ReplyHeader(Arb::arb(d)),
            9 => Message::CallHeader(Arb::arb(d)),
            10 => Message::MountCall(Arb::arb(d)),
            11 if bool::arb(d) => {
                let reply = mount::ReplyV1::arb(d);
                Message::MountReplyV1(mount_proc(&reply), reply)
            }
            11 => {
                let reply = mount::Reply::arb(d);
                Message::MountReply(mount_proc(&reply), reply)
            }
            12 if bool::arb(d) => Message::PortmapCall(Arb::arb(d)),
            12 => {
                let (proc, reply) = portmap_reply(d);
                Message::PortmapReply(proc, reply)
            }
            13 => Message::Nfs2Call(Arb::arb(d)),
            14 => Message::Nfs2Reply(Arb::arb(d)),
            _ if bool::arb(d) => Message::AclCall(Arb::arb(d)),
            _ => Message::AclReply(Arb::arb(d)),
        }
    }
}

impl Message {
    /// The encoded message.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Message::CallHeader(m) => m.encode(&mut out),
            Message::ReplyHeader(m) => m.encode(&mut out),
            Message::AuthUnix(m) => m.encode(&mut out),
            Message::Nfs3Call(m) => m.encode(&mut out),
            Message::Nfs3Reply(m) => m.encode(&mut out),
            Message::Nfs2Call(m) => m.encode(&mut out),
            Message::Nfs2Reply(m) => m.encode(&mut out),
            Message::AclCall(m) => m.encode(&mut out),
            Message::AclReply(m) => m.encode(&mut out),
            Message::MountCall(m) => m.encode(&mut out),
            Message::MountReply(_, m) => m.encode(&mut out),
            Message::MountReplyV1(_, m) => m.encode(&mut out),
            Message::PortmapCall(m) => m.encode(&mut out),
            Message::PortmapReply(_, m) => m.encode(&mut out),
        }
        out.into()
    }

    /// Decodes `bytes` as a message of the same kind; `None` on an error. Also returns the number
    /// of bytes left over.
    pub(crate) fn decode_alike(&self, bytes: Bytes) -> Option<(Message, usize)> {
        let r = &mut Reader::new(bytes);
        let message = match self {
            Message::CallHeader(_) => Message::CallHeader(CallHeader::decode(r).ok()?),
            Message::ReplyHeader(_) => Message::ReplyHeader(Xdr::decode(r).ok()?),
            Message::AuthUnix(_) => Message::AuthUnix(Xdr::decode(r).ok()?),
            Message::Nfs3Call(m) => Message::Nfs3Call(Call::decode(m.proc(), r).ok()?),
            Message::Nfs3Reply(m) => Message::Nfs3Reply(Reply::decode(m.proc(), r).ok()?),
            Message::Nfs2Call(m) => Message::Nfs2Call(remora_wire::nfs2::Call::decode(m.proc(), r).ok()?),
            Message::Nfs2Reply(m) => Message::Nfs2Reply(remora_wire::nfs2::Reply::decode(m.proc(), r).ok()?),
            Message::AclCall(m) => Message::AclCall(remora_wire::nfsacl::Call::decode(m.proc(), r).ok()?),
            Message::AclReply(m) => Message::AclReply(remora_wire::nfsacl::Reply::decode(m.proc(), r).ok()?),
            Message::MountCall(m) => Message::MountCall(mount::Call::decode(m.proc(), r)?.ok()?),
            Message::MountReply(proc, _) => Message::MountReply(*proc, mount::Reply::decode(*proc, r).ok()?),
            Message::MountReplyV1(proc, _) => Message::MountReplyV1(*proc, mount::ReplyV1::decode(*proc, r).ok()?),
            Message::PortmapCall(m) => Message::PortmapCall(portmap::Call::decode(m.proc(), r)?.ok()?),
            Message::PortmapReply(proc, _) => Message::PortmapReply(*proc, portmap::Reply::decode(*proc, r).ok()?),
        };
        Some((message, r.remaining()))
    }
}
