//! Credentials of threads: executes system calls with the caller's user and groups.
//!
//! Switching credentials and switching back takes six system calls, more work than the rest of a LOOKUP. So a thread
//! that executes nothing but file operations ([`DedicatedThread`]) keeps its last caller's credentials after an
//! operation that allows it ([`keep_creds`]), and the next operation of the same caller finds them in place. Code that
//! needs the server's own credentials calls [`restore`] first.

use std::cell::{Cell, RefCell};
use std::io::{Error, ErrorKind};
use std::marker::PhantomData;
use std::sync::Arc;

use remora_wire::nfs3::Status;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::local::sys::errors::OrStatus;
use crate::types::{Cred, Result};

/// Whose credentials operations have: their callers', or the server's.
pub(crate) struct CredPolicy {
    own: Arc<Cred>,
    impersonates: bool,
}

impl CredPolicy {
    /// With `impersonate`, which needs root, operations have their callers' credentials; otherwise the server's.
    pub(crate) fn new(impersonate: bool) -> std::io::Result<CredPolicy> {
        restore();
        let gids = getgroups()?.into_iter().map(Gid::as_raw).collect();
        let own = Cred { uid: geteuid().as_raw(), gid: getegid().as_raw(), gids };
        let denied = |why| Error::new(ErrorKind::PermissionDenied, why);
        if impersonate && own.uid != 0 {
            return Err(denied("cannot take on callers' credentials: the server is not root"));
        }
        let policy = CredPolicy { own: Arc::new(own), impersonates: impersonate };
        let nobody = Cred { uid: 65534, gid: 65534, gids: Vec::new() };
        let assumed = policy.assume(&nobody).map_err(|_| {
            denied(
                "cannot take on callers' credentials: this needs CAP_SETUID, CAP_SETGID and the right to set groups, \
                 which some user namespaces deny",
            )
        })?;
        // With the user id the kernel drops the capabilities, unless a secure bit forbids it.
        if assumed.is_some() && !capabilities(None)?.effective.is_empty() {
            return Err(denied(
                "a thread with a caller's credentials keeps root's capabilities, which bypass file permissions: start the \
                 server without the secure bit no-setuid-fixup (securebits(7))",
            ));
        }
        drop(assumed);
        Ok(policy)
    }

    /// The credentials with which operations of `cred` are executed.
    pub(crate) fn effective<'a>(&'a self, cred: &'a Cred) -> &'a Cred {
        if self.impersonates { cred } else { &self.own }
    }

    /// Whether operations have their callers' credentials.
    pub(crate) fn impersonates(&self) -> bool {
        self.impersonates
    }

    /// Gives this thread the effective credentials of `cred` until the result is dropped.
    pub(crate) fn assume(&self, cred: &Cred) -> Result<Option<AssumedCreds>> {
        if !self.impersonates || *cred == *self.own {
            restore();
            return Ok(None);
        }
        assume(cred, &self.own).map(Some)
    }
}

/// The user with this number. The kernel reserves the largest one for "no change".
pub(crate) fn uid(raw: u32) -> Result<Uid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Uid::from_raw(raw)) }
}

/// The group with this number, as [`uid`].
pub(crate) fn gid(raw: u32) -> Result<Gid> {
    if raw == u32::MAX { Err(Status::Inval) } else { Ok(Gid::from_raw(raw)) }
}

/// The umask of this process, read without setting it.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
}

thread_local! {
    static THREAD: ThreadCreds = const {
        ThreadCreds {
            is_dedicated: Cell::new(false),
            may_keep: Cell::new(false),
            in_use: Cell::new(false),
            foreign: RefCell::new(None),
        }
    };
}

struct ThreadCreds {
    is_dedicated: Cell<bool>,
    /// The current operation may leave its caller's credentials in place.
    may_keep: Cell<bool>,
    /// An [`AssumedCreds`] exists.
    in_use: Cell<bool>,
    foreign: RefCell<Option<ForeignCreds>>,
}

/// Credentials that the thread has assumed, and its own.
struct ForeignCreds {
    cred: Cred,
    own: Arc<Cred>,
}

/// While this value exists, its thread has a caller's credentials. Other threads keep theirs.
pub(crate) struct AssumedCreds(OfThread);

/// While this value exists, its thread executes nothing but file operations, so its credentials between them do not
/// matter.
#[must_use]
#[derive(Debug)]
pub struct DedicatedThread(OfThread);

/// While this value exists, the current operation calls [`restore`] before any work that needs the server's
/// credentials.
#[must_use]
pub(crate) struct CredsKept(OfThread);

/// Makes a type `!Send`: its values must be dropped on their thread.
type OfThread = PhantomData<*const ()>;

impl DedicatedThread {
    /// Declares this thread dedicated. Hold at most one value per thread: the first drop ends all.
    pub fn begin() -> DedicatedThread {
        THREAD.with(|thread| thread.is_dedicated.set(true));
        DedicatedThread(PhantomData)
    }

    /// Restores the thread's own credentials while it is idle.
    pub fn release(&self) {
        restore();
    }
}

impl Drop for DedicatedThread {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.is_dedicated.set(false));
        restore();
    }
}

/// Allows the current operation to leave its caller's credentials on a dedicated thread.
pub(crate) fn keep_creds() -> CredsKept {
    THREAD.with(|thread| thread.may_keep.set(true));
    CredsKept(PhantomData)
}

impl Drop for CredsKept {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.may_keep.set(false));
    }
}

/// Gives this thread of a process with the credentials `own` those of `cred`.
fn assume(cred: &Cred, own: &Arc<Cred>) -> Result<AssumedCreds> {
    THREAD.with(|thread| {
        let is_in_place = thread.foreign.borrow().as_ref().is_some_and(|foreign| foreign.cred == *cred);
        if !is_in_place {
            debug_assert!(!thread.in_use.get(), "two callers' credentials at once");
            restore();
            switch(thread, cred, own)?;
        }
        thread.in_use.set(true);
        Ok(AssumedCreds(PhantomData))
    })
}

fn switch(thread: &ThreadCreds, cred: &Cred, own: &Arc<Cred>) -> Result<()> {
    let (uid, gid, gids) = raw_ids(cred)?;
    // If this fails nothing has changed, and there is nothing to undo.
    set_thread_groups(&gids).nfs()?;
    thread.foreign.replace(Some(ForeignCreds { cred: cred.clone(), own: own.clone() }));
    let done = set_thread_res_gid(None, gid, None)
        // Last, because it drops the capability for the others. It also drops CAP_DAC_OVERRIDE, so the kernel checks
        // permissions as for a local user.
        .and_then(|()| set_thread_res_uid(None, uid, None));
    if done.is_err() {
        restore();
    }
    done.nfs()
}

impl Drop for AssumedCreds {
    fn drop(&mut self) {
        let stays = THREAD.with(|thread| {
            thread.in_use.set(false);
            thread.is_dedicated.get() && thread.may_keep.get()
        });
        if !stays {
            restore();
        }
    }
}

/// Restores the thread's own credentials, unless an [`AssumedCreds`] exists. Returns whether they changed.
///
/// Aborts the process if the kernel refuses: the thread would execute the next caller's operations with this caller's
/// rights.
pub(crate) fn restore() -> bool {
    let foreign = THREAD.with(|thread| if thread.in_use.get() { None } else { thread.foreign.take() });
    let Some(ForeignCreds { own, .. }) = foreign else { return false };
    let back = || -> Result<()> {
        let (uid, gid, gids) = raw_ids(&own)?;
        set_thread_res_uid(None, uid, None).nfs()?;
        set_thread_res_gid(None, gid, None).nfs()?;
        set_thread_groups(&gids).nfs()
    };
    if back().is_err() {
        std::process::abort();
    }
    true
}

fn raw_ids(cred: &Cred) -> Result<(Uid, Gid, Vec<Gid>)> {
    let gids = cred.gids.iter().map(|g| gid(*g)).collect::<Result<_>>()?;
    Ok((uid(cred.uid)?, gid(cred.gid)?, gids))
}
