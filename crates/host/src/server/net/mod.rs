//! Sockets: they bring requests to the [shards](super::shards) and carry the replies back.
//!
//! [`context`] is what all sockets share. [`listen_sockets`] binds. [`tcp_connection`] accepts TCP connections and reads
//! records, and [`reply_queue`] writes replies; [`udp`] does both for datagrams, [`atp`] for objects over ATP.

pub(super) mod atp;
pub(super) mod context;
pub(super) mod listen_sockets;
mod reply_queue;
mod tcp_ack;
pub(super) mod tcp_connection;
pub(super) mod udp;
