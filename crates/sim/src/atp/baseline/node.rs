//! A QUIC host: noq-proto's state machines on virtual time, with minimal TLS.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use noq_proto::congestion::CubicConfig;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, FourTuple, ReadError,
    ServerConfig, StreamId, TransportConfig, VarInt,
};
use remora_base::{Rng, Time};
use thiserror::Error;

use super::super::world::End;
use super::bbr::BbrConfig;
use super::tls;

/// Maximum UDP payload of an Ethernet frame.
const PAYLOAD_MAX: u16 = 1472;
/// Receive window, as large as a kernel's grows.
const RECEIVE_WINDOW: u32 = 4 << 20;

/// A connection that cannot be set up.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the connections cannot be set up: {0}")]
pub struct SetUpError(String);

impl SetUpError {
    fn of(why: impl ToString) -> SetUpError {
        SetUpError(why.to_string())
    }
}

/// The congestion control of a host's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// That of most kernels (RFC 9438).
    Cubic,
    /// Version 1, as in Linux.
    Bbr,
}

/// Settings of a host's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// Maximum unacknowledged bytes of a connection, like a socket's send buffer.
    pub(super) send_buffer: u64,
    pub(super) congestion: Congestion,
}

/// One end with its connections.
pub(super) struct Node {
    endpoint: Endpoint,
    epoch: Instant,
    other: SocketAddr,
    connections: BTreeMap<usize, Connection>,
    /// Client configuration of further connections.
    client: Option<ClientConfig>,
    out: VecDeque<Bytes>,
    scratch: Vec<u8>,
}

impl Node {
    /// A host; the receiver's accepts connections.
    pub(super) fn new(end: End, epoch: Instant, seed: u64, settings: Settings) -> Result<Node, SetUpError> {
        let mut config = EndpointConfig::default();
        let mut random = [0; 32];
        let mut rng = Rng::stream(seed, &format!("atp baseline {end:?}"));
        rng.fill(&mut random);
        config.rng_seed(Some(random));
        let transport = Arc::new(transport(settings, &mut rng));
        let (server, client) = match end {
            End::Receiver => {
                let mut server = ServerConfig::with_crypto(Arc::new(tls::server().map_err(SetUpError::of)?));
                server.transport_config(transport);
                (Some(Arc::new(server)), None)
            }
            End::Sender => {
                let mut client = ClientConfig::new(Arc::new(tls::client().map_err(SetUpError::of)?));
                client.transport_config(transport);
                (None, Some(client))
            }
        };
        Ok(Node {
            endpoint: Endpoint::new(Arc::new(config), server, true),
            epoch,
            other: end.other().address(),
            connections: BTreeMap::new(),
            client,
            out: VecDeque::new(),
            scratch: Vec::new(),
        })
    }

    /// Opens a connection; returns its number.
    pub(super) fn connect(&mut self, now: Time) -> Result<usize, SetUpError> {
        let config = self.client.clone().ok_or_else(|| SetUpError::of("a server does not connect"))?;
        let now = self.instant(now);
        let (handle, connection) =
            self.endpoint.connect(now, config, self.other, "receiver").map_err(SetUpError::of)?;
        self.connections.insert(handle.0, connection);
        Ok(handle.0)
    }

    pub(super) fn connection(&mut self, number: usize) -> Option<&mut Connection> {
        self.connections.get_mut(&number)
    }

    /// The next event of any connection.
    pub(super) fn poll(&mut self) -> Option<(usize, Event)> {
        self.connections.iter_mut().find_map(|(number, c)| c.poll().map(|event| (*number, event)))
    }

    pub(super) fn handle_datagram(&mut self, now: Time, payload: &[u8]) {
        let instant = self.instant(now);
        self.scratch.clear();
        let from = FourTuple::from_remote(self.other);
        match self.endpoint.handle(instant, from, None, BytesMut::from(payload), &mut self.scratch) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) = self.endpoint.accept(incoming, instant, &mut self.scratch, None) {
                    self.connections.insert(handle.0, connection);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.out.extend(self.scratch.get(..transmit.size).map(Bytes::copy_from_slice));
            }
            None => {}
        }
        self.exchange();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let now = self.instant(now);
        for connection in self.connections.values_mut() {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
        self.exchange();
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let next = self.connections.values().filter_map(Connection::poll_timeout).min()?;
        let ns = next.saturating_duration_since(self.epoch).as_nanos();
        Some(Time::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Bytes> {
        if let Some(response) = self.out.pop_front() {
            return Some(response);
        }
        let now = self.instant(now);
        let scratch = &mut self.scratch;
        let sent = self.connections.values_mut().find_map(|connection| {
            scratch.clear();
            let transmit = connection.poll_transmit(now, NonZeroUsize::MIN, scratch)?;
            scratch.get(..transmit.size).map(Bytes::copy_from_slice)
        });
        self.exchange();
        sent
    }

    /// Exchanges events between endpoint and connections.
    fn exchange(&mut self) {
        let mut gone = Vec::new();
        for (number, connection) in &mut self.connections {
            while let Some(event) = connection.poll_endpoint_events() {
                if event.is_drained() {
                    gone.push(*number);
                }
                if let Some(answer) = self.endpoint.handle_event(ConnectionHandle(*number), event) {
                    connection.handle_event(answer);
                }
            }
        }
        for number in gone {
            self.connections.remove(&number);
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.epoch + Duration::from_nanos(now.as_nanos())
    }
}

/// Reads the available data of a stream; returns whether more may follow.
pub(super) fn read(connection: &mut Connection, id: StreamId, mut take: impl FnMut(&[u8])) -> bool {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return false };
    let open = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => take(&chunk.bytes),
            Err(ReadError::Blocked) => break true,
            Ok(None) | Err(ReadError::Reset(_)) => break false,
        }
    };
    // The resulting frames go with the next packet.
    let _ = chunks.finalize();
    open
}

/// Writes as many of these bytes as the stream accepts; returns whether it accepted all.
pub(super) fn write(connection: &mut Connection, id: StreamId, bytes: &mut Vec<Bytes>) -> bool {
    while !bytes.is_empty() {
        let mut rest = &mut bytes[..];
        if connection.send_stream(id).write_chunks(&mut rest).is_err() {
            return false;
        }
        let taken = bytes.iter().take_while(|b| b.is_empty()).count();
        bytes.drain(..taken);
    }
    true
}

fn transport(settings: Settings, rng: &mut Rng) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let streams = VarInt::from_u32(100_000);
    transport
        .initial_mtu(PAYLOAD_MAX)
        .mtu_discovery_config(None)
        .max_idle_timeout(None)
        .max_concurrent_bidi_streams(streams)
        .max_concurrent_uni_streams(streams)
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .send_window(settings.send_buffer)
        // Objects of one priority in sequence, not all at a time.
        .send_fairness(false)
        .enable_segmentation_offload(false);
    match settings.congestion {
        Congestion::Cubic => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        Congestion::Bbr => {
            let phase = rng.below(BbrConfig::PHASES) as usize;
            transport.congestion_controller_factory(Arc::new(BbrConfig { phase }))
        }
    };
    transport
}
