//! What a mount found, noted for the start of the next one without the server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use remora_client::Transport;
use remora_wire::nfs3::{Attr, FH_MAX, Fh};
use remora_wire::{Reader, Xdr};
use serde::{Deserialize, Serialize};

use super::store::StoreKey;
use crate::client::{Blocks, EarlierMount};

/// Longest note in bytes.
const NOTE_MAX: u64 = 16 << 10;

/// The server, the mounted directory and its attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfflineNote {
    pub mount: EarlierMount,
    pub attr: Attr,
    /// Largest blocks that the server takes.
    pub blocks_max: Blocks,
}

/// Its stored form.
#[derive(Serialize, Deserialize)]
struct Stored {
    server: SocketAddr,
    transport: StoredTransport,
    root: Vec<u8>,
    /// The attributes in XDR.
    attr: Vec<u8>,
    read_max: u32,
    write_max: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredTransport {
    Udp,
    Tcp,
    Atp,
}

impl OfflineNote {
    /// The note of the export of `key` in `dir`, if there is one that can be read.
    pub fn load(dir: &Path, key: &StoreKey) -> Option<OfflineNote> {
        let path = path(dir, key);
        if fs::metadata(&path).ok()?.len() > NOTE_MAX {
            return None;
        }
        let stored: Stored = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        if stored.root.len() > FH_MAX as usize {
            return None;
        }
        let transport = match stored.transport {
            StoredTransport::Udp => Transport::Udp,
            StoredTransport::Tcp => Transport::Tcp,
            StoredTransport::Atp => Transport::Atp,
        };
        Some(OfflineNote {
            mount: EarlierMount { server: stored.server, transport, root: Fh(stored.root.into()) },
            attr: Attr::decode(&mut Reader::new(stored.attr.into())).ok()?,
            blocks_max: Blocks { read: stored.read_max, write: stored.write_max },
        })
    }

    /// Writes it for the export of `key` to `dir`, for this user alone: a file handle grants access to its holder.
    pub fn save(&self, dir: &Path, key: &StoreKey) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let EarlierMount { server, transport, root } = &self.mount;
        let stored = Stored {
            server: *server,
            transport: match transport {
                Transport::Udp => StoredTransport::Udp,
                Transport::Tcp => StoredTransport::Tcp,
                Transport::Atp => StoredTransport::Atp,
            },
            root: root.0.to_vec(),
            attr: self.attr.to_bytes().to_vec(),
            read_max: self.blocks_max.read,
            write_max: self.blocks_max.write,
        };
        let path = path(dir, key);
        let new = path.with_extension(format!("new-{}", std::process::id()));
        // One that is there already is left over.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(&serde_json::to_vec(&stored)?).and_then(|()| file.sync_data());
        let replaced = written.and_then(|()| fs::rename(&new, &path)).and_then(|()| File::open(dir)?.sync_all());
        if replaced.is_err() {
            let _ = fs::remove_file(&new);
        }
        replaced
    }
}

fn path(dir: &Path, key: &StoreKey) -> PathBuf {
    dir.join(format!("{}.json", key.name()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;
    use crate::client::Target;

    fn note(transport: Transport) -> OfflineNote {
        let time = NfsTime { secs: 5, nanos: 6 };
        let attr = Attr {
            kind: FileType::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 10,
            used: 20,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 7,
            fileid: 8,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let root = Fh(b"root\xff".as_slice().into());
        let mount = EarlierMount { server: "10.0.0.1:2049".parse().unwrap(), transport, root };
        OfflineNote { mount, attr, blocks_max: Blocks { read: 1 << 20, write: 65_536 } }
    }

    #[test]
    fn saved_note_is_loaded_and_private() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("mounts");
        let key = StoreKey::of(&Target::parse("nfs://nas/srv").unwrap());
        assert_eq!(OfflineNote::load(&dir, &key), None);
        for transport in [Transport::Udp, Transport::Tcp, Transport::Atp] {
            note(transport).save(&dir, &key).unwrap();
            assert_eq!(OfflineNote::load(&dir, &key), Some(note(transport)));
        }
        let path = path(&dir, &key);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        let other = StoreKey::of(&Target::parse("nfs://nas/other").unwrap());
        assert_eq!(OfflineNote::load(&dir, &other), None);
        let text = fs::read_to_string(&path).unwrap();
        for damaged in ["", "{}", &text[..text.len() / 2], &"x".repeat(20_000)] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(OfflineNote::load(&dir, &key), None);
        }
    }
}
