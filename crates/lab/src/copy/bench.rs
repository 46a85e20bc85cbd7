//! A bench of the copy study: the medium, the servers, the background load, and one copy.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use guest::{Scratch, find};
use remora_base::{Rate, Rng};
use remora_channel::{Config, Duplex, Side, SideStats};
use remora_host::emulate::{EmulationReport, EmulationSetup, Emulator, Station};
use remora_host::load::{self, DURATION_MAX, Law, Plan, Runs, Sent};
use rustix::fs::{Advice, fadvise};

use super::options::Options;
use super::plan::{Cell, CopySystem, LOADERS, PROPAGATION};
use super::predict::On;
use super::run::{self, FlowSample, Run, Stopped, Wire};
use crate::wireless::job;
use crate::wireless::real::bench::serve;
use crate::wireless::real::program::{self, Program, READY, Result, Start, failed, failed_with};
use crate::wireless::real::ssh::Ssh;

const LOAD_PORT: u16 = 5001;
/// Payload of a packet, as in Copy 89, in bytes.
const PAYLOAD: usize = 1000;
/// Length of the load before the copy, so that queues fill.
const WARM_UP: Duration = Duration::from_millis(500);

/// A running load. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    stop_receiver: Arc<AtomicBool>,
    runs: Arc<Runs>,
    names: Vec<u64>,
    packet_bytes: u64,
    senders: Vec<JoinHandle<std::io::Result<Sent>>>,
    receiver: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a load of `percent` of `rate`, shared evenly by the load stations, and waits until it is steady. A seed
    /// gives the same packets every time.
    pub(super) fn start(emulator: &Emulator, percent: f64, rate: Rate, seed: u64) -> Result<Background> {
        let to = SocketAddr::from((emulator.addr(Station::Base), LOAD_PORT));
        let each = rate.bits() as f64 * percent / 100.0 / LOADERS as f64;
        let (stop, stop_receiver) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let runs = Arc::new(Runs::default());
        let mut background = Background {
            stop: stop.clone(),
            stop_receiver: stop_receiver.clone(),
            runs: runs.clone(),
            names: Vec::new(),
            packet_bytes: 0,
            senders: Vec::new(),
            receiver: None,
        };
        let Some(each) = Rate::from_bits(each as u64) else { return Ok(background) };
        let socket = emulator.within(Station::Base, || load::listen(to)).map_err(failed_with("the load's receiver"))?;
        background.receiver = Some(spawn("load receiver", move || {
            // Its counts are valid however it ends.
            let _ = load::receive(&socket, &runs, &stop_receiver, |_| ());
        })?);
        for station in 0..LOADERS {
            let name = Rng::stream(seed, &format!("load station {station}")).next_u64();
            let plan = Plan::new(to.ip(), each, PAYLOAD, Law::Poisson, DURATION_MAX, name);
            let plan = plan.map_err(|e| failed(e.to_string()))?;
            let socket = emulator.within(Station::Mobile(1 + station), || load::connect(to));
            let socket = socket.map_err(failed_with("a load station"))?;
            let stop = stop.clone();
            background.names.push(name);
            background.packet_bytes = plan.packet_bytes();
            background.senders.push(spawn("load", move || load::send(&socket, &plan, &stop))?);
        }
        thread::sleep(WARM_UP);
        Ok(background)
    }

    pub(super) fn packets(&self) -> u64 {
        self.names.iter().map(|name| self.runs.carried(*name).packets).sum()
    }

    /// Packet length in bytes with IP and UDP headers; 0 without a load.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.packet_bytes
    }

    /// Stops the load and returns the senders' counts.
    pub(super) fn end(mut self) -> Vec<Sent> {
        self.stop.store(true, Ordering::Release);
        let sent = self.senders.drain(..).filter_map(|sender| sender.join().ok()?.ok()).collect();
        self.stop_receiver.store(true, Ordering::Release);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
        sent
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.stop_receiver.store(true, Ordering::Release);
    }
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed_with("a thread"))
}

/// Sampling interval of a copy.
const TICK: Duration = Duration::from_millis(20);
/// Block size of a copy without a network, in bytes.
const CHUNK: usize = 64 << 10;
/// Directory of files to be read from memory.
const MEMORY: &str = "/dev/shm";

/// The medium: half duplex, no errors.
fn medium(on: On) -> Config {
    Config { rate: on.rate, access: on.access, duplex: Duplex::Half, delay: PROPAGATION, ..Config::default() }
}

/// A bench. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct CopyBench {
    ssh: Option<Ssh>,
    ftp: Option<Ftp>,
    server: Program,
    emulator: Emulator,
    scratch: Scratch,
    memory: Scratch,
    binary: PathBuf,
    on: On,
    runs: u64,
}

/// Result of a copy before it is moved to its place.
type CopyResult = std::result::Result<Run, Stopped>;

impl CopyBench {
    /// A bench with the servers that `systems` need.
    pub(super) fn start(options: &Options, systems: &[CopySystem]) -> Result<CopyBench> {
        let inside = ["srv", "mobile", "state", "log", "run", "run-ssh", "run-ftp"];
        let place = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = Scratch::new(&place, "remora-copy-", &inside).map_err(failed_with(place.display()))?;
        let memory = Scratch::new(Path::new(MEMORY), "remora-copy-", &[]).map_err(failed_with(MEMORY))?;
        let binary = options.binary.clone();
        let setup = EmulationSetup {
            mobiles: 1 + LOADERS,
            config: medium(options.on()),
            inside: [binary.clone().into(), "lab".into(), "inside".into()].into(),
            lateness_max: options.lateness_max,
            ..EmulationSetup::default()
        };
        let emulator = Emulator::start(setup).map_err(|e| failed(e.to_string()))?;
        let server = serve(&emulator, &scratch, &binary)?;
        let secure = systems.iter().any(|s| matches!(s, CopySystem::Scp | CopySystem::Rsync));
        let ssh = secure.then(|| Ssh::start(&emulator, &scratch)).transpose()?;
        let ftp = systems.contains(&CopySystem::Ftp).then(|| Ftp::start(&emulator, &scratch)).transpose()?;
        Ok(CopyBench { ssh, ftp, server, emulator, scratch, memory, binary, on: options.on(), runs: 0 })
    }

    /// Copies a fresh file of random bytes. The file is not cached at the start; the copy is on disk at the end.
    /// [`Stopped`] if `stop` is set.
    pub(super) fn copy(&mut self, cell: &Cell, seed: u64, stop: &AtomicBool) -> Result<CopyResult> {
        self.runs += 1;
        let name = format!("file-{}", self.runs);
        let source = match cell.system {
            CopySystem::FromMemory => self.memory.path(&name),
            _ => self.scratch.path("mobile").join(&name),
        };
        let copy = self.scratch.path("srv").join(&name);
        let hash = prepare(&source, cell, seed).map_err(failed_with("the file to be copied"))?;
        let copied = match cell.system.has_network() {
            true => self.over_network(cell, seed, &source, &copy, stop),
            false => on_disk(&source, &copy).map(|took| Ok(Run::local(seed, took))).map_err(failed_with("the copy")),
        };
        let intact = match &copied {
            Ok(Ok(run)) if run.seconds.is_finite() => Some(hash_of(&copy).map_err(failed_with("the copy"))? == hash),
            _ => None,
        };
        for path in [&source, &copy] {
            // The directory is removed later.
            let _ = fs::remove_file(path);
        }
        match intact {
            Some(false) => Err(failed(format!("{}: the copy differs from the file", cell.system.name()))),
            _ => copied,
        }
    }

    fn over_network(
        &mut self,
        cell: &Cell,
        seed: u64,
        source: &Path,
        copy: &Path,
        stop: &AtomicBool,
    ) -> Result<CopyResult> {
        let line = self.line(cell.system, source, copy)?;
        let config = medium(self.on);
        self.emulator.begin(config, seed).map_err(|e| failed(e.to_string()))?;
        let load = Background::start(&self.emulator, cell.load_percent, self.on.rate, seed)?;
        let before = self.report()?;
        let began = Instant::now();
        let limit = began + Duration::from_secs_f64(cell.limit_seconds(self.on.rate));
        let environment = program::environment(&self.scratch);
        let start = Start { environment: &environment, ..Start::new(cell.system.name(), &line) };
        let mut program = Program::start(&self.emulator, &self.scratch, Station::Mobile(0), &start)?;
        let mut samples = vec![self.sample(began, &load)?];
        let status = loop {
            if stop.load(Ordering::Acquire) {
                return Ok(Err(Stopped));
            }
            let status = program.ended(limit.min(Instant::now() + TICK))?;
            if status.is_some() || Instant::now() >= limit {
                break status;
            }
            samples.push(self.sample(began, &load)?);
        };
        if let Some(status) = status {
            if !status.success() {
                return Err(failed(program.words()));
            }
            // Not all programs sync.
            File::open(copy).and_then(|f| f.sync_all()).map_err(failed_with("the copy"))?;
        }
        let took = began.elapsed();
        samples.push(self.sample(began, &load)?);
        let after = self.report()?;
        self.must_run()?;
        drop(program);
        let packet_bytes = load.packet_bytes();
        let share = |packets_per_s: f64| packets_per_s * (packet_bytes * 8) as f64 / self.on.rate.bits() as f64;
        let flow = run::flow(&samples);
        let offered = load.end().iter().fold(0.0, |sum, s| sum + s.offered_bits_per_s());
        Ok(Ok(Run {
            seed,
            seconds: if status.is_some() { took.as_secs_f64() } else { f64::INFINITY },
            flow_s: flow.map(|f| f.seconds),
            load_offered: offered / self.on.rate.bits() as f64,
            load_carried: flow.map_or(0.0, |f| share(f.load_packets_per_s)),
            load_packet_bytes: packet_bytes,
            there: wire(&before, &after, Side::Mobile),
            back: wire(&before, &after, Side::Base),
            collisions: after.collisions.saturating_sub(before.collisions),
            lateness_ms: after.lateness.max.as_secs_f64() * 1e3,
            in_time: after.valid(),
        }))
    }

    /// Fails if a server has exited.
    fn must_run(&mut self) -> Result<()> {
        self.server.must_run()?;
        self.ssh.as_mut().map_or(Ok(()), |ssh| ssh.server.must_run())?;
        self.ftp.as_mut().map_or(Ok(()), Ftp::must_run)
    }

    fn sample(&self, began: Instant, load: &Background) -> Result<FlowSample> {
        let sent = lane(&self.report()?, Side::Mobile).airtime;
        Ok(FlowSample {
            at_s: began.elapsed().as_secs_f64(),
            sent_s: sent.as_secs_f64(),
            load_packets: load.packets() as f64,
        })
    }

    fn report(&self) -> Result<EmulationReport> {
        self.emulator.report().map_err(|e| failed(e.to_string()))
    }

    fn line(&self, system: CopySystem, source: &Path, copy: &Path) -> Result<Vec<String>> {
        let base = self.emulator.addr(Station::Base);
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        let local = source.to_string_lossy().into_owned();
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let ssh = || self.ssh.as_ref().ok_or_else(|| failed("the SSH server does not run".into()));
        Ok(match system {
            CopySystem::Remora => {
                let remora = self.binary.to_string_lossy();
                words(&[&remora, "cp", "-q", "--timeout", "0", &local, &format!("nfs://{base}/{name}")])
            }
            CopySystem::Libnfs => {
                let url = format!("nfs://{base}/srv/{name}?version=3&nfsport=2049&mountport=2049");
                words(&["nfs-cp", &local, &url])
            }
            CopySystem::Scp | CopySystem::Rsync => {
                let by = if system == CopySystem::Rsync { job::System::Rsync } else { job::System::Scp };
                let mut line = ssh()?.command(by);
                line.extend([local, format!("root@{base}:{}", copy.display())]);
                line
            }
            CopySystem::Ftp if self.ftp.is_some() => Ftp::put(&self.emulator, source, &name),
            other => return Err(failed(format!("{} has no command", other.name()))),
        })
    }
}

/// Creates an incompressible file, the same for all systems, evicts it from the cache and returns its hash.
fn prepare(path: &Path, cell: &Cell, seed: u64) -> io::Result<blake3::Hash> {
    let mut rng = Rng::stream(seed, "file");
    let mut file = File::create(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK];
    let mut left = cell.bytes;
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let part = chunk.get_mut(..n).unwrap_or_default();
        rng.fill(part);
        hasher.update(part);
        file.write_all(part)?;
        left -= n as u64;
    }
    file.sync_all()?;
    if cell.system != CopySystem::FromMemory {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(hasher.finalize())
}

/// Hash of a file, read from disk as far as the system evicts it from the cache.
fn hash_of(path: &Path) -> io::Result<blake3::Hash> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize())
}

/// Reads and writes, as `cp` did then; sharing extents is not a copy.
fn on_disk(source: &Path, copy: &Path) -> io::Result<Duration> {
    let began = Instant::now();
    let (mut from, mut to) = (File::open(source)?, File::create(copy)?);
    let mut chunk = vec![0; CHUNK];
    loop {
        let n = from.read(&mut chunk)?;
        match chunk.get(..n) {
            Some(part) if n > 0 => to.write_all(part)?,
            _ => break,
        }
    }
    to.sync_all()?;
    Ok(began.elapsed())
}

/// Frames of the client's link in one direction.
fn lane(report: &EmulationReport, from: Side) -> SideStats {
    let ours = report.lanes.iter().find(|l| l.lane.mobile == 0 && l.lane.from == from);
    ours.map(|l| l.stats).unwrap_or_default()
}

fn wire(before: &EmulationReport, after: &EmulationReport, from: Side) -> Wire {
    let (before, after) = (lane(before, from), lane(after, from));
    Wire {
        frames: after.frames_sent.saturating_sub(before.frames_sent),
        seconds: after.airtime.saturating_sub(before.airtime).as_secs_f64(),
        dropped: after.frames_queue_full.saturating_sub(before.frames_queue_full),
    }
}

const FTP_PORT: u16 = 2121;

#[derive(Debug)]
pub(super) struct Ftp(Program);

impl Ftp {
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch) -> Result<Ftp> {
        let (root, empty) = (scratch.path("srv"), scratch.path("run-ftp"));
        let settings = format!(
            "listen=YES\nlisten_ipv6=NO\nlisten_port={FTP_PORT}\nbackground=NO\nrun_as_launching_user=YES\n\
             anonymous_enable=YES\nno_anon_password=YES\nanon_root={}\nlocal_enable=NO\nwrite_enable=YES\n\
             anon_upload_enable=YES\nanon_world_readable_only=NO\nanon_umask=022\nallow_writeable_chroot=YES\n\
             secure_chroot_dir={}\nseccomp_sandbox=NO\nftp_username=root\npasv_enable=YES\n\
             connect_from_port_20=NO\nxferlog_enable=NO\nuse_localtime=NO\n",
            root.display(),
            empty.display(),
        );
        let file = scratch.path("vsftpd.conf");
        fs::write(&file, settings).map_err(failed_with("the FTP server's settings"))?;
        let vsftpd = find("vsftpd").ok_or_else(|| failed("vsftpd is not installed".into()))?;
        let line = [vsftpd, file].map(|path| path.to_string_lossy().into_owned());
        let ftp = Ftp(Program::start(emulator, scratch, Station::Base, &Start::new("vsftpd", &line))?);
        ftp.wait(emulator)?;
        Ok(ftp)
    }

    fn wait(&self, emulator: &Emulator) -> Result<()> {
        let deadline = Instant::now() + READY;
        let at = SocketAddr::from((emulator.addr(Station::Base), FTP_PORT));
        while emulator.within(Station::Base, || TcpStream::connect_timeout(&at, Duration::from_millis(500))).is_err() {
            if Instant::now() >= deadline {
                return Err(failed(format!("the FTP server does not answer; {}", self.0.words())));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn must_run(&mut self) -> Result<()> {
        self.0.must_run()
    }

    pub(super) fn put(emulator: &Emulator, local: &Path, name: &str) -> Vec<String> {
        let script = format!(
            "set net:max-retries 1; set net:reconnect-interval-base 1; set ftp:use-mdtm no; set ftp:use-site-utime no; \
             set ftp:use-site-utime2 no; set cmd:fail-exit yes; open -p {FTP_PORT} {}; put {} -o {name}",
            emulator.addr(Station::Base),
            local.display(),
        );
        ["lftp", "--norc", "-c", &script].map(str::to_owned).into()
    }
}
