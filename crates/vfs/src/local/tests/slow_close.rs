//! Closing a large file without a name takes as long as the disk needs to take back its room. Nobody else waits for that.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::local::fd_cache::open_dirs::{DirCache, VerifiedDir};
use crate::local::fd_cache::open_files::{FileCache, OpenFile, OpenMode};
use crate::local::handles::file_id::InodeKey;
use crate::local::tests::flush_failure::{disk, me};

const KEY: InodeKey = InodeKey { ino: 1, birth_ns: 0 };
/// How long a close takes here, and how long nobody has to wait.
const CLOSE: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// What takes long to close: a socket that lingers, since the other end takes nothing.
fn slow() -> (Arc<OwnedFd>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    set_socket_linger(&socket, Some(CLOSE)).unwrap();
    (Arc::new(socket.into()), listener.accept().unwrap().0)
}

/// Others can do what they do while `close` does what takes long.
fn nobody_waits(close: impl FnOnce() + Send, others: impl Fn()) {
    std::thread::scope(|scope| {
        let began = Instant::now();
        let closing = scope.spawn(close);
        while !closing.is_finished() {
            let asked = Instant::now();
            others();
            assert!(asked.elapsed() < WAIT_MAX, "{:?}", asked.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() > WAIT_MAX, "it did not take long");
    });
}

#[test]
fn the_graveyard_is_free_while_a_removed_file_is_closed() {
    let (_dir, disk, _) = disk();
    let (fd, _other) = slow();
    nobody_waits(|| disk.hold_inode(KEY, fd), || disk.disk.with_inode_reuse(|_| ()));
}

#[test]
fn open_files_can_be_had_while_a_removed_one_is_closed() {
    let files = FileCache::new(8, 8, Duration::from_secs(1));
    let (fd, _other) = slow();
    files.put(KEY, OpenMode::Read, OpenFile::new(fd, &me()));
    nobody_waits(|| assert!(files.close_without(|_| Ok(0))), || drop(files.held(other(2))));
}

/// Another file than [`KEY`].
fn other(ino: u64) -> InodeKey {
    InodeKey { ino, ..KEY }
}

/// Nobody waits who wants an open file while `close` makes a file leave those that are kept, of which there are so
/// many at most. It was the first one, and `files` others were opened then.
fn open_files_can_be_had_while(limit: usize, files: u64, close: impl FnOnce(&FileCache) + Send) {
    let open = FileCache::new(limit, 8, Duration::from_secs(1));
    let (fd, _other) = slow();
    open.put(KEY, OpenMode::Read, OpenFile::new(fd, &me()));
    (2..2 + files).for_each(|ino| open.put(other(ino), OpenMode::Read, quick()));
    nobody_waits(|| close(&open), || drop(open.held(other(99))));
}

fn quick() -> OpenFile {
    OpenFile::new(Arc::new(std::fs::File::open("/").unwrap().into()), &me())
}

#[test]
fn open_files_can_be_had_while_one_makes_room() {
    open_files_can_be_had_while(1, 0, |open| open.put(other(3), OpenMode::Read, quick()));
}

#[test]
fn open_files_can_be_had_while_one_is_opened_anew() {
    open_files_can_be_had_while(8, 0, |open| open.put(KEY, OpenMode::Read, quick()));
}

#[test]
fn open_files_can_be_had_while_one_is_given_up() {
    open_files_can_be_had_while(8, 0, |open| open.close(KEY));
}

#[test]
fn open_directories_can_be_had_while_one_is_closed() {
    let closes: [fn(&DirCache); 2] = [|dirs| dirs.close(KEY), |dirs| dirs.put(KEY, VerifiedDir::now(quick().fd))];
    for close in closes {
        let dirs = DirCache::new(8, Duration::from_secs(60));
        let (fd, _other) = slow();
        dirs.put(KEY, VerifiedDir::now(fd));
        nobody_waits(|| close(&dirs), || drop(dirs.get(other(2))));
    }
}

#[test]
fn flushes_begin_while_a_removed_file_that_owed_one_is_closed() {
    let files = FileCache::new(8, 8, Duration::from_secs(1));
    let (fd, _other) = slow();
    assert!(files.dirty.mark_dirty(KEY, &fd).is_none());
    drop(fd);
    nobody_waits(|| assert!(files.close_without(|_| Ok(0))), || drop(files.dirty.begin_flush(other(2))));
}

/// What takes a round trip to look at, and more.
fn look<T>(found: T) -> impl Fn(&OwnedFd) -> rustix::io::Result<T> + Send
where
    T: Copy + Send,
{
    move |_| {
        std::thread::sleep(CLOSE);
        Ok(found)
    }
}

#[test]
fn open_directories_can_be_had_while_it_is_looked_which_are_gone() {
    for links in [0, 1] {
        let dirs = DirCache::new(8, Duration::from_secs(60));
        dirs.put(KEY, VerifiedDir::now(quick().fd));
        nobody_waits(|| assert_eq!(dirs.close_without(look(links)), links == 0), || drop(dirs.get(other(2))));
        assert_eq!(dirs.get(KEY).is_some(), links == 1);
    }
}

#[test]
fn open_files_can_be_had_while_it_is_looked_which_are_gone() {
    for links in [0, 1] {
        let files = FileCache::new(8, 8, Duration::from_secs(1));
        files.put(KEY, OpenMode::Write, quick());
        nobody_waits(|| assert_eq!(files.close_without(look(links)), links == 0), || drop(files.held(other(2))));
        assert_eq!(files.held(KEY).is_some(), links == 1);
    }
}

#[test]
fn flushes_begin_while_it_is_looked_which_files_are_gone() {
    for links in [0, 1] {
        let files = FileCache::new(8, 8, Duration::from_secs(1));
        assert!(files.dirty.mark_dirty(KEY, &quick().fd).is_none());
        nobody_waits(
            || assert_eq!(files.close_without(look(links)), links == 0),
            || drop(files.dirty.begin_flush(other(2))),
        );
        assert_eq!(files.dirty.begin_flush(KEY).is_empty(), links == 0);
    }
}

#[test]
fn what_was_opened_anew_while_it_was_looked_at_stays() {
    let dirs = DirCache::new(8, Duration::from_secs(60));
    dirs.put(KEY, VerifiedDir::now(quick().fd));
    assert!(!dirs.close_without(|_| {
        dirs.put(KEY, VerifiedDir::now(quick().fd));
        Ok(0)
    }));
    assert!(dirs.get(KEY).is_some());
    let files = FileCache::new(8, 8, Duration::from_secs(1));
    files.put(KEY, OpenMode::Read, quick());
    assert!(!files.close_without(|_| {
        files.put(KEY, OpenMode::Read, quick());
        Ok(0)
    }));
    assert!(files.held(KEY).is_some());
}
