//! Who may come in: permits for requests and for the bytes they hold.
//!
//! A permit is given back when it is dropped, wherever that happens, so that no way for a
//! request to end (answered, unreadable, its connection gone, its job panicked) can leak
//! room. Waiting is first come, first served.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in these, to fit a semaphore's 32-bit requests.
const UNIT: usize = 1024;

/// Room for bytes.
#[derive(Clone, Debug)]
pub(super) struct ByteRoom {
    room: Arc<Semaphore>,
    units: u32,
}

impl ByteRoom {
    /// Room for `bytes`, at least one unit.
    pub(super) fn new(bytes: usize) -> ByteRoom {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        ByteRoom { room: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits for room for `bytes`; more than all of it counts as all of it, so that nothing
    /// waits for ever.
    pub(super) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        take(&self.room, self.units(bytes)).await
    }

    /// Waits until nothing holds any of the room.
    pub(super) async fn all_free(&self) {
        drop(take(&self.room, self.units).await);
    }

    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_many_owned(self.units(bytes)).ok()
    }

    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units)
    }

    /// Whether nothing holds any of the room.
    pub(super) fn is_free(&self) -> bool {
        self.room.available_permits() == self.units as usize
    }

    /// Whether less than one part in so many is free.
    fn has_less_than(&self, part: usize) -> bool {
        self.room.available_permits() < self.units as usize / part
    }
}

async fn take(room: &Arc<Semaphore>, n: u32) -> OwnedSemaphorePermit {
    // The semaphores of this module are never closed, the only thing this can fail for.
    room.clone().acquire_many_owned(n).await.expect("an open semaphore")
}

/// A request's leave to be under way. Given back from the widest to the narrowest, so that whoever waits
/// for the last is not counted beside this one.
#[derive(Debug)]
pub(super) struct Permit {
    _request: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
    _client: Option<[OwnedSemaphorePermit; 2]>,
    _connection: Option<OwnedSemaphorePermit>,
    _whose: Option<Arc<Client>>,
}

/// Leave to hold a half-received request.
#[derive(Debug)]
pub(super) struct Receiving {
    _client: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _whose: Arc<Client>,
}

/// What the connections of one client's address share. It is there for as long as anything is under way: who breaks
/// a connection and comes again has no more than before.
#[derive(Debug)]
struct Client {
    requests: Arc<Semaphore>,
    requests_max: usize,
    bytes: ByteRoom,
    receiving: ByteRoom,
}

/// What a connection is admitted by: its own room and that of its client's address.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) room: ByteRoom,
    client: Arc<Client>,
}

impl Share {
    /// Whether the connections of this client's address hold nearly all that they may.
    pub(super) fn is_crowded(&self) -> bool {
        self.client.bytes.has_less_than(8) || self.client.requests.available_permits() * 8 < self.client.requests_max
    }
}

/// The places of each client that has connections.
#[derive(Debug)]
struct Clients {
    seats: HashMap<IpAddr, Weak<Client>>,
    /// With how many entries those of clients that left are cleared away.
    sweep_at: usize,
}

const SWEEP_MIN: usize = 1024;
/// The part of the room for bytes that one client may have, of requests under way and of
/// half-received ones: who leaves replies unread, or requests unfinished, must not keep others
/// waiting. Large enough for a long and fat way: 64 MiB by default.
const CLIENT_PART: usize = 4;

/// Counts what is under way.
#[derive(Debug)]
pub(super) struct Admission {
    requests: Arc<Semaphore>,
    requests_max: usize,
    bytes: ByteRoom,
    bytes_max: usize,
    receive_max: usize,
    receiving: ByteRoom,
    per_client_max: usize,
    clients: Mutex<Clients>,
}

impl Admission {
    /// Room for as much as the core executes at once, and for `receive_max` bytes of
    /// half-received requests.
    pub(super) fn new(limits: &remora_server::Limits, receive_max: usize) -> Admission {
        let requests_max = limits.in_flight_max.clamp(1, Semaphore::MAX_PERMITS);
        Admission {
            requests: Arc::new(Semaphore::new(requests_max)),
            requests_max,
            bytes: ByteRoom::new(limits.in_flight_bytes_max),
            bytes_max: limits.in_flight_bytes_max,
            receive_max,
            receiving: ByteRoom::new(receive_max),
            per_client_max: limits.in_flight_per_client_max.clamp(1, requests_max),
            clients: Mutex::new(Clients { seats: HashMap::new(), sweep_at: SWEEP_MIN }),
        }
    }

    /// The share of a new connection from `addr` that may hold `bytes`.
    pub(super) fn join(&self, addr: SocketAddr, bytes: usize) -> Share {
        let Clients { seats, sweep_at } = &mut *self.clients();
        if seats.len() >= *sweep_at {
            seats.retain(|_, c| c.strong_count() > 0);
            *sweep_at = SWEEP_MIN.max(2 * seats.len());
        }
        let seat = seats.entry(addr.ip().to_canonical()).or_default();
        let client = seat.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Client {
                requests: Arc::new(Semaphore::new(self.per_client_max)),
                requests_max: self.per_client_max,
                bytes: ByteRoom::new(self.bytes_max / CLIENT_PART),
                receiving: ByteRoom::new(self.receive_max / CLIENT_PART),
            });
            *seat = Arc::downgrade(&fresh);
            fresh
        });
        Share { room: ByteRoom::new(bytes), client }
    }

    /// Waits for leave for a request of `cost` bytes on a connection.
    pub(super) async fn admit(&self, share: &Share, cost: usize) -> Permit {
        // From the narrowest to the widest: what waits holds nothing that others share but
        // its client's place.
        Permit {
            _connection: Some(share.room.take(cost).await),
            _client: Some([take(&share.client.requests, 1).await, share.client.bytes.take(cost).await]),
            _bytes: self.bytes.take(cost).await,
            _request: take(&self.requests, 1).await,
            _whose: Some(share.client.clone()),
        }
    }

    /// Waits for room for a request of `bytes` that is coming in. Must be asked once for a
    /// request: who holds some and waits for more could wait for others who do the same.
    pub(super) async fn receive(&self, share: &Share, bytes: usize) -> Receiving {
        Receiving {
            _client: share.client.receiving.take(bytes).await,
            _all: self.receiving.take(bytes).await,
            _whose: share.client.clone(),
        }
    }

    /// The same for a request of `bytes` that is here already, if there is room now.
    pub(super) fn try_receive(&self, share: &Share, bytes: usize) -> Option<Receiving> {
        Some(Receiving {
            _client: share.client.receiving.try_take(bytes)?,
            _all: self.receiving.try_take(bytes)?,
            _whose: share.client.clone(),
        })
    }

    /// Leave for a datagram of `cost` bytes, if there is room now.
    pub(super) fn try_admit(&self, from: SocketAddr, cost: usize) -> Option<Permit> {
        let client = self.clients().seats.get(&from.ip().to_canonical()).and_then(Weak::upgrade);
        Some(Permit {
            _connection: None,
            _client: match &client {
                Some(c) => Some([c.requests.clone().try_acquire_owned().ok()?, c.bytes.try_take(cost)?]),
                None => None,
            },
            _bytes: self.bytes.try_take(cost)?,
            _request: self.requests.clone().try_acquire_owned().ok()?,
            _whose: client,
        })
    }

    /// Whether more than half of the room is taken.
    pub(super) fn is_short(&self) -> bool {
        self.bytes.has_less_than(2) || self.requests.available_permits() < self.requests_max / 2
    }

    /// Requests under way, from admission until their reply has been sent.
    pub(super) fn under_way(&self) -> usize {
        self.requests_max.saturating_sub(self.requests.available_permits())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(requests: usize, per_client: usize, bytes: usize) -> Admission {
        let limits = remora_server::Limits {
            in_flight_max: requests,
            in_flight_per_client_max: per_client,
            in_flight_bytes_max: bytes,
            ..Default::default()
        };
        Admission::new(&limits, 16 * UNIT)
    }

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    #[tokio::test]
    async fn every_bound_holds_and_room_comes_back() {
        let (a, b) = (addr("10.0.0.1:700"), addr("[::ffff:10.0.0.1]:701"));
        let adm = admission(3, 2, 10 * UNIT);
        let (sa, sb) = (adm.join(a, 4 * UNIT), adm.join(b, 100 * UNIT));
        let first = adm.admit(&sa, 1).await;
        let second = adm.admit(&sb, 1).await;
        assert!(adm.try_admit(a, 1).is_none(), "two connections of one client share its room");
        let other = adm.try_admit(addr("10.0.0.2:1"), 1).unwrap();
        assert!(adm.try_admit(addr("10.0.0.3:1"), 1).is_none(), "three requests at most");
        assert!(adm.is_short());
        drop((first, second, other));
        assert_eq!((adm.under_way(), adm.is_short(), sa.room.is_free()), (0, false, true));

        let _large = adm.admit(&sb, usize::MAX).await; // more than there is: takes all of it
        assert!(adm.try_admit(a, 1).is_none(), "no byte is left");
    }

    /// Replies that nobody takes hold their bytes.
    #[tokio::test]
    async fn what_one_client_leaves_unread_keeps_nobody_else_waiting() {
        let adm = admission(100, 50, 40 * UNIT);
        let bad: Vec<Share> = (0..4).map(|_| adm.join(addr("10.0.0.1:1"), 8 * UNIT)).collect();
        let good = adm.join(addr("10.0.0.2:1"), 8 * UNIT);
        let now = |share| tokio::time::timeout(std::time::Duration::from_millis(20), adm.admit(share, 5 * UNIT));
        let mut unread = Vec::new();
        for share in &bad {
            unread.extend(now(share).await.ok());
        }
        assert_eq!(unread.len(), 2, "a quarter for all its connections");
        assert!(adm.try_admit(addr("10.0.0.1:2"), UNIT).is_none(), "and its datagrams");
        assert!(now(&good).await.is_ok());
        unread.clear();
        assert!(now(&bad[3]).await.is_ok());
    }

    #[tokio::test]
    async fn an_address_is_crowded_when_few_bytes_or_requests_are_left_to_it() {
        let adm = admission(100, 100, 6400 * UNIT);
        let share = adm.join(addr("10.0.0.1:1"), 6400 * UNIT);
        let part = 6400 / CLIENT_PART;
        let held = adm.admit(&share, part / 8 * 7 * UNIT).await;
        assert!(!share.is_crowded());
        let more = adm.admit(&share, UNIT).await;
        assert!(share.is_crowded() && adm.join(addr("10.0.0.1:2"), UNIT).is_crowded());
        assert!(!adm.join(addr("10.0.0.2:1"), UNIT).is_crowded());
        drop((held, more));
        assert!(!share.is_crowded());
        let mut small = Vec::new();
        for _ in 0..87 {
            small.push(adm.admit(&share, 1).await);
        }
        assert!(!share.is_crowded(), "13 of 100 requests are left");
        small.push(adm.admit(&share, 1).await);
        assert!(share.is_crowded());
    }

    #[tokio::test]
    async fn half_received_requests_of_one_client_leave_room_for_others() {
        let adm = admission(1, 1, UNIT);
        let [a, again, b] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"].map(|client| adm.join(addr(client), UNIT));
        let held = adm.receive(&a, 4 * UNIT).await;
        let now = |share| tokio::time::timeout(std::time::Duration::from_millis(20), adm.receive(share, UNIT));
        assert!(now(&again).await.is_err(), "a quarter for all its connections");
        assert!(now(&b).await.is_ok());
        drop(held);
        assert!(now(&again).await.is_ok());
    }

    #[tokio::test]
    async fn who_breaks_its_connection_and_comes_again_has_no_more_room_than_before() {
        let adm = admission(100, 50, 40 * UNIT);
        let join = || adm.join(addr("10.0.0.1:1"), 100 * UNIT);
        let first = join();
        let under_way = (adm.admit(&first, 10 * UNIT).await, adm.receive(&first, 4 * UNIT).await);
        drop(first);
        let again = join();
        let a_moment = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(a_moment, adm.admit(&again, UNIT)).await.is_err(), "its quarter is taken");
        assert!(adm.try_receive(&again, UNIT).is_none(), "and that of half-received requests");
        drop(again);
        drop(under_way);
        let again = join();
        assert!(tokio::time::timeout(a_moment, adm.admit(&again, 10 * UNIT)).await.is_ok());
        assert!(adm.try_receive(&again, 4 * UNIT).is_some());
    }

    #[test]
    fn clients_that_left_are_forgotten() {
        let adm = admission(1, 1, UNIT);
        for n in 0..10 * SWEEP_MIN as u32 {
            adm.join(SocketAddr::from((std::net::Ipv4Addr::from_bits(n), 1)), UNIT);
            assert!(adm.clients().seats.len() <= SWEEP_MIN);
        }
    }
}
