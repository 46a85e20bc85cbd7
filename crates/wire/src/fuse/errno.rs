//! Linux's error numbers, as a file system answers them.

use std::fmt;

/// An error number of Linux, positive, as on x86, ARM and RISC-V.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $number:literal),+ $(,)?) => {
        impl Errno {
            $(pub const $name: Errno = Errno($number);)+

            /// The name, such as `ENOENT`; `None` if this file lacks it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, EBADF = 9, EAGAIN = 11, ENOMEM = 12,
    EACCES = 13, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22,
    ENFILE = 23, ENOTTY = 25, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28, ESPIPE = 29, EROFS = 30, EMLINK = 31,
    ERANGE = 34, ENAMETOOLONG = 36, ENOLCK = 37, ENOSYS = 38, ENOTEMPTY = 39, ELOOP = 40, ENODATA = 61,
    ETIME = 62, EPROTO = 71, EOVERFLOW = 75, EUSERS = 87, EOPNOTSUPP = 95, ECONNABORTED = 103, ENOTCONN = 107,
    ETIMEDOUT = 110, EHOSTDOWN = 112, EHOSTUNREACH = 113, ESTALE = 116, EREMOTEIO = 121, EDQUOT = 122,
    ECANCELED = 125,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
