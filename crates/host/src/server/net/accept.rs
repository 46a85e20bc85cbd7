//! Letting TCP connections in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_server::Programs;
use remora_vfs::local::note_refused;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use crate::server::net::tcp_connection;
use crate::server::shards::dispatcher::Dispatcher;
use crate::tcp::{KeepAlive, harden};

/// How long to leave a listener alone that fails, for instance for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A peer that is silent for the first, and then for each of a number of probes, is gone.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: Duration::from_secs(120), between: Duration::from_secs(30), count: 8 };

/// Accepts for ever, for these programs.
pub(crate) async fn run(dispatcher: Arc<Dispatcher>, listener: TcpListener, programs: Programs) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => welcome(&dispatcher, stream, addr, programs),
            Err(e) => {
                dispatcher.counters.accept_errors.count();
                note_refused(e.raw_os_error().unwrap_or_default());
                // A client that left while it waited is no reason to make others wait.
                if e.kind() != io::ErrorKind::ConnectionAborted {
                    dispatcher.evict_idle();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn welcome(dispatcher: &Arc<Dispatcher>, stream: TcpStream, addr: SocketAddr, programs: Programs) {
    if dispatcher.connections() >= dispatcher.connections_max() && !dispatcher.make_room(addr) {
        dispatcher.counters.refused.count();
        debug!(client = %addr, "connection refused: there is no room");
        return;
    }
    dispatcher.counters.accepted.count();
    if harden(&stream, &KEEP_ALIVE).is_ok() {
        let (connection, read) = tcp_connection::open(dispatcher, stream, addr, programs);
        tokio::spawn(tcp_connection::run(dispatcher.clone(), connection, read));
    }
}
