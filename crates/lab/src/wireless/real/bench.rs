//! A bench: an emulated link with a server on its base side, for one run after another.
//!
//! Dropping it removes everything.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use guest::Scratch;
use remora_base::{Rate, Rng, Time};
use remora_channel as channel;
use remora_channel::{Channel, Config, ErrorModel, Fate, Side};
use remora_client::BlockSize;
use remora_host::emulate::{EmulationReport, EmulationSetup, Emulator, Station};
use remora_host::handoff::{self, Signal};
use remora_sim::copy::{Direction, SWITCH_NOTICE};

use super::guest::Guest;
use super::peers::Peers;
use super::program::{self, Files, HAND_OFF, LOG, Program, READY, Result, Start, failed, failed_with};
use super::setup::Equipment;
use super::ssh::Ssh;
use super::tunnel::{Hop, Tunnel};
use crate::wireless::job::{Copy, HandOff, System};

/// The channel is quiet after this time without a frame.
const QUIET: Duration = Duration::from_millis(150);
/// The longest wait for a quiet channel.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// Journal length in packets: a copy of 1 MiB has about 2000.
const JOURNAL: usize = 200_000;

#[derive(Debug)]
pub(super) struct Bench {
    // Fields are dropped in this order.
    pub(super) guest: Option<Guest>,
    pub(super) ssh: Option<Ssh>,
    pub(super) tunnel: Option<Tunnel>,
    server: Program,
    pub(super) emulator: Emulator,
    pub(super) scratch: Scratch,
    pub(super) binary: PathBuf,
    runs: u64,
}

#[derive(Debug)]
pub(super) struct BenchCopy {
    /// `None` if it was cut off.
    pub(super) seconds: Option<f64>,
    /// The same of the other mobiles.
    pub(super) others: Vec<Option<f64>>,
    /// Time from each outage's end until the file's bytes flowed; infinite if they did not.
    pub(super) resumed: Vec<f64>,
    pub(super) report: EmulationReport,
}

/// What a task beside a copy may use.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) emulator: &'a Emulator,
    pub(super) tunnel: Option<&'a Tunnel>,
    pub(super) scratch: &'a Scratch,
    pub(super) server: Ipv4Addr,
    pub(super) began: Instant,
    pub(super) over: &'a AtomicBool,
}

impl Bench {
    /// Starts a bench with the server only; the rest is added when needed.
    pub(super) fn start(setup: &super::setup::Setup, mobiles: usize) -> Result<Bench> {
        let binary = &setup.binary;
        let scratch =
            program::in_memory(&["srv", "mobile", "state", "log", "run", "run-base", "run-mobile", "run-ssh"])
                .map_err(failed_with("a scratch directory"))?;
        for mobile in 1..mobiles {
            for name in ["state", "run-mobile"] {
                fs::create_dir(scratch.path(format!("{name}-{mobile}"))).map_err(failed_with("a scratch directory"))?;
            }
        }
        let mut inside: Vec<OsString> = vec![binary.into()];
        inside.extend(["lab", "inside"].map(Into::into));
        let lateness_max = setup.lateness_max;
        let setup = EmulationSetup {
            mobiles,
            config: fair(&Config::default()),
            journal: JOURNAL,
            inside,
            lateness_max,
            ..EmulationSetup::default()
        };
        let emulator = Emulator::start(setup).map_err(|e| failed(e.to_string()))?;
        let server = serve(&emulator, &scratch, binary)?;
        Ok(Bench { guest: None, ssh: None, tunnel: None, server, emulator, scratch, binary: binary.clone(), runs: 0 })
    }

    pub(super) fn equipment(&self) -> Equipment {
        Equipment { mobiles: self.mobiles(), link: self.tunnel.is_some(), guest: self.guest.is_some() }
    }

    fn mobiles(&self) -> usize {
        self.emulator.setup().mobiles
    }

    /// A number unique within this bench.
    pub(super) fn next_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    /// Starts what `system` needs, on a good channel.
    fn equip(&mut self, system: System, channel: &Config, peers: &Peers) -> Result<()> {
        if !system.has_link() {
            self.tunnel = None; // an idle tunnel's signs of life would be on the channel, too
        }
        match system {
            _ if system.has_link() => self.tunnel(channel).map(|_| ()),
            System::Scp | System::Rsync if self.ssh.is_none() => {
                self.ssh = Some(Ssh::start(&self.emulator, &self.scratch)?);
                Ok(())
            }
            System::Linux if self.guest.is_none() => {
                let system = peers.guest().ok_or_else(|| failed("the guest does not run".into()))?;
                self.guest = Some(Guest::start(&self.emulator, &self.scratch, system)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The tunnel over a hop like this channel. It is restarted for another hop, so that its ends keep no estimates.
    pub(super) fn tunnel(&mut self, channel: &Config) -> Result<&Tunnel> {
        let hop = Hop::of(channel);
        if self.tunnel.as_mut().is_none_or(|t| t.hop() != hop || t.must_run().is_err()) {
            self.tunnel = None;
            self.tunnel = Some(Tunnel::start(&self.emulator, &self.scratch, &self.binary, hop)?);
        }
        self.tunnel.as_ref().ok_or_else(|| failed("the tunnel does not run".into()))
    }

    /// Makes the channel [good](fair) and waits until old traffic is gone.
    pub(super) fn calm(&mut self, channel: &Config) -> Result<()> {
        self.emulator.begin(fair(channel), 0).map_err(|e| failed(e.to_string()))?;
        // Outstanding replies arrive one round-trip time later.
        let quiet = QUIET + 2 * channel.delay;
        let deadline = Instant::now() + QUIET_MAX;
        let offered = |r: &EmulationReport| r.lanes.iter().map(|l| l.stats.frames_offered).sum::<u64>();
        let mut before = u64::MAX;
        while Instant::now() < deadline {
            let now = offered(&self.emulator.report().map_err(|e| failed(e.to_string()))?);
            if now == before {
                break;
            }
            before = now;
            thread::sleep(quiet);
        }
        Ok(())
    }

    /// Copies a file of random bytes once.
    pub(super) fn copy(&mut self, job: &Copy, seed: u64, limit: Duration, peers: &Peers) -> Result<BenchCopy> {
        let (announced, copied) = self.copy_beside(job, seed, limit, peers, |scene| announce(scene, &job.hand_offs))?;
        announced.map(|()| copied)
    }

    /// As [`Bench::copy`], with `beside` running at the same time.
    pub(super) fn copy_beside<T: Send>(
        &mut self,
        job: &Copy,
        seed: u64,
        limit: Duration,
        peers: &Peers,
        beside: impl FnOnce(&Scene<'_>) -> T + Send,
    ) -> Result<(T, BenchCopy)> {
        self.calm(&job.channel)?;
        self.equip(job.system, &job.channel, peers)?;
        self.introduce(job.system)?;
        let content = content(seed, job.bytes);
        let run = self.next_run();
        let files = Files::new(&self.scratch, run);
        fs::write(files.source(job.direction), &content).map_err(failed_with("the file to be copied"))?;
        let mut carrier = self.carrier(job, &files)?;
        let others = ready(self, job, seed, run)?;
        let began = self.begin(job.crossed(), seed)?;
        let over = AtomicBool::new(false);
        let scene = Scene {
            emulator: &self.emulator,
            tunnel: self.tunnel.as_ref(),
            scratch: &self.scratch,
            server: self.base(job.system),
            began,
            over: &over,
        };
        let (done, ended, others) = thread::scope(|scope| {
            let beside = scope.spawn(|| beside(&scene));
            let others = scope.spawn(|| carry(&others, job, &scene, began + limit));
            let ended = carrier.carry(self, job.direction, &files, began + limit);
            let took = began.elapsed().as_secs_f64();
            over.store(true, Ordering::Release);
            let done = beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let others = others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (done, ended.map(|ended| ended.then_some(took)), others)
        });
        let others = others?;
        let (seconds, report) = (ended?, self.report()?);
        self.must_run()?;
        if seconds.is_some() {
            self.finish(carrier, job, &files)?;
            let copy = fs::read(files.copy(job.direction)).map_err(failed_with("the copy"))?;
            if blake3::hash(&copy) != blake3::hash(&content) {
                return Err(failed(format!("{}: the copy differs from the file", job.system.name())));
            }
        }
        files.remove();
        let resumed = resumed(&report, job.direction, seconds.is_some());
        Ok((done, BenchCopy { seconds, others, resumed, report }))
    }

    /// Lets a Remora client contact the server before the measurement.
    fn introduce(&self, system: System) -> Result<()> {
        let Some(line) = introduction(self, system) else { return Ok(()) };
        for mobile in 0..self.mobiles() {
            let environment = program::environment_of(&self.scratch, mobile);
            let start = Start { environment: &environment, ..Start::new("introduction", &line) };
            let mut program = Program::start(&self.emulator, &self.scratch, Station::Mobile(mobile), &start)?;
            match program.ended(Instant::now() + READY)? {
                Some(status) if status.success() => {}
                _ => return Err(failed(program.words())),
            }
        }
        Ok(())
    }

    /// Writes a file from the guest beside small files and returns the latencies of those.
    pub(super) fn copy_beside_small(
        &mut self,
        job: &Copy,
        seed: u64,
        limit: Duration,
        peers: &Peers,
    ) -> Result<(Vec<f64>, EmulationReport)> {
        self.calm(&job.channel)?;
        self.equip(job.system, &job.channel, peers)?;
        let run = self.next_run();
        let files = Files::new(&self.scratch, run);
        fs::write(files.source(Direction::Write), content(seed, job.bytes))
            .map_err(failed_with("the file to be copied"))?;
        let mut carrier = self.carrier(job, &files)?;
        let CopyCarrier::Guest(guest) = &mut carrier else { return Err(failed("only a guest supports this".into())) };
        let began = self.begin(job.crossed(), seed)?;
        let took = guest.copy_beside_small(&files, began + limit)?;
        let report = self.report()?;
        self.must_run()?;
        let took = took.ok_or_else(|| failed("the copy with small files beside it did not end in time".into()))?;
        self.finish(carrier, job, &files)?;
        files.remove();
        Ok((took, report))
    }

    /// Prepares the program or guest that copies the file.
    fn carrier(&mut self, job: &Copy, files: &Files) -> Result<CopyCarrier> {
        if job.system != System::Linux {
            return line(self, job, files).map(CopyCarrier::Program);
        }
        let mut guest = self.guest.take().ok_or_else(|| failed("the guest does not run".into()))?;
        guest.prepare(job.direction, files)?;
        Ok(CopyCarrier::Guest(Box::new(guest)))
    }

    /// Returns the guest after a copy that ended. A guest with an unfinished copy does not answer and is replaced.
    fn finish(&mut self, carrier: CopyCarrier, job: &Copy, files: &Files) -> Result<()> {
        if let CopyCarrier::Guest(mut guest) = carrier {
            self.calm(&job.channel)?;
            guest.finish(job.direction, files)?;
            self.guest = Some(*guest);
        }
        Ok(())
    }

    pub(super) fn base(&self, system: System) -> Ipv4Addr {
        let tunnel = self.tunnel.as_ref().filter(|_| system.has_link());
        tunnel.map_or_else(|| self.emulator.addr(Station::Base), Tunnel::base)
    }

    pub(super) fn begin(&mut self, channel: Config, seed: u64) -> Result<Instant> {
        let errors = channel.errors.clone();
        self.begin_each(channel, seed, |_| errors.clone())
    }

    /// As [`Bench::begin`], with an error model for each mobile.
    pub(super) fn begin_each(
        &mut self,
        channel: Config,
        seed: u64,
        errors: impl Fn(usize) -> ErrorModel,
    ) -> Result<Instant> {
        self.emulator.begin_each(channel, seed, errors).map_err(|e| failed(e.to_string()))?;
        let clock = self.emulator.clock().map_err(|e| failed(e.to_string()))?;
        Ok(clock.instant(Time::ZERO))
    }

    /// Fails if a server or an end of the link has exited: the run is not valid then.
    pub(super) fn must_run(&mut self) -> Result<()> {
        self.server.must_run()?;
        self.ssh.as_mut().map_or(Ok(()), |ssh| ssh.server.must_run())?;
        self.tunnel.as_mut().map_or(Ok(()), Tunnel::must_run)
    }

    pub(super) fn report(&self) -> Result<EmulationReport> {
        self.emulator.report().map_err(|e| failed(e.to_string()))
    }
}

enum CopyCarrier {
    /// Command line of a program on the mobile.
    Program(Vec<String>),
    Guest(Box<Guest>),
}

impl CopyCarrier {
    /// Copies the file. Returns whether it ended in time.
    fn carry(&mut self, bench: &Bench, direction: Direction, files: &Files, limit: Instant) -> Result<bool> {
        let line = match self {
            CopyCarrier::Guest(guest) => return guest.copy(direction, files, limit),
            CopyCarrier::Program(line) => line,
        };
        let environment = program::environment(&bench.scratch);
        let start = Start { environment: &environment, ..Start::new(program::LOG, line) };
        let mut program = Program::start(&bench.emulator, &bench.scratch, Station::Mobile(0), &start)?;
        match program.ended(limit)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(failed(program.words())),
        }
    }
}

/// The channel during preparation: fast and without errors, with the run's delay and duplex mode, so that estimators
/// start with that round-trip time.
fn fair(channel: &Config) -> Config {
    Config {
        rate: Rate::mbit(1000),
        queue_frames: 10_000,
        duplex: channel.duplex,
        delay: channel.delay,
        mtu: channel.mtu,
        ..Config::default()
    }
}

pub(crate) fn serve(emulator: &Emulator, scratch: &Scratch, binary: &Path) -> Result<Program> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let line: Vec<String> = [
        text(binary.to_owned()),
        "serve".into(),
        text(scratch.path("srv")),
        "--listen".into(),
        "0.0.0.0:2049".into(),
        "--state".into(),
        text(scratch.path("state")),
        "--squash".into(),
        "none".into(),
        "--json".into(),
    ]
    .into();
    let mut server =
        Program::start(emulator, scratch, Station::Base, &Start { talks: true, ..Start::new("serve", &line) })?;
    let ready = server.talk()?.until(Instant::now() + READY, |line| line.contains("\"listen\"").then_some(()));
    ready.map_err(|e| failed(format!("{e}; {}", server.words())))?;
    Ok(server)
}

/// Incompressible content of a seed's file.
pub(super) fn content(seed: u64, bytes: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    Rng::stream(seed, "file").fill(&mut content);
    content
}

/// Time until the file's bytes flowed after each outage: the first long frame in the file's direction, by the
/// channel's journal.
fn resumed(report: &EmulationReport, direction: Direction, ended: bool) -> Vec<f64> {
    let from = match direction {
        Direction::Read => Side::Base,
        Direction::Write => Side::Mobile,
    };
    let data =
        |f: &&channel::FrameRecord| f.from == from && f.fate == Fate::Delivered && f.bytes >= channel::DATA_FRAME_MIN;
    let delay = report.config.delay;
    let after = |end: Time| {
        let arrivals = report.journal.frames.iter().filter(data).map(|f| f.end + delay).filter(|at| *at >= end);
        match arrivals.min() {
            Some(at) => Some(at.since(end).as_secs_f64()),
            None if ended => None,
            None => Some(f64::INFINITY),
        }
    };
    report.config.outages.iter().filter_map(|o| after(o.start + o.length)).collect()
}

/// [`ClientConfig::stock`](remora_client::ClientConfig::stock) as flags, without the block size.
pub(super) const STOCK: &[&str] = &[
    "--proto",
    "udp",
    "--retry",
    "exponential",
    "--initial",
    "700ms",
    "--factor",
    "2",
    "--longest",
    "60s",
    "--window",
    "5",
];
/// [`ClientConfig::paper`](remora_client::ClientConfig::paper) as flags.
pub(super) const PAPERS: &[&str] = &[
    "--proto",
    "udp",
    "--retry",
    "hybrid-linear",
    "--initial",
    "700ms",
    "--step",
    "100ms",
    "--linear-retries",
    "3",
    "--longest",
    "60s",
    "--window",
    "5",
];

/// Flags with which Remora's client acts as `system`; `None` for other systems.
pub(super) fn flags(system: System) -> Option<&'static [&'static str]> {
    match system {
        System::Stock | System::LinkStock => Some(STOCK),
        System::Papers | System::LinkPapers => Some(PAPERS),
        System::Adaptive | System::LinkAdaptive => Some(&[]),
        System::OverUdp | System::LinkOverUdp => Some(&["--proto", "udp"]),
        System::OverTcp => Some(&["--proto", "tcp"]),
        _ => None,
    }
}

pub(super) fn remora(bench: &Bench, command: &[&str], flags: &[&str]) -> Vec<String> {
    let binary = bench.binary.to_string_lossy();
    [&[&*binary], command, flags].concat().into_iter().map(str::to_owned).collect()
}

/// The command with which a Remora client contacts the server before the measurement.
pub(super) fn introduction(bench: &Bench, system: System) -> Option<Vec<String>> {
    let mut line = remora(bench, &["ls"], flags(system)?);
    line.push(format!("nfs://{}/", bench.base(system)));
    Some(line)
}

/// Bytes of a READ or WRITE, if fixed.
pub(super) fn block(job: &Copy) -> Option<u32> {
    let of_client = || match job.system.client()?.block {
        BlockSize::Fixed(bytes) => Some(bytes),
        BlockSize::FromLink => None,
    };
    job.block.or_else(of_client)
}

/// The command that copies a file.
pub(super) fn line(bench: &Bench, job: &Copy, files: &Files) -> Result<Vec<String>> {
    let base = bench.base(job.system);
    let (command, remote) = match job.system {
        ours if let Some(flags) = flags(ours) => {
            // Retries for ever, as a hard mount does.
            let mut command = remora(bench, &["cp", "-q", "--timeout", "0"], flags);
            if let Some(bytes) = block(job) {
                command.extend(["--block".into(), bytes.to_string()]);
            }
            (command, format!("nfs://{base}/{}", files.name))
        }
        System::Libnfs => {
            (vec!["nfs-cp".into()], format!("nfs://{base}/srv/{}?version=3&nfsport=2049&mountport=2049", files.name))
        }
        System::Scp | System::Rsync => {
            let ssh = bench.ssh.as_ref().ok_or_else(|| failed("the SSH server does not run".into()))?;
            let path = files.on_server.to_string_lossy();
            (ssh.command(job.system), format!("root@{base}:{path}"))
        }
        other => return Err(failed(format!("{} has no command", other.name()))),
    };
    let local = files.on_mobile.to_string_lossy().into_owned();
    let mut line = command;
    line.extend(match job.direction {
        Direction::Read => [remote, local],
        Direction::Write => [local, remote],
    });
    Ok(line)
}

#[derive(Debug)]
pub(super) struct Other {
    mobile: usize,
    files: Files,
    line: Vec<String>,
    content: Vec<u8>,
}

pub(super) fn ready(bench: &Bench, job: &Copy, seed: u64, run: u64) -> Result<Vec<Other>> {
    let ready = |mobile| {
        let files = Files::of(&bench.scratch, run, mobile);
        let content = content(Channel::seed_of(seed, mobile), job.bytes);
        fs::write(files.source(job.direction), &content).map_err(failed_with("the file to be copied"))?;
        Ok(Other { mobile, line: line(bench, job, &files)?, files, content })
    };
    (1..job.mobiles).map(ready).collect()
}

/// Runs the other mobiles' copies and returns the seconds of each; `None` for one that the limit ended.
pub(super) fn carry(others: &[Other], job: &Copy, scene: &Scene<'_>, limit: Instant) -> Result<Vec<Option<f64>>> {
    let programs = others.iter().map(|other| other.start(scene)).collect::<Result<Vec<Program>>>()?;
    thread::scope(|scope| {
        let waits: Vec<_> = others
            .iter()
            .zip(programs)
            .map(|(other, program)| scope.spawn(move || other.carry(program, job, scene.began, limit)))
            .collect();
        waits.into_iter().map(|wait| wait.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Other {
    fn start(&self, scene: &Scene<'_>) -> Result<Program> {
        let environment = program::environment_of(scene.scratch, self.mobile);
        let name = format!("{LOG}-{}", self.mobile);
        let start = Start { environment: &environment, ..Start::new(&name, &self.line) };
        Program::start(scene.emulator, scene.scratch, Station::Mobile(self.mobile), &start)
    }

    fn carry(&self, mut program: Program, job: &Copy, began: Instant, limit: Instant) -> Result<Option<f64>> {
        let status = program.ended(limit)?;
        let seconds = began.elapsed().as_secs_f64();
        let ended = match status {
            None => None,
            Some(status) if status.success() => Some(seconds),
            Some(_) => return Err(failed(program.words())),
        };
        if ended.is_some() {
            self.check(job)?;
        }
        self.files.remove();
        Ok(ended)
    }

    fn check(&self, job: &Copy) -> Result<()> {
        let copy = fs::read(self.files.copy(job.direction)).map_err(failed_with("the copy"))?;
        match copy == self.content {
            true => Ok(()),
            false => Err(failed(format!("mobile {}: the copy differs from the file", self.mobile))),
        }
    }
}

const TICK: Duration = Duration::from_millis(10);

/// Announces each switch shortly before it begins, as the simulator does, and announces its end.
pub(super) fn announce(scene: &Scene<'_>, switches: &[HandOff]) -> Result<()> {
    for switch in switches.iter().filter(|s| s.announced) {
        let notice = switch.at - SWITCH_NOTICE;
        let begin = Signal::Begin(SWITCH_NOTICE + switch.length);
        for (at, signal) in [(notice, begin), (switch.at + switch.length, Signal::End)] {
            let due = scene.began + Duration::from_nanos(at.as_nanos());
            if !wait(scene, due) {
                return Ok(());
            }
            let told = tell(scene, signal).map_err(failed_with("a hand-off signal"))?;
            if !told && !scene.over.load(Ordering::Acquire) {
                return Err(failed("no program listens for hand-off signals".into()));
            }
        }
    }
    Ok(())
}

/// Waits until `due`. Returns whether the copy is still running.
fn wait(scene: &Scene<'_>, due: Instant) -> bool {
    while !scene.over.load(Ordering::Acquire) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TICK));
    }
    false
}

fn tell(scene: &Scene<'_>, signal: Signal) -> io::Result<bool> {
    match scene.tunnel {
        Some(tunnel) => tunnel.hand_off(signal).map(|()| true),
        None => handoff::announce_in(&scene.scratch.path(HAND_OFF), signal).map(|told| told > 0),
    }
}
