//! The NFS client on real sockets.
//!
//! A [`Session`] is a handle on one mounted server: cheap to clone, used by many tasks at once. One task owns the
//! socket, one mutex guards the core; a call locks it only to hand over a request. Read `session` first, then
//! `transport`, `mount` and `transfer`.

mod error;
mod mount;
mod options;
mod rate_limit;
mod session;
mod target;
mod transfer;
mod transport;

pub use error::ClientError;
pub use mount::earlier_mount::EarlierMount;
pub use mount::known_root::KnownRoot;
pub use mount::procedure::{Mounted, exports, mount, mount_first};
pub use options::Options;
pub use rate_limit::RateLimit;
pub use session::{Blocks, Session};
pub use target::{Keys, Target, TargetError};
pub use transfer::download::{Downloaded, TransferLimits, download, receive};
pub use transfer::upload::{UploadProgress, send, upload};
pub use transport::parallel_streams::STREAMS_LOSS;

/// For tests: the same port of loopback over TCP and UDP.
#[cfg(test)]
async fn listen() -> (tokio::net::TcpListener, tokio::net::UdpSocket) {
    loop {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = tokio::net::UdpSocket::bind(listener.local_addr().unwrap()).await {
            return (listener, socket);
        }
    }
}
