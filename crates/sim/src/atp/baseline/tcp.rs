//! TCP with deadlines and M-TCP (ATP 02, section 4.2), on stand-ins for TCP connections.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use noq_proto::{Dir, Event, StreamEvent, StreamId};
use remora_base::Time;

use super::super::ledger::{FinalStatus, Ledger};
use super::super::message::{Reader, heading};
use super::super::workload::{Class, Object};
use super::super::world::{End, Scheme};
use super::node::{self, Congestion, Node, SetUpError, Settings};

/// The connections and their use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// The classes of each connection. Connections with the same classes share a queue.
    pub lanes: Vec<Vec<Class>>,
    /// Objects that a connection accepts before the first is answered (at least 1). The paper's
    /// accepts one.
    pub depth: usize,
    /// Send buffer: maximum unacknowledged bytes of a connection.
    pub send_buffer: u64,
    pub congestion: Congestion,
}

impl TcpConfig {
    /// FreeBSD 4.2's, which ATP 02 used: `net.inet.tcp.sendspace`.
    pub const SEND_BUFFER_PAPER: u64 = 16 << 10;

    /// The paper's "TCP": one connection for all classes.
    pub fn single() -> TcpConfig {
        TcpConfig {
            lanes: vec![Class::ALL.to_vec()],
            depth: 1,
            send_buffer: Self::SEND_BUFFER_PAPER,
            congestion: Congestion::Cubic,
        }
    }

    /// The paper's "M-TCP": `high` connections for high objects, one for each other class.
    pub fn multiple(high: usize) -> TcpConfig {
        let mut lanes = vec![vec![Class::High]; high.max(1)];
        lanes.extend([vec![Class::Medium], vec![Class::Low]]);
        TcpConfig { lanes, ..TcpConfig::single() }
    }

    /// One connection that is always full, for bulk transfers.
    pub fn bulk() -> TcpConfig {
        TcpConfig { depth: usize::MAX, send_buffer: 256 << 10, ..TcpConfig::single() }
    }
}

pub struct Tcp {
    sender: Node,
    receiver: Node,
    depth: usize,
    lanes: Vec<SendConnection>,
    /// The receiver's parsers, by connection.
    readers: BTreeMap<usize, Reader>,
    payload: Bytes,
    lost: Option<String>,
}

/// A connection at the sender.
struct SendConnection {
    connection: usize,
    /// Set once it is connected.
    stream: Option<StreamId>,
    /// Its queue: that of the first lane with the same classes.
    queue: usize,
    classes: Vec<Class>,
    waiting: VecDeque<(usize, Object)>,
    /// Data passed to the socket.
    writing: Vec<Bytes>,
    /// Objects not yet answered.
    unanswered: VecDeque<(usize, Time)>,
}

impl Tcp {
    /// Opens the connections. The epoch is any instant.
    pub fn new(config: &TcpConfig, epoch: Instant, seed: u64) -> Result<Tcp, SetUpError> {
        let settings = Settings { send_buffer: config.send_buffer, congestion: config.congestion };
        let mut sender = Node::new(End::Sender, epoch, seed, settings)?;
        let receiver = Node::new(End::Receiver, epoch, seed, settings)?;
        let mut lanes = Vec::new();
        for classes in &config.lanes {
            let queue = config.lanes.iter().position(|other| other == classes).unwrap_or(lanes.len());
            lanes.push(SendConnection {
                connection: sender.connect(Time::ZERO)?,
                stream: None,
                queue,
                classes: classes.clone(),
                waiting: VecDeque::new(),
                writing: Vec::new(),
                unanswered: VecDeque::new(),
            });
        }
        // As many zeros as the largest object has.
        let payload = Bytes::from(vec![0; 1 << 20]);
        let depth = config.depth.max(1);
        Ok(Tcp { sender, receiver, depth, lanes, readers: BTreeMap::new(), payload, lost: None })
    }

    /// Reads all available data at the receiver, and answers each complete object.
    fn receive(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some((number, event)) = self.receiver.poll() {
            let stream = match event {
                Event::Stream(StreamEvent::Readable { id }) => Some(id),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    self.receiver.connection(number).and_then(|c| c.streams().accept(Dir::Bi))
                }
                Event::ConnectionLost { reason } => {
                    self.lost = Some(reason.to_string());
                    None
                }
                _ => None,
            };
            if let Some((connection, id)) = self.receiver.connection(number).zip(stream) {
                let mut whole = Vec::new();
                let reader = self.readers.entry(number).or_default();
                node::read(connection, id, |bytes| reader.take(bytes, |object| whole.push(object)));
                for object in whole {
                    ledger.arrived(object, now);
                    // One byte always fits: few are in flight.
                    let _ = connection.send_stream(id).write(&[0]);
                }
            }
        }
    }

    /// Reads answers at the sender.
    fn answered(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some((number, event)) = self.sender.poll() {
            let Some(lane) = self.lanes.iter_mut().find(|l| l.connection == number) else { continue };
            let Some(connection) = self.sender.connection(number) else { continue };
            match event {
                Event::Connected => lane.stream = connection.streams().open(Dir::Bi),
                Event::Stream(StreamEvent::Readable { id }) => {
                    let mut answers = 0;
                    node::read(connection, id, |bytes| answers += bytes.len());
                    for (object, due) in lane.unanswered.drain(..answers.min(lane.unanswered.len())) {
                        ledger.told(object, now, if now <= due { FinalStatus::Delivered } else { FinalStatus::Late });
                    }
                }
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                _ => {}
            }
        }
    }

    /// Passes objects to sockets with free space.
    fn pump(&mut self, now: Time, ledger: &mut Ledger) {
        for n in 0..self.lanes.len() {
            while self.write(n) && self.begin(n, now, ledger) {}
        }
    }

    /// Writes the rest of the current object; returns whether all of it was written.
    fn write(&mut self, n: usize) -> bool {
        let Some(lane) = self.lanes.get_mut(n) else { return false };
        let Some((stream, connection)) = lane.stream.zip(self.sender.connection(lane.connection)) else { return false };
        node::write(connection, stream, &mut lane.writing)
    }

    /// Takes the next object from the queue, unless it waited too long; returns whether there was
    /// one.
    fn begin(&mut self, n: usize, now: Time, ledger: &mut Ledger) -> bool {
        let Some(lane) = self.lanes.get(n).filter(|l| l.unanswered.len() < self.depth) else { return false };
        let queue = lane.queue;
        let Some((number, object)) = self.lanes.get_mut(queue).and_then(|l| l.waiting.pop_front()) else {
            return false;
        };
        if now.since(object.arrival) * 2 >= object.deadline {
            ledger.told(number, now, FinalStatus::Rejected);
            return true;
        }
        ledger.started(number, now);
        if let Some(lane) = self.lanes.get_mut(n) {
            let size = (object.size as usize).min(self.payload.len());
            lane.writing = vec![heading(number, size as u32), self.payload.slice(..size)];
            lane.unanswered.push_back((number, object.due()));
        }
        true
    }
}

impl Scheme for Tcp {
    fn submit(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger) {
        let entered = Object { arrival: now, ..*object };
        if let Some(lane) = self.lanes.iter_mut().find(|l| l.classes.contains(&object.class)) {
            lane.waiting.push_back((number, entered));
        }
        self.pump(now, ledger);
    }

    fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes, ledger: &mut Ledger) {
        match end {
            End::Receiver => {
                self.receiver.handle_datagram(now, &payload);
                self.receive(now, ledger);
            }
            End::Sender => {
                self.sender.handle_datagram(now, &payload);
                self.answered(now, ledger);
                self.pump(now, ledger);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time, ledger: &mut Ledger) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.answered(now, ledger);
        self.receive(now, ledger);
        self.pump(now, ledger);
    }

    fn poll_transmit(&mut self, now: Time, _: &mut Ledger) -> Option<(End, Bytes)> {
        let from_sender = self.sender.poll_transmit(now).map(|payload| (End::Sender, payload));
        from_sender.or_else(|| self.receiver.poll_transmit(now).map(|payload| (End::Receiver, payload)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min()
    }

    fn trouble(&self) -> Option<String> {
        self.lost.clone()
    }
}
