//! Budget of the fragments that lost blocks leave in the receiver's reassembly queue.
//!
//! Linux keeps the fragments of an incomplete datagram for 30 s (`ipfrag_time`), at most 4 MiB for all senders
//! (`ipfrag_high_thresh`). When that memory is full, Linux drops every fragment. On a fast path that loses one frame
//! in a hundred, the incomplete blocks of one client fill it in a few seconds. So a client lets its lost blocks occupy
//! at most a quarter of it, 1 MiB; then it uses blocks of a single packet.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

/// How long fragments are kept.
const KEPT: Duration = Duration::from_secs(30);
/// Budget in bytes of the receiver's memory.
const MOST: u64 = 1 << 20;
/// Memory of a frame in bytes, with Linux's overhead.
const FRAME: u64 = 2304;

/// Bytes left behind, by second.
#[derive(Debug, Default)]
pub(crate) struct ReassemblyBudget {
    seconds: VecDeque<(u64, u64)>,
}

/// A lost transmission of file data: its sequence number and its frames.
pub(crate) type Lost = (u64, u32);

impl ReassemblyBudget {
    /// These transmissions were lost at `now`, in the order of transmission.
    pub(crate) fn on_losses(&mut self, now: Time, lost: &[Lost]) {
        let runs = lost.chunk_by(|(before, _), (after, _)| *after == before + 1);
        let frames: u64 = runs.map(left_of).sum();
        self.add(now, frames * FRAME);
    }

    /// The receiver's reassembly budget is used up, by this client or another.
    pub(crate) fn fill(&mut self, now: Time) {
        self.add(now, MOST);
    }

    /// Whether the budget is used up.
    pub(crate) fn is_full(&self, now: Time) -> bool {
        let kept = self.seconds.iter().filter(|(second, _)| !is_old(*second, now));
        kept.map(|(_, bytes)| *bytes).sum::<u64>() >= MOST
    }

    fn add(&mut self, now: Time, bytes: u64) {
        if bytes == 0 {
            return;
        }
        while self.seconds.front().is_some_and(|(second, _)| is_old(*second, now)) {
            self.seconds.pop_front();
        }
        let second = second_of(now);
        match self.seconds.back_mut() {
            Some((last, sum)) if *last >= second => *sum = sum.saturating_add(bytes),
            _ => self.seconds.push_back((second, bytes)),
        }
    }
}

fn second_of(now: Time) -> u64 {
    now.since(Time::ZERO).as_secs()
}

fn is_old(second: u64, now: Time) -> bool {
    second_of(now) > second + KEPT.as_secs()
}

/// Frames that consecutive lost transmissions leave behind. A single one lacks one frame; of more, a burst took all but
/// the beginning of the first and the end of the last.
fn left_of(run: &[Lost]) -> u64 {
    let frames = |lost: &Lost| u64::from(lost.1);
    match run {
        [] => 0,
        [one] => frames(one).saturating_sub(1),
        [first, .., last] => frames(first) / 2 + frames(last) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_loss_leaves_most_fragments_and_a_burst_its_edges() {
        let cases: [(&[Lost], u64); 6] = [
            (&[], 0),
            (&[(7, 1)], 0),
            (&[(7, 4)], 3),
            (&[(7, 4), (8, 4), (9, 4), (10, 4)], 4),
            (&[(7, 4), (9, 4)], 6),
            (&[(7, 1), (8, 1)], 0),
        ];
        for (lost, frames) in cases {
            let mut reassembly = ReassemblyBudget::default();
            reassembly.on_losses(Time::ZERO, lost);
            assert_eq!(reassembly.seconds.iter().map(|s| s.1).sum::<u64>(), frames * FRAME, "{lost:?}");
        }
    }

    #[test]
    fn budget_is_used_up_while_fragments_are_kept() {
        let mut reassembly = ReassemblyBudget::default();
        let at = |s| Time::ZERO + Duration::from_secs(s);
        for n in 0..200 {
            assert!(!reassembly.is_full(at(n / 10)), "after {n}");
            reassembly.on_losses(at(n / 10), &[(2 * n, 3)]);
        }
        (200..230).for_each(|n| reassembly.on_losses(at(20), &[(2 * n, 3)]));
        assert!(reassembly.is_full(at(30)) && !reassembly.is_full(at(31)));
        reassembly.fill(at(40));
        assert!(reassembly.is_full(at(70)) && !reassembly.is_full(at(71)));
        for s in 0..1000 {
            reassembly.on_losses(at(100 + s), &[(2 * s, 12)]);
        }
        assert!(reassembly.seconds.len() <= 32, "{}", reassembly.seconds.len());
    }
}
