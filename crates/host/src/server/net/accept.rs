//! Accepts TCP connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_server::Programs;
use remora_vfs::local::note_fd_exhaustion;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::context::NetContext;
use super::tcp_connection;
use crate::tcp::{KeepAlive, harden};

/// Pause after a failed accept, for instance for lack of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A peer is dead if it is silent for `idle` and then for `count` probes.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: Duration::from_secs(120), between: Duration::from_secs(30), count: 8 };

/// Accepts connections on which `programs` are served, for ever.
pub(crate) async fn run(context: Arc<NetContext>, listener: TcpListener, programs: Programs) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => serve(&context, stream, addr, programs),
            Err(e) => {
                context.counters.accept_errors.count();
                note_fd_exhaustion(e.raw_os_error().unwrap_or_default());
                // A client that left the backlog is no reason for a pause.
                if e.kind() != io::ErrorKind::ConnectionAborted {
                    context.evict_idle();
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

fn serve(context: &Arc<NetContext>, stream: TcpStream, addr: SocketAddr, programs: Programs) {
    if context.connections() >= context.connections_max() && !context.evict_for(addr) {
        context.counters.refused.count();
        debug!(client = %addr, "connection refused: no connection can be evicted");
        return;
    }
    context.counters.accepted.count();
    if harden(&stream, &KEEP_ALIVE).is_ok() {
        let (connection, read) = tcp_connection::open(context, stream, addr, programs);
        tokio::spawn(tcp_connection::run(context.clone(), connection, read));
    }
}
