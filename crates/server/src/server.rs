//! The server's state machine.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time, Transmit};
use remora_wire::nfs3::{self, Call, Fh, Status};
use remora_wire::rpc::Outcome;
use remora_wire::rpcbind::Service;
use remora_wire::{mount, nfsacl};

use crate::access_log::{AccessCall, AccessRecord, REPLAY, status_name};
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
use crate::{Exports, Programs, RequestStats, Stats, Version};

/// A server of NFSv3, NFSv2 and the MOUNT versions that belong to them.
///
/// In addition to the contract of [`Core`]: execute every [`Execute`] that [`poll_event`](Core::poll_event) returns,
/// in any order and concurrently, and pass each answer to [`complete`](Server::complete); report the end of every
/// stream with [`disconnected`](Server::disconnected); and read from a stream only while
/// [`has_room`](Server::has_room), so that a busy server slows its clients down instead of refusing their requests.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// The time of the last message or answer.
    now: Time,
    cache: Cache,
    intake: Intake,
    live: Connections,
    in_flight: InFlight,
    pending: BTreeMap<Ticket, Pending>,
    next_ticket: u64,
    /// Shared by all servers of a [`split`](Server::split). The last of them owns the list: it accounts for its
    /// memory and drops entries.
    mounts: Arc<Mutex<Mounts>>,
    mounts_mine: bool,
    cookies: Arc<Cookies>,
    portmap: Option<Portmap>,
    validation: Validation,
    out: VecDeque<Transmit>,
    events: VecDeque<Execute>,
    stats: Stats,
    requests: RequestStats,
    accesses: VecDeque<AccessRecord>,
}

/// A job that executes.
#[derive(Debug)]
struct Pending {
    peer: Peer,
    client: IpAddr,
    /// Bytes that the job is charged.
    bytes: usize,
    kind: Kind,
    /// The procedure, if the job executes an NFS call.
    proc: Option<nfs3::Proc>,
    since: Time,
    /// The call, if there is an access log.
    access: Option<Box<AccessCall>>,
}

#[derive(Debug)]
enum Kind {
    /// Not in the cache.
    Plain,
    /// MNT of this path.
    Mount(Bytes),
    /// The cache takes the result.
    Cached { request: Request, entry: Option<EntryId> },
    /// The cache asks whether the target has changed. If so, `work` is executed again.
    Check { request: Request, entry: EntryId, work: Box<Work> },
}

/// The bytes that a request is charged in addition to its message and the data of its reply; see
/// [`Limits`](crate::Limits). Admission in the host must charge as much.
pub const JOB_OVERHEAD: usize = 1024;
/// The most bytes of a list sent to an address that may be forged.
const FORGED_LIST_MAX: usize = 1024;

impl Server {
    /// A server with an empty cache. `seed` generates the secret of the cache's hash: on a real host it must not be
    /// guessable.
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
            requests: RequestStats::default(),
            accesses: VecDeque::new(),
            config,
        }
    }

    /// `n` servers (at least one) that act as one, as long as all requests from an address go to the same one. Each
    /// applies the configured limits to itself. New [exports](Server::set_exports) must be given to them in this
    /// order.
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

    /// Decodes messages for [`take`](Server::take), for all servers of a split.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// Takes a decoded message. `ends` knows the fate of streams.
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

    /// Makes the server a portmapper that knows these services.
    pub fn set_portmap(&mut self, services: Vec<Service>) {
        self.portmap = Some(Portmap::new(services));
        self.intake.read_portmap();
    }

    /// Replaces the exports. Jobs in progress keep the old ones. Handles of exports that stay (by first name and key)
    /// stay valid. Returns the old exports, whose drop may take long.
    pub fn set_exports(&mut self, exports: Arc<Exports>) -> Arc<Exports> {
        // Once for the split: its last server is the last to get new exports.
        if self.mounts_mine {
            self.mounts().keep(|path| exports.exports(path));
        }
        std::mem::replace(&mut self.config.exports, exports)
    }

    /// Takes the answer to an [`Execute`]. Answers with unknown tickets are counted and dropped.
    pub fn complete(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        self.now = now;
        let Some(Pending { peer, client, bytes, kind, proc, since, access }) = self.pending.remove(&ticket) else {
            self.stats.stray_answers += 1;
            return;
        };
        if let Some(proc) = proc.filter(|_| answer.result != Err(Failure::Busy)) {
            self.requests.executed(proc, answer.status, now.since(since));
        }
        if let Some(call) = access.filter(|_| answer.result != Err(Failure::Busy)) {
            self.note_access(*call, peer, status_name(answer.status), now.since(since));
        }
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
                // New exports may have removed the entries of this path in the meantime.
                if answer.result.is_ok() && self.config.exports.exports(&path) {
                    self.mounts().add(client, &path);
                }
                self.send(peer, answer.reply);
            }
            Kind::Cached { request, entry } => self.finish(now, &request, entry, answer),
            Kind::Check { request, entry, work } => match self.cache.checked(entry, answer.times) {
                Some(reply) => {
                    if let Some(call) = AccessCall::of(&work).filter(|_| self.config.access_log) {
                        self.note_access(call, peer, REPLAY, now.since(since));
                    }
                    self.send(peer, reply);
                }
                None => {
                    let kind = Kind::Cached { request, entry: Some(entry) };
                    self.execute(peer, request.xid, bytes, *work, kind);
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

    /// Notes that a stream has ended. Its replies are dropped; the cache keeps its requests, because the client may
    /// reconnect.
    pub fn disconnected(&mut self, peer: Peer) {
        self.live.gone(peer);
        self.drop_replies(peer);
    }

    /// As [`disconnected`](Server::disconnected), for a stream that ended in order after all replies were delivered.
    pub fn ended(&mut self, peer: Peer) {
        self.live.ended(peer);
        self.drop_replies(peer);
    }

    fn drop_replies(&mut self, peer: Peer) {
        let before = self.out.len();
        self.out.retain(|t| t.to.path != peer.path || peer.path == Path::Datagram);
        self.stats.unreachable += (before - self.out.len()) as u64;
    }

    pub fn stats(&self) -> Stats {
        Stats { cache: *self.cache.stats(), ..self.stats }
    }

    /// The requests answered, by procedure. Replays of cached replies are in [`Stats::cache`] only.
    pub fn requests(&self) -> &RequestStats {
        &self.requests
    }

    /// The next record of an answered call. With [`Config::access_log`], take all after each input.
    pub fn poll_access(&mut self) -> Option<AccessRecord> {
        self.accesses.pop_front()
    }

    /// The number of requests that execute.
    pub fn in_flight(&self) -> usize {
        self.in_flight.requests()
    }

    /// Whether a call executes whose reply goes to the stream `peer`, even if it arrived on another stream first.
    pub fn owes(&self, peer: Peer) -> bool {
        let client = peer.addr.ip().to_canonical();
        self.pending.values().filter(|pending| pending.client == client).any(|p| self.goes_to(p) == Some(peer))
    }

    /// The peers that wait for the reply to a call in the duplicate request cache.
    pub fn owed(&self) -> impl Iterator<Item = Peer> {
        self.pending.values().filter_map(|pending| self.goes_to(pending))
    }

    fn goes_to(&self, pending: &Pending) -> Option<Peer> {
        match pending.kind {
            Kind::Cached { entry: Some(entry), .. } => self.cache.goes_to(entry, &self.live),
            _ => None,
        }
    }

    /// Whether another request from `client`, of the largest size, could execute now.
    pub fn has_room(&self, client: IpAddr) -> bool {
        let largest = JOB_OVERHEAD + self.config.limits.stream_io_max as usize;
        self.in_flight.has_room(&self.config.limits, client.to_canonical(), largest)
    }

    /// Bytes held by the cache, executing requests, queued replies and the list of mounts.
    pub fn memory(&self) -> usize {
        let out: usize = self.out.iter().map(|t| size_of::<Transmit>() + t.payload.len()).sum();
        let mounts = if self.mounts_mine { self.mounts().bytes() } else { 0 };
        self.cache.bytes() + self.in_flight.bytes() + out + mounts
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// The bytes of the client that holds most in the cache.
    pub fn cache_largest(&self) -> usize {
        self.cache.largest()
    }

    /// Evicts replies until the cache holds at most `bytes_max`, as if that were its limit.
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
            self.note_answered(from, &caller, &call, &form, Status::Access.name());
            return self.deny(from, xid, &form, proc);
        }
        // Before the cache: a cached reply is only for clients that may use the export.
        if request.is_some() && self.config.exports.refuses(&call, from.addr) {
            self.note_answered(from, &caller, &call, &form, Status::Access.name());
            return self.deny(from, xid, &form, proc);
        }
        let Limited { call, is_cut, listing_verf } = self.validation.limit(from, &form, call);
        self.stats.unvalidated_cut += u64::from(is_cut);
        let bytes = self.charge(from.path, &call, &form, args.len());
        let room = self.in_flight.has_room(&self.config.limits, client, bytes);
        let Some(request) = request else {
            return match room {
                true => self.execute(from, xid, bytes, Work::Nfs { caller, call, form, listing_verf }, Kind::Plain),
                false => self.turn_away(from, xid, &form, &caller, &call),
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
            Verdict::Replay(reply) => {
                self.note_answered(from, &caller, &call, &form, REPLAY);
                self.send(from, reply);
            }
            Verdict::NoRoom => self.turn_away(from, xid, &form, &caller, &call),
            Verdict::Check(entry) => self.check(request, entry, bytes, Work::Nfs { caller, call, form, listing_verf }),
        }
    }

    /// Reads the times of a duplicate's target.
    fn check(&mut self, request: Request, entry: EntryId, bytes: usize, work: Work) {
        let target = match &work {
            Work::Nfs { call, .. } => call.target().cloned(),
            Work::Mount { .. } | Work::Times(_) => None,
        };
        let target = target.unwrap_or_else(|| Fh(Bytes::new()));
        let kind = Kind::Check { request, entry, work: Box::new(work) };
        self.execute(request.peer, request.xid, bytes, Work::Times(target), kind);
    }

    fn deny(&mut self, from: Peer, xid: u32, form: &Form, proc: nfs3::Proc) {
        self.stats.denied += 1;
        self.requests.answered(proc, Some(Status::Access));
        self.send(from, form.failed(xid, proc, Status::Access));
    }

    /// Refuses a request that has no room. A client sends a datagram again by itself. On a stream it would wait long, so
    /// the server answers with JUKEBOX; in version 2, which has no such error, with NFSERR_IO.
    fn turn_away(&mut self, from: Peer, xid: u32, form: &Form, caller: &Caller, call: &Call) {
        match from.path {
            Path::Datagram => self.stats.overload_dropped += 1,
            Path::Stream(_) => {
                self.stats.overload_deferred += 1;
                self.requests.answered(call.proc(), Some(Status::Jukebox));
                self.note_answered(from, caller, call, form, Status::Jukebox.name());
                self.send(from, form.failed(xid, call.proc(), Status::Jukebox));
            }
        }
    }

    /// The bytes that `call` is charged.
    fn charge(&self, path: Path, call: &Call, form: &Form, args: usize) -> usize {
        let reply = match call {
            Call::GetAttr(_) if matches!(form, Form::Acl(_)) => nfsacl::RESULTS_MAX,
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
            // Except for MNT, the replies of both versions are the same.
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
            // As if the file system were busy.
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

    /// The items of one of MOUNT's lists that fit the reply to `to`.
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
        let (proc, since) = (work.proc(), self.now);
        let access = self.config.access_log.then(|| AccessCall::of(&work)).flatten().map(Box::new);
        self.pending.insert(ticket, Pending { peer, client, bytes, kind, proc, since, access });
        let Config { exports, limits, durability, .. } = &self.config;
        let (exports, cookies, at) = (exports.clone(), self.cookies.clone(), self.now);
        let is_validated = !self.validation.bounds(peer);
        let job = Job { exports, limits: *limits, durability: *durability, cookies, peer, is_validated, at, xid, work };
        self.events.push_back(Execute { ticket, job });
    }

    /// Makes a record of a call that is answered at once, if there is an access log.
    fn note_answered(&mut self, from: Peer, caller: &Caller, call: &Call, form: &Form, status: &'static str) {
        if self.config.access_log {
            self.note_access(AccessCall::of_nfs(caller, call, form), from, status, Duration::ZERO);
        }
    }

    fn note_access(&mut self, call: AccessCall, from: Peer, status: &'static str, latency: Duration) {
        self.accesses.push_back(call.record(&self.config.exports, from, status, latency));
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
    /// An upper bound of its encoded size, in bytes.
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
