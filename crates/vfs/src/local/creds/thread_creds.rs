//! As whom a thread acts, and for how long.
//!
//! To become a caller and oneself again takes six system calls, which is more work than all the rest of a LOOKUP.
//! So a thread that does nothing but operations of file systems ([`DedicatedThread`]) stays its last caller
//! behind an operation that is [`keep_creds`], and the next call of the same user finds it there. Whatever must be done as
//! the server begins with [`own`].

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::local::sys::errno::OrStatus;
use crate::{Cred, Result};

thread_local! {
    static THREAD: Thread = const {
        Thread { dedicated: Cell::new(false), keep_creds: Cell::new(false), in_use: Cell::new(false), impersonation: RefCell::new(None) }
    };
}

struct Thread {
    dedicated: Cell<bool>,
    /// The operation under way may leave it as its caller.
    keep_creds: Cell<bool>,
    /// An [`AssumedCreds`] lives.
    in_use: Cell<bool>,
    impersonation: RefCell<Option<Impersonation>>,
}

/// An identity that was impersonation on, and the thread's own.
struct Impersonation {
    cred: Cred,
    own: Arc<Cred>,
}

/// While this lives, its thread, and no other, acts as somebody else.
pub(crate) struct AssumedCreds(OfThread);

/// While this lives, its thread does nothing but operations of file systems: who it acts as between them is
/// nobody's business.
#[must_use]
#[derive(Debug)]
pub struct DedicatedThread(OfThread);

/// While this lives, an operation is under way that begins what it does as the server with [`own`].
#[must_use]
pub(crate) struct CredsKept(OfThread);

/// Must be dropped on its thread.
type OfThread = PhantomData<*const ()>;

impl DedicatedThread {
    /// From now on. Beside another one on the same thread it is good for nothing: the first to go ends both.
    pub fn begin() -> DedicatedThread {
        THREAD.with(|thread| thread.dedicated.set(true));
        DedicatedThread(PhantomData)
    }

    /// There is nothing to do: the thread is itself until there is.
    pub fn rest(&self) {
        restore();
    }
}

impl Drop for DedicatedThread {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.dedicated.set(false));
        restore();
    }
}

/// Begins such an operation.
pub(crate) fn keep_creds() -> CredsKept {
    THREAD.with(|thread| thread.keep_creds.set(true));
    CredsKept(PhantomData)
}

impl Drop for CredsKept {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.keep_creds.set(false));
    }
}

/// Acts as `cred` until the result is dropped, from the thread of a process that is `own`.
pub(crate) fn assume(cred: &Cred, own: &Arc<Cred>) -> Result<AssumedCreds> {
    THREAD.with(|thread| {
        let is_already =
            thread.impersonation.borrow().as_ref().is_some_and(|impersonation| impersonation.cred == *cred);
        if !is_already {
            debug_assert!(!thread.in_use.get(), "somebody else at the same time");
            self::restore();
            impersonate(thread, cred, own)?;
        }
        thread.in_use.set(true);
        Ok(AssumedCreds(PhantomData))
    })
}

fn impersonate(thread: &Thread, cred: &Cred, own: &Arc<Cred>) -> Result<()> {
    let (uid, gid, gids) = raw_ids(cred)?;
    // If this fails nothing has changed, and there is nothing to undo: who may not set groups could not set them back.
    set_thread_groups(&gids).nfs()?;
    // From here on a failure half-way is undone.
    thread.impersonation.replace(Some(Impersonation { cred: cred.clone(), own: own.clone() }));
    let done = set_thread_res_gid(None, gid, None)
        // Last: it takes the right to do the others away. Without CAP_DAC_OVERRIDE, which
        // goes with the effective uid, the kernel checks permissions as for a local user.
        .and_then(|()| set_thread_res_uid(None, uid, None));
    if done.is_err() {
        self::restore();
    }
    done.nfs()
}

impl Drop for AssumedCreds {
    fn drop(&mut self) {
        let stays = THREAD.with(|thread| {
            thread.in_use.set(false);
            thread.dedicated.get() && thread.keep_creds.get()
        });
        if !stays {
            restore();
        }
    }
}

/// From here on the thread acts as the server, unless an [`AssumedCreds`] lives. Whether that is anything new.
pub(crate) fn restore() -> bool {
    let impersonation = THREAD.with(|thread| if thread.in_use.get() { None } else { thread.impersonation.take() });
    let Some(Impersonation { own, .. }) = impersonation else { return false };
    let back = || -> Result<()> {
        let (uid, gid, gids) = raw_ids(&own)?;
        set_thread_res_uid(None, uid, None).nfs()?;
        set_thread_res_gid(None, gid, None).nfs()?;
        set_thread_groups(&gids).nfs()
    };
    if back().is_err() {
        // A thread that goes on as the wrong user would do the next caller's work with
        // this caller's rights.
        std::process::abort();
    }
    true
}

fn raw_ids(cred: &Cred) -> Result<(Uid, Gid, Vec<Gid>)> {
    use crate::local::creds::caller_creds::{gid, uid};
    let gids = cred.gids.iter().map(|g| gid(*g)).collect::<Result<_>>()?;
    Ok((uid(cred.uid)?, gid(cred.gid)?, gids))
}
