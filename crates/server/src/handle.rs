//! File handles: what they hold, and a signature so that nobody can make one up.
//!
//! | bytes    | what                                                   |
//! |----------|--------------------------------------------------------|
//! | 1        | layout version                                         |
//! | 8        | export, the hash of its name: the same after a restart |
//! | 0 to 40  | [`FileId`]                                             |
//! | 8        | SipHash-2-4 of all the bytes before it                 |
//!
//! Without the signature a client could guess the handle of a file that lies outside its
//! export, or that its permissions hide.

use std::hash::Hasher;

use remora_vfs::FileId;
use remora_wire::nfs3::{FH_MAX, Fh, Status};
use siphasher::sip::SipHasher24;

const LAYOUT: u8 = 1;
const EXPORT_AT: usize = 1;
const ID_AT: usize = EXPORT_AT + 8;
const MAC_LEN: usize = 8;

const _: () = assert!(ID_AT + FileId::MAX + MAC_LEN <= FH_MAX as usize);

/// Makes and checks handles.
#[derive(Clone)]
pub(crate) struct Signer(SipHasher24);

impl Signer {
    /// Signs with `key`. Handles outlive a restart if the key does.
    pub(crate) fn new(key: &[u8; 16]) -> Signer {
        Signer(SipHasher24::new_with_key(key))
    }

    /// The handle of object `id` in export `export`.
    pub(crate) fn sign(&self, export: u64, id: &FileId) -> Fh {
        let mut out = Vec::with_capacity(ID_AT + id.as_bytes().len() + MAC_LEN);
        out.push(LAYOUT);
        out.extend_from_slice(&export.to_be_bytes());
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(&self.mac(&out).to_be_bytes());
        Fh(out.into())
    }

    /// The export and object that `fh` stands for.
    ///
    /// What cannot be a handle of ours is [`Status::BadHandle`]; a wrong signature is
    /// [`Status::Stale`], as after a change of key, so that clients look the file up again.
    pub(crate) fn verify(&self, fh: &Fh) -> Result<(u64, FileId), Status> {
        let (signed, mac) = fh.0.split_last_chunk::<MAC_LEN>().ok_or(Status::BadHandle)?;
        let (head, id) = signed.split_first_chunk::<ID_AT>().ok_or(Status::BadHandle)?;
        let [layout, export @ ..] = head;
        let id = FileId::new(id).ok_or(Status::BadHandle)?;
        if *layout != LAYOUT {
            return Err(Status::BadHandle);
        }
        // One comparison of whole words: its time does not tell how many bytes were right.
        if self.mac(signed) ^ u64::from_be_bytes(*mac) != 0 {
            return Err(Status::Stale);
        }
        Ok((u64::from_be_bytes(*export), id))
    }

    fn mac(&self, bytes: &[u8]) -> u64 {
        let mut h = self.0;
        h.write(bytes);
        h.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..=FileId::MAX)
    }

    proptest! {
        #[test]
        fn handles_come_back_as_they_went(key: [u8; 16], export: u64, bytes in id_bytes()) {
            let (signer, id) = (Signer::new(&key), FileId::new(&bytes).unwrap());
            let fh = signer.sign(export, &id);
            prop_assert!(fh.0.len() <= FH_MAX as usize);
            prop_assert_eq!(signer.verify(&fh), Ok((export, id)));
        }

        #[test]
        fn any_flipped_bit_is_refused(key: [u8; 16], export: u64, bytes in id_bytes(), bit: prop::sample::Index) {
            let signer = Signer::new(&key);
            let mut forged = signer.sign(export, &FileId::new(&bytes).unwrap()).0.to_vec();
            let bit = bit.index(forged.len() * 8);
            forged[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(signer.verify(&Fh(forged.into())).is_err());
        }

        #[test]
        fn made_up_bytes_and_other_keys_are_refused(key: [u8; 16], other: [u8; 16], bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
            prop_assume!(key != other);
            let id = FileId::new(&[]).unwrap();
            prop_assert_eq!(Signer::new(&key).verify(&Signer::new(&other).sign(1, &id)), Err(Status::Stale));
            prop_assert!(Signer::new(&key).verify(&Fh(bytes.into())).is_err());
        }
    }

    #[test]
    fn malformed_is_told_from_forged() {
        let signer = Signer::new(&[7; 16]);
        let good = signer.sign(1, &FileId::new(b"file").unwrap()).0;
        let change = |at: usize| {
            let mut b = good.to_vec();
            b[at] ^= 0xff;
            Fh(b.into())
        };
        for (fh, want) in [
            (Fh(good.slice(..16)), Status::BadHandle),
            (Fh(vec![LAYOUT; 64].into()), Status::BadHandle),
            (change(0), Status::BadHandle),
            (change(1), Status::Stale),
            (change(good.len() - 1), Status::Stale),
        ] {
            assert_eq!(signer.verify(&fh), Err(want), "{fh:?}");
        }
    }
}
