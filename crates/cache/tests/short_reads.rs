//! READs that a server answers in part (RFC 1813, section 3.3.6).

use bytes::Bytes;
use remora_base::Time;
use remora_cache::{BulkRoom, Cache, Call, Config, DirtyPart, DirtyRecord, ObjectId, SavedObject};
use remora_wire::fuse::{Errno, Header, Operation, Reply, Request};
use remora_wire::nfs3::{self, AccessOk, Attr, Fh, FileType, LookupOk, NfsTime, ReadArgs, ReadOk, SpecData, Status};
use remora_wire::rpc::AuthUnix;

const ROOT: u64 = 1;
const START: Time = Time::from_secs(1000);
const SIZE: u64 = 64 << 10;
/// Bytes of the server's longest reply.
const SHORT: u32 = 1500;

fn attr(kind: FileType, fileid: u64, changed: u32) -> Attr {
    let time = NfsTime { secs: changed, nanos: 0 };
    let rdev = SpecData { major: 0, minor: 0 };
    let (atime, mtime, ctime) = (time, time, time);
    let (size, used) = (SIZE, SIZE);
    Attr { kind, mode: 0o755, nlink: 1, uid: 0, gid: 0, size, used, rdev, fsid: 1, fileid, atime, mtime, ctime }
}

/// A mount of a server that has one file, with the same byte everywhere up to `theirs_from`.
struct Mount {
    cache: Cache,
    unique: u64,
    theirs_from: u64,
}

impl Mount {
    fn new(theirs_from: u64) -> Mount {
        let mut cache = Cache::new(Config::default(), Fh(Bytes::from_static(b"root")), START);
        cache.set_root(START, &attr(FileType::Directory, 1, 1));
        Mount { cache, unique: 1, theirs_from }
    }

    fn calls(&mut self) -> Vec<Call> {
        std::iter::from_fn(|| self.cache.poll_call(BulkRoom::All)).collect()
    }

    fn reply(&mut self, call: Call) {
        let (root, file) = (attr(FileType::Directory, 1, 1), attr(FileType::Regular, 2, 7));
        let reply = match &call.call {
            nfs3::Call::Lookup(_) => {
                let fh = Fh(Bytes::from_static(b"file"));
                nfs3::Reply::Lookup(Ok(LookupOk { fh, attr: Some(file), dir: Some(root) }))
            }
            nfs3::Call::GetAttr(fh) => nfs3::Reply::GetAttr(Ok(if fh.0 == "root" { root } else { file })),
            nfs3::Call::Access(args) => nfs3::Reply::Access(Ok(AccessOk { attr: Some(file), access: args.access })),
            nfs3::Call::Read(args) => {
                let count = args.count.min(SHORT);
                let theirs_from = self.theirs_from;
                let byte = |at| if at < theirs_from { 7 } else { 9 };
                let data: Bytes = (args.offset..args.offset + u64::from(count)).map(byte).collect();
                nfs3::Reply::Read(Ok(ReadOk { attr: Some(file), count, eof: false, data }))
            }
            other => nfs3::Reply::failed(other.proc(), Status::Io),
        };
        self.cache.handle_reply(START, call.id, Ok(reply));
    }

    fn request(&mut self, nodeid: u64, op: Operation) {
        self.unique += 2;
        let header = Header { unique: self.unique, nodeid, uid: 0, gid: 0, pid: 300, opcode: 1 };
        self.cache.handle_request(START, Request { header, op }, &[]);
    }

    fn answer(&mut self, nodeid: u64, op: Operation) -> Result<Reply, Errno> {
        self.request(nodeid, op);
        for _ in 0..100 {
            self.calls().into_iter().for_each(|call| self.reply(call));
            if let Some((_, answer)) = self.cache.poll_answer() {
                return answer;
            }
        }
        panic!("the operation is answered");
    }
}

fn read_of(call: &Call) -> Option<(u64, u32)> {
    match &call.call {
        nfs3::Call::Read(ReadArgs { offset, count, .. }) => Some((*offset, *count)),
        _ => None,
    }
}

#[test]
fn rest_of_a_read_ahead_is_fetched_before_it_is_read() {
    let mut mount = Mount::new(SIZE);
    let Ok(Reply::Entry(entry)) = mount.answer(ROOT, Operation::Lookup { name: "file".into() }) else { panic!() };
    let Ok(Reply::Opened(opened)) = mount.answer(entry.nodeid, Operation::Open { flags: 0 }) else { panic!() };
    let fh = opened.fh;
    mount.answer(entry.nodeid, Operation::Read { fh, offset: 0, size: 4096, flags: 0 }).unwrap();
    let ahead = mount.calls();
    let first = ahead.into_iter().find(|call| read_of(call).is_some()).expect("what follows is read ahead");
    let (offset, count) = read_of(&first).unwrap();
    assert!(offset >= 4096 && count > SHORT, "{first:?}");
    mount.reply(first);
    let rest: Vec<_> = mount.calls().iter().filter_map(read_of).collect();
    assert_eq!(rest, [(offset + u64::from(SHORT), count - SHORT)]);
}

#[test]
fn check_of_unsent_data_compares_all_bytes() {
    for (theirs_from, refused) in [(SIZE, 0), (u64::from(SHORT) + 10, 1)] {
        let mut mount = Mount::new(theirs_from);
        let credential = AuthUnix { stamp: 0, machine: Bytes::new(), uid: 0, gid: 0, gids: Vec::new() };
        let before = Some(attr(FileType::Regular, 2, 1).wcc());
        let record = DirtyRecord {
            object: ObjectId(1),
            fh: Fh(Bytes::from_static(b"file")),
            fileid: 2,
            path: b"file".to_vec(),
            size: SIZE,
            ranges: std::iter::once(0..4096).collect(),
            cut: None,
            before,
            credential,
            attr: None,
            refusal: None,
        };
        let data = vec![DirtyPart { offset: 0, data: Bytes::from(vec![7; 4096]) }];
        mount.cache.restore(START, vec![SavedObject { record, data }]);
        let mut writes = 0;
        for _ in 0..100 {
            for call in mount.calls() {
                writes += usize::from(matches!(call.call, nfs3::Call::Write(_)));
                mount.reply(call);
            }
        }
        assert_eq!(writes > 0, refused == 0, "theirs from {theirs_from}");
    }
}
