//! Procedures that change a directory (RFC 1813, sections 3.3.8 to 3.3.15).

use remora_vfs::{self as vfs, Made, NameIn};
use remora_wire::nfs3::{
    CreateArgs, CreateHow, DirOp, Failed, LinkArgs, LinkAttrs, MadeOk, MkDirArgs, MkNodArgs, NodeKind, RenameArgs,
    RenameDirs, Res, Status, SymLinkArgs, Wcc,
};

use super::context::{Exec, Object};

impl Exec<'_> {
    pub(super) fn create(&self, a: &CreateArgs) -> Res<MadeOk, Wcc> {
        self.make(&a.at, |dir| match &a.how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) if attr.size > Some(vfs::OFFSET_MAX) => {
                Err(Status::FBig)
            }
            how => dir.vfs().create(&dir.cred, &dir.id, &a.at.name, how),
        })
    }

    pub(super) fn mkdir(&self, a: &MkDirArgs) -> Res<MadeOk, Wcc> {
        self.make(&a.at, |dir| dir.vfs().mkdir(&dir.cred, &dir.id, &a.at.name, &a.attr))
    }

    pub(super) fn symlink(&self, a: &SymLinkArgs) -> Res<MadeOk, Wcc> {
        self.make(&a.at, |dir| dir.vfs().symlink(&dir.cred, &dir.id, &a.at.name, &a.attr, &a.target))
    }

    pub(super) fn mknod(&self, a: &MkNodArgs) -> Res<MadeOk, Wcc> {
        self.make(&a.at, |dir| match &a.what {
            NodeKind::Other(_) => Err(Status::BadType),
            what => dir.vfs().mknod(&dir.cred, &dir.id, &a.at.name, what),
        })
    }

    fn make(&self, at: &DirOp, op: impl FnOnce(&Object) -> vfs::Result<Made>) -> Res<MadeOk, Wcc> {
        self.change(&at.dir, |dir| {
            let made = op(dir)?;
            Ok(MadeOk { fh: Some(dir.handle(&made.id)), attr: Some(made.attr), dir: made.dir })
        })
    }

    pub(super) fn remove(&self, a: &DirOp) -> Res<Wcc, Wcc> {
        self.change(&a.dir, |dir| dir.vfs().remove(&dir.cred, &dir.id, &a.name))
    }

    pub(super) fn rmdir(&self, a: &DirOp) -> Res<Wcc, Wcc> {
        self.change(&a.dir, |dir| dir.vfs().rmdir(&dir.cred, &dir.id, &a.name))
    }

    pub(super) fn rename(&self, a: &RenameArgs) -> Res<RenameDirs, RenameDirs> {
        let (from, to) = (self.object(&a.from.dir), self.object(&a.to.dir));
        let after = |o: &Result<Object, Status>| o.as_ref().map_or(Wcc::NONE, Object::wcc);
        both(&from, &to)
            .and_then(|(from, to)| {
                from.vfs().rename(&from.cred, NameIn::new(&from.id, &a.from.name), NameIn::new(&to.id, &a.to.name))
            })
            .map_err(|status| Failed { status, info: RenameDirs { from: after(&from), to: after(&to) } })
    }

    pub(super) fn link(&self, a: &LinkArgs) -> Res<LinkAttrs, LinkAttrs> {
        let (file, dir) = (self.object(&a.fh), self.object(&a.at.dir));
        both(&file, &dir).and_then(|(file, dir)| dir.vfs().link(&dir.cred, &file.id, &dir.id, &a.at.name)).map_err(
            |status| {
                let attr = file.as_ref().ok().and_then(Object::attr);
                Failed { status, info: LinkAttrs { attr, dir: dir.as_ref().map_or(Wcc::NONE, Object::wcc) } }
            },
        )
    }
}

/// Both objects, if one operation may change them.
fn both<'o, 'a>(
    one: &'o Result<Object<'a>, Status>,
    other: &'o Result<Object<'a>, Status>,
) -> vfs::Result<(&'o Object<'a>, &'o Object<'a>)> {
    let (one, other) = (one.as_ref().map_err(|s| *s)?, other.as_ref().map_err(|s| *s)?);
    one.same_export(other)?;
    one.writable()?;
    Ok((one, other))
}
