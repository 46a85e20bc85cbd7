//! `--verify`: both files read again and compared by their hashes.

use std::fs::File;
use std::io::{self, Read};

use remora_host::client::ClientError;
use rustix::fs::{Advice, fadvise};

use super::in_order;
use crate::remote::{Node, Remote};

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// Whether a file here and one on a server have the same content.
pub(crate) async fn same(local: File, remote: &Remote, node: &Node) -> Result<bool, ClientError> {
    // The two run side by side; the slower one, mostly the link, sets the time.
    let local = tokio::task::spawn_blocking(move || hash_local(local));
    let mut hasher = blake3::Hasher::new();
    let hash = |data: &[u8]| {
        hasher.update(data);
        Ok(())
    };
    in_order::read(remote, node, hash).await?;
    let local = local.await.map_err(io::Error::other)??;
    Ok(hasher.finalize() == local)
}

fn hash_local(mut file: File) -> io::Result<blake3::Hash> {
    // What is on the disk is to be hashed, not what is in memory; best effort.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(n) => hasher.update(&block[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
    }
}
