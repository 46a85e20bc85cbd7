//! On whose behalf the kernel is asked.

use std::marker::PhantomData;

use remora_wire::nfs3::Status;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::errno::OrStatus;
use crate::{Cred, Result};

/// The server's own identity, and whether it takes on its callers'.
pub(super) struct Identity {
    own: Cred,
    honour: bool,
}

/// While this lives, the calling thread, and no other, acts as somebody else.
pub(super) struct Assumed<'a> {
    own: &'a Cred,
    /// Must be dropped on its thread.
    _thread: PhantomData<*const ()>,
}

impl Identity {
    /// With `honour`, which takes root, callers' identities are taken on; without, everything
    /// is done as the server's user.
    pub(super) fn new(honour: bool) -> std::io::Result<Identity> {
        let gids = getgroups()?.into_iter().map(Gid::as_raw).collect();
        let own = Cred { uid: geteuid().as_raw(), gid: getegid().as_raw(), gids };
        if honour && own.uid != 0 {
            let why = "honouring callers' credentials takes root";
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
        }
        let identity = Identity { own, honour };
        let nobody = Cred { uid: 65534, gid: 65534, gids: Vec::new() };
        let refused =
            || std::io::Error::new(std::io::ErrorKind::PermissionDenied, "cannot take on callers' credentials");
        drop(identity.assume(&nobody).map_err(|_| refused())?);
        Ok(identity)
    }

    /// Who the kernel takes the caller for.
    pub(super) fn acting<'a>(&'a self, cred: &'a Cred) -> &'a Cred {
        if self.honour { cred } else { &self.own }
    }

    /// Whether callers' identities are taken on.
    pub(super) fn honours(&self) -> bool {
        self.honour
    }

    /// Acts as `cred` until the result is dropped.
    pub(super) fn assume(&self, cred: &Cred) -> Result<Option<Assumed<'_>>> {
        if !self.honour || *cred == self.own {
            return Ok(None);
        }
        let (uid, gid) = (uid(cred.uid)?, gid(cred.gid)?);
        let gids = cred.gids.iter().map(|g| self::gid(*g)).collect::<Result<Vec<Gid>>>()?;
        // From here on a failure half-way is undone by the drop.
        let assumed = Assumed { own: &self.own, _thread: PhantomData };
        set_thread_groups(&gids).nfs()?;
        set_thread_res_gid(None, gid, None).nfs()?;
        // Last: it takes the right to do the others away. Without CAP_DAC_OVERRIDE, which
        // goes with the effective uid, the kernel checks permissions as for a local user.
        set_thread_res_uid(None, uid, None).nfs()?;
        Ok(Some(assumed))
    }
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        let back = || -> Result<()> {
            set_thread_res_uid(None, uid(self.own.uid)?, None).nfs()?;
            set_thread_res_gid(None, gid(self.own.gid)?, None).nfs()?;
            let gids = self.own.gids.iter().map(|g| gid(*g)).collect::<Result<Vec<Gid>>>()?;
            set_thread_groups(&gids).nfs()
        };
        if back().is_err() {
            // A thread that goes on as the wrong user would do the next caller's work with
            // this caller's rights.
            std::process::abort();
        }
    }
}

/// The user of this number. The kernel keeps the largest for "no change".
pub(super) fn uid(raw: u32) -> Result<Uid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Uid::from_raw(raw)) }
}

/// The group of this number, as [`uid`].
pub(super) fn gid(raw: u32) -> Result<Gid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Gid::from_raw(raw)) }
}

/// This process's umask, without setting it.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
}
