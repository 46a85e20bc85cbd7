//! The program of a machine: it works with the server, without it, and with it again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use remora_base::{Rng, Time};
use remora_cache::{Conflict, ConflictKind, Connectivity};
use remora_wire::fuse::Errno;

use super::execute::{Failure, Machine, execute, on_server, resolve, walk};
use super::model::{Model, Step, differences, join, split};
use super::plan;
use super::recovery::{History, Possible};
use super::scenario::{Crashes, Outcome, Scenario};
use super::shared_dir::{self, Change, SHARED, SharedDir};
use crate::mount::system_calls::ROOT;
use crate::mount::world::{Shared, World, run as run_programs};

/// Steps that make the tree before the first partition.
const FIRST_STEPS: u64 = 12;
/// An operation without the server that takes longer waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time from the end of a partition until the server has everything.
const SETTLE_MAX: Duration = Duration::from_secs(1200);
/// Time after which every policy shows the changes of other machines.
const POLICY_MAX: Duration = Duration::from_secs(65);
/// Age from which an acknowledged change survives a loss of power.
const SAFE_AGE: Duration = Duration::from_millis(1500);

/// What the programs know of each other.
#[derive(Default)]
struct Meeting {
    /// Programs that have made their trees.
    built: usize,
    finished: usize,
    /// A machine brings changes of the shared directory to the server. If two did at a time, each could replace what the
    /// other has just sent: NFSv3 has no conditional RENAME (SEMANTICS.md).
    is_busy: bool,
}

/// Runs the world of a seed.
pub fn run(seed: u64, crashes: Crashes) -> Outcome {
    let scenario = Scenario::draw(seed, crashes);
    let mut world = World::new(seed, scenario.faults);
    for number in 0..scenario.machines {
        world.mount(scenario.config(number, 0, false));
    }
    for _ in 0..scenario.server_crashes {
        let after = Duration::from_millis(world.rng.below(200_000));
        world.crash_after(after);
    }
    let world = Shared(Rc::new(RefCell::new(world)));
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let meeting = Rc::new(RefCell::new(Meeting::default()));
    let shared = Rc::new(RefCell::new(SharedDir::default()));
    let programs = (0..scenario.machines).map(|number| {
        let program = Program::new(number, seed, world.clone(), scenario.clone(), outcome.clone())
            .with_others(meeting.clone(), shared.clone());
        Box::pin(program.run()) as Pin<Box<dyn Future<Output = ()>>>
    });
    let stuck = run_programs(&world, programs.collect());
    let mut outcome = outcome.borrow().clone();
    outcome.violations.extend(stuck.err());
    outcome.repeated = world.0.borrow().repeated;
    if outcome.violations.is_empty() {
        outcome.violations = shared.borrow().lost(&world.0.borrow(), outcome.power_losses > 0, outcome.kept > 0);
    }
    outcome
}

/// A program on a machine.
struct Program {
    number: usize,
    world: Shared,
    scenario: Scenario,
    outcome: Rc<RefCell<Outcome>>,
    meeting: Rc<RefCell<Meeting>>,
    shared: Rc<RefCell<SharedDir>>,
    /// The directory of the program.
    root: String,
    rng: Rng,
    mount: usize,
    /// Crashes of the mount.
    starts: u64,
    /// Files that were being written at a crash.
    interrupted: BTreeSet<String>,
    model: Model,
    history: History,
    /// The step that is under way.
    running: Option<Step>,
    is_cut: bool,
    is_asked: bool,
    /// The cache has everything, so that no operation may fail for lack of the server.
    has_all: bool,
    /// The mount began without the server, and the disk cache may lack what it had sent before.
    may_be_old: bool,
    /// Something was wrong: what follows would mean nothing.
    has_failed: bool,
    /// The server's shared directory when an operation last began to wait for the server.
    shared_at_return: Model,
}

/// Runs both until one has ended: `None` if that is `other`.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => other.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl Program {
    fn new(number: usize, seed: u64, world: Shared, scenario: Scenario, outcome: Rc<RefCell<Outcome>>) -> Program {
        Program {
            number,
            world,
            scenario,
            outcome,
            meeting: Rc::default(),
            shared: Rc::default(),
            root: format!("own{number}"),
            rng: Rng::stream(seed, &format!("offline program {number}")),
            mount: number,
            starts: 0,
            interrupted: BTreeSet::new(),
            model: Model::new(),
            history: History::default(),
            running: None,
            is_cut: false,
            is_asked: false,
            has_all: false,
            may_be_old: false,
            has_failed: false,
            shared_at_return: Model::new(),
        }
    }

    fn with_others(self, meeting: Rc<RefCell<Meeting>>, shared: Rc<RefCell<SharedDir>>) -> Program {
        Program { meeting, shared, ..self }
    }

    async fn run(mut self) {
        self.build().await;
        for _ in 0..self.scenario.partitions {
            self.partition().await;
        }
        self.end_partition();
        self.settle().await;
        self.check_server();
        if self.has_own_conflict() {
            self.reintegrated().await;
        }
        let log = self.world.0.borrow().cache(self.mount).conflicts();
        for conflict in log {
            let (kind, is_own_half) = (conflict.kind, self.is_own_half(&conflict) && self.keeps_both(&conflict));
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            let (path, copy) = (text(&conflict.path), conflict.copy.map(|copy| text(&copy)));
            let what = format!("conflict {kind:?} at {path}, copy {copy:?}");
            self.say(&what);
            if path.contains(&self.root) && !is_own_half {
                self.violation(format!("in a directory of our own: {what}"));
            }
            self.outcome.borrow_mut().conflicts += 1;
            copy.into_iter().for_each(|copy| self.shared.borrow_mut().reported(&copy));
        }
        self.meeting.borrow_mut().finished += 1;
        while self.meeting.borrow().finished < self.scenario.machines {
            self.world.sleep(Duration::from_secs(1)).await;
        }
        self.world.sleep(POLICY_MAX).await;
        self.check_view().await;
    }

    fn machine(&self) -> Machine {
        Machine { world: self.world.clone(), mount: self.mount, kill_after: None, open: Rc::default() }
    }

    fn now(&self) -> Time {
        self.world.0.borrow().now
    }

    fn say(&self, what: &str) {
        let (at, number, mount) = (self.now().as_secs_f64(), self.number, self.mount);
        let state = match self.world.0.borrow().cache(mount).connectivity() {
            Connectivity::Connected => "connected",
            Connectivity::Weak => "weak",
            Connectivity::Disconnected { .. } => "disconnected",
        };
        let line = format!("{at:9.3} machine {number} mount {mount} {state}: {what}");
        self.outcome.borrow_mut().log.push(line);
    }

    fn violation(&mut self, what: String) {
        self.has_failed = true;
        self.say(&format!("VIOLATION {what}"));
        let (at, root) = (self.now().as_secs_f64(), &self.root);
        self.outcome.borrow_mut().violations.push(format!("{at:.3} {root}: {what}"));
    }

    fn is_disconnected(&self) -> bool {
        matches!(self.world.0.borrow().cache(self.mount).connectivity(), Connectivity::Disconnected { .. })
    }

    /// Makes the first tree with the server, and the shared directory.
    async fn build(&mut self) {
        let machine = self.machine();
        let mut made = machine.directory(&self.root.clone()).await.map(drop);
        if self.number == 0 && self.scenario.has_shared {
            made = made.and(machine.directory(SHARED).await.map(drop));
        }
        if let Err(errno) = made {
            self.violation(format!("the directory cannot be made: {errno:?}"));
        }
        self.history.push(self.now(), &self.model);
        for _ in 0..FIRST_STEPS {
            self.operate(0.0).await;
        }
        self.settle().await;
        self.check_server();
        self.meeting.borrow_mut().built += 1;
        while self.meeting.borrow().built < self.scenario.machines {
            self.world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// A partition, and the work in it and right after it.
    async fn partition(&mut self) {
        self.warm_up().await;
        self.cut().await;
        for _ in 0..self.rng.below(self.scenario.operations + 1) {
            if self.scenario.has_shared && self.rng.chance(0.5) {
                self.change_shared().await;
            }
            self.operate(self.scenario.crashes).await;
            self.pause(400).await;
        }
        while self.scenario.has_shared && self.meeting.borrow().is_busy {
            self.world.sleep(Duration::from_secs(1)).await;
        }
        self.meeting.borrow_mut().is_busy = true;
        self.end_partition();
        for _ in 0..self.rng.below(self.scenario.operations + 1) {
            self.operate(self.scenario.crashes).await;
            self.pause(300).await;
            if self.rng.chance(0.05) {
                self.cut().await;
                self.operate(self.scenario.crashes).await;
                self.end_partition();
            }
        }
        self.end_partition();
        self.settle().await;
        self.check_server();
        self.meeting.borrow_mut().is_busy = false;
    }

    async fn pause(&mut self, millis_max: u64) {
        if self.rng.chance(0.7) {
            let pause = Duration::from_millis(self.rng.below(millis_max));
            self.world.sleep(pause).await;
        }
    }

    /// Lists and reads everything, until the disk cache has it.
    async fn warm_up(&mut self) {
        if self.has_failed {
            return;
        }
        self.settle().await;
        self.world.sleep(POLICY_MAX).await;
        // A directory that was never listed is of no use after a start without the server.
        let read_all = async || {
            self.machine().list(ROOT).await?;
            self.open_all().await
        };
        if let Err(errno) = self.within_reach(read_all).await {
            return self.violation(format!("the tree cannot be read: {errno:?}"));
        }
        // Another machine may change it now.
        if self.scenario.has_shared {
            let _ = walk(&self.machine(), SHARED).await;
        }
        self.world.sleep(Duration::from_secs(10)).await;
        for _ in 0..60 {
            if self.world.0.borrow().cache(self.mount).is_saved() {
                self.may_be_old = false;
                self.has_all = self.scenario.keeps_all();
                break;
            }
            self.world.sleep(Duration::from_secs(1)).await;
        }
        let is_cached = self.has_all;
        self.say(&format!("everything is cached: {is_cached}"));
    }

    /// Lists and reads everything, and opens each file for writing: the cache then knows whether it may be written.
    async fn open_all(&self) -> Result<(), Errno> {
        let machine = self.machine();
        walk(&machine, &self.root).await?;
        for path in self.model.files() {
            let (dir, name) = split(&path);
            let file = machine.open(resolve(&machine, &self.root, dir).await?, name).await?;
            machine.close(file).await?;
        }
        Ok(())
    }

    /// The network fails.
    async fn cut(&mut self) {
        self.world.0.borrow_mut().set_cut(self.mount, true);
        self.is_cut = true;
        self.is_asked = self.rng.chance(0.3);
        let is_asked = self.is_asked;
        if is_asked {
            self.world.0.borrow_mut().with_cache(self.mount, |cache, now| cache.go_offline(now));
        }
        self.say(&format!("the network fails (asked to go offline: {is_asked})"));
        self.pause(20_000).await;
    }

    /// The network works again.
    fn end_partition(&mut self) {
        if self.is_cut {
            self.world.0.borrow_mut().set_cut(self.mount, false);
        }
        if self.is_asked {
            self.world.0.borrow_mut().with_cache(self.mount, |cache, now| cache.go_online(now));
        }
        if self.is_cut || self.is_asked {
            self.say("the network works again");
        }
        (self.is_cut, self.is_asked, self.has_all) = (false, false, false);
    }

    /// Waits until the server has everything.
    async fn settle(&mut self) {
        if self.has_failed {
            return;
        }
        let is_settled = self.reintegrated().await;
        if !self.gives_up() && !is_settled {
            let what = self.world.0.borrow().unsettled(self.mount);
            self.violation(format!("the server does not get everything: {what}"));
        }
    }

    /// Waits until the server has everything. Returns whether it does in time.
    async fn reintegrated(&self) -> bool {
        let (world, mount) = (self.world.clone(), self.mount);
        let is_done = move || world.0.borrow().is_reintegrated(mount);
        let done = std::future::poll_fn(|_| if is_done() { Poll::Ready(()) } else { Poll::Pending });
        first(done, self.world.sleep(SETTLE_MAX)).await.is_some()
    }

    /// Runs an operation within the time that one without the server may take.
    async fn patiently<T>(&mut self, work: impl Future<Output = T>) -> (T, bool) {
        let mut work = pin!(work);
        let is_disconnected = self.is_disconnected();
        if !self.is_cut {
            return (work.await, false);
        }
        match first(work.as_mut(), self.world.sleep(PATIENCE)).await {
            Some(result) => (result, false),
            None => {
                self.say("an operation waits for the server");
                // A call that was sent before has an unknown outcome.
                if self.has_all && is_disconnected {
                    self.violation("an operation waits although everything is cached".into());
                }
                self.end_partition();
                self.shared_at_return = Model::of_view(&on_server(&self.world.0.borrow().fs, SHARED).view);
                (work.await, true)
            }
        }
    }

    /// What a user does at once, with a crash in the middle by this probability.
    async fn operate(&mut self, crashes: f64) {
        if self.has_failed {
            return;
        }
        let steps = plan::draw(&mut self.rng, &self.model);
        if !self.rng.chance(crashes) {
            return self.do_steps(steps).await;
        }
        let spans = [5_000_000, 60_000_000, 2_000_000_000];
        let after = Duration::from_nanos(self.rng.below(spans[self.rng.clone().below(3) as usize]));
        let world = self.world.clone();
        first(self.do_steps(steps), world.sleep(after)).await;
        self.crash().await;
    }

    async fn do_steps(&mut self, steps: Vec<Step>) {
        for step in steps {
            if self.has_failed || !self.do_step(step).await {
                return;
            }
        }
    }

    /// Does a step and compares its result with the model. Returns whether the next one has a meaning.
    async fn do_step(&mut self, step: Step) -> bool {
        let mut after = self.model.clone();
        let expected = after.apply(&step);
        self.running = Some(step.clone());
        let repeated = self.world.0.borrow().repeated;
        let may_be_old = self.may_be_old && self.is_disconnected();
        let (machine, root, model) = (self.machine(), self.root.clone(), self.model.clone());
        let (result, _) = self.patiently(execute(&machine, &root, &model, &step)).await;
        self.say(&format!("{step:?}: {result:?}"));
        self.outcome.borrow_mut().operations += 1;
        self.outcome.borrow_mut().offline += u64::from(self.is_disconnected());
        let is_repeated = self.world.0.borrow().repeated > repeated;
        match (result, expected) {
            (Ok(()), Ok(())) => self.acknowledged(&step, after),
            (Err(Failure::Failed(errno)), Err(expected)) if errno == expected => {}
            (Err(Failure::Failed(Errno::EHOSTUNREACH)), _) if !self.has_all => {
                self.outcome.borrow_mut().missed += 1;
                let is_whole = step.written().is_none() && !matches!(step, Step::Unlink { is_open: true, .. });
                if !is_whole {
                    let possible = History::after_kill(&self.model, self.running.as_ref());
                    self.resolve_with_server(possible).await;
                }
                self.running = None;
                return false;
            }
            // The server executed a change before a crash and again after it, and the second result is the reply. Or the
            // mount began without the server, and shows what the disk cache had.
            (Err(Failure::Failed(_)), _) if is_repeated || may_be_old => {
                let possible = History::after_kill(&self.model, self.running.as_ref());
                self.resolve_with_server(possible).await;
            }
            // The killed mount has left the hidden name of a file that was open (SEMANTICS.md).
            (Err(Failure::Failed(Errno::ENOTEMPTY)), Ok(())) if self.starts > 0 && self.hides(&step) => {}
            (result, expected) if !self.gives_up() => {
                let missed = self.world.0.borrow().missed(self.mount);
                self.violation(format!("{step:?} has result {result:?}, expected {expected:?}, missed {missed:?}"));
            }
            _ => {}
        }
        self.running = None;
        true
    }

    /// Whether the step removes a directory in which the server has a hidden name.
    fn hides(&self, step: &Step) -> bool {
        let Step::RmDir { path } = step else { return false };
        let hidden = on_server(&self.world.0.borrow().fs, &self.root).hidden;
        hidden.iter().any(|hidden| split(hidden).0 == path)
    }

    fn acknowledged(&mut self, step: &Step, after: Model) {
        self.model = after;
        self.history.push(self.now(), &self.model);
        if let Step::Write { path, fsync: true, .. } = step
            && let Some(data) = self.model.data(path)
            && !data.is_empty()
        {
            // Empty files cannot be told from each other.
            self.history.synced(self.now(), data);
        }
    }

    /// The mount is killed, or the machine loses power, and it is mounted again.
    async fn crash(&mut self) {
        if self.has_failed {
            return;
        }
        let loses_power = self.rng.chance(0.4);
        let now = self.now();
        let running = self.running.take();
        let possible = if loses_power {
            self.history.after_power_loss(now, &self.model, running.as_ref())
        } else {
            History::after_kill(&self.model, running.as_ref())
        };
        let what = if loses_power { "loss of power" } else { "kill" };
        self.say(&format!("{what} during {running:?}"));
        self.interrupted.extend(running.as_ref().and_then(Step::written).map(str::to_string));
        self.starts += 1;
        let config = self.scenario.config(self.number, self.starts, self.is_cut);
        self.mount = self.world.0.borrow_mut().crash_mount(self.mount, loses_power, config);
        self.is_asked = false;
        // The disk cache may lack what the program changed with the server shortly before.
        let is_old = self.is_cut && !self.has_all;
        self.may_be_old = is_old;
        if loses_power {
            // The disk cache dropped what a write replaced that is lost now.
            self.has_all = false;
            let safe = Time::ZERO + now.since(Time::ZERO).saturating_sub(SAFE_AGE);
            self.shared.borrow_mut().power_lost(self.number, safe);
        }
        self.outcome.borrow_mut().kills += u64::from(!loses_power);
        self.outcome.borrow_mut().power_losses += u64::from(loses_power);
        let (machine, root) = (self.machine(), self.root.clone());
        let (seen, is_late) = self.patiently(walk(&machine, &root)).await;
        match seen {
            _ if self.gives_up() => {}
            Ok(view) if !is_late && !is_old => self.adopt(&possible, &view, "the mount after the crash"),
            Err(Errno::EHOSTUNREACH) if !self.has_all => {
                self.outcome.borrow_mut().missed += 1;
                self.resolve_with_server(possible).await;
            }
            Ok(_) => self.resolve_with_server(possible).await,
            Err(_) if is_old => self.resolve_with_server(possible).await,
            Err(errno) => {
                let missed = self.world.0.borrow().missed(self.mount);
                self.violation(format!("the tree cannot be read after a crash: {errno:?}, missed {missed:?}"));
            }
        }
    }

    /// After a crash in the middle of a rewrite, the mount may take its own half for a change by somebody else
    /// (SEMANTICS.md). It keeps the file then, or makes ours a conflict copy, and the program ends.
    fn gives_up(&mut self) -> bool {
        if !self.has_failed && self.has_own_conflict() {
            self.say("a file is in conflict with its own half");
            self.outcome.borrow_mut().halves += 1;
            self.has_failed = true;
        }
        let unsent = self.world.0.borrow().cache(self.mount).unsent(usize::MAX);
        let is_kept = unsent.iter().any(|unsent| unsent.refusal.is_some());
        let crashes = self.outcome.borrow().kills + self.outcome.borrow().power_losses;
        if is_kept && crashes > 0 {
            self.say(&format!("files are kept: {unsent:?}"));
            self.outcome.borrow_mut().kept += 1;
            self.has_failed = true;
        }
        self.has_failed
    }

    fn has_own_conflict(&self) -> bool {
        self.world.0.borrow().cache(self.mount).conflicts().iter().any(|conflict| self.is_own_half(conflict))
    }

    /// Whether the conflict may be one of a file with its own half.
    fn is_own_half(&self, conflict: &Conflict) -> bool {
        let is_own = String::from_utf8_lossy(&conflict.path).starts_with(&format!("/{}/", self.root));
        self.starts > 0 && is_own && conflict.kind == ConflictKind::Content && conflict.copy.is_some()
    }

    /// Whether the conflict copy on the server is what the program has written.
    fn keeps_both(&self, conflict: &Conflict) -> bool {
        let below =
            |path: &[u8]| String::from_utf8_lossy(path).trim_start_matches(&format!("/{}/", self.root)).to_string();
        let view = on_server(&self.world.0.borrow().fs, &self.root).view;
        let copy = conflict.copy.as_deref().and_then(|copy| view.get(&below(copy)));
        // The program may have renamed it before the conflict was found.
        let path = below(&conflict.path);
        let is_there = view.contains_key(&path) || self.model.find(&path).is_none();
        let is_unknown = self.interrupted.contains(&path);
        is_there && copy.is_some_and(|copy| is_unknown || self.history.has(copy))
    }

    /// Ends the partition, and takes what the server has then for the tree.
    async fn resolve_with_server(&mut self, possible: Possible) {
        self.end_partition();
        self.settle().await;
        if self.has_failed {
            return;
        }
        let view = on_server(&self.world.0.borrow().fs, &self.root).view;
        self.adopt(&possible, &view, "the server");
    }

    /// The tree is what was found, if that is possible.
    fn adopt(&mut self, possible: &Possible, view: &super::model::View, whose: &str) {
        for violation in possible.violations(view) {
            self.violation(format!("{whose}: {violation}"));
        }
        self.model = Model::of_view(view);
        self.history.push(self.now(), &self.model);
    }

    /// Changes the shared directory without the server.
    async fn change_shared(&mut self) {
        if self.has_failed || !self.is_cut || !self.is_disconnected() {
            return;
        }
        let change = self.shared.borrow_mut().draw(&mut self.rng, self.number);
        let machine = self.machine();
        let work = do_shared(machine, self.shared.clone(), change.clone());
        // The others may have changed the directory since it was cached.
        let has_all = std::mem::take(&mut self.has_all);
        let (result, is_late) = self.patiently(work).await;
        self.has_all = has_all && !is_late;
        if is_late && let Some(path) = change.replaced() {
            // It replaced what the server had, whatever the program has read before.
            let on_server = self.shared_at_return.data(path);
            let _ = on_server.map(|content| self.shared.borrow_mut().replaced(path, &content));
        }
        self.say(&format!("{SHARED}: {change:?}: {result:?}"));
        self.outcome.borrow_mut().operations += 1;
        let allowed = [
            Errno::EHOSTUNREACH,
            Errno::ENOENT,
            Errno::EEXIST,
            Errno::ENOTEMPTY,
            Errno::EISDIR,
            Errno::ENOTDIR,
            Errno::EINVAL,
        ];
        match result {
            Ok(()) => {
                if let Change::Write { version, .. } = change {
                    self.shared.borrow_mut().acknowledged(version, self.now());
                }
            }
            Err(Failure::Failed(errno)) if allowed.contains(&errno) => {}
            Err(failure) => self.violation(format!("{SHARED}: {change:?} has result {failure:?}")),
        }
    }

    /// Checks that the server has exactly the tree of the model.
    fn check_server(&mut self) {
        if self.has_failed {
            return;
        }
        let found = on_server(&self.world.0.borrow().fs, &self.root);
        for what in differences(&self.model.view(), &found.view, &Default::default()) {
            self.violation(format!("on the server {what}"));
        }
        let outcome = self.outcome.borrow().clone();
        if !found.hidden.is_empty() && outcome.kills + outcome.power_losses == 0 && self.world.0.borrow().repeated == 0
        {
            self.violation(format!("hidden names are left: {:?}", found.hidden));
        }
    }

    /// Checks that the mount shows what the server has of all machines.
    async fn check_view(&mut self) {
        if self.has_failed || !self.outcome.borrow().violations.is_empty() {
            return;
        }
        match self.within_reach(async || walk(&self.machine(), "").await).await {
            Err(errno) => self.violation(format!("the tree cannot be read at the end: {errno:?}")),
            Ok(view) => {
                let server = on_server(&self.world.0.borrow().fs, "").view;
                for what in differences(&server, &view, &Default::default()) {
                    self.violation(format!("the view of the server at the end: {what}"));
                }
            }
        }
    }

    /// Repeats what fails because so many messages were lost in a row that the mount is disconnected.
    async fn within_reach<T>(&self, work: impl AsyncFn() -> Result<T, Errno>) -> Result<T, Errno> {
        const ATTEMPTS: u32 = 10;
        for _ in 1..ATTEMPTS {
            let result = work().await;
            if !matches!(result, Err(Errno::EHOSTUNREACH)) || self.scenario.faults.loss == 0.0 {
                return result;
            }
            self.world.sleep(POLICY_MAX).await;
        }
        work().await
    }
}

/// Does a change of the shared directory, after it has read what it replaces.
async fn do_shared(machine: Machine, shared: Rc<RefCell<SharedDir>>, change: Change) -> Result<(), Failure> {
    let replace = async |path: &str| -> Result<(), Failure> {
        if let Some(content) = shared_dir::content(&machine, path).await? {
            shared.borrow_mut().replaced(path, &content).map_err(Failure::Other)?;
        }
        Ok(())
    };
    match &change {
        Change::Write { path, version } => {
            replace(path).await?;
            let data = shared.borrow().content(*version);
            let part = super::model::Part { offset: 0, data };
            let step = Step::Write { path: path.clone(), is_new: true, parts: vec![part], fsync: false };
            execute(&machine, SHARED, &Model::new(), &step).await
        }
        Change::Unlink { path } => {
            let _ = resolve(&machine, SHARED, path).await?;
            if shared_dir::content(&machine, path).await?.is_none() {
                return Err(Errno::EISDIR.into());
            }
            replace(path).await?;
            execute(&machine, SHARED, &Model::new(), &Step::Unlink { path: path.clone(), is_open: false }).await
        }
        Change::Rename { from, to } => {
            let is_dir = async |path: &str| -> Result<bool, Errno> {
                resolve(&machine, SHARED, path).await?;
                Ok(shared_dir::content(&machine, path).await?.is_none())
            };
            if from == to || is_dir(from).await? || is_dir(to).await == Ok(true) {
                return Err(Errno::EINVAL.into());
            }
            replace(to).await?;
            execute(&machine, SHARED, &Model::new(), &Step::Rename { from: from.clone(), to: to.clone() }).await
        }
        Change::MkDir { path } => execute(&machine, SHARED, &Model::new(), &Step::MkDir { path: join("", path) }).await,
        Change::RmDir { path } => {
            if shared_dir::content(&machine, path).await?.is_some() {
                return Err(Errno::ENOTDIR.into());
            }
            execute(&machine, SHARED, &Model::new(), &Step::RmDir { path: path.clone() }).await
        }
    }
}
