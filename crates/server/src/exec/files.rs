//! Procedures on one object (RFC 1813, sections 3.3.1 to 3.3.7 and 3.3.18 to 3.3.21).

use remora_vfs::{Features, OFFSET_MAX};
use remora_wire::nfs3::{
    ACCESS_DELETE, ACCESS_EXTEND, ACCESS_MODIFY, AccessArgs, AccessOk, Attr, CommitArgs, CommitOk, DirOp,
    FSF_CANSETTIME, FSF_HOMOGENEOUS, FSF_LINK, FSF_SYMLINK, Failed, Fh, FsInfoOk, FsStatOk, LookupOk, PathConfOk,
    ReadArgs, ReadLinkOk, ReadOk, Res, SetAttrArgs, Status, Wcc, WriteArgs, WriteOk,
};

use super::context::Exec;
use crate::Version;

/// The suggested multiple of READ and WRITE sizes (FSINFO), in bytes.
const IO_MULTIPLE: u32 = 4096;
/// The preferred size of a directory page (FSINFO), in bytes.
const DIR_PAGE: u32 = 64 << 10;

impl Exec<'_> {
    pub(super) fn get_attr(&self, fh: &Fh) -> Res<Attr, ()> {
        self.object(fh).and_then(|o| o.vfs().getattr(&o.id)).map_err(|status| Failed { status, info: () })
    }

    pub(super) fn set_attr(&self, a: &SetAttrArgs) -> Res<Wcc, Wcc> {
        self.change(&a.fh, |o| match a.attr.size {
            Some(size) if size > OFFSET_MAX => Err(Status::FBig),
            _ => o.vfs().setattr(&o.cred, &o.id, &a.attr, a.guard),
        })
    }

    pub(super) fn lookup(&self, a: &DirOp) -> Res<LookupOk, Option<Attr>> {
        self.look(&a.dir, |dir| {
            let (id, attr) = dir.vfs().lookup(&dir.cred, &dir.id, &a.name)?;
            Ok(LookupOk { fh: dir.handle(&id), attr: Some(attr), dir: dir.attr() })
        })
    }

    pub(super) fn access(&self, a: &AccessArgs) -> Res<AccessOk, Option<Attr>> {
        self.look(&a.fh, |o| {
            let never = if o.read_only() { ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE } else { 0 };
            let access = o.vfs().access(&o.cred, &o.id, a.access & !never)?;
            Ok(AccessOk { attr: o.attr(), access: access & a.access & !never })
        })
    }

    pub(super) fn read_link(&self, fh: &Fh) -> Res<ReadLinkOk, Option<Attr>> {
        self.look(fh, |o| {
            let target = o.vfs().readlink(&o.cred, &o.id)?;
            Ok(ReadLinkOk { attr: o.attr(), target })
        })
    }

    pub(super) fn read(&self, a: &ReadArgs) -> Res<ReadOk, Option<Attr>> {
        let offset = a.offset.min(OFFSET_MAX);
        let room = u32::try_from(OFFSET_MAX - offset).unwrap_or(u32::MAX);
        let count = a.count.min(self.io_max()).min(room);
        self.look(&a.fh, |o| {
            let (mut data, mut eof) = o.vfs().read(&o.cred, &o.id, offset, count)?;
            if data.len() > count as usize {
                data.truncate(count as usize);
                eof = false;
            }
            let attr = match self.version {
                // NFSv2's success has mandatory attributes: their error is the result.
                Version::V2 => Some(o.vfs().getattr(&o.id)?),
                Version::V3 => o.attr(),
            };
            Ok(ReadOk { attr, count: data.len() as u32, eof, data })
        })
    }

    /// Writes the data, or as much as the limit allows: from the reply's count the client knows what to send again. A
    /// `count` above the data's length is an error; below it, only `count` bytes are written.
    pub(super) fn write(&self, a: &WriteArgs) -> Res<WriteOk, Wcc> {
        let count = a.count.min(self.io_max());
        self.change(&a.fh, |o| {
            if a.count as usize > a.data.len() {
                return Err(Status::Inval);
            }
            if a.offset.checked_add(u64::from(count)).is_none_or(|end| end > OFFSET_MAX) {
                return Err(Status::FBig);
            }
            let data = a.data.slice(..count as usize);
            // The verifier is read before the write: if it changes in between, the client writes again, which is
            // safe. In the other order the client would miss a change.
            let verf = o.vfs().verifier();
            let (wcc, committed) = o.vfs().write(&o.cred, &o.id, a.offset, &data, a.stable)?;
            Ok(WriteOk { wcc, count, committed, verf })
        })
    }

    pub(super) fn commit(&self, a: &CommitArgs) -> Res<CommitOk, Wcc> {
        self.change(&a.fh, |o| {
            let wcc = o.vfs().commit(&o.cred, &o.id, a.offset, a.count)?;
            // The verifier is read after the commit: if any flush has failed by then, the client learns that its
            // writes may be lost.
            Ok(CommitOk { wcc, verf: o.vfs().verifier() })
        })
    }

    pub(super) fn fs_stat(&self, fh: &Fh) -> Res<FsStatOk, Option<Attr>> {
        self.look(fh, |o| Ok(FsStatOk { attr: o.attr(), ..o.vfs().fsstat(&o.id)? }))
    }

    pub(super) fn path_conf(&self, fh: &Fh) -> Res<PathConfOk, Option<Attr>> {
        self.look(fh, |o| Ok(PathConfOk { attr: o.attr(), ..o.vfs().pathconf(&o.id)? }))
    }

    pub(super) fn fs_info(&self, fh: &Fh) -> Res<FsInfoOk, Option<Attr>> {
        let io_max = self.io_max();
        self.look(fh, |o| {
            let features = o.vfs().features();
            Ok(FsInfoOk {
                attr: Some(o.vfs().getattr(&o.id)?),
                read_max: io_max,
                read_pref: io_max,
                read_mult: IO_MULTIPLE,
                write_max: io_max,
                write_pref: io_max,
                write_mult: IO_MULTIPLE,
                dir_pref: io_max.min(DIR_PAGE),
                max_file: o.vfs().file_max(),
                time_delta: features.time_delta,
                properties: properties(&features),
            })
        })
    }
}

fn properties(features: &Features) -> u32 {
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    bit(features.links, FSF_LINK)
        | bit(features.symlinks, FSF_SYMLINK)
        | bit(features.homogeneous, FSF_HOMOGENEOUS)
        | FSF_CANSETTIME
}
