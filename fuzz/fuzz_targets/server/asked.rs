//! What was asked with which number, and the handles that the replies bring.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, nfs2, nfsacl, portmap, rpcbind};

use crate::world::Call;

/// Kept of each version.
const HANDLES_MAX: usize = 8;
/// The first ones, the roots, are kept always.
const ROOTS: usize = 3;

/// Handles that the server gave out, as they are on the wire.
#[derive(Default)]
pub(crate) struct Handles {
    v3: Vec<Bytes>,
    v2: Vec<Bytes>,
}

impl Handles {
    pub(crate) fn get(&self, vers: u32, n: u8) -> Bytes {
        let list = if vers == nfs2::VERSION { &self.v2 } else { &self.v3 };
        list[usize::from(n) % list.len()].clone()
    }

    pub(crate) fn count(&self) -> (usize, usize) {
        (self.v3.len(), self.v2.len())
    }

    fn learn(&mut self, fh: &Fh) {
        keep(&mut self.v3, fh.to_bytes());
    }
}

fn keep(list: &mut Vec<Bytes>, fh: Bytes) {
    if list.contains(&fh) {
        return;
    }
    if list.len() >= HANDLES_MAX {
        list.remove(ROOTS);
    }
    list.push(fh);
}

/// What was asked, by number: there may be several.
#[derive(Default)]
pub(crate) struct Asked(BTreeMap<u32, BTreeSet<Call>>);

impl Asked {
    pub(crate) fn insert(&mut self, xid: u32, call: Call) {
        self.0.entry(xid).or_default().insert(call);
    }

    /// Reads a reply as a client does: what the server sends after success are the results of what was
    /// called.
    pub(crate) fn read(&self, reply: Bytes, handles: &mut Handles) {
        let mut r = Reader::new(reply);
        let header = ReplyHeader::decode(&mut r).expect("a server sends replies");
        let Some(calls) = self.0.get(&header.xid).filter(|calls| calls.len() == 1) else { return };
        if header.outcome != Outcome::Success {
            return;
        }
        for call in calls {
            results(*call, &mut r, handles);
        }
        assert_eq!(r.remaining(), 0);
    }
}

fn results(Call { prog, vers, proc }: Call, r: &mut Reader, handles: &mut Handles) {
    const WHAT: &str = "results of the procedure called";
    match (prog, vers) {
        (mount::PROGRAM, mount::VERSION) => {
            if let mount::Reply::Mnt(Ok(mounted)) = mount::Reply::decode(proc, r).expect(WHAT) {
                handles.learn(&mounted.fh);
            }
        }
        (mount::PROGRAM, _) => {
            if let mount::ReplyV1::Mnt(Ok(fh)) = mount::ReplyV1::decode(proc, r).expect(WHAT) {
                keep(&mut handles.v2, fh.to_bytes());
            }
        }
        (portmap::PROGRAM, portmap::VERSION) => drop(portmap::Reply::decode(proc, r).expect(WHAT)),
        (portmap::PROGRAM, _) if proc == 0 => {}
        (portmap::PROGRAM, _) => drop(rpcbind::Reply::decode(proc, r).expect(WHAT)),
        (nfsacl::PROGRAM, _) => {
            let proc = nfsacl::Proc::from_number(proc).expect("a procedure that succeeded");
            drop(nfsacl::Reply::decode(proc, r).expect(WHAT));
        }
        (_, nfs2::VERSION) => {
            let proc = nfs2::Proc::from_number(proc).expect("a procedure that succeeded");
            results_v2(nfs2::Reply::decode(proc, r).expect(WHAT), handles);
        }
        _ => {
            let proc = nfs3::Proc::from_number(proc).expect("a procedure that succeeded");
            results_v3(nfs3::Reply::decode(proc, r).expect(WHAT), handles);
        }
    }
}

fn results_v2(reply: nfs2::Reply, handles: &mut Handles) {
    use nfs2::Reply::{Create, Lookup, MkDir};
    if let Lookup(Ok(ok)) | Create(Ok(ok)) | MkDir(Ok(ok)) = reply {
        keep(&mut handles.v2, ok.fh.to_bytes());
    }
}

fn results_v3(reply: nfs3::Reply, handles: &mut Handles) {
    use nfs3::Reply::{Create, Lookup, MkDir, MkNod, ReadDirPlus, SymLink};
    match reply {
        Lookup(Ok(ok)) => handles.learn(&ok.fh),
        Create(Ok(ok)) | MkDir(Ok(ok)) | SymLink(Ok(ok)) | MkNod(Ok(ok)) => {
            ok.fh.iter().for_each(|fh| handles.learn(fh));
        }
        ReadDirPlus(Ok(ok)) => {
            ok.entries.list.iter().filter_map(|entry| entry.fh.as_ref()).for_each(|fh| handles.learn(fh));
        }
        _ => {}
    }
}
