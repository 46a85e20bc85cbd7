//! What the reply to a change shows of the objects and names that the change is about.

use remora_base::Time;
use remora_wire::nfs3::{self, Reply, Wcc};

use crate::disk::fetch;
use crate::learn::{self, Shown};
use crate::state::{Change, State};

/// Records what the reply to a change shows.
pub(crate) fn record(state: &mut State, change: &Change, reply: &Reply, asked: Time) {
    let none = Wcc::NONE;
    match reply {
        Reply::SetAttr(Ok(wcc) | Err(nfs3::Failed { info: wcc, .. })) => {
            learn::finish_change(state, change, [wcc, &none], asked);
            if let Change::SetAttr(id) | Change::Complete(id) | Change::Deferred(id) | Change::Cut(id) = change
                && let Some(node) = state.nodes.get_mut(*id)
            {
                node.grants.clear();
            }
        }
        Reply::Create(made) | Reply::MkDir(made) | Reply::SymLink(made) | Reply::MkNod(made) => {
            made_object(state, change, made, asked);
        }
        Reply::Remove(Ok(wcc)) | Reply::RmDir(Ok(wcc)) => {
            learn::finish_change(state, change, [wcc, &none], asked);
            if let Change::Remove(at) = change {
                learn::removed(state, at, asked);
            }
        }
        Reply::Remove(Err(failed)) | Reply::RmDir(Err(failed)) => {
            learn::finish_change(state, change, [&failed.info, &none], asked);
        }
        Reply::Rename(result) => {
            let dirs = match result {
                Ok(dirs) => dirs,
                Err(failed) => &failed.info,
            };
            learn::finish_change(state, change, [&dirs.from, &dirs.to], asked);
            if let (Ok(_), Change::Rename { from, to }) = (result, change) {
                learn::renamed(state, from, to);
            }
        }
        Reply::Link(result) => {
            let attrs = match result {
                Ok(attrs) => attrs,
                Err(failed) => &failed.info,
            };
            learn::finish_change(state, change, [&attrs.dir, &none], asked);
            if let (Ok(_), Change::Link { node, to }) = (result, change) {
                learn::linked(state, *node, to);
                if let Some(attr) = &attrs.attr {
                    learn::learn_attr(state, *node, attr, asked);
                }
            }
        }
        _ => learn::finish_change(state, change, [&none, &none], asked),
    }
    if reply.status().is_some() {
        forget_names(state, change);
    }
}

/// CREATE, MKDIR, SYMLINK or MKNOD is answered.
fn made_object(state: &mut State, change: &Change, made: &Result<nfs3::MadeOk, nfs3::Failed<Wcc>>, asked: Time) {
    let wcc = match made {
        Ok(ok) => &ok.dir,
        Err(failed) => &failed.info,
    };
    learn::finish_change(state, change, [wcc, &Wcc::NONE], asked);
    if let (Ok(ok), Change::Make(at)) = (made, change) {
        match (&ok.fh, &ok.attr) {
            (Some(fh), Some(attr)) => {
                learn::learn_object(state, Shown { at, fh, attr, asked: state.now }, true);
                learn::made_directory(state, at);
                if let Some(id) = learn::known_node(state, at) {
                    fetch::made(state, id);
                }
            }
            _ => learn::forget_name(state, at),
        }
    }
}

/// Drops what is known of the names of a change that failed or whose outcome is unknown.
pub(crate) fn forget_names(state: &mut State, change: &Change) {
    match change {
        Change::SetAttr(_) | Change::Complete(_) | Change::Deferred(_) | Change::Cut(_) => {}
        Change::Make(at) | Change::Remove(at) | Change::Link { to: at, .. } => learn::forget_name(state, at),
        Change::Rename { from, to } => {
            learn::forget_name(state, from);
            learn::forget_name(state, to);
        }
    }
}
