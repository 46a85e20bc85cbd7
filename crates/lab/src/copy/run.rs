//! The result of one copy, and its flow: the part between setup and end, found from samples of its frames.
//!
//! Setup and end depend less on the file's size, and meet other loads.

use std::time::Duration;

use serde::Serialize;

/// Start and end of the measured part of the flow, as shares of the client's airtime: setup and end have frames, too.
const MEASURED: (f64, f64) = (0.1, 0.9);

#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct FlowSample {
    pub(super) at_s: f64,
    /// Airtime of the client's frames so far, in seconds.
    pub(super) sent_s: f64,
    /// Load packets received so far.
    pub(super) load_packets: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Flow {
    /// Time of the whole file at the pace of the measured part.
    pub(super) seconds: f64,
    /// Load packets per second during the flow.
    pub(super) load_packets_per_s: f64,
}

/// The flow of a copy from its samples in order of time; `None` if nothing flowed.
pub(super) fn flow(samples: &[FlowSample]) -> Option<Flow> {
    let (first, last) = (samples.first()?, samples.last()?);
    let all = last.sent_s - first.sent_s;
    let at = |share: f64| when(samples, first.sent_s + share * all);
    let (begin, end) = (at(MEASURED.0)?, at(MEASURED.1)?);
    let seconds = end.at_s - begin.at_s;
    (all > 0.0 && seconds > 0.0).then(|| Flow {
        seconds: seconds / (MEASURED.1 - MEASURED.0),
        load_packets_per_s: (end.load_packets - begin.load_packets) / seconds,
    })
}

/// The state when the client's airtime was `sent_s`, by linear interpolation.
fn when(samples: &[FlowSample], sent_s: f64) -> Option<FlowSample> {
    let after = samples.iter().position(|s| s.sent_s >= sent_s)?;
    let (b, a) = (samples.get(after)?, samples.get(after.saturating_sub(1))?);
    let share = if b.sent_s > a.sent_s { (sent_s - a.sent_s) / (b.sent_s - a.sent_s) } else { 1.0 };
    let between = |a: f64, b: f64| a + share * (b - a);
    Some(FlowSample { at_s: between(a.at_s, b.at_s), sent_s, load_packets: between(a.load_packets, b.load_packets) })
}

/// Frames of a copy in one direction.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Wire {
    pub frames: u64,
    pub seconds: f64,
    pub dropped: u64,
}

#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Run {
    pub seed: u64,
    /// Infinite (JSON: null) if it was cut off.
    pub seconds: f64,
    /// Time of the flow at the pace of its middle; `None` if nothing flowed.
    pub flow_s: Option<f64>,
    /// Offered load as a share of the medium.
    pub load_offered: f64,
    /// Carried load during the flow as a share of the medium.
    pub load_carried: f64,
    pub load_packet_bytes: u64,
    pub there: Wire,
    /// What the server sent to the client.
    pub back: Wire,
    /// Collisions of all stations; 0 on a medium with turns.
    pub collisions: u64,
    pub lateness_ms: f64,
    /// The lateness was within the limit; a late run still counts.
    pub in_time: bool,
}

impl Run {
    pub(super) fn local(seed: u64, took: Duration) -> Run {
        Run { seed, seconds: took.as_secs_f64(), in_time: true, ..Run::default() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stopped;

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects for 0.5 s beside 1000 load packets per second, flows for 2 s with half the medium beside 400, closes
    /// for 0.3 s.
    fn samples(step_s: f64) -> Vec<FlowSample> {
        let count = (2.8 / step_s).round() as usize;
        let at = |i: usize| {
            let at_s = i as f64 * step_s;
            let flowed = (at_s - 0.5).clamp(0.0, 2.0);
            let load_packets = 1000.0 * (at_s - flowed) + 400.0 * flowed;
            FlowSample { at_s, sent_s: 7.0 + 0.5 * flowed, load_packets }
        };
        (0..=count).map(at).collect()
    }

    #[test]
    fn flow_excludes_setup_and_end() {
        for step_s in [0.01, 0.02, 0.07] {
            let flow = flow(&samples(step_s)).unwrap();
            assert!((flow.seconds - 2.0).abs() < 0.01, "{step_s}: {flow:?}");
            assert!((flow.load_packets_per_s - 400.0).abs() < 4.0, "{step_s}: {flow:?}");
        }
    }

    #[test]
    fn samples_without_flow_have_no_pace() {
        assert_eq!(flow(&[]), None);
        assert_eq!(flow(&[FlowSample::default()]), None);
        let still = |at_s| FlowSample { at_s, ..FlowSample::default() };
        assert_eq!(flow(&[still(0.0), still(1.0), still(2.0)]), None);
        // A burst between two samples takes at most their interval.
        let burst = [still(0.0), FlowSample { at_s: 0.1, sent_s: 0.05, load_packets: 3.0 }];
        assert!(flow(&burst).is_some_and(|f| (f.seconds - 0.1).abs() < 1e-9), "{:?}", flow(&burst));
    }
}
