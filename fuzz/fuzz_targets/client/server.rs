//! The server that the client talks to: a file to be read, one to be written, and what it knows of the
//! latter's bytes; and the answers of one that is not honest.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use remora_wire::nfs3::{Call, CommitOk, Proc, ReadArgs, ReadOk, Reply, Stable, Status, Wcc, WriteArgs, WriteOk};
use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

/// Of the file that is read, in bytes.
pub(crate) const READ_SIZE: u64 = 60_000;
/// Of the one that is written.
pub(crate) const WRITE_SIZE: u64 = READ_SIZE / 2;
/// A share that is all of it, in 256ths less one.
pub(crate) const ALL: u8 = 255;

/// What is in both files: no piece is like another.
static CONTENT: LazyLock<Bytes> =
    LazyLock::new(|| (0..READ_SIZE).map(|at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8).collect::<Vec<_>>().into());

pub(crate) fn content(range: Range<u64>) -> Bytes {
    CONTENT.slice(range.start as usize..range.end as usize)
}

/// Which bytes of the written file are there, and which would outlive a crash.
pub(crate) struct Disk {
    written: Vec<bool>,
    stable: Vec<bool>,
    verf: [u8; 8],
}

impl Disk {
    pub(crate) fn new() -> Disk {
        let none = vec![false; WRITE_SIZE as usize];
        Disk { written: none.clone(), stable: none, verf: [1; 8] }
    }

    pub(crate) fn is_stable(&self) -> bool {
        self.stable.iter().all(|there| *there)
    }

    /// The server starts anew: what is not stable is gone.
    pub(crate) fn restart(&mut self) {
        self.verf[0] = self.verf[0].wrapping_add(1);
        self.written.clone_from(&self.stable);
    }

    /// What an honest server says to `call`, which takes `share + 1` 256ths of what it is asked for.
    pub(crate) fn answer(&mut self, call: &Bytes, share: u8) -> Bytes {
        let mut r = Reader::new(call.clone());
        let header = CallHeader::decode(&mut r).expect("a client sends calls");
        let mut out = Vec::new();
        ReplyHeader { xid: header.xid, outcome: Outcome::Success }.encode(&mut out);
        if header.proc != 0 {
            let proc = Proc::from_number(header.proc).expect("a client calls procedures that there are");
            let reply = match Call::decode(proc, &mut r).expect("a client sends arguments") {
                Call::Read(args) => read(&args, share),
                Call::Write(args) => self.write(&args, share),
                Call::Commit(_) => self.commit(),
                call => Reply::failed(call.proc(), Status::NoEnt),
            };
            reply.encode(&mut out);
        }
        out.into()
    }

    fn write(&mut self, args: &WriteArgs, share: u8) -> Reply {
        assert_eq!(args.data, content(args.offset..args.offset + u64::from(args.count)));
        let count = part(args.count, share).min(args.count);
        let range = args.offset as usize..args.offset as usize + count as usize;
        self.written[range.clone()].fill(true);
        if args.stable != Stable::Unstable {
            self.stable[range].fill(true);
        }
        Reply::Write(Ok(WriteOk { wcc: Wcc::NONE, count, committed: args.stable, verf: self.verf }))
    }

    fn commit(&mut self) -> Reply {
        for (stable, written) in self.stable.iter_mut().zip(&self.written) {
            *stable |= written;
        }
        Reply::Commit(Ok(CommitOk { wcc: Wcc::NONE, verf: self.verf }))
    }
}

fn read(args: &ReadArgs, share: u8) -> Reply {
    let end = READ_SIZE.min(args.offset + u64::from(part(args.count, share)));
    let data = content(args.offset.min(end)..end);
    Reply::Read(Ok(ReadOk { attr: None, count: data.len() as u32, eof: end >= READ_SIZE, data }))
}

/// At least one byte.
fn part(count: u32, share: u8) -> u32 {
    (u64::from(count) * (u64::from(share) + 1) / 256).max(1) as u32
}

/// An answer to `call` that is `bytes`, behind the number and the head of a success if it is to have one.
pub(crate) fn forged(call: &Bytes, success: bool, bytes: &[u8]) -> Bytes {
    let xid = u32::from_be_bytes(*call.first_chunk().expect("a call has a number"));
    let mut out = Vec::new();
    if success {
        ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
    } else {
        out.extend_from_slice(&xid.to_be_bytes());
    }
    out.extend_from_slice(bytes);
    out.into()
}
