//! Callbacks of the program, and their upcalls.

use std::ffi::c_void;
use std::ptr;

use remora_atp::{Probability, Side};

use super::types::{Function, Upcall};
use crate::code::Code;

/// A callback that is not null, with its context.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(*const Upcall, *mut c_void),
    context: *mut c_void,
}

// SAFETY: the context is only passed back. `atp.h` says that callbacks run on the library's thread, so the program
// has prepared its context for that.
unsafe impl Send for Callback {}

/// Content of an upcall; rates in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallbackEvent {
    /// Becomes `ATP_FINAL` of `atp.h`.
    Final { request: i64, outcome: Result<(), Code>, size: u64, written: u64 },
    /// Becomes `ATP_INSUFFICIENT` of `atp.h`.
    Insufficient { request: i64, needed: u64, available: u64 },
    /// Becomes `ATP_RESUMED` of `atp.h`.
    Resumed { request: i64 },
    /// Becomes `ATP_BANDWIDTH` of `atp.h`.
    Bandwidth { rate: u64, side: Side },
    /// Becomes `ATP_UNCERTAIN` of `atp.h`.
    Uncertain { request: i64, probability: Probability },
}

impl Callback {
    /// `None` for a null pointer.
    pub(super) fn new(function: Function, context: *mut c_void) -> Option<Callback> {
        function.map(|function| Callback { function, context })
    }

    /// Calls it. Only on the library's thread, and never with a lock held.
    pub(crate) fn call(self, event: CallbackEvent) {
        let upcall = event.upcall();
        // SAFETY: the program passed a function of this type, to be called with its context; the upcall lives until
        // it returns.
        unsafe { (self.function)(ptr::from_ref(&upcall), self.context) };
    }
}

impl CallbackEvent {
    fn upcall(self) -> Upcall {
        let mut u = Upcall {
            kind: 0,
            outcome: 0,
            request: 0,
            size: 0,
            written: 0,
            needed: 0,
            available: 0,
            side: 0,
            probability: 0.0,
        };
        match self {
            CallbackEvent::Final { request, outcome, size, written } => {
                (u.kind, u.request, u.size, u.written) = (1, request, size, written);
                u.outcome = outcome.err().map_or(0, |code| code.0);
            }
            CallbackEvent::Insufficient { request, needed, available } => {
                (u.kind, u.request, u.needed, u.available) = (2, request, needed, available);
            }
            CallbackEvent::Resumed { request } => (u.kind, u.request) = (3, request),
            CallbackEvent::Bandwidth { rate, side } => {
                (u.kind, u.available) = (4, rate);
                u.side = match side {
                    Side::Below => -1,
                    Side::Above => 1,
                };
            }
            CallbackEvent::Uncertain { request, probability } => {
                (u.kind, u.request, u.probability) = (5, request, probability.get());
            }
        }
        u
    }
}
