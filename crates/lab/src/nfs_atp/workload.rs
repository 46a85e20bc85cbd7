//! The calls of the filesystem workload, made on time whatever becomes of those before.

use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_host::client::{ClientError, Session};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, WriteArgs};
use tokio::task::JoinSet;

/// Between two small calls.
const SMALL_EVERY: Duration = Duration::from_millis(100);
/// Of so many small calls one has a large one beside it.
const SMALL_PER_LARGE: u32 = 10;
/// Bytes that a large one writes.
const LARGE: usize = 64 << 10;
/// The writes go round in a file of so many blocks.
const BLOCKS: u64 = 16;
/// How long answers are waited for after the last call.
pub(super) const AFTER: Duration = Duration::from_secs(45);

/// A sort of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// GETATTR.
    Small,
    /// WRITE, unstable.
    Large,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Small => "GETATTR",
            Kind::Large => "WRITE 64 KiB",
        }
    }
}

/// A call and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) kind: Kind,
    /// When it was made, from the beginning.
    pub(super) at: Duration,
    /// `None`: it was not answered.
    pub(super) took: Option<Duration>,
}

/// The file that the calls are about.
pub(super) async fn file(session: &Session) -> Result<Fh, ClientError> {
    let at = DirOp { dir: session.root().clone(), name: Bytes::from_static(b"file") };
    let create = Call::Create(CreateArgs { at, how: CreateHow::Unchecked(SetAttr::NONE) });
    let Reply::Create(Ok(made)) = session.ok(create).await? else { return Err(ClientError::Closed) };
    made.fh.ok_or(ClientError::Closed)
}

/// How many small calls [`run`] makes.
pub(super) fn small_calls(length: Duration) -> u64 {
    length.as_nanos().div_ceil(SMALL_EVERY.as_nanos()) as u64
}

/// Makes calls for `length` from `began` on, and waits for their answers for [`AFTER`] at most;
/// `tick` is called with each small one.
pub(super) async fn run(
    session: &Session,
    fh: &Fh,
    began: Instant,
    length: Duration,
    tick: &(dyn Fn() + Sync),
) -> Vec<Measured> {
    let mut under_way = JoinSet::new();
    let mut made = Vec::new();
    let mut make = |kind, at, call| {
        let (session, nth) = (session.clone(), made.len());
        made.push(Measured { kind, at, took: None });
        under_way.spawn(async move {
            let answer = session.ok(call).await;
            (nth, answer.is_ok().then(|| began.elapsed().saturating_sub(at)))
        });
    };
    let block = Bytes::from(vec![0x5a; LARGE]);
    for n in 0u32.. {
        let at = SMALL_EVERY * n;
        if at >= length {
            break;
        }
        tokio::time::sleep_until((began + at).into()).await;
        if n % SMALL_PER_LARGE == 0 {
            let offset = u64::from(n / SMALL_PER_LARGE) % BLOCKS * LARGE as u64;
            let (fh, data) = (fh.clone(), block.clone());
            let write = WriteArgs { fh, offset, count: LARGE as u32, stable: Stable::Unstable, data };
            make(Kind::Large, at, Call::Write(write));
        }
        make(Kind::Small, at, Call::GetAttr(fh.clone()));
        tick();
    }
    let until = began + length + AFTER;
    while let Ok(Some(Ok((nth, took)))) = tokio::time::timeout_at(until.into(), under_way.join_next()).await {
        if let Some(call) = made.get_mut(nth) {
            call.took = took;
        }
    }
    made
}
