//! What the memory file system holds: objects by number, clock, verifier, room.

use std::collections::BTreeMap;

use remora_base::{Rng, Time};
use remora_wire::nfs3::{Attr, FileType, NfsTime, SetAttr, SetTime, Status, Wcc};

use super::content::BLOCK;
use super::fault::{Faults, OpKind};
use super::node::{Body, Dir, Node};
use crate::{Cred, FileId, Made, Result, attrs, perm};

/// Number of the root directory.
pub(super) const ROOT: u64 = 1;

/// See the module. Everything here is deterministic: numbers, generations and cookies are
/// given out in order, verifiers come from the seed.
pub(super) struct State {
    nodes: BTreeMap<u64, Node>,
    /// Numbers to use again, the latest first, as disk file systems do.
    free: Vec<u64>,
    next_number: u64,
    next_generation: u64,
    pub(super) fsid: u64,
    pub(super) verifier: [u8; 8],
    /// Whether deferring views are given out.
    pub(super) defers: bool,
    rng: Rng,
    clock_ns: u64,
    pub(super) faults: Faults,
    /// Bytes of data there is room for.
    pub(super) capacity: u64,
    /// Bytes of the largest file.
    pub(super) file_max: u64,
    used_blocks: u64,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        let mut rng = Rng::stream(seed, "vfs.memory");
        let fsid = rng.next_u64();
        // So that the ids of two file systems differ, with room to count upwards.
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

    pub(super) fn set_time(&mut self, now: Time) {
        self.clock_ns = self.clock_ns.max(now.as_nanos());
    }

    /// The time of a change: later than every change before.
    pub(super) fn tick(&mut self) -> NfsTime {
        self.clock_ns += 1;
        // Seconds fit: 2^64 ns are 584 years, 2^32 s are 136; what is later wraps.
        NfsTime { secs: (self.clock_ns / 1_000_000_000) as u32, nanos: (self.clock_ns % 1_000_000_000) as u32 }
    }

    // --- Stability ---

    /// Tells clients that volatile data may be gone.
    pub(super) fn rotate_verifier(&mut self) {
        let old = self.verifier;
        while self.verifier == old {
            self.verifier = self.rng.next_u64().to_be_bytes();
        }
    }

    /// Every file falls back to what is durable.
    pub(super) fn revert_all(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.into_iter().for_each(|n| self.revert(n));
    }

    /// A write-back of this file failed: what was volatile is gone.
    pub(super) fn lose(&mut self, number: u64) {
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
    pub(super) fn flush(&mut self, number: u64) -> Result<()> {
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

    // --- Room ---

    pub(super) fn free_blocks(&self) -> u64 {
        (self.capacity / BLOCK).saturating_sub(self.used_blocks)
    }

    pub(super) fn count_blocks(&mut self, before: u64, after: u64) {
        self.used_blocks = self.used_blocks + after - before;
    }

    // --- Objects ---

    /// The number of the object that `id` names.
    pub(super) fn number(&self, id: &FileId) -> Result<u64> {
        let (number, generation) = split(id).ok_or(Status::BadHandle)?;
        match self.nodes.get(&number) {
            Some(node) if node.generation == generation => Ok(number),
            _ => Err(Status::Stale),
        }
    }

    /// The number of the directory that `id` names.
    pub(super) fn dir_number(&self, id: &FileId) -> Result<u64> {
        let number = self.number(id)?;
        self.node(number)?.dir()?;
        Ok(number)
    }

    pub(super) fn node(&self, number: u64) -> Result<&Node> {
        self.nodes.get(&number).ok_or(Status::ServerFault)
    }

    pub(super) fn node_mut(&mut self, number: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or(Status::ServerFault)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(n, node)| (*n, node))
    }

    pub(super) fn id(&self, number: u64) -> Result<FileId> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..].copy_from_slice(&self.node(number)?.generation.to_be_bytes());
        FileId::new(&bytes).ok_or(Status::ServerFault)
    }

    pub(super) fn attr(&self, number: u64) -> Result<Attr> {
        Ok(self.node(number)?.attr(self.fsid, number))
    }

    /// Before and after, around an operation on one object.
    pub(super) fn wcc(&self, before: &Attr, number: u64) -> Result<Wcc> {
        Ok(Wcc { before: Some(before.wcc()), after: Some(self.attr(number)?) })
    }

    /// Fails unless `cred` has all of the permission bits `need`.
    pub(super) fn permit(&self, cred: &Cred, number: u64, need: u32) -> Result<()> {
        if perm::granted(cred, &self.attr(number)?) & need == need { Ok(()) } else { Err(Status::Access) }
    }

    /// Makes an object, not yet under any name.
    pub(super) fn insert(&mut self, owner: &Cred, mode: u32, body: Body) -> u64 {
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

    /// Takes one link away; the object goes with its last.
    pub(super) fn unlink(&mut self, number: u64) -> Result<()> {
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

    /// Gives `dir` a new entry, an object made by `cred`.
    pub(super) fn make(&mut self, cred: &Cred, dir: u64, name: &[u8], attr: &SetAttr, body: Body) -> Result<Made> {
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
            // Whatever mode is asked for, as on Linux.
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

    pub(super) fn check_size(&self, size: u64) -> Result<()> {
        if size > self.file_max { Err(Status::FBig) } else { Ok(()) }
    }

    /// Whether `cred` may set these attributes.
    pub(super) fn permit_attr(&self, cred: &Cred, now: &Attr, new: &SetAttr) -> Result<()> {
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

    /// Sets attributes that have been checked.
    pub(super) fn apply(&mut self, number: u64, new: &SetAttr) -> Result<()> {
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
            // A new owner must not inherit the old one's set-uid program.
            node.mode &= if node.mode & 0o010 != 0 { !0o6000 } else { !0o4000 };
        }
        node.uid = new.uid.unwrap_or(node.uid);
        node.gid = new.gid.unwrap_or(node.gid);
        if let Some(mode) = new.mode.filter(|_| node.kind() != FileType::SymLink) {
            node.mode = mode & attrs::MODE_MASK;
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
