//! Directory listings and the checks on them.
//!
//! Names and handles are copied out of the reply: as slices they would keep the whole reply, up to 1 MiB, alive.

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, EntryPlus, Fh, FileType};

use crate::output::exit::is_lost;

/// An object on a server.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) fh: Fh,
    pub(crate) attr: Attr,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileType::Directory
    }

    /// The file system, and the number there.
    pub(crate) fn number(&self) -> (u64, u64) {
        (self.attr.fsid, self.attr.fileid)
    }
}

/// How deep directories may lie in one another.
pub(crate) const DEPTH_MAX: usize = 256;
/// The most entries looked at in a directory.
const ENTRIES_MAX: usize = 10_000_000;
/// The longest name, in bytes. Local systems end at 255 mostly, some file systems at 4032; NFS has no limit.
const NAME_MAX: usize = 4096;
/// The most room that the entries of a directory take here, in bytes: enough for two million and more.
const BYTES_MAX: usize = 512 << 20;

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Bytes,
    pub(crate) node: Node,
}

/// What is in a directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// Those of which nothing is known but that they are there, and why.
    pub(crate) unknown: Vec<(Bytes, ClientError)>,
}

impl Listing {
    /// Takes in what became of looking an entry up: it may have gone meanwhile. Fails if the server
    /// is out of reach.
    pub(crate) fn take(&mut self, name: Bytes, found: Result<Option<Node>, ClientError>) -> Result<(), ClientError> {
        match found {
            Ok(node) => self.entries.extend(node.map(|node| Entry { name, node })),
            Err(e) if is_lost(&e) => return Err(e),
            Err(e) => self.unknown.push((name, e)),
        }
        Ok(())
    }
}

/// Counts what a server lists, and takes it out of the replies.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    entries: usize,
    bytes: usize,
}

impl Taken {
    /// How much room they take here.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A page's entry, without the page.
    pub(crate) fn entry(&mut self, entry: EntryPlus) -> Result<EntryPlus, ClientError> {
        let long = entry.name.len();
        if long > NAME_MAX {
            return Err(ClientError::LongName { len: long, max: NAME_MAX });
        }
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(ClientError::Endless { max: ENTRIES_MAX });
        }
        self.bytes += size_of::<Entry>() + long + entry.fh.as_ref().map_or(0, |fh| fh.0.len());
        if self.bytes > BYTES_MAX {
            return Err(ClientError::Vast { entries: self.entries, max: BYTES_MAX });
        }
        Ok(EntryPlus { name: copied(&entry.name), fh: entry.fh.as_ref().map(own), ..entry })
    }
}

/// A handle without the reply that it came in.
pub(crate) fn own(fh: &Fh) -> Fh {
    Fh(copied(&fh.0))
}

fn copied(part: &[u8]) -> Bytes {
    Bytes::copy_from_slice(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(page: &Bytes, name: usize) -> EntryPlus {
        EntryPlus { fileid: 1, name: page.slice(..name), cookie: 1, attr: None, fh: Some(Fh(page.slice(..32))) }
    }

    #[test]
    fn entries_do_not_keep_their_page() {
        let page = Bytes::from(vec![b'x'; 1 << 20]);
        let (mut taken, listed) = (Taken::default(), entry(&page, 20));
        let ours = taken.entry(listed.clone()).unwrap();
        assert_eq!(ours, listed);
        drop(listed);
        assert!(page.is_unique(), "nobody else has the page");
    }

    #[test]
    fn a_listing_has_limits() {
        let page = Bytes::from(vec![b'x'; NAME_MAX + 1]);
        let mut taken = Taken::default();
        assert!(matches!(taken.entry(entry(&page, NAME_MAX + 1)), Err(ClientError::LongName { .. })));
        let ended = (0..).find_map(|_| taken.entry(entry(&page, NAME_MAX)).err());
        assert!(matches!(ended, Some(ClientError::Vast { entries: 100_000..140_000, .. })), "{ended:?}");
        let short = Bytes::from(vec![b'x'; 32]);
        let mut taken = Taken { entries: ENTRIES_MAX, bytes: 0 };
        assert!(matches!(taken.entry(entry(&short, 1)), Err(ClientError::Endless { .. })));
    }
}
