//! Files that a program is expected to open are read before it opens them.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_cache::{BulkRoom, Cache, Config, PredictorStateError, Priority};
use remora_wire::fuse::{Header, Operation, Reply, Request};
use remora_wire::nfs3::{self, AccessOk, Attr, Fh, FileType, LookupOk, NfsTime, ReadOk, SpecData};

const ROOT: u64 = 1;
const SIZE: u64 = 1000;
/// Not in the order of their names, which would be read ahead in any case.
const NAMES: [&str; 3] = ["m", "c", "a"];

fn attr(kind: FileType, fileid: u64) -> Attr {
    let time = NfsTime { secs: 1, nanos: 0 };
    let rdev = SpecData { major: 0, minor: 0 };
    let (atime, mtime, ctime) = (time, time, time);
    let (size, used) = (SIZE, SIZE);
    Attr { kind, mode: 0o755, nlink: 1, uid: 0, gid: 0, size, used, rdev, fsid: 1, fileid, atime, mtime, ctime }
}

/// A mount whose server has the files of [`NAMES`], and whose memory holds the data of one.
struct Machine {
    cache: Cache,
    now: Time,
    unique: u64,
    program: &'static str,
    /// Names of the files that were read for no program.
    prefetched: Vec<String>,
}

impl Machine {
    fn new(program: &'static str) -> Machine {
        let now = Time::from_secs(1000);
        let config = Config { memory_max: SIZE, ..Config::default() };
        let mut cache = Cache::new(config, Fh(Bytes::from_static(b"root")), now);
        cache.set_root(now, &attr(FileType::Directory, 1));
        Machine { cache, now, unique: 1, program, prefetched: Vec::new() }
    }

    fn request(&mut self, nodeid: u64, op: Operation) -> Reply {
        self.unique += 1;
        let header = Header { unique: self.unique, nodeid, uid: 0, gid: 0, pid: 300, opcode: 1 };
        self.cache.handle_request_of(self.now, Request { header, op }, &[], self.program.as_bytes());
        let mut reply = None;
        for _ in 0..16 {
            self.serve();
            while let Some((unique, answer)) = self.cache.poll_answer() {
                assert_eq!(unique, self.unique);
                reply = Some(answer.unwrap());
            }
        }
        reply.expect("the request is answered")
    }

    /// Answers all calls.
    fn serve(&mut self) {
        let file = |name: &[u8]| attr(FileType::Regular, 100 + u64::from(name.first().copied().unwrap()));
        let of = |fh: &Fh| if fh.0 == "root" { attr(FileType::Directory, 1) } else { file(&fh.0) };
        while let Some(call) = self.cache.poll_call(BulkRoom::All) {
            let reply = match &call.call {
                nfs3::Call::Lookup(at) => {
                    let (fh, attr) = (Fh(at.name.clone()), Some(file(&at.name)));
                    nfs3::Reply::Lookup(Ok(LookupOk { fh, attr, dir: Some(of(&at.dir)) }))
                }
                nfs3::Call::Access(args) => {
                    nfs3::Reply::Access(Ok(AccessOk { attr: Some(of(&args.fh)), access: args.access }))
                }
                nfs3::Call::GetAttr(fh) => nfs3::Reply::GetAttr(Ok(of(fh))),
                nfs3::Call::Read(args) => {
                    if call.priority == Priority::Prefetch {
                        self.prefetched.push(String::from_utf8_lossy(&args.fh.0).into_owned());
                    }
                    let data = Bytes::from(vec![7; args.count as usize]);
                    nfs3::Reply::Read(Ok(ReadOk { attr: Some(of(&args.fh)), count: args.count, eof: true, data }))
                }
                _ => continue,
            };
            self.cache.handle_reply(self.now, call.id, Ok(reply));
        }
    }

    /// Opens a file, reads it and closes it. Returns the files that the cache prefetched meanwhile.
    fn read(&mut self, name: &'static str) -> Vec<String> {
        self.prefetched.clear();
        self.now += Duration::from_millis(100);
        let Reply::Entry(entry) = self.request(ROOT, Operation::Lookup { name: name.into() }) else { panic!() };
        let Reply::Opened(opened) = self.request(entry.nodeid, Operation::Open { flags: 0 }) else { panic!() };
        self.request(entry.nodeid, Operation::Release { fh: opened.fh, flags: 0 });
        std::mem::take(&mut self.prefetched)
    }
}

/// What is prefetched in so many rounds over all files.
fn prefetched(machine: &mut Machine, rounds: usize) -> Vec<String> {
    (0..rounds).flat_map(|_| NAMES).flat_map(|name| machine.read(name)).collect()
}

#[test]
fn expected_file_is_prefetched_for_a_known_program() {
    let mut machine = Machine::new("cc1");
    assert_eq!(prefetched(&mut machine, 1), [""; 0]);
    // The memory holds one file, so every other one is prefetched.
    assert_eq!(prefetched(&mut machine, 2), ["c", "m", "a"]);
    assert_eq!(prefetched(&mut Machine::new(""), 3), [""; 0], "nothing is known of the program");
}

#[test]
fn imported_model_goes_on_with_its_predictions() {
    let mut before = Machine::new("cc1");
    prefetched(&mut before, 4);
    let model = before.cache.export_predictor();
    let mut machine = Machine::new("cc1");
    machine.cache.import_predictor(model.clone()).unwrap();
    assert_eq!(machine.cache.export_predictor(), model);
    // The names are learned in the first round, and the sequence is known already.
    assert!(!prefetched(&mut machine, 1).is_empty(), "the first file again follows the last one");
    assert_eq!(machine.cache.import_predictor(model.slice(..20)), Err(PredictorStateError::Checksum));
}
