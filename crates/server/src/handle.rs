//! File handles, signed so that clients cannot invent them.
//!
//! | bytes    | what                                                   |
//! |----------|--------------------------------------------------------|
//! | 1        | layout version                                         |
//! | 1        | length of the id                                       |
//! | 8        | export: the hash of its name, stable across restarts   |
//! | 0 to 40  | [`FileId`]                                             |
//! | 0 to 3   | zeros, up to a multiple of 4                           |
//! | 8        | SipHash-2-4 of all the bytes before it                 |
//!
//! The padding is there because some clients (boot loaders, scanners) do not pad handles themselves. The previous layout
//! had neither length nor zeros; its handles stay valid.
//!
//! NFSv2's handles have only 32 bytes. They contain no export, which is part of the signature instead, the number of
//! leading zeros of the id (an inode number is seldom large) instead of the zeros, and as much of the id as fits:
//!
//! | bytes | what                                                                  |
//! |-------|-----------------------------------------------------------------------|
//! | 1     | layout version                                                        |
//! | 1     | number of leading zeros (3 bits), length of the rest of the id        |
//! | 22    | [`FileId`] without leading zeros, zeros behind it                     |
//! | 8     | SipHash-2-4 of the layout, the export and the other bytes             |
//!
//! Without the signature a client could guess the handle of a file outside its export, or of one that permissions hide.

use std::hash::Hasher;

use remora_vfs::FileId;
use remora_wire::nfs2::FH_SIZE;
use remora_wire::nfs3::{FH_MAX, Fh, Status};
use siphasher::sip::SipHasher24;

use crate::Version;

/// Still accepted, but no longer issued.
const LAYOUT_UNPADDED: u8 = 1;
const LAYOUT_SHORT: u8 = 2;
const LAYOUT: u8 = 3;
const EXPORT_LEN: usize = 8;
const ID_AT: usize = 2 + EXPORT_LEN;
const MAC_LEN: usize = 8;
/// Handles are a multiple of this, in bytes.
const WORD: usize = 4;

/// Bytes of the id in an NFSv2 handle.
const SHORT_ID: usize = FH_SIZE - 2 - MAC_LEN;
/// Where the bits of the length end and those of the zeros begin.
const ZEROS_SHIFT: u32 = 5;
const ZEROS_MAX: usize = 7;

const _: () = assert!(MAC_LEN.is_multiple_of(WORD) && FileId::MAX <= u8::MAX as usize);
const _: () = assert!((ID_AT + FileId::MAX).next_multiple_of(WORD) + MAC_LEN <= FH_MAX as usize);
const _: () = assert!(FileId::NAME <= SHORT_ID && SHORT_ID < 1 << ZEROS_SHIFT);

/// Signs and verifies handles.
#[derive(Clone)]
pub(crate) struct Signer(SipHasher24);

impl Signer {
    /// Signs with `key`. Handles outlive a restart while the key stays.
    pub(crate) fn new(key: &[u8; 16]) -> Signer {
        Signer(SipHasher24::new_with_key(key))
    }

    /// The handle of object `id` in export `export`, for clients of `version`.
    pub(crate) fn sign(&self, export: u64, id: &FileId, version: Version) -> Fh {
        match version {
            Version::V2 => self.sign_short(export, id),
            Version::V3 => self.sign_long(export, id),
        }
    }

    fn sign_long(&self, export: u64, id: &FileId) -> Fh {
        let id = id.as_bytes();
        let len = (ID_AT + id.len()).next_multiple_of(WORD);
        let mut out = Vec::with_capacity(len + MAC_LEN);
        out.extend_from_slice(&[LAYOUT, id.len() as u8]);
        out.extend_from_slice(&export.to_be_bytes());
        out.extend_from_slice(id);
        out.resize(len, 0);
        out.extend_from_slice(&self.mac(&[&out]).to_be_bytes());
        Fh(out.into())
    }

    fn sign_short(&self, export: u64, id: &FileId) -> Fh {
        let zeros = id.as_bytes().iter().take(ZEROS_MAX).take_while(|b| **b == 0).count();
        let kept = id.as_bytes().iter().skip(zeros).take(SHORT_ID);
        let mut out = Vec::with_capacity(FH_SIZE);
        out.push(LAYOUT_SHORT);
        out.push((zeros << ZEROS_SHIFT | kept.len()) as u8);
        out.extend(kept);
        out.resize(FH_SIZE - MAC_LEN, 0);
        out.extend_from_slice(&self.mac_short(export, &out).to_be_bytes());
        Fh(out.into())
    }

    /// The export, one of `exports`, and the object of `fh`.
    ///
    /// A malformed handle is [`Status::BadHandle`]. A wrong signature, as after a change of the key, is
    /// [`Status::Stale`], so that clients look the file up again.
    pub(crate) fn verify(&self, fh: &Fh, exports: impl Iterator<Item = u64>) -> Result<(u64, FileId), Status> {
        let (signed, mac) = fh.0.split_last_chunk::<MAC_LEN>().ok_or(Status::BadHandle)?;
        let mac = u64::from_be_bytes(*mac);
        match signed.first() {
            Some(&LAYOUT) => self.verify_long(signed, mac),
            Some(&LAYOUT_UNPADDED) => self.verify_unpadded(signed, mac),
            Some(&LAYOUT_SHORT) => self.verify_short(signed, mac, exports),
            _ => Err(Status::BadHandle),
        }
    }

    fn verify_long(&self, signed: &[u8], mac: u64) -> Result<(u64, FileId), Status> {
        let ([_, len, export @ ..], rest) = signed.split_first_chunk::<ID_AT>().ok_or(Status::BadHandle)?;
        let (id, zeros) = rest.split_at_checked(usize::from(*len)).ok_or(Status::BadHandle)?;
        if signed.len() != (ID_AT + id.len()).next_multiple_of(WORD) || zeros.iter().any(|b| *b != 0) {
            return Err(Status::BadHandle);
        }
        self.signed(signed, mac, *export, id)
    }

    fn verify_unpadded(&self, signed: &[u8], mac: u64) -> Result<(u64, FileId), Status> {
        let ([_, export @ ..], id) = signed.split_first_chunk::<{ 1 + EXPORT_LEN }>().ok_or(Status::BadHandle)?;
        self.signed(signed, mac, *export, id)
    }

    /// The decoded handle, if the signature is right.
    fn signed(&self, signed: &[u8], mac: u64, export: [u8; 8], id: &[u8]) -> Result<(u64, FileId), Status> {
        let id = FileId::new(id).ok_or(Status::BadHandle)?;
        if same(self.mac(&[signed]), mac) { Ok((u64::from_be_bytes(export), id)) } else { Err(Status::Stale) }
    }

    fn verify_short(
        &self,
        signed: &[u8],
        mac: u64,
        mut exports: impl Iterator<Item = u64>,
    ) -> Result<(u64, FileId), Status> {
        let [_, lengths, kept @ ..] = signed else { return Err(Status::BadHandle) };
        if kept.len() != SHORT_ID {
            return Err(Status::BadHandle);
        }
        let (zeros, len) = (usize::from(lengths >> ZEROS_SHIFT), usize::from(lengths & ((1 << ZEROS_SHIFT) - 1)));
        let kept = kept.get(..len).ok_or(Status::BadHandle)?;
        let id = FileId::new(&[&[0; ZEROS_MAX][..zeros], kept].concat()).ok_or(Status::BadHandle)?;
        let export = exports.find(|export| same(self.mac_short(*export, signed), mac));
        Ok((export.ok_or(Status::Stale)?, id))
    }

    /// The signature covers the layout, so that a handle of one layout is never valid in the other.
    fn mac_short(&self, export: u64, signed: &[u8]) -> u64 {
        self.mac(&[&[LAYOUT_SHORT], &export.to_be_bytes(), signed])
    }

    fn mac(&self, parts: &[&[u8]]) -> u64 {
        let mut h = self.0;
        parts.iter().for_each(|part| h.write(part));
        h.finish()
    }
}

/// Compares whole words, so that the time does not depend on how many bytes are equal.
fn same(a: u64, b: u64) -> bool {
    a ^ b == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..=FileId::MAX)
    }

    fn version() -> impl Strategy<Value = Version> {
        prop_oneof![Just(Version::V2), Just(Version::V3)]
    }

    proptest! {
        #[test]
        fn handles_come_back_as_they_went(key: [u8; 16], export: u64, other: u64, bytes in id_bytes()) {
            prop_assume!(export != other);
            let (signer, id) = (Signer::new(&key), FileId::new(&bytes).unwrap());
            let fh = signer.sign(export, &id, Version::V3);
            prop_assert!(fh.0.len() <= FH_MAX as usize && fh.0.len().is_multiple_of(WORD));
            prop_assert_eq!(signer.verify(&fh, [].into_iter()), Ok((export, id)));
            let fh = signer.sign(export, &id, Version::V2);
            prop_assert_eq!(fh.0.len(), FH_SIZE);
            let (from, short) = signer.verify(&fh, [other, export].into_iter()).unwrap();
            prop_assert_eq!(from, export);
            prop_assert!(id.as_bytes().starts_with(short.as_bytes()));
            prop_assert!(short == id || short.as_bytes().len() >= FileId::NAME);
            prop_assert_eq!(signer.verify(&fh, [other].into_iter()), Err(Status::Stale));
        }

        #[test]
        fn any_flipped_bit_is_refused(
            key: [u8; 16], export: u64, bytes in id_bytes(), bit: prop::sample::Index, version in version(),
        ) {
            let signer = Signer::new(&key);
            let mut forged = signer.sign(export, &FileId::new(&bytes).unwrap(), version).0.to_vec();
            let bit = bit.index(forged.len() * 8);
            forged[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(signer.verify(&Fh(forged.into()), [export].into_iter()).is_err());
        }

        #[test]
        fn made_up_bytes_and_other_keys_are_refused(
            key: [u8; 16], other: [u8; 16], bytes in prop::collection::vec(any::<u8>(), 0..=64), version in version(),
        ) {
            prop_assume!(key != other);
            let (id, signer) = (FileId::new(&[]).unwrap(), Signer::new(&key));
            let foreign = Signer::new(&other).sign(1, &id, version);
            prop_assert_eq!(signer.verify(&foreign, [1].into_iter()), Err(Status::Stale));
            prop_assert!(signer.verify(&Fh(bytes.into()), [1].into_iter()).is_err());
        }
    }

    /// A handle in the layout without padding.
    fn unpadded(signer: &Signer, export: u64, id: &[u8]) -> Fh {
        let signed = [&[LAYOUT_UNPADDED][..], &export.to_be_bytes(), id].concat();
        Fh([&signed[..], &signer.mac(&[&signed]).to_be_bytes()].concat().into())
    }

    #[test]
    fn handles_are_aligned_and_old_ones_stay_valid() {
        let signer = Signer::new(&[7; 16]);
        for len in 0..=FileId::MAX {
            let id = FileId::new(&vec![9; len]).unwrap();
            let fh = signer.sign(5, &id, Version::V3);
            assert_eq!(fh.0.len(), (18 + len).div_ceil(4) * 4);
            assert_eq!(signer.verify(&fh, [].into_iter()), Ok((5, id)));
            let old = unpadded(&signer, 5, id.as_bytes());
            assert_eq!(old.0.len(), 17 + len);
            assert_eq!(signer.verify(&old, [].into_iter()), Ok((5, id)));
        }
        // One that was issued, byte for byte.
        let given = [1, 0, 0, 0, 0, 0, 0, 0, 5, b'i', b'd', 0xe4, 0x9c, 0x66, 0xf8, 0x9c, 0xea, 0x4f, 0x52];
        assert_eq!(unpadded(&signer, 5, b"id").0[..], given);
    }

    #[test]
    fn signed_zeros_and_lengths_are_checked_all_the_same() {
        let signer = Signer::new(&[7; 16]);
        let resign = |change: fn(&mut Vec<u8>)| {
            let mut signed = signer.sign(5, &FileId::new(b"file5").unwrap(), Version::V3).0.to_vec();
            signed.truncate(signed.len() - MAC_LEN);
            change(&mut signed);
            let mac = signer.mac(&[&signed]);
            signer.verify(&Fh([&signed[..], &mac.to_be_bytes()].concat().into()), [5].into_iter())
        };
        assert_eq!(resign(|_| {}), Ok((5, FileId::new(b"file5").unwrap())));
        let changes: [fn(&mut Vec<u8>); 6] = [
            |b| *b.last_mut().unwrap() = 1,
            |b| b[1] = 4,
            |b| b[1] = 7,
            |b| b[1] = 255,
            |b| b.extend([0; WORD]),
            |b| b.truncate(b.len() - 1),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            assert_eq!(resign(change), Err(Status::BadHandle), "{n}");
        }
    }

    #[test]
    fn short_handles_hold_the_hint_of_all_but_deep_paths() {
        let signer = Signer::new(&[7; 16]);
        let id = |ino: u64, hint: usize| {
            FileId::new(&[&ino.to_be_bytes()[..], &u64::MAX.to_be_bytes(), &vec![9; hint]].concat()).unwrap()
        };
        for (ino, hint, kept) in [(1 << 31, 10, 10), (1 << 31, 11, 10), (1 << 39, 9, 9), (u64::MAX, 24, 6), (5, 24, 13)]
        {
            let fh = signer.sign(1, &id(ino, hint), Version::V2);
            assert_eq!(signer.verify(&fh, [1].into_iter()), Ok((1, id(ino, kept))), "{ino:x}");
        }
    }

    #[test]
    fn malformed_and_forged_handles_differ() {
        let signer = Signer::new(&[7; 16]);
        let [long, short] = [Version::V3, Version::V2].map(|v| signer.sign(1, &FileId::new(b"file").unwrap(), v).0);
        let change = |handle: &bytes::Bytes, at: usize, by: u8| {
            let mut b = handle.to_vec();
            b[at] ^= by;
            Fh(b.into())
        };
        for (fh, want) in [
            (Fh(long.slice(..16)), Status::BadHandle),
            (Fh(vec![LAYOUT; 64].into()), Status::BadHandle),
            (Fh(vec![LAYOUT_UNPADDED; 64].into()), Status::BadHandle),
            (change(&long, 0, 0xff), Status::BadHandle),
            (change(&long, 0, LAYOUT ^ LAYOUT_UNPADDED), Status::Stale),
            (change(&long, 1, 0xff), Status::BadHandle),
            (change(&long, 1, 1), Status::Stale),
            (change(&long, 2, 0xff), Status::Stale),
            (change(&long, long.len() - MAC_LEN - 1, 1), Status::BadHandle),
            (change(&long, long.len() - 1, 0xff), Status::Stale),
            (Fh(short.slice(..31)), Status::BadHandle),
            (Fh(vec![LAYOUT_SHORT; 33].into()), Status::BadHandle),
            (change(&short, 1, 0x1f), Status::BadHandle),
            (change(&short, 1, 0xe0), Status::Stale),
            (change(&short, 2, 0xff), Status::Stale),
        ] {
            assert_eq!(signer.verify(&fh, [1].into_iter()), Err(want), "{fh:?}");
        }
    }
}
