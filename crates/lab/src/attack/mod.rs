//! Attacks on a live `remora serve`, each for a bounded time, beside a well-behaved reference client.
//!
//! An attack passes if every reply conforms to the documentation, a counter shows the attack to the operator, the
//! server's memory stays within its limit, the reference client gets correct replies in time, and the server then
//! exits cleanly. Each attack has its own server. Read `target` (the server), `ground` (what an attack uses),
//! `reference_client`, `report`, then the attacks: `streams`, `messages`, `files`, `addresses`, `memory`.

mod addresses;
mod files;
mod ground;
mod memory;
mod messages;
mod reference_client;
mod report;
mod streams;
mod target;

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ground::{AttackResult, CALM, Ground, LOOK, MIB, NETWORK, PATIENCE};
use reference_client::{Experience, ReferenceClient};
use target::{Counters, Process, ServerLimits, Target};

use super::raw::Stream;

pub use ground::AttackPlan;
pub use report::{AttackReport, Row, Verdict};

struct Attack {
    name: &'static str,
    stage: ServerLimits,
    /// Server counters of which at least one must rise.
    counted: &'static [&'static str],
    /// Highest memory growth of the server in MiB: see docs/internals/attack.md.
    memory_max_mib: u64,
    /// The reference client must keep its rate, with half the latency limit.
    keeps_rate: bool,
    run: fn(&Ground) -> AttackResult,
}

/// All memory but caches: stacks and heaps of some threads.
const SMALL: u64 = 64;
/// Request memory of one address, and the duplicate request cache.
const SHARE: u64 = 64 + 64 + SMALL;

const fn attack(name: &'static str, counted: &'static [&'static str], run: fn(&Ground) -> AttackResult) -> Attack {
    let stage = ServerLimits { files_max: None, disk_bytes: None, allow: None, has_network: false };
    Attack { name, stage, counted, memory_max_mib: SMALL, keeps_rate: false, run }
}

impl Attack {
    const fn memory(self, memory_max_mib: u64) -> Attack {
        Attack { memory_max_mib, ..self }
    }

    const fn files(self, files_max: u32) -> Attack {
        Attack { stage: ServerLimits { files_max: Some(files_max), ..self.stage }, ..self }
    }

    const fn disk(self, disk_bytes: u64) -> Attack {
        Attack { stage: ServerLimits { disk_bytes: Some(disk_bytes), ..self.stage }, ..self }
    }

    const fn rate(self) -> Attack {
        Attack { keeps_rate: true, ..self }
    }

    /// By peers without access to any export.
    const fn strangers(self) -> Attack {
        Attack { stage: ServerLimits { allow: Some("127.0.0.1/32"), ..self.stage }, ..self }
    }

    const fn network(self) -> Attack {
        Attack { stage: ServerLimits { has_network: true, ..self.stage }, ..self }
    }
}

const ATTACKS: &[Attack] = &[
    attack("slow-loris", &["connections", "closed_partial"], streams::slow_loris),
    attack("connection-flood", &["refused", "closed_idle"], streams::connection_flood).files(1024),
    attack("pinging-flood", &["refused", "closed_idle"], streams::pinging_flood).files(1024),
    attack("reset-storm", &["closed_by_client"], streams::reset_storm),
    attack("oversized-marks", &["closed_bad_record"], streams::oversized_marks),
    attack("empty-records", &["closed_bad_record", "not_calls"], streams::empty_records),
    attack("half-requests", &["connections"], streams::half_requests).memory(SHARE),
    attack("never-reads", &["under_way", "closed_stalled"], streams::never_reads).memory(SHARE),
    attack("pipelined-10000", &["messages"], streams::pipelined).memory(SHARE),
    attack("gid-bombs", &["bad_auth"], messages::gid_bombs),
    attack("garbage", &["bad_arguments", "not_calls"], messages::garbage).memory(SHARE),
    attack("wrong-versions", &["bad_program", "bad_rpc_version"], messages::wrong_versions),
    attack("replays", &["cache_replays"], messages::replays).memory(SHARE),
    attack("forged-handles", &["bad_handles"], files::forged),
    attack("bad-names", &["failed"], files::bad_names),
    attack("extreme-ranges", &["failed", "bad_arguments"], files::extreme_ranges).memory(SHARE),
    attack("bad-cookies", &["failed"], files::bad_cookies).memory(SHARE),
    attack("permissions-taken", &["failed"], files::permissions_taken),
    attack("disk-full", &["failed"], files::disk_full).disk(4 * MIB).memory(SHARE),
    attack("portmap-abuse", &["bad_procedure"], addresses::portmap_abuse),
    attack("mount-flood", &["mount_calls"], addresses::mount_flood),
    attack("datagram-flood", &["datagrams_in", "datagrams_dropped"], addresses::datagram_flood).memory(SHARE),
    attack("half-records", &["connections"], memory::half_records).strangers().rate(),
    attack("dripped-records", &["connections", "closed_partial"], memory::dripped_records).rate(),
    attack("unread-refusals", &["denied", "closed_stalled"], memory::unread_refusals).strangers().rate(),
    attack("unread-replies", &["under_way", "closed_stalled"], memory::unread_replies).memory(SHARE).rate(),
    attack("unread-network", &["under_way", "closed_stalled"], memory::unread_replies_network)
        .memory(SHARE)
        .network()
        .rate(),
    attack("unread-datagrams", &["datagrams_in"], memory::unread_datagrams).memory(SHARE).rate(),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    ATTACKS.iter().map(|a| a.name)
}

/// Runs the attacks of `plan` one after the other. `tell` is called after each.
pub fn run(plan: &AttackPlan, mut tell: impl FnMut(&Row)) -> Result<AttackReport, String> {
    if let Some(unknown) = plan.names.iter().find(|name| !names().any(|n| n == name.as_str())) {
        return Err(format!("no attack '{unknown}'; there are: {}", names().collect::<Vec<_>>().join(", ")));
    }
    let chosen = ATTACKS.iter().filter(|a| plan.names.is_empty() || plan.names.iter().any(|n| n == a.name));
    let mut rows = Vec::new();
    for attack in chosen {
        let row = one(attack, plan).unwrap_or_else(|e| Row::broken(attack.name, e.to_string()));
        // An interrupted attack proves nothing.
        if plan.stop.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        tell(&row);
        rows.push(row);
    }
    Ok(AttackReport { seconds: plan.length.as_secs_f64(), seed: plan.seed, rows })
}

fn obstacle(attack: &Attack) -> Option<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let root_only = match attack.stage {
        ServerLimits { disk_bytes: Some(_), .. } => "mounting a small file system needs root",
        ServerLimits { has_network: true, .. } => "a network namespace needs root",
        ServerLimits { .. } => return None,
    };
    (!is_root).then_some(root_only)
}

/// Runs `work` on a thread with its own network namespace.
fn in_namespace<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let inside = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        let route = format!("{NETWORK}/64");
        for args in [&["link", "set", "lo", "up"][..], &["-6", "route", "add", "local", &route, "dev", "lo"]] {
            if !Command::new("ip").args(args).status()?.success() {
                return Err(io::Error::other(format!("ip {} failed", args.join(" "))));
            }
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

fn one(attack: &Attack, plan: &AttackPlan) -> io::Result<Row> {
    if let Some(why) = obstacle(attack) {
        return Ok(Row::skipped(attack.name, why));
    }
    if attack.stage.has_network { in_namespace(|| carry_out(attack, plan)) } else { carry_out(attack, plan) }
}

fn carry_out(attack: &Attack, plan: &AttackPlan) -> io::Result<Row> {
    let target = Target::start(&plan.program, attack.stage)?;
    let mut good = ReferenceClient::new(target.addr)?;
    let calm_until = Instant::now() + CALM;
    let calm = attack.keeps_rate.then(|| good.run(|| Instant::now() >= calm_until));
    let ground = Ground::new(&target, plan, attack.stage)?;
    let before = target.counters()?;
    let process = target.process();
    let memory_before = process.memory_bytes();
    let over = AtomicBool::new(false);
    let (told, experience, memory_max) = std::thread::scope(|scope| {
        let good = scope.spawn(|| good.run(|| over.load(Ordering::Relaxed)));
        let memory = scope.spawn(|| watch_memory(process, &over));
        let told = (attack.run)(&ground);
        over.store(true, Ordering::Relaxed);
        let experience = good.join().unwrap_or_else(|_| Experience::none("it panicked"));
        (told, experience, memory.join().unwrap_or_default())
    });
    let after = target.counters()?;
    let alive = still_answers(target.addr);
    let seen = ground.seen.lock().map(|seen| seen.clone()).unwrap_or_default();
    drop(ground);
    let mut row = Row {
        name: attack.name,
        counted: counted(attack, &before, &after, &seen),
        memory_mib: memory_max.saturating_sub(memory_before) / MIB,
        memory_max_mib: attack.memory_max_mib,
        good_calls: experience.calls,
        good_p99_ms: experience.p99.as_secs_f64() * 1e3,
        good_max_ms: experience.max.as_secs_f64() * 1e3,
        good_rate_ratio: calm.map(|calm| experience.rate / calm.rate),
        ..Row::default()
    };
    match told {
        Ok(happened) => row.happened = happened,
        Err(e) => row.complain(e),
    }
    if let Err(e) = alive {
        row.complain(format!("the server does not answer a new client: {e}"));
    }
    let ended = target.stop()?;
    if let Err(instead) = ended.how {
        row.complain(format!("the server did not exit cleanly, in {:?}: {instead}", ended.took));
    }
    let p99_max = if attack.keeps_rate { plan.p99_max / 2 } else { plan.p99_max };
    row.judge(experience.error, p99_max, plan.rate_ratio_min);
    Ok(row)
}

/// Checks that a new client is served. The server may need a moment to notice that attackers have left.
fn still_answers(addr: SocketAddr) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = Stream::connect_from(reference_client::ADDRESS, addr, PATIENCE).and_then(|mut s| s.mount("/srv"));
        match answer {
            Ok(_) => return Ok(()),
            Err(e) if Instant::now() >= until => return Err(e),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// Increases of the attack's counters. Of gauges, the samples taken during the attack count.
fn counted(attack: &Attack, before: &Counters, after: &Counters, seen: &Counters) -> Vec<(String, u64)> {
    let of = |name: &str| {
        let from = before.get(name).copied().unwrap_or_default();
        let to = after.get(name).copied().unwrap_or_default();
        to.max(seen.get(name).copied().unwrap_or_default()).saturating_sub(from)
    };
    attack.counted.iter().map(|name| ((*name).to_owned(), of(name))).filter(|(_, n)| *n > 0).collect()
}

fn watch_memory(process: Process, over: &AtomicBool) -> u64 {
    let mut max = 0;
    while !over.load(Ordering::Relaxed) {
        max = max.max(process.memory_bytes());
        std::thread::sleep(LOOK);
    }
    max
}
