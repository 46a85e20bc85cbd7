//! Shorter calls, for a path that drops messages of some length.

use remora_wire::nfs3::Call;

/// Smallest limits of a directory listing that servers answer.
const LISTING_MIN: u32 = 512;

/// Limits of a call, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// Data of a READ.
    pub read: u32,
    /// Data of a WRITE.
    pub write: u32,
    /// Results of READDIR and READDIRPLUS.
    pub listing: u32,
}

/// A call that moves less with the same meaning: the reply of a READ, WRITE or listing says how much was done (RFC 1813,
/// sections 3.3.6, 3.3.7, 3.3.16). `None` if `call` is within the limits or cannot be shorter.
pub fn shorter(call: &Call, limits: CallLimits) -> Option<Call> {
    let mut shorter = call.clone();
    let listing = limits.listing.max(LISTING_MIN);
    match &mut shorter {
        Call::Read(args) => args.count = args.count.min(limits.read),
        Call::Write(args) => {
            args.data.truncate(limits.write as usize);
            args.count = args.count.min(limits.write);
        }
        Call::ReadDir(args) => args.count = args.count.min(listing),
        Call::ReadDirPlus(args) => {
            args.max_count = args.max_count.min(listing);
            args.dir_count = args.dir_count.min(listing);
        }
        _ => return None,
    }
    (shorter != *call).then_some(shorter)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Fh, ReadArgs, ReadDirPlusArgs, Stable, WriteArgs};

    use super::*;

    #[test]
    fn data_and_listings_are_shortened_once() {
        let fh = || Fh(Bytes::from_static(b"file"));
        let read = |count| Call::Read(ReadArgs { fh: fh(), offset: 7, count });
        let write = |len: u32| {
            let data = Bytes::from(vec![1; len as usize]);
            Call::Write(WriteArgs { fh: fh(), offset: 7, count: len, stable: Stable::Unstable, data })
        };
        let list = |max_count| {
            Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(), cookie: 0, verf: [0; 8], dir_count: max_count, max_count })
        };
        let limits = CallLimits { read: 1000, write: 900, listing: 100 };
        for (call, short) in [(read(4096), read(1000)), (write(4096), write(900)), (list(4096), list(LISTING_MIN))] {
            assert_eq!(shorter(&call, limits).as_ref(), Some(&short));
            assert_eq!(shorter(&short, limits), None);
        }
        assert_eq!(shorter(&Call::GetAttr(fh()), limits), None);
    }
}
