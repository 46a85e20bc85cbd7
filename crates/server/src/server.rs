//! The server as a state machine.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time, Transmit};
use remora_wire::mount;
use remora_wire::nfs3::{self, Call, Fh, Status};
use remora_wire::rpc::Outcome;
use remora_wire::rpcbind::Service;

use crate::auth::Caller;
use crate::cache::{Cache, Completion, Connections, Ends, EntryId, Request, Streams, Verdict};
use crate::config::Config;
use crate::cookies::Cookies;
use crate::dispatch::{Incoming, NfsCall};
use crate::in_flight::InFlight;
use crate::intake::{Intake, Message};
use crate::job::{Answer, Execute, Failure, Form, Job, Ticket, Work, message};
use crate::mounts::{Mounts, export_list};
use crate::portmap::{self, Portmap, may_be_forged};
use crate::validation::{Limited, Validation};
use crate::{Exports, Programs, Stats, Version};

/// A server of NFSv3 and NFSv2, and of the MOUNT versions that go with them.
///
/// Beside [`Core`]'s law: run every [`Execute`] that [`poll_event`](Core::poll_event) brings,
/// in any order and as many at once as you like, and give each answer to
/// [`complete`](Server::complete); report every stream that ends with
/// [`disconnected`](Server::disconnected); and read from a stream only while
/// [`has_room`](Server::has_room), so that a busy server slows its clients down instead of
/// turning them away.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// When something last came in.
    now: Time,
    cache: Cache,
    intake: Intake,
    live: Connections,
    in_flight: InFlight,
    pending: BTreeMap<Ticket, Pending>,
    next_ticket: u64,
    /// Whose lines are here, and whether it is this server that accounts for them: the last of
    /// those that share them.
    mounts: Arc<Mutex<Mounts>>,
    mounts_mine: bool,
    cookies: Arc<Cookies>,
    portmap: Option<Portmap>,
    validation: Validation,
    out: VecDeque<Transmit>,
    events: VecDeque<Execute>,
    stats: Stats,
}

/// A job that is being run.
#[derive(Debug)]
struct Pending {
    peer: Peer,
    client: IpAddr,
    /// Bytes charged while it runs.
    bytes: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The cache has nothing to do with it.
    Plain,
    /// MNT of this path.
    Mount(Bytes),
    /// The cache wants to know what comes of it.
    Cached { request: Request, entry: Option<EntryId> },
    /// The cache wants to know whether the target changed; if so the work is to be done again.
    Check { request: Request, entry: EntryId, work: Work },
}

/// What a request counts for while it is under way, beside its message and the data of its reply, in bytes: see
/// [`Limits`](crate::Limits). Who counts less for each would let in more than there is room for.
pub const JOB_OVERHEAD: usize = 1024;
/// The most bytes of a list for an address that may be forged.
const FORGED_LIST_MAX: usize = 1024;

impl Server {
    /// A server without connections and with an empty cache. `seed` makes the secret of the
    /// cache's hash: on the host it must not be guessable.
    pub fn new(config: Config, seed: u64, now: Time) -> Server {
        Server {
            now,
            cache: Cache::new(config.cache),
            intake: Intake::new(config.cache, seed),
            live: Connections::default(),
            in_flight: InFlight::default(),
            pending: BTreeMap::new(),
            next_ticket: 0,
            mounts: Arc::new(Mutex::new(Mounts::new(config.limits.mounts_max))),
            mounts_mine: true,
            cookies: Arc::default(),
            portmap: None,
            validation: Validation::new(config.address_validation, seed),
            out: VecDeque::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// `n` servers (at least one) that are one to their clients, as long as all that comes from
    /// an address goes to the same one of them. Each keeps to the configured bounds by itself.
    /// Other [exports](Server::set_exports) each is to be given in this order.
    pub fn split(config: Config, seed: u64, now: Time, n: usize) -> Vec<Server> {
        let last = Server::new(config.clone(), seed, now);
        let (mounts, cookies) = (last.mounts.clone(), last.cookies.clone());
        let other = |_| Server {
            mounts: mounts.clone(),
            mounts_mine: false,
            cookies: cookies.clone(),
            ..Server::new(config.clone(), seed, now)
        };
        let mut all: Vec<Server> = (1..n).map(other).collect();
        all.push(last);
        all
    }

    /// What reads messages for [`take`](Server::take), of this server and those split off with
    /// it.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// Takes a message that has been read. `ends` says what became of streams.
    pub fn take(&mut self, now: Time, read: Message, ends: &dyn Ends) {
        let Message { from, bytes, incoming, request } = read;
        self.now = now;
        self.stats.messages += 1;
        if (from.path == Path::Datagram || self.live.is_new(from)) && self.tells(from) {
            self.validation.heard(now, from, bytes);
        }
        match incoming {
            Incoming::Null { xid } => self.live.heard_null(from, xid),
            _ => self.live.heard(from, incoming.xid()),
        }
        match incoming {
            Incoming::NotACall => self.stats.not_calls += 1,
            Incoming::Refused { xid, outcome } => self.refuse(from, xid, outcome),
            Incoming::Null { xid } => self.send(from, message(xid, Outcome::Success, |_| {})),
            Incoming::Mount { xid, caller, version, call } => self.mount(from, xid, caller, version, call),
            Incoming::Portmap { xid, call } => self.ask_portmap(from, xid, call),
            Incoming::Answered { xid, reply } => {
                self.stats.nfs_calls += 1;
                self.stats.nfs2_calls += 1;
                self.send(from, message(xid, Outcome::Success, |out| reply.encode(out)));
            }
            Incoming::Nfs(call) => self.nfs(now, from, call, request, ends),
        }
    }

    /// Makes it a portmapper as well, one that knows of these and no others.
    pub fn set_portmap(&mut self, services: Vec<Service>) {
        self.portmap = Some(Portmap::new(services));
        self.intake.read_portmap();
    }

    /// Serves `exports` from now on. Jobs that are out keep the old ones to their end. Handles of
    /// exports that stay, by their first name and the key, stay good. Returns the old ones: to
    /// let go of them may take the system a while.
    pub fn set_exports(&mut self, exports: Arc<Exports>) -> Arc<Exports> {
        // Once for all that share the lines, when there is none any more that serves the old ones.
        if self.mounts_mine {
            self.mounts().keep(|path| exports.exports(path));
        }
        std::mem::replace(&mut self.config.exports, exports)
    }

    /// Takes the answer to an [`Execute`]. Answers to unknown tickets are counted and dropped.
    pub fn complete(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        let Some(Pending { peer, client, bytes, kind }) = self.pending.remove(&ticket) else {
            self.stats.stray_answers += 1;
            return;
        };
        self.in_flight.end(client, bytes);
        match answer.result {
            Err(Failure::Denied) => self.stats.denied += 1,
            Err(Failure::BadHandle) => self.stats.bad_handles += 1,
            Err(Failure::Busy) => self.stats.overload_dropped += 1,
            Err(Failure::Other) => self.stats.failed += 1,
            Ok(()) => {}
        }
        match kind {
            Kind::Cached { entry, .. } if answer.result == Err(Failure::Busy) => {
                entry.into_iter().for_each(|entry| self.cache.withdraw(entry));
            }
            _ if answer.result == Err(Failure::Busy) => {}
            Kind::Plain => self.send(peer, answer.reply),
            Kind::Mount(path) => {
                // Other exports may have come into force meanwhile, and taken out the lines of those that went.
                if answer.result.is_ok() && self.config.exports.exports(&path) {
                    self.mounts().add(client, &path);
                }
                self.send(peer, answer.reply);
            }
            Kind::Cached { request, entry } => self.finish(now, &request, entry, answer),
            Kind::Check { request, entry, work } => match self.cache.checked(entry, answer.times) {
                Some(reply) => self.send(peer, reply),
                None => {
                    let kind = Kind::Cached { request, entry: Some(entry) };
                    self.execute(peer, request.xid, bytes, work, kind);
                }
            },
        }
    }

    fn finish(&mut self, now: Time, request: &Request, entry: Option<EntryId>, answer: Answer) {
        let done = Completion { reply: answer.reply, ok: answer.result.is_ok(), times: answer.times };
        match self.cache.finish(now, request, entry, &self.live, done) {
            Some(finished) => self.send(finished.to, finished.reply),
            None => self.stats.unreachable += 1,
        }
    }

    /// A stream is gone, and nothing more comes in on it. Replies waiting for it are dropped; what the cache knows of its
    /// requests stays, for when the client comes back.
    pub fn disconnected(&mut self, peer: Peer) {
        self.live.gone(peer);
        self.drop_replies(peer);
    }

    /// As [`disconnected`](Server::disconnected), of a stream that its client ended, or we for its being idle, when all
    /// requests were answered and all replies had arrived.
    pub fn ended(&mut self, peer: Peer) {
        self.live.ended(peer);
        self.drop_replies(peer);
    }

    fn drop_replies(&mut self, peer: Peer) {
        let before = self.out.len();
        self.out.retain(|t| t.to.path != peer.path || peer.path == Path::Datagram);
        self.stats.unreachable += (before - self.out.len()) as u64;
    }

    /// What has been counted.
    pub fn stats(&self) -> Stats {
        Stats { cache: *self.cache.stats(), ..self.stats }
    }

    /// How many requests are being executed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.requests()
    }

    /// Whether a call is being executed whose reply goes to the stream `peer`, be it that it came on another one first.
    pub fn owes(&self, peer: Peer) -> bool {
        let client = peer.addr.ip().to_canonical();
        self.pending.values().filter(|pending| pending.client == client).any(|p| self.goes_to(p) == Some(peer))
    }

    /// Those to whom it owes a reply to a call of the duplicate request cache.
    pub fn owed(&self) -> impl Iterator<Item = Peer> {
        self.pending.values().filter_map(|pending| self.goes_to(pending))
    }

    fn goes_to(&self, pending: &Pending) -> Option<Peer> {
        match pending.kind {
            Kind::Cached { entry: Some(entry), .. } => self.cache.goes_to(entry, &self.live),
            _ => None,
        }
    }

    /// Whether another request from `client`, of the largest size, could be executed now.
    pub fn has_room(&self, client: IpAddr) -> bool {
        let largest = JOB_OVERHEAD + self.config.limits.stream_io_max as usize;
        self.in_flight.has_room(&self.config.limits, client.to_canonical(), largest)
    }

    /// Bytes held: cache, requests being executed, replies not yet taken, mount list.
    pub fn memory(&self) -> usize {
        let out: usize = self.out.iter().map(|t| size_of::<Transmit>() + t.payload.len()).sum();
        let mounts = if self.mounts_mine { self.mounts().bytes() } else { 0 };
        self.cache.bytes() + self.in_flight.bytes() + out + mounts
    }

    /// Bytes the duplicate request cache holds.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// What the client has there that has the most, in bytes.
    pub fn cache_largest(&self) -> usize {
        self.cache.largest()
    }

    /// Has the cache give up replies until it holds no more than `bytes_max`, as it would by
    /// itself if that were its bound.
    pub fn shrink_cache(&mut self, bytes_max: usize) {
        self.cache.shrink(bytes_max);
    }

    fn mounts(&self) -> MutexGuard<'_, Mounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nfs(&mut self, now: Time, from: Peer, nfs: NfsCall, request: Option<Request>, ends: &dyn Ends) {
        self.stats.nfs_calls += 1;
        self.stats.nfs2_calls += u64::from(nfs.form.version() == Version::V2);
        let NfsCall { xid, caller, call, form, args, .. } = nfs;
        let proc = call.proc();
        let client = from.addr.ip().to_canonical();
        if !self.config.exports.any_allows(from.addr) {
            self.stats.denied += 1;
            return self.send(from, form.failed(xid, proc, Status::Access));
        }
        // Before the cache: a reply that it has is for those only who may use the export.
        if request.is_some() && self.config.exports.refuses(&call, from.addr) {
            self.stats.denied += 1;
            return self.send(from, form.failed(xid, proc, Status::Access));
        }
        let Limited { call, is_cut, listing_verf } = self.validation.limit(from, form, call);
        self.stats.unvalidated_cut += u64::from(is_cut);
        let bytes = self.charge(from.path, &call, args.len());
        let room = self.in_flight.has_room(&self.config.limits, client, bytes);
        let Some(request) = request else {
            return match room {
                true => self.execute(from, xid, bytes, Work::Nfs { caller, call, form, listing_verf }, Kind::Plain),
                false => self.turn_away(from, xid, form, proc),
            };
        };
        let streams = Streams { connections: &self.live, ends };
        let verdict = self.cache.begin(now, &request, streams, room);
        if verdict.is_known() {
            self.live.heard_before(from);
        }
        match verdict {
            Verdict::Execute(entry) => {
                self.execute(
                    from,
                    xid,
                    bytes,
                    Work::Nfs { caller, call, form, listing_verf },
                    Kind::Cached { request, entry },
                );
            }
            Verdict::InProgress | Verdict::Recent => {}
            Verdict::Replay(reply) => self.send(from, reply),
            Verdict::NoRoom => self.turn_away(from, xid, form, proc),
            Verdict::Check(entry) => self.check(request, entry, bytes, Work::Nfs { caller, call, form, listing_verf }),
        }
    }

    /// Asks whether what a repeated call is about has changed since.
    fn check(&mut self, request: Request, entry: EntryId, bytes: usize, work: Work) {
        let target = match &work {
            Work::Nfs { call, .. } => call.target().cloned(),
            Work::Mount { .. } | Work::Times(_) => None,
        };
        let target = target.unwrap_or_else(|| Fh(Bytes::new()));
        let kind = Kind::Check { request, entry, work };
        self.execute(request.peer, request.xid, bytes, Work::Times(target), kind);
    }

    /// Refuses a request that has no room. A client sends a datagram again by itself. On a stream it would wait long, so
    /// the server answers with JUKEBOX; in version 2, which has no such error, with NFSERR_IO.
    fn turn_away(&mut self, from: Peer, xid: u32, form: Form, proc: nfs3::Proc) {
        match from.path {
            Path::Datagram => self.stats.overload_dropped += 1,
            Path::Stream(_) => {
                self.stats.overload_deferred += 1;
                self.send(from, form.failed(xid, proc, Status::Jukebox));
            }
        }
    }

    /// Bytes that executing `call` may hold.
    fn charge(&self, path: Path, call: &Call, args: usize) -> usize {
        let reply = match call {
            Call::Read(a) => a.count,
            Call::ReadDir(a) => a.count,
            Call::ReadDirPlus(a) => a.max_count,
            _ => 0,
        };
        JOB_OVERHEAD + args + reply.min(self.config.limits.io_max(path)) as usize
    }

    fn mount(&mut self, from: Peer, xid: u32, caller: Caller, version: Version, call: mount::Call) {
        self.stats.mount_calls += 1;
        let client = from.addr.ip().to_canonical();
        let reply = match call {
            mount::Call::Mnt(path) => return self.mnt(from, xid, caller, version, path),
            mount::Call::Null => mount::Reply::Void,
            mount::Call::Umnt(path) => {
                self.mounts().remove(client, Some(path.as_ref()));
                mount::Reply::Void
            }
            mount::Call::UmntAll => {
                self.mounts().remove(client, None);
                mount::Reply::Void
            }
            // All but MNT's replies are the same in both versions.
            mount::Call::Dump if may_be_forged(from) => return self.refuse(from, xid, Outcome::ProcUnavail),
            mount::Call::Dump => mount::Reply::Dump(self.that_fit(from, self.mounts().entries())),
            mount::Call::Export => mount::Reply::Export(self.that_fit(from, export_list(&self.config.exports))),
        };
        self.send(from, message(xid, Outcome::Success, |out| reply.encode(out)));
    }

    fn mnt(&mut self, from: Peer, xid: u32, caller: Caller, version: Version, path: Bytes) {
        let bytes = JOB_OVERHEAD + path.len();
        if self.in_flight.has_room(&self.config.limits, from.addr.ip().to_canonical(), bytes) {
            self.execute(from, xid, bytes, Work::Mount { caller, path: path.clone(), version }, Kind::Mount(path));
        } else {
            // As where the file system is busy.
            self.stats.overload_dropped += 1;
        }
    }

    fn ask_portmap(&mut self, from: Peer, xid: u32, call: portmap::Call) {
        self.stats.portmap_calls += 1;
        match self.portmap.as_ref().and_then(|p| p.answer(from, call)) {
            Some(reply) => self.send(from, message(xid, Outcome::Success, |out| reply.encode(out))),
            None => self.refuse(from, xid, Outcome::ProcUnavail),
        }
    }

    /// As many items of one of MOUNT's lists as `to` is told.
    fn that_fit<T: Listed>(&self, to: Peer, items: impl Iterator<Item = T>) -> Vec<T> {
        let mut left = self.list_max(to);
        items
            .map_while(|item| {
                left = left.checked_sub(item.size_max())?;
                Some(item)
            })
            .collect()
    }

    /// Whether `to` gets more than refusals: it may use an export, or is on this machine.
    fn tells(&self, to: Peer) -> bool {
        let ip = to.addr.ip().to_canonical();
        ip.is_loopback() || self.config.exports.any_is_for(ip)
    }

    /// The most bytes of a list for `to`.
    fn list_max(&self, to: Peer) -> usize {
        let fits = self.config.limits.io_max(to.path) as usize;
        match self.tells(to) {
            false => 0,
            true if may_be_forged(to) || self.validation.bounds(to) => fits.min(FORGED_LIST_MAX),
            true => fits,
        }
    }

    fn execute(&mut self, peer: Peer, xid: u32, bytes: usize, work: Work, kind: Kind) {
        let client = peer.addr.ip().to_canonical();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.stats.executed += 1;
        self.in_flight.start(client, bytes);
        self.pending.insert(ticket, Pending { peer, client, bytes, kind });
        let Config { exports, limits, durability, .. } = &self.config;
        let (exports, cookies, at) = (exports.clone(), self.cookies.clone(), self.now);
        let is_validated = !self.validation.bounds(peer);
        let job = Job { exports, limits: *limits, durability: *durability, cookies, peer, is_validated, at, xid, work };
        self.events.push_back(Execute { ticket, job });
    }

    fn refuse(&mut self, to: Peer, xid: u32, outcome: Outcome) {
        let counter = match outcome {
            Outcome::RpcMismatch { .. } => &mut self.stats.bad_rpc_version,
            Outcome::AuthError(_) => &mut self.stats.bad_auth,
            Outcome::ProgUnavail | Outcome::ProgMismatch { .. } => &mut self.stats.bad_program,
            Outcome::ProcUnavail => &mut self.stats.bad_procedure,
            Outcome::GarbageArgs | Outcome::SystemErr | Outcome::Success => &mut self.stats.bad_arguments,
        };
        *counter += 1;
        self.send(to, message(xid, outcome, |_| {}));
    }

    fn send(&mut self, to: Peer, payload: Bytes) {
        if !self.validation.may_send(to, payload.len()) {
            self.stats.unvalidated_dropped += 1;
        } else if self.live.reaches(&to) {
            self.stats.replies += 1;
            self.live.answered(to);
            self.out.push_back(Transmit { to, payload });
        } else {
            self.stats.unreachable += 1;
        }
    }
}

impl Core for Server {
    type Event = Execute;

    fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
        let read = self.intake.read(from, Programs::All, bytes);
        self.take(now, read, &());
    }

    fn handle_timeout(&mut self, now: Time) {
        self.cache.expire(now);
    }

    fn poll_transmit(&mut self, _now: Time) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_event(&mut self) -> Option<Execute> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.out.is_empty() && self.events.is_empty() { self.cache.next_expiry() } else { Some(Time::ZERO) }
    }
}

/// An item of one of MOUNT's lists.
trait Listed {
    /// An upper bound of its bytes in a reply.
    fn size_max(&self) -> usize;
}

/// Flag, length and padding.
const ITEM_OVERHEAD: usize = 12;

impl Listed for mount::MountEntry {
    fn size_max(&self) -> usize {
        2 * ITEM_OVERHEAD + self.host.len() + self.dir.len()
    }
}

impl Listed for mount::Export {
    fn size_max(&self) -> usize {
        2 * ITEM_OVERHEAD + self.dir.len() + self.groups.iter().map(|g| ITEM_OVERHEAD + g.len()).sum::<usize>()
    }
}
