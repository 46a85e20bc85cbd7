//! What bulk transfers come to: asynchronous sends beside TCP, synchronous ones beside one object
//! a round trip, which is as fast as one can who waits for each object's end.

use std::time::Duration;

use remora_sim::atp::{BULK_RATE, ROUND_TRIP};

use super::outcome::{Bulk, Report};
use super::tables::by_size;
use crate::report::table::Table;

pub(super) const TITLE: &str =
    "The same as ratios: asynchronous sends to TCP, synchronous ones to one object a round trip";
/// Bytes of an object in a full packet, and those of IP, UDP and QUIC beside them.
const PAYLOAD: u32 = 1400;
const OVERHEAD: u32 = 72;
/// Bytes of the packet that says that the object is there.
const ANSWER: u32 = 80;

impl Report {
    /// A line for each size; `None` if there is nothing to compare.
    pub(super) fn ratios(&self) -> Option<Table> {
        let round_trip = self.real.as_ref().map_or(ROUND_TRIP, |r| Duration::from_secs_f64(r.round_trip_ms / 1e3));
        let tcp = self.bulk.iter().find(|b| b.scheme == "tcp");
        let columns: Vec<(String, Vec<(u32, f64)>)> =
            self.bulk.iter().filter_map(|b| Some((b.scheme.clone(), ratios(b, tcp, round_trip)?))).collect();
        let columns: Vec<(&str, &[(u32, f64)])> = columns.iter().map(|(name, points)| (&**name, &**points)).collect();
        (!columns.is_empty()).then(|| by_size(&columns, |ratio| format!("{ratio:.3}")))
    }
}

/// A scheme's ratios by size; `None` if it is what others are compared with, or TCP is missing.
fn ratios(bulk: &Bulk, tcp: Option<&Bulk>, round_trip: Duration) -> Option<Vec<(u32, f64)>> {
    if bulk.scheme.ends_with("-sync") {
        let ideal = |size: u32| f64::from(size) / whole_round_trip(size, round_trip).as_secs_f64();
        return Some(bulk.points.iter().map(|(size, rate)| (*size, rate / ideal(*size))).collect());
    }
    let tcp = tcp.filter(|tcp| tcp.scheme != bulk.scheme)?;
    let beside = |size: u32| tcp.points.iter().find(|(s, _)| *s == size).map(|(_, rate)| *rate);
    Some(bulk.points.iter().filter_map(|(size, rate)| Some((*size, rate / beside(*size)?))).collect())
}

/// From handing an object to an idle link to the answer: propagation, and the time on the wire of
/// the object's packets and of the answer.
fn whole_round_trip(size: u32, propagation: Duration) -> Duration {
    let bytes = size + OVERHEAD * size.div_ceil(PAYLOAD) + ANSWER;
    propagation + Duration::from_secs_f64(f64::from(bytes) / BULK_RATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_and_its_answer_take_their_time_on_the_wire() {
        for (size, ms) in [(1024, 12.243), (2048, 14.333), (1 << 20, 2113.2)] {
            let took = whole_round_trip(size, ROUND_TRIP).as_secs_f64() * 1e3;
            assert!((took / ms - 1.0).abs() < 1e-3, "{size}: {took} ms");
        }
    }

    #[test]
    fn sends_are_compared_with_what_they_can_be_compared_with() {
        let bulk = |scheme: &str, rate: f64| Bulk { scheme: scheme.into(), points: vec![(1024, rate)] };
        let tcp = bulk("tcp", 500e3);
        assert_eq!(ratios(&bulk("atp-async", 480e3), Some(&tcp), ROUND_TRIP), Some(vec![(1024, 0.96)]));
        assert_eq!(ratios(&bulk("atp-async", 480e3), None, ROUND_TRIP), None);
        assert_eq!(ratios(&tcp, Some(&tcp), ROUND_TRIP), None);
        let sync = ratios(&bulk("atp-sync", 1024.0 / 0.012_243), None, ROUND_TRIP).unwrap();
        assert!((sync[0].1 - 1.0).abs() < 1e-3, "{sync:?}");
    }
}
