//! Looking at what is kept open to see whether it is to be closed.
//!
//! On a network file system each look may be a round trip, so nobody is to wait for them who wants something else that is
//! open; and each is held for its own look alone, since what is open when it is removed may be hidden for that
//! ([`FsCaps::silly_renames`](crate::local::inode::fs_caps::FsCaps)).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// Something that is open, and that others may close.
pub(crate) struct WeakFd<K> {
    pub(crate) key: K,
    fd: Weak<OwnedFd>,
}

impl<K> WeakFd<K> {
    pub(crate) fn new(key: K, fd: &Arc<OwnedFd>) -> WeakFd<K> {
        WeakFd { key, fd: Arc::downgrade(fd) }
    }

    /// Whether it is open by this descriptor.
    pub(crate) fn is(&self, fd: &Arc<OwnedFd>) -> bool {
        std::ptr::eq(self.fd.as_ptr(), Arc::as_ptr(fd))
    }
}

/// Those that `wanted` says yes to. What is closed meanwhile is not among them.
pub(crate) fn filter_open<K>(open: Vec<WeakFd<K>>, wanted: impl Fn(&OwnedFd) -> bool) -> Vec<WeakFd<K>> {
    open.into_iter().filter(|open| open.fd.upgrade().is_some_and(|fd| wanted(&fd))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_held_for_its_own_look_alone_and_what_is_closed_meanwhile_is_left_out() {
        let fds: Vec<Arc<OwnedFd>> = (0..2).map(|_| Arc::new(std::fs::File::open("/").unwrap().into())).collect();
        let mut open: Vec<_> = (0..).zip(&fds).map(|(key, fd)| WeakFd::new(key, fd)).collect();
        open.push(WeakFd::new(2, &Arc::new(std::fs::File::open("/").unwrap().into())));
        let selected = filter_open(open, |_| {
            assert_eq!(fds.iter().map(Arc::strong_count).sum::<usize>(), 3);
            true
        });
        assert_eq!(selected.iter().map(|open| open.key).collect::<Vec<_>>(), [0, 1]);
        assert!(selected[0].is(&fds[0]) && !selected[0].is(&fds[1]));
    }
}
