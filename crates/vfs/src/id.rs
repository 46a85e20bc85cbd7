//! Names for objects that fit into a file handle.

use std::fmt;

/// Names an object of a [`Vfs`](crate::Vfs): up to 40 bytes that mean something to it alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    bytes: [u8; FileId::MAX],
}

impl FileId {
    /// The bytes at its front that name the object. What follows them is a hint: an id that
    /// was cut behind them names the same object, which may take longer to find.
    pub const NAME: usize = 16;

    /// The most bytes an id has: what is left of an NFSv3 handle's 64 beside version, export
    /// and signature, with room to spare.
    pub const MAX: usize = 40;

    /// The id made of these bytes; `None` if there are too many.
    pub fn new(bytes: &[u8]) -> Option<FileId> {
        let mut id = FileId { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FileId::MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId(")?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, ")")
    }
}
