//! What a client can be told.

use std::time::Duration;

use remora_wire::rpc::AuthUnix;

use crate::transport::Transport;
use crate::transport::block_size::{BlockSize, MTU};
use crate::transport::retry_policy::RetryPolicy;

/// How many requests for file data may be outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowSize {
    /// SpuriousTimeouts this many (at least 1). Five is a stock client with four block I/O daemons.
    Fixed(u32),
    /// As many as keep the link busy without a queue building up in front of it.
    Adaptive,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// What carries the messages.
    pub transport: Transport,
    /// How it retransmits over UDP.
    pub retry: RetryPolicy,
    /// How many bytes a READ or WRITE moves.
    pub block: BlockSize,
    /// How many of them may be outstanding.
    pub window: WindowSize,
    /// In whose name it calls.
    pub cred: AuthUnix,
    /// Every request fails when the oldest is this old and the server has answered none for as long, nor a
    /// first probe; `None`: none is ever given up (a hard mount).
    pub give_up: Option<Duration>,
    /// The most requests waiting for their turn.
    pub waiting_max: usize,
    /// The longest packet that the path to the server takes whole, in bytes: blocks chosen from
    /// the link fill such packets. What is below 576 or above 9000 counts as 1500.
    pub path_mtu: u32,
}

impl Config {
    /// The defaults over `transport`.
    pub fn new(transport: Transport) -> Config {
        Config {
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

    /// Whether losses are inferred instead of waited for.
    pub(crate) fn infers_losses(&self) -> bool {
        self.transport == Transport::Udp && self.retry == RetryPolicy::Adaptive
    }

    /// A stock client of the 1990s (NFS/W 95, DRC 89): blocks of 8 KiB, 0.7 s doubled, five
    /// outstanding requests.
    pub fn stock() -> Config {
        Config {
            retry: RetryPolicy::STOCK,
            block: BlockSize::Fixed(8192),
            window: WindowSize::Fixed(5),
            ..Config::new(Transport::Udp)
        }
    }

    /// The papers' settings (NFS/W 97): blocks of 4 KiB, hybrid linear back-off.
    pub fn paper() -> Config {
        Config { retry: RetryPolicy::PAPER, block: BlockSize::Fixed(4096), ..Config::stock() }
    }
}
