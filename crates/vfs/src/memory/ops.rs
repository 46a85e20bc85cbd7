//! The operations on the state: names, attributes and data.

use bytes::Bytes;
use remora_wire::nfs3::{
    Attr, CreateHow, FileType, FsStatOk, LinkAttrs, NfsTime, NodeKind, RenameDirs, SetAttr, SpecData, Stable, Status,
    Wcc,
};

use crate::memory::content::{BLOCK, Content};
use crate::memory::fault::OpKind;
use crate::memory::node::{Body, COOKIE_PARENT, COOKIE_SELF, Dir};
use crate::memory::state::State;
use crate::types::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, NameIn, Result};
use crate::{args, perm};

/// A RENAME, by inode numbers.
struct Rename<'a> {
    source: u64,
    old_name: &'a [u8],
    moved: u64,
    target: u64,
    new_name: &'a [u8],
    /// The object that has the new name.
    replaced: Option<u64>,
}

impl State {
    pub(crate) fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        args::check_name(name)?;
        let dir = self.dir_number(dir)?;
        let number = match name {
            b"." | b".." => {
                self.permit(cred, dir, perm::X)?;
                if name == b"." { dir } else { self.node(dir)?.dir()?.parent }
            }
            name => self.child(cred, dir, name)?.ok_or(Status::NoEnt)?,
        };
        Ok((self.id(number)?, self.attr(number)?))
    }

    pub(crate) fn create(&mut self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        args::check_new_name(name)?;
        let wish = match how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) => {
                args::check_attrs(attr)?;
                args::new_attrs(cred, attr, args::FILE_MODE)
            }
            CreateHow::Exclusive(verf) => args::exclusive_attrs(*verf),
        };
        let dir = self.dir_number(dir)?;
        match self.child(cred, dir, name)? {
            Some(number) => self.reuse(cred, dir, number, how),
            None => self.make(cred, dir, name, &wish, Body::File(Content::default())),
        }
    }

    /// CREATE of a name that exists.
    fn reuse(&mut self, cred: &Cred, dir: u64, number: u64, how: &CreateHow) -> Result<Made> {
        let (there, parent) = (self.attr(number)?, self.attr(dir)?);
        let regular = there.kind == FileType::Regular;
        match how {
            // Nothing changes: the reply describes what exists.
            CreateHow::Unchecked(_) if !regular => {}
            CreateHow::Unchecked(attr) => {
                if let Some(size) = attr.size {
                    self.check_size(size)?;
                    let cut = SetAttr { size: Some(size), ..SetAttr::NONE };
                    self.permit_attr(cred, &there, &cut)?;
                    self.apply(number, &cut)?;
                }
            }
            CreateHow::Exclusive(verf) if regular && args::is_exclusive(*verf, &there) => {}
            _ => return Err(Status::Exist),
        }
        Ok(Made { id: self.id(number)?, attr: self.attr(number)?, dir: self.wcc(&parent, dir)? })
    }

    pub(crate) fn mkdir(&mut self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        let parent = self.free_name(cred, dir, name, attr)?;
        let attr = SetAttr { size: None, ..args::new_attrs(cred, attr, args::DIR_MODE) };
        self.make(cred, parent, name, &attr, Body::Dir(Dir::new(parent)))
    }

    pub(crate) fn symlink(
        &mut self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        target: &[u8],
    ) -> Result<Made> {
        args::check_target(target)?;
        let dir = self.free_name(cred, dir, name, attr)?;
        let attr = SetAttr { mode: Some(0o777), size: None, ..args::new_attrs(cred, attr, 0) };
        self.make(cred, dir, name, &attr, Body::Link(Bytes::copy_from_slice(target)))
    }

    pub(crate) fn mknod(&mut self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        let device = |kind, spec: &SpecData| {
            // Linux lets every user create a whiteout, which is no device.
            let whiteout = kind == FileType::Char && *spec == SpecData { major: 0, minor: 0 };
            if cred.uid == 0 || whiteout { Ok(Body::Device(kind, *spec)) } else { Err(Status::Perm) }
        };
        let (attr, body) = match what {
            NodeKind::Char(attr, spec) => (attr, device(FileType::Char, spec)),
            NodeKind::Block(attr, spec) => (attr, device(FileType::Block, spec)),
            NodeKind::Socket(attr) => (attr, Ok(Body::Special(FileType::Socket))),
            NodeKind::Fifo(attr) => (attr, Ok(Body::Special(FileType::Fifo))),
            NodeKind::Other(_) => return Err(Status::BadType),
        };
        let dir = self.free_name(cred, dir, name, attr)?;
        let attr = SetAttr { size: None, ..args::new_attrs(cred, attr, args::FILE_MODE) };
        self.make(cred, dir, name, &attr, body?)
    }

    pub(crate) fn remove(&mut self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.remove_name(cred, dir, name, |kind| match kind {
            FileType::Directory => Err(Status::IsDir),
            _ => Ok(()),
        })
    }

    pub(crate) fn rmdir(&mut self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.remove_name(cred, dir, name, |kind| match kind {
            FileType::Directory => Ok(()),
            _ => Err(Status::NotDir),
        })
    }

    pub(crate) fn rename(&mut self, cred: &Cred, from: NameIn<'_>, to: NameIn<'_>) -> Result<RenameDirs> {
        args::check_old_name(from.name)?;
        args::check_old_name(to.name)?;
        let (source, target) = (self.dir_number(from.dir)?, self.dir_number(to.dir)?);
        let (source_before, target_before) = (self.attr(source)?, self.attr(target)?);
        let moved = self.child(cred, source, from.name)?.ok_or(Status::NoEnt)?;
        let replaced = self.child(cred, target, to.name)?;
        if replaced != Some(moved) {
            let rename = Rename { source, old_name: from.name, moved, target, new_name: to.name, replaced };
            self.check_rename(cred, &rename)?;
            self.do_rename(&rename)?;
        }
        Ok(RenameDirs { from: self.wcc(&source_before, source)?, to: self.wcc(&target_before, target)? })
    }

    /// The checks of rename(2), in the order of Linux.
    fn check_rename(&self, cred: &Cred, rename: &Rename<'_>) -> Result<()> {
        let Rename { source, moved, target, replaced, .. } = *rename;
        if self.is_within(target, moved)? {
            return Err(Status::Inval);
        }
        if let Some(there) = replaced
            && self.is_within(source, there)?
        {
            return Err(Status::NotEmpty);
        }
        let moves_dir = self.node(moved)?.kind() == FileType::Directory;
        self.permit_removal(cred, source, moved)?;
        if let Some(there) = replaced {
            self.permit_removal(cred, target, there)?;
            match (moves_dir, &self.node(there)?.body) {
                (true, Body::Dir(dir)) if dir.is_empty() => {}
                (true, Body::Dir(_)) => return Err(Status::NotEmpty),
                (true, _) => return Err(Status::NotDir),
                (false, Body::Dir(_)) => return Err(Status::IsDir),
                (false, _) => {}
            }
        }
        self.permit(cred, target, perm::W | perm::X)?;
        // Moving a directory writes its `..`.
        if moves_dir && source != target { self.permit(cred, moved, perm::W) } else { Ok(()) }
    }

    fn do_rename(&mut self, rename: &Rename<'_>) -> Result<()> {
        let Rename { source, old_name, moved, target, new_name, replaced } = *rename;
        let moves_dir = u32::from(self.node(moved)?.kind() == FileType::Directory);
        if let Some(there) = replaced {
            self.unlink(there)?;
            self.node_mut(target)?.nlink -= moves_dir;
        }
        let now = self.tick();
        let node = self.node_mut(source)?;
        node.dir_mut()?.remove(old_name);
        node.nlink -= moves_dir;
        node.touch_data(now, true);
        let node = self.node_mut(target)?;
        node.dir_mut()?.insert(new_name, moved);
        node.nlink += moves_dir;
        node.touch_data(now, true);
        let node = self.node_mut(moved)?;
        node.touch_attr(now);
        if let Body::Dir(dir) = &mut node.body {
            dir.parent = target;
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        args::check_new_name(name)?;
        let number = self.number(id)?;
        self.dir_number(dir)?;
        if self.node(number)?.kind() == FileType::Directory {
            return Err(Status::IsDir);
        }
        let dir = self.free_name(cred, dir, name, &SetAttr::NONE)?;
        self.permit(cred, dir, perm::W | perm::X)?;
        let before = self.attr(dir)?;
        let now = self.tick();
        let node = self.node_mut(number)?;
        node.nlink = node.nlink.checked_add(1).ok_or(Status::MLink)?;
        node.touch_attr(now);
        let parent = self.node_mut(dir)?;
        parent.dir_mut()?.insert(name, number);
        parent.touch_data(now, true);
        Ok(LinkAttrs { attr: Some(self.attr(number)?), dir: self.wcc(&before, dir)? })
    }

    pub(crate) fn readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        let number = self.dir_number(dir)?;
        self.permit(cred, number, perm::R)?;
        let objects = query.objects && self.permit(cred, number, perm::X).is_ok();
        let dir = self.node(number)?.dir()?;
        // Cookies stay valid, so there is nothing to verify.
        let verf = [0; 8];
        let dots = [(COOKIE_SELF, ".", number), (COOKIE_PARENT, "..", dir.parent)];
        let dots = dots.into_iter().map(|(c, name, n)| (c, Bytes::from_static(name.as_bytes()), n));
        let rest = dir.after(query.cookie).map(|(c, name, n)| (c, name.clone(), n));
        for (cookie, name, fileid) in dots.filter(|(c, ..)| *c > query.cookie).chain(rest) {
            let object = if objects { Some((self.id(fileid)?, self.attr(fileid)?)) } else { None };
            if !take(DirEntry { fileid, name, cookie, object }) {
                return Ok(DirEnd { verf, eof: false });
            }
        }
        Ok(DirEnd { verf, eof: true })
    }

    // --- Attributes and data ---

    pub(crate) fn setattr(&mut self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        args::check_attrs(attr)?;
        let number = self.number(id)?;
        let before = self.attr(number)?;
        if guard.is_some_and(|ctime| ctime != before.ctime) {
            return Err(Status::NotSync);
        }
        if let Some(size) = attr.size {
            self.node_mut(number)?.content()?;
            self.check_size(size)?;
        }
        self.permit_attr(cred, &before, attr)?;
        self.apply(number, attr)?;
        self.wcc(&before, number)
    }

    pub(crate) fn readlink(&self, id: &FileId) -> Result<Bytes> {
        match &self.node(self.number(id)?)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Status::Inval),
        }
    }

    pub(crate) fn read(&mut self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let (number, attr) = self.file(id)?;
        if !perm::may_read(cred, &attr) {
            return Err(Status::Access);
        }
        let data = self.node_mut(number)?.content()?.read(offset, u64::from(count));
        let eof = offset.saturating_add(data.len() as u64) >= attr.size;
        Ok((data.into(), eof))
    }

    pub(crate) fn write(
        &mut self,
        cred: &Cred,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Result<(Wcc, Stable)> {
        let (number, before) = self.file(id)?;
        if !perm::may_write(cred, &before) {
            return Err(Status::Access);
        }
        if data.is_empty() {
            return Ok((self.wcc(&before, number)?, Stable::FileSync));
        }
        let len = data.len() as u64;
        self.check_size(offset.checked_add(len).ok_or(Status::FBig)?)?;
        let room = self.free_blocks();
        let now = self.tick();
        let durable = stable != Stable::Unstable;
        let failing = if durable { self.faults.check(OpKind::Flush).err() } else { None };
        let node = self.node_mut(number)?;
        let content = node.content()?;
        let growth = content.growth(offset, len);
        if growth > room {
            return Err(Status::NoSpc);
        }
        content.write(offset, data, durable && failing.is_none());
        node.touch_data(now, durable && failing.is_none());
        self.count_blocks(0, growth);
        if let Some(status) = failing {
            self.lose(number);
            return Err(status);
        }
        let stable = if durable { Stable::FileSync } else { Stable::Unstable };
        Ok((self.wcc(&before, number)?, stable))
    }

    pub(crate) fn commit(&mut self, cred: &Cred, id: &FileId) -> Result<Wcc> {
        let wcc = self.check_commit(cred, id)?;
        self.flush(self.number(id)?)?;
        Ok(wcc)
    }

    /// Checks that the caller may commit. COMMIT changes no attribute.
    pub(crate) fn check_commit(&self, cred: &Cred, id: &FileId) -> Result<Wcc> {
        let (number, before) = self.file(id)?;
        if !perm::may_write(cred, &before) {
            return Err(Status::Access);
        }
        self.wcc(&before, number)
    }

    /// A regular file and its attributes.
    fn file(&self, id: &FileId) -> Result<(u64, Attr)> {
        let number = self.number(id)?;
        let attr = self.attr(number)?;
        match attr.kind {
            FileType::Regular => Ok((number, attr)),
            FileType::Directory => Err(Status::IsDir),
            _ => Err(Status::Inval),
        }
    }

    pub(crate) fn fsstat(&self) -> FsStatOk {
        let files = self.nodes().count() as u64;
        let free = self.free_blocks().saturating_mul(BLOCK);
        // There is no limit on the number of files, but clients expect one.
        let files_free = u64::from(u32::MAX);
        FsStatOk {
            attr: None,
            total: self.capacity,
            free,
            avail: free,
            files: files + files_free,
            files_free,
            files_avail: files_free,
            invar_secs: 0,
        }
    }

    // --- Shared steps ---

    /// The object `name` in `dir`, for a caller with search permission.
    fn child(&self, cred: &Cred, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        self.permit(cred, dir, perm::X)?;
        Ok(self.node(dir)?.dir()?.get(name))
    }

    /// Checks that `name` does not exist in `dir`. Returns the directory.
    fn free_name(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<u64> {
        args::check_new_name(name)?;
        args::check_attrs(attr)?;
        let dir = self.dir_number(dir)?;
        match self.child(cred, dir, name)? {
            Some(_) => Err(Status::Exist),
            None => Ok(dir),
        }
    }

    /// Whether `dir` is `top` or below it.
    fn is_within(&self, mut dir: u64, top: u64) -> Result<bool> {
        loop {
            let parent = self.node(dir)?.dir()?.parent;
            if dir == top || parent == dir {
                return Ok(dir == top);
            }
            dir = parent;
        }
    }

    fn permit_removal(&self, cred: &Cred, dir: u64, child: u64) -> Result<()> {
        self.permit(cred, dir, perm::W | perm::X)?;
        if perm::stuck(cred, &self.attr(dir)?, &self.attr(child)?) { Err(Status::Perm) } else { Ok(()) }
    }

    fn remove_name(
        &mut self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        fits: impl Fn(FileType) -> Result<()>,
    ) -> Result<Wcc> {
        args::check_old_name(name)?;
        let dir = self.dir_number(dir)?;
        let before = self.attr(dir)?;
        let child = self.child(cred, dir, name)?.ok_or(Status::NoEnt)?;
        self.permit_removal(cred, dir, child)?;
        let node = self.node(child)?;
        fits(node.kind())?;
        let was_dir = match &node.body {
            Body::Dir(inside) if !inside.is_empty() => return Err(Status::NotEmpty),
            Body::Dir(_) => 1,
            _ => 0,
        };
        self.unlink(child)?;
        let now = self.tick();
        let node = self.node_mut(dir)?;
        node.dir_mut()?.remove(name);
        node.nlink -= was_dir;
        node.touch_data(now, true);
        self.wcc(&before, dir)
    }
}
