//! DRC 89's plan (section 6): cache sizes over workloads, throwaway windows, many clients, and clients that take a new
//! xid for each timeout cycle. In virtual time.

use std::fmt::{self, Display};
use std::time::Duration;

use remora_server::cache;
use remora_sim::drc::{Client, Config, Crowd};
use serde::Serialize;

use super::cell::{Mode, Patience, Server};

/// An experiment of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plan {
    CacheSize,
    Throwaway,
    Clients,
    TimeoutCycles,
}

impl Plan {
    pub const ALL: [Plan; 4] = [Plan::CacheSize, Plan::Throwaway, Plan::Clients, Plan::TimeoutCycles];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Plan::CacheSize => "cache-size",
            Plan::Throwaway => "throwaway",
            Plan::Clients => "clients",
            Plan::TimeoutCycles => "timeout-cycles",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Plan::CacheSize => "Cache size and workload, small server",
            Plan::Throwaway => "Throwaway window of Juszczak's cache, 400 entries",
            Plan::Clients => "Number of clients, each with a file of its own",
            Plan::TimeoutCycles => "Clients with a new xid for each timeout cycle, small server",
        }
    }

    /// The axis of the drawings.
    pub(super) const fn x(self) -> Axis {
        match self {
            Plan::CacheSize => Axis::Size,
            Plan::Throwaway => Axis::Window,
            Plan::Clients => Axis::Clients,
            Plan::TimeoutCycles => Axis::Retries,
        }
    }

    pub(super) fn cells(self) -> Vec<PlanCell> {
        match self {
            Plan::CacheSize => cache_size(),
            Plan::Throwaway => throwaway(),
            Plan::Clients => clients(),
            Plan::TimeoutCycles => timeout_cycles(),
        }
    }
}

/// What varies within an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    Server,
    Cache,
    Workload,
    Size,
    Window,
    Clients,
    /// Retransmissions in a timeout cycle.
    Retries,
}

impl Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Axis::Server => "server",
            Axis::Cache => "cache",
            Axis::Workload => "workload",
            Axis::Size => "size",
            Axis::Window => "window",
            Axis::Clients => "clients",
            Axis::Retries => "retries a cycle",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Level {
    pub axis: Axis,
    pub level: String,
}

#[derive(Clone, Debug)]
pub(super) struct PlanCell {
    pub(super) levels: Vec<Level>,
    pub(super) crowd: Crowd,
}

fn level(axis: Axis, level: impl Display) -> Level {
    Level { axis, level: level.to_string() }
}

/// Clients that cannot all be served before they retransmit.
const MANY: usize = 16;
/// About the share of LOOKUPs and GETATTRs in traces of NFS then.
const LOOKUPS: u32 = 6;

fn crowd(server: Server, cache: cache::Config, clients: usize) -> Crowd {
    let timers = Patience::Reference.timers();
    let load = Config { server: server.machine(), client: Client::MICROVAX, timers, cache };
    Crowd { load, clients, lookups: 0, cycle_retries: None }
}

fn cache_size() -> Vec<PlanCell> {
    let entries = [16, 64, 256, 400, 1024, 4096, 16_384, 65_536].map(|entries| {
        let form = cache::Config::Juszczak { entries, throwaway: cache::Config::THROWAWAY };
        (Mode::Juszczak, form, format!("{entries}"))
    });
    let kib = [16, 64, 256, 1024, 4096, 65_536].map(|kib| {
        let form = cache::Config::Full { bytes_max: kib << 10, keep: cache::Config::KEEP };
        (Mode::Full, form, format!("{kib} KiB"))
    });
    let workloads = [("1 client", 1, 0), ("16 clients", MANY, 0), ("16 clients, LOOKUPs", MANY, LOOKUPS)];
    let mut cells = Vec::new();
    for (mode, form, size) in entries.into_iter().chain(kib) {
        for (workload, clients, lookups) in workloads {
            let levels =
                vec![level(Axis::Cache, mode.name()), level(Axis::Workload, workload), level(Axis::Size, &size)];
            cells.push(PlanCell { levels, crowd: Crowd { lookups, ..crowd(Server::Small, form, clients) } });
        }
    }
    cells.sort_by_key(|cell| workloads.map(|w| w.0).iter().position(|w| cell.level(Axis::Workload) == Some(w)));
    cells.sort_by_key(|cell| cell.level(Axis::Cache) != Some(Mode::Juszczak.name()));
    cells
}

fn throwaway() -> Vec<PlanCell> {
    let mut cells = Vec::new();
    for server in Server::ALL {
        for clients in [1, MANY] {
            for seconds in 1..=10 {
                let throwaway = Duration::from_secs(seconds);
                let form = cache::Config::Juszczak { entries: cache::Config::ENTRIES, throwaway };
                let levels = vec![
                    level(Axis::Server, server.name()),
                    level(Axis::Clients, clients),
                    level(Axis::Window, format!("{seconds} s")),
                ];
                cells.push(PlanCell { levels, crowd: crowd(server, form, clients) });
            }
        }
    }
    cells
}

fn clients() -> Vec<PlanCell> {
    let mut cells = Vec::new();
    for server in Server::ALL {
        for mode in [Mode::Off, Mode::Juszczak, Mode::Full] {
            for clients in [1, 2, 4, 8, 16, 32, 64] {
                let levels = vec![
                    level(Axis::Server, server.name()),
                    level(Axis::Cache, mode.name()),
                    level(Axis::Clients, clients),
                ];
                cells.push(PlanCell { levels, crowd: crowd(server, mode.config(), clients) });
            }
        }
    }
    cells
}

fn timeout_cycles() -> Vec<PlanCell> {
    let mut cells = Vec::new();
    for mode in [Mode::Juszczak, Mode::Full] {
        for clients in [1, MANY] {
            for cycle_retries in [Some(0), Some(1), Some(3), None] {
                let retries = cycle_retries.map_or_else(|| "one xid".to_owned(), |retries| retries.to_string());
                let levels =
                    vec![level(Axis::Cache, mode.name()), level(Axis::Clients, clients), level(Axis::Retries, retries)];
                let one_xid = crowd(Server::Small, mode.config(), clients);
                cells.push(PlanCell { levels, crowd: Crowd { cycle_retries, ..one_xid } });
            }
        }
    }
    cells
}

impl PlanCell {
    pub(super) fn level(&self, axis: Axis) -> Option<&str> {
        self.levels.iter().find(|l| l.axis == axis).map(|l| l.level.as_str())
    }
}
