//! ATP: two endpoints of the real session, used like the programs of ATP 02, section 4.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use remora_atp::session::{Config, Endpoint, Event, Guests, Identity, PeerId};
use remora_atp::{Command, Final, Options, Outcome, Policy, RequestId, Upcall, estimate, scheduler};
use remora_base::{Core, Peer, Time};
use thiserror::Error;

use super::ledger::{FinalStatus, Ledger};
use super::message::{number_of, numbered};
use super::workload::Object;
use super::world::{End, Scheme};

/// UDP payload whose IPv6 packet fills an Ethernet frame, the result of the session's MTU
/// discovery.
const DATAGRAM: u16 = 1452;
const SECRETS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// Endpoints that cannot be set up.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the endpoints cannot be set up: {0}")]
pub struct EndpointsError(String);

impl EndpointsError {
    fn of(why: impl ToString) -> EndpointsError {
        EndpointsError(why.to_string())
    }
}

/// Sender and receiver.
pub struct Endpoints {
    sender: Endpoint,
    receiver: Endpoint,
    peer: PeerId,
    numbers: BTreeMap<RequestId, usize>,
    /// Requests without transmitted data.
    unstarted: VecDeque<RequestId>,
    lost: Option<String>,
}

impl Endpoints {
    /// Connects. Each policy includes its estimator. The epoch is any instant.
    pub fn new(policy: Policy, epoch: Instant, seed: u64) -> Result<Endpoints, EndpointsError> {
        let kind = match policy {
            Policy::Paper => estimate::Kind::Paper,
            Policy::Remora => estimate::Kind::Rate,
        };
        let config = |guests| Config {
            guests,
            scheduler: scheduler::Config { policy, ..scheduler::Config::default() },
            estimator: estimate::Config::new(kind),
            datagram: DATAGRAM,
            discover: false,
            ..Config::default()
        };
        let [ours, theirs] = SECRETS.map(Identity::from_secret);
        let (ours, theirs) = (ours.map_err(EndpointsError::of)?, theirs.map_err(EndpointsError::of)?);
        let key = theirs.public();
        let endpoint = |guests, identity, seed| {
            Endpoint::new(config(guests), identity, epoch, Time::ZERO, seed).map_err(EndpointsError::of)
        };
        let mut sender = endpoint(Guests::Nobody, ours, seed)?;
        let receiver = endpoint(Guests::Anyone, theirs, seed.wrapping_add(1))?;
        let peer = sender.connect(Time::ZERO, End::Receiver.address(), key).map_err(EndpointsError::of)?;
        Ok(Endpoints { sender, receiver, peer, numbers: BTreeMap::new(), unstarted: VecDeque::new(), lost: None })
    }

    fn events(&mut self, now: Time, ledger: &mut Ledger) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                Event::Upcall(Upcall::Final(end)) => self.ended(end, ledger),
                Event::Upcall(Upcall::Uncertain { request, probability }) => {
                    if let Some(number) = self.numbers.get(&request) {
                        ledger.warned(*number, now, probability);
                    }
                }
                Event::Down { why, .. } => self.lost = Some(why.to_string()),
                Event::Refused { why, .. } => self.lost = Some(why.to_string()),
                _ => {}
            }
        }
        while let Some(event) = self.receiver.poll_event() {
            if let Event::Received { object, .. } = event {
                ledger.arrived(number_of(&object), now);
            }
        }
    }

    fn ended(&mut self, end: Final, ledger: &mut Ledger) {
        let told = match end.outcome {
            Outcome::Delivered => FinalStatus::Delivered,
            Outcome::Rejected(_) | Outcome::Evicted => FinalStatus::Rejected,
            Outcome::Expired | Outcome::Cancelled | Outcome::Lost => FinalStatus::Late,
        };
        if let Some(number) = self.numbers.remove(&end.request) {
            ledger.told(number, end.at, told);
        }
    }

    /// Records the requests whose first byte a packet carries.
    fn note_started(&mut self, now: Time, ledger: &mut Ledger) {
        let (sender, numbers) = (&mut self.sender, &self.numbers);
        self.unstarted.retain(|request| match sender.control(now, *request, Command::Inspect) {
            Ok(progress) if progress.written == 0 => true,
            Ok(_) => {
                if let Some(number) = numbers.get(request) {
                    ledger.started(*number, now);
                }
                false
            }
            Err(_) => false,
        });
    }
}

impl Scheme for Endpoints {
    fn submit(&mut self, now: Time, number: usize, object: &Object, ledger: &mut Ledger) {
        let options =
            Options { priority: object.class.priority(), deadline: Some(object.deadline), ..Options::default() };
        match self.sender.send(now, self.peer, numbered(number, object.size), options) {
            Ok(request) => {
                self.numbers.insert(request, number);
                self.unstarted.push_back(request);
            }
            Err(_) => self.lost = Some("the connection is gone".into()),
        }
        self.events(now, ledger);
    }

    fn handle_datagram(&mut self, now: Time, end: End, payload: Bytes, ledger: &mut Ledger) {
        match end {
            End::Sender => self.sender.handle_input(now, Peer::datagram(End::Receiver.address()), payload),
            End::Receiver => self.receiver.handle_input(now, Peer::datagram(End::Sender.address()), payload),
        }
        self.events(now, ledger);
    }

    fn handle_timeout(&mut self, now: Time, ledger: &mut Ledger) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.events(now, ledger);
    }

    fn poll_transmit(&mut self, now: Time, ledger: &mut Ledger) -> Option<(End, Bytes)> {
        if let Some(sent) = self.sender.poll_transmit(now) {
            self.note_started(now, ledger);
            return Some((End::Sender, sent.payload));
        }
        if let Some(sent) = self.receiver.poll_transmit(now) {
            return Some((End::Receiver, sent.payload));
        }
        self.events(now, ledger);
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min()
    }

    fn estimate(&mut self) -> Option<f64> {
        Some(self.sender.status(self.peer)?.forecast.rate?.bits() as f64 / 8.0)
    }

    fn trouble(&self) -> Option<String> {
        self.lost.clone()
    }
}
