//! NFSv2 (RFC 1094) in terms of NFSv3: calls are translated to version 3's, executed as those
//! are, and their results translated back. Where the two differ, this does what knfsd does,
//! because that is what clients know:
//!
//! * A file beyond 4 GiB - 1 shows a size of 4 GiB - 1. What lies beyond cannot be read, and a
//!   WRITE that would end there fails with NFSERR_FBIG.
//! * File and file system numbers of 64 bits are folded into 32; both halves count.
//! * A time is to the microsecond. An mtime with 1,000,000 microseconds sets both times to the
//!   server's own (Sun's convention).
//! * A mode of 0xffff in a SETATTR leaves the mode alone, as all ones do (a bug of old clients
//!   of Sun's).
//! * CREATE of an existing file changes its size and nothing else, and where something else than a
//!   file is fails with NFSERR_EXIST: clients say that they mean a file. With a type in its mode it
//!   makes that: a device whose numbers stand in the size, a socket, or a named pipe, which
//!   may also be asked for as a character device without numbers, and is shown as one.
//! * An error that version 2 has no number for becomes NFSERR_IO, or NFSERR_STALE if it is the
//!   handle's. An invalid argument keeps the number of version 3 (22): U-Boot follows a symbolic link after it. "Later"
//!   (JUKEBOX) becomes silence on datagrams, which clients send again, and NFSERR_IO on streams.
//!
//! READDIR has its own way of listing in [`crate::exec`], for its cookies' sake.

mod calls;
mod replies;

pub(crate) use calls::to_v3;
pub(crate) use replies::{fileid, from_v3, mounted, status};

/// The bits of a mode that say what kind of object it is, and their values (stat(2)).
mod kind {
    pub(super) const MASK: u32 = 0o170_000;
    pub(super) const SOCKET: u32 = 0o140_000;
    pub(super) const SYMLINK: u32 = 0o120_000;
    pub(super) const REGULAR: u32 = 0o100_000;
    pub(super) const BLOCK: u32 = 0o060_000;
    pub(super) const DIRECTORY: u32 = 0o040_000;
    pub(super) const CHAR: u32 = 0o020_000;
    pub(super) const FIFO: u32 = 0o010_000;
    /// The rest: permissions.
    pub(super) const PERMISSIONS: u32 = 0o7777;
}

/// Device numbers as Linux packs them into 32 bits: the old 8 and 8 bits where they suffice.
mod device {
    use remora_wire::nfs3::SpecData;

    pub(super) fn pack(spec: SpecData) -> u32 {
        (spec.minor & 0xff) | (spec.major & 0xfff) << 8 | (spec.minor & 0xfff00) << 12
    }

    pub(super) fn unpack(packed: u32) -> SpecData {
        SpecData { major: packed >> 8 & 0xfff, minor: packed & 0xff | packed >> 12 & 0xfff00 }
    }

    #[test]
    fn devices_come_back_and_small_ones_are_packed_as_ever() {
        for (major, minor, packed) in [(8, 1, 0x0801), (0, 255, 255), (4095, 0, 0xf_ff00), (259, 0x1_2345, 0x1231_0345)]
        {
            assert_eq!(pack(SpecData { major, minor }), packed, "{major}:{minor}");
            assert_eq!(unpack(packed), SpecData { major, minor });
        }
    }
}
