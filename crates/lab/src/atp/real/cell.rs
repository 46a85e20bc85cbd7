//! One cell: a link, the programs at its ends, and the book of what became of each object.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::Policy;
use remora_base::Time;
use remora_host::Clock;
use remora_host::emulate::{Emulator, Setup};
use remora_sim::atp::{Fate, Ledger, Object, Pace, Protocol, TcpConfig};
use tokio::time::timeout_at;

use super::link::{CONGESTION, Weathers};
use super::{ours, tcp};

/// What is sent over what.
pub(super) struct Cell<'a> {
    pub(super) protocol: Protocol,
    pub(super) objects: &'a [Object],
    pub(super) pace: Pace,
    pub(super) link: Weathers,
    /// When it ends, on the channel's clock.
    pub(super) until: Time,
    pub(super) seed: u64,
}

/// What came of it.
pub(super) struct Measured {
    pub(super) fates: Vec<Fate>,
    /// The latest a frame was handed over.
    pub(super) lateness: Duration,
    /// Which promise the emulator did not keep, if so.
    pub(super) fault: Option<String>,
}

/// The book of a cell, on the channel's clock.
#[derive(Clone)]
pub(super) struct Book {
    clock: Clock,
    ledger: Arc<Mutex<Ledger>>,
}

impl Book {
    fn new(clock: Clock, objects: usize) -> Book {
        Book { clock, ledger: Arc::new(Mutex::new(Ledger::new(objects))) }
    }

    /// Notes something; when that was.
    pub(super) fn note(&self, what: impl FnOnce(&mut Ledger, Time)) -> Time {
        let now = self.clock.now();
        what(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner), now);
        now
    }

    /// Waits for a moment.
    pub(super) async fn wait(&self, at: Time) {
        tokio::time::sleep_until(self.clock.instant(at).into()).await;
    }

    fn fates(&self) -> Result<Vec<Fate>, String> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ledger.into_fates().map_err(|n| format!("object {n} met its fate twice"))
    }
}

impl Cell<'_> {
    /// Everything, from the link to the last object.
    pub(super) fn measure(&self, lateness_max: Duration) -> Result<Measured, String> {
        let setup =
            Setup { config: self.link.fair.clone(), congestion: CONGESTION.into(), lateness_max, ..Setup::default() };
        let words = |e: remora_host::emulate::EmulateError| format!("the emulator: {e}");
        let mut emulator = Emulator::start(setup).map_err(words)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("a runtime: {e}"))?;
        let mut ends = Ends::connect(self, &emulator, &runtime)?;
        emulator.begin(self.link.real.clone(), self.seed).map_err(words)?;
        let clock = emulator.clock().map_err(words)?;
        let book = Book::new(clock, self.objects.len());
        let until = clock.instant(self.until).into();
        let work = async { timeout_at(until, ends.work(self, &book)).await };
        // What is not told by the end is late.
        runtime.block_on(work).unwrap_or(Ok(()))?;
        let report = emulator.report().map_err(words)?;
        let fates = book.fates()?;
        drop(runtime);
        Ok(Measured { fates, lateness: report.lateness.max, fault: report.fault() })
    }
}

/// The programs at both ends, connected.
enum Ends {
    Ours(ours::Ends),
    Tcp(tcp::Ends),
}

impl Ends {
    fn connect(cell: &Cell, emulator: &Emulator, runtime: &tokio::runtime::Runtime) -> Result<Ends, String> {
        let tcp = |config| tcp::Ends::connect(config, emulator).map(Ends::Tcp);
        let ours = |policy| runtime.block_on(ours::Ends::connect(policy, emulator)).map(Ends::Ours);
        match (cell.protocol, cell.pace) {
            // A plain stream: nobody waits for each object's answer.
            (Protocol::Tcp, Pace::Closed { .. }) => tcp(TcpConfig::bulk()),
            (Protocol::Tcp, Pace::Open) => tcp(TcpConfig::single()),
            (Protocol::Mtcp(high), _) => tcp(TcpConfig::multiple(high.into())),
            (Protocol::Atp, _) => ours(Policy::Remora),
            (Protocol::AtpPaper, _) => ours(Policy::Paper),
            (Protocol::Quic, _) => Err("is simulated only".into()),
        }
    }

    async fn work(&mut self, cell: &Cell<'_>, book: &Book) -> Result<(), String> {
        match self {
            Ends::Ours(ends) => ends.work(cell, book).await,
            Ends::Tcp(ends) => ends.work(cell, book).await,
        }
    }
}
