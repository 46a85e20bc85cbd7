//! The types of `atp.h` in C's layout; a test compares the two.

use std::ffi::{c_char, c_void};

/// `atp_key_t`: 44 characters of a public key and a NUL.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(super) text: [c_char; 45],
}

/// Layout of `atp_settings_t`.
#[repr(C)]
pub(crate) struct Settings {
    pub(super) struct_size: usize,
    pub(super) listen: *const c_char,
    pub(super) key_file: *const c_char,
    pub(super) guests: *const *const c_char,
    pub(super) guest_count: usize,
    pub(super) received_bytes_max: u64,
    pub(super) received_max: u32,
    pub(super) admit: i32,
}

/// Layout of `atp_data_t`.
#[repr(C)]
pub(crate) struct Data {
    pub(super) bytes: *mut c_void,
    pub(super) size: usize,
    pub(super) capacity: usize,
    pub(super) priority: i32,
}

/// Layout of `atp_options_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(super) priority: i32,
    pub(super) deadline_ms: u32,
    pub(super) queue: u32,
    pub(super) on_shortage: i32,
}

/// Layout of `atp_command_t`.
#[repr(C)]
pub(crate) struct Command {
    pub(super) op: i32,
    pub(super) state: i32,
    pub(super) size: u64,
    pub(super) written: u64,
    pub(super) acknowledged: u64,
}

/// Layout of `atp_upcall_t`.
#[repr(C)]
pub(crate) struct Upcall {
    pub(super) kind: i32,
    pub(super) outcome: i32,
    pub(super) request: i64,
    pub(super) size: u64,
    pub(super) written: u64,
    pub(super) needed: u64,
    pub(super) available: u64,
    pub(super) side: i32,
    pub(super) probability: f64,
}

/// Type of `atp_callback_t`.
pub(crate) type Function = Option<unsafe extern "C" fn(upcall: *const Upcall, context: *mut c_void)>;
