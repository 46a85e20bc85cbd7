//! ATP on real sockets: exchanges objects with priorities and deadlines with any number of peers.
//!
//! An [`AtpEndpoint`] owns a UDP socket and a thread that runs the core ([`remora_atp::session::Endpoint`]). Calls
//! of the application lock the core briefly and wake the thread.
//!
//! ```text
//!  send, progress, cancel ... --> core (a lock) <--- thread: poll(socket, waker, timer)
//!  Request, recv, notice  <-- queues and wakers <---/
//! ```
//!
//! | what waits                             | bound                                     |
//! |----------------------------------------|-------------------------------------------|
//! | objects to be sent, and their bytes    | the scheduler's settings                  |
//! | partially received objects             | the session's buffers                     |
//! | received objects not taken             | `EndpointSettings::received_max`, and their bytes |
//! | notices not taken                      | 1,024 (drops the oldest), and the newest of each request |
//! | datagrams that the socket has no room for | one batch; the core makes no more      |
//! | closing packets                        | one second                                |
//!
//! **Roaming.** A sender's socket is bound to all addresses. Once a second the endpoint checks the source address
//! of its packets to up to 64 peers, in turn; when one changes, it informs the peers. [`AtpEndpoint::rebind`] does
//! so on request.
//!
//! [`blocking`] is the same without `async`; [`keys`] stores identities in files.

pub mod blocking;
mod connect;
mod endpoint;
mod error;
pub mod keys;
mod local_network;
mod notice;
mod request;
mod shared;
mod shutdown;
mod socket;
mod worker;

pub use endpoint::{AtpEndpoint, EndpointSettings, Received, Remote};
pub use error::AtpError;
pub use notice::{AtpNotice, Crossing};
pub use request::{Request, RequestControl};
pub use shutdown::close_all;
