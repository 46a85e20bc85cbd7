//! As whom a thread acts, and for how long.
//!
//! To become a caller and oneself again takes six system calls, which is more work than all the rest of a LOOKUP.
//! So a thread that does nothing but operations of file systems ([`Devoted`]) stays its last caller
//! behind an operation that is [`lasting`], and the next call of the same user finds it there. Whatever must be done as
//! the server begins with [`own`].

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::errno::OrStatus;
use crate::{Cred, Result};

thread_local! {
    static THREAD: Thread = const {
        Thread { devoted: Cell::new(false), lasting: Cell::new(false), at_work: Cell::new(false), taken: RefCell::new(None) }
    };
}

struct Thread {
    devoted: Cell<bool>,
    /// The operation under way may leave it as its caller.
    lasting: Cell<bool>,
    /// An [`Assumed`] lives.
    at_work: Cell<bool>,
    taken: RefCell<Option<Taken>>,
}

/// An identity that was taken on, and the thread's own.
struct Taken {
    cred: Cred,
    own: Arc<Cred>,
}

/// While this lives, its thread, and no other, acts as somebody else.
pub(super) struct Assumed(OfThread);

/// While this lives, its thread does nothing but operations of file systems: who it acts as between them is
/// nobody's business.
#[must_use]
#[derive(Debug)]
pub struct Devoted(OfThread);

/// While this lives, an operation is under way that begins what it does as the server with [`own`].
#[must_use]
pub(super) struct Lasting(OfThread);

/// Must be dropped on its thread.
type OfThread = PhantomData<*const ()>;

impl Devoted {
    /// From now on. Beside another one on the same thread it is good for nothing: the first to go ends both.
    pub fn begin() -> Devoted {
        THREAD.with(|thread| thread.devoted.set(true));
        Devoted(PhantomData)
    }

    /// There is nothing to do: the thread is itself until there is.
    pub fn rest(&self) {
        own();
    }
}

impl Drop for Devoted {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.devoted.set(false));
        own();
    }
}

/// Begins such an operation.
pub(super) fn lasting() -> Lasting {
    THREAD.with(|thread| thread.lasting.set(true));
    Lasting(PhantomData)
}

impl Drop for Lasting {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.lasting.set(false));
    }
}

/// Acts as `cred` until the result is dropped, from the thread of a process that is `own`.
pub(super) fn assume(cred: &Cred, own: &Arc<Cred>) -> Result<Assumed> {
    THREAD.with(|thread| {
        let is_already = thread.taken.borrow().as_ref().is_some_and(|taken| taken.cred == *cred);
        if !is_already {
            debug_assert!(!thread.at_work.get(), "somebody else at the same time");
            self::own();
            become_caller(thread, cred, own)?;
        }
        thread.at_work.set(true);
        Ok(Assumed(PhantomData))
    })
}

fn become_caller(thread: &Thread, cred: &Cred, own: &Arc<Cred>) -> Result<()> {
    let (uid, gid, gids) = numbers(cred)?;
    // If this fails nothing has changed, and there is nothing to undo: who may not set groups could not set them back.
    set_thread_groups(&gids).nfs()?;
    // From here on a failure half-way is undone.
    thread.taken.replace(Some(Taken { cred: cred.clone(), own: own.clone() }));
    let done = set_thread_res_gid(None, gid, None)
        // Last: it takes the right to do the others away. Without CAP_DAC_OVERRIDE, which
        // goes with the effective uid, the kernel checks permissions as for a local user.
        .and_then(|()| set_thread_res_uid(None, uid, None));
    if done.is_err() {
        self::own();
    }
    done.nfs()
}

impl Drop for Assumed {
    fn drop(&mut self) {
        let stays = THREAD.with(|thread| {
            thread.at_work.set(false);
            thread.devoted.get() && thread.lasting.get()
        });
        if !stays {
            own();
        }
    }
}

/// From here on the thread acts as the server, unless an [`Assumed`] lives. Whether that is anything new.
pub(super) fn own() -> bool {
    let taken = THREAD.with(|thread| if thread.at_work.get() { None } else { thread.taken.take() });
    let Some(Taken { own, .. }) = taken else { return false };
    let back = || -> Result<()> {
        let (uid, gid, gids) = numbers(&own)?;
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

fn numbers(cred: &Cred) -> Result<(Uid, Gid, Vec<Gid>)> {
    use super::identity::{gid, uid};
    let gids = cred.gids.iter().map(|g| gid(*g)).collect::<Result<_>>()?;
    Ok((uid(cred.uid)?, gid(cred.gid)?, gids))
}
