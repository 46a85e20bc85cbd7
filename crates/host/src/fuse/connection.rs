//! The connection between the kernel and a file system.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use remora_wire::fuse::{
    Encoded, Errno, Header, InitOut, Notification, Operation, Reply, Request, RequestError, VersionError, Wanted,
    encode_error, negotiate, opcode,
};
use rustix::buffer::spare_capacity;
use rustix::io::Errno as SystemError;

use super::error::FuseError;
use super::interrupt::InterruptWatch;
use super::mount::{Attached, attach, detach};
use super::mount_table::fuse_mount_at;
use super::notifier::NotificationQueue;
use super::options::MountOptions;
use super::outstanding::Outstanding;

/// Bytes of a request besides the data of a WRITE: headers, names, a batch of FORGETs.
const OVERHEAD: usize = 8192;
/// Length from which a request keeps the buffer that it was read into. A shorter one is copied.
const KEEP_BUFFER: usize = 256 * 1024;

/// A mounted file system's connection to the kernel. Dropping it unmounts.
pub struct Connection {
    device: OwnedFd,
    dir: PathBuf,
    /// The connection's number in the table of mounts.
    number: Option<u32>,
    init: InitOut,
    is_mounted: AtomicBool,
    outstanding: Outstanding,
    interrupts: InterruptWatch,
    notifications: NotificationQueue,
}

impl Connection {
    /// Mounts at `dir` and agrees with the kernel on version and features. Calls to the file system wait until
    /// [`run`](Connection::run) hands them over.
    pub fn mount(dir: &Path, options: &MountOptions) -> Result<Connection, FuseError> {
        let Attached { device, dir } = attach(dir, options)?;
        let init = answer_init(&device, &dir).inspect_err(|_| {
            // The first error is the one to report.
            let _ = detach(&dir);
        })?;
        let number = fuse_mount_at(&dir).ok().flatten().map(|mount| mount.connection);
        Ok(Connection {
            device,
            dir,
            number,
            init,
            is_mounted: AtomicBool::new(true),
            outstanding: Outstanding::default(),
            interrupts: InterruptWatch::default(),
            notifications: NotificationQueue::new(init.can_inc_epoch()),
        })
    }

    /// The directory of the mount, without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Limits and features agreed on with the kernel.
    pub fn init(&self) -> &InitOut {
        &self.init
    }

    /// Hands requests to `handler` on `threads` threads until the file system is unmounted. The handler must not block.
    /// It gets an [`Operation::Interrupt`] only for a request whose caller has been killed, and again every 20 ms until
    /// that request is answered. It should end with EINTR; until it has arrived, the interrupt has no object.
    pub fn run(&self, handler: impl Fn(Request) + Sync, threads: usize) -> Result<(), FuseError> {
        let handler = &handler;
        let spawn = |name: &str| thread::Builder::new().name(name.into());
        let failed = |source| FuseError::Thread { dir: self.dir.clone(), source };
        thread::scope(|scope| {
            // The threads end before the scope does, in whatever way this one leaves it.
            let _end = EndOnDrop(self);
            let interrupts = || self.interrupts.run(|unique| handler(killed(unique)));
            spawn("fuse-interrupt").spawn_scoped(scope, interrupts).map_err(failed)?;
            spawn("fuse-notify").spawn_scoped(scope, || self.write_notifications()).map_err(failed)?;
            let mut readers = Vec::new();
            for _ in 1..threads {
                let reader = spawn("fuse-read").spawn_scoped(scope, || self.read_requests(handler));
                readers.push(reader.map_err(failed)?);
            }
            self.read_requests(handler)?;
            for reader in readers {
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(())
        })
    }

    /// Answers request `unique`. A reply that the kernel refuses becomes EIO.
    pub fn reply(&self, unique: u64, result: Result<Reply, Errno>) {
        let written = match result {
            Ok(reply) => self.write(&reply.encode(unique)),
            Err(errno) => self.write_error(unique, errno),
        };
        match written {
            // The caller was killed before the request was read by anybody, or the mount is gone.
            Ok(()) | Err(SystemError::NOENT | SystemError::NODEV | SystemError::CONNABORTED | SystemError::PERM) => {}
            Err(e) => {
                tracing::error!(unique, error = %io::Error::from(e), "the kernel refuses a reply");
                let _ = self.write_error(unique, Errno::EIO);
            }
        }
        self.interrupts.forget(unique);
        self.outstanding.end(unique);
        self.notifications.wake();
    }

    /// Queues a notification. It is written once no request on its nodes is outstanding.
    pub fn notify(&self, notification: Notification) {
        self.notifications.push(notification);
    }

    /// Unmounts at once. Programs that have files open there keep them, and [`run`](Connection::run) serves them until
    /// they are closed.
    pub fn unmount(&self) -> Result<(), FuseError> {
        if !self.is_mounted.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let failed = |e: io::Error| FuseError::Unmount { dir: self.dir.clone(), message: e.to_string() };
        match fuse_mount_at(&self.dir).map_err(failed)? {
            Some(mount) if Some(mount.connection) == self.number => detach(&self.dir),
            // Somebody else unmounted it, and may have mounted something there.
            _ => Ok(()),
        }
    }

    /// Reads and hands over requests until the file system is unmounted.
    fn read_requests(&self, handler: &(impl Fn(Request) + Sync)) -> Result<(), FuseError> {
        let mut buffer = Vec::new();
        while let Some(message) = self.read(&mut buffer)? {
            match Request::decode(&message) {
                Ok(Request { op: Operation::Interrupt { unique }, .. }) => {
                    if let Some(pid) = self.outstanding.interrupt(unique) {
                        self.interrupts.watch(unique, pid);
                    }
                }
                Ok(request) => {
                    if request.needs_reply() && self.outstanding.begin(&request) {
                        self.interrupts.watch(request.header.unique, request.header.pid);
                    }
                    handler(request);
                }
                Err(e) => self.refuse(&message, &e),
            }
        }
        self.is_mounted.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The next message; `None` once the file system is unmounted. A long one takes the buffer along.
    fn read(&self, buffer: &mut Vec<u8>) -> Result<Option<Bytes>, FuseError> {
        loop {
            buffer.clear();
            buffer.reserve_exact(self.init.max_write as usize + OVERHEAD);
            match rustix::io::read(&self.device, spare_capacity(buffer)) {
                Ok(len) if len >= KEEP_BUFFER => return Ok(Some(std::mem::take(buffer).into())),
                Ok(_) => return Ok(Some(Bytes::copy_from_slice(buffer))),
                // ENOENT: the request was aborted while it was copied.
                Err(SystemError::INTR | SystemError::AGAIN | SystemError::NOENT) => {}
                Err(SystemError::NODEV | SystemError::CONNABORTED) => return Ok(None),
                Err(e) => return Err(FuseError::Read { dir: self.dir.clone(), source: e.into() }),
            }
        }
    }

    /// Answers a request that cannot be decoded, if the kernel waits for a reply.
    fn refuse(&self, message: &Bytes, error: &RequestError) {
        let Ok(header) = Header::decode(message) else {
            return tracing::error!(%error, len = message.len(), "a message of the kernel without a header");
        };
        tracing::error!(%error, opcode = header.opcode, len = message.len(), "a request that cannot be decoded");
        if !matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY) {
            self.reply(header.unique, Err(Errno::EIO));
        }
    }

    fn write_notifications(&self) {
        while let Some(notification) = self.notifications.next(|node| self.outstanding.is_held(node)) {
            match rustix::io::write(&self.device, &notification.encode()) {
                // The kernel does not know the node or name, or a program uses the deleted object.
                Ok(_) | Err(SystemError::NOENT | SystemError::NOTDIR | SystemError::NOTEMPTY | SystemError::BUSY) => {}
                Err(SystemError::NODEV | SystemError::NOTCONN | SystemError::CONNABORTED | SystemError::PERM) => return,
                Err(e) => tracing::debug!(?notification, error = %io::Error::from(e), "the kernel refuses"),
            }
        }
    }

    fn write(&self, message: &Encoded) -> Result<(), SystemError> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, &message.slices())).map(drop)
    }

    fn write_error(&self, unique: u64, errno: Errno) -> Result<(), SystemError> {
        rustix::io::retry_on_intr(|| rustix::io::write(&self.device, &encode_error(unique, errno))).map(drop)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(%error, "a mount stays behind");
        }
    }
}

/// Ends the threads of a connection.
struct EndOnDrop<'a>(&'a Connection);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        // Readers end with the mount.
        if let Err(error) = self.0.unmount() {
            tracing::error!(%error, "the threads of the mount do not end");
        }
        self.0.interrupts.stop();
        self.0.notifications.stop();
    }
}

/// The order to end request `unique`.
fn killed(unique: u64) -> Request {
    let header = Header { unique: 0, nodeid: 0, uid: 0, gid: 0, pid: 0, opcode: opcode::INTERRUPT };
    Request { header, op: Operation::Interrupt { unique } }
}

/// Reads and answers INIT, which the kernel sends first.
fn answer_init(device: &OwnedFd, dir: &Path) -> Result<InitOut, FuseError> {
    let read_failed = |e: SystemError| FuseError::Read { dir: dir.to_owned(), source: e.into() };
    let version = |source: VersionError| FuseError::Version { dir: dir.to_owned(), source };
    let mut buffer = Vec::with_capacity(Wanted::default().max_write as usize + OVERHEAD);
    rustix::io::retry_on_intr(|| rustix::io::read(device, spare_capacity(&mut buffer))).map_err(read_failed)?;
    let request =
        Request::decode(&buffer.into()).map_err(|source| FuseError::FirstRequest { dir: dir.to_owned(), source })?;
    let unique = request.header.unique;
    let Operation::Init(offer) = request.op else { return Err(read_failed(SystemError::PROTO)) };
    let page_size = rustix::param::page_size() as u32;
    match negotiate(&offer, &Wanted { page_size, ..Wanted::default() }) {
        Ok(init) => {
            let message = Reply::Init(init).encode(unique);
            rustix::io::retry_on_intr(|| rustix::io::writev(device, &message.slices())).map_err(read_failed)?;
            Ok(init)
        }
        Err(e) => {
            let _ = rustix::io::write(device, &encode_error(unique, Errno::EPROTO));
            Err(version(e))
        }
    }
}
