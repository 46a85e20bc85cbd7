//! Checks of replies (RFC 1813, section 3.3), parsed in place.
//!
//! The generator must be far cheaper than the server, so only refused replies go through the full decoders.

use bytes::Bytes;
use remora_wire::nfs3::{Proc, Stable, Status};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

use super::plan::{CallKind, Head, Image, Step, xorshift};
use super::socket::Fault;

const ATTR: usize = 84;
const WCC_ATTR: usize = 24;
/// Bytes compared at each sampled offset of a READ.
const SAMPLE: usize = 64;
/// One READ in this many is compared in full.
const WHOLE_EVERY: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Brought {
    pub(super) bytes: u64,
    /// Entries listed, but for `.` and `..`.
    pub(super) entries: u64,
    pub(super) dots: u64,
    /// Next cookie of a listing and its verifier; `None` at the end.
    pub(super) next: Option<(u64, [u8; 8])>,
}

#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

const SHORT: &str = "it is truncated";

type Parsed<T> = Result<T, &'static str>;

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Parsed<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(SHORT)?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Parsed<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*head))
    }

    fn u64(&mut self) -> Parsed<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn opaque(&mut self) -> Parsed<&'a [u8]> {
        let len = self.u32()? as usize;
        let data = self.take(len)?;
        self.take(len.wrapping_neg() % 4)?;
        Ok(data)
    }

    /// An optional item of `n` bytes.
    fn optional(&mut self, n: usize) -> Parsed<()> {
        match self.u32()? {
            0 => Ok(()),
            1 => self.take(n).map(|_| ()),
            _ => Err("a flag that is neither true nor false"),
        }
    }

    fn end(&self) -> Parsed<()> {
        if self.0.is_empty() { Ok(()) } else { Err("it has trailing bytes") }
    }
}

/// The xid of a message; `None` if it is too short for one.
pub(super) fn xid(message: &[u8]) -> Option<u32> {
    Cursor(message).u32().ok()
}

/// Checks the reply to `step`, sent to the file of `head` at offset `number`. If `repeated`, the call may have been
/// executed before: CREATE may find its file, and REMOVE none. `random` selects the bytes to compare.
pub(super) fn check(
    reply: &[u8],
    step: &Step,
    head: &Head,
    number: u64,
    repeated: bool,
    random: &mut u64,
    image: &Image,
) -> Result<Brought, Fault> {
    let proc = step.proc;
    let wrong = |what| Fault::Wrong { proc, what };
    let mut c = results(reply, proc)?;
    if proc == Proc::Null {
        return c.end().map(|()| Brought::default()).map_err(wrong);
    }
    match c.u32().map_err(wrong)? {
        0 => {}
        17 if repeated && proc == Proc::Create => return Ok(Brought::default()),
        2 if repeated && proc == Proc::Remove => return Ok(Brought::default()),
        status => return Err(refused(proc, status)),
    }
    let brought = match step.kind {
        CallKind::Read(len) => read(c, len).and_then(|data| {
            let expected = image.bytes(head.span, number, len as usize);
            if same(data, expected, random) { Ok(moved(len)) } else { Err("the data differ from what was written") }
        }),
        CallKind::Write(len, stable) => write(c, len, stable),
        CallKind::Page => page(c),
        CallKind::Plain | CallKind::Name => plain(c, proc).map(|()| Brought::default()),
    };
    brought.map_err(wrong)
}

/// The results after a successful RPC header.
fn results(reply: &[u8], proc: Proc) -> Result<Cursor<'_>, Fault> {
    let mut c = Cursor(reply);
    let mut header = || -> Parsed<bool> {
        let [_xid, kind, denied, _flavor] = [c.u32()?, c.u32()?, c.u32()?, c.u32()?];
        c.opaque()?;
        Ok(kind == 1 && denied == 0 && c.u32()? == 0)
    };
    if header() == Ok(true) {
        return Ok(c);
    }
    match ReplyHeader::decode(&mut Reader::new(Bytes::copy_from_slice(reply))) {
        Ok(ReplyHeader { outcome: Outcome::Success, .. }) | Err(_) => {
            Err(Fault::Foreign("a message that is not an RPC reply"))
        }
        Ok(ReplyHeader { outcome, .. }) => Err(Fault::Rpc { proc, outcome }),
    }
}

fn refused(proc: Proc, status: u32) -> Fault {
    match Status::decode(&mut Reader::new(status.to_bytes())) {
        Ok(status) => Fault::Status { proc, status },
        Err(_) => Fault::Wrong { proc, what: "an unknown NFSv3 status" },
    }
}

fn moved(bytes: u32) -> Brought {
    Brought { bytes: u64::from(bytes), ..Brought::default() }
}

/// Replies without file data must have the exact length.
fn plain(mut c: Cursor<'_>, proc: Proc) -> Parsed<()> {
    let wcc = |c: &mut Cursor<'_>| c.optional(WCC_ATTR).and_then(|()| c.optional(ATTR));
    match proc {
        Proc::GetAttr => c.take(ATTR).map(|_| ())?,
        Proc::SetAttr | Proc::Remove => wcc(&mut c)?,
        Proc::Lookup => {
            if !(1..=64).contains(&c.opaque()?.len()) {
                return Err("a file handle of invalid length");
            }
            c.optional(ATTR)?;
            c.optional(ATTR)?;
        }
        Proc::Access => {
            c.optional(ATTR)?;
            c.u32()?;
        }
        Proc::ReadLink => {
            c.optional(ATTR)?;
            c.opaque()?;
        }
        Proc::Create => {
            if c.u32()? == 1 {
                c.opaque()?;
            }
            c.optional(ATTR)?;
            wcc(&mut c)?;
        }
        Proc::Commit => {
            wcc(&mut c)?;
            c.take(8)?;
        }
        Proc::FsStat => {
            c.optional(ATTR)?;
            c.take(6 * 8 + 4)?;
        }
        // The length of a list depends on its content.
        _ => return Ok(()),
    }
    c.end()
}

fn read(mut c: Cursor<'_>, len: u32) -> Parsed<&[u8]> {
    c.optional(ATTR)?;
    let (count, _eof, data) = (c.u32()?, c.u32()?, c.opaque()?);
    if count != len || data.len() != len as usize {
        return Err("a wrong number of bytes");
    }
    c.end().map(|()| data)
}

fn write(mut c: Cursor<'_>, len: u32, stable: Stable) -> Parsed<Brought> {
    c.optional(WCC_ATTR)?;
    c.optional(ATTR)?;
    let (count, committed) = (c.u32()?, c.u32()?);
    c.take(8)?;
    if count != len {
        return Err("a wrong count of bytes written");
    }
    if committed < stable as u32 {
        return Err("less stable than requested");
    }
    c.end().map(|()| moved(len))
}

fn page(mut c: Cursor<'_>) -> Parsed<Brought> {
    c.optional(ATTR)?;
    let mut verf = [0; 8];
    verf.copy_from_slice(c.take(8)?);
    let (mut entries, mut dots, mut cookie) = (0, 0, 0);
    while c.u32()? == 1 {
        c.u64()?;
        let name = c.opaque()?;
        cookie = c.u64()?;
        c.optional(ATTR)?;
        if c.u32()? == 1 {
            c.opaque()?;
        }
        *(if matches!(name, b"." | b"..") { &mut dots } else { &mut entries }) += 1;
    }
    let eof = c.u32()? != 0;
    c.end()?;
    if cookie == 0 && !eof {
        return Err("an empty page before the end");
    }
    Ok(Brought { bytes: 0, entries, dots, next: (!eof).then_some((cookie, verf)) })
}

/// Compares the start, the end and a sample between; sometimes everything.
fn same(data: &[u8], expected: &[u8], random: &mut u64) -> bool {
    let draw = xorshift(random);
    if data.len() != expected.len() || draw.is_multiple_of(WHOLE_EVERY) || data.len() <= 2 * SAMPLE {
        return data == expected;
    }
    let last = data.len() - SAMPLE;
    let between = ((draw >> 8) % last as u64) as usize;
    [0, between, last].into_iter().all(|at| data.get(at..at + SAMPLE) == expected.get(at..at + SAMPLE))
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{
        AccessOk, Attr, CommitOk, Entries, EntryPlus, Fh, FileType, FsStatOk, LookupOk, MadeOk, NfsTime, ReadDirPlusOk,
        ReadLinkOk, ReadOk, Reply, SpecData, Wcc, WriteOk,
    };
    use remora_wire::rpc::OpaqueAuth;

    use super::*;
    use crate::bench::plan::Span;

    const SPAN: Span = Span { base: 0, len: 4096 };

    fn attr() -> Attr {
        let t = NfsTime { secs: 1, nanos: 2 };
        let rdev = SpecData { major: 0, minor: 0 };
        let kind = FileType::Regular;
        let (mode, nlink, uid, gid, size, used, fsid, fileid) = (0o644, 1, 0, 0, 4096, 4096, 1, 9);
        Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime: t, mtime: t, ctime: t }
    }

    fn message(outcome: Outcome, reply: Option<&Reply>) -> Vec<u8> {
        let mut out = Vec::new();
        ReplyHeader { xid: 7, outcome }.encode(&mut out);
        if let Some(reply) = reply {
            reply.encode(&mut out);
        }
        out
    }

    fn judge_repeated(kind: CallKind, proc: Proc, bytes: &[u8], repeated: bool) -> Result<Brought, Fault> {
        let head = Head { bytes: vec![], at: 0, span: SPAN };
        let step = Step { proc, heads: vec![], kind };
        check(bytes, &step, &head, 512, repeated, &mut 1, &Image::new(4096))
    }

    fn judge(kind: CallKind, reply: &Reply) -> Result<Brought, Fault> {
        judge_repeated(kind, reply.proc(), &message(Outcome::Success, Some(reply)), false)
    }

    fn data(at: usize) -> Bytes {
        Bytes::copy_from_slice(Image::new(4096).range(&(at..at + 512)))
    }

    fn good() -> Vec<(CallKind, Reply)> {
        let fh = || Fh(Bytes::from_static(b"abcde"));
        let wcc = || Wcc { before: Some(attr().wcc()), after: Some(attr()) };
        let stat = FsStatOk {
            attr: None,
            total: 1,
            free: 1,
            avail: 1,
            files: 1,
            files_free: 1,
            files_avail: 1,
            invar_secs: 0,
        };
        let entry = EntryPlus { fileid: 1, name: "abc".into(), cookie: 5, attr: Some(attr()), fh: Some(fh()) };
        let entries = Entries { list: vec![EntryPlus { name: "..".into(), ..entry.clone() }, entry], eof: false };
        let made = MadeOk { fh: Some(fh()), attr: None, dir: wcc() };
        let write = WriteOk { wcc: wcc(), count: 512, committed: Stable::FileSync, verf: [1; 8] };
        vec![
            (CallKind::Plain, Reply::Null),
            (CallKind::Plain, Reply::GetAttr(Ok(attr()))),
            (CallKind::Plain, Reply::SetAttr(Ok(wcc()))),
            (CallKind::Plain, Reply::Lookup(Ok(LookupOk { fh: fh(), attr: Some(attr()), dir: None }))),
            (CallKind::Plain, Reply::Access(Ok(AccessOk { attr: None, access: 3 }))),
            (CallKind::Plain, Reply::ReadLink(Ok(ReadLinkOk { attr: Some(attr()), target: "x".into() }))),
            (CallKind::Plain, Reply::FsStat(Ok(stat))),
            (CallKind::Plain, Reply::Commit(Ok(CommitOk { wcc: wcc(), verf: [0; 8] }))),
            (CallKind::Name, Reply::Create(Ok(made))),
            (CallKind::Name, Reply::Remove(Ok(Wcc::NONE))),
            (CallKind::Read(512), Reply::Read(Ok(ReadOk { attr: None, count: 512, eof: false, data: data(512) }))),
            (CallKind::Write(512, Stable::FileSync), Reply::Write(Ok(write))),
            (CallKind::Page, Reply::ReadDirPlus(Ok(ReadDirPlusOk { dir: Some(attr()), verf: [3; 8], entries }))),
        ]
    }

    #[test]
    fn good_reply_passes_and_truncated_one_fails() {
        for (kind, reply) in good() {
            let bytes = message(Outcome::Success, Some(&reply));
            let brought = judge(kind, &reply).unwrap();
            assert_eq!(brought.bytes, if matches!(kind, CallKind::Read(_) | CallKind::Write(..)) { 512 } else { 0 });
            if kind == CallKind::Page {
                assert_eq!((brought.entries, brought.next), (1, Some((5, [3; 8]))));
            }
            for cut in 0..bytes.len() {
                assert!(judge_repeated(kind, reply.proc(), &bytes[..cut], false).is_err(), "{reply:?} cut to {cut}");
            }
            let longer = [&bytes[..], &[0; 4]].concat();
            assert!(judge_repeated(kind, reply.proc(), &longer, false).is_err(), "{reply:?} and more");
        }
    }

    #[test]
    fn wrong_reply_fails() {
        let read = |count, data| Reply::Read(Ok(ReadOk { attr: None, count, eof: true, data }));
        assert!(judge(CallKind::Read(512), &read(512, data(0))).is_err(), "another place of the file");
        assert!(judge(CallKind::Read(512), &read(511, data(512))).is_err());
        assert!(judge(CallKind::Read(256), &read(512, data(512))).is_err());
        let write = |count, committed| Reply::Write(Ok(WriteOk { wcc: Wcc::NONE, count, committed, verf: [1; 8] }));
        assert!(judge(CallKind::Write(512, Stable::FileSync), &write(512, Stable::DataSync)).is_err());
        assert!(judge(CallKind::Write(512, Stable::Unstable), &write(512, Stable::DataSync)).is_ok());
        assert!(judge(CallKind::Write(512, Stable::Unstable), &write(511, Stable::Unstable)).is_err());
        let empty = ReadDirPlusOk { dir: None, verf: [0; 8], entries: Entries { list: vec![], eof: false } };
        assert!(judge(CallKind::Page, &Reply::ReadDirPlus(Ok(empty))).is_err(), "a listing without end");
    }

    #[test]
    fn refusal_has_its_reason() {
        let stale = Reply::failed(Proc::GetAttr, Status::Stale);
        assert!(matches!(judge(CallKind::Plain, &stale), Err(Fault::Status { status: Status::Stale, .. })));
        let denied = message(Outcome::AuthError(5), None);
        assert!(matches!(judge_repeated(CallKind::Plain, Proc::GetAttr, &denied, false), Err(Fault::Rpc { .. })));
        let mut call = Vec::new();
        [7u32, 0, 2].iter().for_each(|w| w.encode(&mut call));
        OpaqueAuth::none().encode(&mut call);
        assert!(matches!(judge_repeated(CallKind::Plain, Proc::GetAttr, &call, false), Err(Fault::Foreign(_))));
    }

    #[test]
    fn retransmitted_call_may_find_its_own_effect() {
        for (proc, status) in [(Proc::Create, Status::Exist), (Proc::Remove, Status::NoEnt)] {
            let bytes = message(Outcome::Success, Some(&Reply::failed(proc, status)));
            assert!(judge_repeated(CallKind::Name, proc, &bytes, true).is_ok());
            assert!(judge_repeated(CallKind::Name, proc, &bytes, false).is_err());
        }
    }
}
