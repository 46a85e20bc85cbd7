//! NFSACL on a file system without ACLs: what the mode says can be read, and nothing be set.

use remora_base::Peer;
use remora_server::{Limits, Terms, cache};
use remora_wire::nfs3::{Call as Nfs3, Fh, SetAttr, SetAttrArgs, Status};
use remora_wire::nfsacl::{
    ACCESS, ACCESS_COUNT, Acl, Acls, Call, DEFAULT, DEFAULT_COUNT, Entry, GetAclArgs, PROGRAM, Proc, Reply, SetAclArgs,
    Tag, VERSION,
};
use remora_wire::rpc::{Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

use crate::world::{World, encode, everybody, header, tcp, udp};

/// Hands the server a call.
fn send(w: &mut World, from: Peer, xid: u32, call: &Call) {
    let mut out = Vec::new();
    header(xid, PROGRAM, VERSION, call.proc() as u32).encode(&mut out);
    call.encode(&mut out);
    w.input(from, out.into());
}

/// The last reply.
fn reply(w: &mut World, proc: Proc) -> Reply {
    let mut r = Reader::new(w.sent.pop().expect("a reply").payload);
    assert_eq!(ReplyHeader::decode(&mut r).unwrap().outcome, Outcome::Success);
    let reply = Reply::decode(proc, &mut r).unwrap();
    assert_eq!(r.remaining(), 0);
    reply
}

fn call(w: &mut World, call: &Call) -> Reply {
    send(w, udp(), 77, call);
    w.run_all();
    reply(w, call.proc())
}

fn get(fh: &Fh, mask: u32) -> Call {
    Call::GetAcl(GetAclArgs { fh: fh.clone(), mask })
}

fn set(fh: &Fh) -> Call {
    let acls = Acls { mask: ACCESS, access: Acl::default(), default: Acl::default() };
    Call::SetAcl(SetAclArgs { fh: fh.clone(), acls })
}

/// A world with a file of mode 644.
fn world(terms: impl Fn(&mut Terms)) -> (World, Fh) {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let fh = w.file(&root, "f");
    let export = |e: &mut remora_server::Export| {
        (e.access, e.vfs) = (everybody(&terms), w.fs.clone());
    };
    let again = World::with(cache::Config::full(), Limits::default(), export);
    (again, fh)
}

#[test]
fn getacl_returns_the_mode_as_an_acl() {
    let (mut w, fh) = world(|_| {});
    let Reply::GetAcl(Ok(ok)) = call(&mut w, &get(&fh, ACCESS | DEFAULT)) else { panic!() };
    let entry = |tag, perm| Entry { tag, id: 0, perm };
    let entries = vec![entry(Tag::UserObj, 6), entry(Tag::GroupObj, 4), entry(Tag::Mask, 4), entry(Tag::Other, 4)];
    assert_eq!(ok.acls.access, Acl { count: 4, entries });
    assert_eq!((ok.acls.default, ok.acls.mask), (Acl::default(), ACCESS | DEFAULT));
    assert_eq!(ok.attr.map(|attr| attr.mode), Some(0o644));
    // Solaris asks for the numbers first.
    let Reply::GetAcl(Ok(ok)) = call(&mut w, &get(&fh, ACCESS_COUNT | DEFAULT_COUNT)) else { panic!() };
    assert_eq!((ok.acls.access, ok.acls.default), (Acl { count: 4, entries: vec![] }, Acl::default()));
    assert_eq!(call(&mut w, &get(&fh, 0x10)).status(), Some(Status::Inval));
    assert_eq!(call(&mut w, &get(&Fh("gone".into()), ACCESS)).status(), Some(Status::BadHandle));
}

#[test]
fn setacl_obeys_the_terms_of_the_export() {
    for (change, read, write) in [
        ((|_| {}) as fn(&mut Terms), None, Status::NotSupp),
        (|terms| terms.read_only = true, None, Status::RoFs),
        (|terms| terms.acl = false, Some(Status::NotSupp), Status::NotSupp),
    ] {
        let (mut w, fh) = world(change);
        assert_eq!(call(&mut w, &get(&fh, ACCESS)).status(), read);
        let Reply::SetAcl(Err(failed)) = call(&mut w, &set(&fh)) else { panic!() };
        assert_eq!((failed.status, failed.info.map(|attr| attr.mode)), (write, Some(0o644)));
    }
}

#[test]
fn repeated_setacl_is_executed_once() {
    let (mut w, fh) = world(|_| {});
    send(&mut w, tcp(1), 1, &set(&fh));
    send(&mut w, tcp(1), 1, &set(&fh));
    assert_eq!((w.jobs.len(), w.sent.len()), (1, 0));
    w.run_all();
    send(&mut w, tcp(1), 1, &set(&fh));
    assert_eq!((w.jobs.len(), w.sent.len(), w.server.stats().cache.replays), (0, 2, 1));
    assert_eq!(w.sent[0], w.sent[1]);
    assert_eq!(reply(&mut w, Proc::SetAcl).status(), Some(Status::NotSupp));
    // GETACL is executed as often as it comes.
    (0..2).for_each(|_| send(&mut w, tcp(1), 2, &get(&fh, ACCESS)));
    assert_eq!(w.jobs.len(), 2);
}

/// A SETATTR of nothing, and a SETACL of an empty ACL with three words behind it, have the same bytes.
#[test]
fn setattr_and_setacl_of_equal_bytes_are_no_duplicates() {
    let (mut w, fh) = world(|_| {});
    let attr = SetAttr { mode: Some(0), ..SetAttr::NONE };
    let setattr = encode(1, &Nfs3::SetAttr(SetAttrArgs { fh: fh.clone(), attr, guard: None }));
    let mut setacl = Vec::new();
    header(1, PROGRAM, VERSION, Proc::SetAcl as u32).encode(&mut setacl);
    let args = setacl.len();
    set(&fh).encode(&mut setacl);
    setacl.extend([0; 12]);
    assert_eq!(setattr[args..], setacl[args..]);
    w.input(tcp(1), setattr);
    w.input(tcp(1), setacl.into());
    assert_eq!(w.jobs.len(), 2);
}
