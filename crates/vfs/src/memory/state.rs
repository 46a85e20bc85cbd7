//! The state of the memory file system: objects by inode number, clock, verifier, space.

use std::collections::BTreeMap;

use remora_base::{Rng, Time};
use remora_wire::nfs3::{Attr, FileType, NfsTime, SetAttr, SetTime, Status, Wcc};

use crate::memory::content::BLOCK;
use crate::memory::fault::{Faults, OpKind};
use crate::memory::node::{Body, Dir, Node};
use crate::types::{Cred, FileId, Made, Result};
use crate::{args, perm};

/// The inode number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// The state. Deterministic: numbers, generations and cookies are assigned in order, verifiers come from the seed.
pub(crate) struct State {
    nodes: BTreeMap<u64, Node>,
    /// Free numbers. The latest is reused first, as on disk file systems.
    free: Vec<u64>,
    next_number: u64,
    next_generation: u64,
    pub(crate) fsid: u64,
    pub(crate) verifier: [u8; 8],
    /// Whether there are deferring views.
    pub(crate) defers: bool,
    rng: Rng,
    clock_ns: u64,
    /// Times are multiples of this many nanoseconds.
    pub(crate) grain_ns: u64,
    pub(crate) faults: Faults,
    /// The space in bytes.
    pub(crate) capacity: u64,
    /// The maximum file size in bytes.
    pub(crate) file_max: u64,
    used_blocks: u64,
}

impl State {
    pub(crate) fn new(seed: u64) -> State {
        let mut rng = Rng::stream(seed, "vfs.memory");
        let fsid = rng.next_u64();
        // Random, so that the ids of two file systems differ; halved, so that it can count upwards.
        let generation = rng.next_u64() >> 1;
        let mut state = State {
            nodes: BTreeMap::new(),
            free: Vec::new(),
            next_number: ROOT,
            next_generation: generation,
            fsid,
            verifier: rng.next_u64().to_be_bytes(),
            defers: false,
            rng,
            clock_ns: 0,
            grain_ns: 1,
            faults: Faults::default(),
            capacity: u64::MAX,
            file_max: 1 << 30,
            used_blocks: 0,
        };
        let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
        state.insert(&root, 0o777, Body::Dir(Dir::new(ROOT)));
        state
    }

    // --- Time ---

    pub(crate) fn set_time(&mut self, now: Time) {
        self.clock_ns = self.clock_ns.max(now.as_nanos());
    }

    /// The time of a change: with a grain of 1 ns later than that of every earlier one.
    pub(crate) fn tick(&mut self) -> NfsTime {
        self.clock_ns += 1;
        let ns = self.clock_ns / self.grain_ns * self.grain_ns;
        // Wraps after 136 years, 2^32 s.
        NfsTime { secs: (ns / 1_000_000_000) as u32, nanos: (ns % 1_000_000_000) as u32 }
    }

    // --- Stability ---

    /// Changes the verifier: volatile data may be lost.
    pub(crate) fn rotate_verifier(&mut self) {
        let old = self.verifier;
        while self.verifier == old {
            self.verifier = self.rng.next_u64().to_be_bytes();
        }
    }

    /// Reverts every file to its durable data.
    pub(crate) fn revert_all(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.into_iter().for_each(|n| self.revert(n));
    }

    /// A write-back of this file failed: its volatile data is lost.
    pub(crate) fn lose(&mut self, number: u64) {
        self.revert(number);
        self.rotate_verifier();
    }

    fn revert(&mut self, number: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        if let Some((mtime, ctime)) = node.durable_times.take() {
            (node.mtime, node.ctime) = (mtime, ctime);
        }
        if let Ok(content) = node.content() {
            let before = content.allocated();
            content.revert();
            let after = content.allocated();
            self.used_blocks = self.used_blocks + after - before;
        }
    }

    /// Writes a file's volatile data back.
    pub(crate) fn flush(&mut self, number: u64) -> Result<()> {
        if let Err(status) = self.faults.check(OpKind::Flush) {
            self.lose(number);
            return Err(status);
        }
        if let Some(node) = self.nodes.get_mut(&number) {
            node.content()?.flush();
            node.durable_times = None;
        }
        Ok(())
    }

    /// Writes the volatile data of every file back.
    pub(crate) fn flush_all(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        // Only files have data.
        numbers.into_iter().for_each(|number| _ = self.flush(number));
    }

    // --- Space ---

    pub(crate) fn free_blocks(&self) -> u64 {
        (self.capacity / BLOCK).saturating_sub(self.used_blocks)
    }

    pub(crate) fn count_blocks(&mut self, before: u64, after: u64) {
        self.used_blocks = self.used_blocks + after - before;
    }

    // --- Objects ---

    /// The inode number of `id`.
    pub(crate) fn number(&self, id: &FileId) -> Result<u64> {
        let (number, generation) = split(id).ok_or(Status::BadHandle)?;
        match self.nodes.get(&number) {
            Some(node) if node.generation == generation => Ok(number),
            _ => Err(Status::Stale),
        }
    }

    /// The inode number of the directory `id`.
    pub(crate) fn dir_number(&self, id: &FileId) -> Result<u64> {
        let number = self.number(id)?;
        self.node(number)?.dir()?;
        Ok(number)
    }

    pub(crate) fn node(&self, number: u64) -> Result<&Node> {
        self.nodes.get(&number).ok_or(Status::ServerFault)
    }

    pub(crate) fn node_mut(&mut self, number: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or(Status::ServerFault)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(n, node)| (*n, node))
    }

    pub(crate) fn id(&self, number: u64) -> Result<FileId> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..].copy_from_slice(&self.node(number)?.generation.to_be_bytes());
        FileId::new(&bytes).ok_or(Status::ServerFault)
    }

    pub(crate) fn attr(&self, number: u64) -> Result<Attr> {
        Ok(self.node(number)?.attr(self.fsid, number))
    }

    /// The attributes of an object before and after an operation.
    pub(crate) fn wcc(&self, before: &Attr, number: u64) -> Result<Wcc> {
        Ok(Wcc { before: Some(before.wcc()), after: Some(self.attr(number)?) })
    }

    /// Fails unless `cred` has all of the permission bits `need`.
    pub(crate) fn permit(&self, cred: &Cred, number: u64, need: u32) -> Result<()> {
        if perm::granted(cred, &self.attr(number)?) & need == need { Ok(()) } else { Err(Status::Access) }
    }

    /// Creates an object without a name.
    pub(crate) fn insert(&mut self, owner: &Cred, mode: u32, body: Body) -> u64 {
        let number = self.free.pop().unwrap_or(self.next_number);
        self.next_number = self.next_number.max(number + 1);
        let generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        let now = self.tick();
        let nlink = if matches!(body, Body::Dir(_)) { 2 } else { 1 };
        let (uid, gid) = (owner.uid, owner.gid);
        let (atime, mtime, ctime, durable_times) = (now, now, now, None);
        let node = Node { generation, mode, uid, gid, nlink, atime, mtime, ctime, durable_times, body };
        self.nodes.insert(number, node);
        number
    }

    /// Removes a link. The last one removes the object.
    pub(crate) fn unlink(&mut self, number: u64) -> Result<()> {
        let now = self.tick();
        let node = self.node_mut(number)?;
        let last = if matches!(node.body, Body::Dir(_)) { 2 } else { 1 };
        if node.nlink > last {
            node.nlink -= 1;
            node.touch_attr(now);
            return Ok(());
        }
        if let Ok(content) = node.content() {
            let room = content.allocated();
            self.count_blocks(room, 0);
        }
        self.nodes.remove(&number);
        self.free.push(number);
        Ok(())
    }

    /// Creates an object for `cred` with a name in `dir`.
    pub(crate) fn make(&mut self, cred: &Cred, dir: u64, name: &[u8], attr: &SetAttr, body: Body) -> Result<Made> {
        let before = self.attr(dir)?;
        self.permit(cred, dir, perm::W | perm::X)?;
        let is_dir = matches!(body, Body::Dir(_));
        if let Some(size) = attr.size.filter(|_| matches!(body, Body::File(_))) {
            self.check_size(size)?;
        }
        let number = self.insert(cred, attr.mode.unwrap_or(0), body);
        let inherits = before.mode & 0o2000 != 0;
        if inherits {
            self.node_mut(number)?.gid = before.gid;
        }
        self.apply(number, attr)?;
        if inherits && is_dir {
            // For any requested mode, as on Linux.
            self.node_mut(number)?.mode |= 0o2000;
        }
        let now = self.tick();
        let parent = self.node_mut(dir)?;
        parent.dir_mut()?.insert(name, number);
        parent.nlink += u32::from(is_dir);
        parent.touch_data(now, true);
        Ok(Made { id: self.id(number)?, attr: self.attr(number)?, dir: self.wcc(&before, dir)? })
    }

    // --- Attributes ---

    pub(crate) fn check_size(&self, size: u64) -> Result<()> {
        if size > self.file_max { Err(Status::FBig) } else { Ok(()) }
    }

    /// Whether `cred` may set these attributes.
    pub(crate) fn permit_attr(&self, cred: &Cred, now: &Attr, new: &SetAttr) -> Result<()> {
        let require = |ok: bool, status| if ok { Ok(()) } else { Err(status) };
        let owns = perm::owns(cred, now);
        require(new.size.is_none() || perm::may_write(cred, now), Status::Access)?;
        require(new.uid.is_none_or(|uid| cred.uid == 0 || (owns && uid == now.uid)), Status::Perm)?;
        let joins = |gid| cred.uid == 0 || (owns && (gid == now.gid || perm::in_group(cred, gid)));
        require(new.gid.is_none_or(joins), Status::Perm)?;
        require(new.mode.is_none() || owns, Status::Perm)?;
        for time in [new.atime, new.mtime] {
            match time {
                SetTime::Keep => {}
                SetTime::Server => require(perm::may_write(cred, now), Status::Access)?,
                SetTime::To(_) => require(owns, Status::Perm)?,
            }
        }
        Ok(())
    }

    /// Sets checked attributes.
    pub(crate) fn apply(&mut self, number: u64, new: &SetAttr) -> Result<()> {
        if *new == SetAttr::NONE {
            return Ok(());
        }
        let now = self.tick();
        let node = self.node_mut(number)?;
        node.touch_attr(now);
        let room = match new.size {
            Some(size) if node.kind() == FileType::Regular => {
                let content = node.content()?;
                let before = content.allocated();
                content.set_size(size);
                let after = content.allocated();
                node.touch_data(now, true);
                (before, after)
            }
            _ => (0, 0),
        };
        if (new.uid.is_some() || new.gid.is_some()) && node.kind() != FileType::Directory {
            // A new owner must not inherit a set-uid program of the old one.
            node.mode &= if node.mode & 0o010 != 0 { !0o6000 } else { !0o4000 };
        }
        node.uid = new.uid.unwrap_or(node.uid);
        node.gid = new.gid.unwrap_or(node.gid);
        if let Some(mode) = new.mode.filter(|_| node.kind() != FileType::SymLink) {
            node.mode = mode & args::MODE_MASK;
        }
        let stamp = |set: SetTime, old: NfsTime| match set {
            SetTime::Keep => old,
            SetTime::Server => now,
            SetTime::To(time) => time,
        };
        node.atime = stamp(new.atime, node.atime);
        node.mtime = stamp(new.mtime, node.mtime);
        self.count_blocks(room.0, room.1);
        Ok(())
    }
}

fn split(id: &FileId) -> Option<(u64, u64)> {
    let (number, generation) = id.as_bytes().split_at_checked(8)?;
    Some((u64::from_be_bytes(number.try_into().ok()?), u64::from_be_bytes(generation.try_into().ok()?)))
}
