//! Configuration of a client.

use std::time::Duration;

use remora_wire::rpc::AuthUnix;

use crate::transport::Transport;
use crate::transport::block_size::{BlockSize, MTU};
use crate::transport::retry_policy::RetryPolicy;

/// The congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowSize {
    /// Always this many requests (at least 1). Five is a stock client with four block I/O daemons.
    Fixed(u32),
    /// As many as keep the link busy with a short queue.
    Adaptive,
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub transport: Transport,
    /// Retransmission over UDP.
    pub retry: RetryPolicy,
    /// Bytes of a READ or WRITE.
    pub block: BlockSize,
    /// Requests for file data in flight.
    pub window: WindowSize,
    /// The credential of all calls.
    pub cred: AuthUnix,
    /// All requests fail when the oldest is this old and the server has been silent for as long; `None`: never (a hard
    /// mount).
    pub give_up: Option<Duration>,
    /// Requests that wait at most.
    pub waiting_max: usize,
    /// Path MTU in bytes. Values below 576 or above 9000 count as 1500.
    pub path_mtu: u32,
}

impl ClientConfig {
    /// The defaults over `transport`.
    pub fn new(transport: Transport) -> ClientConfig {
        ClientConfig {
            transport,
            retry: RetryPolicy::Adaptive,
            block: BlockSize::FromLink,
            window: WindowSize::Adaptive,
            cred: AuthUnix::default(),
            give_up: None,
            waiting_max: 4096,
            path_mtu: MTU,
        }
    }

    /// Whether losses are inferred instead of awaiting a timeout.
    pub(crate) fn infers_losses(&self) -> bool {
        self.transport == Transport::Udp && self.retry == RetryPolicy::Adaptive
    }

    /// A stock client of the 1990s (NFS/W 95, DRC 89): blocks of 8 KiB, 0.7 s doubled, five requests in flight.
    pub fn stock() -> ClientConfig {
        ClientConfig {
            retry: RetryPolicy::STOCK,
            block: BlockSize::Fixed(8192),
            window: WindowSize::Fixed(5),
            ..ClientConfig::new(Transport::Udp)
        }
    }

    /// The papers' settings (NFS/W 97): blocks of 4 KiB, hybrid linear back-off.
    pub fn paper() -> ClientConfig {
        ClientConfig { retry: RetryPolicy::PAPER, block: BlockSize::Fixed(4096), ..ClientConfig::stock() }
    }
}
