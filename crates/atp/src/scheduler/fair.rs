//! Start-time fair queueing between object queues (Goyal, Vin and Cheng, 1996): fair in bytes on the wire at any
//! link rate.
//!
//! A packet's start tag is the greater of the virtual time and its queue's finish tag; the queue with the least
//! start tag is served; the virtual time is the start tag of the packet in service. For two queues that both have
//! something to send, with weights `v` and `w`, the bytes each got, divided by its weight, differ by at most one
//! packet divided by `v` plus one divided by `w`.
//!
//! **Weights.** ATP 02 shares the bandwidth "according to the priorities of messages at the head of each queue" and
//! leaves the rest open. Here a packet's weight is its priority plus one: a queue with a high object (12) at its
//! head gets 13 bytes for every 5 of a queue with a low one (4). No queue starves, and none gets more than sixteen
//! times the share of another.

use std::collections::BTreeMap;

use crate::object::QueueId;

/// Tag units of a byte; a multiple of every weight from 1 to 16.
const UNIT: u128 = 720_720;

/// The tags of all queues.
#[derive(Debug, Default)]
pub(super) struct Fair {
    time: u128,
    finish: BTreeMap<QueueId, u128>,
}

/// Weight of a queue whose first object has this level.
pub(super) fn weight(level: usize) -> u64 {
    level as u64 + 1
}

impl Fair {
    /// Start tag of the queue's next packet. The queue with the least tag is served.
    pub(super) fn start(&self, queue: QueueId) -> u128 {
        self.finish.get(&queue).copied().unwrap_or(0).max(self.time)
    }

    /// Records that `queue` sent a packet of `bytes`, of an object of level `level`.
    pub(super) fn served(&mut self, queue: QueueId, bytes: u64, level: usize) {
        let start = self.start(queue);
        self.time = start;
        self.finish.insert(queue, start + u128::from(bytes) * (UNIT / u128::from(weight(level))));
    }

    /// Removes a queue.
    pub(super) fn forget(&mut self, queue: QueueId) {
        self.finish.remove(&queue);
    }

    /// Whether the queue's start tag would be the same without its history.
    pub(super) fn settled(&self, queue: QueueId) -> bool {
        self.finish.get(&queue).is_none_or(|f| *f <= self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(levels: &[usize], bytes: u64) -> Vec<u64> {
        let mut fair = Fair::default();
        let mut sent = vec![0; levels.len()];
        while sent.iter().sum::<u64>() < bytes {
            let next = (0..levels.len()).min_by_key(|q| (fair.start(QueueId(*q as u32)), *q)).unwrap();
            let packet = 100 + 37 * (sent[next] % 29);
            fair.served(QueueId(next as u32), packet, levels[next]);
            sent[next] += packet;
        }
        sent
    }

    #[test]
    fn shares_follow_the_weights_to_a_packet() {
        for levels in [&[12, 4][..], &[8, 8, 8], &[15, 0], &[3, 7, 11, 15]] {
            let sent = share(levels, 1_000_000);
            for (i, a) in sent.iter().enumerate() {
                for (j, b) in sent.iter().enumerate() {
                    let (v, w) = (weight(levels[i]) as f64, weight(levels[j]) as f64);
                    let apart = (*a as f64 / v - *b as f64 / w).abs();
                    assert!(apart <= 1200.0 / v + 1200.0 / w, "{levels:?}: {sent:?}");
                }
            }
        }
    }

    #[test]
    fn a_queue_that_was_away_gets_no_credit() {
        let mut fair = Fair::default();
        for _ in 0..1000 {
            fair.served(QueueId(0), 1000, 8);
        }
        assert!(fair.start(QueueId(1)) + 1000 * UNIT >= fair.start(QueueId(0)), "one packet of the past at most");
        assert!(fair.start(QueueId(1)) > 0);
    }
}
