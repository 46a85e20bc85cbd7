//! What earlier runs left of an upload: their notes, and the files on the server that those are about.

use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, FileType};

use super::identity::Identity;
use super::journal::{Journal, JournalFile};
use super::lock::LockFile;
use super::notes::{Note, Notes, lock_of};
use super::upload::Destination;
use crate::exit;
use crate::remote::Node;

/// A copy that was not finished, and is not under way.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) journal: Journal,
    pub(super) file: JournalFile,
    note: Note,
    /// Of one that was begun at another address, say. Those with the exact name have the lock of this one.
    pub(super) lock: Option<LockFile>,
}

impl Left {
    fn of(note: Note, source: &Identity) -> Option<Left> {
        let lock = if note.is_exact { None } else { Some(lock_of(&note.path).ok()?) };
        let file = JournalFile::at(note.path.clone());
        let journal = file.load()?;
        // Any other is a copy of something else to the same name.
        let is_ours = note.is_exact || journal.is_of(source);
        is_ours.then_some(Left { journal, file, note, lock })
    }

    /// The file it was copied to, if that is still the one.
    async fn find(&self, source: &Identity, dest: &Destination, name: &[u8]) -> Result<Option<Node>, ClientError> {
        let hidden = self.journal.hidden().unwrap_or(name);
        let found = dest.remote.find(&dest.dir.fh, hidden).await?;
        Ok(found.filter(|node| is_part(&self.journal, source, node)))
    }

    /// Removes the file, if it has another name than `name`, which is cleared anyway. Says whether it was there.
    async fn remove(&self, dest: &Destination, name: &[u8]) -> Result<bool, ClientError> {
        let (remote, dir) = (&dest.remote, &dest.dir.fh);
        let Some(hidden) = self.journal.hidden().filter(|hidden| *hidden != name) else { return Ok(false) };
        let found = remote.find(dir, hidden).await?;
        let is_it = found.is_some_and(|node| self.journal.is_in(&mark(&node.fh)));
        if is_it {
            remote.remove(dir, hidden).await?;
        }
        Ok(is_it)
    }
}

/// All that there is. `notes` are locked.
pub(super) fn all(notes: &Notes, source: &Identity) -> Vec<Left> {
    notes.all().into_iter().filter_map(|note| Left::of(note, source)).collect()
}

/// Takes the one out of `left` that can be gone on with, and its file.
pub(super) async fn pick(
    left: &mut Vec<Left>,
    source: &Identity,
    dest: &Destination,
    name: &[u8],
) -> Result<Option<(Left, Node)>, ClientError> {
    for at in 0..left.len() {
        if let Some(node) = left[at].find(source, dest, name).await? {
            return Ok(Some((left.swap_remove(at), node)));
        }
    }
    Ok(None)
}

/// None is gone on with: removes their files, and their notes but for `own`, which says what is so now. What is on
/// another server, which has the directory's handle, too, stays.
pub(super) async fn clear(left: Vec<Left>, own: &Notes, dest: &Destination, name: &[u8]) -> Result<(), ClientError> {
    for left in left {
        let was_there = match left.remove(dest, name).await {
            Err(e) if exit::is_lost(&e) => return Err(e),
            // It only takes room.
            removed => removed.unwrap_or(false),
        };
        if (was_there || left.note.is_exact) && left.note.path != own.own() {
            left.file.remove();
        }
    }
    Ok(())
}

/// Why the copy begins afresh, if that was begun which is to go on.
pub(super) fn why_afresh(left: &[Left], source: &Identity) -> Option<String> {
    // Others may be on another server.
    left.iter().find(|left| left.note.is_exact).map(|left| left.journal.why_afresh(source))
}

/// Whether the journal is about this file.
fn is_part(journal: &Journal, identity: &Identity, node: &Node) -> bool {
    node.attr.kind == FileType::Regular && journal.is_about(identity, mark(&node.fh), node.attr.size)
}

/// Names a file by its handle: in that is, unlike in its number, what tells it from the next one
/// that gets the number, and some servers give all files the same number. Servers may change handles;
/// then a copy begins anew.
pub(super) fn mark(fh: &Fh) -> String {
    blake3::hash(&fh.0).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Attr, NfsTime, SpecData};

    use super::*;

    /// The file with this handle; all on this server have the same number.
    fn node(fh: &'static [u8]) -> Node {
        let time = NfsTime { secs: 7, nanos: 0 };
        let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
        let (mode, nlink, uid, gid, size, used, fsid, fileid) = (0o600, 1, 0, 0, 8, 8, 1, 0);
        let (atime, mtime, ctime) = (time, time, time);
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        Node { fh: Fh(Bytes::from_static(fh)), attr }
    }

    #[test]
    fn a_journal_is_about_the_file_with_the_handle_whatever_its_number() {
        let (ours, other) = (node(b"ours"), node(b"next"));
        let source = Identity::of_remote(&ours.attr);
        let mut journal = Journal::new(source.clone(), mark(&ours.fh));
        journal.done.insert(0..4);
        assert!(is_part(&journal, &source, &ours) && !is_part(&journal, &source, &other));
    }
}
