//! The functions of `atp.h`. Each reads its arguments, calls its namesake in [`crate::calls`] or
//! [`crate::library`], and converts the result to a code. No panic reaches C.
//!
//! Preconditions of every function, stated in `atp.h`: a pointer is null, or points to a value of its type, aligned
//! and valid during the call; strings end with a NUL.

mod callback;
mod read;
mod types;

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) use callback::{Callback, CallbackEvent};
use remora_host::atp::keys;
use types::{Command, Data, Function, Key, Options, Settings};

use crate::calls;
use crate::code::Code;
use crate::library;
use crate::table::Refused;

/// Runs a function; a panic becomes an error code.
fn guard<T: From<i32>>(work: impl FnOnce() -> Result<T, Code>) -> T {
    // State that a panic leaves inconsistent is behind locks that tolerate it.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(code)) => T::from(code.0),
        Err(_) => T::from(Code::INTERNAL.0),
    }
}

/// Text of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn atp_strerror(code: i32) -> *const c_char {
    Code::words(code).as_ptr()
}

/// Creates a key file, unless it exists.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_keys_generate(path: *const c_char, key: *mut Key) -> i32 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let path = unsafe { read::path(path) }?.ok_or(Code::INVALID)?;
        let identity = keys::load_or_create(path)?;
        // SAFETY: the module's preconditions.
        unsafe { read::give_key(key, identity.public()) };
        Ok(0)
    })
}

/// Reads the public key of a key file.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_keys_load(path: *const c_char, key: *mut Key) -> i32 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let path = unsafe { read::path(path) }?.ok_or(Code::INVALID)?;
        let identity = keys::load(path)?;
        // SAFETY: the module's preconditions.
        unsafe { read::give_key(key, identity.public()) };
        Ok(0)
    })
}

/// Starts the library.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_init(settings: *const Settings) -> i32 {
    guard(|| {
        library::may_wait()?;
        // SAFETY: the module's preconditions.
        let start = unsafe { read::settings(settings) }?;
        library::start(start).map(|()| 0)
    })
}

/// Stops the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn atp_shutdown() -> i32 {
    guard(|| library::stop().map(|()| 0))
}

/// The library's public key.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_public_key(key: *mut Key) -> i32 {
    guard(|| {
        read::not_null(key)?;
        let public = library::current()?.endpoint.public_key();
        // SAFETY: the module's preconditions.
        unsafe { read::give_key(key, public) };
        Ok(0)
    })
}

/// The local port.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn atp_local_port() -> i32 {
    guard(|| Ok(i32::from(library::current()?.endpoint.local_addr().port())))
}

/// Creates an endpoint for the owner of a key at an address.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_endpoint(host: *const c_char, port: u16, key: *const Key) -> i32 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let (host, key) = unsafe { (read::text(host)?.ok_or(Code::INVALID)?, read::key(key)?) };
        calls::endpoint(host, port, key)
    })
}

/// Waits for a new peer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn atp_accept(timeout_ms: i32) -> i32 {
    guard(|| calls::accept(timeout_ms))
}

/// The peer's key.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_peer_key(endpoint: i32, key: *mut Key) -> i32 {
    guard(|| {
        read::not_null(key)?;
        let public = calls::peer_key(endpoint)?;
        // SAFETY: the module's preconditions.
        unsafe { read::give_key(key, public) };
        Ok(0)
    })
}

/// Closes an endpoint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn atp_close(endpoint: i32) -> i32 {
    guard(|| calls::close(endpoint).map(|()| 0))
}

/// Sends an object and waits for its end.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_send_sync(
    to: i32,
    object: *const Data,
    options: *const Options,
    request: *mut i64,
) -> i32 {
    guard(|| {
        library::may_wait()?;
        // SAFETY: the module's preconditions.
        let (object, options) = unsafe { (read::object(object)?, read::options(options)?) };
        let began = |number| {
            if !request.is_null() {
                // SAFETY: the module's preconditions; other threads read it atomically meanwhile.
                unsafe { AtomicI64::from_ptr(request) }.store(number, Ordering::Release);
            }
        };
        calls::send_sync(to, object, options.unwrap_or_default(), began).map(|()| 0)
    })
}

/// Sends an object and returns at once.
///
/// # Safety
/// See the module's documentation. The callback may be called with its context until it gets `ATP_FINAL`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_send_async(
    to: i32,
    object: *const Data,
    options: *const Options,
    callback: Function,
    context: *mut c_void,
) -> i64 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let (object, options) = unsafe { (read::object(object)?, read::options(options)?) };
        calls::send_async(to, object, options.unwrap_or_default(), Callback::new(callback, context))
    })
}

/// Takes the next received object.
///
/// # Safety
/// See the module's documentation; the buffer has the stated capacity.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_recv(from: i32, object: *mut Data, timeout_ms: i32) -> i32 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let buffer = unsafe { object.as_mut() }.ok_or(Code::INVALID)?;
        if buffer.bytes.is_null() && buffer.capacity > 0 {
            return Err(Code::INVALID);
        }
        match calls::recv(from, buffer.capacity, timeout_ms) {
            Ok(received) => {
                // SAFETY: the buffer has room for `capacity` bytes, and the object is not larger.
                unsafe { read::give_object(buffer, &received.bytes) };
                buffer.priority = i32::from(received.priority.level());
                Ok(0)
            }
            Err(Refused::TooSmall(needed)) => {
                buffer.size = needed;
                Err(Code::TOO_SMALL)
            }
            Err(Refused::Code(code)) => Err(code),
        }
    })
}

/// Registers a callback for bandwidth bounds.
///
/// # Safety
/// See the module's documentation. The callback may be called with its context until another is registered and it
/// has returned, or the library stops.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_callback(
    to: i32,
    callback: Function,
    context: *mut c_void,
    low: u64,
    high: u64,
) -> i32 {
    guard(|| {
        let callback = Callback::new(callback, context).ok_or(Code::INVALID)?;
        calls::bounds(to, callback, low, high).map(|()| 0)
    })
}

/// Runs a command on a request.
///
/// # Safety
/// See the module's documentation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atp_reqctl(request: i64, command: *mut Command, options: *const Options) -> i32 {
    guard(|| {
        // SAFETY: the module's preconditions.
        let (command, options) = unsafe { (command.as_mut().ok_or(Code::INVALID)?, read::options(options)?) };
        let progress = calls::control(request, read::command(command.op, options)?)?;
        read::give_progress(command, &progress);
        Ok(0)
    })
}

#[cfg(test)]
mod tests;
