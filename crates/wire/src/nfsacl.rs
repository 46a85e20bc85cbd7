//! NFSACL version 3, the program for POSIX ACLs beside NFSv3. It has no RFC: this is the protocol of Solaris's
//! `nfs_acl.x` as Linux speaks it (`fs/nfs_common/nfsacl.c`).

use crate::nfs3::{Attr, Fh, Res, Status};
use crate::xdr::put_array;
use crate::{Error, Reader, Xdr};

/// RPC program number.
pub const PROGRAM: u32 = 100_227;
/// RPC program version.
pub const VERSION: u32 = 3;
/// Maximum number of entries of an ACL (NFS_ACL_MAX_ENTRIES).
pub const ENTRIES_MAX: u32 = 1024;
/// Maximum size of the results of GETACL in bytes, less attributes: two ACLs of three words an entry.
pub const RESULTS_MAX: u32 = 2 * 12 * ENTRIES_MAX + 20;

/// Mask: the entries of the access ACL.
pub const ACCESS: u32 = 0x1;
/// Mask: the number of entries of the access ACL.
pub const ACCESS_COUNT: u32 = 0x2;
/// Mask: the entries of a directory's default ACL.
pub const DEFAULT: u32 = 0x4;
/// Mask: the number of entries of a directory's default ACL.
pub const DEFAULT_COUNT: u32 = 0x8;
/// All bits of a mask.
pub const MASK: u32 = ACCESS | ACCESS_COUNT | DEFAULT | DEFAULT_COUNT;

/// Flag in the tag of each entry of a default ACL.
const DEFAULT_TAG: u32 = 0x1000;
/// Permission bits: read, write, execute.
const PERM_MASK: u32 = 0o7;

crate::xdr::procedures! {
    Null, GetAcl, SetAcl,
}

impl Proc {
    /// The name in Linux, without `ACLPROC3_`.
    pub fn name(self) -> &'static str {
        match self {
            Proc::Null => "NULL",
            Proc::GetAcl => "GETACL",
            Proc::SetAcl => "SETACL",
        }
    }
}

/// Whom an entry is for. In an ACL the entries are in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Tag {
    /// The user who owns the object.
    UserObj = 0x01,
    User = 0x02,
    /// The group of the object.
    GroupObj = 0x04,
    Group = 0x08,
    /// The upper bound of all entries but those of the owner and of others.
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    pub const ALL: [Tag; 6] = [Tag::UserObj, Tag::User, Tag::GroupObj, Tag::Group, Tag::Mask, Tag::Other];

    /// The tag of this number, which is the same in Linux's extended attributes.
    pub fn from_number(number: u32) -> Option<Tag> {
        Tag::ALL.into_iter().find(|tag| *tag as u32 == number)
    }
}

/// An entry of an ACL (`aclent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    pub tag: Tag,
    /// User or group number. Clients ignore it for tags other than [`Tag::User`] and [`Tag::Group`].
    pub id: u32,
    /// Permission bits: 4 read, 2 write, 1 execute.
    pub perm: u32,
}

impl Xdr for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.tag as u32).encode(out);
        self.id.encode(out);
        self.perm.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Entry, Error> {
        let value = u32::decode(r)? & !DEFAULT_TAG;
        let tag = Tag::from_number(value).ok_or(Error::BadDiscriminant { what: "ACL tag", value })?;
        let (id, perm) = (u32::decode(r)?, u32::decode(r)?);
        match tag {
            // Solaris sometimes sets other bits in the mask.
            Tag::Mask => Ok(Entry { tag, id, perm: perm & PERM_MASK }),
            _ if perm & !PERM_MASK != 0 => Err(Error::BadDiscriminant { what: "ACL permission", value: perm }),
            _ => Ok(Entry { tag, id, perm }),
        }
    }
}

/// An ACL, or only its length.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    /// The number of entries, at most [`ENTRIES_MAX`], also where they are not sent.
    pub count: u32,
    pub entries: Vec<Entry>,
}

impl Acl {
    fn decode(r: &mut Reader) -> Result<Acl, Error> {
        let count = u32::decode(r)?;
        if count > ENTRIES_MAX {
            return Err(Error::TooLong { len: count, max: ENTRIES_MAX });
        }
        Ok(Acl { count, entries: r.array(count)? })
    }
}

/// The ACLs of an object (`secattr`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acls {
    /// Which parts are meant: [`ACCESS`] and its neighbours.
    pub mask: u32,
    pub access: Acl,
    /// The ACL of new objects in the directory.
    pub default: Acl,
}

impl Xdr for Acls {
    fn encode(&self, out: &mut Vec<u8>) {
        self.mask.encode(out);
        self.access.count.encode(out);
        put_array(out, &self.access.entries);
        self.default.count.encode(out);
        (self.default.entries.len() as u32).encode(out);
        for entry in &self.default.entries {
            (entry.tag as u32 | DEFAULT_TAG).encode(out);
            entry.id.encode(out);
            entry.perm.encode(out);
        }
    }
    fn decode(r: &mut Reader) -> Result<Acls, Error> {
        let mask = u32::decode(r)?;
        if mask & !MASK != 0 {
            return Err(Error::BadDiscriminant { what: "ACL mask", value: mask });
        }
        Ok(Acls { mask, access: Acl::decode(r)?, default: Acl::decode(r)? })
    }
}

xdr_struct! {
    pub struct GetAclArgs {
        pub fh: Fh,
        /// Which parts to return: [`ACCESS`] and its neighbours.
        pub mask: u32,
    }

    pub struct SetAclArgs {
        pub fh: Fh,
        /// The new ACLs; one without entries is removed.
        pub acls: Acls,
    }

    /// Success of GETACL.
    pub struct GetAclOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        pub acls: Acls,
    }
}

crate::xdr::calls! {
    Null;
    GetAcl(GetAclArgs), SetAcl(SetAclArgs),
}

impl Call {
    /// The object of the call.
    pub fn target(&self) -> Option<&Fh> {
        match self {
            Call::Null => None,
            Call::GetAcl(a) => Some(&a.fh),
            Call::SetAcl(a) => Some(&a.fh),
        }
    }
}

crate::xdr::replies! {
    Null;
    GetAcl(Res<GetAclOk, Option<Attr>>), SetAcl(Res<Option<Attr>, Option<Attr>>),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn words(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>().into()
    }

    /// What Linux 6.12 sends for `setfacl -m u:1000:rw,d:g:7:r` on a directory of mode 755: see `nfsacl_encode`.
    #[test]
    fn setacl_is_read_as_linux_writes_it() {
        let access = [[1, 0, 7], [2, 1000, 6], [4, 0, 5], [0x10, 0, 7], [0x20, 0, 5]];
        let default = [[0x1001, 0, 7], [0x1004, 0, 5], [0x1008, 7, 4], [0x1010, 0, 5], [0x1020, 0, 5]];
        let list = |entries: [[u32; 3]; 5]| [&[5, 5][..], entries.as_flattened()].concat();
        let sent = words(&[&[4, u32::from_be_bytes(*b"file"), 5][..], &list(access), &list(default)].concat());
        let entry = |tag, id, perm| Entry { tag, id, perm };
        let want = Call::SetAcl(SetAclArgs {
            fh: Fh(Bytes::from_static(b"file")),
            acls: Acls {
                mask: ACCESS | DEFAULT,
                access: Acl {
                    count: 5,
                    entries: vec![
                        entry(Tag::UserObj, 0, 7),
                        entry(Tag::User, 1000, 6),
                        entry(Tag::GroupObj, 0, 5),
                        entry(Tag::Mask, 0, 7),
                        entry(Tag::Other, 0, 5),
                    ],
                },
                default: Acl {
                    count: 5,
                    entries: vec![
                        entry(Tag::UserObj, 0, 7),
                        entry(Tag::GroupObj, 0, 5),
                        entry(Tag::Group, 7, 4),
                        entry(Tag::Mask, 0, 5),
                        entry(Tag::Other, 0, 5),
                    ],
                },
            },
        });
        let mut r = Reader::new(sent.clone());
        assert_eq!((Call::decode(Proc::SetAcl, &mut r), r.remaining()), (Ok(want.clone()), 0));
        let mut out = Vec::new();
        want.encode(&mut out);
        assert_eq!(sent, out);
    }

    #[test]
    fn malformed_acls_are_refused() {
        let refused = |sent: &[u32]| Acls::decode(&mut Reader::new(words(sent))).err();
        let bad = |what, value| Some(Error::BadDiscriminant { what, value });
        let long = |max| Some(Error::TooLong { len: 1025, max });
        for (sent, why) in [
            (&[0x10, 0, 0, 0, 0][..], bad("ACL mask", 0x10)),
            (&[1, 1025, 0, 0, 0], long(1024)),
            (&[1, 1024, 1025, 0, 0], long(1024)),
            (&[4, 0, 0, 1025, 0], long(1024)),
            (&[4, 0, 0, 7, 1025], long(7)),
            (&[1, 1, 1, 3, 0, 0, 0, 0], bad("ACL tag", 3)),
            (&[1, 1, 1, 0x2001, 0, 0, 0, 0], bad("ACL tag", 0x2001)),
            (&[1, 1, 1, 2, 0, 8, 0, 0], bad("ACL permission", 8)),
            (&[1, 2, 2, 2, 0, 7], Some(Error::Truncated)),
            (&[1, 1, 1, 0x10, 0, 0xff, 0, 0], None),
        ] {
            assert_eq!(refused(sent), why, "{sent:x?}");
        }
    }

    #[test]
    fn results_max_is_the_size_of_two_full_acls() {
        let entry = Entry { tag: Tag::User, id: 1, perm: 7 };
        let full = || Acl { count: ENTRIES_MAX, entries: vec![entry; ENTRIES_MAX as usize] };
        let acls = Acls { mask: MASK, access: full(), default: full() }.to_bytes();
        assert_eq!(acls.len(), RESULTS_MAX as usize);
    }
}
