//! ATP's endpoints as the programs of ATP 02, section 4 use it.

use std::net::{IpAddr, SocketAddr};

use remora_atp::session::{Config, Guests};
use remora_atp::{Final, Options, Outcome, Policy, estimate, scheduler};
use remora_host::atp::{AtpEndpoint, AtpError, Remote, Settings, keys};
use remora_host::emulate::{Emulator, Station};
use remora_sim::atp::message::{number_of, numbered};
use remora_sim::atp::{Pace, Told};
use tokio::task::JoinSet;

use super::cell::{Book, Cell};

/// Where the base listens.
const PORT: u16 = 4049;

/// A sender on the mobile and a receiver on the base.
pub(super) struct Ends {
    receiver: AtpEndpoint,
    // Kept, for with its last handle an endpoint is closed.
    _sender: AtpEndpoint,
    remote: Remote,
}

fn settings(policy: Policy, settings: Settings) -> Settings {
    let kind = match policy {
        Policy::Paper => estimate::Kind::Paper,
        Policy::Remora => estimate::Kind::Rate,
    };
    let session = Config {
        guests: Guests::Anyone,
        scheduler: scheduler::Config { policy, ..scheduler::Config::default() },
        estimator: estimate::Config::new(kind),
        ..Config::default()
    };
    Settings { session, ..settings }
}

impl Ends {
    /// Each policy comes with the estimator made for it.
    pub(super) async fn connect(policy: Policy, emulator: &Emulator) -> Result<Ends, String> {
        let bind = |station, settings| {
            let made = || {
                let identity = keys::generate().map_err(std::io::Error::other)?;
                AtpEndpoint::bind(settings, identity).map_err(std::io::Error::other)
            };
            emulator.within(station, made).map_err(|e| format!("{station}: {e}"))
        };
        let at = SocketAddr::new(IpAddr::V4(emulator.addr(Station::Base)), PORT);
        let receiver = bind(Station::Base, settings(policy, Settings::receiver(at)))?;
        let sender = bind(Station::Mobile(0), settings(policy, Settings::sender()))?;
        let remote = sender.connect(at, receiver.public_key()).map_err(words)?;
        remote.up().await.map_err(words)?;
        Ok(Ends { receiver, _sender: sender, remote })
    }

    /// Sends everything and waits for the ends of all.
    pub(super) async fn work(&mut self, cell: &Cell<'_>, book: &Book) -> Result<(), String> {
        let receiving = async {
            loop {
                let object = self.receiver.recv().await.map_err(words)?.object;
                book.note(|ledger, now| ledger.arrived(number_of(&object), now));
            }
        };
        tokio::select! {
            sent = send(&self.remote, cell, book) => sent,
            ended = receiving => ended,
        }
    }
}

async fn send(remote: &Remote, cell: &Cell<'_>, book: &Book) -> Result<(), String> {
    let mut under_way: JoinSet<Result<(), String>> = JoinSet::new();
    for (number, object) in cell.objects.iter().enumerate() {
        match cell.pace {
            Pace::Open => book.wait(object.arrival).await,
            Pace::Closed { at_once } => {
                while under_way.len() >= at_once.max(1) {
                    joined(under_way.join_next().await)?;
                }
            }
        }
        book.note(|ledger, now| ledger.entered(number, now));
        let options =
            Options { priority: object.class.priority(), deadline: Some(object.deadline), ..Options::default() };
        let request = remote.send(numbered(number, object.size), options).map_err(words)?;
        let book = book.clone();
        under_way.spawn(async move {
            let end = request.await.map_err(words)?;
            book.note(|ledger, now| ledger.told(number, now, told(&end)));
            Ok(())
        });
    }
    while !under_way.is_empty() {
        joined(under_way.join_next().await)?;
    }
    Ok(())
}

fn told(end: &Final) -> Told {
    match end.outcome {
        Outcome::Delivered => Told::Delivered,
        Outcome::Rejected(_) | Outcome::Evicted => Told::Rejected,
        Outcome::Expired | Outcome::Cancelled | Outcome::Lost => Told::Late,
    }
}

fn joined(ended: Option<Result<Result<(), String>, tokio::task::JoinError>>) -> Result<(), String> {
    ended.map_or(Ok(()), |e| e.map_err(|e| e.to_string())?)
}

fn words(e: AtpError) -> String {
    format!("ATP: {e}")
}
