//! The well-behaved client beside an attack: it writes, reads, checks every byte and records latencies.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, ReadArgs, Reply, SetAttr, Stable, WriteArgs};

use crate::raw::Stream;

/// Its address. Attackers use another one, since limits are by address.
pub(super) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two calls: a user, not a load.
const THINK: Duration = Duration::from_micros(500);
/// Longest latency of the histogram in nanoseconds: more than [`PATIENCE`].
const NANOS_MAX: u64 = 100_000_000_000;
/// Bytes of a block in the file. Most blocks are partly filled, some fully.
const ROOM: usize = 64 << 10;
const BLOCKS: u64 = 16;

/// Filled bytes of a block: small and large requests.
fn size(block: u64) -> usize {
    if block % 4 == 3 { ROOM } else { 4096 }
}

#[derive(Debug)]
pub(super) struct Experience {
    pub(super) calls: u64,
    /// Calls per second.
    pub(super) rate: f64,
    pub(super) error: Option<String>,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

pub(super) struct ReferenceClient {
    stream: Stream,
    fh: Fh,
    versions: [u64; BLOCKS as usize],
}

impl ReferenceClient {
    pub(super) fn new(addr: SocketAddr) -> io::Result<ReferenceClient> {
        let mut stream = Stream::connect_from(ADDRESS, addr, PATIENCE)?;
        let root = stream.mount("/srv")?;
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), ..SetAttr::NONE });
        let create = Call::Create(CreateArgs { at: DirOp { dir: root, name: Bytes::from_static(b"good") }, how });
        let Reply::Create(Ok(made)) = stream.call(&create)? else { return Err(io::Error::other("CREATE failed")) };
        let fh = made.fh.ok_or_else(|| io::Error::other("CREATE gave no handle"))?;
        let mut good = ReferenceClient { stream, fh, versions: [0; BLOCKS as usize] };
        for block in 0..BLOCKS {
            good.write(block)?;
        }
        Ok(good)
    }

    /// Calls until `is_over` returns true or a call fails.
    pub(super) fn run(&mut self, is_over: impl Fn() -> bool) -> Experience {
        let start = Instant::now();
        let mut times = Histogram::<u64>::new_with_bounds(1, NANOS_MAX, 3)
            .unwrap_or_else(|e| unreachable!("three digits of these bounds: {e}"));
        let mut error = None;
        for turn in 0.. {
            if error.is_some() || is_over() {
                break;
            }
            let block = (turn * 7) % BLOCKS;
            for act in [ReferenceClient::write, ReferenceClient::read] {
                let began = Instant::now();
                error = error.or(act(self, block).err().map(|e| format!("block {block}: {e}")));
                times.saturating_record(began.elapsed().as_nanos() as u64);
                std::thread::sleep(THINK);
            }
        }
        let [p99, max] = [times.value_at_quantile(0.99), times.max()].map(Duration::from_nanos);
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Experience { calls: times.len(), rate, error, p99, max }
    }

    fn write(&mut self, block: u64) -> io::Result<()> {
        let version = self.versions.get_mut(block as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *version += 1;
        let data = content(block, *version);
        let (offset, count) = (block * ROOM as u64, size(block) as u32);
        let write = Call::Write(WriteArgs { fh: self.fh.clone(), offset, count, stable: Stable::FileSync, data });
        match self.stream.call(&write)? {
            Reply::Write(Ok(ok)) if ok.count == count && ok.committed == Stable::FileSync => Ok(()),
            other => Err(io::Error::other(format!("WRITE: {:?}", other.status()))),
        }
    }

    fn read(&mut self, block: u64) -> io::Result<()> {
        let version = self.versions.get(block as usize).copied().unwrap_or_default();
        let read = Call::Read(ReadArgs { fh: self.fh.clone(), offset: block * ROOM as u64, count: size(block) as u32 });
        match self.stream.call(&read)? {
            Reply::Read(Ok(ok)) if ok.data == content(block, version) => Ok(()),
            Reply::Read(Ok(_)) => Err(io::Error::other("READ: not what was written")),
            other => Err(io::Error::other(format!("READ: {:?}", other.status()))),
        }
    }
}

fn content(block: u64, version: u64) -> Bytes {
    let word = (block << 48 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(size(block) / 8).into()
}

impl Experience {
    pub(super) fn none(why: &str) -> Experience {
        Experience { calls: 0, rate: 0.0, error: Some(why.to_owned()), p99: Duration::ZERO, max: Duration::ZERO }
    }
}
