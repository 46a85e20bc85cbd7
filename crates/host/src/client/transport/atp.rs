//! The driver of a connection over ATP: each call and each reply is an object (ATP 02).
//!
//! The scheduler sends the most urgent call first ([`Urgency`]: the caller's, or that of the message), so a LOOKUP does
//! not wait behind a file copy, and a lost packet delays one call only. The core sees a reliable transport. When the
//! connection ends it is made again and every unanswered call is sent once more; the server's duplicate request cache
//! recognises them.
//!
//! An object's deadline follows the timer of its call ([`Client::give_up_at`]). When that expires the object is
//! cancelled, so that a failed call takes no more of the link and is not executed after an outage. Where calls never
//! fail (hard mounts) objects have no deadline. A call that the scheduler rejects or expires earlier is sent again
//! after a pause.
//!
//! [`Client::give_up_at`]: remora_client::Client::give_up_at
//!
//! Limits: [`OBJECTS_MAX`] calls and [`BYTES_MAX`] bytes in flight; the core keeps the rest. Replies that wait are
//! limited by `EndpointSettings`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Config, Identity, Refusal};
use remora_atp::{Command, Final, Options, Outcome};
use remora_base::{Core, Peer, Time};
use remora_client::Client;
use remora_wire::urgency::Urgency;
use tokio::task::JoinSet;

use crate::atp::{AtpEndpoint, AtpError, EndpointSettings, Remote, RequestControl, keys};
use crate::client::error::ClientError;
use crate::client::target::Keys;
use crate::client::transport::connect::RECONNECT;
use crate::client::transport::driver::{LOOK, RECORD_MAX, at, beside_timers, idle, take, timeout};
use crate::client::transport::shared_core::SharedCore;
use crate::clock;
use crate::objects::priority;
use crate::zone;

/// Largest number of calls whose objects have not arrived.
const OBJECTS_MAX: usize = 512;
/// Largest sum of their bytes; one call may always be sent.
const BYTES_MAX: usize = 4 << 20;
/// Deadlines are later than the timer by at most this part of the patience.
const SLACK: u32 = 8;
/// Time limit of an attempt to make the first connection.
const FIRST_ATTEMPT: Duration = Duration::from_secs(30);
/// Pause before a rejected call is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// The local endpoint and its peer.
pub(crate) struct AtpLink {
    endpoint: AtpEndpoint,
    server: SocketAddr,
    keys: Keys,
}

/// Connects to the server and checks its key.
pub(crate) async fn connect(
    keys: &Keys,
    server: SocketAddr,
    patience: Duration,
) -> Result<(AtpLink, Remote), ClientError> {
    let failed = |source| ClientError::Atp { server: zone::shown(&server), source };
    let session = Config {
        object_max: RECORD_MAX as u32,
        // The first flight can be replayed, and not every call is idempotent.
        early: false,
        ..Config::default()
    };
    let any = if server.is_ipv4() { SocketAddr::from(([0, 0, 0, 0], 0)) } else { SocketAddr::from(([0u16; 8], 0)) };
    let settings = EndpointSettings { session, ..EndpointSettings::receiver(any) };
    let endpoint = AtpEndpoint::bind(settings, identity(keys)?).map_err(failed)?;
    let remote = endpoint.connect(server, keys.server).map_err(failed)?;
    match clock::timeout(patience, remote.up()).await {
        Ok(up) => up.map_err(failed)?,
        Err(_) => return Err(failed(AtpError::Refused(Refusal::Silent))),
    }
    Ok((AtpLink { endpoint, server, keys: keys.clone() }, remote))
}

/// The client's own identity.
fn identity(keys: &Keys) -> Result<Identity, ClientError> {
    let at = |path: std::path::PathBuf| keys::load(&path).map_err(|source| ClientError::Key { path, source });
    if let Some(path) = &keys.own {
        return at(path.clone());
    }
    match keys::default_path() {
        Ok(path) if path.exists() => at(path),
        Ok(path) => keys::generate().map_err(|source| ClientError::Key { path, source }),
        Err(_) => keys::generate().map_err(|source| ClientError::Key { path: std::path::PathBuf::new(), source }),
    }
}

/// Drives a connection that is still to be made, from the time on when the server answers.
pub(crate) async fn run_later(shared: Arc<SharedCore>, keys: Keys, server: SocketAddr) {
    loop {
        match beside_timers(&shared, connect(&keys, server, FIRST_ATTEMPT)).await {
            Ok((link, remote)) => return run(shared, link, remote).await,
            Err(ClientError::Atp { source: AtpError::Refused(why), .. }) if why != Refusal::Silent => {
                return shared.refuse(why);
            }
            Err(error) => {
                tracing::debug!(%error, "no connection yet");
                idle(&shared, RECONNECT.1).await;
            }
        }
    }
}

/// Drives the connection, and makes it again when it has ended and there is something to send.
pub(crate) async fn run(shared: Arc<SharedCore>, link: AtpLink, first: Remote) {
    let mut remote = first;
    let mut arrived = Arrived::default();
    let mut connection = 0;
    let mut pause = RECONNECT.0;
    loop {
        connection += 1;
        let peer = Peer::stream(link.server, connection);
        shared.lock().core.connected(shared.now(), peer);
        // Both run: replies that came with the end of the connection have not been taken.
        if serve(&shared, &link, &remote, peer, &mut arrived).await | take_rest(&shared, &link, peer) {
            pause = RECONNECT.0;
        }
        if is_refused(&shared, &remote) {
            return;
        }
        remote.close();
        shared.lock().core.disconnected(shared.now());
        remote = match reconnect(&shared, &link, &mut pause).await {
            Some(remote) => remote,
            None => return,
        };
    }
}

/// Whether the connection ended because of a key, which waiting does not change; then the session is closed for that
/// reason. (A rejected client key shows after the first flight only.)
fn is_refused(shared: &SharedCore, remote: &Remote) -> bool {
    match remote.ended() {
        Some(AtpError::Refused(why @ (Refusal::WrongKey | Refusal::NotAdmitted))) => {
            shared.refuse(why);
            true
        }
        _ => false,
    }
}

/// Waits for a request, and then for a connection without limit; `None` if a key prevents it.
async fn reconnect(shared: &SharedCore, link: &AtpLink, pause: &mut Duration) -> Option<Remote> {
    while shared.lock().core.is_idle() {
        shared.changed.notified().await;
    }
    loop {
        idle(shared, *pause).await;
        *pause = (*pause * 2).min(RECONNECT.1);
        let Ok(remote) = link.endpoint.connect(link.server, link.keys.server) else { continue };
        if up(shared, &remote).await {
            return Some(remote);
        }
        if is_refused(shared, &remote) {
            return None;
        }
    }
}

/// Whether the server answers; the core's timers run meanwhile.
async fn up(shared: &SharedCore, remote: &Remote) -> bool {
    let up = remote.up();
    tokio::pin!(up);
    loop {
        let due = shared.lock().core.poll_timeout();
        tokio::select! {
            up = &mut up => return up.is_ok(),
            () = shared.changed.notified() => {}
            () = at(shared, due) => timeout(shared),
        }
    }
}

/// The core's timer, and the deadlines of objects in flight: the same or a little later, for the timer moves with each
/// reply.
#[derive(Default)]
struct Timer {
    due: Option<Time>,
    deadline: Option<Time>,
}

impl Timer {
    /// The timer expires at `at`, and lasts `patience`. Returns whether objects need another deadline.
    fn follow(&mut self, at: Option<Time>, patience: Option<Duration>) -> bool {
        self.due = at;
        let slack = patience.unwrap_or_default() / SLACK;
        let holds = match (at, self.deadline) {
            (Some(at), Some(deadline)) => at <= deadline && deadline <= at + slack,
            (at, deadline) => at == deadline,
        };
        if !holds {
            self.deadline = at.map(|at| at + slack);
        }
        !holds
    }

    /// Whether it had expired when it was last checked.
    fn is_over(&self, now: Time) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Time to live of an object from now on.
    fn left(&self, now: Time) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now))
    }
}

/// Calls in flight.
#[derive(Default)]
struct CallsInFlight {
    ends: JoinSet<(u32, usize, Option<Outcome>)>,
    controls: BTreeMap<u32, RequestControl>,
    timer: Timer,
    bytes: usize,
}

impl CallsInFlight {
    fn has_room(&self) -> bool {
        self.ends.is_empty() || (self.ends.len() < OBJECTS_MAX && self.bytes < BYTES_MAX)
    }

    /// Sends `call`; false if the connection has gone.
    fn send(&mut self, now: Time, remote: &Remote, core: &Client, call: Bytes) -> bool {
        let (xid, bytes) = (xid(&call), call.len());
        let urgency = core.urgency_of(xid).unwrap_or_else(|| Urgency::of(&call));
        let deadline = self.timer.left(now);
        let options = Options { priority: priority(urgency), deadline, ..Options::default() };
        let Ok(request) = remote.send(call, options) else { return false };
        self.bytes += bytes;
        self.controls.insert(xid, request.control());
        self.ends.spawn(async move {
            let outcome = request.await.ok().map(|Final { outcome, .. }| outcome);
            if outcome != Some(Outcome::Delivered) {
                tokio::time::sleep(AGAIN).await;
            }
            (xid, bytes, outcome)
        });
        true
    }
}

impl CallsInFlight {
    /// Extends the deadlines of objects in flight, and cancels those that have expired.
    fn follow(&mut self, now: Time, core: &Client) {
        let is_over = self.timer.is_over(now);
        if !self.timer.follow(core.give_up_at(), core.patience()) && !is_over {
            return;
        }
        let deadline = Command::Deadline(self.timer.left(now));
        for (xid, control) in &self.controls {
            // Fails for an object that has ended.
            let _ = match core.is_awaited(*xid) {
                true => control.ask(deadline),
                false if is_over => control.ask(Command::Cancel),
                false => continue, // it has been answered
            };
        }
    }

    /// The object of call `xid`, of so many bytes, has ended.
    fn ended(&mut self, xid: u32, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.controls.remove(&xid);
    }
}

/// Calls whose objects have arrived over any connection. A peer that answers nothing and closes each connection takes
/// them again and again: only the first time shows a server.
#[derive(Default)]
struct Arrived(BTreeSet<u32>);

impl Arrived {
    /// Whether call `xid` has arrived for the first time.
    fn is_first(&mut self, xid: u32, core: &Client) -> bool {
        if self.0.len() >= OBJECTS_MAX * 2 {
            self.0.retain(|xid| core.is_awaited(*xid));
        }
        self.0.insert(xid)
    }
}

/// The xid of a message; 0 if it is too short.
fn xid(message: &Bytes) -> u32 {
    message.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid))
}

/// Serves a connection until it ends. Returns whether anything arrived over it.
async fn serve(shared: &SharedCore, link: &AtpLink, remote: &Remote, peer: Peer, arrived: &mut Arrived) -> bool {
    let mut in_flight = CallsInFlight::default();
    let mut heard = false;
    while remote.ended().is_none() {
        let due = fill(shared, remote, &mut in_flight);
        tokio::select! {
            received = link.endpoint.recv() => {
                let Ok(received) = received else { return heard };
                heard = true;
                take_reply(shared, peer, received.object);
            }
            Some(end) = in_flight.ends.join_next() => {
                let Ok((xid, bytes, outcome)) = end else { continue };
                in_flight.ended(xid, bytes);
                let (mut state, now) = (shared.lock(), shared.now());
                match outcome {
                    // The server has the call.
                    Some(Outcome::Delivered) if arrived.is_first(xid, &state.core) => state.core.heard(now),
                    Some(Outcome::Delivered) => {}
                    _ => state.core.undelivered(now, xid),
                }
            }
            // The end of the connection comes among other events.
            notice = link.endpoint.notice() => if notice.is_err() {
                return heard;
            },
            () = shared.changed.notified() => {}
            () = at(shared, due) => {
                heard |= take_rest(shared, link, peer);
                timeout(shared);
            }
        }
    }
    heard
}

/// Takes the replies that have arrived. Returns whether there were any.
fn take_rest(shared: &SharedCore, link: &AtpLink, peer: Peer) -> bool {
    let rest = std::iter::from_fn(|| link.endpoint.try_recv());
    rest.map(|received| take_reply(shared, peer, received.object)).count() > 0
}

fn take_reply(shared: &SharedCore, peer: Peer, reply: Bytes) {
    shared.lock().core.heard(shared.now());
    take(shared, peer, reply);
}

/// Takes calls from the core while there is room. Returns the core's timeout.
fn fill(shared: &SharedCore, remote: &Remote, in_flight: &mut CallsInFlight) -> Option<Time> {
    let (mut state, now) = (shared.lock(), shared.now());
    in_flight.follow(now, &state.core);
    while in_flight.has_room() {
        let Some(call) = state.core.poll_transmit(now) else {
            state.deliver_events();
            return state.core.poll_timeout();
        };
        if !in_flight.send(now, remote, &state.core, call.payload) {
            // The next connection sends it again.
            break;
        }
    }
    // Full: only the server can help; timers are checked at intervals.
    state.deliver_events();
    Some(shared.now() + LOOK)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use remora_atp::session::Guests;
    use remora_client::{Request, Transport};
    use remora_wire::Xdr;
    use remora_wire::nfs3::Call;
    use remora_wire::rpc::ReplyHeader;

    use super::*;
    use crate::Clock;
    use crate::atp::blocking::BlockingEndpoint;
    use crate::client::transport::connection::Connection;

    #[test]
    fn object_deadlines_follow_large_moves_of_the_timer() {
        let (second, patience) = (Time::from_secs, Some(Duration::from_secs(8)));
        let mut timer = Timer::default();
        for (at, told, left) in [
            (None, false, None),
            (Some(second(18)), true, Some(19)),
            (Some(second(18)), false, Some(19)),
            (Some(second(19)), false, Some(19)),
            (Some(second(20)), true, Some(21)),
            (Some(second(18)), true, Some(19)), // the patience was shortened
            (None, true, None),
        ] {
            assert_eq!(timer.follow(at, patience), told, "{at:?}");
            let left = left.map(|at| Duration::from_secs(at - 10));
            assert_eq!(timer.left(second(10)), left, "{at:?}");
        }
        assert!(!timer.follow(None, None), "never given up: never a deadline");
        timer.follow(Some(second(30)), patience);
        assert!(!timer.is_over(second(29)) && timer.is_over(second(30)));
    }

    /// Several calls, for of the replies that wait one may be taken before the end is looked at.
    #[tokio::test]
    async fn replies_that_come_with_the_end_of_the_connection_are_taken() {
        const CALLS: usize = 8;
        let (ready, is_ready) = channel();
        let (go, is_to_go) = channel();
        let (closed, is_closed) = channel();
        let session = Config { guests: Guests::Anyone, ..Config::default() };
        let own = Identity::from_secret([1; 32]).unwrap();
        let keys = Keys { server: own.public(), own: None };
        let settings = EndpointSettings { session, ..EndpointSettings::receiver("127.0.0.1:0".parse().unwrap()) };
        let server = BlockingEndpoint::bind(settings, own).unwrap();
        let at = server.endpoint().local_addr();
        std::thread::spawn(move || {
            let calls: Vec<_> = (0..CALLS).map(|_| server.recv(None).unwrap().unwrap()).collect();
            ready.send(()).unwrap();
            is_to_go.recv().unwrap();
            for call in calls {
                let mut reply = Vec::new();
                let outcome = remora_wire::rpc::Outcome::Success;
                ReplyHeader { xid: xid(&call.object), outcome }.encode(&mut reply);
                let end = server.send(&call.from, reply.into(), Options::default()).unwrap();
                assert_eq!(end.outcome, Outcome::Delivered);
            }
            server.close();
            closed.send(()).unwrap();
        });
        let config = remora_client::ClientConfig::new(Transport::Atp);
        let options = crate::client::options::Options { config: config.clone(), seed: 1, clock: Clock::start() };
        let connection = Connection::open_objects(&keys, at, config, &options).await.unwrap();
        let asked: Vec<_> = (0..CALLS).map(|_| connection.shared.submit(Request::Nfs(Call::Null)).unwrap()).collect();
        while is_ready.try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        go.send(()).unwrap();
        // This task's thread stands still meanwhile.
        is_closed.recv().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        for call in asked {
            let answer = tokio::time::timeout(Duration::from_secs(5), connection.shared.wait(call, "asked")).await;
            answer.expect("it was here before the connection ended").unwrap();
        }
    }
}
