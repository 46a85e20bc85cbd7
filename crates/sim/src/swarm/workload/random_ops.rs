//! Random operations, most of them valid in the current state of the model.

use bytes::Bytes;
use remora_base::Rng;

use crate::swarm::oracle::{CreateMode, Op};
use crate::swarm::oracle::{Kind, Model};

/// Names in each directory: few, so that operations collide.
const NAMES: u64 = 6;
/// Maximum size of a single WRITE.
const WRITE_MAX: u64 = 8192;
/// Draws for a valid operation before a harmless one is used.
const TRIES: u32 = 16;

/// The mixture of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Maximum size of an upload in bytes (at least 1).
    pub upload_max: u64,
    /// Whether some operations must fail.
    pub failures: bool,
}

impl Mix {
    /// The next operation.
    pub fn next(&self, model: &Model, rng: &mut Rng) -> Op {
        // The content after a failed upload is unknown: remove it.
        if let Some((path, _)) = model.entries().find(|(p, _)| model.is_unsure(p)) {
            return Op::Truncate { path: path.into(), size: 0 };
        }
        let fits = |op: &Op| self.failures || model.clone().apply(op).is_ok();
        (0..TRIES).find_map(|_| self.draw(model, rng).filter(fits)).unwrap_or(Op::Lookup(String::new()))
    }

    fn draw(&self, model: &Model, rng: &mut Rng) -> Option<Op> {
        let draw = Draw { model, rng };
        match draw.rng.below(24) {
            0..4 => draw.create(),
            4..8 => draw.write(),
            8..10 => draw.truncate(),
            10..12 => draw.upload(self.upload_max),
            12..15 => draw.existing(is_file).map(Op::Download),
            15 | 16 => draw.remove(),
            17..20 => draw.rename(),
            20 => Some(Op::MkDir(draw.top())),
            21 => draw.rmdir(),
            22 => draw.link(),
            _ => draw.symlink_or_lookup(),
        }
    }
}

struct Draw<'a> {
    model: &'a Model,
    rng: &'a mut Rng,
}

fn is_file(kind: &Kind) -> bool {
    matches!(kind, Kind::File(_))
}

impl Draw<'_> {
    /// A path in the home.
    fn top(self) -> String {
        format!("n{}", self.rng.below(NAMES))
    }

    /// A path in any directory, existing or not.
    fn any(&mut self) -> String {
        let dirs: Vec<&str> = self.model.entries().filter(|(_, k)| **k == Kind::Dir).map(|(p, _)| p).collect();
        let dir = dirs.get(self.rng.below(dirs.len() as u64) as usize).copied().unwrap_or("");
        let name = self.rng.below(NAMES);
        if dir.is_empty() { format!("n{name}") } else { format!("{dir}/n{name}") }
    }

    /// An existing path whose object satisfies `fits`.
    fn existing(self, fits: impl Fn(&Kind) -> bool) -> Option<String> {
        pick(self.model, self.rng, fits)
    }

    fn bytes(rng: &mut Rng, max: u64) -> Bytes {
        let mut bytes = vec![0; 1 + rng.below(max) as usize];
        rng.fill(&mut bytes);
        bytes.into()
    }

    fn create(mut self) -> Option<Op> {
        let path = self.any();
        if !self.model.kind(&path).is_none_or(is_file) {
            return None;
        }
        let how = match self.rng.below(4) {
            0 | 1 => CreateMode::Truncating,
            2 => CreateMode::Guarded,
            _ => CreateMode::Exclusive(self.rng.next_u64().to_be_bytes()),
        };
        Some(Op::Create { path, how })
    }

    fn write(self) -> Option<Op> {
        let path = pick(self.model, self.rng, is_file)?;
        let size = self.model.bytes(&path).map_or(0, |b| b.len() as u64);
        let offset = self.rng.below(size + WRITE_MAX);
        Some(Op::Write { path, offset, data: Draw::bytes(self.rng, WRITE_MAX) })
    }

    fn truncate(self) -> Option<Op> {
        let path = pick(self.model, self.rng, is_file)?;
        let size = self.model.bytes(&path).map_or(0, |b| b.len() as u64);
        // Often 0: the truncation whose replay destroys data.
        let size = if self.rng.chance(0.5) { 0 } else { self.rng.below(2 * size + 1) };
        Some(Op::Truncate { path, size })
    }

    fn upload(self, max: u64) -> Option<Op> {
        let path = pick(self.model, self.rng, is_file)?;
        Some(Op::Upload { path, data: Draw::bytes(self.rng, max) })
    }

    fn remove(mut self) -> Option<Op> {
        if self.rng.chance(0.2) {
            let path = self.any();
            return (self.model.kind(&path) != Some(&Kind::Dir)).then_some(Op::Remove(path));
        }
        self.existing(|k| *k != Kind::Dir).map(Op::Remove)
    }

    fn rename(mut self) -> Option<Op> {
        let from = pick(self.model, self.rng, |_| true).filter(|p| !p.is_empty())?;
        let is_dir = self.model.kind(&from) == Some(&Kind::Dir);
        let to = if is_dir { Draw { model: self.model, rng: self.rng }.top() } else { self.any() };
        let fits = match self.model.kind(&to) {
            None => true,
            Some(Kind::Dir) => false,
            Some(_) => !is_dir,
        };
        (fits && from != to).then_some(Op::Rename { from, to })
    }

    fn rmdir(self) -> Option<Op> {
        self.existing(|k| *k == Kind::Dir).filter(|p| !p.is_empty()).map(Op::RmDir)
    }

    fn link(mut self) -> Option<Op> {
        let path = pick(self.model, self.rng, is_file)?;
        Some(Op::Link { path, to: self.any() })
    }

    fn symlink_or_lookup(mut self) -> Option<Op> {
        let path = self.any();
        if self.rng.chance(0.5) {
            let target = format!("nowhere{}", self.rng.below(100));
            return Some(Op::SymLink { path, target });
        }
        Some(Op::Lookup(path))
    }
}

fn pick(model: &Model, rng: &mut Rng, fits: impl Fn(&Kind) -> bool) -> Option<String> {
    let paths: Vec<&str> = model.entries().filter(|(_, k)| fits(k)).map(|(p, _)| p).collect();
    paths.get(rng.below(paths.len() as u64) as usize).map(|p| (*p).to_string())
}
