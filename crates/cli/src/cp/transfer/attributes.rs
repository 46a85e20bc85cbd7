//! What `cp -p` keeps beside permission bits and the time of modification: owner, group, the time of access, and the
//! set-user-ID, set-group-ID and sticky bits.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, Fh, NfsTime, SetAttr, SetTime};
use rustix::fs::{Gid, Uid, fchown};

use crate::cp::resume::source_state::nearest;
use crate::exit;
use crate::remote::Remote;

/// What is kept without `-p`.
const PERMISSIONS: u32 = 0o777;
/// What a copy gets that has not its source's owner and group.
const WITHOUT_SET_IDS: u32 = 0o1777;

/// Owner and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
}

/// What an uploaded copy is to look like.
#[derive(Clone, Debug)]
pub(crate) struct UploadAttributes {
    pub(crate) attr: SetAttr,
    /// Kept with `-p`, where the server allows it.
    owner: Option<Owner>,
}

impl UploadAttributes {
    /// Of a copy of this; with `preserves` as with `-p`.
    pub(crate) fn of(meta: &fs::Metadata, preserves: bool) -> UploadAttributes {
        let time = |secs, nanos: i64| SetTime::To(nearest((secs, nanos as u32)));
        let mtime = time(meta.mtime(), meta.mtime_nsec());
        let attr = SetAttr { mode: Some(meta.mode() & PERMISSIONS), mtime, ..SetAttr::NONE };
        if !preserves {
            return UploadAttributes { attr, owner: None };
        }
        let atime = time(meta.atime(), meta.atime_nsec());
        let owner = Owner { uid: meta.uid(), gid: meta.gid() };
        UploadAttributes { attr: SetAttr { mode: Some(meta.mode() & 0o7777), atime, ..attr }, owner: Some(owner) }
    }

    /// Gives them to what is there; returns what it looks like then. An owner that the server does not set is left out.
    pub(crate) async fn set(&self, remote: &Remote, fh: &Fh) -> Result<Attr, ClientError> {
        let mut attr = self.attr.clone();
        if let Some(owner) = self.owner
            && !owner.set(remote, fh).await?
        {
            attr.mode = attr.mode.map(|mode| mode & WITHOUT_SET_IDS);
        }
        // After the owner: a new one takes the set-user-ID bit away.
        remote.setattr(fh, attr).await
    }
}

impl Owner {
    fn of(attr: &Attr) -> Owner {
        Owner { uid: attr.uid, gid: attr.gid }
    }

    /// Whether it has it then; the group alone is set where the owner may not be. Fails if the server is lost.
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

/// Gives a downloaded file or directory the mode and time of its source; with `preserves` all that `-p` keeps.
pub(crate) fn dress(file: &File, source: &Attr, preserves: bool) -> io::Result<()> {
    let modified = FileTimes::new().set_modified(system_time(source.mtime));
    if !preserves {
        file.set_times(modified)?;
        return file.set_permissions(fs::Permissions::from_mode(source.mode & PERMISSIONS));
    }
    let owner = Owner::of(source);
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    // Where the owner may not be set the group may be; what is left is left out, as cp(1) has it.
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
