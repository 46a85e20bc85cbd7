//! A client in its machine: the core and whoever uses it.

use bytes::Bytes;
use remora_base::{Core, Peer, Time, Transmit};
use remora_client::{Answer, CallId, Client, Config, Event, Failure, Transport};

use crate::hosts::{Processor, SlowHost};
use crate::net::server_addr;
use crate::packet_log::{Packet, PacketLog};

/// Who asks a client for things.
pub trait User {
    /// Submits whatever there is to ask at this moment. Called after everything that happens
    /// to the client; must stop by itself.
    fn drive(&mut self, now: Time, client: &mut Client);

    /// A request came to its end.
    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, Failure>);

    /// When it wants to be [`drive`](User::drive)n although nothing happens.
    fn poll_timeout(&self) -> Option<Time>;

    /// The server crashed at this moment. No user of a real client learns of it; checkers do.
    fn on_server_crash(&mut self, _now: Time) {}
}

/// A client and its user.
#[derive(Debug)]
pub struct ClientNode<U> {
    core: Client,
    user: U,
    transport: Transport,
    packets: Option<PacketLog>,
    /// Of a slow host; otherwise work takes no time.
    processor: Option<Processor>,
}

impl<U: User> ClientNode<U> {
    /// A client of the server. Over a stream it is not yet connected.
    pub fn new(config: Config, seed: u64, user: U) -> ClientNode<U> {
        let transport = config.transport;
        let core = Client::new(config, Peer::datagram(server_addr()), seed, Time::ZERO);
        ClientNode { core, user, transport, packets: None, processor: None }
    }

    /// Has messages take the time that they take on a slow host.
    pub fn on_host(self, host: SlowHost) -> ClientNode<U> {
        ClientNode { processor: Some(Processor::new(host)), ..self }
    }

    /// Keeps the time of every packet from now on.
    pub fn log_packets(&mut self) {
        self.packets = Some(PacketLog::default());
    }

    /// The packets, in order, if they are kept.
    pub fn packets(&self) -> &[Packet] {
        self.packets.as_ref().map_or(&[], PacketLog::packets)
    }

    pub fn core(&self) -> &Client {
        &self.core
    }

    pub fn user(&self) -> &U {
        &self.user
    }

    /// The user. What it then wants to do waits for the next thing that happens.
    pub fn user_mut(&mut self) -> &mut U {
        &mut self.user
    }

    /// Whether it speaks over a stream.
    pub fn is_stream(&self) -> bool {
        self.transport == Transport::Tcp
    }

    /// Takes a message.
    pub fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
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

    /// Acts on timers.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((from, bytes)) = self.processor.as_mut().and_then(|p| p.poll_received(now)) {
            self.core.handle_input(now, from, bytes);
            self.settle(now);
        }
        self.core.handle_timeout(now);
        self.settle(now);
    }

    /// Its stream stands.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.core.connected(now, server);
        self.settle(now);
    }

    /// Its stream broke.
    pub fn disconnected(&mut self, now: Time) {
        self.core.disconnected(now);
        self.settle(now);
    }

    /// The link says that nothing gets through until it says otherwise, or until `until`; `kept` if it
    /// keeps what is under way.
    pub fn hold(&mut self, now: Time, until: Time, kept: bool) {
        if kept {
            self.core.hold_kept(now, until)
        } else {
            self.core.hold(now, until)
        }
        self.settle(now);
    }

    /// The link says that messages get through again.
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
        Some(transmit)
    }

    fn next_transmit(&mut self, now: Time) -> Option<Transmit> {
        let Some(processor) = &mut self.processor else { return self.core.poll_transmit(now) };
        while let Some(transmit) = self.core.poll_transmit(now) {
            processor.send(now, transmit);
        }
        processor.poll_transmit(now)
    }

    /// When the core, the user or the processor has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let processor = self.processor.as_ref().and_then(Processor::poll_timeout);
        [self.core.poll_timeout(), self.user.poll_timeout(), processor].into_iter().flatten().min()
    }

    /// Tells the user what came of its requests, and lets it ask for more.
    fn settle(&mut self, now: Time) {
        while let Some(Event::Done { id, result }) = self.core.poll_event() {
            self.user.on_done(now, id, result);
        }
        self.user.drive(now, &mut self.core);
    }
}
