//! A server's counters, for its operator: a line of JSON for each SIGUSR1, and the last at the
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use remora_host::server::{ServerSnapshot, Watch};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::serve::output::console::Console;
use crate::commands::serve::output::notices::Failures;
use crate::metrics::endpoint::{MetricsListener, MetricsPage};
use crate::metrics::tables;
use crate::output::exit::{Error, Result};

/// All counters by name.
#[derive(Serialize)]
pub(crate) struct Counters {
    counters: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Those of `numbers`, and of the disks and files.
    pub(crate) fn of(numbers: &ServerSnapshot, failures: &Failures) -> Counters {
        let disks = [("flushes_failed", failures.count()), ("open_refused", remora_vfs::local::fd_exhaustion().count)];
        Counters { counters: numbers.named().into_iter().chain(disks).collect() }
    }
}

/// Serves the same numbers as metrics, with the requests by procedure.
pub(crate) fn serve_metrics(listener: MetricsListener, server: Watch, failures: Arc<Failures>) -> MetricsPage {
    listener.serve(move || {
        let metrics = server.metrics();
        let Counters { counters } = Counters::of(&metrics.snapshot, &failures);
        tables::serve::families(&metrics, &counters)
    })
}

/// SIGUSR1 from now on: without a handler it would end the process.
pub(crate) fn asked() -> Result<Signal> {
    signal(SignalKind::user_defined1()).map_err(Error::local("cannot wait for signals"))
}

/// Prints the counters each time they are asked for, for as long as the process lives.
pub(crate) fn print_when_asked(mut asked: Signal, server: Watch, failures: Arc<Failures>, voice: Console) {
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            voice.json(&Counters::of(&server.stats(), &failures));
        }
    });
}
