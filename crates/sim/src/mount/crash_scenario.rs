//! A program on a mount that writes back, whose process is killed or whose machine loses power at any step.
//!
//! What a close acknowledged survives a kill, what an fsync acknowledged also a loss of power; both reach the server. A file
//! that the program was changing at the crash may have any contents. A file whose WRITEs were in flight at the crash may be
//! kept on the disk instead of sent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Rng;
use remora_cache::{Config, DirtyPart, SavedObject, Writes};
use remora_wire::fuse::Errno;

use super::disk_cache::DiskFaults;
use super::system_calls::Machine;
use super::world::{Faults, Shared, World, run as run_programs};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const FILE_MAX: u64 = 40_000;
const OPERATIONS: u64 = 30;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What the promises do not allow.
    pub violations: Vec<String>,
    pub operations: u64,
    pub crashes: u64,
    /// Files that were kept and not sent, because WRITEs were in flight at a crash.
    pub kept: u64,
}

/// What the program knows of a file.
#[derive(Clone, Debug, Default)]
struct Known {
    data: Vec<u8>,
    /// Acknowledged by an fsync after the last write.
    is_synced: bool,
}

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    let mut rng = Rng::stream(seed, "crash scenario");
    let delays = [Duration::from_micros(50), Duration::from_millis(5), Duration::from_millis(300)];
    let faults = Faults {
        delay: delays[rng.below(3) as usize],
        late: 0.02,
        loss: [0.0, 0.2][rng.below(2) as usize],
        duplicates: 0.05,
        tick: Duration::from_nanos(1),
        block: [32 << 10, 2 << 10][rng.below(2) as usize],
        sync_max: 0,
        disk_cache: DiskFaults::USUAL,
    };
    let mut world = World::new(seed, faults);
    if rng.chance(0.3) {
        let after = Duration::from_millis(rng.below(20_000));
        world.crash_after(after);
    }
    let has_disk_cache = rng.chance(0.7);
    let mount = world.mount(config(1, has_disk_cache));
    let world = Shared(Rc::new(RefCell::new(world)));
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let program = Program {
        world: world.clone(),
        rng,
        mount: Cell::new(mount),
        model: BTreeMap::new(),
        outcome: outcome.clone(),
        has_disk_cache,
    };
    let stuck = run_programs(&world, vec![Box::pin(program.run())]);
    let mut outcome = outcome.borrow().clone();
    outcome.violations.extend(stuck.err());
    outcome
}

fn config(client_id: u64, has_disk_cache: bool) -> Config {
    let disk_file_max = if has_disk_cache { 1 << 20 } else { 0 };
    Config { writes: Writes::Back, client_id, disk_file_max, ..Config::default() }
}

struct Program {
    world: Shared,
    rng: Rng,
    mount: Cell<usize>,
    model: BTreeMap<&'static str, Known>,
    outcome: Rc<RefCell<Outcome>>,
    has_disk_cache: bool,
}

impl Program {
    async fn run(mut self) {
        let mut crash_at = self.rng.below(OPERATIONS);
        for number in 0..OPERATIONS {
            let machine = self.machine();
            let Ok(dir) = machine.directory("dir").await else {
                return self.violation("the directory cannot be opened");
            };
            let name = NAMES[self.rng.below(NAMES.len() as u64) as usize];
            if self.kept().contains_key(name) {
                continue;
            }
            self.outcome.borrow_mut().operations += 1;
            if number == crash_at {
                crash_at = number + 1 + self.rng.below(OPERATIONS);
                self.crash_during(machine, dir, name).await;
            } else if let Err(errno) = self.write(&machine, dir, name).await {
                self.violation(&format!("writing {name} fails with {errno:?}"));
            }
            let pause = Duration::from_millis(self.rng.below(400));
            self.world.sleep(pause).await;
        }
        self.world.settle().await;
        self.check_server("at the end", false);
    }

    fn machine(&self) -> Machine<Shared> {
        Machine { world: self.world.clone(), mount: self.mount.get(), kill_after: None, open: Rc::default() }
    }

    fn violation(&self, what: &str) {
        let now = self.world.0.borrow().now;
        self.outcome.borrow_mut().violations.push(format!("{now:?}: {what}"));
    }

    /// Writes a file anew or at some places, and closes it.
    async fn write(&mut self, machine: &Machine<Shared>, dir: u64, name: &'static str) -> Result<(), Errno> {
        let is_new = !self.model.contains_key(name) || self.rng.chance(0.3);
        let file = if is_new { machine.create(dir, name, false).await? } else { machine.open(dir, name).await? };
        let mut data = if is_new { Vec::new() } else { self.model[name].data.clone() };
        for _ in 0..1 + self.rng.below(3) {
            let offset = self.rng.below(FILE_MAX / 2);
            let mut bytes = vec![0; 1 + self.rng.below(FILE_MAX / 2) as usize];
            self.rng.fill(&mut bytes);
            let end = offset as usize + bytes.len();
            data.resize(data.len().max(end), 0);
            data[offset as usize..end].copy_from_slice(&bytes);
            machine.write(file, offset, Bytes::from(bytes)).await?;
        }
        let is_synced = self.rng.chance(0.3);
        if is_synced {
            machine.fsync(file).await?;
        }
        let found = machine.read_open(file).await?;
        if found != data {
            self.violation(&format!("{name} is read back otherwise than it was written"));
        }
        machine.close(file).await?;
        self.model.insert(name, Known { data, is_synced });
        Ok(())
    }

    /// The crash comes at some time during an operation or after it.
    async fn crash_during(&mut self, machine: Machine<Shared>, dir: u64, name: &'static str) {
        let loses_power = self.rng.chance(0.4);
        let after = Duration::from_nanos(self.rng.below(60_000_000));
        let before = self.model.get(name).cloned();
        let is_done = {
            let world = self.world.clone();
            let writing = self.write(&machine, dir, name);
            let sleeping = world.sleep(after);
            first(writing, sleeping).await
        };
        self.outcome.borrow_mut().crashes += 1;
        let config = config(2, self.has_disk_cache);
        let mount = self.world.0.borrow_mut().crash_mount(self.mount.get(), loses_power, config);
        self.mount.set(mount);
        if !is_done {
            // Neither what it was nor what it becomes is promised.
            self.model.remove(name);
            drop(before);
        }
        self.world.settle().await;
        self.check_server(if loses_power { "after a loss of power" } else { "after a kill" }, loses_power);
        let kept = self.kept();
        self.outcome.borrow_mut().kept += kept.len() as u64;
        self.model = self.on_server();
        self.model.retain(|name, _| !kept.contains_key(*name));
        self.check_mount().await;
    }

    /// Checks that the mount shows what the server has, whatever its disk cache had.
    async fn check_mount(&self) {
        let machine = self.machine();
        let Ok(dir) = machine.directory("dir").await else {
            return self.violation("the directory cannot be opened after a crash");
        };
        for (name, known) in &self.model {
            match machine.read(dir, name).await {
                Ok(found) if found == known.data => {}
                Ok(_) => self.violation(&format!("{name} is read otherwise than the server has it")),
                Err(errno) => self.violation(&format!("reading {name} fails with {errno:?}")),
            }
        }
    }

    /// Files that are on the disk and not sent.
    fn kept(&self) -> BTreeMap<String, SavedObject> {
        let refused = self.world.0.borrow().refused(self.mount.get());
        let name = |saved: &SavedObject| String::from_utf8_lossy(&saved.record.path).replace("/dir/", "");
        refused.into_iter().map(|saved| (name(&saved), saved)).collect()
    }

    fn on_server(&self) -> BTreeMap<&'static str, Known> {
        let tree = self.world.0.borrow().fs.tree();
        let file = |name: &&'static str| {
            let node = tree.get(format!("dir/{name}").as_bytes())?;
            Some((*name, Known { data: node.content.to_vec(), is_synced: true }))
        };
        NAMES.iter().filter_map(file).collect()
    }

    /// Checks that the server has all acknowledged data.
    fn check_server(&self, when: &str, only_synced: bool) {
        let (server, kept) = (self.on_server(), self.kept());
        for (name, known) in self.model.iter().filter(|(_, known)| known.is_synced || !only_synced) {
            if let Some(saved) = kept.get(*name) {
                let is_ours = |part: &DirtyPart| known.data[part.offset as usize..].starts_with(&part.data);
                if !saved.data.iter().all(is_ours) {
                    self.violation(&format!("{when} {name} is kept with other bytes"));
                }
                continue;
            }
            match server.get(name) {
                Some(found) if found.data == known.data => {}
                Some(found) => {
                    let (ours, theirs) = (known.data.len(), found.data.len());
                    self.violation(&format!("{when} {name} differs: {ours} bytes acknowledged, {theirs} found"));
                }
                None => self.violation(&format!("{when} {name} is missing")),
            }
        }
    }
}

/// Runs both until one has ended. Returns whether the first has, and without an error.
async fn first(one: impl Future<Output = Result<(), Errno>>, other: impl Future<Output = ()>) -> bool {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        std::task::Poll::Ready(result) => std::task::Poll::Ready(result.is_ok()),
        std::task::Poll::Pending => other.as_mut().poll(context).map(|()| false),
    })
    .await
}
