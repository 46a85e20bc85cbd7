//! A run: the hosts on virtual time, and what each received.

use std::time::{Duration, Instant};

use remora_base::{Rng, Time};

use super::super::experiment::ExperimentError;
use super::super::pipe::HEADERS;
use super::super::world::{End, STEPS_MAX, WorldError};
use super::host::{Host, HostKind, URGENT_DEADLINE};
use super::medium::{Medium, Place};

/// The first hosts start at a random time in this interval.
const STAGGER: Duration = Duration::from_secs(1);
/// When the last host joins.
pub const JOIN: Time = Time::from_secs(30);
/// Shares count from here.
pub const SETTLED: Time = Time::from_secs(60);
pub const END: Time = Time::from_secs(90);
/// Interval at which received bytes are counted.
pub const BIN: Duration = Duration::from_millis(100);

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct ContentionRun {
    /// The last one joined.
    pub hosts: Vec<HostRun>,
}

/// A host's part of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct HostRun {
    pub kind: HostKind,
    /// Bytes at the receiver in each [`BIN`], including headers.
    pub received: Vec<u64>,
    /// Packets sent by the sender, and those of them that arrived.
    pub sent_packets: u64,
    pub received_packets: u64,
    pub urgent: Urgent,
}

/// The urgent objects of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Urgent {
    /// Objects whose deadline lies in the run.
    pub objects: usize,
    /// Of these, complete at the receiver by their deadlines.
    pub in_time: usize,
    /// Time from submission to complete arrival, of all that arrived.
    pub took: Vec<Duration>,
}

/// Runs `hosts`, of which the last joins later, until [`END`]. The epoch is any instant.
pub fn contend(place: Place, hosts: &[HostKind], epoch: Instant, seed: u64) -> Result<ContentionRun, ExperimentError> {
    let mut medium = Medium::new(place, hosts.len(), seed)?;
    let mut participants = Vec::new();
    let mut rng = Rng::stream(seed, "atp contention starts");
    for (n, kind) in hosts.iter().enumerate() {
        let early = Time::ZERO + Duration::from_nanos(rng.below(STAGGER.as_nanos() as u64));
        let start = if n + 1 == hosts.len() { JOIN } else { early };
        let own_seed = Rng::stream(seed, &format!("atp contention host {n}")).next_u64();
        participants.push(Participant::new(Host::new(*kind, start, epoch, own_seed)?));
    }
    let (mut now, mut steps_now) = (Time::ZERO, 0);
    while now < END {
        let timers = participants.iter().map(|p| p.host.poll_timeout());
        let next = timers.chain(medium.poll_timeout()).chain([END]).min().unwrap_or(END).max(now);
        steps_now = if next > now { 0 } else { steps_now + 1 };
        if steps_now > STEPS_MAX {
            return Err(WorldError::Stuck(now).into());
        }
        now = next;
        step(now, &mut medium, &mut participants)?;
    }
    let hosts = participants.into_iter().map(Participant::finish).collect::<Result<_, _>>()?;
    Ok(ContentionRun { hosts })
}

/// Handles everything that is due at `now`.
fn step(now: Time, medium: &mut Medium, participants: &mut [Participant]) -> Result<(), WorldError> {
    while let Some(arrival) = medium.receive(now) {
        let Some(participant) = participants.get_mut(arrival.host) else { continue };
        participant.count(now, arrival.end, arrival.payload.len());
        participant.host.handle_datagram(now, arrival.end, arrival.payload);
        participant.drain(now, arrival.host, medium);
    }
    for (n, participant) in participants.iter_mut().enumerate() {
        if participant.host.poll_timeout() <= now {
            participant.host.handle_timeout(now);
            participant.drain(now, n, medium);
        }
        if let Some(why) = participant.host.trouble() {
            return Err(WorldError::Trouble(why));
        }
    }
    Ok(())
}

/// A host with its counters.
struct Participant {
    host: Host,
    received: Vec<u64>,
    sent_packets: u64,
    received_packets: u64,
}

impl Participant {
    fn new(host: Host) -> Participant {
        let bins = END.since(Time::ZERO).as_nanos() / BIN.as_nanos();
        Participant { host, received: vec![0; bins as usize], sent_packets: 0, received_packets: 0 }
    }

    fn count(&mut self, now: Time, end: End, payload: usize) {
        if end == End::Receiver {
            self.received_packets += 1;
            let bin = now.since(Time::ZERO).as_nanos() / BIN.as_nanos();
            if let Some(bytes) = self.received.get_mut(bin as usize) {
                *bytes += (payload + HEADERS) as u64;
            }
        }
    }

    fn drain(&mut self, now: Time, number: usize, medium: &mut Medium) {
        while let Some((end, payload)) = self.host.poll_transmit(now) {
            self.sent_packets += u64::from(end == End::Sender);
            medium.send(now, number, end, payload);
        }
    }

    fn finish(self) -> Result<HostRun, WorldError> {
        let Participant { host, received, sent_packets, received_packets } = self;
        let kind = host.kind();
        let last = Time::ZERO + (END.since(host.start()).saturating_sub(URGENT_DEADLINE));
        let mut urgent = Urgent::default();
        for (object, fate) in host.into_urgent().map_err(WorldError::Twice)? {
            if object.arrival <= last {
                urgent.objects += 1;
                urgent.in_time += usize::from(fate.in_time(&object));
            }
            urgent.took.extend(fate.arrived.map(|at| at.since(object.arrival)));
        }
        Ok(HostRun { kind, received, sent_packets, received_packets, urgent })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an epoch for libraries that want instants; nothing depends on it")]
mod tests {
    use super::super::super::experiment::BULK_RATE;
    use super::*;

    fn rate(host: &HostRun) -> f64 {
        let from = (SETTLED.since(Time::ZERO).as_nanos() / BIN.as_nanos()) as usize;
        host.received.iter().skip(from).sum::<u64>() as f64 / END.since(SETTLED).as_secs_f64()
    }

    #[test]
    fn hosts_share_the_bottleneck_and_keep_deadlines() {
        let once = |seed| contend(Place::Bottleneck, &[HostKind::Atp; 4], Instant::now(), seed).unwrap();
        let run = once(1);
        let rates: Vec<f64> = run.hosts.iter().map(rate).collect();
        let all: f64 = rates.iter().sum();
        assert!(all > 0.9 * BULK_RATE && all < BULK_RATE * 1.01, "{rates:?}");
        assert!(rates.iter().all(|rate| (0.2..0.3).contains(&(rate / all))), "{rates:?}");
        for Urgent { objects, in_time, .. } in run.hosts.iter().map(|h| &h.urgent) {
            assert!(*objects > 100 && in_time * 100 >= objects * 99, "{in_time} of {objects}");
        }
        // Without congestion control two of five are lost.
        let lost = |h: &HostRun| h.sent_packets - h.received_packets;
        assert!(
            run.hosts.iter().all(|h| lost(h) * 20 < h.sent_packets),
            "{:?}",
            run.hosts.iter().map(lost).collect::<Vec<_>>()
        );
        assert_eq!(once(1), run);
    }
}
