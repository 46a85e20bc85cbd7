//! The setting of an attack: plan, addresses, files and connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_base::Rng;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, WriteArgs};

use super::reference_client;
use super::target::{Counters, ServerLimits, Target};
use crate::raw::{Datagrams, Stream};

/// Address of attackers. The reference client has another one, since limits are by address.
pub(super) const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// An address of a /64 network that is local in a [namespace](super).
pub(super) const NETWORK: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x5e70, 0, 0, 0, 0, 0, 1);
/// Length of the reference client's baseline before an attack on shared resources.
pub(super) const CALM: Duration = Duration::from_millis(500);
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const MIB: u64 = 1 << 20;
/// Interval between two samples of the server's memory.
pub(super) const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct AttackPlan {
    pub program: PathBuf,
    pub length: Duration,
    /// Highest 99th percentile of the reference client's latency.
    pub p99_max: Duration,
    /// Least share of the reference client's rate during attacks on shared resources.
    pub rate_ratio_min: f64,
    /// Names of attacks; all if empty.
    pub names: Vec<String>,
    pub seed: u64,
    /// Set to stop early, with clean-up.
    pub stop: Arc<AtomicBool>,
}

/// A summary of the attack, or the server's failure.
pub(super) type AttackResult = Result<String, Box<dyn std::error::Error + Send + Sync>>;

/// What an attacker uses: the server's addresses and two files.
pub(super) struct Ground<'a> {
    pub(super) target: &'a Target,
    pub(super) addr: SocketAddr,
    pub(super) portmap: SocketAddr,
    pub(super) srv: &'a Path,
    pub(super) until: Instant,
    pub(super) seed: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) root: Fh,
    pub(super) other: Fh,
    pub(super) file: Fh,
    pub(super) seen: std::sync::Mutex<Counters>,
}

impl Ground<'_> {
    pub(super) fn new<'a>(target: &'a Target, plan: &'a AttackPlan, stage: ServerLimits) -> io::Result<Ground<'a>> {
        // Clients without access cannot create files.
        let source = if stage.allow.is_some() { reference_client::ADDRESS } else { ATTACKER };
        let mut stream = Stream::connect_from(source, target.addr, PATIENCE)?;
        let (root, other) = (stream.mount("/srv")?, stream.mount("/other")?);
        let file = create(&mut stream, &root, "file")?;
        Ok(Ground {
            target,
            addr: target.addr,
            portmap: target.portmap,
            srv: &target.srv,
            until: Instant::now() + plan.length,
            seed: plan.seed,
            stop: &plan.stop,
            root,
            other,
            file,
            seen: std::sync::Mutex::default(),
        })
    }

    pub(super) fn stream(&self) -> io::Result<Stream> {
        Stream::connect_from(ATTACKER, self.addr, PATIENCE)
    }

    /// Fills the file with more than a reply can hold.
    pub(super) fn fill(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let data = Bytes::from(vec![7; MIB as usize]);
        let (fh, count) = (self.file.clone(), MIB as u32);
        let write = WriteArgs { fh, offset: 0, count, stable: Stable::Unstable, data };
        match self.stream()?.call(&Call::Write(write))? {
            Reply::Write(Ok(ok)) if ok.count == count => Ok(()),
            other => Err(format!("WRITE: {:?}", other.status()).into()),
        }
    }

    pub(super) fn datagrams(&self, addr: SocketAddr) -> io::Result<Datagrams> {
        Datagrams::connect_from(ATTACKER, addr, Duration::from_secs(2))
    }

    pub(super) fn rng(&self, name: &str) -> Rng {
        Rng::stream(self.seed, name)
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn look(&self) -> io::Result<()> {
        let now = self.target.counters()?;
        if let Ok(mut seen) = self.seen.lock() {
            for (name, n) in now {
                let max = seen.entry(name).or_default();
                *max = n.max(*max);
            }
        }
        Ok(())
    }
}

pub(super) fn create(stream: &mut Stream, dir: &Fh, name: &str) -> io::Result<Fh> {
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o666), ..SetAttr::NONE });
    let at = DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
    match stream.call(&Call::Create(CreateArgs { at, how }))? {
        Reply::Create(Ok(made)) => made.fh.ok_or_else(|| io::Error::other("CREATE gave no handle")),
        other => Err(io::Error::other(format!("CREATE: {:?}", other.status()))),
    }
}
