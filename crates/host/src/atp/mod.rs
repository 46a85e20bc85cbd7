//! ATP on real sockets: objects with priorities and deadlines to and from any number of peers.
//!
//! An [`AtpEndpoint`] owns a UDP socket and a thread that runs the core
//! ([`remora_atp::session::Endpoint`]) between the socket and its timers; the calls of an
//! application lock the core for as long as they take in it, and wake the thread.
//!
//! ```text
//!  send, progress, cancel ... --> core (a lock) <--- thread: poll(socket, bell, timer)
//!  Request, recv, notice  <-- queues and wakers <---/
//! ```
//!
//! Everything that waits is bounded:
//!
//! | what                                   | bound                                     |
//! |----------------------------------------|-------------------------------------------|
//! | objects to be sent, and their bytes    | the scheduler's settings                  |
//! | objects on their way in                | the session's buffers                     |
//! | received objects not taken             | `Settings::received_max`, and their bytes |
//! | notices not taken                      | 1,024, the oldest are dropped; beside them the newest of each request |
//! | datagrams that the socket has no room for | one batch; the core makes no more      |
//! | the good-bye at the end                | one second                                |
//!
//! **Roaming.** The socket of a program that only sends is bound to all addresses. Once a second
//! the endpoint looks from which of them its packets to each peer leave (to 64 of them; where there
//! are more, those of the next second are others); when that changes, peers are told at once.
//! [`AtpEndpoint::rebind`] does it on request.
//!
//! [`blocking`] is the same without `async`; [`keys`] keeps identities on disk.

pub mod blocking;
mod endpoint;
mod error;
mod farewell;
mod interface;
pub mod keys;
mod notices;
mod reach;
mod request;
mod shared;
mod socket;
mod sources;
mod worker;

pub use endpoint::{AtpEndpoint, Received, Remote, Settings};
pub use error::AtpError;
pub use farewell::close_all;
pub use request::{Control, Request};
pub use shared::{Crossing, Notice};
