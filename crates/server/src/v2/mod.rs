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
mod encoding;
mod replies;

pub(crate) use calls::to_v3;
pub(crate) use replies::{fileid, from_v3, mounted, status};
