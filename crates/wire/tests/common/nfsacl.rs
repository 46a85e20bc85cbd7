//! Arbitrary messages of NFSACL.

use remora_wire::nfsacl::*;

use super::{Arb, Draw};

arb! {
    Entry: d => {
        let tag = Tag::ALL[usize::from(d.byte()) % Tag::ALL.len()];
        Entry { tag, id: Arb::arb(d), perm: u32::from(d.byte() % 8) }
    };
    Acl: d => {
        let entries: Vec<Entry> = d.list(6);
        let least = entries.len() as u32;
        Acl { count: least + u32::arb(d) % (ENTRIES_MAX - least), entries }
    };
    Acls: d => Acls { mask: u32::from(d.byte()) & MASK, access: Arb::arb(d), default: Arb::arb(d) };
    Call: d => match d.byte() % 3 {
        0 => Call::Null,
        1 => Call::GetAcl(Arb::arb(d)),
        _ => Call::SetAcl(Arb::arb(d)),
    };
    Reply: d => match d.byte() % 3 {
        0 => Reply::Null,
        1 => Reply::GetAcl(Arb::arb(d)),
        _ => Reply::SetAcl(Arb::arb(d)),
    };
}

arb_structs! {
    GetAclArgs { fh mask }
    SetAclArgs { fh acls }
    GetAclOk { attr acls }
}
