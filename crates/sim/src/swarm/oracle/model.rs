//! The operations of actors, and a model of one actor's directory: its files after all acknowledged
//! operations.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, LinkArgs, MkDirArgs, RenameArgs, SetAttr, SetAttrArgs, Stable, Status,
    SymLinkArgs, WriteArgs,
};

/// An operation in an actor's home directory. Paths are relative to it, `name` or `dir/name`; the
/// empty path is the home itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Creates a file.
    Create {
        path: String,
        /// Treatment of an existing file.
        how: CreateMode,
    },
    /// One stable WRITE.
    Write {
        path: String,
        /// Offset in bytes.
        offset: u64,
        data: Bytes,
    },
    /// Sets a file's size.
    Truncate {
        path: String,
        /// Size in bytes.
        size: u64,
    },
    /// Writes a file from its start by UNSTABLE WRITEs and a COMMIT.
    Upload {
        path: String,
        data: Bytes,
    },
    /// Reads a whole file.
    Download(String),
    /// Removes a file or symbolic link.
    Remove(String),
    Rename {
        from: String,
        to: String,
    },
    MkDir(String),
    RmDir(String),
    /// Creates a hard link.
    Link {
        path: String,
        to: String,
    },
    SymLink {
        path: String,
        target: String,
    },
    Lookup(String),
}

/// Treatment of an existing file by CREATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateMode {
    Truncating,
    Guarded,
    /// Fails unless it was created with this verifier.
    Exclusive([u8; 8]),
}

impl Op {
    /// The paths whose objects it may change.
    pub fn touches(&self) -> Vec<&str> {
        match self {
            Op::Create { path, .. }
            | Op::Write { path, .. }
            | Op::Truncate { path, .. }
            | Op::Upload { path, .. }
            | Op::SymLink { path, .. }
            | Op::Remove(path)
            | Op::MkDir(path)
            | Op::RmDir(path) => vec![path],
            Op::Rename { from, to } => vec![from, to],
            Op::Link { to, .. } => vec![to],
            Op::Download(_) | Op::Lookup(_) => vec![],
        }
    }
}

/// Directory and last component of a path; `None` for the home itself.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    if path.is_empty() { None } else { Some(path.rsplit_once('/').unwrap_or(("", path))) }
}

/// An actor's home directory and everything below it, by path relative to it. The home itself is
/// the empty path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    entries: BTreeMap<String, Entry>,
    files: BTreeMap<u32, File>,
    next_file: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    kind: Kind,
    fh: Option<Fh>,
}

/// The object at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Dir,
    /// A symbolic link to this target.
    SymLink(String),
    /// A file; names with the same number are links to one file.
    File(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct File {
    bytes: Bytes,
    /// The verifier of its creation, until it changes.
    verf: Option<[u8; 8]>,
    /// An upload to it failed: its content and durability are unknown.
    unsure: bool,
}

impl Model {
    pub fn new() -> Model {
        let home = Entry { kind: Kind::Dir, fh: None };
        Model { entries: BTreeMap::from([(String::new(), home)]), files: BTreeMap::new(), next_file: 0 }
    }

    /// Paths and their objects, the home first.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Kind)> {
        self.entries.iter().map(|(path, e)| (path.as_str(), &e.kind))
    }

    pub fn kind(&self, path: &str) -> Option<&Kind> {
        self.entries.get(path).map(|e| &e.kind)
    }

    /// The handle of the object at `path`, if known.
    pub fn handle(&self, path: &str) -> Option<&Fh> {
        self.entries.get(path)?.fh.as_ref()
    }

    /// Records the handle of the object at `path`.
    pub fn set_handle(&mut self, path: &str, fh: Fh) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.fh = Some(fh);
        }
    }

    /// A path whose handle is unknown, directories before their content.
    pub fn without_handle(&self) -> Option<&str> {
        self.entries.iter().find(|(_, e)| e.fh.is_none()).map(|(path, _)| path.as_str())
    }

    /// The bytes of the file at `path`.
    pub fn bytes(&self, path: &str) -> Option<&Bytes> {
        self.file(path).map(|f| &f.bytes)
    }

    /// Whether the content of the file at `path` is unknown.
    pub fn is_unsure(&self, path: &str) -> bool {
        self.file(path).is_some_and(|f| f.unsure)
    }

    /// A failed upload left the file at `path` with these bytes, for now.
    pub fn set_unsure(&mut self, path: &str, bytes: Bytes) {
        if let Some(file) = self.file_mut(path) {
            *file = File { bytes, verf: None, unsure: true };
        }
    }

    /// All names of the file at `path`, including it.
    pub fn names_of(&self, path: &str) -> Vec<&str> {
        let Some(Kind::File(number)) = self.kind(path) else { return Vec::new() };
        self.entries().filter(|(_, k)| **k == Kind::File(*number)).map(|(p, _)| p).collect()
    }

    fn file(&self, path: &str) -> Option<&File> {
        match self.kind(path)? {
            Kind::File(number) => self.files.get(number),
            _ => None,
        }
    }

    fn file_mut(&mut self, path: &str) -> Option<&mut File> {
        match self.entries.get(path)?.kind {
            Kind::File(number) => self.files.get_mut(&number),
            _ => None,
        }
    }

    /// Applies `op`; an error is the status it must be answered with, and changes nothing.
    pub fn apply(&mut self, op: &Op) -> Result<(), Status> {
        match op {
            Op::Create { path, how } => self.create(path, *how),
            Op::Write { path, offset, data } => self.write(path, *offset, data),
            Op::Upload { path, data } => self.write(path, 0, data),
            Op::Truncate { path, size } => self.truncate(path, *size),
            Op::Download(path) => self.file(path).map(|_| ()).ok_or(Status::Stale),
            Op::Lookup(path) => self.kind(path).map(|_| ()).ok_or(Status::NoEnt),
            Op::Remove(path) => match self.kind(path) {
                None => Err(Status::NoEnt),
                Some(Kind::Dir) => Err(Status::IsDir),
                Some(_) => {
                    self.remove(path);
                    Ok(())
                }
            },
            Op::RmDir(path) => self.rmdir(path),
            Op::MkDir(path) => self.insert(path, Kind::Dir, None),
            Op::SymLink { path, target } => self.insert(path, Kind::SymLink(target.clone()), None),
            Op::Link { path, to } => {
                let entry = self.entries.get(path).ok_or(Status::Stale)?;
                let (kind, fh) = (entry.kind.clone(), entry.fh.clone());
                self.insert(to, kind, fh)
            }
            Op::Rename { from, to } => self.rename(from, to),
        }
    }

    fn insert(&mut self, path: &str, kind: Kind, fh: Option<Fh>) -> Result<(), Status> {
        let (dir, _) = split(path).ok_or(Status::Exist)?;
        if self.kind(dir) != Some(&Kind::Dir) {
            return Err(Status::Stale);
        }
        if self.entries.contains_key(path) {
            return Err(Status::Exist);
        }
        self.entries.insert(path.to_string(), Entry { kind, fh });
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        let last = self.names_of(path).len() == 1;
        if let Some(Entry { kind: Kind::File(number), .. }) = self.entries.remove(path)
            && last
        {
            self.files.remove(&number);
        }
    }

    fn create(&mut self, path: &str, how: CreateMode) -> Result<(), Status> {
        if let Some(file) = self.file_mut(path) {
            return match how {
                CreateMode::Truncating => {
                    *file = File { bytes: Bytes::new(), verf: None, unsure: false };
                    Ok(())
                }
                CreateMode::Exclusive(verf) if file.verf == Some(verf) => Ok(()),
                CreateMode::Guarded | CreateMode::Exclusive(_) => Err(Status::Exist),
            };
        }
        self.insert(path, Kind::File(self.next_file), None)?;
        let verf = if let CreateMode::Exclusive(verf) = how { Some(verf) } else { None };
        self.files.insert(self.next_file, File { bytes: Bytes::new(), verf, unsure: false });
        self.next_file += 1;
        Ok(())
    }

    fn write(&mut self, path: &str, offset: u64, data: &Bytes) -> Result<(), Status> {
        let file = self.file_mut(path).ok_or(Status::Stale)?;
        let (start, end) = (offset as usize, offset as usize + data.len());
        let mut bytes = file.bytes.to_vec();
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(data);
        (file.bytes, file.verf) = (bytes.into(), None);
        Ok(())
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Status> {
        let file = self.file_mut(path).ok_or(Status::Stale)?;
        let mut bytes = file.bytes.to_vec();
        bytes.resize(size as usize, 0);
        (file.bytes, file.verf) = (bytes.into(), None);
        file.unsure &= size > 0;
        Ok(())
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Status> {
        match self.kind(path) {
            None => Err(Status::NoEnt),
            Some(Kind::Dir) if self.below(path).is_empty() => {
                self.entries.remove(path);
                Ok(())
            }
            Some(Kind::Dir) => Err(Status::NotEmpty),
            Some(_) => Err(Status::NotDir),
        }
    }

    /// The content of the directory at `path`.
    fn below(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        self.entries.keys().filter(|p| p.starts_with(&prefix)).cloned().collect()
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Status> {
        let kind = self.kind(from).ok_or(Status::NoEnt)?.clone();
        // Two names of one file: RENAME does nothing (RFC 1813, section 3.3.14).
        if from == to || (matches!(kind, Kind::File(_)) && self.kind(to) == Some(&kind)) {
            return Ok(());
        }
        match (&kind, self.kind(to)) {
            (_, None) => {}
            (Kind::Dir, Some(_)) => return Err(Status::Exist),
            (_, Some(Kind::Dir)) => return Err(Status::Exist),
            (_, Some(_)) => self.remove(to),
        }
        for old in self.below(from).into_iter().chain([from.to_string()]) {
            if let Some(entry) = self.entries.remove(&old) {
                let new = format!("{to}{}", &old[from.len()..]);
                self.entries.insert(new, entry);
            }
        }
        Ok(())
    }
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Op {
    /// The call of the operation in the directory `home` of `root`; `None` if it takes several
    /// calls or an unknown handle.
    pub fn call(&self, model: &Model, root: &Fh, home: &str) -> Option<Call> {
        let at = |path: &str| {
            let Some((dir, name)) = split(path) else {
                return Some(DirOp { dir: root.clone(), name: Bytes::copy_from_slice(home.as_bytes()) });
            };
            Some(DirOp { dir: model.handle(dir)?.clone(), name: Bytes::copy_from_slice(name.as_bytes()) })
        };
        let attr = |mode| SetAttr { mode: Some(mode), ..SetAttr::NONE };
        Some(match self {
            Op::Create { path, how } => {
                let how = match how {
                    CreateMode::Truncating => CreateHow::Unchecked(SetAttr { size: Some(0), ..attr(0o644) }),
                    CreateMode::Guarded => CreateHow::Guarded(attr(0o644)),
                    CreateMode::Exclusive(verf) => CreateHow::Exclusive(*verf),
                };
                Call::Create(CreateArgs { at: at(path)?, how })
            }
            Op::Write { path, offset, data } => Call::Write(WriteArgs {
                fh: model.handle(path)?.clone(),
                offset: *offset,
                count: data.len() as u32,
                stable: Stable::FileSync,
                data: data.clone(),
            }),
            Op::Truncate { path, size } => Call::SetAttr(SetAttrArgs {
                fh: model.handle(path)?.clone(),
                attr: SetAttr { size: Some(*size), ..SetAttr::NONE },
                guard: None,
            }),
            Op::Remove(path) => Call::Remove(at(path)?),
            Op::Rename { from, to } => Call::Rename(RenameArgs { from: at(from)?, to: at(to)? }),
            Op::MkDir(path) => Call::MkDir(MkDirArgs { at: at(path)?, attr: attr(0o755) }),
            Op::RmDir(path) => Call::RmDir(at(path)?),
            Op::Link { path, to } => Call::Link(LinkArgs { fh: model.handle(path)?.clone(), at: at(to)? }),
            Op::SymLink { path, target } => {
                let target = Bytes::copy_from_slice(target.as_bytes());
                Call::SymLink(SymLinkArgs { at: at(path)?, attr: attr(0o777), target })
            }
            Op::Lookup(path) => Call::Lookup(at(path)?),
            Op::Upload { .. } | Op::Download(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, how: CreateMode) -> Op {
        Op::Create { path: path.into(), how }
    }

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: from.into(), to: to.into() }
    }

    #[test]
    fn model_returns_the_statuses_of_a_file_system() {
        let (verf, other) = (CreateMode::Exclusive([1; 8]), CreateMode::Exclusive([2; 8]));
        let link = |path: &str, to: &str| Op::Link { path: path.into(), to: to.into() };
        let mut model = Model::new();
        for (op, want) in [
            (create("a", CreateMode::Guarded), Ok(())),
            (create("a", CreateMode::Guarded), Err(Status::Exist)),
            (create("a", CreateMode::Truncating), Ok(())),
            (create("b", verf), Ok(())),
            (create("b", verf), Ok(())),
            (create("b", other), Err(Status::Exist)),
            (Op::Truncate { path: "b".into(), size: 3 }, Ok(())),
            (create("b", verf), Err(Status::Exist)),
            (Op::MkDir("d".into()), Ok(())),
            (Op::MkDir("d".into()), Err(Status::Exist)),
            (rename("a", "d/a"), Ok(())),
            (rename("a", "d/a"), Err(Status::NoEnt)),
            (Op::RmDir("d".into()), Err(Status::NotEmpty)),
            (rename("d", "e"), Ok(())),
            (link("e/a", "c"), Ok(())),
            (link("e/a", "c"), Err(Status::Exist)),
            (rename("e/a", "c"), Ok(())),
            (Op::Remove("e/a".into()), Ok(())),
            (Op::Remove("e/a".into()), Err(Status::NoEnt)),
            (Op::RmDir("e".into()), Ok(())),
        ] {
            assert_eq!(model.apply(&op), want, "{op:?}");
        }
        let left: Vec<&str> = model.entries().map(|(p, _)| p).collect();
        assert_eq!(left, ["", "b", "c"]);
    }

    #[test]
    fn links_share_their_bytes() {
        let mut model = Model::new();
        let write = Op::Write { path: "a".into(), offset: 2, data: Bytes::from_static(b"xy") };
        let link = Op::Link { path: "a".into(), to: "b".into() };
        for op in [create("a", CreateMode::Guarded), link, write] {
            assert_eq!(model.apply(&op), Ok(()));
        }
        assert_eq!(model.bytes("b").unwrap(), &b"\0\0xy"[..]);
        assert_eq!(model.names_of("a"), ["a", "b"]);
    }
}
