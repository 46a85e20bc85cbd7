//! Part of the local disk: tests.

pub(crate) mod flush_failure;
#[expect(clippy::disallowed_methods, reason = "how long others wait is real time")]
#[expect(clippy::disallowed_types, reason = "of what an unprivileged test can have only sockets take long to close")]
pub(crate) mod slow_close;
