//! Closing a large removed file takes as long as the disk needs to free its blocks. No other request waits for that,
//! nor for the examination of cached descriptors.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::{disk, me};
use crate::local::fd_cache::open_dirs::{DirCache, VerifiedDir};
use crate::local::fd_cache::open_files::{FileCache, OpenFile, OpenMode};
use crate::local::inode::stat::InodeKey;

const KEY: InodeKey = InodeKey { ino: 1, birth_ns: 0 };
const OTHER: InodeKey = InodeKey { ino: 2, birth_ns: 0 };
const FOREVER: Duration = Duration::from_secs(3600);

/// A descriptor whose close blocks until the peer is dropped: a lingering socket whose peer reads nothing.
struct BlockingFd {
    fd: Arc<OwnedFd>,
    peer: TcpStream,
}

fn blocking_fd() -> BlockingFd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    BlockingFd { fd: Arc::new(socket.into()), peer: listener.accept().unwrap().0 }
}

fn plain_fd() -> Arc<OwnedFd> {
    Arc::new(std::fs::File::open("/").unwrap().into())
}

fn file(fd: Arc<OwnedFd>) -> OpenFile {
    OpenFile::new(fd, &me())
}

fn files(open_max: usize) -> FileCache {
    FileCache::new(open_max, 8, FOREVER)
}

/// Runs `others` while `close` closes the blocking descriptor. If they waited for it, the test would hang for 10
/// minutes and then fail.
fn runs_during_close(peer: TcpStream, close: impl FnOnce() + Send, others: impl Fn()) {
    std::thread::scope(|scope| {
        let closing = scope.spawn(close);
        for _ in 0..20 {
            others();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!closing.is_finished(), "the close did not block");
        drop(peer);
    });
}

#[test]
fn inode_reuse_guard_is_free_during_a_close() {
    let (_dir, disk, _) = disk();
    let BlockingFd { fd, peer } = blocking_fd();
    let close = || disk.disk.with_inode_reuse(|guard| guard.hold(KEY, fd));
    runs_during_close(peer, close, || disk.disk.with_inode_reuse(|_| ()));
}

#[test]
fn file_cache_is_free_during_a_close() {
    type Close = fn(&FileCache);
    let closes: [(&str, usize, Close); 4] = [
        ("removed", 8, |files| assert!(files.close_unlinked(|_| Ok(0)))),
        ("evicted", 1, |files| files.put(OTHER, OpenMode::Read, file(plain_fd()))),
        ("replaced", 8, |files| files.put(KEY, OpenMode::Read, file(plain_fd()))),
        ("closed", 8, |files| files.close(KEY)),
    ];
    for (_, open_max, close) in closes {
        let files = files(open_max);
        let BlockingFd { fd, peer } = blocking_fd();
        files.put(KEY, OpenMode::Read, file(fd));
        runs_during_close(peer, || close(&files), || drop(files.any_fd(OTHER)));
    }
}

#[test]
fn dir_cache_is_free_during_a_close() {
    let closes: [fn(&DirCache); 2] = [|dirs| dirs.close(KEY), |dirs| dirs.put(KEY, VerifiedDir::now(plain_fd()))];
    for close in closes {
        let dirs = DirCache::new(8, FOREVER);
        let BlockingFd { fd, peer } = blocking_fd();
        dirs.put(KEY, VerifiedDir::now(fd));
        runs_during_close(peer, || close(&dirs), || drop(dirs.get(OTHER)));
    }
}

#[test]
fn dirty_files_are_free_during_a_close() {
    let files = files(8);
    let BlockingFd { fd, peer } = blocking_fd();
    assert!(files.dirty.mark_dirty(KEY, &fd).is_none());
    drop(fd);
    let close = || assert!(files.close_unlinked(|_| Ok(0)));
    runs_during_close(peer, close, || drop(files.dirty.begin_flush(OTHER)));
}

/// Runs `others` while `examine` examines a descriptor, and then returns this link count.
fn runs_during_stat(
    links: u32,
    examine: impl FnOnce(&dyn Fn(&OwnedFd) -> rustix::io::Result<u32>) -> bool + Send,
    others: impl Fn(),
) {
    let ((began, begun), (finish, finished)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let examining = scope.spawn(move || {
            let stat = |_: &OwnedFd| {
                began.send(()).unwrap();
                finished.recv().unwrap();
                Ok(links)
            };
            examine(&stat)
        });
        begun.recv().unwrap();
        others();
        finish.send(()).unwrap();
        assert_eq!(examining.join().unwrap(), links == 0, "whether any was closed");
    });
}

#[test]
fn caches_are_free_while_a_descriptor_is_examined() {
    for links in [0, 1] {
        let dirs = DirCache::new(8, FOREVER);
        dirs.put(KEY, VerifiedDir::now(plain_fd()));
        runs_during_stat(links, |stat| dirs.close_unlinked(stat), || drop(dirs.get(OTHER)));
        assert_eq!(dirs.get(KEY).is_some(), links == 1);
        let open = files(8);
        open.put(KEY, OpenMode::Write, file(plain_fd()));
        runs_during_stat(links, |stat| open.close_unlinked(stat), || drop(open.any_fd(OTHER)));
        assert_eq!(open.any_fd(KEY).is_some(), links == 1);
        let dirty = files(8);
        assert!(dirty.dirty.mark_dirty(KEY, &plain_fd()).is_none());
        runs_during_stat(links, |stat| dirty.close_unlinked(stat), || drop(dirty.dirty.begin_flush(OTHER)));
        assert_eq!(dirty.dirty.begin_flush(KEY).is_empty(), links == 0);
    }
}

#[test]
fn object_reopened_while_examined_stays() {
    let dirs = DirCache::new(8, FOREVER);
    dirs.put(KEY, VerifiedDir::now(plain_fd()));
    assert!(!dirs.close_unlinked(|_| {
        dirs.put(KEY, VerifiedDir::now(plain_fd()));
        Ok(0)
    }));
    assert!(dirs.get(KEY).is_some());
    let files = files(8);
    files.put(KEY, OpenMode::Read, file(plain_fd()));
    assert!(!files.close_unlinked(|_| {
        files.put(KEY, OpenMode::Read, file(plain_fd()));
        Ok(0)
    }));
    assert!(files.any_fd(KEY).is_some());
}
