//! One direction of the link: a device queue in front of a bandwidth that follows the trace, then a
//! propagation delay, like Dummynet in ATP 02, section 4.1.
//!
//! The channel crate's recorded links carry 1500 bytes at each whole-millisecond opportunity; here
//! every byte takes the time given by the trace's integral, which is also the oracle's measure.

use std::collections::VecDeque;

use bytes::Bytes;
use remora_base::Time;

use super::trace::Trace;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an IPv4 and a UDP header.
pub(super) const HEADERS: usize = 28;

#[derive(Clone, Debug)]
pub struct Link {
    /// The bandwidth of both directions.
    pub trace: Arc<Trace>,
    pub delay: Duration,
    /// Capacity of each end's device queue in packets.
    pub queue_max: usize,
    /// Treatment of packets while there is no bandwidth.
    pub when_down: WhenDown,
}

/// Treatment of packets by a device whose link is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenDown {
    /// Queues as many as fit, as Dummynet does.
    Holds,
    /// Drops new ones; keeps those queued.
    Drops,
}

/// A direction of the link.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    link: Link,
    /// By transmission time.
    packets: VecDeque<Packet>,
    /// Packets dropped at the full queue, or while the link was down.
    pub(super) dropped: u64,
    /// Bytes of packets that arrived, including headers.
    pub(super) carried: u64,
}

#[derive(Clone, Debug)]
struct Packet {
    start: Time,
    end: Time,
    payload: Bytes,
    /// The host that sent it, or to which it goes, where several share the link.
    host: usize,
}

impl Pipe {
    pub(super) fn new(link: Link) -> Pipe {
        Pipe { link, packets: VecDeque::new(), dropped: 0, carried: 0 }
    }

    /// Queues a UDP payload from or to `host` if there is space.
    pub(super) fn send(&mut self, now: Time, host: usize, payload: Bytes) {
        let Link { trace, queue_max, when_down, .. } = &self.link;
        let waiting = self.packets.iter().rev().take_while(|p| p.start > now).count();
        if waiting >= *queue_max || (*when_down == WhenDown::Drops && trace.rate(now) <= 0.0) {
            self.dropped += 1;
            return;
        }
        let start = self.packets.back().map_or(now, |last| last.end.max(now));
        let bytes = (payload.len() + HEADERS) as f64;
        // A link that stays down forever never sends it.
        let end = trace.when(trace.carried(start) + bytes).unwrap_or(Time::MAX).max(start);
        self.packets.push_back(Packet { start, end, payload, host });
    }

    /// When the next packet arrives.
    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.packets.front().map(|p| p.end + self.link.delay)
    }

    /// The next packet that arrived, with its host.
    pub(super) fn receive(&mut self, now: Time) -> Option<(usize, Bytes)> {
        self.next_arrival().filter(|at| *at <= now)?;
        let Packet { payload, host, .. } = self.packets.pop_front()?;
        self.carried += (payload.len() + HEADERS) as u64;
        Some((host, payload))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::trace::Trace;
    use super::*;

    fn pipe(trace: Trace, delay_ms: u64, queue_max: usize, when_down: WhenDown) -> Pipe {
        Pipe::new(Link { trace: Arc::new(trace), delay: Duration::from_millis(delay_ms), queue_max, when_down })
    }

    #[test]
    fn pipe_sends_in_order_and_bounds_its_queue() {
        let mut pipe = pipe(Trace::constant(1000.0), 5, 2, WhenDown::Holds);
        for n in 0..4u8 {
            pipe.send(Time::ZERO, usize::from(n), Bytes::from(vec![n; 72]));
        }
        assert_eq!(pipe.dropped, 1);
        for (at, n) in [(105, 0), (205, 1), (305, 2)] {
            let at = Time::from_millis(at);
            assert_eq!(pipe.next_arrival(), Some(at));
            assert_eq!(pipe.receive(at - Duration::from_nanos(1)), None);
            assert_eq!(pipe.receive(at).map(|(host, p)| (host, p[0])), Some((usize::from(n), n)));
        }
        assert_eq!((pipe.next_arrival(), pipe.carried), (None, 300));
    }

    #[test]
    fn gap_in_bandwidth_delays_packet_in_transmission() {
        let trace = Trace::parse("0,1000\n1,1000\n1,0\n3,0\n3,1000\n").unwrap();
        for (when_down, dropped) in [(WhenDown::Holds, 0), (WhenDown::Drops, 1)] {
            let mut pipe = pipe(trace.clone(), 0, 50, when_down);
            pipe.send(Time::from_millis(950), 0, Bytes::from(vec![0; 72]));
            pipe.send(Time::from_millis(1500), 0, Bytes::from(vec![0; 72]));
            assert_eq!((pipe.next_arrival(), pipe.dropped), (Some(Time::from_millis(3050)), dropped));
        }
    }
}
