//! Somebody who works in a directory of his own, one call at a time, and knows from the
//! replies what must be there.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use bytes::Bytes;
use remora_base::Rng;
use remora_lab::raw;
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, LinkArgs, MkDirArgs, ReadArgs, RenameArgs, Reply, SetAttr,
    SetAttrArgs, Stable, Status, SymLinkArgs, WriteArgs,
};

use crate::blocks::{BLOCK, BLOCKS, Blocks};
use crate::gone::Gone;
use crate::names::{self, Kind, Named, Names};

/// The file that is written to, and the one whose attributes are set.
pub(crate) const DATA: &str = "data";
pub(crate) const ATTR: &str = "attr";
/// Names beside these two.
const NAMES_MAX: usize = 8;
/// Handles of removed objects that each new server is asked for.
const GONE_ASKED: usize = 3;

/// What a call is to do.
#[derive(Clone, Debug)]
enum Op {
    Write {
        first: usize,
        count: usize,
        version: u64,
        stable: Stable,
    },
    Commit,
    Read {
        block: usize,
    },
    Create(String),
    /// Exclusive, with a verifier.
    Exclusive(String, [u8; 8]),
    /// The same call of one that was acknowledged long ago: the file made then.
    ExclusiveAgain(String, [u8; 8], Fh),
    /// Exclusive, of a name that is taken: with another verifier it stays what it is.
    Taken(String),
    MkDir(String),
    /// A symbolic link to this.
    SymLink(String, String),
    /// One more name, the latter, of the file with the former.
    Link(String, Fh, String),
    Remove(String),
    RmDir(String),
    Rename(String, String),
    Mode(u32),
    Size(u64),
    /// Finds the handle of what was made by a call whose first reply was lost.
    Lookup(String),
    /// The handle is good.
    Known(Fh),
    /// The handle is good for nothing any more.
    Gone(Fh),
}

/// A call that has not been answered.
struct Pending {
    op: Op,
    message: Bytes,
    /// It was sent to a server that died: it may have been done, and be done again.
    again: bool,
}

/// How much has been done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    /// Calls that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Those of them that had been sent to a server that died.
    pub(crate) again: u64,
    /// Of these, the ones that the dead server had done already.
    pub(crate) done_before: u64,
    /// Of these, exclusive CREATEs whose verifier the dead server had not kept yet.
    pub(crate) half_made: u64,
    /// Times that uncommitted data had to be written again.
    pub(crate) rewrites: u64,
}

pub(crate) struct Actor {
    rng: Rng,
    path: PathBuf,
    dir: Fh,
    data: Fh,
    attr: Fh,
    blocks: Blocks,
    version: u64,
    names: Names,
    gone: Gone,
    mode: u32,
    size: u64,
    /// What comes before anything drawn.
    todo: VecDeque<Op>,
    pending: Option<Pending>,
    /// The verifier of the server that runs, and those of all before it.
    verf: Option<[u8; 8]>,
    past: BTreeSet<[u8; 8]>,
    tally: Tally,
}

impl Actor {
    /// Works in `path`, whose handle is `dir`, on two empty files of mode 0644 that are there.
    pub(crate) fn new(number: u64, seed: u64, path: PathBuf, [dir, data, attr]: [Fh; 3]) -> Actor {
        Actor {
            rng: Rng::stream(seed, &format!("actor {number}")),
            path,
            dir,
            data,
            attr,
            blocks: Blocks::new(number),
            version: 0,
            names: Names::default(),
            gone: Gone::new(seed, number),
            mode: 0o644,
            size: 0,
            todo: VecDeque::new(),
            pending: None,
            verf: None,
            past: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether a call is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// A new server is there: the message that is to be sent again, as it was.
    pub(crate) fn restarted(&mut self) -> Option<Bytes> {
        self.past.extend(self.verf.take());
        let block = self.rng.below(BLOCKS as u64) as usize;
        self.todo.extend([Op::Known(self.dir.clone()), Op::Known(self.data.clone()), Op::Read { block }]);
        self.todo.extend(self.gone.some(GONE_ASKED).into_iter().map(Op::Gone));
        if !self.pending.as_ref().is_some_and(|p| p.op.takes_a_name()) {
            self.ask_for_names();
        }
        let pending = self.pending.as_mut()?;
        pending.again = true;
        Some(pending.message.clone())
    }

    /// Handles from before are good, and an exclusive CREATE is known again by its verifier.
    fn ask_for_names(&mut self) {
        let which = self.rng.below(self.names.len().max(1) as u64) as usize;
        let Some((name, named)) = self.names.nth(which) else { return };
        self.todo.extend(named.fh.clone().map(Op::Known));
        self.todo.extend(
            self.names
                .all()
                .find_map(|(name, made)| Some(Op::ExclusiveAgain(name.clone(), made.verf?, made.fh.clone()?))),
        );
        self.todo.push_back(Op::Taken(name.clone()));
    }

    /// The next call.
    pub(crate) fn next(&mut self, xid: u32) -> Bytes {
        let op = self.todo.pop_front().unwrap_or_else(|| self.draw());
        let message = raw::nfs(xid, &self.call(&op));
        self.pending = Some(Pending { op, message: message.clone(), again: false });
        message
    }

    fn draw(&mut self) -> Op {
        let version = self.version + 1;
        let first = self.rng.below(BLOCKS as u64) as usize;
        let count = 1 + self.rng.below(4.min(BLOCKS - first) as u64) as usize;
        self.version = version;
        match self.rng.below(16) {
            0..3 => Op::Write { first, count, version, stable: Stable::FileSync },
            3..5 => Op::Write { first, count, version, stable: Stable::DataSync },
            5..7 => Op::Write { first, count, version, stable: Stable::Unstable },
            7 => Op::Commit,
            8 => Op::Read { block: first },
            9 => Op::Mode(0o600 | self.rng.below(0o200) as u32),
            10 => Op::Size(self.rng.below(1 << 20)),
            _ => self.draw_name(format!("n{version}"), version),
        }
    }

    /// Something with names; `fresh` was never one.
    fn draw_name(&mut self, fresh: String, version: u64) -> Op {
        let which = self.rng.below(self.names.len().max(1) as u64) as usize;
        let known = self.names.nth(which).map(|(name, named)| (name.clone(), named.clone()));
        let remove = |name, named: Named| if named.kind == Kind::Dir { Op::RmDir(name) } else { Op::Remove(name) };
        match (self.rng.below(10), known) {
            (_, Some((name, named))) if self.names.len() >= NAMES_MAX => remove(name, named),
            (0, Some((name, named))) => remove(name, named),
            (1, Some((from, _))) => Op::Rename(from, fresh),
            (2..4, Some((from, named))) => {
                let over = self.names.all().find(|(to, there)| **to != from && there.gives_way_to(&named));
                let over = over.map(|(to, _)| to.clone());
                Op::Rename(from, over.unwrap_or(fresh))
            }
            (4, Some((from, Named { fh: Some(fh), kind, .. }))) if kind != Kind::Dir => Op::Link(from, fh, fresh),
            (5, _) => Op::MkDir(fresh),
            (6, _) => Op::SymLink(fresh, format!("to/{version}")),
            (7..9, _) => Op::Exclusive(fresh, version.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()),
            _ => Op::Create(fresh),
        }
    }

    fn call(&self, op: &Op) -> Call {
        let at = |name: &String| DirOp { dir: self.dir.clone(), name: name.clone().into() };
        let set = |attr| SetAttrArgs { fh: self.attr.clone(), attr, guard: None };
        match op {
            Op::Write { first, count, version, stable } => Call::Write(WriteArgs {
                fh: self.data.clone(),
                offset: (first * BLOCK) as u64,
                count: (count * BLOCK) as u32,
                stable: *stable,
                data: self.blocks.bytes(*first, *count, *version).into(),
            }),
            Op::Commit => Call::Commit(CommitArgs { fh: self.data.clone(), offset: 0, count: 0 }),
            Op::Read { block } => {
                let offset = (block * BLOCK) as u64;
                Call::Read(ReadArgs { fh: self.data.clone(), offset, count: BLOCK as u32 })
            }
            Op::Create(name) => {
                let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
                Call::Create(CreateArgs { at: at(name), how })
            }
            Op::Exclusive(name, verf) | Op::ExclusiveAgain(name, verf, _) => {
                Call::Create(CreateArgs { at: at(name), how: CreateHow::Exclusive(*verf) })
            }
            Op::Taken(name) => Call::Create(CreateArgs { at: at(name), how: CreateHow::Exclusive(*b"another!") }),
            Op::SymLink(name, target) => {
                let target = Bytes::from(target.clone());
                Call::SymLink(SymLinkArgs { at: at(name), attr: SetAttr::NONE, target })
            }
            Op::Link(_, fh, name) => Call::Link(LinkArgs { fh: fh.clone(), at: at(name) }),
            Op::MkDir(name) => {
                Call::MkDir(MkDirArgs { at: at(name), attr: SetAttr { mode: Some(0o755), ..SetAttr::NONE } })
            }
            Op::Remove(name) => Call::Remove(at(name)),
            Op::RmDir(name) => Call::RmDir(at(name)),
            Op::Rename(from, to) => Call::Rename(RenameArgs { from: at(from), to: at(to) }),
            Op::Mode(mode) => Call::SetAttr(set(SetAttr { mode: Some(*mode), ..SetAttr::NONE })),
            Op::Size(size) => Call::SetAttr(set(SetAttr { size: Some(*size), ..SetAttr::NONE })),
            Op::Lookup(name) => Call::Lookup(at(name)),
            Op::Known(fh) | Op::Gone(fh) => Call::GetAttr(fh.clone()),
        }
    }

    /// Takes the reply to the call under way, if it is that; whether it is.
    pub(crate) fn answered(&mut self, reply: &Bytes) -> Result<bool, String> {
        let Some(Pending { op, message, again }) = self.pending.take_if(|p| raw::xid(&p.message) == raw::xid(reply))
        else {
            return Ok(false);
        };
        let results = raw::results(&self.call(&op), reply).map_err(|e| format!("{op:?}: {e}"))?;
        if results.status() == Some(Status::Jukebox) {
            self.pending = Some(Pending { op, message, again });
            return Err("the server puts off what its bounds allow".into());
        }
        self.tally.acknowledged += 1;
        self.tally.again += u64::from(again);
        let before = again && self.was_done_before(&op, &results);
        self.tally.done_before += u64::from(before);
        self.learn(op.clone(), &results, before).map_err(|why| format!("{op:?}: {why}; sent again: {again}"))?;
        Ok(true)
    }

    /// Whether a call fails because the dead server had done it: the cache of duplicates died
    /// with it.
    fn was_done_before(&self, op: &Op, results: &Reply) -> bool {
        // An exclusive CREATE does not fail, since the verifier is kept with the file; unless the server died between
        // making the file and setting the times that hold it.
        let exists = matches!(op, Op::Create(_) | Op::Exclusive(..) | Op::MkDir(_) | Op::SymLink(..) | Op::Link(..));
        let is_gone = matches!(op, Op::Remove(_) | Op::RmDir(_) | Op::Rename(..));
        match results.status() {
            Some(Status::Exist) => exists,
            Some(Status::NoEnt) => is_gone,
            _ => false,
        }
    }

    fn learn(&mut self, op: Op, results: &Reply, before: bool) -> Result<(), String> {
        let failed = || format!("{:?}", results.status());
        match (op, results) {
            (Op::Write { first, count, version, stable }, Reply::Write(Ok(ok))) => {
                self.same_server(ok.verf)?;
                if ok.count as usize != count * BLOCK
                    || (stable != Stable::Unstable && ok.committed == Stable::Unstable)
                {
                    return Err(format!("{} bytes, {:?}", ok.count, ok.committed));
                }
                if self.blocks.written(first, count, version, ok.committed, ok.verf) {
                    self.rewrite();
                }
            }
            (Op::Commit, Reply::Commit(Ok(ok))) => {
                self.same_server(ok.verf)?;
                if self.blocks.committed(ok.verf) {
                    self.rewrite();
                }
            }
            (Op::Read { block }, Reply::Read(Ok(ok))) => {
                let mut found = ok.data.to_vec();
                found.resize(BLOCK, 0);
                self.blocks.check(block, &found, None)?;
            }
            (Op::Link(from, _, to), _) if before || results.status().is_none() => self.names.link(&from, to)?,
            (op @ (Op::Create(_) | Op::Exclusive(..) | Op::MkDir(_) | Op::SymLink(..)), _) if before => {
                let (name, made) = op.makes(None, self.version).ok_or("it makes nothing")?;
                self.tally.half_made += u64::from(made.verf.is_some());
                let named = Named { verf: None, ..made };
                self.names.insert(name.clone(), named);
                self.todo.push_front(Op::Lookup(name));
            }
            (op, Reply::Create(Ok(ok)) | Reply::MkDir(Ok(ok)) | Reply::SymLink(Ok(ok))) => match op {
                Op::ExclusiveAgain(_, _, fh) if ok.fh.as_ref() == Some(&fh) => {}
                op => {
                    let (name, named) = op.makes(ok.fh.clone(), self.version).ok_or("it is another file")?;
                    self.names.insert(name, named);
                }
            },
            (Op::Taken(_), Reply::Create(Err(_))) if results.status() == Some(Status::Exist) => {}
            (Op::Remove(name) | Op::RmDir(name), _) if before || results.status().is_none() => {
                self.gone.extend(self.names.remove(&name));
            }
            (Op::Rename(from, to), _) if before || results.status().is_none() => {
                self.gone.extend(self.names.rename(&from, to)?);
            }
            (Op::Mode(mode), Reply::SetAttr(Ok(_))) => self.mode = mode,
            (Op::Size(size), Reply::SetAttr(Ok(_))) => self.size = size,
            (Op::Lookup(name), Reply::Lookup(Ok(ok))) => {
                self.names.found(&name, &ok.fh)?;
            }
            (Op::Known(_), Reply::GetAttr(Ok(_))) | (Op::Gone(_), Reply::GetAttr(Err(_))) => {
                let wrong = matches!(results.status(), Some(status) if status != Status::Stale);
                return if wrong { Err(failed()) } else { Ok(()) };
            }
            _ => return Err(failed()),
        }
        Ok(())
    }

    /// One server has one verifier, and no two have the same.
    fn same_server(&mut self, verf: [u8; 8]) -> Result<(), String> {
        if self.past.contains(&verf) {
            return Err("the verifier of a server that died".into());
        }
        match self.verf.replace(verf) {
            Some(before) if before != verf => Err("the verifier changed while the server lived".into()),
            _ => Ok(()),
        }
    }

    /// Data may be lost that were not committed: they are written again, as clients do.
    fn rewrite(&mut self) {
        self.tally.rewrites += 1;
        self.todo.retain(|op| !matches!(op, Op::Write { .. } | Op::Commit));
        let stable = if self.rng.chance(0.5) { Stable::FileSync } else { Stable::Unstable };
        for (first, version) in self.blocks.uncommitted() {
            self.todo.push_back(Op::Write { first, count: 1, version, stable });
        }
        self.todo.push_back(Op::Commit);
    }

    /// Checks the disk itself, while no server runs.
    pub(crate) fn check(&self) -> Result<(), String> {
        let under_way = self.pending.as_ref().map(|p| &p.op);
        let here = |why: String| format!("{}: {why}; under way: {under_way:?}", self.path.display());
        let data = fs::read(self.path.join(DATA)).map_err(|e| here(e.to_string()))?;
        let write = match under_way {
            Some(Op::Write { first, count, version, .. }) => Some((*first, *count, *version)),
            _ => None,
        };
        self.blocks.check_all(&data, write).map_err(here)?;
        self.check_attributes(under_way).map_err(here)?;
        self.check_names(under_way).map_err(here)
    }

    fn check_attributes(&self, under_way: Option<&Op>) -> Result<(), String> {
        let meta = fs::metadata(self.path.join(ATTR)).map_err(|e| e.to_string())?;
        let (mode, size) = (meta.mode() & 0o7777, meta.len());
        let mode_ok = mode == self.mode || matches!(under_way, Some(Op::Mode(m)) if *m == mode);
        let size_ok = size == self.size || matches!(under_way, Some(Op::Size(s)) if *s == size);
        if mode_ok && size_ok {
            Ok(())
        } else {
            Err(format!("mode {mode:o} size {size}, not {:o} {}", self.mode, self.size))
        }
    }

    fn check_names(&self, under_way: Option<&Op>) -> Result<(), String> {
        let found = names::on_disk(&self.path, &[DATA, ATTR]).map_err(|e| e.to_string())?;
        let before = self.names.seen();
        let mut after = self.names.clone();
        match under_way {
            Some(Op::Remove(name) | Op::RmDir(name)) => drop(after.remove(name)),
            Some(Op::Rename(from, to)) => drop(after.rename(from, to.clone())?),
            Some(Op::Link(from, _, to)) => after.link(from, to.clone())?,
            Some(op) => after.extend(op.makes(None, self.version)),
            None => {}
        }
        let after = after.seen();
        if found == before || found == after {
            Ok(())
        } else {
            Err(format!("names are {found:?}, not {before:?} or {after:?}"))
        }
    }
}

impl Op {
    /// The name that it makes, and what that is; `object` was never one before.
    fn makes(&self, fh: Option<Fh>, object: u64) -> Option<(String, Named)> {
        let (name, kind, verf) = match self {
            Op::Create(name) => (name, Kind::File, None),
            Op::Exclusive(name, verf) => (name, Kind::File, Some(*verf)),
            Op::MkDir(name) => (name, Kind::Dir, None),
            Op::SymLink(name, target) => (name, Kind::SymLink(target.clone()), None),
            _ => return None,
        };
        Some((name.clone(), Named { fh, kind, verf, object }))
    }

    /// Whether a name may lead to nothing, or to something else, when it is done.
    fn takes_a_name(&self) -> bool {
        matches!(self, Op::Remove(_) | Op::RmDir(_) | Op::Rename(..))
    }
}
