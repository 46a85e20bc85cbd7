//! Descriptors as this process inherited them. The standard library opens /dev/null in the place of a closed standard
//! output before `main`, so this looks before that.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed (`>&-`) when the process started.
pub(crate) fn is_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

#[expect(
    unsafe_code,
    reason = "the loader calls this before the standard library's start code, and nothing safe is that early"
)]
mod before_main {
    use std::os::fd::BorrowedFd;

    use super::{Ordering, STDOUT_CLOSED};

    // SAFETY: the loader calls each function in this section once, before other threads exist.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    /// Only one system call and one atomic store: nothing of the standard library is initialised yet.
    extern "C" fn look() {
        // SAFETY: fcntl(F_GETFD) takes any number, and nothing keeps the descriptor.
        let stdout = unsafe { BorrowedFd::borrow_raw(1) };
        if rustix::io::fcntl_getfd(stdout).is_err() {
            STDOUT_CLOSED.store(true, Ordering::Relaxed);
        }
    }
}
