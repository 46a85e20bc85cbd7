//! Which calls change names.

use super::*;

const FILE: &[u8] = b"file";
const DIR: &[u8] = b"dir";
const OTHER: &[u8] = b"other";

fn fh(handle: &'static [u8]) -> Fh {
    Fh(Bytes::from_static(handle))
}

fn at(dir: &'static [u8]) -> DirOp {
    DirOp { dir: fh(dir), name: Bytes::from_static(b"name") }
}

/// Every call, and the directory whose names it changes.
fn all() -> Vec<(Call, Option<&'static [u8]>)> {
    let (attr, target, what) = (SetAttr::NONE, Bytes::from_static(b"to"), NodeKind::Fifo(SetAttr::NONE));
    let (offset, count, stable, data) = (0, 1, Stable::Unstable, Bytes::from_static(b"x"));
    let (cookie, verf) = (0, [0; 8]);
    vec![
        (Call::Null, None),
        (Call::GetAttr(fh(FILE)), None),
        (Call::SetAttr(SetAttrArgs { fh: fh(FILE), attr: attr.clone(), guard: None }), None),
        (Call::Lookup(at(DIR)), None),
        (Call::Access(AccessArgs { fh: fh(FILE), access: 1 }), None),
        (Call::ReadLink(fh(FILE)), None),
        (Call::Read(ReadArgs { fh: fh(FILE), offset, count }), None),
        (Call::Write(WriteArgs { fh: fh(FILE), offset, count, stable, data }), None),
        (Call::Create(CreateArgs { at: at(DIR), how: CreateHow::Exclusive(verf) }), Some(DIR)),
        (Call::MkDir(MkDirArgs { at: at(DIR), attr: attr.clone() }), Some(DIR)),
        (Call::SymLink(SymLinkArgs { at: at(DIR), attr, target }), Some(DIR)),
        (Call::MkNod(MkNodArgs { at: at(DIR), what }), Some(DIR)),
        (Call::Remove(at(DIR)), Some(DIR)),
        (Call::RmDir(at(DIR)), Some(DIR)),
        (Call::Rename(RenameArgs { from: at(DIR), to: at(OTHER) }), Some(DIR)),
        (Call::Link(LinkArgs { fh: fh(FILE), at: at(DIR) }), Some(DIR)),
        (Call::ReadDir(ReadDirArgs { dir: fh(DIR), cookie, verf, count }), None),
        (Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(DIR), cookie, verf, dir_count: 1, max_count: 1 }), None),
        (Call::FsStat(fh(FILE)), None),
        (Call::FsInfo(fh(FILE)), None),
        (Call::PathConf(fh(FILE)), None),
        (Call::Commit(CommitArgs { fh: fh(FILE), offset, count }), None),
    ]
}

#[test]
fn each_call_tells_whether_and_where_it_changes_names() {
    let calls = all();
    assert!(calls.iter().map(|(call, _)| call.proc()).eq(Proc::ALL), "all procedures, in their order");
    for (call, dir) in calls {
        assert_eq!(call.changes_names_in().map(|fh| &fh.0[..]), dir, "{call:?}");
        assert_eq!(call.changes_names(), dir.is_some() || call.proc() == Proc::SetAttr, "{call:?}");
    }
}
