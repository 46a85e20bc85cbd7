//! One copy: what was measured.

use std::time::Duration;

use serde::Serialize;

/// What a copy's link carried in one direction.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Wire {
    /// Frames sent.
    pub frames: u64,
    /// Their time on the medium in seconds.
    pub seconds: f64,
    /// Frames that the station's full queue dropped.
    pub dropped: u64,
}

/// One copy.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// How long it took; infinite (JSON: null): it was cut off.
    pub seconds: f64,
    /// How long the file flowed, at the pace of the middle of it; none where nothing did.
    pub flow_s: Option<f64>,
    /// The load that its senders were due to send, as a share of the medium.
    pub load_offered: f64,
    /// The load that arrived while the file flowed, as a share of the medium.
    pub load_carried: f64,
    /// A packet of the load in bytes.
    pub load_packet_bytes: u64,
    /// What the client sent.
    pub there: Wire,
    /// What the server sent to the client.
    pub back: Wire,
    /// Collisions while it ran, everybody's; none on a medium with turns.
    pub collisions: u64,
    /// How late the emulator was at worst.
    pub lateness_ms: f64,
    /// Whether that was within the bound; a run that was not stays in the figures.
    pub in_time: bool,
}

impl Run {
    /// A copy without a network.
    pub(super) fn local(seed: u64, took: Duration) -> Run {
        Run { seed, seconds: took.as_secs_f64(), in_time: true, ..Run::default() }
    }
}
