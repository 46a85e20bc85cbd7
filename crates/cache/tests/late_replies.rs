//! Replies that come after an outage: the kernel must not keep what is as old as the call.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_cache::{BulkRoom, Cache, Config, Policy};
use remora_wire::fuse::{Entry, Errno, Header, Operation, Reply, Request};
use remora_wire::nfs3::{self, AccessOk, Attr, Failed, Fh, FileType, LookupOk, NfsTime, SpecData, Status};

const ROOT: u64 = 1;
const START: Time = Time::from_secs(1000);

fn attr(kind: FileType, fileid: u64) -> Attr {
    let time = NfsTime { secs: 1, nanos: 0 };
    let rdev = SpecData { major: 0, minor: 0 };
    let (atime, mtime, ctime) = (time, time, time);
    Attr { kind, mode: 0o755, nlink: 1, uid: 0, gid: 0, size: 0, used: 0, rdev, fsid: 1, fileid, atime, mtime, ctime }
}

/// The answer to a look-up of `name` whose calls are all answered after `late`.
fn looked_up(policy: Policy, name: &'static str, late: Duration) -> Result<Entry, Errno> {
    let root = attr(FileType::Directory, 1);
    let mut cache = Cache::new(Config { policy, ..Config::default() }, Fh(Bytes::from_static(b"root")), START);
    cache.set_root(START, &root);
    let header = Header { unique: 2, nodeid: ROOT, uid: 0, gid: 0, pid: 300, opcode: 1 };
    cache.handle_request(START, Request { header, op: Operation::Lookup { name: name.into() } }, &[]);
    for _ in 0..8 {
        while let Some(call) = cache.poll_call(BulkRoom::All) {
            let reply = match call.call {
                nfs3::Call::Lookup(_) if name == "file" => nfs3::Reply::Lookup(Ok(LookupOk {
                    fh: Fh(Bytes::from_static(b"file")),
                    attr: Some(attr(FileType::Regular, 2)),
                    dir: Some(root.clone()),
                })),
                nfs3::Call::Lookup(_) => {
                    nfs3::Reply::Lookup(Err(Failed { status: Status::NoEnt, info: Some(root.clone()) }))
                }
                nfs3::Call::Access(_) => nfs3::Reply::Access(Ok(AccessOk { attr: Some(root.clone()), access: 0x3f })),
                _ => continue,
            };
            cache.handle_reply(START + late, call.id, Ok(reply));
        }
        if let Some((unique, answer)) = cache.poll_answer() {
            assert_eq!(unique, 2);
            return answer.map(|reply| match reply {
                Reply::Entry(entry) => entry,
                other => panic!("LOOKUP is answered with {other:?}"),
            });
        }
    }
    panic!("LOOKUP is not answered");
}

#[test]
fn late_answer_is_not_kept_by_the_kernel() {
    let kernel = Policy::DEFAULT.kernel;
    for (seconds, absent) in [(1, Ok(kernel)), (3, Err(Errno::ENOENT))] {
        let late = Duration::from_secs(seconds);
        let found = looked_up(Policy::DEFAULT, "missing", late);
        assert_eq!(found.map(|entry| (entry.nodeid, entry.entry_valid)), absent.map(|valid| (0, valid)), "{late:?}");
        assert_eq!(looked_up(Policy::DEFAULT, "file", late).unwrap().entry_valid, kernel, "{late:?}");
    }
    let entry = looked_up(Policy::DEFAULT, "file", Duration::from_secs(303)).unwrap();
    assert_eq!((entry.entry_valid, entry.attr_valid), (Duration::ZERO, Duration::ZERO));
}
