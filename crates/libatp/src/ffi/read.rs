//! Conversion between C's structures and Rust values.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use std::{ptr, slice};

use bytes::Bytes;
use remora_atp::session::{Guests, PublicKey};
use remora_atp::{Command, OnShortage, Options, Priority, Progress, QueueId, State, Why};
use remora_host::atp::keys;

use super::types;
use crate::calls::OBJECT_MAX;
use crate::code::Code;
use crate::library::Start;

/// Maximum number of guests.
const GUESTS_MAX: usize = 65_536;

pub(super) fn not_null<T>(pointer: *const T) -> Result<(), Code> {
    if pointer.is_null() { Err(Code::INVALID) } else { Ok(()) }
}

/// Reads a string; `None` for a null pointer.
///
/// # Safety
/// The pointer is null, or points to a string that ends with a NUL and does not change.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null; otherwise the caller's precondition.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Reads a UTF-8 string.
///
/// # Safety
/// As for [`string`].
pub(super) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Code> {
    // SAFETY: the caller's precondition.
    unsafe { string(text) }.map(|s| s.to_str().map_err(|_| Code::INVALID)).transpose()
}

/// Reads a path; `None` for a null pointer.
///
/// # Safety
/// As for [`string`].
pub(super) unsafe fn path<'a>(path: *const c_char) -> Result<Option<&'a Path>, Code> {
    // SAFETY: the caller's precondition.
    let path = unsafe { string(path) }.map(|s| Path::new(OsStr::from_bytes(s.to_bytes())));
    if path.is_some_and(|p| p.as_os_str().is_empty()) { Err(Code::INVALID) } else { Ok(path) }
}

/// Reads a key.
///
/// # Safety
/// The pointer is null or points to a key.
pub(super) unsafe fn key(key: *const types::Key) -> Result<PublicKey, Code> {
    // SAFETY: the caller's precondition.
    let key = unsafe { key.as_ref() }.ok_or(Code::INVALID)?;
    let text: Vec<u8> = key.text.iter().map(|c| c.to_ne_bytes()[0]).take_while(|b| *b != 0).collect();
    std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok()).ok_or(Code::KEY)
}

/// Writes a key, unless the pointer is null.
///
/// # Safety
/// The pointer is null or points to a writable key.
pub(super) unsafe fn give_key(to: *mut types::Key, public: PublicKey) {
    // SAFETY: the caller's precondition.
    let Some(to) = (unsafe { to.as_mut() }) else { return };
    to.text = [0; 45];
    // The last byte stays a NUL for any text.
    for (place, byte) in to.text.iter_mut().take(44).zip(public.to_string().bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// Reads the settings of `atp_init`.
///
/// # Safety
/// The pointer is null or points to settings of `struct_size` bytes, whose strings are null or valid, and whose
/// `guests` has the stated length.
pub(super) unsafe fn settings(settings: *const types::Settings) -> Result<Start, Code> {
    if settings.is_null() {
        return Ok(Start {
            listen: None,
            identity: keys::generate()?,
            guests: Guests::Nobody,
            received_max: 1024,
            received_bytes_max: 64 << 20,
        });
    }
    // Read the size before anything else: the program may have been compiled with a shorter struct. SAFETY: not
    // null, and the size comes first in every version.
    let size = unsafe { (&raw const (*settings).struct_size).read() };
    if size != size_of::<types::Settings>() {
        return Err(Code::INVALID);
    }
    // SAFETY: it has the size of this version; otherwise the caller's precondition.
    let settings = unsafe { &*settings };
    // SAFETY: the caller's precondition.
    let (listen, key_file) = unsafe { (text(settings.listen)?, path(settings.key_file)?) };
    Ok(Start {
        listen: listen.map(|l| l.parse().map_err(|_| Code::INVALID)).transpose()?,
        identity: key_file.map_or_else(keys::generate, keys::load)?,
        // SAFETY: the caller's precondition.
        guests: unsafe { guests(settings) }?,
        received_max: usize::try_from(settings.received_max).map_err(|_| Code::INVALID)?,
        received_bytes_max: usize::try_from(settings.received_bytes_max).unwrap_or(usize::MAX),
    })
}

/// # Safety
/// As for [`settings`].
unsafe fn guests(settings: &types::Settings) -> Result<Guests, Code> {
    match settings.admit {
        0 => Ok(Guests::Nobody),
        1 => {
            if settings.guest_count > GUESTS_MAX || (settings.guests.is_null() && settings.guest_count > 0) {
                return Err(Code::INVALID);
            }
            let mut all = BTreeSet::new();
            for i in 0..settings.guest_count {
                // SAFETY: not null; the caller states the length.
                let guest = unsafe { text(*settings.guests.add(i)) }?.ok_or(Code::INVALID)?;
                all.insert(guest.parse().map_err(|_| Code::KEY)?);
            }
            Ok(Guests::Only(all))
        }
        2 => Ok(Guests::Anyone),
        _ => Err(Code::INVALID),
    }
}

/// Copies an object to send.
///
/// # Safety
/// The pointer is null or points to data whose bytes, if not null, have the stated size.
pub(super) unsafe fn object(object: *const types::Data) -> Result<Bytes, Code> {
    // SAFETY: the caller's precondition.
    let object = unsafe { object.as_ref() }.ok_or(Code::INVALID)?;
    if object.size == 0 {
        return Ok(Bytes::new());
    }
    if object.size > OBJECT_MAX {
        return Err(Code::TOO_BIG);
    }
    not_null(object.bytes)?;
    // SAFETY: not null; the caller states the size, which is at most `isize::MAX`.
    Ok(Bytes::copy_from_slice(unsafe { slice::from_raw_parts(object.bytes.cast::<u8>(), object.size) }))
}

/// Copies a received object into a buffer.
///
/// # Safety
/// The buffer has room for it.
pub(super) unsafe fn give_object(buffer: &mut types::Data, object: &[u8]) {
    if !object.is_empty() {
        // SAFETY: the caller states the room, and the library's memory does not overlap the program's.
        unsafe { ptr::copy_nonoverlapping(object.as_ptr(), buffer.bytes.cast::<u8>(), object.len()) };
    }
    buffer.size = object.len();
}

/// Reads options; `None` for a null pointer.
///
/// # Safety
/// The pointer is null or points to options.
pub(super) unsafe fn options(options: *const types::Options) -> Result<Option<Options>, Code> {
    // SAFETY: the caller's precondition.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(None) };
    Ok(Some(Options {
        priority: u8::try_from(options.priority).ok().and_then(Priority::new).ok_or(Code::INVALID)?,
        deadline: Some(Duration::from_millis(options.deadline_ms.into())).filter(|d| !d.is_zero()),
        queue: QueueId(options.queue),
        on_shortage: match options.on_shortage {
            0 => OnShortage::Drop,
            1 => OnShortage::Suspend,
            _ => return Err(Code::INVALID),
        },
    }))
}

/// Reads a command.
pub(super) fn command(op: i32, options: Option<Options>) -> Result<Command, Code> {
    Ok(match op {
        0 => Command::Inspect,
        1 => Command::Cancel,
        2 => Command::Suspend,
        3 => Command::Restart,
        4 => Command::Prioritise(options.ok_or(Code::INVALID)?.priority),
        5 => Command::Deadline(options.ok_or(Code::INVALID)?.deadline),
        _ => return Err(Code::INVALID),
    })
}

/// Writes the progress of a request.
pub(super) fn give_progress(to: &mut types::Command, progress: &Progress) {
    to.state = match progress.state {
        State::Waiting => 1,
        State::Sending => 2,
        State::Suspended(Why::Asked) => 3,
        State::Suspended(Why::InsufficientBandwidth) => 4,
        State::Suspended(Why::Disconnected) => 5,
        State::Finishing => 6,
    };
    (to.size, to.written, to.acknowledged) = (progress.size, progress.written, progress.acknowledged);
}
