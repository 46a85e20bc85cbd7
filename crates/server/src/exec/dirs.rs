//! Directory listings (RFC 1813, sections 3.3.16 and 3.3.17), with as many entries as fit the client's byte count.
//! NFSv2's listing (RFC 1094, section 2.2.17) is separate because its cookies differ.

use remora_base::{Path, host_of};
use remora_vfs::{self as vfs, DirEntry, DirQuery};
use remora_wire::nfs2;
use remora_wire::nfs3::{
    Attr, Entries, Entry, EntryPlus, Fh, ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk, Res, Status,
};

use super::context::{Exec, Object};
use crate::{cookies, v2};

/// Encoded sizes, in bytes.
mod size {
    /// The flag before an optional entry, attributes or handle.
    pub(super) const FLAG: usize = 4;
    /// Attributes of an object (`fattr3`).
    pub(super) const ATTR: usize = 84;
    /// Results without entries: the directory's attributes, the verifier, the end of the list and the
    /// end-of-directory flag.
    pub(super) const EMPTY: usize = FLAG + ATTR + 8 + FLAG + FLAG;

    /// NFSv2 results without entries: the status and two flags.
    pub(super) const EMPTY_V2: usize = 4 + FLAG + FLAG;

    /// An NFSv2 entry: file id, name, cookie.
    pub(super) fn name_v2(len: usize) -> usize {
        4 + opaque(len) + 4
    }

    /// Variable-length opaque data with padding.
    pub(super) fn opaque(len: usize) -> usize {
        4 + len.next_multiple_of(4)
    }

    /// The common part of an entry: file id, name, cookie.
    pub(super) fn name(len: usize) -> usize {
        8 + opaque(len) + 8
    }
}

/// The bytes left for results.
struct Room(usize);

impl Room {
    /// The room that `count` leaves for entries.
    fn new(count: u32, empty: usize) -> Option<Room> {
        (count as usize).checked_sub(empty).map(Room)
    }

    fn take(&mut self, bytes: usize) -> bool {
        match self.0.checked_sub(bytes) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

impl Exec<'_> {
    fn page_verf(&self, verf: [u8; 8]) -> [u8; 8] {
        if verf == [0; 8] { self.listing_verf } else { verf }
    }

    pub(super) fn read_dir(&self, a: &ReadDirArgs) -> Res<ReadDirOk, Option<Attr>> {
        self.look(&a.dir, |dir| {
            let mut room = Room::new(a.count.min(self.io_max()), size::EMPTY).ok_or(Status::TooSmall)?;
            let query = DirQuery { cookie: a.cookie, verf: a.verf, objects: false };
            let (entries, verf) = list(dir, query, |e| {
                room.take(size::FLAG + size::name(e.name.len())).then_some(Entry {
                    fileid: e.fileid,
                    name: e.name,
                    cookie: e.cookie,
                })
            })?;
            Ok(ReadDirOk { dir: dir.attr(), verf: self.page_verf(verf), entries })
        })
    }

    pub(super) fn read_dir_plus(&self, a: &ReadDirPlusArgs) -> Res<ReadDirPlusOk, Option<Attr>> {
        self.look(&a.dir, |dir| {
            let mut room = Room::new(a.max_count.min(self.io_max()), size::EMPTY).ok_or(Status::TooSmall)?;
            let mut names = Room(a.dir_count as usize);
            let query = DirQuery { cookie: a.cookie, verf: a.verf, objects: true };
            // The first entry is always returned: `dircount` is a hint, `maxcount` is the limit.
            let mut is_first = true;
            let (entries, verf) = list(dir, query, |e| {
                let entry = plus(dir, e);
                let fits = names.take(size::name(entry.name.len()));
                if !fits {
                    names = Room(0);
                }
                let first = std::mem::replace(&mut is_first, false);
                ((fits || first) && room.take(plus_size(&entry))).then_some(entry)
            })?;
            Ok(ReadDirPlusOk { dir: dir.attr(), verf: self.page_verf(verf), entries })
        })
    }
}

impl Exec<'_> {
    /// READDIR of NFSv2, with a client's cookie of 32 bits in `a`.
    pub(crate) fn read_dir_v2(&self, a: &ReadDirArgs) -> vfs::Result<Entries<nfs2::Entry>> {
        let dir = self.object(&a.dir)?;
        let mut room = Room::new(a.count.min(self.io_max()), size::EMPTY_V2).ok_or(Status::TooSmall)?;
        let query = DirQuery { cookie: self.resume(&dir, a.cookie)?, verf: [0; 8], objects: false };
        let mut end = query.cookie;
        let (entries, _) = list(&dir, query, |e| {
            room.take(size::FLAG + size::name_v2(e.name.len())).then(|| {
                end = e.cookie;
                nfs2::Entry { fileid: v2::fileid(e.fileid), name: e.name, cookie: cookies::short(e.cookie) }
            })
        })?;
        if !entries.eof {
            self.cookies.note(dir.exported.id, dir.id, end);
        }
        Ok(entries)
    }

    /// The file system's cookie for a client's.
    fn resume(&self, dir: &Object, cookie: u64) -> vfs::Result<u64> {
        let short = u32::try_from(cookie).map_err(|_| Status::BadCookie)?;
        if let Some(known) = cookies::plain(short).or_else(|| self.cookies.find(dir.exported.id, dir.id, short)) {
            return Ok(known);
        }
        let client = host_of(self.peer.addr);
        if !self.cookies.may_search(self.at, client) {
            // A datagram gets no reply, so the client resends it. On a stream the reply is NFSERR_IO.
            return Err(if self.peer.path == Path::Datagram { Status::Jukebox } else { Status::BadCookie });
        }
        let (mut found, mut entries) = (None, 0);
        let all = DirQuery { cookie: 0, verf: [0; 8], objects: false };
        let done = dir.vfs().readdir(&dir.cred, &dir.id, all, &mut |e| {
            entries += 1;
            found = Some(e.cookie).filter(|c| cookies::short(*c) == short);
            found.is_none()
        });
        self.cookies.searched(client, entries);
        done?;
        let found = found.ok_or(Status::BadCookie)?;
        // A retransmission must not search again.
        self.cookies.note(dir.exported.id, dir.id, found);
        Ok(found)
    }
}

fn plus(dir: &Object, e: DirEntry) -> EntryPlus {
    let (fh, attr): (Option<Fh>, Option<Attr>) = e.object.map(|(id, attr)| (dir.handle(&id), attr)).unzip();
    EntryPlus { fileid: e.fileid, name: e.name, cookie: e.cookie, attr, fh }
}

fn plus_size(e: &EntryPlus) -> usize {
    let attr = e.attr.as_ref().map_or(0, |_| size::ATTR);
    let fh = e.fh.as_ref().map_or(0, |fh| size::opaque(fh.0.len()));
    size::FLAG + size::name(e.name.len()) + size::FLAG + attr + size::FLAG + fh
}

/// Returns entries until `fit` returns `None`. No entry at all, though there are some, means that the client's count
/// is too small. Entries with overlong names are left out: no other procedure would accept them.
fn list<E>(
    dir: &Object,
    query: DirQuery,
    mut fit: impl FnMut(DirEntry) -> Option<E>,
) -> vfs::Result<(Entries<E>, [u8; 8])> {
    let (mut list, mut full) = (Vec::new(), false);
    let end = dir.vfs().readdir(&dir.cred, &dir.id, query, &mut |entry| {
        // Linux drops a page with a longer name, and some clients ask for it again and again.
        if entry.name.len() > vfs::NAME_MAX {
            return true;
        }
        match fit(entry) {
            Some(e) if !full => list.push(e),
            _ => full = true,
        }
        !full
    })?;
    if full && list.is_empty() {
        return Err(Status::TooSmall);
    }
    Ok((Entries { list, eof: end.eof && !full }, end.verf))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::Xdr;
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    #[test]
    fn entry_sizes_equal_the_encoding() {
        let zero = NfsTime { secs: 0, nanos: 0 };
        let attr = Attr {
            kind: FileType::Regular,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 0,
            fileid: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
        };
        let none: Entries<Entry> = Entries { list: vec![], eof: true };
        let empty = ReadDirOk { dir: Some(attr.clone()), verf: [0; 8], entries: none };
        assert_eq!(empty.to_bytes().len(), size::EMPTY);
        let none = Entries::<nfs2::Entry> { list: vec![], eof: true };
        assert_eq!(size::EMPTY_V2, 4 + none.to_bytes().len());
        for len in 0..9 {
            let entry = nfs2::Entry { fileid: 1, name: vec![b'n'; len].into(), cookie: 1 };
            assert_eq!(entry.to_bytes().len(), size::name_v2(len));
            let name = bytes::Bytes::from(vec![b'n'; len]);
            let entry = Entry { fileid: 1, name: name.clone(), cookie: 1 };
            assert_eq!(entry.to_bytes().len(), size::name(len));
            for (attr, fh) in [(None, None), (Some(attr.clone()), Some(Fh(vec![1; 16 + len].into())))] {
                let entry = EntryPlus { fileid: 1, name: name.clone(), cookie: 1, attr, fh };
                assert_eq!(size::FLAG + entry.to_bytes().len(), plus_size(&entry));
            }
        }
    }
}
