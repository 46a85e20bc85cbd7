//! References to cached descriptors, to examine them without the cache's lock.
//!
//! On a network file system each stat may take a round trip, and other requests need the cache meanwhile. Each
//! descriptor is held only for its own stat: an open object that is removed may get a hidden name
//! ([`silly_renames`](crate::local::inode::fs_caps::FsCaps::silly_renames)).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// A cached descriptor, which the cache may close at any time.
pub(crate) struct WeakFd<K> {
    pub(crate) key: K,
    fd: Weak<OwnedFd>,
}

impl<K> WeakFd<K> {
    pub(crate) fn new(key: K, fd: &Arc<OwnedFd>) -> WeakFd<K> {
        WeakFd { key, fd: Arc::downgrade(fd) }
    }

    /// Whether this refers to `fd`.
    pub(crate) fn is(&self, fd: &Arc<OwnedFd>) -> bool {
        std::ptr::eq(self.fd.as_ptr(), Arc::as_ptr(fd))
    }
}

/// Returns the descriptors for which `wanted` is true. Skips those that are closed meanwhile.
pub(crate) fn filter_open<K>(fds: Vec<WeakFd<K>>, wanted: impl Fn(&OwnedFd) -> bool) -> Vec<WeakFd<K>> {
    fds.into_iter().filter(|weak| weak.fd.upgrade().is_some_and(|fd| wanted(&fd))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_open_holds_one_fd_at_a_time() {
        let fds: Vec<Arc<OwnedFd>> = (0..2).map(|_| Arc::new(std::fs::File::open("/").unwrap().into())).collect();
        let mut weak: Vec<_> = (0..).zip(&fds).map(|(key, fd)| WeakFd::new(key, fd)).collect();
        weak.push(WeakFd::new(2, &Arc::new(std::fs::File::open("/").unwrap().into())));
        let selected = filter_open(weak, |_| {
            assert_eq!(fds.iter().map(Arc::strong_count).sum::<usize>(), 3);
            true
        });
        assert_eq!(selected.iter().map(|fd| fd.key).collect::<Vec<_>>(), [0, 1], "the closed one is skipped");
        assert!(selected[0].is(&fds[0]) && !selected[0].is(&fds[1]));
    }
}
