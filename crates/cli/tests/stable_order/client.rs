//! Somebody who makes every kind of change, one after the other, and notes what each reply promises.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use remora_lab::raw::{self, Stream};
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, LinkArgs, MkDirArgs, MkNodArgs, NodeKind, RenameArgs, Reply,
    SetAttr, SetAttrArgs, Stable, SymLinkArgs, WriteArgs,
};

use crate::trace::{Event, Wanted, hex, is_send};

const PATIENCE: Duration = Duration::from_secs(30);
/// Promises of a round.
pub(crate) const CHANGES: u32 = 24;

/// A change that was acknowledged as stable.
pub(crate) struct Promise {
    pub(crate) what: &'static str,
    pub(crate) wanted: Wanted,
}

/// Where the files are.
pub(crate) struct Disk {
    root: String,
    has_journal: bool,
    /// Whether syncfs(2) does anything for names.
    syncs_all: bool,
}

impl Disk {
    pub(crate) fn of(root: &Path) -> Disk {
        let root = std::fs::canonicalize(root).unwrap();
        let device = std::fs::metadata(&root).unwrap().dev();
        let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&root).output().unwrap();
        let journal = || {
            let [major, minor] = [(device >> 8) & 0xfff, device & 0xff | (device >> 12) & 0xfff00];
            let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
            let name = link.file_name()?.to_str()?.to_owned();
            Some(Path::new(&format!("/proc/fs/jbd2/{name}-8")).is_dir())
        };
        let (has_journal, syncs_all) = match String::from_utf8_lossy(&kind.stdout).trim() {
            "xfs" => (true, true),
            "ext2/ext3" => (journal().unwrap_or_default(), true),
            "fuseblk" | "ecryptfs" | "v9fs" => (false, false),
            _ => (false, true),
        };
        Disk { root: root.to_str().unwrap().to_owned(), has_journal, syncs_all }
    }
}

pub(crate) struct Client<'a> {
    stream: Stream,
    disk: &'a Disk,
    number: u32,
    next_xid: u32,
    root: Fh,
    promises: Vec<Promise>,
}

/// A directory, and its path below the root.
#[derive(Clone)]
struct Dir {
    fh: Fh,
    path: String,
}

impl Dir {
    fn at(&self, name: &str) -> DirOp {
        DirOp { dir: self.fh.clone(), name: Bytes::copy_from_slice(name.as_bytes()) }
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// How a change shows in the trace: by its system call, and what is in the arguments of that.
type Shows = (fn(&Event) -> bool, String);

const ATTR: SetAttr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };

impl<'a> Client<'a> {
    pub(crate) fn new(addr: SocketAddr, number: u32, disk: &'a Disk) -> Client<'a> {
        let mut stream = Stream::connect(addr, PATIENCE).unwrap();
        let root = stream.mount("/").unwrap();
        Client { stream, disk, number, next_xid: 0x5a5a_0000 | number << 12, root, promises: Vec::new() }
    }

    /// Makes changes, one after the other.
    pub(crate) fn work(mut self, rounds: u32) -> Vec<Promise> {
        let root = Dir { fh: self.root.clone(), path: String::new() };
        for round in 0..rounds {
            let mine = format!("{}x{round}", self.number);
            let sub = self.make_directories(&root, &mine);
            self.write_a_file(&root, &mine);
            self.set_attributes(&root, &mine, round);
            self.make_special(&sub, &mine);
            self.create_exclusively(&root, &mine);
            self.move_across(&root, &sub, &mine);
        }
        self.promises
    }

    /// One that stays, and one that goes.
    fn make_directories(&mut self, root: &Dir, mine: &str) -> Dir {
        let mut made = Vec::new();
        for name in [format!("d{mine}"), format!("e{mine}")] {
            let mkdir = Call::MkDir(MkDirArgs { at: root.at(&name), attr: SetAttr { mode: Some(0o755), ..ATTR } });
            let fh = self.made("MKDIR", mkdir, (makes_dir, quoted(&name)), root, &name);
            made.push(Dir { fh, path: root.path_of(&name) });
        }
        let gone = format!("e{mine}");
        self.promise("RMDIR", Call::RmDir(root.at(&gone)), (unlinks, quoted(&gone)), &[&root.path]);
        made.swap_remove(0)
    }

    /// `f…`, of some bytes.
    fn write_a_file(&mut self, root: &Dir, mine: &str) {
        let name = format!("f{mine}");
        let create = Call::Create(CreateArgs { at: root.at(&name), how: CreateHow::Guarded(ATTR) });
        let fh = self.made("CREATE", create, (opens, quoted(&name)), root, &name);
        let path = root.path_of(&name);
        for stable in [Stable::FileSync, Stable::DataSync] {
            let (write, tag) = self.write(&fh, stable);
            self.promise("WRITE", write, (writes, hex(&tag)), &[&path]);
            self.last().data_will_do = stable == Stable::DataSync;
        }
        let (write, tag) = self.write(&fh, Stable::Unstable);
        self.call(&write);
        self.promise("COMMIT", Call::Commit(CommitArgs { fh, offset: 0, count: 0 }), (writes, hex(&tag)), &[&path]);
        self.last().data_will_do = true;
    }

    /// `f…` has another mode, another size, another time, no bytes, and one more name; one of the two goes.
    fn set_attributes(&mut self, root: &Dir, mine: &str, round: u32) {
        let [name, other] = ["f", "h"].map(|kind| format!("{kind}{mine}"));
        let path = root.path_of(&name);
        let Reply::Lookup(Ok(found)) = self.call(&Call::Lookup(root.at(&name))).1 else {
            panic!("{name} is not there")
        };
        let fh = found.fh;
        let set = |attr| Call::SetAttr(SetAttrArgs { fh: fh.clone(), attr, guard: None });
        // Told from all others by its number.
        let number = self.number * 16 + round;
        let mode = 0o200 + number;
        let chmod = set(SetAttr { mode: Some(mode), ..SetAttr::NONE });
        self.promise("SETATTR", chmod, (changes_mode, format!(", 0{mode:o}")), &[&path]);
        let size = 1000 + number;
        let truncate = set(SetAttr { size: Some(size.into()), ..SetAttr::NONE });
        self.promise("SETATTR", truncate, (truncates, format!(">, {size}")), &[&path]);
        let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..ATTR });
        let create = Call::Create(CreateArgs { at: root.at(&name), how });
        // Its descriptor's path tells whose file is emptied.
        self.promise("CREATE", create, (truncates, format!("{}>, 0", hex(name.as_bytes()))), &[&path, &root.path]);
        let link = Call::Link(LinkArgs { fh: fh.clone(), at: root.at(&other) });
        self.promise("LINK", link, (links, quoted(&other)), &[&path, &root.path]);
        self.promise("REMOVE", Call::Remove(root.at(&other)), (unlinks, quoted(&other)), &[&root.path]);
    }

    /// What has no data.
    fn make_special(&mut self, dir: &Dir, mine: &str) {
        let [link, pipe] = ["l", "p"].map(|kind| format!("{kind}{mine}"));
        let target = Bytes::from_static(b"somewhere");
        let symlink = Call::SymLink(SymLinkArgs { at: dir.at(&link), attr: SetAttr::NONE, target });
        self.made("SYMLINK", symlink, (makes_link, quoted(&link)), dir, &link);
        let mknod = Call::MkNod(MkNodArgs { at: dir.at(&pipe), what: NodeKind::Fifo(ATTR) });
        self.made("MKNOD", mknod, (makes_node, quoted(&pipe)), dir, &pipe);
        self.promise("REMOVE", Call::Remove(dir.at(&pipe)), (unlinks, quoted(&pipe)), &[&dir.path]);
    }

    /// `x…`, twice with the same verifier: a client repeats the call after a lost reply.
    fn create_exclusively(&mut self, root: &Dir, mine: &str) {
        let name = format!("x{mine}");
        let objects = [&root.path_of(&name)[..], &root.path];
        let create = || Call::Create(CreateArgs { at: root.at(&name), how: CreateHow::Exclusive([7; 8]) });
        // The verifier is kept in its times, which it has before its name, where the file system can do that.
        self.made("CREATE", create(), (names_file, quoted(&name)), root, &name);
        let first = self.last().reply.clone();
        self.promise("CREATE", create(), (is_send, first), &objects);
    }

    /// `f…` goes to another name, to another directory, and over a file there; a directory goes to another one.
    fn move_across(&mut self, root: &Dir, sub: &Dir, mine: &str) {
        let [f, g, x, moved] = ["f", "g", "x", "m"].map(|kind| format!("{kind}{mine}"));
        let rename = |from: DirOp, to: DirOp| Call::Rename(RenameArgs { from, to });
        self.promise("RENAME", rename(root.at(&f), root.at(&g)), (renames, quoted(&g)), &[&root.path]);
        let both = [&root.path[..], &sub.path];
        self.promise("RENAME", rename(root.at(&g), sub.at(&f)), (renames, quoted(&f)), &both);
        self.promise("RENAME", rename(root.at(&x), sub.at(&f)), (renames, quoted(&f)), &both);
        let inner = format!("i{mine}");
        let mkdir = Call::MkDir(MkDirArgs { at: root.at(&inner), attr: SetAttr { mode: Some(0o755), ..ATTR } });
        self.made("MKDIR", mkdir, (makes_dir, quoted(&inner)), root, &inner);
        // Its own `..` is another then, which a journal takes with the names.
        let own = sub.path_of(&moved);
        let objects = [&root.path[..], &sub.path, &own];
        let objects = if self.disk.has_journal { &objects[..2] } else { &objects };
        self.promise("RENAME", rename(root.at(&inner), sub.at(&moved)), (renames, quoted(&moved)), objects);
        self.promise("RMDIR", Call::RmDir(sub.at(&moved)), (unlinks, quoted(&moved)), &[&sub.path]);
        self.promise("REMOVE", Call::Remove(sub.at(&f)), (unlinks, quoted(&f)), &[&sub.path]);
    }

    /// A WRITE that can be told from all others, and how.
    fn write(&self, fh: &Fh, stable: Stable) -> (Call, Vec<u8>) {
        let tag = [&[0xd1, 0xd2, 0xd3][..], &self.next_xid.to_be_bytes()].concat();
        let (count, data) = (tag.len() as u32, Bytes::from(tag.clone()));
        (Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count, stable, data }), tag)
    }

    /// The handle of what is made as `name`. A journal has taken it together with its name.
    fn made(&mut self, what: &'static str, call: Call, shows: Shows, dir: &Dir, name: &str) -> Fh {
        let own = dir.path_of(name);
        let objects = [&dir.path[..], &own];
        // What cannot be opened is flushed with all, or not at all.
        let alone = self.disk.has_journal || (!self.disk.syncs_all && matches!(what, "SYMLINK" | "MKNOD"));
        let reply = self.promise(what, call, shows, if alone { &objects[..1] } else { &objects });
        let (Reply::Create(Ok(ok)) | Reply::MkDir(Ok(ok)) | Reply::SymLink(Ok(ok)) | Reply::MkNod(Ok(ok))) = reply
        else {
            panic!("{reply:?}")
        };
        ok.fh.unwrap()
    }

    fn promise(&mut self, what: &'static str, call: Call, (is_change, change): Shows, objects: &[&str]) -> Reply {
        let (xid, answer) = self.call(&call);
        // A reply begins with the call's xid and the word for a reply.
        let head = [xid.to_be_bytes(), 1u32.to_be_bytes()].concat();
        let Disk { has_journal, syncs_all, ref root } = *self.disk;
        let objects = objects.iter().map(|&o| o.to_owned()).collect();
        let (root, data_will_do, reply) = (root.clone(), false, hex(&head));
        let wanted = Wanted { is_change, change, objects, root, data_will_do, has_journal, syncs_all, reply };
        self.promises.push(Promise { what, wanted });
        answer
    }

    /// What the latest promise wants.
    fn last(&mut self) -> &mut Wanted {
        &mut self.promises.last_mut().unwrap().wanted
    }

    fn call(&mut self, call: &Call) -> (u32, Reply) {
        self.next_xid += 1;
        let bytes = self.stream.exchange(&raw::nfs(self.next_xid, call)).unwrap();
        let reply = raw::results(call, &bytes).unwrap();
        assert_eq!(reply.status(), None, "{call:?}");
        (self.next_xid, reply)
    }
}

/// A whole name in the trace.
fn quoted(name: &str) -> String {
    format!("\"{}\"", hex(name.as_bytes()))
}

fn writes(e: &Event) -> bool {
    matches!(e.name.as_str(), "pwrite64" | "pwritev" | "pwritev2")
}

fn opens(e: &Event) -> bool {
    matches!(e.name.as_str(), "openat" | "openat2") && e.args.contains("O_CREAT")
}

fn makes_dir(e: &Event) -> bool {
    e.name == "mkdirat"
}

fn makes_link(e: &Event) -> bool {
    e.name == "symlinkat"
}

fn makes_node(e: &Event) -> bool {
    e.name == "mknodat"
}

fn links(e: &Event) -> bool {
    e.name == "linkat"
}

fn changes_mode(e: &Event) -> bool {
    e.name == "fchmodat"
}

fn names_file(e: &Event) -> bool {
    links(e) || opens(e)
}

fn truncates(e: &Event) -> bool {
    e.name == "ftruncate"
}

fn renames(e: &Event) -> bool {
    matches!(e.name.as_str(), "renameat" | "renameat2")
}

fn unlinks(e: &Event) -> bool {
    // What is removed may first be moved aside.
    e.name == "unlinkat" || renames(e)
}
