//! LOOKUP, REMOVE, RMDIR, RENAME and LINK. All work on single names in open directories.

use remora_wire::nfs3::{Attr, FileType, LinkAttrs, RenameDirs, Status, Wcc};
use rustix::fs::{AtFlags, CWD, linkat};

use crate::args;
use crate::local::creds::thread_creds;
use crate::local::disk::LocalDisk;
use crate::local::handles::path_cache::DirName;
use crate::local::handles::tree::{OpenDir, OpenObject};
use crate::local::inode::inode_locks::InodeGuards;
use crate::local::inode::stat;
use crate::local::ops::attrs::wcc;
use crate::local::sys::errors::OrStatus;
use crate::local::sys::syscalls::{renameat, unlinkat};
use crate::types::{Cred, FileId, NameIn, Result};

/// How often an operation is retried if other programs interfere.
pub(crate) const TRIES_MAX: usize = 16;

/// A name in an open directory.
#[derive(Clone, Copy)]
struct NameAt<'a> {
    dir: &'a OpenDir,
    name: &'a [u8],
}

impl LocalDisk {
    pub(crate) fn do_lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        args::check_name(name)?;
        let tree = &self.disk.tree;
        if matches!(name, b"." | b"..") {
            let dir = tree.resolve_dir(dir)?;
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                stat::at(&dir.fd, b".").nfs()?; // needs search permission
            }
            let found = if name == b"." { dir } else { tree.parent(&dir)? };
            return Ok((tree.id_of(&found)?, found.attr));
        }
        let dir = tree.dir(dir)?;
        let found = {
            let _as_caller = self.disk.creds.assume(cred)?;
            stat::at(&dir.fd, name).nfs()
        };
        let found = tree.localize_exported(tree.stale_if_removed(&dir, found)?)?;
        Ok((tree.register(&dir, name, found.key)?, found.attr))
    }

    /// REMOVE, or RMDIR with [`AtFlags::REMOVEDIR`].
    pub(crate) fn do_remove(&self, cred: &Cred, dir: &FileId, name: &[u8], flags: AtFlags) -> Result<Wcc> {
        self.begin_change()?;
        args::check_old_name(name)?;
        let dir = self.disk.tree.dir(dir)?;
        let (target, wcc) = {
            let (_locks, object) = self.lock_child(cred, NameAt { dir: &dir, name })?;
            let before = dir.attr()?;
            let object = object.ok_or(Status::NoEnt)?;
            self.disk.tree.protected.check_name(object.key)?;
            let target = self.prepare_unlink(object);
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                unlinkat(&dir.fd, name, flags).nfs()?;
            }
            (target, wcc(before, &dir.fd)?)
        };
        self.finish_unlink(&dir, name, target);
        self.flush_dir(&dir)?;
        Ok(wcc)
    }

    pub(crate) fn do_rename(&self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        self.begin_change()?;
        args::check_old_name(from.name)?;
        args::check_old_name(to.name)?;
        let tree = &self.disk.tree;
        let (source, target) = (tree.dir(from.dir)?, tree.dir(to.dir)?);
        let (from, to) = (NameAt { dir: &source, name: from.name }, NameAt { dir: &target, name: to.name });
        let (moved, replaced, is_same, dirs) = {
            let (_locks, mut objects) = self.lock_children(cred, &[from, to])?;
            let before = (source.attr()?, target.attr()?);
            let replaced = objects.pop().flatten();
            let moved = objects.pop().flatten().ok_or(Status::NoEnt)?;
            tree.protected.check_name(moved.key)?;
            replaced.as_ref().map_or(Ok(()), |object| tree.protected.check_name(object.key))?;
            if moved.attr.kind == FileType::Directory && source.key != target.key {
                tree.check_depth(&target)?;
            }
            // If both names lead to one file, the kernel keeps both.
            let is_same = replaced.as_ref().is_some_and(|object| object.key == moved.key);
            let replaced = replaced.filter(|_| !is_same).map(|object| self.prepare_unlink(object));
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                renameat(&source.fd, from.name, &target.fd, to.name).nfs()?;
            }
            let dirs = RenameDirs { from: wcc(before.0, &source.fd)?, to: wcc(before.1, &target.fd)? };
            (moved, replaced, is_same, dirs)
        };
        if !is_same {
            let names = [from, to].map(|at| DirName { dir: at.dir.key, name: at.name });
            tree.paths().rename(moved.key, names[0], names[1], moved.hint);
            replaced.into_iter().for_each(|replaced| self.finish_unlink(&target, to.name, replaced));
        }
        self.flush_renamed(&source, &target, &moved)?;
        Ok(dirs)
    }

    /// Flushes the new name first, so that a crash in between does not lose the object. Without a journal it may be
    /// lost all the same: the kernel writes names in any order.
    fn flush_renamed(&self, source: &OpenDir, target: &OpenDir, moved: &OpenObject) -> Result<()> {
        self.flush_dir(target)?;
        if source.key == target.key {
            return Ok(());
        }
        self.flush_dir(source)?;
        // A moved directory stores its `..`, which a journal commits with the names.
        if moved.attr.kind == FileType::Directory && !self.disk.caps().has_journal {
            self.flush_dir(&moved.as_dir())?;
        }
        Ok(())
    }

    pub(crate) fn do_link(&self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        self.begin_change()?;
        args::check_new_name(name)?;
        let tree = &self.disk.tree;
        let mut object = tree.resolve(id)?;
        tree.protected.check(object.key)?;
        let dir = tree.dir(dir)?;
        if object.attr.kind == FileType::Directory {
            return Err(Status::IsDir);
        }
        let wcc = {
            let _locks = self.disk.op_locks.lock(&[object.key.ino, dir.key.ino]);
            let before = dir.attr()?;
            {
                let _as_caller = self.disk.creds.assume(cred)?;
                // Follows only the link in /proc, which leads to the open object.
                linkat(CWD, object.proc_path(), &dir.fd, name, AtFlags::SYMLINK_FOLLOW).nfs()?;
            }
            tree.paths().add_link(object.key, dir.key, name, object.hint);
            object.attr = tree.stat(&object.fd)?.attr;
            wcc(before, &dir.fd)?
        };
        self.flush_linked(&dir, &object)?;
        Ok(LinkAttrs { attr: Some(object.attr), dir: wcc })
    }

    // --- Locks ---

    /// Locks a directory together with the object that a name in it leads to (`None`: there is none).
    fn lock_child<'a>(&'a self, cred: &Cred, at: NameAt<'_>) -> Result<(InodeGuards<'a>, Option<OpenObject>)> {
        let dir_ino = at.dir.key.ino;
        let mut guards = self.disk.op_locks.lock(&[dir_ino]);
        // While the directory is locked, only other programs change its names.
        let Some(child) = self.find_child(cred, at)? else { return Ok((guards, None)) };
        if self.disk.op_locks.try_lock_too(&mut guards, dir_ino, child.key.ino) {
            return Ok((guards, Some(child)));
        }
        drop(guards);
        let (guards, mut objects) = self.lock_children(cred, &[at])?;
        Ok((guards, objects.pop().flatten()))
    }

    /// As [`open_child_as`](LocalDisk::open_child_as), but uses an open file if there is one.
    fn find_child(&self, cred: &Cred, at: NameAt<'_>) -> Result<Option<OpenObject>> {
        let found = {
            let _as_caller = self.disk.creds.assume(cred)?;
            stat::at(&at.dir.fd, at.name).nfs()
        };
        let found = match found {
            Err(Status::NoEnt) => return Ok(None),
            found => self.disk.tree.localize_exported(found?)?,
        };
        match self.disk.files().any_fd(found.key) {
            Some(fd) => {
                let hint = self.disk.tree.hint_in(at.dir);
                Ok(Some(OpenObject { fd, key: found.key, hint, attr: found.attr }))
            }
            None => self.open_child_as(cred, at),
        }
    }

    /// Locks directories together with the objects that the names in them lead to (`None`: there is none).
    fn lock_children<'a>(
        &'a self,
        cred: &Cred,
        wanted: &[NameAt<'_>],
    ) -> Result<(InodeGuards<'a>, Vec<Option<OpenObject>>)> {
        for _ in 0..TRIES_MAX {
            let found = wanted.iter().map(|at| self.open_child_as(cred, *at)).collect::<Result<Vec<_>>>()?;
            let mut inos: Vec<_> = wanted.iter().map(|at| at.dir.key.ino).collect();
            inos.extend(found.iter().flatten().map(|object| object.key.ino));
            let guards = self.disk.op_locks.lock(&inos);
            thread_creds::restore();
            // The names determined which locks to take, and may have changed meanwhile.
            let is_unchanged = wanted.iter().zip(&found).all(|(at, object)| {
                let now = stat::at(&at.dir.fd, at.name).ok().map(|stat| self.disk.tree.localize(stat).key);
                now == object.as_ref().map(|object| object.key)
            });
            if is_unchanged {
                return Ok((guards, found));
            }
        }
        Err(Status::Jukebox)
    }

    /// Opens what a name leads to, for a caller with search permission.
    fn open_child_as(&self, cred: &Cred, at: NameAt<'_>) -> Result<Option<OpenObject>> {
        let opened = {
            let _as_caller = self.disk.creds.assume(cred)?;
            self.disk.tree.open_child(at.dir, at.name)
        };
        match opened {
            Err(Status::NoEnt) => Ok(None),
            done => done.map(Some),
        }
    }
}
