//! Records of answered calls, for an access log. Without one nothing here runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Peer;
use remora_wire::nfs3::{Call, Fh, Status};

use crate::Exports;
use crate::auth::Caller;
use crate::job::{Form, Work};

/// An answered call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessRecord {
    pub client: SocketAddr,
    /// The uid that the call claims; `None` is anonymous.
    pub uid: Option<u32>,
    /// The procedure's name in RFC 1813; GETACL and SETACL are NFSACL's.
    pub procedure: &'static str,
    /// The first name of the handle's export; `None` if the handle is of no export.
    pub export: Option<Arc<str>>,
    /// The name in the call, without its directory's path, which a handle does not tell; of MNT the path.
    pub name: Option<Bytes>,
    /// The second name of RENAME.
    pub new_name: Option<Bytes>,
    /// The status of the reply in RFC 1813, without `NFS3ERR_`. `REPLAY` is the reply of an earlier execution.
    pub status: &'static str,
    /// From the decoded call to its reply.
    pub latency: Duration,
}

/// The status of a reply that the duplicate request cache kept.
pub(crate) const REPLAY: &str = "REPLAY";

/// What a record needs of a call, while the call executes.
#[derive(Clone, Debug)]
pub(crate) struct AccessCall {
    uid: Option<u32>,
    procedure: &'static str,
    fh: Option<Fh>,
    name: Option<Bytes>,
    new_name: Option<Bytes>,
}

impl AccessCall {
    /// `None` for a job on behalf of no client.
    pub(crate) fn of(work: &Work) -> Option<AccessCall> {
        match work {
            Work::Nfs { caller, call, form, .. } => Some(AccessCall::of_nfs(caller, call, form)),
            Work::Mount { caller, path, .. } => Some(AccessCall {
                uid: caller.as_ref().map(|cred| cred.uid),
                procedure: "MNT",
                fh: None,
                name: Some(path.clone()),
                new_name: None,
            }),
            Work::Times(_) => None,
        }
    }

    pub(crate) fn of_nfs(caller: &Caller, call: &Call, form: &Form) -> AccessCall {
        let (name, new_name) = match call {
            Call::Rename(a) => (Some(&a.from.name), Some(&a.to.name)),
            Call::Lookup(a) | Call::Remove(a) | Call::RmDir(a) => (Some(&a.name), None),
            Call::Create(a) => (Some(&a.at.name), None),
            Call::MkDir(a) => (Some(&a.at.name), None),
            Call::SymLink(a) => (Some(&a.at.name), None),
            Call::MkNod(a) => (Some(&a.at.name), None),
            Call::Link(a) => (Some(&a.at.name), None),
            _ => (None, None),
        };
        AccessCall {
            uid: caller.as_ref().map(|cred| cred.uid),
            procedure: match form {
                Form::V3 | Form::V2(_) => call.proc().name(),
                Form::Acl(call) => call.proc().name(),
            },
            fh: call.target().cloned(),
            name: name.cloned(),
            new_name: new_name.cloned(),
        }
    }

    /// The record of the call's answer.
    pub(crate) fn record(self, exports: &Exports, from: Peer, status: &'static str, latency: Duration) -> AccessRecord {
        let AccessCall { uid, procedure, fh, name, new_name } = self;
        let export = fh.and_then(|fh| exports.name_of(&fh));
        AccessRecord { client: from.addr, uid, procedure, export, name, new_name, status, latency }
    }
}

/// The name of a reply's status.
pub(crate) fn status_name(status: Option<Status>) -> &'static str {
    status.map_or("OK", Status::name)
}
