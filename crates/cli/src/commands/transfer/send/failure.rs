//! Why a file was not delivered.

use std::io;

use crate::output::exit::io_text;

/// A delivery failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The kind, as `--json` has it.
    pub(crate) kind: Kind,
    /// Why, for people.
    pub(crate) why: String,
    /// What to do about it, if that is known.
    pub(crate) hint: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The file cannot be read, or changed.
    Unreadable,
    /// The receiver does not want it, or cannot keep it.
    Refused,
    /// The link cannot carry it by its deadline: nothing was sent.
    Rejected,
    /// The same, found out on the way.
    Evicted,
    /// Its deadline passed.
    Expired,
    /// The receiver is gone, or does not say what became of it.
    Lost,
}

impl Kind {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Kind::Unreadable | Kind::Refused => 1,
            Kind::Lost => 3,
            Kind::Rejected | Kind::Evicted | Kind::Expired => 5,
        }
    }
}

impl Failure {
    pub(crate) fn new(kind: Kind, why: impl Into<String>) -> Failure {
        Failure { kind, why: why.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: &'static str) -> Failure {
        Failure { hint: Some(hint), ..self }
    }

    pub(crate) fn unreadable(e: &io::Error) -> Failure {
        Failure::new(Kind::Unreadable, io_text(e))
    }

    pub(crate) fn expired() -> Failure {
        Failure::new(Kind::Expired, "its deadline passed before the transfer was complete")
    }
}
