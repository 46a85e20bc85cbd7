//! The operations of actors.

use bytes::Bytes;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, LinkArgs, MkDirArgs, RenameArgs, SetAttr, SetAttrArgs, Stable, SymLinkArgs,
    WriteArgs,
};

use crate::oracle::Model;

/// An operation in an actor's home directory. Paths are relative to it, `name` or `dir/name`; the
/// empty path is the home itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Creates a file.
    Create {
        path: String,
        /// Treatment of an existing file.
        how: Making,
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
        /// Old path.
        from: String,
        /// New path.
        to: String,
    },
    MkDir(String),
    RmDir(String),
    /// Creates a hard link.
    Link {
        /// Existing path.
        path: String,
        /// New path.
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
pub enum Making {
    /// Truncates it.
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
