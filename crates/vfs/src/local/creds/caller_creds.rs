//! On whose behalf the kernel is asked.

use std::sync::Arc;

use remora_wire::nfs3::Status;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::capabilities;

use crate::local::creds::thread_creds::{self, AssumedCreds};
use crate::{Cred, Result};

/// The server's own creds, and whether it takes on its callers'.
pub(crate) struct CallerCreds {
    own: Arc<Cred>,
    impersonate: bool,
}

impl CallerCreds {
    /// With `impersonate`, which takes root, callers' identities are taken on; without, everything
    /// is done as the server's user.
    pub(crate) fn new(impersonate: bool) -> std::io::Result<CallerCreds> {
        thread_creds::restore();
        let gids = getgroups()?.into_iter().map(Gid::as_raw).collect();
        let own = Cred { uid: geteuid().as_raw(), gid: getegid().as_raw(), gids };
        if impersonate && own.uid != 0 {
            let why = "honouring callers' credentials takes root";
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
        }
        let creds = CallerCreds { own: Arc::new(own), impersonate };
        let nobody = Cred { uid: 65534, gid: 65534, gids: Vec::new() };
        let why = "cannot take on callers' credentials: that takes CAP_SETUID and CAP_SETGID, and leave to set groups, which \
                   some user namespaces do not give";
        let refused = || std::io::Error::new(std::io::ErrorKind::PermissionDenied, why);
        let assumed = creds.assume(&nobody).map_err(|_| refused())?;
        // The kernel takes root's with root's number, unless its secure bits keep it from that.
        if assumed.is_some() && !capabilities(None)?.effective.is_empty() {
            let why = "who takes on a caller's credentials keeps root's capabilities, with which files' permissions do not count: \
                       this was started with the secure bit no-setuid-fixup (securebits(7)), and must not be";
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
        }
        drop(assumed);
        Ok(creds)
    }

    /// Who the kernel takes the caller for.
    pub(crate) fn effective<'a>(&'a self, cred: &'a Cred) -> &'a Cred {
        if self.impersonate { cred } else { &self.own }
    }

    /// Whether callers' identities are taken on.
    pub(crate) fn impersonates(&self) -> bool {
        self.impersonate
    }

    /// Acts as `cred` until the result is dropped.
    pub(crate) fn assume(&self, cred: &Cred) -> Result<Option<AssumedCreds>> {
        if !self.impersonate || *cred == *self.own {
            thread_creds::restore();
            return Ok(None);
        }
        thread_creds::assume(cred, &self.own).map(Some)
    }
}

/// The user of this number. The kernel keeps the largest for "no change".
pub(crate) fn uid(raw: u32) -> Result<Uid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Uid::from_raw(raw)) }
}

/// The group of this number, as [`uid`].
pub(crate) fn gid(raw: u32) -> Result<Gid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Gid::from_raw(raw)) }
}

/// This process's umask, without setting it.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
}
