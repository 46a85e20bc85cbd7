//! A host: its protocol and its load.

use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::Policy;
use remora_base::{Rng, Time};

use super::super::baseline::{Congestion, Tcp, TcpConfig};
use super::super::endpoints::Endpoints;
use super::super::experiment::ExperimentError;
use super::super::ledger::{Fate, Ledger};
use super::super::workload::{Class, Object};
use super::super::world::{End, Scheme};

/// Size of the bulk transfer's objects, and how many are in progress at a time.
const BULK_SIZE: u32 = 32 << 10;
const BULK_AT_ONCE: usize = 8;
/// Bulk objects have no deadline that matters.
const BULK_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// The urgent objects are those of `uniform` (ATP 02, Table 1).
const URGENT_SIZE: u32 = 4 << 10;
pub(super) const URGENT_DEADLINE: Duration = Duration::from_secs(1);
const URGENT_SPACING: Duration = Duration::from_millis(500);
const URGENT_JITTER: Duration = Duration::from_millis(50);
/// Maximum of objects of a host: twice what the whole link carries.
const OBJECTS_MAX: usize = 4096;

/// The protocol of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HostKind {
    /// A bulk transfer of low priority, and urgent objects.
    Atp,
    /// A bulk transfer over the stand-in for TCP, with CUBIC or BBR.
    Cubic,
    Bbr,
}

impl HostKind {
    pub const fn name(self) -> &'static str {
        match self {
            HostKind::Atp => "atp",
            HostKind::Cubic => "cubic",
            HostKind::Bbr => "bbr",
        }
    }

    fn scheme(self, epoch: Instant, seed: u64) -> Result<Box<dyn Scheme>, ExperimentError> {
        let congestion = match self {
            HostKind::Atp => return Ok(Box::new(Endpoints::new(Policy::Remora, epoch, seed)?)),
            HostKind::Cubic => Congestion::Cubic,
            HostKind::Bbr => Congestion::Bbr,
        };
        Ok(Box::new(Tcp::new(&TcpConfig { congestion, ..TcpConfig::bulk() }, epoch, seed)?))
    }
}

/// A host and its receiver. Its own clock begins when it starts.
pub(super) struct Host {
    kind: HostKind,
    start: Time,
    scheme: Box<dyn Scheme>,
    ledger: Ledger,
    objects: Vec<Object>,
    /// Numbers of the bulk objects in progress.
    bulk: Vec<usize>,
    /// Arrival of the next urgent object.
    urgent: Option<Time>,
    rng: Rng,
}

impl Host {
    pub(super) fn new(kind: HostKind, start: Time, epoch: Instant, seed: u64) -> Result<Host, ExperimentError> {
        Ok(Host {
            kind,
            start,
            scheme: kind.scheme(epoch, seed)?,
            ledger: Ledger::new(OBJECTS_MAX),
            objects: Vec::new(),
            bulk: Vec::new(),
            urgent: (kind == HostKind::Atp).then_some(Time::ZERO),
            rng: Rng::stream(seed, "atp contention"),
        })
    }

    pub(super) fn kind(&self) -> HostKind {
        self.kind
    }

    pub(super) fn start(&self) -> Time {
        self.start
    }

    /// When an object or a timer is due.
    pub(super) fn poll_timeout(&self) -> Time {
        let bulk = if self.may_submit_bulk() { Some(Time::ZERO) } else { None };
        let next = [bulk, self.urgent, self.scheme.poll_timeout()].into_iter().flatten().min();
        next.map_or(Time::MAX, |at| self.start + at.since(Time::ZERO))
    }

    /// Submits the objects and runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let now = self.local(now);
        while self.may_submit_bulk() {
            self.bulk.push(self.objects.len());
            self.submit(now, BULK_SIZE, Class::Low, BULK_DEADLINE);
        }
        if let Some(at) = self.urgent.filter(|at| *at <= now) {
            let late = Duration::from_nanos(self.rng.below(URGENT_JITTER.as_nanos() as u64));
            self.urgent = (self.objects.len() < OBJECTS_MAX).then_some(at + URGENT_SPACING + late);
            self.submit(now, URGENT_SIZE, Class::High, URGENT_DEADLINE);
        }
        if self.scheme.poll_timeout().is_some_and(|at| at <= now) {
            self.scheme.handle_timeout(now, &mut self.ledger);
        }
        self.forget_ended();
    }

    pub(super) fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes) {
        let now = self.local(now);
        self.scheme.handle_datagram(now, end, payload, &mut self.ledger);
        self.forget_ended();
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<(End, Bytes)> {
        let now = self.local(now);
        self.scheme.poll_transmit(now, &mut self.ledger)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.scheme.trouble()
    }

    /// The urgent objects with their fates, by the host's clock; or the number of an object with a
    /// duplicate event.
    pub(super) fn into_urgent(self) -> Result<Vec<(Object, Fate)>, usize> {
        let fates = self.ledger.into_fates()?;
        Ok(self.objects.into_iter().zip(fates).filter(|(object, _)| object.class == Class::High).collect())
    }

    fn local(&self, now: Time) -> Time {
        Time::ZERO + now.since(self.start)
    }

    fn may_submit_bulk(&self) -> bool {
        self.bulk.len() < BULK_AT_ONCE && self.objects.len() < OBJECTS_MAX
    }

    fn submit(&mut self, now: Time, size: u32, class: Class, deadline: Duration) {
        let (number, object) = (self.objects.len(), Object { arrival: now, size, class, deadline });
        self.objects.push(object);
        self.ledger.entered(number, now);
        self.scheme.submit(now, number, &object, &mut self.ledger);
    }

    fn forget_ended(&mut self) {
        let ledger = &self.ledger;
        self.bulk.retain(|number| ledger.fate(*number).is_some_and(|fate| fate.told.is_none()));
    }
}
