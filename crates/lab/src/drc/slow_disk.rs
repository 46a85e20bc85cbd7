//! A file system in memory with the service times of DRC 89's machines: the simulator's disk model on threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_host::Clock;
use remora_sim::world::ufs::{Ufs, Volume};
use remora_vfs::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, MemFs, NameIn, Result, Vfs};
use remora_wire::nfs3::{
    Attr, CreateHow, Fh, FsStatOk, LinkAttrs, NfsTime, NodeKind, PathConfOk, RenameDirs, SetAttr, Stable, Wcc,
};

/// How long sleepers leave the lock to its last holder for the next request: in the clock's time, since many runs may
/// share the machine at the original pace, and in the machine's.
const GRACE: Duration = Duration::from_millis(4);
const GRACE_MIN: Duration = Duration::from_micros(300);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    clock: Clock,
    faster: f64,
}

impl Pace {
    pub(super) fn new(faster: f64) -> Pace {
        Pace { clock: Clock::start(), faster }
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(Time::ZERO).mul_f64(self.faster)
    }

    /// Converts a time of this clock to the machine's.
    pub(super) fn real(&self, time: Duration) -> Duration {
        time.div_f64(self.faster)
    }

    pub(super) fn sleep_until(&self, at: Time) {
        thread::sleep(self.real(at.since(self.now())));
    }
}

pub(super) struct SlowDisk {
    fs: Arc<MemFs>,
    pace: Pace,
    volume: Mutex<Volume>,
    inode: Inode,
    writes: AtomicU64,
    script: Option<DiskScript>,
}

/// Scripted durations, and the operations done.
pub(super) struct DiskScript {
    /// Durations of the creates in order; then zero.
    creates: Mutex<VecDeque<Duration>>,
    write: Duration,
    done: Mutex<Vec<DiskOperation>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DiskOperation {
    pub(super) is_create: bool,
    pub(super) daemon: ThreadId,
    pub(super) from: Time,
    /// End; the operation takes effect then.
    pub(super) to: Time,
}

impl DiskScript {
    pub(super) fn new(creates: impl IntoIterator<Item = Duration>, write: Duration) -> DiskScript {
        DiskScript { creates: Mutex::new(creates.into_iter().collect()), write, done: Mutex::default() }
    }

    fn act<T>(&self, pace: Pace, is_create: bool, effect: impl FnOnce() -> T) -> T {
        let takes = if is_create { lock(&self.creates).pop_front().unwrap_or_default() } else { self.write };
        let from = pace.now();
        pace.sleep_until(from + takes);
        let result = effect();
        lock(&self.done).push(DiskOperation { is_create, daemon: thread::current().id(), from, to: pace.now() });
        result
    }
}

impl SlowDisk {
    pub(super) fn new(fs: Arc<MemFs>, ufs: Ufs, pace: Pace, seed: u64) -> SlowDisk {
        let volume = Mutex::new(Volume::new(ufs, seed));
        SlowDisk {
            fs,
            pace,
            volume,
            inode: Inode::new(ufs.overtaking.then(|| pace.real(GRACE).max(GRACE_MIN))),
            writes: AtomicU64::new(0),
            script: None,
        }
    }

    /// A disk with the durations of `script`.
    pub(super) fn scripted(fs: Arc<MemFs>, ufs: Ufs, pace: Pace, script: DiskScript) -> SlowDisk {
        SlowDisk { script: Some(script), ..SlowDisk::new(fs, ufs, pace, 0) }
    }

    /// Scripted operations, in order of start.
    pub(super) fn done(&self) -> Vec<DiskOperation> {
        let mut done = self.script.as_ref().map_or_else(Vec::new, |script| lock(&script.done).clone());
        done.sort_by_key(|d| d.from);
        done
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Performs `what` after the volume's service time.
    fn slowly<T>(&self, takes: impl FnOnce(&mut Volume, Time) -> Time, what: impl FnOnce(&MemFs) -> T) -> T {
        let _held = self.inode.lock();
        let done = takes(&mut lock(&self.volume), self.pace.now());
        self.pace.sleep_until(done);
        self.fs.set_time(done);
        what(&self.fs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(id: &FileId) -> Fh {
    Fh(Bytes::copy_from_slice(id.as_bytes()))
}

/// The lock of an inode; the load has one file. If daemons overtake, a free lock goes to the next caller at once,
/// before sleepers. Otherwise it is granted in order.
struct Inode {
    /// Delay of sleepers after it is free, if they are overtaken.
    grace: Option<Duration>,
    state: Mutex<Lock>,
    freed: Condvar,
}

#[derive(Default)]
struct Lock {
    is_held: bool,
    next: u64,
    asleep: VecDeque<u64>,
}

struct Held<'a>(&'a Inode);

impl Inode {
    fn new(grace: Option<Duration>) -> Inode {
        Inode { grace, state: Mutex::default(), freed: Condvar::new() }
    }

    fn lock(&self) -> Held<'_> {
        let mut state = lock(&self.state);
        if state.is_held || self.grace.is_none() && !state.asleep.is_empty() {
            let me = state.next;
            state.next += 1;
            state.asleep.push_back(me);
            while state.is_held || state.asleep.front() != Some(&me) {
                state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
                if let Some(grace) = self.grace.filter(|_| !state.is_held && state.asleep.front() == Some(&me)) {
                    drop(state);
                    thread::sleep(grace);
                    state = lock(&self.state);
                }
            }
            state.asleep.pop_front();
        }
        state.is_held = true;
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_held = false;
        self.0.freed.notify_all();
    }
}

impl Vfs for SlowDisk {
    fn setattr(&self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        match attr.size {
            Some(size) => {
                self.slowly(|v, now| v.truncate(now, &handle(id), size), |fs| fs.setattr(cred, id, attr, guard))
            }
            None => self.fs.setattr(cred, id, attr, guard),
        }
    }

    fn write(&self, cred: &Cred, id: &FileId, offset: u64, data: &Bytes, stable: Stable) -> Result<(Wcc, Stable)> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if let Some(script) = &self.script {
            return script.act(self.pace, false, || self.fs.write(cred, id, offset, data, stable));
        }
        let bytes = offset..offset.saturating_add(data.len() as u64);
        self.slowly(|v, now| v.write(now, &handle(id), bytes), |fs| fs.write(cred, id, offset, data, stable))
    }

    fn root(&self) -> FileId {
        self.fs.root()
    }

    fn verifier(&self) -> [u8; 8] {
        self.fs.verifier()
    }

    fn getattr(&self, id: &FileId) -> Result<Attr> {
        self.fs.getattr(id)
    }

    fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        self.fs.lookup(cred, dir, name)
    }

    fn access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        self.fs.access(cred, id, wanted)
    }

    fn readlink(&self, cred: &Cred, id: &FileId) -> Result<Bytes> {
        self.fs.readlink(cred, id)
    }

    fn read(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        self.fs.read(cred, id, offset, count)
    }

    fn create(&self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        match &self.script {
            Some(script) => script.act(self.pace, true, || self.fs.create(cred, dir, name, how)),
            None => self.fs.create(cred, dir, name, how),
        }
    }

    fn mkdir(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        self.fs.mkdir(cred, dir, name, attr)
    }

    fn symlink(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr, target: &[u8]) -> Result<Made> {
        self.fs.symlink(cred, dir, name, attr, target)
    }

    fn mknod(&self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        self.fs.mknod(cred, dir, name, what)
    }

    fn remove(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.fs.remove(cred, dir, name)
    }

    fn rmdir(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.fs.rmdir(cred, dir, name)
    }

    fn rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        self.fs.rename(cred, from, to)
    }

    fn link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.fs.link(cred, id, dir, name)
    }

    fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        self.fs.readdir(cred, dir, query, take)
    }

    fn fsstat(&self, id: &FileId) -> Result<FsStatOk> {
        self.fs.fsstat(id)
    }

    fn pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        self.fs.pathconf(id)
    }

    fn commit(&self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<Wcc> {
        self.fs.commit(cred, id, offset, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_lock_goes_to_a_caller_before_sleepers() {
        let inode = Inode::new(Some(GRACE_MIN));
        let order = Mutex::new(Vec::new());
        let held = inode.lock();
        let (inode, log) = (&inode, &order);
        thread::scope(|scope| {
            for name in ["first", "second"] {
                let asleep = lock(&inode.state).asleep.len();
                scope.spawn(move || {
                    let _held = inode.lock();
                    lock(log).push(name);
                });
                while lock(&inode.state).asleep.len() == asleep {
                    thread::yield_now();
                }
            }
            drop(held);
            let _again = inode.lock();
            lock(log).push("again");
        });
        let order = order.into_inner().unwrap();
        // On a busy machine a sleeper may be first.
        assert_eq!(order.iter().filter(|n| **n != "again").collect::<Vec<_>>(), [&"first", &"second"]);
        assert!(order.contains(&"again"));
    }
}
