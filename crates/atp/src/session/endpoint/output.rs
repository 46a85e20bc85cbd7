//! Output of an endpoint: datagrams, each built when it is polled, so that a new object waits for no packet that is
//! not on the wire.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use remora_base::{Core, Peer as To, Time, Transmit};

use super::state::{Endpoint, scheduler_number};
use crate::scheduler::{Pick, Scheduler};
use crate::session::event::{Event, PeerId};
use crate::session::peer::{ObjectBytes, PeerPhase, cost, segment};
use crate::{Outcome, RequestId, State};

/// Datagrams to send together to one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The common destination.
    pub to: SocketAddr,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
}

impl Core for Endpoint {
    type Event = Event;

    fn handle_input(&mut self, now: Time, from: To, bytes: bytes::Bytes) {
        self.handle_datagrams(now, from.addr, [bytes.into()]);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let mut buf = Vec::new();
        let batch = self.poll_batch(now, NonZeroUsize::MIN, &mut buf)?;
        Some(Transmit { to: To::datagram(batch.to), payload: buf.into() })
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Received { peer, object, .. } = &event {
            let bytes = object.len() as u64;
            self.buffers.release(cost(bytes));
            if let Some(p) = self.peers.get_mut(peer) {
                p.inbox.object_taken(bytes);
            }
        }
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let peers = self.timers.first().map(|(at, _)| *at);
        let schedulers = self.schedulers.values().filter_map(|scheduler| scheduler.poll_timeout());
        schedulers.chain(peers).min()
    }
}

impl Endpoint {
    /// Like [`poll_transmit`](Core::poll_transmit), for a caller that can send several datagrams in one call (GSO):
    /// at most `max`, concatenated in `buf`, which is cleared first. More than one only for an object's bytes on a
    /// fast link ([`Estimator::burst`]).
    ///
    /// [`Estimator::burst`]: crate::estimate::Estimator::burst
    pub fn poll_batch(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Batch> {
        self.clock.set(now);
        if let Some(reply) = self.replies.pop_front() {
            buf.clear();
            buf.extend_from_slice(&reply.payload);
            return Some(Batch { to: reply.to.addr, segment: buf.len() });
        }
        self.poll_quic(now, buf).or_else(|| self.poll_objects(now, max, buf))
    }

    /// The next packet of QUIC: handshake, acknowledgements, retransmissions, reports.
    fn poll_quic(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Batch> {
        while let Some(&id) = self.send_queue.front() {
            if let Some(transmit) = self.poll_urgent(now, id, buf) {
                return Some(transmit);
            }
            if let Some(p) = self.peers.get_mut(&id) {
                if let Some(transmit) = p.flush(now, self.epoch, buf) {
                    self.send_queue.rotate_left(1); // the others, too, get their turn
                    return Some(batch(&transmit, buf));
                }
                p.queued = false;
            }
            self.send_queue.pop_front();
            self.settle_sent(now, id);
        }
        None
    }

    /// Sends the outstanding answers for received objects before the connection closes, which drops all that waits.
    /// One packet has room for hundreds.
    pub(crate) fn flush_answers(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id).filter(|p| p.phase == PeerPhase::Up && p.inbox.due().is_some()) else {
            return;
        };
        p.inbox.expedite(now);
        let mut buf = Vec::new();
        if let Some(transmit) = p.flush(now, self.epoch, &mut buf) {
            buf.truncate(transmit.size);
            self.replies.push_back(Transmit { to: To::datagram(transmit.destination), payload: buf.into() });
        }
    }

    /// The next packet of objects, of the peer that the scheduler selects.
    fn poll_objects(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Batch> {
        let numbers: Vec<u32> = self.schedulers.keys().copied().collect();
        for number in numbers {
            while let Some((id, pick)) = self.pick(now, number, None) {
                if let Some(transmit) = self.write_object(now, id, number, pick, max, buf) {
                    return Some(transmit);
                }
            }
        }
        None
    }

    /// A packet of an object that is more urgent than the peer's retransmissions, which may be many after an
    /// outage.
    fn poll_urgent(&mut self, now: Time, id: PeerId, buf: &mut Vec<u8>) -> Option<Batch> {
        if !self.peers.get(&id)?.has_pending(now) {
            return None;
        }
        let number = scheduler_number(&self.config, id);
        let (_, pick) = self.pick(now, number, Some(id))?;
        if !self.peers.get(&id)?.is_overtaken_by(pick.priority) {
            return None;
        }
        self.write_object(now, id, number, pick, NonZeroUsize::MIN, buf)
    }

    /// The scheduler's next object, for `only` or for any peer.
    fn pick(&mut self, now: Time, number: u32, only: Option<PeerId>) -> Option<(PeerId, Pick)> {
        let Endpoint { schedulers, peers, .. } = self;
        let pick = schedulers.get_mut(&number)?.pick(now, &mut |dest| {
            let id = PeerId::from(dest);
            only.is_none_or(|only| only == id) && peers.get(&id).is_some_and(|p| p.is_ready(now))
        })?;
        Some((pick.dest.into(), pick))
    }

    /// Writes the selected object, as much as one call may send; `None` if QUIC sends no packet now. The selection
    /// then does not repeat: the written bytes are accounted for, or the peer is not ready.
    fn write_object(
        &mut self,
        now: Time,
        id: PeerId,
        number: u32,
        pick: Pick,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<Batch> {
        let scheduler = self.schedulers.get_mut(&number)?;
        let p = self.peers.get_mut(&id)?;
        let mut request: RequestId = pick.request;
        let packets = p.packets(now, max);
        let room = p.room(request, packets);
        if !p.outbox.contains(request) {
            debug_assert!(false, "{request:?} is picked but not kept");
            scheduler.failed(now, request, Outcome::Lost);
            self.settle(now, id);
            return None;
        }
        let mut written = p.outbox.write(&mut p.conn, request, room);
        if written.is_err() {
            // Flow control blocks this object, or the stream limit is reached.
            let sending = |r: &RequestId| is_sending(scheduler, *r);
            while written.is_err()
                && let Some(other) = p.outbox.most_urgent_except(request, sending)
            {
                let room = p.room(other, packets);
                (request, written) = (other, p.outbox.write(&mut p.conn, other, room));
            }
        }
        let Ok(bytes) = written else {
            p.blocked = true;
            return None;
        };
        // An empty object is complete only when its head is written.
        if bytes > 0 || p.outbox.is_written_of(request) {
            scheduler.written(now, request, bytes);
        }
        let stamp = p.stamp(now, ObjectBytes { request, bytes }, packets);
        let transmit = p.poll_written(now, self.epoch, stamp, buf);
        if stamp.needs_ping() {
            self.enqueue(id);
        }
        self.settle_sent(now, id);
        transmit.map(|t| batch(&t, buf))
    }

    /// Like `settle`, but does not queue the peer: it has nothing more to send by itself.
    fn settle_sent(&mut self, now: Time, id: PeerId) {
        self.drain_scheduler(now, scheduler_number(&self.config, id));
        self.rearm(now, id);
    }
}

/// Whether the request has more bytes to send and is not suspended.
fn is_sending(scheduler: &Scheduler, request: RequestId) -> bool {
    scheduler.progress(request).is_some_and(|p| matches!(p.state, State::Waiting | State::Sending))
}

fn batch(transmit: &noq_proto::Transmit, buf: &mut Vec<u8>) -> Batch {
    buf.truncate(transmit.size);
    Batch { to: transmit.destination, segment: segment(transmit) }
}
