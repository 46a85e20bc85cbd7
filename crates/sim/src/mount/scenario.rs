//! Programs on simulated mounts, each with a model of its directory.
//!
//! A program works in a directory of its own. Between two rounds it lets more time pass than the policy's bound, and
//! goes on at another machine, where everything that it closed must be visible.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Rng;
use remora_cache::{Config, Policy};
use remora_wire::fuse::Errno;

use super::disk_cache::DiskFaults;
use super::system_calls;
use super::world::{Faults, Shared, World, run as run_programs};

/// Programs of one machine of the world.
type Machine = system_calls::Machine<Shared>;

/// Names in a program's directory.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const FILE_MAX: u64 = 20_000;

/// What happens in a world.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub policy: Policy,
    pub machines: usize,
    pub programs: usize,
    pub rounds: usize,
    pub operations: usize,
    faults: Faults,
    /// Probability that the caller of an operation is killed.
    kills: f64,
    crashes: bool,
    dirty_max: u64,
    memory_max: u64,
    disk_file_max: u64,
    /// Probability that a mount is killed, or its machine loses power, between two rounds; between two operations a tenth.
    restarts: f64,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Scenario {
        let mut rng = Rng::stream(seed, "mount scenario");
        let policy = [Policy::STRICT, Policy::DEFAULT, Policy::RELAXED][rng.below(3) as usize];
        let delays = [Duration::from_micros(50), Duration::from_millis(5), Duration::from_millis(300)];
        let machines = 1 + rng.below(3) as usize;
        // Changes by another machine within one tick of the server's clock cannot be seen.
        let ticks = [Duration::from_nanos(1), Duration::from_millis(10), Duration::from_secs(1)];
        let tick = if machines == 1 { ticks[rng.below(3) as usize] } else { ticks[0] };
        let mut scenario = Scenario {
            policy,
            machines,
            programs: 1 + rng.below(3) as usize,
            rounds: 1 + rng.below(4) as usize,
            operations: 5 + rng.below(20) as usize,
            faults: Faults {
                delay: delays[rng.below(3) as usize],
                late: if rng.chance(0.5) { 0.0 } else { 0.05 },
                // Where more is lost, the client takes the path for one that drops long datagrams (SEMANTICS.md).
                loss: [0.0, 0.05, 0.2][rng.below(3) as usize],
                duplicates: if rng.chance(0.5) { 0.0 } else { 0.1 },
                tick,
                block: [32 << 10, 2 << 10][rng.below(2) as usize],
                sync_max: 0,
                disk_cache: DiskFaults::USUAL,
            },
            kills: if rng.chance(0.7) { 0.0 } else { 0.05 },
            crashes: rng.chance(0.5),
            dirty_max: if rng.chance(0.8) { 64 << 20 } else { 16 << 10 },
            memory_max: if rng.chance(0.8) { 64 << 20 } else { 8 << 10 },
            disk_file_max: 0,
            restarts: 0.0,
        };
        if rng.chance(0.6) {
            scenario.disk_file_max = if rng.chance(0.9) { 1 << 20 } else { 10_000 };
        }
        // Other programs have files open.
        if scenario.programs == 1 && rng.chance(0.7) {
            scenario.restarts = 0.5;
        }
        scenario
    }

    fn config(&self, client_id: u64) -> Config {
        Config {
            policy: self.policy,
            dirty_max: self.dirty_max,
            memory_max: self.memory_max,
            disk_file_max: self.disk_file_max,
            client_id,
            ..Config::default()
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What the promises do not allow.
    pub violations: Vec<String>,
    pub operations: u64,
    pub killed: u64,
    /// Changes of names that the server executed twice, once before and once after a crash.
    pub repeated: u64,
    /// Bytes of files that came from disk caches.
    pub disk_bytes: u64,
}

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    let scenario = Scenario::draw(seed);
    let mut world = World::new(seed, scenario.faults);
    for machine in 0..scenario.machines {
        world.mount(scenario.config(machine as u64 + 1));
    }
    if scenario.crashes {
        for _ in 0..3 {
            let after = Duration::from_millis(world.rng.below(20_000));
            world.crash_after(after);
        }
    }
    let world = Shared(Rc::new(RefCell::new(world)));
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let programs = (0..scenario.programs).map(|number| {
        let program = Program {
            world: world.clone(),
            scenario: scenario.clone(),
            dir: format!("dir{number}"),
            rng: Rng::stream(seed, &format!("program {number}")),
            model: BTreeMap::new(),
            outcome: outcome.clone(),
            mounts: (0..scenario.machines).collect(),
        };
        Box::pin(program.run()) as Pin<Box<dyn Future<Output = ()>>>
    });
    let stuck = run_programs(&world, programs.collect());
    let mut outcome = outcome.borrow().clone();
    outcome.violations.extend(stuck.err());
    outcome.repeated = world.0.borrow().repeated;
    outcome.disk_bytes = world.0.borrow().disk_bytes();
    let left = world.0.borrow().dirty_bytes();
    if left > 0 && outcome.violations.is_empty() {
        outcome.violations.push(format!("{left} bytes are uncommitted at the end"));
    }
    outcome
}

/// A file of the model; hard links share it.
type File = Rc<RefCell<Vec<u8>>>;

struct Program {
    world: Shared,
    scenario: Scenario,
    dir: String,
    rng: Rng,
    model: BTreeMap<String, File>,
    outcome: Rc<RefCell<Outcome>>,
    /// The mount of each machine.
    mounts: Vec<usize>,
}

impl Program {
    async fn run(mut self) {
        for round in 0..self.scenario.rounds {
            let number = self.rng.below(self.scenario.machines as u64) as usize;
            if self.rng.chance(self.scenario.restarts) {
                // A kill before the last REMOVE would leave a hidden name.
                self.world.settle().await;
                self.restart(number);
            }
            let (mut machine, mut dir) = match self.begin(number).await {
                Ok(begun) => begun,
                Err(errno) => return self.violation(format!("the directory cannot be opened: {errno:?}")),
            };
            self.check_all(&machine, dir).await;
            for _ in 0..self.scenario.operations {
                if self.rng.chance(self.scenario.restarts / 10.0) {
                    self.world.settle().await;
                    self.restart(number);
                    (machine, dir) = match self.begin(number).await {
                        Ok(begun) => begun,
                        Err(errno) => return self.violation(format!("the directory is gone: {errno:?}")),
                    };
                    self.check_all(&machine, dir).await;
                }
                self.outcome.borrow_mut().operations += 1;
                if self.rng.chance(self.scenario.kills) {
                    self.killed(&machine, dir).await;
                } else {
                    let repeated = self.repeated();
                    let before = self.outcome.borrow().violations.len();
                    if let Err(errno) = self.operation(&machine, dir).await {
                        self.violation(format!("round {round}: an operation fails with {errno:?}"));
                    }
                    if self.repeated() > repeated {
                        self.adopt(before).await;
                    }
                }
            }
            let policy = self.scenario.policy;
            self.world.sleep(policy.open.max(Duration::from_millis(1)) + Duration::from_millis(10)).await;
        }
        self.world.settle().await;
        self.check_server();
    }

    /// The mount of a machine is killed, or the machine loses power, and it is mounted again.
    fn restart(&mut self, number: usize) {
        let config = self.scenario.config(number as u64 + 1);
        let loses_power = self.rng.chance(0.5);
        let mount = self.mounts[number];
        self.mounts[number] = self.world.0.borrow_mut().crash_mount(mount, loses_power, config);
    }

    /// The mount of a machine, and the directory there.
    async fn begin(&self, number: usize) -> Result<(Machine, u64), Errno> {
        let mount = self.mounts[number];
        let machine = Machine { world: self.world.clone(), mount, kill_after: None, open: Rc::default() };
        let dir = machine.directory(&self.dir).await?;
        Ok((machine, dir))
    }

    fn violation(&self, what: String) {
        let now = self.world.0.borrow().now;
        self.outcome.borrow_mut().violations.push(format!("{now:?} {}: {what}", self.dir));
    }

    fn name(&mut self) -> String {
        NAMES[self.rng.below(NAMES.len() as u64) as usize].into()
    }

    fn data(&mut self, len: u64) -> Bytes {
        let mut data = vec![0; len as usize];
        self.rng.fill(&mut data);
        data.into()
    }

    /// One system call sequence, compared with the model.
    async fn operation(&mut self, machine: &Machine, dir: u64) -> Result<(), Errno> {
        let name = self.name();
        match self.rng.below(12) {
            0..=2 => self.write_new(machine, dir, &name).await,
            3 | 4 => self.overwrite(machine, dir, &name).await,
            5 | 6 => {
                self.check(machine, dir, &name).await;
                Ok(())
            }
            7 => self.rename(machine, dir, &name).await,
            8 => self.unlink(machine, dir, &name).await,
            9 => self.truncate(machine, dir, &name).await,
            10 => self.link(machine, dir, &name).await,
            _ => {
                let names = machine.list(dir).await?;
                self.expect(&format!("the names in {}", self.dir), &self.names(), &names);
                Ok(())
            }
        }
    }

    fn names(&self) -> Vec<String> {
        self.model.keys().cloned().collect()
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.violation(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    /// open(O_CREAT | O_TRUNC), writes, close. A hard link to the file shows the new contents, too.
    async fn write_new(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let is_exclusive = !self.model.contains_key(name) && self.rng.chance(0.5);
        let file = machine.create(dir, name, is_exclusive).await?;
        let len = self.rng.below(FILE_MAX);
        let data = self.data(len);
        let mut offset = 0;
        while offset < data.len() {
            let end = data.len().min(offset + 1 + self.rng.below(5_000) as usize);
            machine.write(file, offset as u64, data.slice(offset..end)).await?;
            offset = end;
        }
        let entry = self.model.entry(name.into()).or_default();
        *entry.borrow_mut() = data.to_vec();
        machine.close(file).await?;
        let found = machine.size(dir, name).await?;
        self.expect(&format!("the size of {name}"), &len, &found);
        Ok(())
    }

    /// Writes at random places of an open file, reads it back, closes it.
    async fn overwrite(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let Some(model) = self.model.get(name).cloned() else {
            self.expect(&format!("opening {name}"), &Some(Errno::ENOENT), &machine.open(dir, name).await.err());
            return Ok(());
        };
        let file = machine.open(dir, name).await?;
        for _ in 0..1 + self.rng.below(4) {
            let offset = self.rng.below(FILE_MAX);
            let len = 1 + self.rng.below(6_000);
            let data = self.data(len);
            let mut bytes = model.borrow_mut().clone();
            let end = (offset + len) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
            machine.write(file, offset, data).await?;
            *model.borrow_mut() = bytes;
            if self.rng.chance(0.2) {
                machine.fsync(file).await?;
            }
        }
        let found = machine.read_open(file).await?;
        self.expect_data(name, &model.borrow(), &found);
        machine.close(file).await
    }

    async fn rename(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let to = self.name();
        let is_open = self.rng.chance(0.3) && self.model.contains_key(&to);
        let replaced = if is_open { Some((machine.open(dir, &to).await?, self.model[&to].clone())) } else { None };
        let result = machine.rename(dir, name, &to).await;
        match self.model.get(name).cloned() {
            None => self.expect("renaming what is not there", &Err(Errno::ENOENT), &result),
            Some(file) => {
                result?;
                let is_same = self.model.get(&to).is_some_and(|other| Rc::ptr_eq(other, &file));
                if !is_same {
                    self.model.remove(name);
                    self.model.insert(to.clone(), file);
                }
            }
        }
        if let Some((file, data)) = replaced {
            let found = machine.read_open(file).await?;
            self.expect_data(&format!("the replaced {to}"), &data.borrow(), &found);
            machine.close(file).await?;
        }
        Ok(())
    }

    async fn unlink(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let is_open = self.rng.chance(0.5) && self.model.contains_key(name);
        let open = if is_open { Some(machine.open(dir, name).await?) } else { None };
        let result = machine.unlink(dir, name).await;
        match self.model.remove(name) {
            None => self.expect("removing what is not there", &Err(Errno::ENOENT), &result),
            Some(data) => {
                result?;
                if let Some(file) = open {
                    let found = machine.read_open(file).await?;
                    self.expect_data(&format!("the removed {name}"), &data.borrow(), &found);
                    machine.close(file).await?;
                    self.world.settle().await;
                }
            }
        }
        Ok(())
    }

    async fn truncate(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let size = self.rng.below(FILE_MAX);
        let Some(model) = self.model.get(name).cloned() else { return Ok(()) };
        machine.truncate(dir, name, size).await?;
        model.borrow_mut().resize(size as usize, 0);
        let found = machine.size(dir, name).await?;
        self.expect(&format!("the size of {name}"), &size, &found);
        Ok(())
    }

    async fn link(&mut self, machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
        let to = self.name();
        let Some(file) = self.model.get(name).cloned() else { return Ok(()) };
        let result = machine.link(dir, name, &to).await;
        if self.names().contains(&to) {
            self.expect("linking to a name that is there", &Err(Errno::EEXIST), &result);
            return Ok(());
        }
        result?;
        self.model.insert(to, file);
        Ok(())
    }

    /// Does something whose caller is killed, and adopts what has become of it.
    async fn killed(&mut self, machine: &Machine, dir: u64) {
        let after = Duration::from_nanos(self.rng.below(20_000_000));
        let victim = Machine { kill_after: Some(after), ..machine.clone() };
        let before = self.outcome.borrow().violations.len();
        let _ = self.operation(&victim, dir).await;
        Machine { kill_after: None, ..victim }.exit().await;
        self.outcome.borrow_mut().killed += 1;
        self.adopt(before).await;
    }

    /// What an operation found since there were `before` violations means nothing: the server has what is true.
    async fn adopt(&mut self, before: usize) {
        let mine = format!(" {}: ", self.dir);
        let mut at = 0;
        self.outcome.borrow_mut().violations.retain(|violation| {
            at += 1;
            at <= before || !violation.contains(&mine)
        });
        self.world.settle().await;
        self.model = self.on_server();
    }

    fn repeated(&self) -> u64 {
        self.world.0.borrow().repeated
    }

    async fn check_all(&mut self, machine: &Machine, dir: u64) {
        for name in NAMES {
            self.check(machine, dir, name).await;
        }
    }

    /// Reads a file and compares it with the model.
    async fn check(&mut self, machine: &Machine, dir: u64, name: &str) {
        let found = machine.read(dir, name).await;
        match (self.model.get(name), found) {
            (None, Err(Errno::ENOENT)) => {}
            (Some(model), Ok(found)) => self.expect_data(name, &model.borrow(), &found),
            (model, found) => {
                let (expected, found) = (model.map(|data| data.borrow().len()), found.map(|data| data.len()));
                self.violation(format!("reading {name}: expected {expected:?} bytes, found {found:?}"));
            }
        }
    }

    fn expect_data(&self, name: &str, expected: &[u8], found: &[u8]) {
        if expected == found {
            return;
        }
        let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
        let (expected, found) = (expected.len(), found.len());
        self.violation(format!("{name} differs at byte {at}: expected {expected} bytes, found {found}"));
    }

    /// The files of the directory on the server.
    fn on_server(&self) -> BTreeMap<String, File> {
        let mut files: BTreeMap<String, File> = BTreeMap::new();
        let mut by_id: BTreeMap<u64, File> = BTreeMap::new();
        let prefix = format!("{}/", self.dir);
        for (path, node) in self.world.0.borrow().fs.tree() {
            let path = String::from_utf8_lossy(&path).into_owned();
            if let Some(name) = path.strip_prefix(&prefix)
                && NAMES.contains(&name)
            {
                let data = || Rc::new(RefCell::new(node.content.to_vec()));
                files.insert(name.into(), by_id.entry(node.attr.fileid).or_insert_with(data).clone());
            }
        }
        files
    }

    /// After the end the server has durably what the model has, and no hidden file is left.
    fn check_server(&mut self) {
        let server = self.on_server();
        for name in NAMES {
            match (self.model.get(name), server.get(name)) {
                (None, None) => {}
                (Some(model), Some(found)) => {
                    self.expect_data(&format!("{name} on the server"), &model.borrow(), &found.borrow());
                }
                (model, found) => {
                    let what = format!("{name} on the server: {} {}", model.is_some(), found.is_some());
                    self.violation(what);
                }
            }
        }
        let prefix = format!("{}/.nfs", self.dir);
        let tree = self.world.0.borrow().fs.tree();
        let hidden = tree.keys().filter(|path| path.starts_with(prefix.as_bytes())).count();
        // A repeated RENAME to the hidden name finds nothing to rename, and the file keeps that name.
        if hidden > 0 && self.repeated() == 0 {
            self.violation(format!("{hidden} hidden files are left"));
        }
    }
}
