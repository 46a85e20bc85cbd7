//! Attributes of copies: mode and mtime; with `-p` also owner, group, atime, and the set-user-ID, set-group-ID and
//! sticky bits.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, Fh, NfsTime, SetAttr, SetTime};
use rustix::fs::{Gid, Uid, fchown};

use crate::cp::resume::source_state::nearest;
use crate::output::exit;
use crate::remote::filesystem::Remote;

/// Mode bits without `-p`.
const PERMISSIONS: u32 = 0o777;
/// Mode bits of a copy with another owner.
const WITHOUT_SET_IDS: u32 = 0o1777;

/// Owner and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
}

/// Attributes of an uploaded copy.
#[derive(Clone, Debug)]
pub(crate) struct UploadAttributes {
    pub(crate) attr: SetAttr,
    /// Set with `-p`, where the server allows it.
    owner: Option<Owner>,
}

impl UploadAttributes {
    /// Of a copy of `meta`; `preserves` means `-p`.
    pub(crate) fn of(meta: &fs::Metadata, preserves: bool) -> UploadAttributes {
        let time = |secs, nanos: i64| SetTime::To(nearest(secs, nanos as u32));
        let mtime = time(meta.mtime(), meta.mtime_nsec());
        let attr = SetAttr { mode: Some(meta.mode() & PERMISSIONS), mtime, ..SetAttr::NONE };
        if !preserves {
            return UploadAttributes { attr, owner: None };
        }
        let atime = time(meta.atime(), meta.atime_nsec());
        let owner = Owner { uid: meta.uid(), gid: meta.gid() };
        UploadAttributes { attr: SetAttr { mode: Some(meta.mode() & 0o7777), atime, ..attr }, owner: Some(owner) }
    }

    /// Sets them and returns the resulting attributes. An owner that the server refuses is left out.
    pub(crate) async fn set(&self, remote: &Remote, fh: &Fh) -> Result<Attr, ClientError> {
        let mut attr = self.attr.clone();
        if let Some(owner) = self.owner
            && !owner.set(remote, fh).await?
        {
            attr.mode = attr.mode.map(|mode| mode & WITHOUT_SET_IDS);
        }
        // After the owner, which clears the set-user-ID bit.
        remote.setattr(fh, attr).await
    }
}

impl Owner {
    fn of(attr: &Attr) -> Owner {
        Owner { uid: attr.uid, gid: attr.gid }
    }

    /// Sets them, or the group alone. Returns whether both are set. Fails if the server is lost.
    async fn set(self, remote: &Remote, fh: &Fh) -> Result<bool, ClientError> {
        if Owner::of(&remote.getattr(fh).await?) == self {
            return Ok(true);
        }
        let group = SetAttr { gid: Some(self.gid), ..SetAttr::NONE };
        let both = SetAttr { uid: Some(self.uid), ..group.clone() };
        for attr in [both, group] {
            match remote.setattr(fh, attr).await {
                Ok(set) => return Ok(Owner::of(&set) == self),
                Err(e) if exit::is_lost(&e) => return Err(e),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}

/// Sets mode and mtime of a downloaded file or directory, with `preserves` all that `-p` keeps.
pub(crate) fn dress(file: &File, source: &Attr, preserves: bool) -> io::Result<()> {
    let modified = FileTimes::new().set_modified(system_time(source.mtime));
    if !preserves {
        file.set_times(modified)?;
        return file.set_permissions(fs::Permissions::from_mode(source.mode & PERMISSIONS));
    }
    let owner = Owner::of(source);
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    // Without permission the group alone, or none, as cp(1) does.
    let _ = fchown(file, Some(uid), Some(gid)).or_else(|_| fchown(file, None, Some(gid)));
    let meta = file.metadata()?;
    let is_owned = Owner { uid: meta.uid(), gid: meta.gid() } == owner;
    file.set_times(modified.set_accessed(system_time(source.atime)))?;
    let kept = if is_owned { 0o7777 } else { WITHOUT_SET_IDS };
    file.set_permissions(fs::Permissions::from_mode(source.mode & kept))
}

fn system_time(time: NfsTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(u64::from(time.secs), time.nanos.min(999_999_999))
}
