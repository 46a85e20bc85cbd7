//! Runs a scenario: the safety phase, the liveness phase and the final check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use remora_base::{Path, Rng, Time};
use remora_client::Transport;
use remora_vfs::memory::OpKind;
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::nfs3::{Fh, SetAttr, Status};

use crate::events::Trace;
use crate::swarm::oracle::Tree;
use crate::swarm::scenario::{ClientPlan, Scenario};
use crate::swarm::workload::{Actor, ActorConfig, SHARED, Sharer, Tally, Users, Worker};
use crate::world::ClientNode;
use crate::world::World;
use crate::world::{ServerNode, ServerStats};

/// Time for all requests after the end of the faults: two of the clients' longest timeouts, and
/// time to read back.
pub const LIVENESS: Duration = Duration::from_secs(300);

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Errors found; empty if none.
    pub violations: Vec<String>,
    /// Hash of the run: the same for the same scenario and seed.
    pub trace: u64,
    /// End of the run.
    pub ended: Time,
    /// Operations done, and those of them that were excused.
    pub operations: (u64, u64),
    /// Messages that the network accepted, including retransmissions.
    pub messages: u64,
    pub retransmissions: u64,
    pub server: ServerStats,
}

pub fn run(scenario: &Scenario, seed: u64, trace: Trace) -> Outcome {
    let server = ServerNode::new(scenario.server.clone(), seed);
    let mut violations = Vec::new();
    let Some(root) = server.root_handle() else {
        violations.push("the server gives no root handle".into());
        return outcome(&World::new(seed, server, trace), violations);
    };
    let fs = server.fs().clone();
    create_directories(&fs, scenario);
    let mut world = World::new(seed, server, trace);
    match scenario.radio(seed).transpose() {
        Ok(radio) => radio.into_iter().for_each(|r| world.net.set_radio(r)),
        Err(why) => violations.push(why.to_string()),
    }
    for (n, (plan, medium)) in scenario.clients.iter().zip(scenario.media()).enumerate() {
        let users = Users::new(workers(scenario, plan, n, &root, &fs, seed), fs.clone());
        world.add_client(ClientNode::new(client_config(plan, n), seed.wrapping_add(n as u64), users), medium);
    }
    for (at, fault) in &scenario.faults {
        world.plan(*at, *fault);
    }
    fail_disk(&fs, scenario.disk_error_chance, seed);
    run_phases(scenario, &mut world, &mut violations);
    outcome(&world, violations)
}

fn client_config(plan: &ClientPlan, n: usize) -> remora_client::ClientConfig {
    let mut config = plan.config.clone();
    (config.cred.uid, config.cred.gid) = (uid(n), uid(n));
    config
}

fn uid(client: usize) -> u32 {
    1000 + client as u32
}

fn home(client: usize, actor: usize) -> String {
    format!("c{client}a{actor}")
}

/// Creates the common directories.
fn create_directories(fs: &MemFs, scenario: &Scenario) {
    let make = |name: &str, uid: u32, mode: u32| {
        let cred = Cred { uid, gid: uid, gids: Vec::new() };
        let attr = SetAttr { mode: Some(mode), ..SetAttr::NONE };
        let made = fs.mkdir(&cred, &fs.root(), name.as_bytes(), &attr);
        debug_assert!(made.is_ok(), "{name}: {made:?}");
    };
    make(SHARED, 0, 0o777);
    for (n, plan) in scenario.clients.iter().enumerate() {
        (0..plan.actors).for_each(|a| make(&home(n, a), uid(n), 0o755));
    }
}

fn workers(scenario: &Scenario, plan: &ClientPlan, n: usize, root: &Fh, fs: &Arc<MemFs>, seed: u64) -> Vec<Worker> {
    let path = match plan.config.transport {
        Transport::Udp => Path::Datagram,
        Transport::Tcp | Transport::Atp => Path::Stream(0),
    };
    let io_max = scenario.server.limits.io_max(path);
    let disk_errors = scenario.disk_error_chance > 0.0;
    let actor = |a| {
        let (think, fs) = (scenario.think, fs.clone());
        let group_commit = scenario.server.group_commit;
        let config = ActorConfig { home: home(n, a), root: root.clone(), fs, think, io_max, disk_errors, group_commit };
        Worker::Actor(Actor::random(config, scenario.mix, seed))
    };
    let mut workers: Vec<Worker> = (0..plan.actors).map(actor).collect();
    if plan.shares {
        let name = format!("{n}");
        workers.push(Worker::Sharer(Sharer::new(root.clone(), &name, scenario.think, disk_errors, seed)));
    }
    workers
}

/// Makes disk operations fail at random.
fn fail_disk(fs: &MemFs, chance: f64, seed: u64) {
    if chance > 0.0 {
        let mut rng = Rng::stream(seed, "disk errors");
        // Lookups are spared half of the time, so that actors make progress.
        fs.set_fault(move |kind| {
            let asks = matches!(kind, OpKind::GetAttr | OpKind::Access | OpKind::Lookup);
            rng.chance(if asks { chance / 2.0 } else { chance }).then_some(Status::Io)
        });
    }
}

/// The safety phase, the end of all faults, the liveness phase, and the final check.
fn run_phases(scenario: &Scenario, world: &mut World<Users>, violations: &mut Vec<String>) {
    if let Err(stuck) = world.run(scenario.heal_at, any_violation) {
        return violations.push(stuck.to_string());
    }
    check(world, "at the end of all faults");
    world.heal();
    for n in 0..world.clients.len() {
        world.tell(n, Users::wind_down);
    }
    match world.run(scenario.heal_at + LIVENESS, |w| any_violation(w) || is_quiet(w)) {
        Err(stuck) => violations.push(stuck.to_string()),
        Ok(false) => violations.extend(unanswered(world)),
        Ok(true) => final_check(world, violations),
    }
    let bound = scenario.memory_bound();
    if world.server.stats().memory_max > bound {
        let held = world.server.stats().memory_max;
        violations.push(format!("the server held {held} bytes, above its limit of {bound}"));
    }
    if scenario.exactly_once() && world.server.stats().executed_again > 0 {
        violations.push(format!("{} non-idempotent requests were executed again", world.server.stats().executed_again));
    }
}

fn any_violation(world: &World<Users>) -> bool {
    world.clients.iter().any(|c| c.user().violations().next().is_some())
}

/// Whether no request is outstanding and no duplicate could still do harm.
fn is_quiet(world: &World<Users>) -> bool {
    world.clients.iter().all(|c| c.user().is_idle() && c.core().is_idle())
        && world.net.is_empty()
        && world.server.jobs() == 0
}

fn unanswered(world: &World<Users>) -> Vec<String> {
    let waiting = world.clients.iter().flat_map(|c| c.user().workers()).filter_map(|w| match w {
        Worker::Actor(a) => a.waiting_for(),
        Worker::Sharer(s) => (!s.is_idle()).then(|| "a sharer".to_string()),
    });
    let late = |what| format!("{LIVENESS:?} after all faults ended, {what} is still unanswered");
    let mut all: Vec<String> = waiting.map(late).collect();
    if all.is_empty() {
        all.push(format!("{LIVENESS:?} after all faults ended, there is still traffic"));
    }
    all
}

fn check(world: &mut World<Users>, when: &str) -> Tree {
    let (now, tree) = (world.now(), world.server.fs().tree());
    for n in 0..world.clients.len() {
        world.tell(n, |users| users.check(now, &tree, when));
    }
    tree
}

/// The final check: all files match their owners' models, also after a crash.
fn final_check(world: &mut World<Users>, violations: &mut Vec<String>) {
    let tree = check(world, "in the end");
    violations.extend(check_shared(world, &tree));
    world.server.fs().crash();
    check(world, "in the end, after a crash");
}

fn check_shared(world: &World<Users>, tree: &Tree) -> Vec<String> {
    let mut sums: BTreeMap<u64, Tally> = BTreeMap::new();
    for worker in world.clients.iter().flat_map(|c| c.user().workers()) {
        let Worker::Sharer(sharer) = worker else { continue };
        for (name, tally) in sharer.tallies() {
            let sum = sums.entry(*name).or_default();
            sum.balance += tally.balance;
            sum.unknown += tally.unknown;
        }
    }
    let known = sums.into_iter().filter(|(_, sum)| sum.unknown == 0);
    known
        .filter_map(|(name, Tally { balance, .. })| {
            let path = Sharer::path(name);
            let there = i64::from(tree.contains_key(path.as_bytes()));
            (balance != there).then(|| format!("{path}: creations minus removals are {balance}, but {there} exist"))
        })
        .collect()
}

fn outcome(world: &World<Users>, mut violations: Vec<String>) -> Outcome {
    violations.extend(world.clients.iter().flat_map(|c| c.user().violations()).cloned());
    let mut operations = (0, 0);
    for worker in world.clients.iter().flat_map(|c| c.user().workers()) {
        if let Worker::Actor(actor) = worker {
            let (done, excused) = actor.counts();
            operations = (operations.0 + done, operations.1 + excused);
        }
    }
    Outcome {
        violations,
        trace: world.trace.hash(),
        ended: world.now(),
        operations,
        messages: world.net.stats().sent,
        retransmissions: world.clients.iter().map(|c| c.core().stats().retransmissions).sum(),
        server: world.server.stats(),
    }
}
