//! When a peer needs attention, and what is done then.

use std::time::Duration;

use remora_base::Time;

use super::super::config::Config;
use super::super::epoch::Epoch;
use super::{Peer, Phase};
use crate::estimate::{ACK_DELAY_MAX, Gate};

/// A deadline of QUIC's so soon after something came may be that of its acknowledgement: the delay
/// allowed, and some more for its timers.
const ACK_DELAY: Duration = ACK_DELAY_MAX.saturating_add(Duration::from_millis(5));

impl Peer {
    /// When it next needs attention.
    pub(in crate::session) fn next_deadline(&self, now: Time, epoch: Epoch, config: &Config) -> Option<Time> {
        let quic = self.quic_due(now, epoch);
        if self.phase == Phase::Over {
            return quic;
        }
        let wants = self.traffic.owes() || (self.may_write() && !self.outbox.is_empty());
        let gate = match self.estimator.gate(now) {
            Gate::At(t) if wants => Some(t),
            _ => None,
        };
        let lost = Some(self.heard_at + config.hold);
        let own = [self.next_sign(config), self.farewell_at(config), self.handshake.next_knock(), lost];
        [quic, self.estimator.poll_timeout(), self.collector.due(), self.inbox.due(), gate]
            .into_iter()
            .chain(own)
            .flatten()
            .min()
    }

    /// When QUIC needs attention.
    fn quic_due(&self, now: Time, epoch: Epoch) -> Option<Time> {
        let due = self.quic_timer(epoch)?;
        let is_held =
            self.phase != Phase::Over && self.detour.is_unproven() && self.detour.holds(due.max(now), self.path());
        (!is_held).then_some(due)
    }

    /// When one of QUIC's timers is to be seen to. Its probe timeout follows from the round trips it has
    /// seen, and on a slow link the next packet may take several times as long as the one before: what it
    /// then sends stands in the way of the answer that it misses. The estimator knows what a packet takes,
    /// and asks in time. QUIC has no way to say which of its timers is due; but an acknowledgement is never
    /// later than that after a packet came.
    fn quic_timer(&self, epoch: Epoch) -> Option<Time> {
        let due = epoch.time(self.conn.poll_timeout()?);
        let acknowledges = due <= self.heard_at + ACK_DELAY;
        if self.phase != Phase::Up || !self.handshake.is_confirmed() || acknowledges {
            return Some(due);
        }
        Some(self.estimator.patient_until().map_or(due, |until| due.max(until)))
    }

    /// When it is to show where it is. Not QUIC's own keep-alive: its timer would stand before
    /// the one that a [knock](Handshake::knock) brings forward.
    fn next_sign(&self, config: &Config) -> Option<Time> {
        let shows = self.phase == Phase::Up && self.conn.side().is_client();
        config.keep_alive.filter(|_| shows).map(|interval| self.sent + interval)
    }

    /// When it is to be asked whether it is there, for it has had no objects for long.
    fn farewell_at(&self, config: &Config) -> Option<Time> {
        self.idle.ask_at(config.idle).filter(|_| self.is_idle())
    }

    /// When it was last heard.
    pub(in crate::session) fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Whether it has been silent for longer than it is held.
    pub(in crate::session) fn is_lost(&self, now: Time, hold: Duration) -> bool {
        self.heard_at + hold <= now
    }

    /// Acts on the timers that are due.
    pub(in crate::session) fn handle_timeout(&mut self, now: Time, epoch: Epoch, config: &Config) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.quic_due(now, epoch)) {
            self.conn.handle_timeout(epoch.instant(now));
        } else if due(self.handshake.next_knock()) {
            // QUIC's timer, the probe timeout, is brought forward.
            if let Some(early) = self.conn.poll_timeout() {
                self.conn.handle_timeout(early);
            }
            self.handshake.knock(now);
        }
        if due(self.estimator.poll_timeout()) {
            self.estimator.handle_timeout(now);
        }
        if self.phase == Phase::Over {
            return;
        }
        if due(self.farewell_at(config)) {
            self.idle.ask(now);
            self.ping();
        }
        if due(self.next_sign(config)) {
            self.ping();
            self.sent = now; // or will have been, when QUIC has its turn
        }
    }
}
