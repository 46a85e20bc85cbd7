//! Procedures that change directories.

use bytes::Bytes;
use remora_server::cache;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, FileType, LinkArgs, MadeOk, MkDirArgs, MkNodArgs, NodeKind, RenameArgs,
    Reply, SetAttr, Status, SymLinkArgs,
};

use crate::world::{World, at};

fn world() -> (World, Fh) {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    (w, root)
}

fn made(reply: Reply) -> MadeOk {
    match reply {
        Reply::Create(Ok(m)) | Reply::MkDir(Ok(m)) | Reply::SymLink(Ok(m)) | Reply::MkNod(Ok(m)) => m,
        other => panic!("{other:?}"),
    }
}

fn mkdir(at: DirOp) -> Call {
    Call::MkDir(MkDirArgs { at, attr: SetAttr::NONE })
}

#[test]
fn created_object_has_handle_and_attributes() {
    let (mut w, root) = world();
    let none = SetAttr::NONE;
    let calls = [
        (Call::Create(CreateArgs { at: at(&root, "file"), how: CreateHow::Guarded(none.clone()) }), FileType::Regular),
        (mkdir(at(&root, "dir")), FileType::Directory),
        (
            Call::SymLink(SymLinkArgs { at: at(&root, "link"), attr: none.clone(), target: "a/b".into() }),
            FileType::SymLink,
        ),
        (Call::MkNod(MkNodArgs { at: at(&root, "pipe"), what: NodeKind::Fifo(none) }), FileType::Fifo),
    ];
    for (call, kind) in calls {
        let m = made(w.call(&call));
        let attr = m.attr.unwrap();
        assert_eq!(attr.kind, kind);
        assert_eq!(w.call(&Call::GetAttr(m.fh.clone().unwrap())), Reply::GetAttr(Ok(attr)));
        assert_ne!(m.dir.before.unwrap().mtime, m.dir.after.unwrap().mtime);
        assert_eq!(w.call(&call).status(), Some(Status::Exist), "a new request, not a duplicate");
        if kind == FileType::SymLink {
            let Reply::ReadLink(Ok(ok)) = w.call(&Call::ReadLink(m.fh.unwrap())) else { panic!() };
            assert_eq!(ok.target, "a/b");
        }
    }
}

#[test]
fn an_exclusive_create_finds_its_file_again() {
    let (mut w, root) = world();
    let call = |verf| Call::Create(CreateArgs { at: at(&root, "f"), how: CreateHow::Exclusive(verf) });
    let first = made(w.call(&call([1; 8])));
    assert_eq!(made(w.call(&call([1; 8]))).fh, first.fh);
    assert_eq!(w.call(&call([2; 8])).status(), Some(Status::Exist));
}

#[test]
fn types_that_mknod_does_not_make() {
    let (mut w, root) = world();
    for number in [FileType::Regular as u32, FileType::Directory as u32, FileType::SymLink as u32, 0, 8, u32::MAX] {
        let call = Call::MkNod(MkNodArgs { at: at(&root, "x"), what: NodeKind::Other(number) });
        assert_eq!(w.call(&call).status(), Some(Status::BadType), "{number}");
    }
}

#[test]
fn rename_link_remove_and_rmdir() {
    let (mut w, root) = world();
    let f = w.file(&root, "f");
    let d = made(w.call(&mkdir(at(&root, "d")))).fh.unwrap();
    let Reply::Link(Ok(ok)) = w.call(&Call::Link(LinkArgs { fh: f.clone(), at: at(&d, "second") })) else { panic!() };
    assert_eq!((ok.attr.unwrap().nlink, ok.dir.after.is_some()), (2, true));
    let rename = Call::Rename(RenameArgs { from: at(&root, "f"), to: at(&d, "g") });
    let Reply::Rename(Ok(dirs)) = w.call(&rename) else { panic!() };
    assert!(dirs.from.after.is_some() && dirs.to.after.is_some());
    let Reply::Rename(Err(e)) = w.call(&rename) else { panic!() };
    assert_eq!((e.status, e.info.from.after.is_some(), e.info.to.after.is_some()), (Status::NoEnt, true, true));
    assert_eq!(w.call(&Call::RmDir(at(&root, "d"))).status(), Some(Status::NotEmpty));
    for name in ["g", "second"] {
        let Reply::Remove(Ok(wcc)) = w.call(&Call::Remove(at(&d, name))) else { panic!() };
        assert!(wcc.before.is_some() && wcc.after.is_some());
    }
    assert_eq!(w.call(&Call::RmDir(at(&root, "d"))).status(), None);
    let Reply::Link(Err(e)) = w.call(&Call::Link(LinkArgs { fh: f, at: at(&root, "x") })) else { panic!() };
    assert_eq!((e.status, e.info.attr, e.info.dir.after.is_some()), (Status::Stale, None, true));
}

#[test]
fn every_procedure_refuses_bad_names() {
    let (mut w, root) = world();
    for name in [&b"a/b"[..], b"nul\0", b"", b"..", b"."] {
        let at = DirOp { dir: root.clone(), name: Bytes::from_static(name) };
        for call in crate::world::changes_at(&at) {
            assert!(w.call(&call).status().is_some(), "{name:?} {call:?}");
        }
    }
    let Reply::Lookup(Ok(up)) = w.call(&Call::Lookup(at(&root, ".."))) else { panic!() };
    assert_eq!(up.fh, root, "above the root is the root");
}
