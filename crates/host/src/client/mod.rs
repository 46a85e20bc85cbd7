//! The client core on real sockets.
//!
//! A [`Session`] is a handle on one mounted server: cheap to clone, used by many tasks at
//! once. Behind it one task owns the socket and one mutex the core; calls lock it for as long
//! as it takes to hand over a request.

mod driver;
mod error;
mod known;
mod later;
mod line;
mod mount;
mod objects;
mod race;
mod rescue;
mod roaming;
mod session;
mod streams;
mod target;
mod throttle;
mod transfer;

pub use error::ClientError;
pub use known::Known;
pub use mount::{Mounted, Options, exports, mount, mount_first};
pub use session::Session;
pub use streams::STREAMS_LOSS;
pub use target::{Keys, Target, TargetError};
pub use throttle::Throttle;
pub use transfer::{Downloaded, Limits, Progress, download, receive, send, upload};

/// For tests: a port of loopback over both transports, which other programs may have over one of them.
#[cfg(test)]
async fn listen() -> (tokio::net::TcpListener, tokio::net::UdpSocket) {
    loop {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = tokio::net::UdpSocket::bind(listener.local_addr().unwrap()).await {
            return (listener, socket);
        }
    }
}
