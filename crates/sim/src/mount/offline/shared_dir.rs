//! The directory that all machines change, mostly without the server, and what must be left of each version of a file.
//!
//! Each version has a number of its own, and is written whole. A version is replaced when a machine that has read it
//! writes, removes or renames something over it. Every other acknowledged version must be somewhere at the end.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_wire::fuse::{Errno, FileKind};

use super::execute::{Machine, on_server, resolve};
use super::model::{Content, join, split};
use crate::mount::world::World;

pub(super) const SHARED: &str = "shared";
const FILE_NAMES: [&str; 4] = ["a.txt", "b", "c", "p"];
const DIRECTORY_NAMES: [&str; 3] = ["p", "q", "a.txt"];
const CONFLICT: &str = "(conflict from ";

/// Versions of the files.
#[derive(Default)]
pub(super) struct SharedDir {
    versions: BTreeMap<u64, Version>,
    next: u64,
    /// Names of conflict copies that were reported.
    reported: Vec<String>,
}

struct Version {
    content: Bytes,
    path: String,
    machine: usize,
    acknowledged: Option<Time>,
    /// The crash of a machine may have lost it, or somebody who knew it has replaced it.
    may_be_lost: bool,
}

/// A change of the directory.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { path: String, version: u64 },
    Unlink { path: String },
    Rename { from: String, to: String },
    MkDir { path: String },
    RmDir { path: String },
}

impl Change {
    /// The name whose object the change replaces or removes.
    pub(super) fn replaced(&self) -> Option<&str> {
        match self {
            Change::Write { path, .. } | Change::Unlink { path } | Change::Rename { to: path, .. } => Some(path),
            Change::MkDir { .. } | Change::RmDir { .. } => None,
        }
    }
}

impl SharedDir {
    /// A new version of the file at `path`, written by `machine`.
    pub(super) fn version(&mut self, rng: &mut Rng, machine: usize, path: &str) -> u64 {
        self.next += 1;
        let mut content = format!("version {} by machine {machine}\n", self.next).into_bytes();
        let mut filler = vec![0; rng.below(6000) as usize];
        rng.fill(&mut filler);
        content.extend(filler);
        let version =
            Version { content: content.into(), path: path.into(), machine, acknowledged: None, may_be_lost: false };
        self.versions.insert(self.next, version);
        self.next
    }

    /// Draws a change.
    pub(super) fn draw(&mut self, rng: &mut Rng, machine: usize) -> Change {
        let dir = if rng.chance(0.6) { "" } else { DIRECTORY_NAMES[rng.below(3) as usize] };
        let file = |rng: &mut Rng| join(dir, FILE_NAMES[rng.below(4) as usize]);
        match rng.below(10) {
            0..=4 => {
                let path = file(rng);
                let version = self.version(rng, machine, &path);
                Change::Write { path, version }
            }
            5 => Change::Unlink { path: file(rng) },
            6 | 7 => Change::Rename { from: file(rng), to: file(rng) },
            8 => Change::MkDir { path: DIRECTORY_NAMES[rng.below(3) as usize].into() },
            _ => Change::RmDir { path: DIRECTORY_NAMES[rng.below(3) as usize].into() },
        }
    }

    fn of_content(&self, content: &[u8]) -> Option<u64> {
        self.versions.iter().find(|(_, version)| version.content == content).map(|(number, _)| *number)
    }

    /// A machine has read `content` at `path`, and replaces it. Fails if nobody wrote that.
    pub(super) fn replaced(&mut self, path: &str, content: &[u8]) -> Result<(), String> {
        if content.is_empty() {
            return Ok(());
        }
        let Some(number) = self.of_content(content) else {
            // What was never acknowledged may be there in part.
            let is_begun = self.versions.values().any(|version| version.acknowledged.is_none());
            return if is_begun {
                Ok(())
            } else {
                Err(format!("{path} has {} bytes that nobody wrote", content.len()))
            };
        };
        self.versions.entry(number).and_modify(|version| version.may_be_lost = true);
        Ok(())
    }

    pub(super) fn content(&self, version: u64) -> Bytes {
        self.versions.get(&version).map(|version| version.content.clone()).unwrap_or_default()
    }

    pub(super) fn acknowledged(&mut self, version: u64, now: Time) {
        self.versions.entry(version).and_modify(|version| version.acknowledged = Some(now));
    }

    /// A machine has lost its power: what was acknowledged later than `safe` may be lost.
    pub(super) fn power_lost(&mut self, machine: usize, safe: Time) {
        let ours = self.versions.values_mut().filter(|version| version.machine == machine);
        ours.filter(|version| version.acknowledged.is_some_and(|at| at > safe))
            .for_each(|version| version.may_be_lost = true);
    }

    pub(super) fn reported(&mut self, copy: &str) {
        self.reported.push(split(copy).1.into());
    }

    /// Versions that are lost, and conflict copies that were not reported.
    pub(super) fn lost(&self, world: &World, has_lost_power: bool, has_kept: bool) -> Vec<String> {
        let view = on_server(&world.fs, "").view;
        let mut all = Vec::new();
        let contents: Vec<&Vec<u8>> = view
            .values()
            .filter_map(|seen| match &seen.content {
                Content::File(data) => Some(&**data),
                _ => None,
            })
            .collect();
        for (number, version) in &self.versions {
            let is_there = contents.iter().any(|content| version.content == content[..]);
            if version.acknowledged.is_some() && !version.may_be_lost && !is_there && !has_kept {
                let (path, machine, at) = (&version.path, version.machine, version.acknowledged);
                all.push(format!("version {number} of {SHARED}/{path} by machine {machine} at {at:?} is lost"));
            }
        }
        for path in view.keys().filter(|path| path.contains(CONFLICT)) {
            let name = split(path).1.to_string();
            if name.contains(CONFLICT) && !self.reported.contains(&name) && !has_lost_power {
                all.push(format!("the conflict copy {path} was not reported"));
            }
        }
        for name in &self.reported {
            if !view.keys().any(|path| split(path).1 == *name) {
                all.push(format!("the reported conflict copy {name} is missing"));
            }
        }
        all
    }
}

/// The contents of a file of the directory; `None` if there is none.
pub(super) async fn content(machine: &Machine, path: &str) -> Result<Option<Vec<u8>>, Errno> {
    let (dir, name) = split(path);
    let found = async {
        let dir = resolve(machine, SHARED, dir).await?;
        let attr = machine.attr(machine.lookup(dir, name).await?).await?;
        match FileKind::of_mode(attr.mode) {
            FileKind::Regular => machine.read(dir, name).await,
            _ => Err(Errno::EISDIR),
        }
    };
    match found.await {
        Ok(content) => Ok(Some(content)),
        Err(Errno::ENOENT | Errno::EISDIR | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}
