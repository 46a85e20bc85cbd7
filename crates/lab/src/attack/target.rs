//! The server under attack: a `remora serve` process, seen from outside.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::reference_client;

/// Time limit to start, to report counters and to stop.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerLimits {
    /// Open file limit, which also limits connections.
    pub(super) files_max: Option<u32>,
    /// Bytes of a memory file system to serve. Needs root.
    pub(super) disk_bytes: Option<u64>,
    /// Clients allowed by the exports; all if `None`.
    pub(super) allow: Option<&'static str>,
    /// Runs in a network namespace with [`NETWORK`](super::ground::NETWORK) and listens on all addresses. Needs root.
    pub(super) has_network: bool,
}

pub(super) type Counters = BTreeMap<String, u64>;

/// A running server. Dropping it kills it.
pub(super) struct Target {
    child: Child,
    lines: Receiver<Value>,
    pub(super) addr: SocketAddr,
    pub(super) portmap: SocketAddr,
    _dir: tempfile::TempDir,
    /// The directory exported as `/srv`, in the machine's mount namespace.
    pub(super) srv: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Process(u32);

impl Process {
    /// Resident memory (VmRSS) in bytes; 0 after its exit.
    pub(super) fn memory_bytes(self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.unwrap_or(0u64) * 1024
    }
}

pub(super) struct Ended {
    /// A clean exit, or what happened instead.
    pub(super) how: Result<(), String>,
    pub(super) took: Duration,
}

impl Target {
    /// Starts `program`, which exports `/srv` and `/other` in a fresh directory.
    pub(super) fn start(program: &Path, stage: ServerLimits) -> io::Result<Target> {
        let dir = tempfile::tempdir()?;
        let [srv, other, state] = ["srv", "other", "state"].map(|name| dir.path().join(name));
        fs::create_dir(&srv)?;
        fs::create_dir(&other)?;
        let serve = format!(
            "{limit}{mount}exec \"$0\" serve --export \"srv=$1\" --export \"other=$2\" --state \"$3\" \
             --listen {listen} --portmap=0 --squash none --json{allow}",
            listen = if stage.has_network { "[::]:0" } else { "127.0.0.1:0" },
            allow = stage.allow.map(|clients| format!(" --allow {clients}")).unwrap_or_default(),
            limit = stage.files_max.map(|n| format!("ulimit -n {n} && ")).unwrap_or_default(),
            mount = stage.disk_bytes.map(|n| format!("mount -t tmpfs -o size={n} none \"$1\" && ")).unwrap_or_default(),
        );
        // It exits with its parent thread, even a killed one: the setting survives exec (prctl(2)).
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        // A mount in a private namespace disappears with the process.
        let shell: &[&str] = if stage.disk_bytes.is_some() { &["unshare", "-m", "sh", "-c"] } else { &["sh", "-c"] };
        command.args(shell).arg(serve).arg(program).args([&srv, &other, &state]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = read_lines(&mut child);
        let mut target = Target { child, lines, addr: ([0; 4], 0).into(), portmap: ([0; 4], 0).into(), _dir: dir, srv };
        let ready = target.line()?;
        target.addr = address(ready.pointer("/listen/0"))?;
        if stage.has_network {
            target.addr.set_ip(reference_client::ADDRESS);
        }
        target.portmap = address(ready.get("portmap"))?;
        Ok(target)
    }

    /// Counters that the server reports on SIGUSR1.
    pub(super) fn counters(&self) -> io::Result<Counters> {
        self.signal(Signal::USR1)?;
        counters(&self.line()?)
    }

    pub(super) fn process(&self) -> Process {
        Process(self.child.id())
    }

    pub(super) fn stop(mut self) -> io::Result<Ended> {
        let began = Instant::now();
        self.signal(Signal::TERM)?;
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                let report = self.lines.iter().last();
                let abandoned = report.as_ref().and_then(|r| r.get("abandoned")?.as_u64());
                let how = match abandoned {
                    Some(0) if status.success() => Ok(()),
                    Some(n) => Err(format!("{status}, {n} requests left unanswered")),
                    None => Err(format!("{status}, nothing said")),
                };
                return Ok(Ended { how, took: began.elapsed() });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Ended { how: Err("it goes on".into()), took: began.elapsed() })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or(io::ErrorKind::NotFound)?, signal).map_err(io::Error::from)
    }

    fn line(&self) -> io::Result<Value> {
        self.lines.recv_timeout(PATIENCE).map_err(|_| io::Error::other("the server prints nothing"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have exited before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(child: &mut Child) -> Receiver<Value> {
    let (tell, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let values = BufReader::new(stdout).lines().map_while(Result::ok);
            let mut values = values.filter_map(|line| serde_json::from_str(&line).ok());
            while values.next().is_some_and(|value| tell.send(value).is_ok()) {}
        });
    }
    lines
}

fn address(value: Option<&Value>) -> io::Result<SocketAddr> {
    let parsed = value.and_then(Value::as_str).and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| io::Error::other("the server does not print its address"))
}

fn counters(line: &Value) -> io::Result<Counters> {
    let object = line.get("counters").and_then(Value::as_object);
    let object = object.ok_or_else(|| io::Error::other("the server does not print its counters"))?;
    Ok(object.iter().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect())
}
