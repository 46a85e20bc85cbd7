//! Why a file is refused.

use std::io;

use crate::output::exit::io_text;

/// Why a file is refused, for the sender and for us.
pub(crate) type Refusal = String;

pub(crate) const TAKEN: &str = "a file of this name exists (the receiver can allow --overwrite)";

pub(crate) fn refusal(e: &io::Error) -> Refusal {
    format!("the receiver cannot store it: {}", io_text(e))
}
