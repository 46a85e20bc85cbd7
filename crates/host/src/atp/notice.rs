//! Notices for the application, and their queue. It keeps the latest notice of each request that has not ended,
//! because the application learns of it from no other source, and the newest of all others.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use remora_atp::session::{PeerId, PublicKey};
use remora_atp::{RequestId, Side, Upcall};
use remora_base::Rate;

/// An event that an application may ignore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AtpNotice {
    /// The bandwidth does not suffice for a request, which was suspended; or suffices again.
    Request(Upcall),
    /// A connection is established, outgoing or incoming.
    Up { peer: PeerId, key: PublicKey, addr: SocketAddr },
    /// The peer is silent; its objects are held.
    Silent { peer: PeerId },
    /// The peer answers again.
    Heard { peer: PeerId },
    /// The peer's address has changed.
    Moved { peer: PeerId, addr: SocketAddr },
    /// The connection ended, or was not established.
    Down { peer: PeerId, why: String },
}

/// The bandwidth crossed a registered bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// The bandwidth; `None` during a blackout.
    pub rate: Option<Rate>,
    /// The bound that it crossed.
    pub side: Side,
}

/// Maximum number of notices not about requests; the oldest are dropped.
const OTHERS_MAX: usize = 1024;

/// Notices in order.
#[derive(Default)]
pub(super) struct NoticeQueue {
    next: u64,
    waiting: BTreeMap<u64, AtpNotice>,
    /// Positions of the notices about requests, one each.
    of_requests: BTreeMap<RequestId, u64>,
    /// Positions of all others.
    others: VecDeque<u64>,
}

impl NoticeQueue {
    /// Adds a notice. One about a request replaces the previous one about it.
    pub(super) fn push_back(&mut self, notice: AtpNotice) {
        let place = match request_of(&notice) {
            Some(request) => *self.of_requests.entry(request).or_insert(self.next),
            None => {
                if self.others.len() == OTHERS_MAX
                    && let Some(oldest) = self.others.pop_front()
                {
                    self.waiting.remove(&oldest);
                }
                self.others.push_back(self.next);
                self.next
            }
        };
        self.waiting.insert(place, notice);
        self.next += 1;
    }

    /// Removes and returns the first notice.
    pub(super) fn pop_front(&mut self) -> Option<AtpNotice> {
        let (_, notice) = self.waiting.pop_first()?;
        match request_of(&notice) {
            Some(request) => drop(self.of_requests.remove(&request)),
            None => drop(self.others.pop_front()),
        }
        Some(notice)
    }

    /// Removes the notice of a request that has ended.
    pub(super) fn ended(&mut self, request: RequestId) {
        if let Some(place) = self.of_requests.remove(&request) {
            self.waiting.remove(&place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn request_of(notice: &AtpNotice) -> Option<RequestId> {
    match notice {
        AtpNotice::Request(Upcall::InsufficientBandwidth { request, .. } | Upcall::Resumed { request }) => {
            Some(*request)
        }
        _ => None,
    }
}
