//! The protocol between Linux and a file system in user space (`include/uapi/linux/fuse.h`), versions
//! 7.31 to 7.45.
//!
//! The kernel writes C structures in the machine's byte order. [`Request`] decodes a request, and
//! [`negotiate`] answers the first one; [`Reply`], [`encode_error`] and [`Notification`] encode what
//! the file system writes. Read `types` first, then `request` and `reply`.

mod errno;
mod fields;
mod init;
mod notification;
mod reply;
mod request;
mod types;

pub use errno::*;
pub use fields::RequestError;
pub use init::*;
pub use notification::*;
pub use reply::*;
pub use request::*;
pub use types::*;
