//! NFS messages as text, for the log of a reproduced run.

use bytes::Bytes;
use remora_wire::nfs3::{self, Call, CreateHow, Fh, Proc, Stable};
use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

/// The parts of an NFS call that the simulator needs.
#[derive(Clone, Debug)]
pub(crate) struct CallView {
    pub(crate) xid: u32,
    pub(crate) call: Call,
}

/// Decodes an NFS call; `None` for other messages.
pub(crate) fn read_call(message: &Bytes) -> Option<CallView> {
    let mut r = Reader::new(message.clone());
    let header = CallHeader::decode(&mut r).ok()?;
    if header.prog != nfs3::PROGRAM || header.vers != nfs3::VERSION {
        return None;
    }
    let proc = Proc::from_number(header.proc)?;
    Some(CallView { xid: header.xid, call: Call::decode(proc, &mut r).ok()? })
}

/// The transaction ID of any message.
pub(crate) fn xid(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|head| u32::from_be_bytes(*head))
}

/// A call as text.
pub(crate) fn call(message: &Bytes) -> String {
    match read_call(message) {
        Some(CallView { xid, call }) => format!("{xid:08x} {}", call_args(&call)),
        None => format!("{} bytes that are not an NFS call", message.len()),
    }
}

/// A reply as text; `proc` is the procedure, if known.
pub(crate) fn reply(message: &Bytes, proc: Option<Proc>) -> String {
    let mut r = Reader::new(message.clone());
    let Ok(header) = ReplyHeader::decode(&mut r) else {
        return format!("{} bytes that are not a reply", message.len());
    };
    let xid = header.xid;
    match (header.outcome, proc) {
        (Outcome::Success, Some(proc)) => match nfs3::Reply::decode(proc, &mut r) {
            Ok(reply) => format!("{xid:08x} {proc:?} -> {}", results(&reply)),
            Err(e) => format!("{xid:08x} {proc:?} -> {e}"),
        },
        (outcome, _) => format!("{xid:08x} -> {outcome}"),
    }
}

fn results(reply: &nfs3::Reply) -> String {
    if let Some(status) = reply.status() {
        return format!("{status:?}");
    }
    match reply {
        nfs3::Reply::Read(Ok(ok)) => format!("ok, {} bytes{}", ok.count, if ok.eof { ", end" } else { "" }),
        nfs3::Reply::Write(Ok(ok)) => format!("ok, {} bytes {:?}", ok.count, ok.committed),
        nfs3::Reply::GetAttr(Ok(attr)) => format!("ok, {} bytes", attr.size),
        _ => "ok".into(),
    }
}

fn call_args(call: &Call) -> String {
    let proc = call.proc();
    let dir_op = |d: &nfs3::DirOp| format!("{}/{}", handle(&d.dir), text(&d.name));
    match call {
        Call::SetAttr(a) => match a.attr.size {
            Some(size) => format!("SetAttr {} size {size}", handle(&a.fh)),
            None => format!("SetAttr {}", handle(&a.fh)),
        },
        Call::Lookup(d) | Call::Remove(d) | Call::RmDir(d) => format!("{proc:?} {}", dir_op(d)),
        Call::Read(a) => format!("Read {} {}+{}", handle(&a.fh), a.offset, a.count),
        Call::Write(a) => {
            let how = if a.stable == Stable::Unstable { "" } else { " stable" };
            format!("Write {} {}+{}{how}", handle(&a.fh), a.offset, a.data.len())
        }
        Call::Create(a) => format!("Create {} {}", dir_op(&a.at), create_how(&a.how)),
        Call::MkDir(a) => format!("MkDir {}", dir_op(&a.at)),
        Call::SymLink(a) => format!("SymLink {} -> {}", dir_op(&a.at), text(&a.target)),
        Call::Rename(a) => format!("Rename {} to {}", dir_op(&a.from), dir_op(&a.to)),
        Call::Link(a) => format!("Link {} as {}", handle(&a.fh), dir_op(&a.at)),
        other => format!("{proc:?} {}", other.target().map(handle).unwrap_or_default()),
    }
}

fn create_how(how: &CreateHow) -> &'static str {
    match how {
        CreateHow::Unchecked(attr) if attr.size.is_some() => "unchecked, truncating",
        CreateHow::Unchecked(_) => "unchecked",
        CreateHow::Guarded(_) => "guarded",
        CreateHow::Exclusive(_) => "exclusive",
    }
}

/// The last bytes of a handle identify objects well enough for readers.
fn handle(fh: &Fh) -> String {
    let tail = &fh.0[fh.0.len().saturating_sub(3)..];
    tail.iter().map(|b| format!("{b:02x}")).collect()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
