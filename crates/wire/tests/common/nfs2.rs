//! Arbitrary messages of NFSv2.

use remora_wire::nfs2::*;
use remora_wire::nfs3::Entries;

use super::{Arb, Draw};

/// A call of `proc`.
pub(crate) fn call(proc: Proc, d: &mut Draw<'_>) -> Call {
    macro_rules! call {
        ($($v:ident)*) => { match proc {
            Proc::Null => Call::Null,
            Proc::Root => Call::Root,
            Proc::WriteCache => Call::WriteCache,
            $(Proc::$v => Call::$v(Arb::arb(d)),)*
        } };
    }
    call!(GetAttr SetAttr Lookup ReadLink Read Write Create Remove Rename Link SymLink MkDir RmDir ReadDir StatFs)
}

/// A reply to `proc`.
pub(crate) fn reply(proc: Proc, d: &mut Draw<'_>) -> Reply {
    macro_rules! reply {
        ($($v:ident)*) => { match proc {
            Proc::Null => Reply::Null,
            Proc::Root => Reply::Root,
            Proc::WriteCache => Reply::WriteCache,
            $(Proc::$v => Reply::$v(Arb::arb(d)),)*
        } };
    }
    reply!(GetAttr SetAttr Lookup ReadLink Read Write Create Remove Rename Link SymLink MkDir RmDir ReadDir StatFs)
}

fn any_proc(d: &mut Draw<'_>) -> Proc {
    Proc::ALL[usize::from(d.byte()) % Proc::ALL.len()]
}

/// A word that can be set: all ones mean "keep".
fn settable(d: &mut Draw<'_>) -> Option<u32> {
    Option::<u32>::arb(d).filter(|w| *w != u32::MAX)
}

fn settable_time(d: &mut Draw<'_>) -> Option<Time> {
    Option::<Time>::arb(d).filter(|t| t.secs != u32::MAX && t.micros != u32::MAX)
}

arb! {
    Fh: d => Fh(std::array::from_fn(|_| d.byte()));
    Status: d => d.pick();
    FileType: d => d.pick();
    Data: d => Data(d.bytes(200));
    Path: d => Path(d.bytes(200));
    SetAttr: d => SetAttr {
        mode: settable(d), uid: settable(d), gid: settable(d), size: settable(d),
        atime: settable_time(d), mtime: settable_time(d),
    };
    Call: d => call(any_proc(d), d);
    Reply: d => reply(any_proc(d), d);
}

arb_structs! {
    Time { secs micros }
    Attr { kind mode nlink uid gid size block_size rdev blocks fsid fileid atime mtime ctime }
    DirOp { dir name }
    SetAttrArgs { fh attr }
    ReadArgs { fh offset count total_count }
    WriteArgs { fh begin_offset offset total_count data }
    CreateArgs { at attr }
    RenameArgs { from to }
    LinkArgs { fh at }
    SymLinkArgs { at target attr }
    ReadDirArgs { dir cookie count }
    DirOpOk { fh attr }
    ReadOk { attr data }
    Entry { fileid name cookie }
    StatFsOk { transfer_size block_size blocks free avail }
}

macro_rules! arb_results {
    ($($t:ty)*) => { $(impl Arb for Res<$t> {
        fn arb(d: &mut Draw<'_>) -> Res<$t> {
            if bool::arb(d) { Err(Status::arb(d)) } else { Ok(Arb::arb(d)) }
        }
    })* };
}

arb_results!(() Attr DirOpOk Path ReadOk Entries<Entry> StatFsOk);
