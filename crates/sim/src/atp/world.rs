//! Two hosts and the link between them, in virtual time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use thiserror::Error;

use super::ledger::{Fate, Ledger};
use super::pipe::{Link, Pipe};
use super::workload::Object;

/// Maximum of steps at one moment.
pub(super) const STEPS_MAX: u32 = 100_000;
const SECOND: Duration = Duration::from_secs(1);

/// An end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The host that has objects.
    Sender,
    /// The host that receives them.
    Receiver,
}

impl End {
    /// Its address, on either end.
    pub(super) fn address(self) -> SocketAddr {
        let host = match self {
            End::Sender => 1,
            End::Receiver => 2,
        };
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
    }

    pub(super) const fn other(self) -> End {
        match self {
            End::Sender => End::Receiver,
            End::Receiver => End::Sender,
        }
    }
}

/// A protocol with both ends and their programs. The contract is that of [`remora_base::Core`]: one
/// change, then drain.
pub trait Scheme {
    fn submit(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger);
    /// Handles a UDP payload at `end`.
    fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes, ledger: &mut Ledger);
    /// Runs every timer that is due.
    fn handle_timeout(&mut self, now: Time, ledger: &mut Ledger);
    /// The next UDP payload to send, and its end.
    fn poll_transmit(&mut self, now: Time, ledger: &mut Ledger) -> Option<(End, Bytes)>;
    /// When a timer is due.
    fn poll_timeout(&self) -> Option<Time>;
    /// The sender's bandwidth estimate in bytes a second, if it has one.
    fn estimate(&mut self) -> Option<f64> {
        None
    }
    /// A fatal error, if any.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// The submission of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At their arrival times.
    Open,
    /// When earlier ones end, and not before their arrival times.
    Closed {
        /// Maximum of objects in progress (at least 1).
        at_once: usize,
    },
}

/// A second of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Second {
    pub at: Time,
    /// Bytes received, including headers.
    pub used: u64,
    /// The sender's bandwidth estimate at its end, in bytes a second.
    pub estimate: Option<f64>,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub fates: Vec<Fate>,
    pub seconds: Vec<Second>,
    /// Packets dropped at the sender's device queue.
    pub dropped: u64,
    /// Bytes received at the receiver, including headers.
    pub forth: u64,
    /// Bytes received at the sender, including headers.
    pub back: u64,
    pub ended: Time,
}

/// A failed [`Run`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WorldError {
    /// Endless steps at one moment.
    #[error("endless steps at {0}")]
    Stuck(Time),
    /// An object ended or arrived twice.
    #[error("object {0} ended or arrived twice")]
    Twice(usize),
    /// A fatal error of the protocol.
    #[error("{0}")]
    Trouble(String),
}

/// Runs until `end` or, for a closed pace, until all objects ended at the sender.
pub(super) fn run(
    scheme: &mut dyn Scheme,
    link: &Link,
    objects: &[Object],
    pace: Pace,
    end: Time,
) -> Result<Run, WorldError> {
    let mut world = World::new(link, objects, pace);
    while world.now < end && (pace == Pace::Open || world.ledger.ended() < objects.len()) {
        world.step(scheme, end)?;
        if let Some(why) = scheme.trouble() {
            return Err(WorldError::Trouble(why));
        }
    }
    world.finish()
}

struct World<'a> {
    now: Time,
    objects: &'a [Object],
    pace: Pace,
    /// The next object to submit.
    next: usize,
    forth: Pipe,
    back: Pipe,
    ledger: Ledger,
    seconds: Vec<Second>,
    next_second: Time,
    /// Bytes received until the last full second.
    counted: u64,
    steps_now: u32,
}

impl<'a> World<'a> {
    fn new(link: &Link, objects: &'a [Object], pace: Pace) -> World<'a> {
        let pipe = Pipe::new(link.clone());
        World {
            now: Time::ZERO,
            objects,
            pace,
            next: 0,
            forth: pipe.clone(),
            back: pipe,
            ledger: Ledger::new(objects.len()),
            seconds: Vec::new(),
            next_second: Time::ZERO + SECOND,
            counted: 0,
            steps_now: 0,
        }
    }

    /// Sends all packets that the scheme has ready, then advances to the next event.
    fn step(&mut self, scheme: &mut dyn Scheme, end: Time) -> Result<(), WorldError> {
        self.drain(scheme);
        let moments = [self.forth.next_arrival(), self.back.next_arrival(), self.next_entry(), scheme.poll_timeout()];
        let next = moments.into_iter().flatten().chain([self.next_second, end]).min().unwrap_or(end).max(self.now);
        self.steps_now = if next > self.now { 0 } else { self.steps_now + 1 };
        if self.steps_now > STEPS_MAX {
            return Err(WorldError::Stuck(self.now));
        }
        self.now = next;
        if self.next_second <= self.now {
            self.end_second(scheme.estimate());
        }
        while let Some((_, payload)) = self.forth.receive(self.now) {
            scheme.handle_datagram(self.now, End::Receiver, payload, &mut self.ledger);
            self.drain(scheme);
        }
        while let Some((_, payload)) = self.back.receive(self.now) {
            scheme.handle_datagram(self.now, End::Sender, payload, &mut self.ledger);
            self.drain(scheme);
        }
        while self.next_entry().is_some_and(|at| at <= self.now) {
            self.enter(scheme);
            self.drain(scheme);
        }
        if scheme.poll_timeout().is_some_and(|at| at <= self.now) {
            scheme.handle_timeout(self.now, &mut self.ledger);
        }
        Ok(())
    }

    fn drain(&mut self, scheme: &mut dyn Scheme) {
        while let Some((from, payload)) = scheme.poll_transmit(self.now, &mut self.ledger) {
            match from {
                End::Sender => self.forth.send(self.now, 0, payload),
                End::Receiver => self.back.send(self.now, 0, payload),
            }
        }
    }

    /// When the next object is submitted; `None` while others must end first.
    fn next_entry(&self) -> Option<Time> {
        let object = self.objects.get(self.next)?;
        match self.pace {
            Pace::Closed { at_once } if self.next - self.ledger.ended().min(self.next) >= at_once.max(1) => None,
            Pace::Open | Pace::Closed { .. } => Some(object.arrival.max(self.now)),
        }
    }

    fn enter(&mut self, scheme: &mut dyn Scheme) {
        if let Some(object) = self.objects.get(self.next) {
            self.ledger.entered(self.next, self.now);
            scheme.submit(self.now, self.next, object, &mut self.ledger);
        }
        self.next += 1;
    }

    fn end_second(&mut self, estimate: Option<f64>) {
        let used = self.forth.carried - self.counted;
        self.counted = self.forth.carried;
        self.seconds.push(Second { at: self.next_second, used, estimate });
        self.next_second += SECOND;
    }

    fn finish(self) -> Result<Run, WorldError> {
        Ok(Run {
            fates: self.ledger.into_fates().map_err(WorldError::Twice)?,
            seconds: self.seconds,
            dropped: self.forth.dropped,
            forth: self.forth.carried,
            back: self.back.carried,
            ended: self.now,
        })
    }
}
