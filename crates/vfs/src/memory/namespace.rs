//! Operations on directories: lookup, creation, removal, renaming, listing.

use bytes::Bytes;
use remora_wire::nfs3::{Attr, CreateHow, FileType, LinkAttrs, NodeKind, RenameDirs, SetAttr, SpecData, Status, Wcc};

use super::content::Content;
use super::node::{Body, COOKIE_PARENT, COOKIE_SELF, Dir};
use super::state::State;
use crate::{Cred, DirEnd, DirEntry, DirQuery, FileId, Made, Result, attrs, names, perm};

impl State {
    pub(super) fn lookup(&self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<(FileId, Attr)> {
        names::component(name)?;
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

    pub(super) fn create(&mut self, cred: &Cred, dir: &FileId, name: &[u8], how: &CreateHow) -> Result<Made> {
        names::new_name(name)?;
        let wish = match how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) => {
                attrs::check(attr)?;
                attrs::for_new(cred, attr, attrs::FILE_MODE)
            }
            CreateHow::Exclusive(verf) => attrs::for_exclusive(*verf),
        };
        let dir = self.dir_number(dir)?;
        match self.child(cred, dir, name)? {
            Some(number) => self.reuse(cred, dir, number, how),
            None => self.make(cred, dir, name, &wish, Body::File(Content::default())),
        }
    }

    /// CREATE met an object of that name.
    fn reuse(&mut self, cred: &Cred, dir: u64, number: u64, how: &CreateHow) -> Result<Made> {
        let (there, parent) = (self.attr(number)?, self.attr(dir)?);
        let regular = there.kind == FileType::Regular;
        match how {
            // Nothing was made, and nothing changes: who asked wants to know what is there.
            CreateHow::Unchecked(_) if !regular => {}
            CreateHow::Unchecked(attr) => {
                if let Some(size) = attr.size {
                    self.check_size(size)?;
                    let cut = SetAttr { size: Some(size), ..SetAttr::NONE };
                    self.permit_attr(cred, &there, &cut)?;
                    self.apply(number, &cut)?;
                }
            }
            CreateHow::Exclusive(verf) if regular && attrs::is_exclusive(*verf, &there) => {}
            _ => return Err(Status::Exist),
        }
        Ok(Made { id: self.id(number)?, attr: self.attr(number)?, dir: self.wcc(&parent, dir)? })
    }

    pub(super) fn mkdir(&mut self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<Made> {
        let parent = self.free_name(cred, dir, name, attr)?;
        let attr = SetAttr { size: None, ..attrs::for_new(cred, attr, attrs::DIR_MODE) };
        self.make(cred, parent, name, &attr, Body::Dir(Dir::new(parent)))
    }

    pub(super) fn symlink(
        &mut self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        attr: &SetAttr,
        target: &[u8],
    ) -> Result<Made> {
        names::target(target)?;
        let dir = self.free_name(cred, dir, name, attr)?;
        let attr = SetAttr { mode: Some(0o777), size: None, ..attrs::for_new(cred, attr, 0) };
        self.make(cred, dir, name, &attr, Body::Link(Bytes::copy_from_slice(target)))
    }

    pub(super) fn mknod(&mut self, cred: &Cred, dir: &FileId, name: &[u8], what: &NodeKind) -> Result<Made> {
        let device = |kind, spec: &SpecData| {
            // Linux lets anybody make that, which is no device.
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
        let attr = SetAttr { size: None, ..attrs::for_new(cred, attr, attrs::FILE_MODE) };
        self.make(cred, dir, name, &attr, body?)
    }

    pub(super) fn remove(&mut self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.take_away(cred, dir, name, |kind| match kind {
            FileType::Directory => Err(Status::IsDir),
            _ => Ok(()),
        })
    }

    pub(super) fn rmdir(&mut self, cred: &Cred, dir: &FileId, name: &[u8]) -> Result<Wcc> {
        self.take_away(cred, dir, name, |kind| match kind {
            FileType::Directory => Ok(()),
            _ => Err(Status::NotDir),
        })
    }

    pub(super) fn rename(&mut self, cred: &Cred, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<RenameDirs> {
        names::old_name(from.1)?;
        names::old_name(to.1)?;
        let (source, target) = (self.dir_number(from.0)?, self.dir_number(to.0)?);
        let (source_before, target_before) = (self.attr(source)?, self.attr(target)?);
        let moved = self.child(cred, source, from.1)?.ok_or(Status::NoEnt)?;
        let replaced = self.child(cred, target, to.1)?;
        if replaced != Some(moved) {
            self.check_rename(cred, (source, moved), (target, replaced))?;
            self.do_rename((source, from.1, moved), (target, to.1, replaced))?;
        }
        Ok(RenameDirs { from: self.wcc(&source_before, source)?, to: self.wcc(&target_before, target)? })
    }

    /// The checks of rename(2), in Linux's order.
    fn check_rename(&self, cred: &Cred, from: (u64, u64), to: (u64, Option<u64>)) -> Result<()> {
        let (source, moved) = from;
        let (target, replaced) = to;
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
        // A directory that moves has its `..` written.
        if moves_dir && source != target { self.permit(cred, moved, perm::W) } else { Ok(()) }
    }

    fn do_rename(&mut self, from: (u64, &[u8], u64), to: (u64, &[u8], Option<u64>)) -> Result<()> {
        let (source, old_name, moved) = from;
        let (target, new_name, replaced) = to;
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

    pub(super) fn link(&mut self, cred: &Cred, id: &FileId, dir: &FileId, name: &[u8]) -> Result<LinkAttrs> {
        names::new_name(name)?;
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

    pub(super) fn readdir(
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
        // Cookies stay good for the directory's life, so there is nothing to verify.
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

    // --- Shared steps ---

    /// What `name` in `dir` is, for a caller who may search there.
    fn child(&self, cred: &Cred, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        self.permit(cred, dir, perm::X)?;
        Ok(self.node(dir)?.dir()?.get(name))
    }

    /// The directory in which `name` is free to be made.
    fn free_name(&self, cred: &Cred, dir: &FileId, name: &[u8], attr: &SetAttr) -> Result<u64> {
        names::new_name(name)?;
        attrs::check(attr)?;
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

    fn take_away(
        &mut self,
        cred: &Cred,
        dir: &FileId,
        name: &[u8],
        fits: impl Fn(FileType) -> Result<()>,
    ) -> Result<Wcc> {
        names::old_name(name)?;
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
