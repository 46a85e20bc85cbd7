//! A client host: the client core and its user.

use bytes::Bytes;
use remora_base::{Core, Peer, Time, Transmit};
use remora_client::{Answer, CallFailure, CallId, Client, ClientConfig, ClientEvent, Transport};

use super::slow_host::{Processor, SlowHost};
use super::timeout_cycle::TimeoutCycles;
use crate::events::{Packet, PacketLog};
use crate::net::server_addr;

/// The program that uses a client.
pub trait User {
    /// Submits all requests that are due. Called after every event of the client; must terminate.
    fn drive(&mut self, now: Time, client: &mut Client);

    /// Handles the completion of a request.
    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>);

    /// When [`drive`](User::drive) is due without another event.
    fn poll_timeout(&self) -> Option<Time>;

    /// Handles a crash of the server. Users of real clients never learn of it; checkers do.
    fn on_server_crash(&mut self, _now: Time) {}
}

/// A client and its user.
#[derive(Debug)]
pub struct ClientNode<U> {
    core: Client,
    user: U,
    transport: Transport,
    packets: Option<PacketLog>,
    /// The processor of a slow host; otherwise work takes no time.
    processor: Option<Processor>,
    /// An old RPC layer's xids; otherwise a call keeps its own.
    cycles: Option<TimeoutCycles>,
}

impl<U: User> ClientNode<U> {
    /// A client of the server. Over a stream it is not yet connected.
    pub fn new(config: ClientConfig, seed: u64, user: U) -> ClientNode<U> {
        let transport = config.transport;
        let core = Client::new(config, Peer::datagram(server_addr()), seed, Time::ZERO);
        ClientNode { core, user, transport, packets: None, processor: None, cycles: None }
    }

    /// Delays messages by the processor of a slow host.
    pub fn on_host(self, host: SlowHost) -> ClientNode<U> {
        ClientNode { processor: Some(Processor::new(host)), ..self }
    }

    /// Gives a call a new xid after `retries` retransmissions, as an old RPC layer does.
    pub fn with_timeout_cycles(self, retries: u32) -> ClientNode<U> {
        ClientNode { cycles: Some(TimeoutCycles::new(retries)), ..self }
    }

    /// The client's own xid of a message on the wire.
    pub fn original_xid(&self, on_wire: u32) -> u32 {
        self.cycles.as_ref().map_or(on_wire, |cycles| cycles.original(on_wire))
    }

    /// Starts the packet log.
    pub fn log_packets(&mut self) {
        self.packets = Some(PacketLog::default());
    }

    /// The packet log, if started.
    pub fn packets(&self) -> &[Packet] {
        self.packets.as_ref().map_or(&[], PacketLog::packets)
    }

    pub fn core(&self) -> &Client {
        &self.core
    }

    pub fn user(&self) -> &U {
        &self.user
    }

    /// The user. Its next requests wait for the next event.
    pub fn user_mut(&mut self) -> &mut U {
        &mut self.user
    }

    /// Whether it uses a stream.
    pub fn is_stream(&self) -> bool {
        self.transport == Transport::Tcp
    }

    /// Handles a message.
    pub fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
        let bytes = match &mut self.cycles {
            None => bytes,
            Some(cycles) => match cycles.incoming(&bytes) {
                Some(bytes) => bytes,
                None => return,
            },
        };
        if let Some(log) = &mut self.packets {
            log.reply(now, &bytes);
        }
        match &mut self.processor {
            Some(processor) => processor.receive(now, from, bytes),
            None => {
                self.core.handle_input(now, from, bytes);
                self.settle(now);
            }
        }
    }

    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((from, bytes)) = self.processor.as_mut().and_then(|p| p.poll_received(now)) {
            self.core.handle_input(now, from, bytes);
            self.settle(now);
        }
        self.core.handle_timeout(now);
        self.settle(now);
    }

    /// Its stream is connected.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.core.connected(now, server);
        self.settle(now);
    }

    /// Its stream broke.
    pub fn disconnected(&mut self, now: Time) {
        self.core.disconnected(now);
        self.settle(now);
    }

    /// The link is down until `until` or until [`resume`](ClientNode::resume); `kept` if the link
    /// keeps the packets in flight.
    pub fn hold(&mut self, now: Time, until: Time, kept: bool) {
        if kept {
            self.core.hold_kept(now, until)
        } else {
            self.core.hold(now, until)
        }
        self.settle(now);
    }

    /// The link is up again.
    pub fn resume(&mut self, now: Time) {
        self.core.resume(now);
        self.settle(now);
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let transmit = self.next_transmit(now)?;
        if let Some(log) = &mut self.packets {
            log.call(now, &transmit.payload);
        }
        match &mut self.cycles {
            None => Some(transmit),
            Some(cycles) => Some(Transmit { payload: cycles.outgoing(transmit.payload), ..transmit }),
        }
    }

    fn next_transmit(&mut self, now: Time) -> Option<Transmit> {
        let Some(processor) = &mut self.processor else { return self.core.poll_transmit(now) };
        while let Some(transmit) = self.core.poll_transmit(now) {
            processor.send(now, transmit);
        }
        processor.poll_transmit(now)
    }

    /// When the core, the user or the processor has a timer.
    pub fn poll_timeout(&self) -> Option<Time> {
        let processor = self.processor.as_ref().and_then(Processor::poll_timeout);
        [self.core.poll_timeout(), self.user.poll_timeout(), processor].into_iter().flatten().min()
    }

    /// Passes completions to the user, and lets it submit requests.
    fn settle(&mut self, now: Time) {
        while let Some(ClientEvent::Done { id, result }) = self.core.poll_event() {
            self.user.on_done(now, id, result);
        }
        self.user.drive(now, &mut self.core);
    }
}
