//! Error codes of the calls, and their texts. `atp.h` explains each.

use remora_atp::session::{ConnectError, Refusal};
use remora_atp::{Outcome, Rejection};
use remora_host::KeyFileError;
use remora_host::atp::AtpError;

/// An error code of the C interface; negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) i32);

macro_rules! codes {
    ($($name:ident = $value:literal, $words:literal;)*) => {
        impl Code {
            $(#[doc = $words] pub(crate) const $name: Code = Code($value);)*
            /// All codes with their texts.
            const ALL: &[(Code, &std::ffi::CStr)] = &[$((Code::$name, const { words($words) }),)*];
        }
    };
}

/// Converts a text to a C string; a NUL in it does not compile.
const fn words(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(words) => words,
        Err(_) => panic!("end the words with \\0"),
    }
}

codes! {
    INVALID = -1, "an argument is null or out of its range\0";
    NOT_INIT = -2, "the library is not initialised\0";
    ALREADY = -3, "the library is initialised already\0";
    DEADLOCK = -4, "a call that waits was made from a callback\0";
    BAD_ID = -5, "no such endpoint or request, or it has ended\0";
    NAME = -6, "the host's name has no address\0";
    KEY = -7, "not a key, or the key's file cannot be read or made\0";
    SYSTEM = -8, "the system refuses a socket, a thread or random numbers\0";
    REFUSED = -9, "the peer refused the connection, or has another key\0";
    DOWN = -10, "the connection is over\0";
    CLOSED = -11, "the library was shut down\0";
    TIMED_OUT = -12, "nothing came in time\0";
    TOO_SMALL = -13, "the buffer is too small for the object\0";
    FULL = -14, "a table is full: too many endpoints, requests, bytes or queues\0";
    TOO_BIG = -15, "the object is too big\0";
    SHORTAGE = -16, "rejected: the bandwidth does not suffice for the deadline\0";
    EVICTED = -17, "given up: the deadline cannot be met any more\0";
    EXPIRED = -18, "the deadline has passed\0";
    CANCELLED = -19, "cancelled\0";
    LOST = -20, "the connection is over, or did not come about\0";
    INTERNAL = -21, "an error within the library\0";
}

impl Code {
    /// The text of a code, also for unknown codes.
    pub(crate) fn words(code: i32) -> &'static std::ffi::CStr {
        match Code::ALL.iter().find(|(c, _)| c.0 == code) {
            Some((_, words)) => words,
            None if code >= 0 => c"no error",
            None => c"no code of this library",
        }
    }

    /// The code of a request's outcome; `None` if delivered.
    pub(crate) fn of_outcome(outcome: Outcome) -> Option<Code> {
        Some(match outcome {
            Outcome::Delivered => return None,
            Outcome::Rejected(Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) => Code::SHORTAGE,
            Outcome::Rejected(Rejection::TooLarge) => Code::TOO_BIG,
            Outcome::Rejected(Rejection::TooMany | Rejection::TooManyBytes | Rejection::TooManyQueues) => Code::FULL,
            Outcome::Expired => Code::EXPIRED,
            Outcome::Evicted => Code::EVICTED,
            Outcome::Cancelled => Code::CANCELLED,
            Outcome::Lost => Code::LOST,
        })
    }
}

impl From<AtpError> for Code {
    fn from(e: AtpError) -> Code {
        match e {
            AtpError::Bind { .. } | AtpError::Start(_) => Code::SYSTEM,
            AtpError::Setup(_) => Code::INVALID,
            AtpError::Connect(ConnectError::TooMany) => Code::FULL,
            AtpError::Connect(ConnectError::Address(_)) => Code::NAME,
            AtpError::Connect(ConnectError::Other(_)) => Code::SYSTEM,
            AtpError::Refused(Refusal::WrongKey | Refusal::NotAdmitted) => Code::REFUSED,
            // Other reasons may be transient.
            AtpError::Refused(_) | AtpError::Down(_) | AtpError::Gone(_) => Code::DOWN,
            AtpError::Replaced => Code::BAD_ID,
            AtpError::Closed => Code::CLOSED,
        }
    }
}

impl From<KeyFileError> for Code {
    fn from(_: KeyFileError) -> Code {
        Code::KEY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_words_of_its_own_and_stands_in_the_header() {
        let header = include_str!("../include/atp.h");
        for (i, (code, words)) in Code::ALL.iter().enumerate() {
            assert_eq!(code.0, -1 - i32::try_from(i).unwrap());
            assert_eq!(Code::words(code.0), *words);
            assert!(header.contains(&format!("= {},", code.0)), "{words:?}");
        }
        assert_eq!(Code::words(0), c"no error");
        assert_eq!(Code::words(i32::MIN), c"no code of this library");
    }
}
