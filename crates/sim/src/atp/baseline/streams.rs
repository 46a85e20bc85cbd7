//! One QUIC connection, a stream for each object, priorities by class, reset at the deadline.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use noq_proto::{Dir, Event, StreamEvent, StreamId, VarInt};
use remora_base::Time;

use super::super::ledger::{FinalStatus, Ledger};
use super::super::message::{Reader, heading};
use super::super::workload::{Class, Object};
use super::super::world::{End, Scheme};
use super::node::{self, Congestion, Node, SetUpError, Settings};
use crate::events::EventQueue;

/// Send buffer of a program that leaves all data to QUIC.
const SEND_BUFFER: u64 = 8 << 20;

pub struct Streams {
    sender: Node,
    receiver: Node,
    connection: usize,
    /// Objects submitted before the connection is established.
    early: Vec<(usize, Object)>,
    connected: bool,
    sending: BTreeMap<StreamId, Sending>,
    deadlines: EventQueue<StreamId>,
    /// The receiver's parsers, by stream.
    readers: BTreeMap<StreamId, Reader>,
    payload: Bytes,
    lost: Option<String>,
}

/// An object at the sender.
struct Sending {
    number: usize,
    due: Time,
    /// Data that QUIC has not accepted yet.
    rest: Vec<Bytes>,
}

impl Streams {
    /// Opens the connection. The epoch is any instant.
    pub fn new(epoch: Instant, seed: u64) -> Result<Streams, SetUpError> {
        let settings = Settings { send_buffer: SEND_BUFFER, congestion: Congestion::Cubic };
        let mut sender = Node::new(End::Sender, epoch, seed, settings)?;
        let receiver = Node::new(End::Receiver, epoch, seed, settings)?;
        let connection = sender.connect(Time::ZERO)?;
        Ok(Streams {
            sender,
            receiver,
            connection,
            early: Vec::new(),
            connected: false,
            sending: BTreeMap::new(),
            deadlines: EventQueue::new(),
            readers: BTreeMap::new(),
            payload: Bytes::from(vec![0; 1 << 20]),
            lost: None,
        })
    }

    fn begin(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger) {
        let Some(connection) = self.sender.connection(self.connection) else { return };
        let Some(id) = connection.streams().open(Dir::Uni) else {
            ledger.told(number, now, FinalStatus::Rejected);
            return;
        };
        let priority = match object.class {
            Class::Low => 0,
            Class::Medium => 1,
            Class::High => 2,
        };
        let _ = connection.send_stream(id).set_priority(priority);
        ledger.started(number, now);
        let size = (object.size as usize).min(self.payload.len());
        let rest = vec![heading(number, size as u32), self.payload.slice(..size)];
        self.sending.insert(id, Sending { number, due: object.due(), rest });
        self.deadlines.push(object.due(), id);
        self.write(id);
    }

    /// Writes as much of an object as QUIC accepts.
    fn write(&mut self, id: StreamId) {
        let Some(connection) = self.sender.connection(self.connection) else { return };
        let Some(sending) = self.sending.get_mut(&id).filter(|s| !s.rest.is_empty()) else { return };
        if node::write(connection, id, &mut sending.rest) {
            let _ = connection.send_stream(id).finish();
        }
    }

    /// Resets streams past their deadlines.
    fn expire(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some((_, id)) = self.deadlines.pop_due(now) {
            let Some(sending) = self.sending.get(&id).filter(|s| s.due <= now) else { continue };
            ledger.told(sending.number, now, FinalStatus::Late);
            self.sending.remove(&id);
            if let Some(connection) = self.sender.connection(self.connection) {
                let _ = connection.send_stream(id).reset(VarInt::from_u32(0));
            }
        }
    }

    fn receive(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some((number, event)) = self.receiver.poll() {
            let Some(connection) = self.receiver.connection(number) else { continue };
            let mut readable = Vec::new();
            match event {
                Event::Stream(StreamEvent::Readable { id }) => readable.push(id),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    readable.extend(std::iter::from_fn(|| connection.streams().accept(Dir::Uni)));
                }
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                _ => {}
            }
            for id in readable {
                let reader = self.readers.entry(id).or_default();
                let open = node::read(connection, id, |bytes| reader.take(bytes, |object| ledger.arrived(object, now)));
                if !open {
                    self.readers.remove(&id);
                }
            }
        }
    }

    fn acknowledged(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some((_, event)) = self.sender.poll() {
            match event {
                Event::Connected => {
                    self.connected = true;
                    for (number, object) in std::mem::take(&mut self.early) {
                        self.begin(now, number, &object, ledger);
                    }
                }
                Event::Stream(StreamEvent::Writable { id }) => self.write(id),
                Event::Stream(StreamEvent::Finished { id }) => {
                    if let Some(sending) = self.sending.remove(&id) {
                        let told = if now <= sending.due { FinalStatus::Delivered } else { FinalStatus::Late };
                        ledger.told(sending.number, now, told);
                    }
                }
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                _ => {}
            }
        }
    }
}

impl Scheme for Streams {
    fn submit(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger) {
        let entered = Object { arrival: now, ..*object };
        if self.connected {
            self.begin(now, number, &entered, ledger);
        } else {
            self.early.push((number, entered));
        }
    }

    fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes, ledger: &mut Ledger) {
        match end {
            End::Receiver => {
                self.receiver.handle_datagram(now, &payload);
                self.receive(now, ledger);
            }
            End::Sender => {
                self.sender.handle_datagram(now, &payload);
                self.acknowledged(now, ledger);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time, ledger: &mut Ledger) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.acknowledged(now, ledger);
        self.receive(now, ledger);
        self.expire(now, ledger);
    }

    fn poll_transmit(&mut self, now: Time, _: &mut Ledger) -> Option<(End, Bytes)> {
        let from_sender = self.sender.poll_transmit(now).map(|payload| (End::Sender, payload));
        from_sender.or_else(|| self.receiver.poll_transmit(now).map(|payload| (End::Receiver, payload)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.sender.poll_timeout(), self.receiver.poll_timeout(), self.deadlines.next_at()].into_iter().flatten().min()
    }

    fn trouble(&self) -> Option<String> {
        self.lost.clone()
    }
}
