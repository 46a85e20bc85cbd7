//! The procedures of NFSACL. Where the protocol leaves a choice, they do what knfsd does (`fs/nfsd/nfs3acl.c`).

use remora_vfs as vfs;
use remora_wire::nfs3::{Attr, Failed, Res, Status};
use remora_wire::nfsacl::{
    ACCESS, ACCESS_COUNT, Acl, Acls, Call, DEFAULT, DEFAULT_COUNT, ENTRIES_MAX, Entry, GetAclArgs, GetAclOk, MASK,
    Reply, SetAclArgs, Tag,
};

use super::context::Exec;

impl Exec<'_> {
    pub(crate) fn run_acl(&self, call: &Call) -> Reply {
        match call {
            Call::Null => Reply::Null,
            Call::GetAcl(a) => Reply::GetAcl(self.get_acl(a)),
            Call::SetAcl(a) => Reply::SetAcl(self.set_acl(a)),
        }
    }

    fn get_acl(&self, a: &GetAclArgs) -> Res<GetAclOk, Option<Attr>> {
        self.look(&a.fh, |o| {
            if !o.terms.acl {
                return Err(Status::NotSupp);
            }
            if a.mask & !MASK != 0 {
                return Err(Status::Inval);
            }
            let found = o.vfs().acls(&o.cred, &o.id)?;
            let attr = o.vfs().getattr(&o.id)?;
            let access = found.access.unwrap_or_else(|| minimal(attr.mode));
            let access = to_wire(access, &attr, a.mask & ACCESS_COUNT, a.mask & ACCESS)?;
            let default = to_wire(found.default.unwrap_or_default(), &attr, a.mask & DEFAULT_COUNT, a.mask & DEFAULT)?;
            Ok(GetAclOk { attr: Some(attr), acls: Acls { mask: a.mask, access, default } })
        })
    }

    fn set_acl(&self, a: &SetAclArgs) -> Res<Option<Attr>, Option<Attr>> {
        let part = |acl: &Acl, bit: u32| (a.acls.mask & bit != 0).then(|| from_wire(acl.entries.clone()));
        let acls = vfs::Acls { access: part(&a.acls.access, ACCESS), default: part(&a.acls.default, DEFAULT) };
        let done = self.change(&a.fh, |o| {
            if !o.terms.acl {
                return Err(Status::NotSupp);
            }
            o.vfs().set_acls(&o.cred, &o.id, &acls)?;
            Ok(o.attr())
        });
        done.map_err(|Failed { status, info }| Failed { status, info: info.after })
    }
}

/// The ACL that says as much as a mode.
fn minimal(mode: u32) -> Vec<Entry> {
    let entry = |tag, shift: u32| Entry { tag, id: 0, perm: mode >> shift & 0o7 };
    vec![entry(Tag::UserObj, 6), entry(Tag::GroupObj, 3), entry(Tag::Other, 0)]
}

/// The entries, or only their number, as clients expect them: those of the owner and the group with their ids, and
/// Solaris's clients a mask.
fn to_wire(mut entries: Vec<Entry>, attr: &Attr, counts: u32, shows: u32) -> vfs::Result<Acl> {
    if let [_, group, _] = entries[..] {
        entries.insert(2, Entry { tag: Tag::Mask, ..group });
    }
    for entry in &mut entries {
        entry.id = match entry.tag {
            Tag::UserObj => attr.uid,
            Tag::GroupObj => attr.gid,
            Tag::User | Tag::Group => entry.id,
            Tag::Mask | Tag::Other => 0,
        };
    }
    let count = u32::try_from(entries.len()).ok().filter(|count| *count <= ENTRIES_MAX).ok_or(Status::FBig)?;
    Ok(match (counts | shows, shows) {
        (0, _) => Acl::default(),
        (_, 0) => Acl { count, entries: Vec::new() },
        _ => Acl { count, entries },
    })
}

/// The entries in the order that the kernel wants, without a mask that says nothing: with it the ACL would not be
/// minimal.
fn from_wire(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    if let [_, Entry { tag: Tag::GroupObj, perm: group, .. }, Entry { tag: Tag::Mask, perm: mask, .. }, _] = entries[..]
        && group == mask
    {
        entries.remove(2);
    }
    entries
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;

    fn entries(list: &[(Tag, u32, u32)]) -> Vec<Entry> {
        list.iter().map(|(tag, id, perm)| Entry { tag: *tag, id: *id, perm: *perm }).collect()
    }

    fn attr() -> Attr {
        let (time, rdev) = (NfsTime { secs: 0, nanos: 0 }, SpecData { major: 0, minor: 0 });
        let (mode, uid, gid, size, used, fsid, fileid) = (0o640, 5, 6, 0, 0, 1, 2);
        let (kind, nlink) = (FileType::Regular, 1);
        Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime: time, mtime: time, ctime: time }
    }

    use Tag::{Group, GroupObj, Mask, Other, User, UserObj};

    #[test]
    fn minimal_acl_goes_with_a_mask_and_comes_back_without() {
        let sent = to_wire(minimal(0o1640), &attr(), 0, ACCESS).unwrap();
        assert_eq!(sent.entries, entries(&[(UserObj, 5, 6), (GroupObj, 6, 4), (Mask, 0, 4), (Other, 0, 0)]));
        assert_eq!(from_wire(sent.entries), entries(&[(UserObj, 5, 6), (GroupObj, 6, 4), (Other, 0, 0)]));
    }

    #[test]
    fn larger_acls_keep_their_masks_and_are_sorted() {
        let mask_counts = entries(&[(UserObj, 5, 7), (GroupObj, 6, 5), (Mask, 0, 1), (Other, 0, 0)]);
        assert_eq!(from_wire(mask_counts.clone()), mask_counts);
        let sorted = [(UserObj, 5, 7), (User, 1, 1), (User, 2, 1), (GroupObj, 6, 5), (Group, 1, 1), (Mask, 0, 5)];
        let sorted = entries(&[&sorted[..], &[(Other, 0, 0)]].concat());
        let mut mixed = sorted.clone();
        mixed.reverse();
        mixed.swap(1, 3);
        assert_eq!(from_wire(mixed), sorted);
        assert_eq!(to_wire(sorted.clone(), &attr(), 0, DEFAULT).unwrap().entries, sorted);
    }

    #[test]
    fn acl_of_too_many_entries_is_no_reply() {
        let many = |n| entries(&[(User, 1, 7)]).repeat(n);
        assert_eq!(to_wire(many(1024), &attr(), ACCESS_COUNT, 0), Ok(Acl { count: 1024, entries: vec![] }));
        assert_eq!(to_wire(many(1025), &attr(), ACCESS_COUNT, ACCESS), Err(Status::FBig));
    }
}
