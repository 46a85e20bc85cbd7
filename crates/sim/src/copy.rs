//! One file across the emulated channel: what the papers time (NFS/W 95, section 5;
//! NFS/W 97, section 5), as a run in virtual time.

use bytes::Bytes;
use remora_base::{Path, Rng, Time};
use remora_channel::{Channel, ConfigError, floor};
use remora_client::{Answer, CallId, Client, Failure, Request, Stats};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable};

use crate::client_node::{ClientNode, User};
use crate::net::{Medium, NetStats};
use crate::server_node::{ServerConfig, ServerNode};
use crate::trace::Trace;
use crate::transfer::Transfer;
use crate::world::{Stuck, World};

const NAME: &[u8] = b"file";
/// A copy that takes longer than this has failed.
const DEADLINE: Time = Time::from_secs(24 * 3600);

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the server: LOOKUP, GETATTR, READs.
    Read,
    /// To the server: CREATE, WRITEs, COMMIT.
    Write,
}

/// A copy to be made.
#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// The client; its transport must be UDP, for the channel carries datagrams.
    pub client: remora_client::Config,
    /// The channel between client (mobile) and server (behind the base station).
    pub channel: remora_channel::Config,
    /// The server.
    pub server: ServerConfig,
    /// Which way.
    pub direction: Direction,
    /// How much (range: 1 byte to 1 GiB).
    pub bytes: u64,
}

/// How a copy went. Seconds are of virtual time, from the first call to the last reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CopyResult {
    /// How long it took.
    pub seconds: f64,
    /// How long the data alone would have taken the best sender in the same weather; `None`
    /// if never. See [`remora_channel::floor`].
    pub floor_seconds: Option<f64>,
    /// What the client counted.
    pub client: Stats,
    /// What the network counted.
    pub net: NetStats,
    /// The client's window at the end.
    pub window: u32,
    /// Identifies what happened: the same for the same configuration and seed.
    pub trace: u64,
}

/// Why a copy could not be made.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CopyError {
    /// The channel cannot be like this.
    #[error("channel: {0}")]
    Channel(#[from] ConfigError),
    /// Time stood still.
    #[error("{0}")]
    Stuck(#[from] Stuck),
    /// It did not end within a day.
    #[error("not done after a day")]
    Endless,
    /// A request failed.
    #[error("{0}")]
    Failed(String),
    /// The copy is not what the original is.
    #[error("the copy differs from the original")]
    Differs,
}

impl CopyResult {
    /// How many times longer than the floor it took.
    pub fn ratio(&self) -> Option<f64> {
        self.floor_seconds.map(|floor| self.seconds / floor)
    }
}

/// Makes a copy in virtual time.
pub fn run(config: &CopyConfig, seed: u64) -> Result<CopyResult, CopyError> {
    run_traced(config, seed, Trace::quiet())
}

/// [`run`] with a log of every message.
pub fn run_traced(config: &CopyConfig, seed: u64, trace: Trace) -> Result<CopyResult, CopyError> {
    let mut original = vec![0; config.bytes as usize];
    Rng::stream(seed, "copy").fill(&mut original);
    let original = Bytes::from(original);

    let server = ServerNode::new(config.server.clone(), seed);
    let failed = |what: &str| CopyError::Failed(what.into());
    if config.direction == Direction::Read {
        put(server.fs(), &original).ok_or_else(|| failed("the server has no room"))?;
    }
    let root = server.root_handle().ok_or_else(|| failed("the server gives no root handle"))?;
    let copier = Copier {
        direction: config.direction,
        root,
        original: original.clone(),
        io_max: config.server.limits.io_max(Path::Datagram),
        state: State::Start,
    };
    let mut world = World::new(seed, server, trace);
    let channel = Channel::new(config.channel.clone(), seed)?;
    world.add_client(ClientNode::new(config.client.clone(), seed, copier), Medium::Channel(Box::new(channel)));
    if !world.run(DEADLINE, |w| w.clients[0].user().is_over())? {
        return Err(CopyError::Endless);
    }
    let floor = floor(&config.channel, seed, config.bytes, Time::ZERO)?;
    let result = CopyResult {
        seconds: world.now().as_secs_f64(),
        floor_seconds: floor.map(Time::as_secs_f64),
        client: world.clients[0].core().stats(),
        net: world.net.stats(),
        window: world.clients[0].core().window(),
        trace: world.trace.hash(),
    };
    world.clients[0].user().check(world.server.fs())?;
    Ok(result)
}

/// Puts the original on the server's disk.
fn put(fs: &MemFs, bytes: &Bytes) -> Option<()> {
    let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let made = fs.create(&root, &fs.root(), NAME, &CreateHow::Guarded(SetAttr::NONE)).ok()?;
    fs.write(&root, &made.id, 0, bytes, Stable::FileSync).ok().map(|_| ())
}

/// The user that makes the copy.
#[derive(Debug)]
struct Copier {
    direction: Direction,
    root: Fh,
    original: Bytes,
    io_max: u32,
    state: State,
}

/// At most one call is out but for [`State::Moving`].
#[derive(Debug)]
enum State {
    Start,
    /// CREATE or LOOKUP is out.
    Opening,
    Opened(Fh),
    /// GETATTR is out.
    Sizing(Fh),
    Moving(Transfer),
    Done(Bytes),
    Failed(String),
}

impl Copier {
    fn is_over(&self) -> bool {
        matches!(self.state, State::Done(_) | State::Failed(_))
    }

    fn check(&self, fs: &MemFs) -> Result<(), CopyError> {
        let copy = match (&self.state, self.direction) {
            (State::Failed(why), _) => return Err(CopyError::Failed(why.clone())),
            (State::Done(bytes), Direction::Read) => Some(bytes.clone()),
            (_, Direction::Read) => None,
            // The COMMIT was answered, so the bytes must outlive a crash.
            (_, Direction::Write) => fs.tree().get(NAME).and_then(|n| fs.read_durable(&n.id).ok()),
        };
        if copy.as_ref() == Some(&self.original) { Ok(()) } else { Err(CopyError::Differs) }
    }

    fn open(&self) -> Call {
        let at = DirOp { dir: self.root.clone(), name: Bytes::from_static(NAME) };
        match self.direction {
            Direction::Read => Call::Lookup(at),
            Direction::Write => Call::Create(CreateArgs { at, how: CreateHow::Guarded(SetAttr::NONE) }),
        }
    }

    fn next(&self, state: State, reply: Reply) -> State {
        match (state, reply) {
            (State::Opening, Reply::Lookup(Ok(ok))) => State::Opened(ok.fh),
            (State::Sizing(fh), Reply::GetAttr(Ok(attr))) => State::Moving(Transfer::read(fh, attr.size, self.io_max)),
            (State::Opening, Reply::Create(Ok(ok))) => match ok.fh {
                Some(fh) => State::Moving(Transfer::write(fh, self.original.clone(), self.io_max)),
                None => State::Failed("CREATE brought no handle".into()),
            },
            (_, reply) => State::Failed(format!("{:?} failed: {:?}", reply.proc(), reply.status())),
        }
    }

    /// Submits a call that is not part of a transfer.
    fn call(&mut self, now: Time, client: &mut Client, call: Call, state: State) {
        self.state = match client.submit(now, Request::Nfs(call)) {
            Ok(_) => state,
            Err(busy) => State::Failed(busy.to_string()),
        };
    }
}

impl User for Copier {
    fn drive(&mut self, now: Time, client: &mut Client) {
        match &mut self.state {
            State::Start => {
                let call = self.open();
                self.call(now, client, call, State::Opening);
            }
            State::Opened(fh) => {
                let fh = fh.clone();
                self.call(now, client, Call::GetAttr(fh.clone()), State::Sizing(fh));
            }
            State::Moving(transfer) => transfer.drive(now, client),
            State::Opening | State::Sizing(_) | State::Done(_) | State::Failed(_) => {}
        }
    }

    fn on_done(&mut self, _now: Time, id: CallId, result: Result<Answer, Failure>) {
        if let State::Moving(transfer) = &mut self.state {
            transfer.on_done(id, &result);
        }
        self.state = match (std::mem::replace(&mut self.state, State::Start), result) {
            (State::Moving(transfer), _) if transfer.is_over() => match transfer.failure() {
                Some(why) => State::Failed(why.to_string()),
                None => State::Done(transfer.into_bytes()),
            },
            (state @ State::Moving(_), _) => state,
            (state, Ok(Answer::Nfs(reply))) => self.next(state, reply),
            (_, Ok(_)) => State::Failed("an answer to something else".into()),
            (_, Err(why)) => State::Failed(why.to_string()),
        };
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
