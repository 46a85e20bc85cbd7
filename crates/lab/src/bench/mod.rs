//! `remora bench`: the speed of an NFSv3 server, alone or beside another.
//!
//! [`run`] mounts, makes a scratch directory (`scratch`) and loads the server with one [`Operation`] after the
//! other, in a closed loop with a fixed number of outstanding calls. With two servers, each round runs both in
//! random order and the rounds' ratios are compared. A wrong reply ends the benchmark.
//!
//! Read `operations` and `plan` (calls, encoded once and patched), `engine` (a thread for each connection),
//! `lane` (outstanding calls), `check` (replies), `outbox` and `socket` (many messages in a system call), then
//! `report`. The generator is far cheaper than a server; its processor time is in the report.

mod check;
pub mod drc;
mod engine;
mod lane;
mod operations;
mod options;
mod outbox;
mod plan;
mod report;
mod scratch;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Length, RunLoad};
use indicatif::ProgressBar;
use options::{FILL_OUTSTANDING, LISTINGS};
use plan::{Encoder, Image};
use remora_base::Rng;
use remora_client::{ClientConfig, Transport};
use remora_host::client::ClientError;
use remora_host::{Clock, client};
use remora_wire::rpc::OpaqueAuth;
use scratch::{FileNeeds, Scratch, ScratchFiles};

use super::report::progress::bar;

pub use operations::{ALL, Operation, named};
pub use options::{BenchError, BenchTarget, CONNECTIONS_MAX, FILES_MAX, OUTSTANDING_MAX, Options, ROUNDS_MAX};
pub use report::{
    BenchReport, BenchSettings, Latency, OperationReport, RunReport, ServerMeasurement, ServerRatio, Skipped,
};
pub use socket::Fault;

/// A scratch directory that could not be removed.
#[derive(Debug)]
pub struct Left {
    pub url: String,
    pub name: String,
    pub source: ClientError,
}

/// Measures and then removes its files, even after a failure or `stop`. Returns what could not be removed.
pub async fn run(options: Options, stop: Arc<AtomicBool>) -> (Result<BenchReport, BenchError>, Vec<Left>) {
    let runs = options.operations.len() * options.rounds * options.targets.len();
    let bar = bar(runs as u64, "runs", options.bar);
    bar.enable_steady_tick(Duration::from_millis(200));
    let bench = Benchmark { image: Arc::new(scratch::image()), stop, bar, options };
    let mut sites = Vec::new();
    let result = bench.all(&mut sites).await;
    bench.bar.finish_and_clear();
    let mut left = Vec::new();
    for site in sites {
        if let Err(source) = site.scratch.remove().await {
            left.push(Left { url: site.url, name: site.scratch.name, source });
        }
    }
    (result, left)
}

struct Site {
    url: String,
    scratch: Scratch,
    server: SocketAddr,
    /// Largest READ and WRITE, known after `open`.
    limits: (u32, u32),
}

impl Site {
    async fn mount(place: &BenchTarget, options: &Options) -> Result<Site, BenchError> {
        let url = place.url.clone();
        let failed = |source| BenchError::Client { url: url.clone(), source };
        let transport = place.target.transport.unwrap_or(Transport::Tcp);
        let give_up = Some(options.patience);
        let config = ClientConfig { cred: options.cred.clone(), give_up, ..ClientConfig::new(transport) };
        let seed = random()?;
        let settings = client::Options { config, seed, clock: Clock::start() };
        let session = client::mount(&place.target, &place.target.path, settings).await.map_err(failed)?;
        let server = session.addr();
        let name = format!("remora-bench-{seed:016x}");
        let scratch = Scratch::make(session, name).await.map_err(failed)?;
        Ok(Site { url, scratch, server, limits: (0, 0) })
    }

    async fn open(&mut self) -> Result<(), BenchError> {
        let failed = |source| BenchError::Client { url: self.url.clone(), source };
        self.limits = self.scratch.open().await.map_err(failed)?;
        Ok(())
    }
}

struct Benchmark {
    options: Options,
    image: Arc<Image>,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Benchmark {
    /// Mounts, prepares and measures. `sites` gets everything that was mounted, even after a failure.
    async fn all(&self, sites: &mut Vec<Site>) -> Result<BenchReport, BenchError> {
        self.bar.set_message("preparing");
        for place in &self.options.targets {
            // Its directory exists from here on and is removed in any case.
            sites.push(Site::mount(place, &self.options).await?);
            if let Some(site) = sites.last_mut() {
                site.open().await?;
            }
        }
        let mut prepared = Vec::new();
        for site in sites.iter() {
            prepared.push((site, self.prepare(site).await?));
        }
        let mut report = BenchReport::new(&self.options);
        let mut orders = Rng::stream(self.options.seed, "bench rounds");
        for operation in &self.options.operations {
            if let Some((site, why)) = sites.iter().find_map(|s| Some((s, s.obstacle(operation)?))) {
                report.skip(operation, &site.url, why);
                self.bar.inc((self.options.rounds * sites.len()) as u64);
                continue;
            }
            let mut done: Vec<Vec<engine::EngineRun>> = vec![Vec::new(); sites.len()];
            for round in 0..self.options.rounds {
                for nth in order(sites.len(), &mut orders) {
                    self.bar.set_message(operation.name);
                    let (Some((site, files)), Some(of)) = (prepared.get(nth), done.get_mut(nth)) else { continue };
                    of.push(self.one(operation, site, files, round).await?);
                    self.bar.inc(1);
                }
            }
            report.add(operation, &done);
        }
        Ok(report)
    }

    async fn prepare(&self, site: &Site) -> Result<ScratchFiles, BenchError> {
        let failed = |source| BenchError::Client { url: site.url.clone(), source };
        let needs = self.options.operations.iter().map(Operation::needs).fold(FileNeeds::default(), FileNeeds::and);
        let files = tokio::select! {
            files = site.scratch.fill(&self.image, needs) => files.map_err(failed)?,
            () = stopped(&self.stop) => return Err(BenchError::Interrupted),
        };
        if let Some(many) = &files.many {
            self.bar.set_message("making files");
            let plan = operations::creation(many, &self.encoder()).ok_or(BenchError::Local("nothing to create"))?;
            let length = Length::Scripts(self.options.files);
            let load = RunLoad { outstanding: FILL_OUTSTANDING, connections: 1, length, ..self.load(site, 0)? };
            self.on_threads(plan, load).await.map_err(|e| site.fault("making files", e))?;
        }
        Ok(files)
    }

    async fn one(
        &self,
        operation: &Operation,
        site: &Site,
        files: &ScratchFiles,
        round: usize,
    ) -> Result<engine::EngineRun, BenchError> {
        let plan = operation.plan(files, &self.encoder(), &self.image, site.scratch.transport());
        let plan = plan.ok_or(BenchError::Local("a needed file is missing"))?;
        let mut load = self.load(site, round)?;
        if operation.lists() {
            (load.outstanding, load.connections, load.length) = (1, 1, Length::Scripts(LISTINGS));
        }
        let done = self.on_threads(plan, load).await.map_err(|e| site.fault(operation.name, e))?;
        if operation.lists() && done.tally.entries != self.options.files * done.tally.operations {
            let wrong = Fault::Foreign("a listing with missing or repeated entries");
            return Err(site.fault(operation.name, wrong));
        }
        Ok(done)
    }

    fn encoder(&self) -> Encoder {
        Encoder { cred: OpaqueAuth::unix(&self.options.cred) }
    }

    /// The load of a run, the same for all servers in a round.
    fn load(&self, site: &Site, round: usize) -> Result<RunLoad, BenchError> {
        let options = &self.options;
        let length = match options.count {
            Some(n) => Length::Scripts(n),
            None => Length::Time { warm_up: options.warm_up, measured: options.duration },
        };
        Ok(RunLoad {
            server: site.server,
            transport: site.scratch.transport(),
            outstanding: options.outstanding,
            connections: options.connections,
            length,
            patience: options.patience,
            files: options.files,
            seed: options.seed.wrapping_add(round as u64),
            nonce: random()?,
        })
    }

    async fn on_threads(&self, plan: plan::CallPlan, load: RunLoad) -> Result<engine::EngineRun, Fault> {
        let (image, stop) = (self.image.clone(), self.stop.clone());
        let work = tokio::task::spawn_blocking(move || engine::run(&plan, &image, &load, &stop));
        work.await.unwrap_or(Err(Fault::Interrupted))
    }
}

impl Site {
    fn obstacle(&self, operation: &Operation) -> Option<String> {
        operation.obstacle(self.scratch.transport(), self.limits.0, self.limits.1)
    }

    fn fault(&self, operation: &'static str, fault: Fault) -> BenchError {
        match fault {
            Fault::Interrupted => BenchError::Interrupted,
            source => BenchError::Run { url: self.url.clone(), operation, source },
        }
    }
}

fn random() -> Result<u64, BenchError> {
    getrandom::u64().map_err(|_| BenchError::Local("the system has no random numbers"))
}

async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(socket::TURN).await;
    }
}

/// `0..n` in random order (Fisher-Yates).
fn order(n: usize, random: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_starts_with_either_server() {
        let mut random = Rng::stream(1, "order");
        let firsts: Vec<usize> = (0..100).map(|_| order(2, &mut random)[0]).collect();
        let ones = firsts.iter().filter(|f| **f == 1).count();
        assert!((30..70).contains(&ones), "{ones}");
        assert_eq!(order(1, &mut random), [0]);
    }
}
