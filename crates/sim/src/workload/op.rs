//! What an actor does, and the calls it takes.

use bytes::Bytes;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, LinkArgs, MkDirArgs, RenameArgs, SetAttr, SetAttrArgs, Stable, SymLinkArgs,
    WriteArgs,
};

use crate::oracle::Model;

/// An operation in an actor's home directory. Paths are relative to it, `name` or `dir/name`;
/// the empty path is the home itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes a file.
    Create {
        /// Where.
        path: String,
        /// What if it is there.
        how: Making,
    },
    /// One stable WRITE.
    Write {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        data: Bytes,
    },
    /// Sets a file's size.
    Truncate {
        /// The file.
        path: String,
        /// Bytes.
        size: u64,
    },
    /// Writes a file from its start by unstable WRITEs and a COMMIT.
    Upload {
        /// The file.
        path: String,
        data: Bytes,
    },
    /// Reads a whole file.
    Download(String),
    /// Removes a file or symbolic link.
    Remove(String),
    Rename {
        /// Present path.
        from: String,
        /// New path.
        to: String,
    },
    /// Makes a directory.
    MkDir(String),
    /// Removes a directory.
    RmDir(String),
    /// Gives a file a further name.
    Link {
        /// The file.
        path: String,
        /// Its further path.
        to: String,
    },
    /// Makes a symbolic link.
    SymLink {
        /// Where.
        path: String,
        /// What it points at.
        target: String,
    },
    /// Looks a name up.
    Lookup(String),
}

/// What CREATE does with a file that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Making {
    /// Makes it empty.
    Truncating,
    /// Fails.
    Guarded,
    /// Fails unless it was made with this verifier.
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

    /// The call that does it in the home called `home` of `root`; `None` for one that takes
    /// several, and for one whose handle the model does not know.
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
                    Making::Truncating => CreateHow::Unchecked(SetAttr { size: Some(0), ..attr(0o644) }),
                    Making::Guarded => CreateHow::Guarded(attr(0o644)),
                    Making::Exclusive(verf) => CreateHow::Exclusive(*verf),
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

/// Directory and last component of a path; `None` for the home itself.
pub fn split(path: &str) -> Option<(&str, &str)> {
    if path.is_empty() { None } else { Some(path.rsplit_once('/').unwrap_or(("", path))) }
}
