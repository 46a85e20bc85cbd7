//! A file system with one directory and one file. LOOKUPs of other names that begin with `held` get no answer until
//! the command `release`, or until their caller is killed.

use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use remora_host::fuse::{Connection, MountOptions};
use remora_wire::fuse::{
    Attr, DirectoryPage, Entry, Errno, FileKind, Notification, Opened, Operation, ROOT_ID, Reply, Request, StatFs,
};

/// Names the directory of the mount, for the process of the file system.
pub(crate) const DIR: &str = "REMORA_TEST_FUSE_DIR";

const FILE_ID: u64 = 2;
const FILE_NAME: &str = "file";

/// The bytes of the file: more than one READ.
pub(crate) fn content() -> Vec<u8> {
    (0..400_000u32).flat_map(u32::to_ne_bytes).collect()
}

/// Mounts at `dir` and serves until the mount or the parent process ends.
pub(crate) fn serve(dir: &Path) {
    let options = MountOptions { fsname: "test:/export".into(), ..MountOptions::default() };
    let connection = match Connection::mount(dir, &options) {
        Ok(connection) => Arc::new(connection),
        Err(e) => return println!("{e}"),
    };
    println!("ready");
    let file_system =
        Arc::new(FileSystem { connection: connection.clone(), content: content().into(), held: Mutex::default() });
    let commands = file_system.clone();
    std::thread::spawn(move || commands.obey());
    connection.run(|request| file_system.handle(request), 3).unwrap();
    println!("unmounted");
}

struct FileSystem {
    connection: Arc<Connection>,
    content: Bytes,
    /// Requests without an answer.
    held: Mutex<Vec<u64>>,
}

impl FileSystem {
    /// Obeys the commands on standard input.
    fn obey(&self) {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match &*line {
                "release" => {
                    let held = std::mem::take(&mut *self.held.lock().unwrap());
                    println!("released {}", held.len());
                    held.into_iter().for_each(|unique| self.connection.reply(unique, Err(Errno::ENOENT)));
                }
                "notify" => {
                    let name = Bytes::from_static(FILE_NAME.as_bytes());
                    self.connection.notify(Notification::InvalEntry { parent: ROOT_ID, name, expire_only: false });
                    self.connection.notify(Notification::InvalInode { nodeid: ROOT_ID, offset: 0, len: 0 });
                    println!("notified");
                }
                "unmount" => self.connection.unmount().unwrap(),
                other => panic!("no command {other}"),
            }
        }
        std::process::exit(0);
    }

    fn handle(&self, request: Request) {
        let Request { header, op } = request;
        match op {
            Operation::Interrupt { unique } => {
                let mut held = self.held.lock().unwrap();
                if let Some(index) = held.iter().position(|h| *h == unique) {
                    held.remove(index);
                    println!("interrupted");
                    self.connection.reply(unique, Err(Errno::EINTR));
                }
            }
            Operation::Lookup { name } if name.starts_with(b"held") => {
                self.held.lock().unwrap().push(header.unique);
                println!("held by {}", header.pid);
            }
            Operation::Forget { .. } | Operation::BatchForget(_) => {}
            op => self.connection.reply(header.unique, self.answer(header.nodeid, op)),
        }
    }

    fn answer(&self, nodeid: u64, op: Operation) -> Result<Reply, Errno> {
        Ok(match op {
            Operation::Lookup { name } if name == FILE_NAME => Reply::Entry(self.entry(FILE_ID)),
            Operation::Lookup { .. } => return Err(Errno::ENOENT),
            Operation::GetAttr { .. } => Reply::Attr { attr: self.attr(nodeid), valid: Duration::ZERO },
            Operation::Open { .. } | Operation::OpenDir { .. } => Reply::Opened(Opened::default()),
            Operation::Read { offset, size, .. } => {
                let start = self.content.len().min(offset as usize);
                Reply::Data(self.content.slice(start..self.content.len().min(start + size as usize)))
            }
            Operation::ReadDir { offset, size, .. } => {
                let mut page = DirectoryPage::new(size);
                assert!(offset > 0 || page.push(FILE_ID, 1, FileKind::Regular, FILE_NAME.as_bytes()));
                Reply::Directory(page.into_bytes())
            }
            Operation::ReadDirPlus { offset, size, .. } => {
                let mut page = DirectoryPage::new(size);
                assert!(offset > 0 || page.push_plus(&self.entry(FILE_ID), 1, FILE_NAME.as_bytes()));
                Reply::Directory(page.into_bytes())
            }
            Operation::StatFs => Reply::StatFs(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() }),
            Operation::Flush { .. } | Operation::Release { .. } | Operation::ReleaseDir { .. } => Reply::Empty,
            _ => return Err(Errno::ENOSYS),
        })
    }

    fn entry(&self, nodeid: u64) -> Entry {
        Entry { nodeid, attr: self.attr(nodeid), ..Entry::default() }
    }

    fn attr(&self, ino: u64) -> Attr {
        let attr = Attr { ino, nlink: 1, blksize: 4096, ..Attr::default() };
        match ino {
            ROOT_ID => Attr { mode: FileKind::Directory.mode_bits() | 0o755, nlink: 2, ..attr },
            _ => Attr { mode: FileKind::Regular.mode_bits() | 0o644, size: self.content.len() as u64, ..attr },
        }
    }
}
