//! Credentials of callers, each kept once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use remora_wire::rpc::AuthUnix;

/// Identifies a credential.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CredentialId(u32);

/// Supplementary groups in an AUTH_SYS credential (RFC 5531, appendix A).
const GROUPS_MAX: usize = 16;

/// Who a program is, towards the server.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) id: CredentialId,
    pub(crate) auth: Arc<AuthUnix>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// Credentials that were used since the mount.
#[derive(Debug)]
pub(crate) struct Credentials {
    machine: Bytes,
    known: BTreeMap<Identity, Caller>,
    by_id: BTreeMap<CredentialId, Arc<AuthUnix>>,
}

impl Credentials {
    pub(crate) fn new(machine: Bytes) -> Credentials {
        Credentials { machine, known: BTreeMap::new(), by_id: BTreeMap::new() }
    }

    /// The credential of a user with these groups. AUTH_SYS has room for 16 supplementary groups; the others are
    /// left out.
    pub(crate) fn of(&mut self, uid: u32, gid: u32, groups: &[u32]) -> Caller {
        let mut groups: Vec<u32> = groups.iter().copied().filter(|group| *group != gid).collect();
        groups.truncate(GROUPS_MAX);
        let next = CredentialId(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        let machine = self.machine.clone();
        let identity = Identity { uid, gid, groups };
        let gids = identity.groups.clone();
        let caller = || Caller { id: next, auth: Arc::new(AuthUnix { stamp: 0, machine, uid, gid, gids }) };
        let caller = self.known.entry(identity).or_insert_with(caller).clone();
        self.by_id.entry(caller.id).or_insert_with(|| caller.auth.clone());
        caller
    }

    pub(crate) fn get(&self, id: CredentialId) -> Option<&AuthUnix> {
        self.by_id.get(&id).map(|auth| &**auth)
    }
}
