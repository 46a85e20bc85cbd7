//! `remora bench --drc`: the cost of the server's duplicate request cache.
//!
//! For each form and fill of the cache, the time of
//! * **key**: the keyed hash of a request's credential and arguments, 128 bytes and 4 KiB;
//! * **miss**: a lookup of a new request;
//! * **insert**: a completion, which evicts an old reply if the cache is full;
//! * **hit**: a lookup of an answered request.
//!
//! Requests come from several clients in turn, over streams. Figures are medians of rounds.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_base::{Peer, Rng, Time};
use remora_server::cache::{Cache, Completion, Config, Connections, Keys, Request, Streams, Verdict};
use remora_wire::nfs3::Proc;
use remora_wire::rpc::{AuthUnix, OpaqueAuth};
use serde::Serialize;

use crate::report::statistics::Summary;
use crate::report::table::Table;

/// Replies in the cache before a measurement. The last fill exceeds the default limit, so that each insertion evicts a
/// reply.
const FILLS: [usize; 4] = [1_000, 10_000, 50_000, 100_000];
const CLIENTS: usize = 16;
/// Requests of a batch, all in progress at the same time.
const BATCH: usize = 512;
const ROUNDS: usize = 21;
/// Bytes of arguments: about a CREATE, and a WRITE of 4 KiB.
const ARGUMENTS: [usize; 2] = [128, 4096 + 128];
/// Bytes of a reply, as to CREATE.
const REPLY: usize = 280;

#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    pub version: &'static str,
    pub rounds: usize,
    pub requests_per_round: usize,
    /// Keyed hash, by bytes of arguments.
    pub keys: Vec<KeyCost>,
    pub caches: Vec<CacheCost>,
}

#[derive(Clone, Debug, Serialize)]
pub struct KeyCost {
    pub argument_bytes: usize,
    pub ns: Summary,
}

#[derive(Clone, Debug, Serialize)]
pub struct CacheCost {
    /// As in `remora serve --cache`.
    pub mode: &'static str,
    /// Replies in the cache before the measurement.
    pub fill: usize,
    /// Bytes that the cache reports.
    pub bytes: usize,
    pub miss_ns: Summary,
    /// Nanoseconds of reporting its completion.
    pub insert_ns: Summary,
    /// Nanoseconds of looking up an answered request; `None` if the cache does not answer it (`off`; `reference`,
    /// which is asked afterwards).
    pub hit_ns: Option<Summary>,
}

pub fn run() -> CacheReport {
    let keys = ARGUMENTS.into_iter().filter_map(key_cost).collect();
    let modes = ["off", "reference", "juszczak", "full"];
    let caches = modes.into_iter().flat_map(|mode| FILLS.into_iter().filter_map(move |fill| cost(mode, fill)));
    CacheReport {
        version: env!("CARGO_PKG_VERSION"),
        rounds: ROUNDS,
        requests_per_round: BATCH,
        keys,
        caches: caches.collect(),
    }
}

impl CacheReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::from("Keyed hash of a request, ns (median):\n");
        for key in &self.keys {
            text += &format!("  {:>5} bytes of arguments  {:>7.0}\n", key.argument_bytes, key.ns.median);
        }
        let head = ["cache", "replies held", "miss ns", "insert ns", "hit ns"];
        let ns = |s: &Summary| format!("{:.0}", s.median);
        let row = |c: &CacheCost| {
            let hit = c.hit_ns.as_ref().map_or("-".to_owned(), ns);
            vec![c.mode.to_owned(), c.fill.to_string(), ns(&c.miss_ns), ns(&c.insert_ns), hit]
        };
        text += &Table::new(1, head, self.caches.iter().map(row)).to_text_within(width);
        text + "Medians of rounds. Replies held counts insertions, which may exceed the cache's capacity.\n"
    }
}

/// The cache form `mode`, with `fill` entries if it counts entries.
fn config(mode: &str, fill: usize) -> Config {
    match mode {
        "reference" => Config::Reference { entries: fill },
        "juszczak" => Config::Juszczak { entries: fill, throwaway: Config::THROWAWAY },
        "full" => Config::full(),
        _ => Config::Off,
    }
}

fn key_cost(argument_bytes: usize) -> Option<KeyCost> {
    let (keys, cred) = (Keys::new(1), credential());
    let arguments = vec![7; argument_bytes];
    let round = |_| {
        let start = Instant::now();
        for xid in 0..BATCH as u32 {
            black_box(keys.request(peer(0), xid, Proc::Create, &cred, black_box(&arguments)));
        }
        each(start.elapsed())
    };
    let ns = Summary::of(&(0..ROUNDS).map(round).collect::<Vec<_>>())?;
    Some(KeyCost { argument_bytes, ns })
}

/// A cache and requests for it.
struct CacheBench {
    cache: Cache,
    live: Connections,
    keys: Keys,
    cred: OpaqueAuth,
    random: Rng,
    reply: Bytes,
    next: u32,
    now: Time,
}

fn cost(mode: &'static str, fill: usize) -> Option<CacheCost> {
    let mut bench = CacheBench::new(config(mode, fill));
    let (mut miss, mut insert, mut hit) = (Vec::new(), Vec::new(), Vec::new());
    let mut answered = Vec::new();
    while answered.len() < fill {
        let (requests, ..) = bench.round();
        answered.extend(requests);
    }
    let bytes = bench.cache.bytes();
    for _ in 0..ROUNDS {
        let (requests, missed, inserted) = bench.round();
        miss.push(missed);
        insert.push(inserted);
        answered.extend(requests);
        // Old replies of all ages: recent ones would be in the processor's caches.
        let young = answered.len().saturating_sub(fill.clamp(BATCH, 20_000));
        hit.extend(bench.hits(answered.get(young..).unwrap_or_default()));
    }
    let (miss_ns, insert_ns) = (Summary::of(&miss)?, Summary::of(&insert)?);
    Some(CacheCost { mode, fill, bytes, miss_ns, insert_ns, hit_ns: Summary::of(&hit) })
}

impl CacheBench {
    fn new(config: Config) -> CacheBench {
        let mut live = Connections::default();
        (0..CLIENTS).for_each(|n| live.heard(peer(n), Some(n as u32)));
        CacheBench {
            cache: Cache::new(config),
            live,
            keys: Keys::new(1),
            cred: credential(),
            random: Rng::stream(1, "bench of the cache"),
            reply: Bytes::from(vec![0; REPLY]),
            next: 0,
            now: Time::ZERO,
        }
    }

    /// Sends a batch of new requests through the cache. Returns them with the time of a look-up that finds no entry and
    /// that of an insertion.
    fn round(&mut self) -> (Vec<Request>, f64, f64) {
        // Slow enough that nothing expires.
        self.now += Duration::from_micros(10);
        let mut arguments = [0; ARGUMENTS[0]];
        let mut requests = Vec::with_capacity(BATCH);
        for n in 0..BATCH {
            self.random.fill(&mut arguments);
            requests.push(self.keys.request(peer(n % CLIENTS), self.next, Proc::Create, &self.cred, &arguments));
            self.next += 1;
        }
        let mut entries = Vec::with_capacity(BATCH);
        let start = Instant::now();
        for request in &requests {
            entries.push(match self.cache.begin(self.now, request, Streams::unsure(&self.live), true) {
                Verdict::Execute(entry) => entry,
                _ => None,
            });
        }
        let missed = each(start.elapsed());
        let start = Instant::now();
        for (request, entry) in requests.iter().zip(entries) {
            let done = Completion { reply: self.reply.clone(), ok: true, times: None };
            black_box(self.cache.finish(self.now, request, entry, &self.live, done));
        }
        (requests, missed, each(start.elapsed()))
    }

    /// Time of looking up answered requests; `None` if the cache does not recognise them.
    fn hits(&mut self, answered: &[Request]) -> Option<f64> {
        let drawn: Vec<Request> = (0..BATCH)
            .filter_map(|_| answered.get(self.random.below(answered.len() as u64) as usize))
            .copied()
            .collect();
        let start = Instant::now();
        let mut known = 0;
        for request in &drawn {
            let verdict = self.cache.begin(self.now, request, Streams::unsure(&self.live), true);
            known += usize::from(matches!(verdict, Verdict::Replay(_) | Verdict::Recent));
        }
        let took = each(start.elapsed());
        (known == BATCH).then_some(took)
    }
}

fn each(whole: Duration) -> f64 {
    whole.as_nanos() as f64 / BATCH as f64
}

/// The `n`-th client.
fn peer(n: usize) -> Peer {
    Peer::stream(SocketAddr::from(([10, 0, 0, n as u8], 700)), n as u64)
}

fn credential() -> OpaqueAuth {
    OpaqueAuth::unix(&AuthUnix { machine: Bytes::from_static(b"bench"), gids: vec![1, 2, 3], ..AuthUnix::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_form_recognises_its_duplicates() {
        for (mode, recognises) in [("off", false), ("reference", false), ("juszczak", true), ("full", true)] {
            let mut bench = CacheBench::new(config(mode, 10_000));
            let (requests, ..) = bench.round();
            assert_eq!(requests.len(), BATCH);
            assert_eq!(bench.hits(&requests).is_some(), recognises, "{mode}");
        }
    }
}
