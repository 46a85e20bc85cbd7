//! Notices for the application, and their queue. It keeps the latest notice and the latest warning of each request
//! that has not ended, because the application learns of it from no other source, and the newest of all others.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use remora_atp::session::{PeerId, PublicKey};
use remora_atp::{RequestId, Side, Upcall};
use remora_base::Rate;

/// An event that an application may ignore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AtpNotice {
    /// The bandwidth does not suffice for a request, which was suspended; or suffices again. Or the forecast is
    /// unknown, and its deadline at risk.
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
    /// Positions of the notices about requests, one of each subject.
    of_requests: BTreeMap<(RequestId, Subject), u64>,
    /// Positions of all others.
    others: VecDeque<u64>,
}

impl NoticeQueue {
    /// Adds a notice. One about a request replaces the previous one of its subject.
    pub(super) fn push_back(&mut self, notice: AtpNotice) {
        let place = match subject_of(&notice) {
            Some(subject) => *self.of_requests.entry(subject).or_insert(self.next),
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
        match subject_of(&notice) {
            Some(subject) => drop(self.of_requests.remove(&subject)),
            None => drop(self.others.pop_front()),
        }
        Some(notice)
    }

    /// Removes the notices of a request that has ended.
    pub(super) fn ended(&mut self, request: RequestId) {
        for subject in [Subject::Suspension, Subject::Warning] {
            if let Some(place) = self.of_requests.remove(&(request, subject)) {
                self.waiting.remove(&place);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// What a notice about a request says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Suspension,
    Warning,
}

fn subject_of(notice: &AtpNotice) -> Option<(RequestId, Subject)> {
    match notice {
        AtpNotice::Request(Upcall::InsufficientBandwidth { request, .. } | Upcall::Resumed { request }) => {
            Some((*request, Subject::Suspension))
        }
        AtpNotice::Request(Upcall::Uncertain { request, .. }) => Some((*request, Subject::Warning)),
        _ => None,
    }
}
