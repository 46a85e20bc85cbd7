//! Groups of users, looked up on the server's machine in place of the list in AUTH_SYS, which has 16 at most.
//!
//! [`cache`] knows groups and the calls that wait for them; [`lookup`] asks the machine.

pub(crate) mod cache;
pub(crate) mod lookup;
