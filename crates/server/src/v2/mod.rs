//! NFSv2 (RFC 1094) by NFSv3: translates calls to NFSv3, and the results of their execution back. Where the versions
//! differ, the server does what knfsd does, because clients know that:
//!
//! * A file of more than 4 GiB - 1 has a size of 4 GiB - 1. The rest cannot be read, and a WRITE that would end there
//!   fails with NFSERR_FBIG.
//! * File ids and file system ids of 64 bits are folded into 32; both halves count.
//! * Times are in microseconds. An mtime with 1,000,000 microseconds sets both times to the server's (Sun's convention).
//! * A mode of 0xffff in SETATTR leaves the mode unchanged, as all ones do (a bug of old Sun clients).
//! * CREATE of an existing file changes only its size. If the existing object is not a file, CREATE fails with
//!   NFSERR_EXIST. A file type in the mode makes that type: a device, whose numbers are in the size, a socket, or a named
//!   pipe, which clients may also request as a character device without numbers, and which has that form in attributes.
//! * An error without an NFSv2 number becomes NFSERR_IO, or NFSERR_STALE if it concerns the handle. An invalid argument
//!   keeps NFSv3's number (22): U-Boot follows a symbolic link after it. JUKEBOX becomes silence on datagrams, which
//!   clients resend, and NFSERR_IO on streams.
//!
//! READDIR has its own listing in [`crate::exec`] because of its cookies.

mod calls;
mod encoding;
mod replies;

pub(crate) use calls::to_v3;
pub(crate) use replies::{fileid, from_v3, mounted, status};
