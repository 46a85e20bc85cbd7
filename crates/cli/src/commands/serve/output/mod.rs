//! What a server prints: [`announcement`] at its start, [`counters`] and [`notices`] later, all on a [`console`].

pub(crate) mod access_log;
pub(crate) mod announcement;
pub(crate) mod console;
pub(crate) mod counters;
pub(crate) mod notices;
pub(crate) mod warnings;
