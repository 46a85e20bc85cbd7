//! Notices that wait to be taken: of all but requests the newest few; of each request that has not
//! ended the newest, for its application hears of it from nowhere else.

use std::collections::{BTreeMap, VecDeque};

use remora_atp::{RequestId, Upcall};

use super::shared::Notice;

/// Notices that are not of requests; the oldest are dropped.
const OTHERS_MAX: usize = 1024;

/// Notices in the order in which they are told.
#[derive(Default)]
pub(super) struct Notices {
    next: u64,
    waiting: BTreeMap<u64, Notice>,
    /// The places of those of requests, one each.
    of_requests: BTreeMap<RequestId, u64>,
    /// The places of all others.
    others: VecDeque<u64>,
}

impl Notices {
    /// Adds one; one of a request takes the place of what was to be told of it before.
    pub(super) fn push_back(&mut self, notice: Notice) {
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

    /// Takes the first.
    pub(super) fn pop_front(&mut self) -> Option<Notice> {
        let (_, notice) = self.waiting.pop_first()?;
        match request_of(&notice) {
            Some(request) => drop(self.of_requests.remove(&request)),
            None => drop(self.others.pop_front()),
        }
        Some(notice)
    }

    /// A request has ended: nothing else is of interest any more.
    pub(super) fn ended(&mut self, request: RequestId) {
        if let Some(place) = self.of_requests.remove(&request) {
            self.waiting.remove(&place);
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The request that a notice is of.
fn request_of(notice: &Notice) -> Option<RequestId> {
    match notice {
        Notice::Request(Upcall::InsufficientBandwidth { request, .. } | Upcall::Resumed { request }) => Some(*request),
        _ => None,
    }
}
