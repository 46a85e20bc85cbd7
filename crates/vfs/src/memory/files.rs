//! Operations on one object: attributes, data, stability.

use bytes::Bytes;
use remora_wire::nfs3::{Attr, FileType, NfsTime, SetAttr, Stable, Status, Wcc};

use super::fault::OpKind;
use super::node::Body;
use super::state::State;
use crate::{Cred, FileId, Result, attrs, perm};

impl State {
    pub(super) fn setattr(&mut self, cred: &Cred, id: &FileId, attr: &SetAttr, guard: Option<NfsTime>) -> Result<Wcc> {
        attrs::check(attr)?;
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

    pub(super) fn readlink(&self, id: &FileId) -> Result<Bytes> {
        match &self.node(self.number(id)?)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Status::Inval),
        }
    }

    pub(super) fn read(&mut self, cred: &Cred, id: &FileId, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let (number, attr) = self.file(id)?;
        if !perm::may_read(cred, &attr) {
            return Err(Status::Access);
        }
        let data = self.node_mut(number)?.content()?.read(offset, u64::from(count));
        let eof = offset.saturating_add(data.len() as u64) >= attr.size;
        Ok((data.into(), eof))
    }

    pub(super) fn write(
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

    pub(super) fn commit(&mut self, cred: &Cred, id: &FileId) -> Result<Wcc> {
        let wcc = self.may_commit(cred, id)?;
        self.flush(self.number(id)?)?;
        Ok(wcc)
    }

    /// What a commit that the caller may ask for answers: it changes no attribute.
    pub(super) fn may_commit(&self, cred: &Cred, id: &FileId) -> Result<Wcc> {
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
}
