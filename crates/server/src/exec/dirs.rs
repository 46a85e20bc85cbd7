//! Directory listings (RFC 1813, sections 3.3.16 and 3.3.17): as many entries as the client
//! has room for, counted to the byte.

use remora_vfs::{self as vfs, DirEntry, DirQuery};
use remora_wire::nfs3::{
    Attr, Entries, Entry, EntryPlus, Fh, ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk, Res, Status,
};

use super::{Exec, Object};

/// Sizes in XDR, in bytes.
mod size {
    /// The flag before anything optional: an entry, attributes, a handle.
    pub(super) const FLAG: usize = 4;
    /// `fattr3`.
    pub(super) const ATTR: usize = 84;
    /// Results without entries: the directory's attributes, the verifier, the flag that ends
    /// the list, and the end-of-directory flag.
    pub(super) const EMPTY: usize = FLAG + ATTR + 8 + FLAG + FLAG;

    /// Counted bytes with their padding.
    pub(super) fn opaque(len: usize) -> usize {
        4 + len.next_multiple_of(4)
    }

    /// The part of an entry that both procedures have: number, name, cookie.
    pub(super) fn name(len: usize) -> usize {
        8 + opaque(len) + 8
    }
}

/// Room for results that shrinks as entries are taken.
struct Room(usize);

impl Room {
    fn new(count: u32) -> Option<Room> {
        (count as usize).checked_sub(size::EMPTY).map(Room)
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
    pub(super) fn read_dir(&self, a: &ReadDirArgs) -> Res<ReadDirOk, Option<Attr>> {
        self.look(&a.dir, |dir| {
            let mut room = Room::new(a.count.min(self.io_max())).ok_or(Status::TooSmall)?;
            let query = DirQuery { cookie: a.cookie, verf: a.verf, objects: false };
            let (entries, verf) = list(dir, query, |e| {
                room.take(size::FLAG + size::name(e.name.len())).then_some(Entry {
                    fileid: e.fileid,
                    name: e.name,
                    cookie: e.cookie,
                })
            })?;
            Ok(ReadDirOk { dir: dir.attr(), verf, entries })
        })
    }

    pub(super) fn read_dir_plus(&self, a: &ReadDirPlusArgs) -> Res<ReadDirPlusOk, Option<Attr>> {
        self.look(&a.dir, |dir| {
            let mut room = Room::new(a.max_count.min(self.io_max())).ok_or(Status::TooSmall)?;
            let mut names = Room(a.dir_count as usize);
            let query = DirQuery { cookie: a.cookie, verf: a.verf, objects: true };
            let (entries, verf) = list(dir, query, |e| {
                let entry = plus(dir, e);
                let fits = names.take(size::name(entry.name.len())) && room.take(plus_size(&entry));
                fits.then_some(entry)
            })?;
            Ok(ReadDirPlusOk { dir: dir.attr(), verf, entries })
        })
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

/// Takes entries for as long as `fit` makes something of them. None at all, though there are
/// some, means that the client has too little room.
fn list<E>(
    dir: &Object,
    query: DirQuery,
    mut fit: impl FnMut(DirEntry) -> Option<E>,
) -> vfs::Result<(Entries<E>, [u8; 8])> {
    let (mut list, mut full) = (Vec::new(), false);
    let end = dir.vfs().readdir(&dir.cred, &dir.id, query, &mut |entry| {
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
    fn sizes_are_those_of_the_encoding() {
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
        for len in 0..9 {
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
