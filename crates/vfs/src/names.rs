//! What a name may be (RFC 1813, section 3.2): one component, 1 to 255 bytes.

use remora_wire::nfs3::Status;

use crate::Result;

/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest target of a symbolic link in bytes (Linux's PATH_MAX less its NUL).
pub(crate) const TARGET_MAX: usize = 4095;

/// A name to look up; `.` and `..` are fine.
pub(crate) fn component(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::Access);
    }
    if name.len() > NAME_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

/// A name to be made. Every directory has `.` and `..` already.
pub(crate) fn new_name(name: &[u8]) -> Result<()> {
    component(name)?;
    if is_dots(name) { Err(Status::Exist) } else { Ok(()) }
}

/// A name to be taken away or renamed.
pub(crate) fn old_name(name: &[u8]) -> Result<()> {
    component(name)?;
    if is_dots(name) { Err(Status::Inval) } else { Ok(()) }
}

/// The target of a symbolic link: any path, since only clients follow it.
pub(crate) fn target(target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Status::Inval);
    }
    if target.len() > TARGET_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
