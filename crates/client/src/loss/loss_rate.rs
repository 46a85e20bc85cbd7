//! The rate of independent losses, told from bursts.
//!
//! In the two-state channel of NFS/W 95 (section 3.2) a transmission that follows a lost one is likely lost, too.
//! Independent losses make it no likelier than any other. So the fates of requests and probes are taken in the order of
//! transmission, and those after a loss are counted apart from those after a success. Without probes a small request
//! would show nothing: it is retransmitted after the burst that took it.

use std::collections::VecDeque;

/// Frames of a probe and its reply.
const PROBE_FRAMES: u32 = 2;
/// Losses in a row after which lost probes no longer count: an outage is one burst, however often it is probed.
const RUN_MAX: u32 = 8;
/// Transmissions that wait for the fates of earlier ones.
const LOG_MAX: usize = 256;
/// Transmissions after which counts are halved.
const MEMORY: f64 = 256.0;
/// Losses before which their kind is unknown.
const LOSSES_MIN: f64 = 3.0;
/// Losses before which a few in a row are no burst.
const LOSSES_FEW: f64 = 8.0;
/// Share of transmissions below which losses do not matter,
const SHARE_MIN: f64 = 1.0 / 16.0;
/// once this many were counted.
const ENOUGH: f64 = 80.0;
/// How much likelier a loss is after a loss in bursts: for few losses, for many.
const BURST: (f64, f64) = (0.25, 0.2);

#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    /// Frames of the request and its reply.
    frames: u32,
    /// Whether it was lost, once known.
    lost: Option<bool>,
    is_probe: bool,
}

/// Transmissions and losses of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossMeter {
    log: VecDeque<Entry>,
    after_loss: Share,
    after_success: Share,
    /// Fate of the transmission before the log's first.
    previous: Option<bool>,
    /// Losses in a row up to there.
    run: u32,
    frames: f64,
}

/// Losses among transmissions.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    lost: f64,
    of: f64,
}

impl Share {
    fn count(&mut self, lost: bool) {
        self.lost += f64::from(u8::from(lost));
        self.of += 1.0;
    }

    fn halve(&mut self) {
        *self = Share { lost: self.lost / 2.0, of: self.of / 2.0 };
    }

    fn value(self) -> f64 {
        if self.of > 0.0 { self.lost / self.of } else { 0.0 }
    }
}

impl LossMeter {
    /// A request was sent; `seq` is above all earlier ones.
    pub(crate) fn on_sent(&mut self, seq: u64, frames: u32) {
        self.push(Entry { seq, frames, lost: None, is_probe: false });
    }

    pub(crate) fn on_probe_sent(&mut self, seq: u64) {
        self.push(Entry { seq, frames: PROBE_FRAMES, lost: None, is_probe: true });
    }

    fn push(&mut self, entry: Entry) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
            self.previous = None;
        }
        self.log.push_back(entry);
    }

    /// A transmission was answered, or found lost.
    pub(crate) fn on_fate(&mut self, seq: u64, lost: bool) {
        let Ok(at) = self.log.binary_search_by_key(&seq, |e| e.seq) else { return };
        if let Some(entry) = self.log.get_mut(at) {
            entry.lost = entry.lost.or(Some(lost));
        }
        self.count_known();
    }

    /// Transmission `seq` was answered: earlier unanswered probes were lost, for servers answer them at once.
    pub(crate) fn on_passed(&mut self, seq: u64) {
        let passed = self.log.iter_mut().take_while(|e| e.seq < seq);
        passed.filter(|e| e.is_probe).for_each(|e| e.lost = e.lost.or(Some(true)));
        self.count_known();
    }

    /// A loss was none.
    pub(crate) fn take_back(&mut self) {
        let after = if self.after_loss.lost >= 1.0 { &mut self.after_loss } else { &mut self.after_success };
        after.lost = (after.lost - 1.0).max(0.0);
    }

    fn count_known(&mut self) {
        while let Some(Entry { frames, lost: Some(lost), is_probe, .. }) = self.log.front().copied() {
            self.log.pop_front();
            self.run = if lost { self.run.saturating_add(1) } else { 0 };
            if !(is_probe && self.run > RUN_MAX) {
                self.count(frames, lost);
            }
        }
    }

    pub(crate) fn forget_in_flight(&mut self) {
        self.log.clear();
        (self.previous, self.run) = (None, 0);
    }

    fn count(&mut self, frames: u32, lost: bool) {
        let weight = 1.0 / (self.after_loss.of + self.after_success.of + 1.0).min(16.0);
        self.frames += (f64::from(frames) - self.frames) * weight;
        match self.previous.replace(lost) {
            Some(true) => self.after_loss.count(lost),
            Some(false) => self.after_success.count(lost),
            None => {}
        }
        if self.after_loss.of + self.after_success.of > MEMORY {
            self.after_loss.halve();
            self.after_success.halve();
        }
    }

    /// Share of frames lost independently of one another; see [`Client::loss`](crate::Client::loss).
    pub(crate) fn independent(&self) -> Option<f64> {
        let counted = self.after_loss.of + self.after_success.of;
        if self.after_loss.of < LOSSES_MIN.max(counted * SHARE_MIN) {
            return Some(0.0).filter(|_| counted >= ENOUGH);
        }
        let burst = if self.after_loss.of < LOSSES_FEW { BURST.0 } else { BURST.1 };
        if self.after_loss.value() - self.after_success.value() > burst {
            return Some(0.0);
        }
        let lost = (self.after_loss.lost + self.after_success.lost) / counted;
        Some(1.0 - (1.0 - lost.min(0.999)).powf(1.0 / self.frames.max(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_base::Rng;

    /// Estimate after `n` transmissions of `frames` frames each, whose fates `lost` draws.
    fn estimate(n: u64, frames: u32, mut lost: impl FnMut(u64) -> bool) -> Option<f64> {
        let mut meter = LossMeter::default();
        for seq in 0..n {
            meter.on_sent(seq, frames);
            meter.on_fate(seq, lost(seq));
        }
        meter.independent()
    }

    #[test]
    fn independent_loss_is_measured() {
        for (p, frames) in [(0.1, 2), (0.2, 2), (0.05, 5), (0.1, 5)] {
            let mut rng = Rng::stream(7, "loss");
            let found = estimate(2000, frames, |_| (0..frames).any(|_| rng.chance(p))).unwrap();
            assert!((found / p - 1.0).abs() < 0.35, "{found} of {p} with {frames} frames");
        }
    }

    #[test]
    fn two_adjacent_losses_of_four_are_no_burst() {
        for (lost, is_burst) in [(&[0, 1, 10, 20][..], false), (&[0, 1, 10, 11], true), (&[0, 1, 2, 3], true)] {
            let found = estimate(30, 1, |n| lost.contains(&n)).unwrap();
            assert_eq!(found == 0.0, is_burst, "{lost:?}: {found}");
        }
    }

    #[test]
    fn bursts_are_no_independent_loss() {
        for (length, period) in [(2, 20), (3, 25), (8, 60)] {
            assert_eq!(estimate(2000, 5, |seq| seq % period < length), Some(0.0), "{length} of {period}");
        }
        assert_eq!(estimate(2000, 5, |_| false), Some(0.0));
    }

    #[test]
    fn few_losses_give_no_verdict() {
        assert_eq!(estimate(11, 2, |seq| seq % 5 == 0), None);
        assert_eq!(estimate(20, 5, |seq| seq < 10), Some(0.0));
    }

    /// Transmissions of two frames until the verdict is independent losses, if it ever is.
    fn verdict(lost: impl Iterator<Item = bool>) -> Option<usize> {
        let mut meter = LossMeter::default();
        let is_one_by_one = |(seq, lost): (usize, bool)| {
            meter.on_sent(seq as u64, 2);
            meter.on_fate(seq as u64, lost);
            meter.independent().is_some_and(|p| p > 0.03)
        };
        lost.enumerate().position(is_one_by_one)
    }

    #[test]
    fn independent_loss_is_soon_told_from_bursts() {
        let mut soon = 0;
        let mut wrong = 0;
        for seed in 0..200 {
            let mut rng = Rng::stream(seed, "fates");
            soon += u32::from(verdict((0..100).map(|_| rng.chance(0.19))).is_some_and(|n| n < 40));
            for mean in [4, 8, 16] {
                let mut fates = Vec::new();
                while fates.len() < 800 {
                    fates.extend((0..rng.below(160)).map(|_| false));
                    fates.extend((0..rng.below(2 * mean)).map(|_| true));
                }
                wrong += u32::from(verdict(fates.into_iter()).is_some());
            }
        }
        assert!(soon > 150, "{soon} of 200 verdicts of independent loss within 40 transmissions");
        assert!(wrong < 12, "{wrong} of 600 runs in bursts were taken for it");
    }

    /// Verdict on small requests: each is lost, as are `probes` probes after it, and is retransmitted when one is
    /// answered.
    fn after_small_requests(n: u64, probes: u64) -> Option<f64> {
        let mut meter = LossMeter::default();
        let mut seqs = 0..;
        for _ in 0..n {
            let request = seqs.next().unwrap();
            meter.on_sent(request, 2);
            let last = seqs.by_ref().take(probes as usize + 1).inspect(|probe| meter.on_probe_sent(*probe)).last();
            meter.on_fate(last.unwrap(), false);
            meter.on_fate(request, true);
            meter.on_passed(last.unwrap());
            for seq in seqs.by_ref().take(3) {
                meter.on_sent(seq, 2);
                meter.on_fate(seq, false);
            }
        }
        meter.independent()
    }

    #[test]
    fn probes_show_whether_a_burst_took_a_small_request() {
        assert_eq!(after_small_requests(6, 3), Some(0.0));
        assert_eq!(after_small_requests(6, 1), Some(0.0));
        let found = after_small_requests(6, 0).unwrap();
        assert!((0.08..0.12).contains(&found), "{found} of one in five, two frames each");
    }

    #[test]
    fn outage_does_not_hide_independent_loss_for_long() {
        let mut meter = LossMeter::default();
        (0..2000).for_each(|seq| meter.on_probe_sent(seq));
        meter.on_fate(2000, false);
        meter.on_passed(2000);
        let mut rng = Rng::stream(3, "after an outage");
        for seq in 2001..2301 {
            meter.on_sent(seq, 2);
            meter.on_fate(seq, rng.chance(0.19));
        }
        let found = meter.independent().unwrap();
        assert!((0.05..0.15).contains(&found), "{found}");
    }

    #[test]
    fn fates_count_in_the_order_of_sending_and_the_log_is_bounded() {
        let mut meter = LossMeter::default();
        (0..10 * LOG_MAX as u64).for_each(|seq| meter.on_sent(seq, 2));
        assert_eq!(meter.log.len(), LOG_MAX);
        let first = meter.log[0].seq;
        meter.on_fate(first + 1, true);
        assert_eq!(meter.after_success.of + meter.after_loss.of, 0.0);
        meter.on_fate(first, true);
        assert_eq!((meter.after_loss.lost, meter.log.len()), (1.0, LOG_MAX - 2));
    }
}
