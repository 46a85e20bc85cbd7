//! Random operations on the memory file system and on the local disk give the same results and the same tree.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use remora_vfs::{FileId, MemFs, NameIn, Result, Vfs};
use remora_wire::nfs3::{CreateHow, FileType, NodeKind, SetAttr, Status};

use crate::bench::*;

/// A directory, by the number of the operation that created it. Any other number is the root.
type Dir = usize;
type Name = u8;

#[derive(Clone, Debug)]
enum Op {
    Create(Dir, Name, u8),
    MkDir(Dir, Name),
    SymLink(Dir, Name),
    MkNod(Dir, Name),
    Write(usize, u32, Vec<u8>),
    SetSize(usize, u32),
    SetMode(usize, u32),
    Remove(Dir, Name),
    RmDir(Dir, Name),
    Rename(Dir, Name, Dir, Name),
    Link(usize, Dir, Name),
    Read(usize, u32, u32),
    Lookup(Dir, Name),
    Parent(Dir),
}

fn op() -> impl Strategy<Value = Op> {
    let (d, n) = (0..12usize, 0..5u8);
    let at = (d.clone(), n);
    prop_oneof![
        3 => (at.clone(), 0..3u8).prop_map(|((d, n), how)| Op::Create(d, n, how)),
        3 => at.clone().prop_map(|(d, n)| Op::MkDir(d, n)),
        1 => at.clone().prop_map(|(d, n)| Op::SymLink(d, n)),
        1 => at.clone().prop_map(|(d, n)| Op::MkNod(d, n)),
        2 => (d.clone(), 0..9000u32, prop::collection::vec(any::<u8>(), 0..50)).prop_map(|(f, o, b)| Op::Write(f, o, b)),
        1 => (d.clone(), 0..9000u32).prop_map(|(f, s)| Op::SetSize(f, s)),
        // Always the owner's own, in case that is not root.
        1 => (d.clone(), 0..0o100u32).prop_map(|(f, m)| Op::SetMode(f, 0o700 | m)),
        2 => at.clone().prop_map(|(d, n)| Op::Remove(d, n)),
        1 => at.clone().prop_map(|(d, n)| Op::RmDir(d, n)),
        4 => (at.clone(), at.clone()).prop_map(|((d, n), (e, m))| Op::Rename(d, n, e, m)),
        2 => (d.clone(), at.clone()).prop_map(|(f, (d, n))| Op::Link(f, d, n)),
        1 => (d.clone(), 0..9000u32, 0..9000u32).prop_map(|(f, o, c)| Op::Read(f, o, c)),
        1 => at.prop_map(|(d, n)| Op::Lookup(d, n)),
        1 => d.prop_map(Op::Parent),
    ]
}

/// A file system under test and the objects created so far, also removed ones.
struct World<'a> {
    fs: &'a dyn Vfs,
    made: Vec<FileId>,
}

/// The compared part of a result: an object's number, bytes, or the error.
type Answer = Result<(Option<usize>, Vec<u8>)>;

impl World<'_> {
    fn id(&self, n: usize) -> FileId {
        self.made.get(n).copied().unwrap_or(self.fs.root())
    }

    fn number(&mut self, id: FileId) -> usize {
        self.made.iter().position(|m| *m == id).unwrap_or_else(|| {
            self.made.push(id);
            self.made.len() - 1
        })
    }

    fn object(&mut self, id: Result<FileId>) -> Answer {
        id.map(|id| (Some(self.number(id)), vec![]))
    }

    fn run(&mut self, op: &Op) -> Answer {
        let fs = self.fs;
        let name = |n: &u8| [b'a' + n];
        let nothing = (None, vec![]);
        match op {
            Op::Create(d, n, how) => {
                let how = match how {
                    0 => CreateHow::Unchecked(SetAttr { size: Some(0), ..mode(0o644) }),
                    1 => CreateHow::Guarded(mode(0o600)),
                    _ => CreateHow::Exclusive([*n; 8]),
                };
                let made = fs.create(&me(), &self.id(*d), &name(n), &how);
                self.object(made.map(|m| m.id))
            }
            Op::MkDir(d, n) => {
                let made = fs.mkdir(&me(), &self.id(*d), &name(n), &mode(0o755));
                self.object(made.map(|m| m.id))
            }
            Op::SymLink(d, n) => {
                let made = fs.symlink(&me(), &self.id(*d), &name(n), &SetAttr::NONE, b"../a");
                self.object(made.map(|m| m.id))
            }
            Op::MkNod(d, n) => {
                let made = fs.mknod(&me(), &self.id(*d), &name(n), &NodeKind::Fifo(mode(0o600)));
                self.object(made.map(|m| m.id))
            }
            Op::Write(f, offset, data) => write(fs, &self.id(*f), u64::from(*offset), data).map(|()| nothing),
            Op::SetSize(f, n) => fs.setattr(&me(), &self.id(*f), &size(u64::from(*n)), None).map(|_| nothing),
            Op::SetMode(f, m) => fs.setattr(&me(), &self.id(*f), &mode(*m), None).map(|_| nothing),
            Op::Remove(d, n) => fs.remove(&me(), &self.id(*d), &name(n)).map(|_| nothing),
            Op::RmDir(d, n) => fs.rmdir(&me(), &self.id(*d), &name(n)).map(|_| nothing),
            Op::Rename(d, n, e, m) => fs
                .rename(&me(), NameIn::new(&self.id(*d), &name(n)), NameIn::new(&self.id(*e), &name(m)))
                .map(|_| nothing),
            Op::Link(f, d, n) => fs.link(&me(), &self.id(*f), &self.id(*d), &name(n)).map(|_| nothing),
            Op::Read(f, offset, count) => {
                let got = fs.read(&me(), &self.id(*f), u64::from(*offset), *count);
                got.map(|(data, eof)| (Some(usize::from(eof)), data.to_vec()))
            }
            Op::Lookup(d, n) => {
                let found = fs.lookup(&me(), &self.id(*d), &name(n)).map(|(id, _)| id);
                self.object(found)
            }
            Op::Parent(d) => {
                let found = find(fs, &self.id(*d), "..");
                self.object(found)
            }
        }
    }

    /// Path to (kind, mode, links, content), over readdir and read.
    fn tree(&self) -> BTreeMap<String, (FileType, u32, u32, Vec<u8>)> {
        let mut tree = BTreeMap::new();
        let mut todo = vec![(String::new(), self.fs.root())];
        while let Some((path, id)) = todo.pop() {
            let attr = self.fs.getattr(&id).unwrap();
            let content = match attr.kind {
                FileType::Regular => read(self.fs, &id),
                FileType::SymLink => self.fs.readlink(&me(), &id).unwrap().to_vec(),
                _ => vec![],
            };
            if attr.kind == FileType::Directory {
                for entry in list(self.fs, &id, 3, true, |_| {}) {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    let child = entry.object.unwrap().0;
                    if name != "." && name != ".." {
                        todo.push((format!("{path}/{name}"), child));
                    }
                }
            }
            let mode = if path.is_empty() { 0 } else { attr.mode };
            tree.insert(path, (attr.kind, mode, attr.nlink, content));
        }
        tree
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_local_disk_agree(ops in prop::collection::vec(op(), 1..60)) {
        let dir = TempDir::new();
        let (memory, disk) = (MemFs::new(1), export(&dir));
        let mut memory = World { fs: &memory, made: vec![] };
        let mut disk = World { fs: &disk, made: vec![] };
        for op in &ops {
            prop_assert_eq!(memory.run(op), disk.run(op), "{:?}", op);
        }
        prop_assert_eq!(memory.tree(), disk.tree());
        let gone = |w: &World<'_>| w.made.iter().map(|id| w.fs.getattr(id) == Err(Status::Stale)).collect::<Vec<_>>();
        prop_assert_eq!(gone(&memory), gone(&disk));
        // After a restart the old ids are valid.
        let again = export(&dir);
        for id in &disk.made {
            prop_assert_eq!(disk.fs.getattr(id).map(|a| a.fileid), again.getattr(id).map(|a| a.fileid));
        }
    }
}
