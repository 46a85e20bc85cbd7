//! A plain network with every fault of datagrams: delay, loss, duplication, reordering, corruption,
//! and messages from addresses that are no client's (strangers); and scripted treatment of chosen
//! calls.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rng, Time};
use remora_wire::nfs3::Proc;

use super::addr;
use crate::events::EventQueue;
use crate::events::NodeId;
use crate::events::message_text;

/// A message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub to: NodeId,
    /// The client at either end.
    pub client: usize,
    /// Source, as the receiver sees it.
    pub from: Peer,
    pub bytes: Bytes,
}

/// Counters of messages. They never decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetStats {
    pub sent: u64,
    /// Messages delivered, including duplicates and noise.
    pub delivered: u64,
    /// Datagrams lost, including those with a bad checksum.
    pub lost: u64,
    pub doubled: u64,
    /// Invented or corrupted messages delivered.
    pub noise: u64,
    /// Stream records lost with their connection.
    pub cut: u64,
}

/// A client's path to the server and back. Probabilities apply to each datagram.
#[derive(Clone, PartialEq, Debug)]
pub struct Hop {
    /// Minimum one-way delay.
    pub delay: Duration,
    /// Mean of an additional exponential delay, which reorders datagrams.
    pub jitter: Duration,
    /// Maximum lifetime of a datagram.
    pub lifetime: Duration,
    /// Probability of loss.
    pub loss: f64,
    /// Probability of duplication; the copies travel independently.
    pub double: f64,
    /// Probability of an additional delay of up to `lifetime`.
    pub straggle: f64,
    /// Probability of corruption. The UDP checksum detects it, so the datagram is lost; some
    /// corrupted ones are delivered as noise with another xid and from a stranger, which a core
    /// must survive.
    pub corrupt: f64,
}

/// Share of corrupted datagrams delivered as noise.
const NOISE_SHARE: f64 = 0.5;
/// Maximum delay of a stream by a lost segment: TCP retransmits within about this.
const STREAM_HOLD: Duration = Duration::from_millis(1200);

impl Hop {
    /// No faults: each datagram takes `delay`.
    pub fn clean(delay: Duration) -> Hop {
        let lifetime = delay.max(Duration::from_secs(2));
        Hop { delay, jitter: Duration::ZERO, lifetime, loss: 0.0, double: 0.0, straggle: 0.0, corrupt: 0.0 }
    }

    /// Ends the faults; delays remain.
    pub fn heal(&mut self) {
        *self = Hop { jitter: self.jitter, lifetime: self.lifetime, ..Hop::clean(self.delay) };
    }

    pub(super) fn send(
        &mut self,
        now: Time,
        arrival: Arrival,
        rng: &mut Rng,
        flying: &mut EventQueue<Arrival>,
        stats: &mut NetStats,
    ) {
        if rng.chance(self.loss) {
            stats.lost += 1;
            return;
        }
        if rng.chance(self.corrupt) {
            stats.lost += 1;
            if rng.chance(NOISE_SHARE) {
                stats.noise += 1;
                flying.push(now + self.draw_delay(rng), noise(arrival, rng));
            }
            return;
        }
        if rng.chance(self.double) {
            stats.doubled += 1;
            flying.push(now + self.draw_delay(rng), arrival.clone());
        }
        flying.push(now + self.draw_delay(rng), arrival);
    }

    fn draw_delay(&self, rng: &mut Rng) -> Duration {
        let extra = rng.exponential(self.jitter);
        let held = if rng.chance(self.straggle) { self.lifetime.mul_f64(rng.unit()) } else { Duration::ZERO };
        (self.delay + extra + held).min(self.lifetime)
    }

    /// Delay of a record on a stream, where a loss is a delay.
    pub(super) fn stream_delay(&mut self, rng: &mut Rng) -> Duration {
        let held = if rng.chance(self.loss) { STREAM_HOLD.mul_f64(rng.unit()) } else { Duration::ZERO };
        self.delay + rng.exponential(self.jitter) + held
    }
}

/// A corrupted datagram: truncated, with flipped bits, or random. Its xid differs from all
/// outstanding ones.
fn noise(mut arrival: Arrival, rng: &mut Rng) -> Arrival {
    let mut bytes = arrival.bytes.to_vec();
    match rng.below(3) {
        0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
        1 => {
            for _ in 0..=rng.below(8) {
                let bit = rng.below(bytes.len() as u64 * 8);
                if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        _ => {
            bytes.truncate(rng.below(200) as usize);
            rng.fill(&mut bytes);
        }
    }
    // Flipping the xid's top bit moves it half the circle away from those in use.
    for (at, byte) in bytes.iter_mut().enumerate().take(4) {
        *byte = arrival.bytes.get(at).map_or(0, |b| b ^ if at == 0 { 0x80 } else { 0 });
    }
    arrival.bytes = Bytes::from(bytes);
    if arrival.to == NodeId::Server {
        arrival.from = Peer::datagram(addr::stranger());
    }
    arrival
}

/// The treatment of one transmission of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Procedure of the call.
    pub proc: Proc,
    /// Number among the client's transmissions of the procedure, from 0.
    pub nth: u32,
    pub action: RuleAction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// The message is lost.
    Drop,
    /// The message arrives after this delay.
    Delay(Duration),
}

/// The rules of one link, and the transmissions seen by procedure.
#[derive(Clone, Default, Debug)]
pub struct CallRules {
    rules: Vec<Rule>,
    seen: BTreeMap<Proc, u32>,
}

impl CallRules {
    pub(super) fn new(rules: Vec<Rule>) -> CallRules {
        CallRules { rules, seen: BTreeMap::new() }
    }

    /// The action for this call, which counts as seen.
    pub(super) fn action(&mut self, message: &Bytes) -> Option<RuleAction> {
        if self.rules.is_empty() {
            return None;
        }
        let proc = message_text::read_call(message)?.call.proc();
        let seen = self.seen.entry(proc).or_default();
        let nth = *seen;
        *seen += 1;
        self.rules.iter().find(|r| r.proc == proc && r.nth == nth).map(|r| r.action)
    }
}
