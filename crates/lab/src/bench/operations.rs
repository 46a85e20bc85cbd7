//! The operations, and the calls of each.

use bytes::Bytes;
use remora_client::Transport;
use remora_wire::nfs3::{
    ACCESS_LOOKUP, ACCESS_READ, AccessArgs, Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, ReadArgs, ReadDirArgs,
    ReadDirPlusArgs, SetAttr, SetAttrArgs, SetTime, Stable, WriteArgs,
};

use super::plan::{CallKind, CallPlan, CountedUnit, Encoder, Image, NAME_LEN, Script, Span, Step, filling};
use super::scratch::{FileNeeds, ScratchFiles};

/// Most file data of a call over UDP: a datagram without header space.
const DATAGRAM_DATA_MAX: u32 = 60 << 10;
/// Requested size of a directory page, in bytes.
const PAGE: (u32, u32) = (16 << 10, 64 << 10);
const DATAGRAM_PAGE: (u32, u32) = (2 << 10, 8 << 10);
/// Bytes of a READ or WRITE in the mix.
const MIX_BLOCK: u32 = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub name: &'static str,
    pub about: &'static str,
    pub(super) work: OperationKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationKind {
    Null,
    GetAttr,
    Lookup,
    Access,
    Read(u32),
    Write(u32, Stable),
    CreateRemove,
    WriteCommit,
    List,
    Mix,
}

const fn operation(name: &'static str, work: OperationKind, about: &'static str) -> Operation {
    Operation { name, about, work }
}

/// All operations, in the order of execution.
pub const ALL: &[Operation] = &[
    operation("null", OperationKind::Null, "NULL: the RPC layer alone"),
    operation("getattr", OperationKind::GetAttr, "GETATTR of 64 files in turn"),
    operation("lookup", OperationKind::Lookup, "LOOKUP of 64 names in a directory"),
    operation("access", OperationKind::Access, "ACCESS of 64 files"),
    operation("read-4k", OperationKind::Read(4 << 10), "READ of 4 KiB at random places of a 16 MiB file"),
    operation("read-64k", OperationKind::Read(64 << 10), "READ of 64 KiB"),
    operation("read-1m", OperationKind::Read(1 << 20), "READ of 1 MiB"),
    operation(
        "write-64k",
        OperationKind::Write(64 << 10, Stable::Unstable),
        "WRITE UNSTABLE of 64 KiB, one behind the other",
    ),
    operation(
        "write-sync-4k",
        OperationKind::Write(4 << 10, Stable::FileSync),
        "WRITE FILE_SYNC of 4 KiB, all to one file",
    ),
    operation(
        "create-remove",
        OperationKind::CreateRemove,
        "CREATE of a new name, then REMOVE of it; each call counts",
    ),
    operation("commit", OperationKind::WriteCommit, "WRITE UNSTABLE of 4 KiB, then COMMIT of it; each call counts"),
    operation("readdirplus", OperationKind::List, "READDIRPLUS of a whole directory (--files); a listing counts"),
    operation("mix", OperationKind::Mix, "the mix of calls of SPECsfs2008 for NFSv3, 8 KiB a READ or WRITE"),
];

/// The named operations, each once, in the order of [`ALL`]; an unknown name is the error.
pub fn named(names: &[String]) -> Result<Vec<Operation>, String> {
    if let Some(unknown) = names.iter().find(|n| !ALL.iter().any(|o| o.name == n.as_str())) {
        return Err(unknown.clone());
    }
    Ok(ALL.iter().filter(|o| names.iter().any(|n| n == o.name)).copied().collect())
}

impl Operation {
    pub(super) fn lists(&self) -> bool {
        self.work == OperationKind::List
    }

    pub(super) fn needs(&self) -> FileNeeds {
        let mut needs = FileNeeds::default();
        match self.work {
            OperationKind::Write(_, Stable::FileSync | Stable::DataSync) => needs.sync = true,
            OperationKind::Read(_) | OperationKind::Write(..) | OperationKind::WriteCommit => needs.data = true,
            OperationKind::List => needs.many = true,
            OperationKind::Mix => needs.small = true,
            OperationKind::Null
            | OperationKind::GetAttr
            | OperationKind::Lookup
            | OperationKind::Access
            | OperationKind::CreateRemove => {}
        }
        needs
    }

    /// Why a server with these READ and WRITE limits does not support it.
    pub(super) fn obstacle(&self, transport: Transport, read_max: u32, write_max: u32) -> Option<String> {
        let (read, write) = match self.work {
            OperationKind::Read(len) => (len, 0),
            OperationKind::Write(len, _) => (0, len),
            _ => (0, 0),
        };
        if transport == Transport::Udp && read.max(write) > DATAGRAM_DATA_MAX {
            return Some("it does not fit in a datagram".to_owned());
        }
        if read > read_max {
            return Some(format!("the server's READs have at most {read_max} bytes"));
        }
        (write > write_max).then(|| format!("the server's WRITEs have at most {write_max} bytes"))
    }

    /// The calls on these files; `None` if a needed file is missing.
    pub(super) fn plan(
        &self,
        files: &ScratchFiles,
        encoder: &Encoder,
        image: &Image,
        transport: Transport,
    ) -> Option<CallPlan> {
        let calls = Calls { files, encoder, image, transport };
        let unit = if self.lists() { CountedUnit::Script } else { CountedUnit::Call };
        let single = |step| vec![Script::single(1, step)];
        let scripts = match self.work {
            OperationKind::Null => single(calls.plain(vec![Call::Null])),
            OperationKind::GetAttr => single(calls.getattr()),
            OperationKind::Lookup => single(calls.lookup()),
            OperationKind::Access => single(calls.access()),
            OperationKind::Read(len) => single(calls.read(len, vec![(files.data.clone(), files.whole)])),
            OperationKind::Write(len, stable) => {
                let file = if stable == Stable::Unstable { &files.data } else { &files.sync };
                single(calls.write(len, stable, vec![(file.clone(), files.whole)]))
            }
            OperationKind::CreateRemove => vec![calls.create_remove(1)],
            OperationKind::WriteCommit => {
                let write = calls.write(4 << 10, Stable::Unstable, vec![(files.data.clone(), files.whole)]);
                let commit = Call::Commit(CommitArgs { fh: files.data.clone(), offset: 0, count: 0 });
                vec![Script { weight: 1, steps: vec![write, calls.plain(vec![commit])] }]
            }
            OperationKind::List => single(calls.list(files.many.as_ref()?, CallKind::Page)),
            OperationKind::Mix => calls.mix(),
        };
        CallPlan::new(scripts, unit)
    }
}

/// A script that creates a file for each number from 0.
pub(super) fn creation(dir: &Fh, encoder: &Encoder) -> Option<CallPlan> {
    CallPlan::new(vec![Script::single(1, create(dir, encoder))], CountedUnit::Call)
}

fn create(dir: &Fh, encoder: &Encoder) -> Step {
    // UNCHECKED: a retransmission is harmless.
    let how = CreateHow::Unchecked(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    encoder.step(CallKind::Name, vec![(Call::Create(CreateArgs { at: any_name(dir), how }), Span { base: 0, len: 0 })])
}

fn any_name(dir: &Fh) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::from_static(&[b'-'; NAME_LEN]) }
}

struct Calls<'a> {
    files: &'a ScratchFiles,
    encoder: &'a Encoder,
    image: &'a Image,
    transport: Transport,
}

impl Calls<'_> {
    fn plain(&self, calls: Vec<Call>) -> Step {
        self.encoder.step(CallKind::Plain, calls.into_iter().map(|c| (c, self.files.whole)).collect())
    }

    /// The same call for each of the small files.
    fn each(&self, call: impl Fn(&Fh) -> Call) -> Step {
        self.plain(self.files.small.iter().map(|f| call(&f.fh)).collect())
    }

    fn getattr(&self) -> Step {
        self.each(|fh| Call::GetAttr(fh.clone()))
    }

    fn access(&self) -> Step {
        self.each(|fh| Call::Access(AccessArgs { fh: fh.clone(), access: ACCESS_READ | ACCESS_LOOKUP }))
    }

    fn lookup(&self) -> Step {
        let at = |name: &Bytes| DirOp { dir: self.files.dir.clone(), name: name.clone() };
        self.plain(self.files.small.iter().map(|f| Call::Lookup(at(&f.name))).collect())
    }

    fn read(&self, len: u32, of: Vec<(Fh, Span)>) -> Step {
        let call = |(fh, span)| (Call::Read(ReadArgs { fh, offset: 0, count: len }), span);
        self.encoder.step(CallKind::Read(len), of.into_iter().map(call).collect())
    }

    fn write(&self, len: u32, stable: Stable, of: Vec<(Fh, Span)>) -> Step {
        let data = filling(self.image, len);
        let call = |(fh, span)| {
            let data = data.clone();
            (Call::Write(WriteArgs { fh, offset: 0, count: len, stable, data }), span)
        };
        self.encoder.step(CallKind::Write(len, stable), of.into_iter().map(call).collect())
    }

    fn create_remove(&self, weight: u32) -> Script {
        let remove = Call::Remove(any_name(&self.files.new));
        let remove = self.encoder.step(CallKind::Name, vec![(remove, Span { base: 0, len: 0 })]);
        Script { weight, steps: vec![create(&self.files.new, self.encoder), remove] }
    }

    fn list(&self, dir: &Fh, kind: CallKind) -> Step {
        let (dir_count, max_count) = if self.transport == Transport::Udp { DATAGRAM_PAGE } else { PAGE };
        let args = ReadDirPlusArgs { dir: dir.clone(), cookie: 0, verf: [0; 8], dir_count, max_count };
        self.encoder.step(kind, vec![(Call::ReadDirPlus(args), self.files.whole)])
    }

    /// The call mix of SPECsfs2008's NFSv3 workload, in percent: M. Eisler, "More on SPEC SFS", NetApp, 2008, and the
    /// benchmark's user's guide. Its file set, sizes and offered rates are not reproduced.
    fn mix(&self) -> Vec<Script> {
        let small: Vec<(Fh, Span)> = self.files.small.iter().map(|f| (f.fh.clone(), f.span)).collect();
        let fh = &self.files.dir;
        let touch = SetAttr { mtime: SetTime::Server, ..SetAttr::NONE };
        let touch = |fh: &Fh| Call::SetAttr(SetAttrArgs { fh: fh.clone(), attr: touch.clone(), guard: None });
        let page = ReadDirArgs { dir: fh.clone(), cookie: 0, verf: [0; 8], count: DATAGRAM_PAGE.1 };
        let one = |weight, step| Script::single(weight, step);
        vec![
            one(26, self.getattr()),
            one(24, self.lookup()),
            one(18, self.read(MIX_BLOCK, small.clone())),
            one(11, self.access()),
            one(10, self.write(MIX_BLOCK, Stable::Unstable, small)),
            one(4, self.each(touch)),
            one(2, self.list(fh, CallKind::Plain)),
            one(1, self.plain(vec![Call::ReadLink(self.files.link.clone())])),
            one(1, self.plain(vec![Call::ReadDir(page)])),
            one(1, self.plain(vec![Call::FsStat(fh.clone())])),
            // CREATE and REMOVE, 1 % each.
            self.create_remove(1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_operations_are_in_order() {
        let names = |n: &[&str]| n.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let found = named(&names(&["mix", "null", "mix"])).unwrap();
        assert_eq!(found.iter().map(|o| o.name).collect::<Vec<_>>(), ["null", "mix"]);
        assert_eq!(named(&names(&["null", "nil"])), Err("nil".to_owned()));
    }

    #[test]
    fn operation_beyond_the_limits_is_an_obstacle() {
        let of = |name: &str| ALL.iter().find(|o| o.name == name).unwrap();
        let large = 1 << 20;
        assert!(of("read-64k").obstacle(Transport::Udp, large, large).is_some());
        assert!(of("read-64k").obstacle(Transport::Tcp, large, 0).is_none());
        assert!(of("read-1m").obstacle(Transport::Tcp, large / 2, large).is_some());
        assert!(of("write-64k").obstacle(Transport::Tcp, large, large / 32).is_some());
        assert!(of("getattr").obstacle(Transport::Udp, 0, 0).is_none());
    }
}
