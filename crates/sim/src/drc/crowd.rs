//! The load of several clients at once, and what the cache made of their duplicates: DRC 89's plan (section 6).

use std::collections::BTreeSet;

use remora_base::Time;
use remora_server::cache;
use remora_wire::nfs3::Proc;

use super::load::{Config, DrcError, contents, prepare, server_config};
use super::writer::{BLOCK, Process, WRITES, Writer, is_intact};
use crate::events::Trace;
use crate::net::{Hop, Medium};
use crate::world::{ClientNode, ServerNode, World};

/// Beyond any run: 64 clients write for a quarter of an hour if nothing is wasted.
const DEADLINE: Time = Time::from_secs(36_000);

/// Configuration of a run with several clients, each of which writes a file of its own.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Server, client machine, timers and cache.
    pub load: Config,
    /// Clients (1 to 64).
    pub clients: usize,
    /// LOOKUPs that a client sends beside each WRITE.
    pub lookups: u32,
    /// Retransmissions of a timeout cycle, after which the client takes a new xid; `None`: it keeps the first.
    pub cycle_retries: Option<u32>,
}

/// The result of a run. Calls are those that the form of the cache covers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CrowdOutcome {
    /// Retransmissions of all clients.
    pub retransmissions: u64,
    /// Duplicates that the cache recognised.
    pub hits: u64,
    /// Duplicates that the server executed again.
    pub executed_again: u64,
    /// Of these, calls that are not idempotent.
    pub non_idempotent_again: u64,
    /// Memory of the cache at the end.
    pub cache_bytes: usize,
    /// Until the last client closed its file.
    pub seconds: f64,
    /// KB per second of all clients together.
    pub speed: f64,
    /// Whether every file holds what was written.
    pub intact: bool,
}

impl CrowdOutcome {
    /// Share of the duplicates that the cache recognised, of those that reached it; `None` if none did.
    pub fn hit_rate(&self) -> Option<f64> {
        let duplicates = self.hits + self.executed_again;
        (duplicates > 0).then(|| self.hits as f64 / duplicates as f64)
    }
}

/// Runs the load of several clients once.
pub fn run_crowd(crowd: &Crowd, seed: u64) -> Result<CrowdOutcome, DrcError> {
    let mut server = ServerNode::new(server_config(&crowd.load), seed);
    let fs = server.fs().clone();
    let root = server.root_handle().ok_or(DrcError::SetUp)?;
    server.log_executions();
    let mut world = World::new(seed, server, Trace::quiet());
    let names: Vec<String> = (0..crowd.clients).map(|n| format!("file{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        prepare(&fs, name).ok_or(DrcError::SetUp)?;
        let process = Process::new(crowd.load.client.copy);
        let writer = Writer::new(root.clone(), name, process).with_lookups(crowd.lookups);
        let mut client = ClientNode::new(crowd.load.timers.config(), seed.wrapping_add(n as u64 * 7919), writer);
        if let Some(retries) = crowd.cycle_retries {
            client = client.with_timeout_cycles(retries);
        }
        world.add_client(client, Medium::Hop(Hop::clean(crowd.load.client.wire)));
    }
    let quiet =
        |w: &World<Writer>| w.clients.iter().all(|c| c.user().is_over()) && w.net.is_empty() && w.server.jobs() == 0;
    if !world.run(DEADLINE, quiet)? {
        return Err(DrcError::TooLong);
    }
    let mut seconds: f64 = 0.0;
    for client in &world.clients {
        seconds = seconds.max(client.user().ended().map_err(DrcError::Call)?.as_secs_f64());
    }
    let again = executed_again(&world, crowd);
    let (stats, cache_bytes) =
        world.server.core().map(|core| (core.stats().cache, core.cache_bytes())).unwrap_or_default();
    Ok(CrowdOutcome {
        retransmissions: world.clients.iter().map(|c| c.core().stats().retransmissions).sum(),
        hits: stats.in_progress_dropped + stats.in_progress_parked + stats.throwaway_dropped + stats.replays,
        executed_again: again.len() as u64,
        non_idempotent_again: again.iter().filter(|proc| proc.is_non_idempotent()).count() as u64,
        cache_bytes,
        seconds,
        speed: crowd.clients as f64 * f64::from(WRITES * BLOCK / 1024) / seconds,
        intact: names.iter().all(|name| contents(&fs, name).is_some_and(|bytes| is_intact(&bytes))),
    })
}

/// The procedures of repeated executions: of those that the cache covers, or, where it covers nothing before the
/// execution, of those that are not idempotent.
fn executed_again(world: &World<Writer>, crowd: &Crowd) -> Vec<Proc> {
    let mut seen = BTreeSet::new();
    // The xids of one client are another's with a probability of some millionths.
    let original = |xid: u32| world.clients.iter().map(|c| c.original_xid(xid)).find(|o| *o != xid).unwrap_or(xid);
    let counts = |proc: Proc| match crowd.load.cache {
        cache::Config::Off | cache::Config::Reference { .. } => proc.is_non_idempotent(),
        modified => modified.covers(proc),
    };
    let covered = world.server.executions().iter().filter(|e| counts(e.proc));
    covered.filter(|e| !seen.insert(original(e.xid))).map(|e| e.proc).collect()
}
