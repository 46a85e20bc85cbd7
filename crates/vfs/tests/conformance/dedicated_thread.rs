//! A dedicated thread, which keeps its last caller's credentials, answers like any other thread.
#![cfg(target_os = "linux")]

use std::time::Duration;

use proptest::prelude::*;
use remora_vfs::local::{DedicatedThread, LocalDisk, Options};
use remora_vfs::{Cred, DirQuery, FileId, NameIn, Result, Vfs};
use remora_wire::nfs3::{Attr, CreateHow, FileType, SetAttr, Stable};

use crate::bench::*;
use crate::callers::is_root;

/// An object, by the number of the operation that created or found it. Any other number is the root.
type Object = usize;
type Name = u8;

#[derive(Clone, Debug)]
enum Op {
    GetAttr(Object),
    SetMode(Object, u32),
    SetSize(Object, u32),
    Lookup(Object, Name),
    Access(Object),
    Read(Object),
    Write(Object, u8),
    Commit(Object),
    Create(Object, Name, u32, u8),
    MkDir(Object, Name, u32),
    SymLink(Object, Name),
    Remove(Object, Name),
    RmDir(Object, Name),
    Rename(Object, Name, Object, Name),
    Link(Object, Object, Name),
    List(Object),
    Room(Object),
}

fn op() -> impl Strategy<Value = Op> {
    let (d, n, m) =
        (0..10usize, 0..4u8, prop::sample::select(vec![0, 0o700, 0o750, 0o711, 0o755, 0o1777, 0o2770, 0o777]));
    let at = (d.clone(), n.clone());
    prop_oneof![
        2 => d.clone().prop_map(Op::GetAttr),
        3 => (d.clone(), m.clone()).prop_map(|(o, m)| Op::SetMode(o, m)),
        1 => (d.clone(), 0..9000u32).prop_map(|(o, s)| Op::SetSize(o, s)),
        4 => (d.clone(), 0..6u8).prop_map(|(d, n)| Op::Lookup(d, n)),
        2 => d.clone().prop_map(Op::Access),
        2 => d.clone().prop_map(Op::Read),
        2 => (d.clone(), any::<u8>()).prop_map(|(o, byte)| Op::Write(o, byte)),
        1 => d.clone().prop_map(Op::Commit),
        6 => (at.clone(), m.clone(), 0..4u8).prop_map(|((d, n), m, how)| Op::Create(d, n, m, how)),
        4 => (at.clone(), m).prop_map(|((d, n), m)| Op::MkDir(d, n, m)),
        1 => at.clone().prop_map(|(d, n)| Op::SymLink(d, n)),
        3 => at.clone().prop_map(|(d, n)| Op::Remove(d, n)),
        1 => at.clone().prop_map(|(d, n)| Op::RmDir(d, n)),
        2 => (at.clone(), at.clone()).prop_map(|((d, n), (e, m))| Op::Rename(d, n, e, m)),
        1 => (d.clone(), at.clone()).prop_map(|(f, (d, n))| Op::Link(f, d, n)),
        2 => d.clone().prop_map(Op::List),
        1 => d.prop_map(Op::Room),
    ]
}

/// User `n`: root, two users in one group, and one in none.
fn user(n: usize) -> Cred {
    let (uid, gid, gids) =
        [(0, 0, vec![]), (5001, 6001, vec![]), (5002, 6002, vec![6001]), (5003, 6003, vec![])][n].clone();
    Cred { uid, gid, gids }
}

/// A file system under test and the objects seen so far, also removed ones.
struct World {
    fs: LocalDisk,
    seen: Vec<FileId>,
    _dir: TempDir,
}

/// The compared attributes: those that are equal on two file systems.
type Look = (FileType, u32, u32, u32, u32, u64);

/// The compared part of a result: the object, its attributes, and the rest.
type Answer = Result<(Option<usize>, Option<Look>, Vec<u8>)>;

fn look(attr: Attr) -> Look {
    // The size of a directory depends on the file system.
    let size = if attr.kind == FileType::Directory { 0 } else { attr.size };
    (attr.kind, attr.mode, attr.nlink, attr.uid, attr.gid, size)
}

impl World {
    /// With tiny caches, so that both cached and uncached objects are used.
    fn new(forgetful: bool) -> World {
        let dir = TempDir::new();
        let usual = Options { honour_credentials: true, ..Options::new([0; 8]) };
        let revalidate_after = Duration::ZERO;
        let options =
            if forgetful { Options { path_cache_max: 2, dirs_max: 2, revalidate_after, ..usual } } else { usual };
        let fs = LocalDisk::open(dir.path(), options).unwrap();
        fs.setattr(&user(0), &fs.root(), &mode(0o777), None).unwrap();
        World { fs, seen: vec![], _dir: dir }
    }

    fn id(&self, n: Object) -> FileId {
        self.seen.get(n).copied().unwrap_or(self.fs.root())
    }

    fn object(&mut self, id: FileId, attr: Attr) -> (Option<usize>, Option<Look>, Vec<u8>) {
        let number = self.seen.iter().position(|seen| *seen == id).unwrap_or_else(|| {
            self.seen.push(id);
            self.seen.len() - 1
        });
        (Some(number), Some(look(attr)), vec![])
    }

    fn run(&mut self, who: &Cred, op: &Op) -> Answer {
        let name = |n: &u8| match n {
            4 => b".".to_vec(),
            5 => b"..".to_vec(),
            n => vec![b'a' + n],
        };
        let said = |bytes: &[u8]| (None, None, bytes.to_vec());
        let fs = &self.fs;
        match op {
            Op::GetAttr(o) => fs.getattr(&self.id(*o)).map(|attr| (None, Some(look(attr)), vec![])),
            Op::SetMode(o, m) => fs.setattr(who, &self.id(*o), &mode(*m), None).map(|_| said(b"")),
            Op::SetSize(o, n) => fs.setattr(who, &self.id(*o), &size(u64::from(*n)), None).map(|_| said(b"")),
            Op::Lookup(d, n) => fs.lookup(who, &self.id(*d), &name(n)).map(|(id, attr)| self.object(id, attr)),
            Op::Access(o) => fs.access(who, &self.id(*o), 0x3f).map(|may| said(&may.to_be_bytes())),
            Op::Read(o) => fs.read(who, &self.id(*o), 0, 100).map(|(data, _)| said(&data)),
            Op::Write(o, byte) => {
                fs.write(who, &self.id(*o), 0, &vec![*byte].into(), Stable::Unstable).map(|_| said(b""))
            }
            Op::Commit(o) => fs.commit(who, &self.id(*o), 0, 0).map(|_| said(b"")),
            Op::Create(d, n, m, how) => {
                let how = match how {
                    0 => CreateHow::Unchecked(SetAttr { size: Some(0), ..mode(*m) }),
                    1 => CreateHow::Exclusive([*n; 8]),
                    2 => CreateHow::Unchecked(SetAttr { size: Some(7), gid: Some(6001), ..mode(*m) }),
                    _ => CreateHow::Guarded(mode(*m)),
                };
                fs.create(who, &self.id(*d), &name(n), &how).map(|made| self.object(made.id, made.attr))
            }
            Op::MkDir(d, n, m) => {
                fs.mkdir(who, &self.id(*d), &name(n), &mode(*m)).map(|made| self.object(made.id, made.attr))
            }
            Op::SymLink(d, n) => {
                let made = fs.symlink(who, &self.id(*d), &name(n), &SetAttr::NONE, b"a");
                made.map(|made| self.object(made.id, made.attr))
            }
            Op::Remove(d, n) => fs.remove(who, &self.id(*d), &name(n)).map(|_| said(b"")),
            Op::RmDir(d, n) => fs.rmdir(who, &self.id(*d), &name(n)).map(|_| said(b"")),
            Op::Rename(d, n, e, m) => fs
                .rename(who, NameIn::new(&self.id(*d), &name(n)), NameIn::new(&self.id(*e), &name(m)))
                .map(|_| said(b"")),
            Op::Link(f, d, n) => fs.link(who, &self.id(*f), &self.id(*d), &name(n)).map(|_| said(b"")),
            Op::List(d) => self.list(who, &self.id(*d)),
            Op::Room(o) => fs.fsstat(&self.id(*o)).map(|_| said(b"")),
        }
    }

    fn list(&self, who: &Cred, dir: &FileId) -> Answer {
        let mut names = Vec::new();
        let query = DirQuery { cookie: 0, verf: [0; 8], objects: true };
        self.fs.readdir(who, dir, query, &mut |entry| {
            names.push((entry.name.to_vec(), entry.object.is_some()));
            true
        })?;
        names.sort();
        Ok((None, None, names.into_iter().flat_map(|(name, known)| [name, vec![known.into()]].concat()).collect()))
    }
}

/// Whether this thread has its own credentials.
fn is_itself() -> bool {
    rustix::process::geteuid().is_root() && rustix::process::getegid().as_raw() == 0
}

#[test]
fn thread_keeps_creds_until_rest_or_server_work() {
    if !is_root() {
        return skip::skipped(&skip::this_test(), "needs root");
    }
    let World { fs, .. } = &World::new(false);
    let [ann, bob] = [1, 2].map(user);
    let now = || rustix::process::geteuid().as_raw();
    let look = |who: &Cred| fs.lookup(who, &fs.root(), b".").map(drop);
    look(&ann).unwrap();
    assert!(is_itself(), "not dedicated yet");
    let dedicated = DedicatedThread::begin();
    for who in [&ann, &ann, &bob] {
        look(who).unwrap();
        assert_eq!(now(), who.uid);
        fs.getattr(&fs.root()).unwrap();
        assert_eq!(now(), who.uid, "the caller's credentials stay");
    }
    look(&user(0)).unwrap();
    assert!(is_itself());
    look(&ann).unwrap();
    fs.tidy();
    assert!(is_itself());
    look(&ann).unwrap();
    dedicated.release();
    assert!(is_itself());
    look(&bob).unwrap();
    drop(dedicated);
    assert!(is_itself());
}

#[test]
fn dedicated_thread_answers_like_any_other() {
    if !is_root() {
        return skip::skipped(&skip::this_test(), "needs root");
    }
    let config = ProptestConfig { cases: 150, ..ProptestConfig::default() };
    let ops = prop::collection::vec((0..4usize, op()), 1..80);
    proptest!(config, |(ops in ops, forgetful: bool)| answers_alike(&ops, forgetful)?);
}

fn answers_alike(ops: &[(usize, Op)], forgetful: bool) -> std::result::Result<(), TestCaseError> {
    let (mut plain, mut dedicated) = (World::new(forgetful), World::new(forgetful));
    // Each user calls twice in a row.
    let calls: Vec<_> = ops.iter().flat_map(|(who, op)| [(user(*who), op), (user(*who), op)]).collect();
    let answers: Vec<_> = calls.iter().map(|(who, op)| plain.run(who, op)).collect();
    prop_assert!(is_itself());
    {
        let _devoted = DedicatedThread::begin();
        for ((who, op), expected) in calls.iter().zip(answers) {
            prop_assert_eq!(dedicated.run(who, op), expected, "{:?} by {:?}", op, who);
        }
    }
    prop_assert!(is_itself());
    Ok(())
}
