//! Changes by other clients that are seen before the log is sent: what they changed must not be removed.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_cache::{BulkRoom, Cache, Call, Config, ConflictKind};
use remora_wire::fuse::{Errno, Header, Operation, Reply, Request};
use remora_wire::nfs3::{
    self, AccessOk, Attr, Entries, EntryPlus, Fh, FileType, LookupOk, NfsTime, ReadDirPlusOk, SpecData, Status, Wcc,
};

const ROOT: u64 = 1;
const START: Time = Time::from_secs(1000);

fn attr(kind: FileType, fileid: u64, changed: u32) -> Attr {
    let time = NfsTime { secs: changed, nanos: 0 };
    let rdev = SpecData { major: 0, minor: 0 };
    let (atime, mtime, ctime) = (time, time, time);
    Attr { kind, mode: 0o755, nlink: 1, uid: 0, gid: 0, size: 0, used: 0, rdev, fsid: 1, fileid, atime, mtime, ctime }
}

/// A mount of a server that has one file.
struct Mount {
    cache: Cache,
    now: Time,
    unique: u64,
    /// The file's mtime and ctime in seconds.
    changed: u32,
    removed: u32,
}

impl Mount {
    fn new() -> Mount {
        let mut cache = Cache::new(Config::default(), Fh(Bytes::from_static(b"root")), START);
        cache.set_root(START, &attr(FileType::Directory, 1, 1));
        Mount { cache, now: START, unique: 1, changed: 1, removed: 0 }
    }

    fn reply(&mut self, call: &Call) -> nfs3::Reply {
        let (root, file) = (attr(FileType::Directory, 1, 1), attr(FileType::Regular, 2, self.changed));
        match &call.call {
            nfs3::Call::Lookup(_) => {
                let fh = Fh(Bytes::from_static(b"file"));
                nfs3::Reply::Lookup(Ok(LookupOk { fh, attr: Some(file), dir: Some(root) }))
            }
            nfs3::Call::GetAttr(fh) => nfs3::Reply::GetAttr(Ok(if fh.0 == "root" { root } else { file })),
            nfs3::Call::Access(_) => nfs3::Reply::Access(Ok(AccessOk { attr: Some(root), access: 0x3f })),
            nfs3::Call::ReadDirPlus(_) => {
                let fh = Some(Fh(Bytes::from_static(b"file")));
                let list = vec![EntryPlus { fileid: 2, name: "file".into(), cookie: 1, attr: Some(file), fh }];
                let entries = Entries { list, eof: true };
                nfs3::Reply::ReadDirPlus(Ok(ReadDirPlusOk { dir: Some(root), verf: [0; 8], entries }))
            }
            nfs3::Call::Remove(_) => {
                self.removed += 1;
                nfs3::Reply::Remove(Ok(Wcc { before: None, after: Some(root) }))
            }
            other => nfs3::Reply::failed(other.proc(), Status::Io),
        }
    }

    /// Answers calls, those of records that look for names last, and executes the store's jobs.
    fn settle(&mut self) {
        let mut late = Vec::new();
        for _ in 0..100 {
            self.now += Duration::from_millis(100);
            self.cache.handle_timeout(self.now);
            while let Some(job) = self.cache.poll_store_job() {
                self.cache.handle_store_done(self.now, job.id, Ok(()));
            }
            let mut calls: Vec<Call> = std::iter::from_fn(|| self.cache.poll_call(BulkRoom::All)).collect();
            let is_idle = calls.is_empty();
            calls.append(&mut if is_idle { std::mem::take(&mut late) } else { Vec::new() });
            for call in calls {
                let is_of_log = self.cache.log_status().records > 0 && matches!(call.call, nfs3::Call::Lookup(_));
                if is_of_log && !is_idle {
                    late.push(call);
                    continue;
                }
                let reply = self.reply(&call);
                self.cache.handle_reply(self.now, call.id, Ok(reply));
            }
        }
    }

    fn request(&mut self, nodeid: u64, op: Operation) {
        self.unique += 2;
        let header = Header { unique: self.unique, nodeid, uid: 0, gid: 0, pid: 300, opcode: 1 };
        self.cache.handle_request(self.now, Request { header, op }, &[]);
    }

    fn answer(&mut self) -> Result<Reply, Errno> {
        self.settle();
        self.cache.poll_answer().expect("the operation is answered").1
    }
}

#[test]
fn file_changed_by_others_is_not_removed() {
    for (changed_there, conflicts) in [(1, 0), (7, 1)] {
        let mut mount = Mount::new();
        mount.request(ROOT, Operation::Lookup { name: "file".into() });
        mount.answer().unwrap();
        mount.request(ROOT, Operation::Access { mask: 7 });
        mount.answer().unwrap();
        mount.cache.go_offline(mount.now);
        mount.request(ROOT, Operation::Unlink { name: "file".into() });
        mount.answer().unwrap();
        mount.changed = changed_there;
        mount.cache.go_online(mount.now);
        // A listing shows the change before the record is sent.
        mount.now += Duration::from_secs(100);
        mount.request(ROOT, Operation::OpenDir { flags: 0 });
        let Ok(Reply::Opened(opened)) = mount.answer() else { panic!("the directory opens") };
        mount.request(ROOT, Operation::ReadDirPlus { fh: opened.fh, offset: 0, size: 4096 });
        mount.answer().unwrap();
        mount.settle();
        let kinds: Vec<ConflictKind> = mount.cache.conflicts().iter().map(|conflict| conflict.kind).collect();
        assert_eq!(kinds, vec![ConflictKind::ChangedThere; conflicts], "mtime {changed_there}");
        assert_eq!(mount.removed, 1 - conflicts as u32, "mtime {changed_there}");
        assert_eq!(mount.cache.log_status().records, 0);
    }
}
