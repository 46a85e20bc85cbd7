//! A server's counters, for its operator: a line of JSON for each SIGUSR1, and the last at the
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use remora_host::server::{Snapshot, Watch};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::failures::Failures;
use crate::out;

/// All counters by name.
#[derive(Serialize)]
pub(super) struct Counters {
    counters: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Those of `numbers`, and of the disks.
    pub(super) fn of(numbers: &Snapshot, failures: &Failures) -> Counters {
        let disks = [("flushes_failed", failures.count())];
        Counters { counters: numbers.named().into_iter().chain(disks).collect() }
    }
}

/// From now on SIGUSR1 prints the counters, for as long as the process lives.
pub(super) fn print_on_signal(server: Watch, failures: Arc<Failures>) {
    // Without a handler the signal would end the process.
    let Ok(mut signals) = signal(SignalKind::user_defined1()) else { return };
    tokio::spawn(async move {
        // Nobody reads them any more: nothing to print them for.
        while signals.recv().await.is_some() && out::json(&Counters::of(&server.stats(), &failures)).is_ok() {}
    });
}
