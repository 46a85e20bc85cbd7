//! Hoarding: the order of a walk, its bounds, and what it reports, against a server and a disk cache in memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_cache::{
    BulkRoom, Cache, Call, Config, DiskDone, DiskJob, DiskObject, DiskPin, DiskRecord, DiskWork, HoardEntry,
    HoardMissReason, HoardOwner, HoardPlan, HoardProgress, NameGlob, Priority,
};
use remora_wire::nfs3::{
    self, AccessOk, Attr, Entries, EntryPlus, Failed, Fh, FileType, LookupOk, NfsTime, ReadDirPlusOk, ReadLinkOk,
    ReadOk, SpecData, Status,
};

const START: Time = Time::from_secs(1000);
const MIB: u64 = 1 << 20;

/// An object of the server.
#[derive(Clone, Debug)]
struct Object {
    kind: FileType,
    size: u64,
    /// Bits of ACCESS.
    access: u32,
    changed: u32,
    names: BTreeMap<&'static str, u64>,
}

/// A server in memory. Handles are numbers as text.
#[derive(Debug, Default)]
struct Server {
    objects: BTreeMap<u64, Object>,
    next: u64,
    /// READs, in their order.
    reads: Vec<u64>,
    calls: u64,
}

fn handle(id: u64) -> Fh {
    Fh(Bytes::from(id.to_string()))
}

fn number(fh: &Fh) -> u64 {
    std::str::from_utf8(&fh.0).unwrap().parse().unwrap()
}

impl Server {
    fn new() -> Server {
        let mut server = Server { next: 2, ..Server::default() };
        server.objects.insert(1, Server::object(FileType::Directory, 0));
        server
    }

    fn object(kind: FileType, size: u64) -> Object {
        Object { kind, size, access: 0x3f, changed: 1, names: BTreeMap::new() }
    }

    fn add(&mut self, dir: u64, name: &'static str, kind: FileType, size: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.objects.insert(id, Server::object(kind, size));
        let parent = self.objects.get_mut(&dir).unwrap();
        parent.names.insert(name, id);
        parent.changed += 1;
        id
    }

    fn dir(&mut self, dir: u64, name: &'static str) -> u64 {
        self.add(dir, name, FileType::Directory, 0)
    }

    fn file(&mut self, dir: u64, name: &'static str, size: u64) -> u64 {
        self.add(dir, name, FileType::Regular, size)
    }

    fn attr(&self, id: u64) -> Attr {
        let object = &self.objects[&id];
        let at = NfsTime { secs: object.changed, nanos: 1 };
        Attr {
            kind: object.kind,
            mode: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: object.size,
            used: object.size,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 1,
            fileid: id,
            atime: at,
            mtime: at,
            ctime: at,
        }
    }

    fn list(&self, args: &nfs3::ReadDirPlusArgs) -> ReadDirPlusOk {
        let entry = |(at, (name, id)): (usize, (&&'static str, &u64))| EntryPlus {
            fileid: *id,
            name: Bytes::from_static(name.as_bytes()),
            cookie: at as u64 + 1,
            attr: Some(self.attr(*id)),
            fh: Some(handle(*id)),
        };
        let id = number(&args.dir);
        let list = self.objects[&id].names.iter().enumerate().skip(args.cookie as usize).map(entry).collect();
        ReadDirPlusOk { dir: Some(self.attr(id)), verf: [0; 8], entries: Entries { list, eof: true } }
    }

    fn reply(&mut self, call: &Call) -> nfs3::Reply {
        assert_eq!(call.priority, Priority::Prefetch, "no program waits: {call:?}");
        self.calls += 1;
        match &call.call {
            nfs3::Call::GetAttr(fh) => nfs3::Reply::GetAttr(Ok(self.attr(number(fh)))),
            nfs3::Call::Access(args) => {
                let id = number(&args.fh);
                nfs3::Reply::Access(Ok(AccessOk { attr: Some(self.attr(id)), access: self.objects[&id].access }))
            }
            nfs3::Call::ReadDirPlus(args) => nfs3::Reply::ReadDirPlus(Ok(self.list(args))),
            nfs3::Call::ReadLink(fh) => {
                let target = Bytes::from_static(b"target");
                nfs3::Reply::ReadLink(Ok(ReadLinkOk { attr: Some(self.attr(number(fh))), target }))
            }
            nfs3::Call::Lookup(at) => {
                let dir = number(&at.dir);
                let found = self.objects[&dir].names.iter().find(|(name, _)| name.as_bytes() == &at.name[..]);
                nfs3::Reply::Lookup(match found {
                    Some((_, id)) => {
                        Ok(LookupOk { fh: handle(*id), attr: Some(self.attr(*id)), dir: Some(self.attr(dir)) })
                    }
                    None => Err(Failed { status: Status::NoEnt, info: Some(self.attr(dir)) }),
                })
            }
            nfs3::Call::Read(args) => {
                let id = number(&args.fh);
                self.reads.push(id);
                let attr = self.attr(id);
                let end = attr.size.min(args.offset + u64::from(args.count));
                let data = Bytes::from(vec![7; (end - args.offset) as usize]);
                let (count, eof) = (data.len() as u32, end == attr.size);
                nfs3::Reply::Read(Ok(ReadOk { attr: Some(attr), count, eof, data }))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A saved object.
#[derive(Clone, Debug, Default)]
struct Stored {
    record: Option<DiskRecord>,
    extents: BTreeMap<u64, u64>,
    pin: u64,
}

/// A disk cache in memory.
#[derive(Debug, Default)]
struct Disk {
    objects: BTreeMap<Fh, Stored>,
}

impl Disk {
    fn execute(&mut self, job: DiskJob) -> DiskDone {
        let ranges = |stored: &Stored| stored.extents.iter().map(|(start, end)| *start..*end).collect::<Vec<_>>();
        let found = self.objects.get_mut(&job.fh);
        match (job.work, found) {
            (DiskWork::Save { record, kept, data }, _) => {
                let stored = self.objects.entry(job.fh).or_default();
                stored.record = record.map(|record| *record);
                let is_kept = |start: u64, end: u64| kept.iter().any(|k: &Range<u64>| k.start <= start && end <= k.end);
                stored.extents.retain(|start, end| is_kept(*start, *end));
                stored.extents.extend(data.iter().map(|part| (part.offset, part.offset + part.data.len() as u64)));
                DiskDone::Changed
            }
            (DiskWork::Load, found) => {
                let object = found.and_then(|stored| {
                    Some(Box::new(DiskObject { record: stored.record.clone()?, ranges: ranges(stored) }))
                });
                DiskDone::Loaded(object)
            }
            (DiskWork::Pin(stamp), Some(stored)) if stored.record.is_some() => {
                stored.pin = stamp;
                let ranges = ranges(stored);
                let bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>() + 500;
                DiskDone::Pinned(Some(DiskPin { ranges, bytes }))
            }
            (DiskWork::Pin(_), _) => DiskDone::Pinned(None),
            (DiskWork::Unpin { all_but }, _) => {
                self.objects.values_mut().filter(|stored| stored.pin != all_but).for_each(|stored| stored.pin = 0);
                DiskDone::Changed
            }
            (DiskWork::Read(_), _) => DiskDone::Read(Vec::new()),
            (DiskWork::Remove, _) => {
                self.objects.remove(&job.fh);
                DiskDone::Changed
            }
        }
    }

    fn pinned(&self) -> Vec<u64> {
        let mut pinned: Vec<u64> = self.objects.iter().filter(|(_, s)| s.pin > 0).map(|(fh, _)| number(fh)).collect();
        pinned.sort_unstable();
        pinned
    }
}

struct World {
    cache: Cache,
    server: Server,
    disk: Disk,
    now: Time,
    /// Most calls, and bytes of READs, in flight at a time.
    calls_max: usize,
    bytes_max: u64,
}

fn entry(path: &str, priority: u8, recursive: bool) -> HoardEntry {
    HoardEntry { path: path.into(), priority, recursive, glob: None }
}

fn plan(entries: Vec<HoardEntry>, bytes_max: u64) -> HoardPlan {
    HoardPlan { entries, owner: HoardOwner { uid: 5, gid: 5, groups: Vec::new() }, bytes_max }
}

impl World {
    fn new(server: Server, disk: Disk) -> World {
        let config = Config { disk_file_max: 64 * MIB, ..Config::default() };
        let mut cache = Cache::new(config, handle(1), START);
        cache.set_root(START, &server.attr(1));
        // FSSTAT.
        cache.poll_call(BulkRoom::All).unwrap();
        World { cache, server, disk, now: START, calls_max: 0, bytes_max: 0 }
    }

    /// Runs for this long; replies take one round.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut calls: VecDeque<Call> = VecDeque::new();
        while self.now < end {
            while let Some(job) = self.cache.poll_disk_job() {
                let id = job.id;
                let done = self.disk.execute(job);
                self.cache.handle_disk_done(self.now, id, done);
            }
            calls.extend(std::iter::from_fn(|| self.cache.poll_call(BulkRoom::All)));
            let bytes = |call: &Call| if let nfs3::Call::Read(read) = &call.call { u64::from(read.count) } else { 0 };
            self.calls_max = self.calls_max.max(calls.len());
            self.bytes_max = self.bytes_max.max(calls.iter().map(bytes).sum());
            match calls.pop_front() {
                Some(call) => {
                    let reply = self.server.reply(&call);
                    self.cache.handle_reply(self.now, call.id, Ok(reply));
                }
                None => self.now = self.cache.poll_timeout().unwrap_or(end).clamp(self.now, end),
            }
            self.cache.handle_timeout(self.now);
        }
    }

    fn hoard(&mut self, plan: HoardPlan) -> HoardProgress {
        self.cache.set_hoard(self.now, plan);
        self.run(Duration::from_secs(30));
        self.cache.hoard_status().last.expect("the walk has come to its end")
    }
}

fn reasons(progress: &HoardProgress) -> Vec<(String, HoardMissReason)> {
    let path = |miss: &remora_cache::HoardMiss| String::from_utf8(miss.path.clone()).unwrap();
    progress.missing.iter().map(|miss| (path(miss), miss.reason)).collect()
}

#[test]
fn walk_hoards_tree_in_order_of_priority() {
    let mut server = Server::new();
    let (low, high) = (server.dir(1, "a-low"), server.dir(1, "b-high"));
    let deep = server.dir(low, "deep");
    let files = [server.file(low, "x", 100_000), server.file(deep, "y", 200_000)];
    let first = server.file(high, "z", 10 * MIB);
    server.add(high, "link", FileType::SymLink, 6);
    server.file(1, "other", 100_000);
    let mut world = World::new(server, Disk::default());
    let last = world.hoard(plan(vec![entry("/a-low", 10, true), entry("/b-high", 90, false)], 64 * MIB));
    assert_eq!((last.files_wanted, last.files_there, last.bytes_there), (4, 4, 300_000 + 10 * MIB), "{last:?}");
    assert_eq!((last.directories, last.missing.len(), last.is_full), (4, 0, false));
    let mut order = world.server.reads.clone();
    order.dedup();
    assert_eq!(order[0], first);
    let is_first = |id: &u64| *id == first;
    assert!(
        world.server.reads.iter().skip_while(|id| is_first(id)).all(|id| !is_first(id)),
        "the highest priority first"
    );
    assert_eq!(
        {
            order.sort_unstable();
            order
        },
        [files[0], files[1], first]
    );
    assert_eq!(world.disk.pinned().len(), 8, "the root, three directories and four files");
    assert!(world.calls_max <= 64, "{} calls in flight", world.calls_max);
}

#[test]
fn second_walk_reads_only_what_changed() {
    let mut server = Server::new();
    let dir = server.dir(1, "dir");
    let files = [server.file(dir, "a", 50_000), server.file(dir, "b", 50_000)];
    let mut world = World::new(server, Disk::default());
    world.hoard(plan(vec![entry("/dir", 50, true)], 64 * MIB));
    (world.server.reads, world.server.calls) = (Vec::new(), 0);
    world.server.objects.get_mut(&files[1]).unwrap().changed += 1;
    world.run(Duration::from_secs(620));
    let mut reads = world.server.reads.clone();
    reads.dedup();
    assert_eq!(reads, [files[1]]);
    assert!(world.server.calls < 12, "{} calls revalidate two directories and two files", world.server.calls);
    // After a restart the disk cache has all, and READs are as few.
    let (server, disk) = (world.server, world.disk);
    let mut world = World::new(Server { reads: Vec::new(), ..server }, disk);
    let last = world.hoard(plan(vec![entry("/dir", 50, true)], 64 * MIB));
    assert_eq!((last.files_there, world.server.reads.len()), (2, 0));
}

#[test]
fn what_does_not_fit_is_reported_and_not_read() {
    let mut server = Server::new();
    let dir = server.dir(1, "dir");
    let kept = server.file(1, "kept", 3 * MIB);
    server.file(dir, "large", 3 * MIB);
    server.file(dir, "small", 100_000);
    server.file(dir, "huge", 65 * MIB);
    let mut world = World::new(server, Disk::default());
    let last = world.hoard(plan(vec![entry("/dir", 10, true), entry("/kept", 90, false)], 5 * MIB));
    assert!(last.is_full && last.pinned_bytes <= 5 * MIB, "{last:?}");
    let expected = [("/dir/huge", HoardMissReason::TooLarge), ("/dir/large", HoardMissReason::NoRoom)];
    assert_eq!(reasons(&last), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert_eq!((last.files_wanted, last.files_missing(), last.bytes_missing()), (4, 2, 68 * MIB));
    assert!(world.server.reads.contains(&kept));
}

#[test]
fn unreadable_and_absent_paths_are_reported() {
    let mut server = Server::new();
    let secret = server.file(1, "secret", 10);
    let closed = server.dir(1, "closed");
    server.objects.get_mut(&secret).unwrap().access = 0;
    server.objects.get_mut(&closed).unwrap().access = 0;
    let mut world = World::new(server, Disk::default());
    let entries = vec![entry("/secret", 50, false), entry("/closed", 40, true), entry("/no/such", 30, false)];
    let last = world.hoard(plan(entries, MIB));
    let expected = [
        ("/secret", HoardMissReason::NoPermission),
        ("/closed", HoardMissReason::NoPermission),
        ("/no", HoardMissReason::NotFound),
    ];
    assert_eq!(reasons(&last), expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert!(world.server.reads.is_empty());
}

#[test]
fn glob_and_depth_limit_what_is_hoarded() {
    let mut server = Server::new();
    let dir = server.dir(1, "src");
    let sub = server.dir(dir, "sub");
    let rust = [server.file(dir, "a.rs", 10), server.file(sub, "b.rs", 10)];
    server.file(dir, "a.o", 10);
    server.file(sub, "b.o", 10);
    for (recursive, expected) in [(true, &rust[..]), (false, &rust[..1])] {
        let mut world = World::new(
            Server { objects: server.objects.clone(), next: server.next, ..Server::default() },
            Disk::default(),
        );
        let glob = Some(NameGlob::parse("*.rs").unwrap());
        let last = world.hoard(plan(vec![HoardEntry { glob, ..entry("src", 50, recursive) }], MIB));
        assert_eq!((last.files_wanted, last.files_there), (expected.len() as u64, expected.len() as u64));
        world.server.reads.sort_unstable();
        assert_eq!(world.server.reads, expected, "recursive: {recursive}");
    }
}

#[test]
fn removed_entry_is_unpinned_by_the_next_walk() {
    let mut server = Server::new();
    let files = [server.file(1, "a", 10), server.file(1, "b", 10)];
    let mut world = World::new(server, Disk::default());
    world.hoard(plan(vec![entry("/a", 50, false), entry("/b", 50, false)], MIB));
    assert_eq!(world.disk.pinned(), [1, files[0], files[1]]);
    world.hoard(plan(vec![entry("/b", 50, false)], MIB));
    assert_eq!(world.disk.pinned(), [1, files[1]]);
    world.hoard(plan(Vec::new(), MIB));
    assert_eq!(world.disk.pinned(), []);
}

#[test]
fn data_that_the_disk_dropped_is_read_again() {
    let mut server = Server::new();
    let file = server.file(1, "a", 100_000);
    let mut world = World::new(server, Disk::default());
    world.hoard(plan(vec![entry("/a", 50, false)], MIB));
    world.disk.objects.get_mut(&handle(file)).unwrap().extents.clear();
    let reads = world.server.reads.len();
    world.run(Duration::from_secs(620));
    let last = world.cache.hoard_status().last.unwrap();
    assert_eq!((last.files_missing(), world.server.reads.len()), (0, 2 * reads), "the pin shows what is there");
}

#[test]
fn walk_stops_while_the_server_is_silent() {
    let mut server = Server::new();
    server.file(1, "a", 100_000);
    let mut world = World::new(server, Disk::default());
    world.cache.set_silence(world.now, Duration::from_secs(5));
    world.cache.set_hoard(world.now, plan(vec![entry("/a", 50, false)], MIB));
    world.run(Duration::from_secs(60));
    let status = world.cache.hoard_status();
    assert_eq!((world.server.calls, status.is_paused, status.last), (0, true, None));
    world.cache.set_silence(world.now, Duration::ZERO);
    world.run(Duration::from_secs(10));
    assert_eq!(world.cache.hoard_status().last.unwrap().files_there, 1);
}

#[test]
fn bytes_on_their_way_to_the_disk_are_bounded() {
    let mut server = Server::new();
    let file = server.file(1, "large", 50 * MIB);
    let mut world = World::new(server, Disk::default());
    world.cache.set_hoard(world.now, plan(vec![entry("/large", 50, false)], 64 * MIB));
    world.run(Duration::from_secs(60));
    let last = world.cache.hoard_status().last.unwrap();
    assert_eq!((last.files_there, last.bytes_there), (1, 50 * MIB), "{last:?}");
    assert!(world.bytes_max <= 2 * MIB, "{} bytes in flight", world.bytes_max);
    assert_eq!(world.cache.status().cached_bytes, 0, "it leaves no data in memory");
    assert_eq!(world.server.reads, vec![file; 50 * 32], "each block once");
}
