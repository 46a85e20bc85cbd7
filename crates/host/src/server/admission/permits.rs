//! Permits for requests and for the memory that they hold.
//!
//! A permit is given back when it is dropped, so that no end of a request (a reply, a decoding error, a lost
//! connection, a panic) leaks capacity. [`host_shares`](super::host_shares) says how much a host may hold; a
//! connection has a fixed bound in addition.
//!
//! **Strangers.** A stranger is a peer that is not allowed to use any export. All strangers together count as one
//! host, with a [small part](STRANGERS_PART): their calls get short refusals, and the server takes no large request
//! from them.
//!
//! **Half-received requests.** When the first 16 KiB of a large request have arrived, the connection reserves memory
//! for all of it. While it waits it holds no other reservation, so connections with half a request each cannot
//! deadlock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remora_base::host_of;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::admission::host_shares::{Amount, CapacityHold, CapacityPool, HostGroup, Seat};
use crate::server::statistics::BudgetUse;

/// The unit in which a connection's bytes are counted, to fit a semaphore's 32 bits.
const UNIT: usize = 1024;
/// The part of the capacity that a single host gets, as a divisor. By default 64 MiB, enough for a large
/// bandwidth-delay product.
const HOST_PART: usize = 4;
/// The same for all strangers together.
const STRANGERS_PART: usize = 16;
/// Bytes of a queued reply in addition to its payload.
const REPLY_OVERHEAD: usize = 256;

/// A bound on bytes.
#[derive(Clone, Debug)]
pub(crate) struct ByteRoom {
    room: Arc<Semaphore>,
    units: u32,
}

impl ByteRoom {
    /// A bound of `bytes`, at least one unit.
    pub(crate) fn new(bytes: usize) -> ByteRoom {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        ByteRoom { room: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits for `bytes`, at most all there are, so that no request waits for ever.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        take(&self.room, self.units(bytes)).await
    }

    /// Waits until all bytes are free.
    pub(crate) async fn all_free(&self) {
        drop(take(&self.room, self.units).await);
    }

    fn units(&self, bytes: usize) -> u32 {
        units(bytes).min(self.units)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.room.available_permits() == self.units as usize
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

async fn take(room: &Arc<Semaphore>, n: u32) -> OwnedSemaphorePermit {
    // Only fails for a closed semaphore; these are never closed.
    room.clone().acquire_many_owned(n).await.expect("an open semaphore")
}

/// Permission for a request to be in progress. The fields are given back in this order, so that a task that waits for
/// the connection's bytes does not count this request any more.
#[derive(Debug)]
pub(crate) struct Permit {
    held: CapacityHold,
    connection: Option<OwnedSemaphorePermit>,
    whose: Arc<Client>,
}

impl Permit {
    /// Whether the client may use no export.
    pub(crate) fn is_stranger(&self) -> bool {
        self.whose.is_stranger
    }

    /// Gives back what a reply of `bytes` does not need.
    pub(crate) fn settle(&mut self, bytes: usize) {
        let bytes = bytes + REPLY_OVERHEAD;
        self.held.shrink(bytes);
        if let Some(connection) = &mut self.connection {
            let excess = connection.num_permits().saturating_sub(units(bytes) as usize);
            drop(connection.split(excess));
        }
    }
}

/// Permission to hold a half-received request.
#[derive(Debug)]
pub(crate) struct Receiving {
    _held: CapacityHold,
    _whose: Arc<Client>,
}

/// What the connections of one address share. It exists while any request is in progress: a client that reconnects
/// has no more than before.
#[derive(Debug)]
struct Client {
    is_stranger: bool,
    work: Arc<Seat>,
    receiving: Arc<Seat>,
    _groups: Option<Arc<Groups>>,
}

/// The bounds of a connection: its own, and those of its client's address.
#[derive(Debug)]
pub(crate) struct ConnectionShare {
    pub(crate) room: ByteRoom,
    client: Arc<Client>,
}

impl ConnectionShare {
    /// Whether the peer may use no export.
    pub(crate) fn is_stranger(&self) -> bool {
        self.client.is_stranger
    }

    /// Whether requests from another address of the same host wait.
    pub(crate) fn keeps_others_waiting(&self) -> bool {
        self.client.work.keeps_others_waiting()
    }
}

/// A part of each pool.
#[derive(Clone, Copy, Debug)]
struct Parts {
    work: Amount,
    receiving: Amount,
}

/// A [`HostGroup`] in each pool.
#[derive(Debug, Default)]
struct Groups {
    work: Arc<HostGroup>,
    receiving: Arc<HostGroup>,
}

/// The clients that have connections or requests, by address; strangers by host.
#[derive(Debug)]
struct Clients {
    seats: HashMap<(IpAddr, bool), Weak<Client>>,
    groups: HashMap<IpAddr, Weak<Groups>>,
    /// The number of entries at which those of former clients are removed.
    sweep_at: usize,
}

const SWEEP_MIN: usize = 1024;

/// Grants permits for requests and for half-received requests.
#[derive(Debug)]
pub(crate) struct Admission {
    work: Arc<CapacityPool>,
    receiving: Arc<CapacityPool>,
    /// The part of a single host.
    host: Parts,
    strangers: Parts,
    stranger_groups: Arc<Groups>,
    clients: Mutex<Clients>,
}

impl Admission {
    /// Capacity for as much as the cores execute, and for `receive_max` bytes of half-received requests.
    pub(crate) fn new(limits: &remora_server::Limits, receive_max: usize) -> Admission {
        let work = Amount { requests: limits.in_flight_max.max(1), bytes: limits.in_flight_bytes_max };
        let receiving = Amount { requests: 0, bytes: receive_max };
        let parts = |divisor| Parts { work: work.part(divisor), receiving: receiving.part(divisor) };
        let mut host = parts(HOST_PART);
        host.work.requests = limits.in_flight_per_client_max.clamp(1, work.requests);
        Admission {
            work: CapacityPool::new(work),
            receiving: CapacityPool::new(receiving),
            host,
            strangers: parts(STRANGERS_PART),
            stranger_groups: Arc::default(),
            clients: Mutex::new(Clients { seats: HashMap::new(), groups: HashMap::new(), sweep_at: SWEEP_MIN }),
        }
    }

    /// The bounds of a new connection from `addr`, which may hold `bytes` itself.
    pub(crate) fn join(&self, addr: SocketAddr, is_stranger: bool, bytes: usize) -> ConnectionShare {
        ConnectionShare { room: ByteRoom::new(bytes), client: self.client(addr, is_stranger) }
    }

    /// Waits until a request of `cost` bytes on a connection is admitted.
    pub(crate) async fn admit(&self, share: &ConnectionShare, cost: usize) -> Permit {
        // In this order: what waits holds nothing that others share.
        let connection = Some(share.room.take(cost).await);
        let held = self.work.take(&share.client.work, Amount { requests: 1, bytes: cost }).await;
        Permit { held, connection, whose: share.client.clone() }
    }

    /// Waits for memory for a request of `bytes` that is arriving. Must be called once for a request: connections
    /// that hold some and wait for more could deadlock.
    pub(crate) async fn receive(&self, share: &ConnectionShare, bytes: usize) -> Receiving {
        let held = self.receiving.take(&share.client.receiving, Amount { requests: 0, bytes }).await;
        Receiving { _held: held, _whose: share.client.clone() }
    }

    /// The same for a request that has arrived, without waiting.
    pub(crate) fn try_receive(&self, share: &ConnectionShare, bytes: usize) -> Option<Receiving> {
        let held = self.receiving.try_take(&share.client.receiving, Amount { requests: 0, bytes })?;
        Some(Receiving { _held: held, _whose: share.client.clone() })
    }

    /// Admits a datagram of `cost` bytes if there is capacity now.
    pub(crate) fn try_admit(&self, from: SocketAddr, is_stranger: bool, cost: usize) -> Option<Permit> {
        let client = self.client(from, is_stranger);
        let held = self.work.try_take_datagram(&client.work, Amount { requests: 1, bytes: cost })?;
        Some(Permit { held, connection: None, whose: client })
    }

    /// Whether the client's address holds nearly all that it may.
    pub(crate) fn is_crowded(&self, share: &ConnectionShare) -> bool {
        self.work.is_crowded(&share.client.work)
    }

    /// Whether little capacity is left and the host holds more than its share.
    pub(crate) fn is_over(&self, share: &ConnectionShare) -> bool {
        self.work.is_nearly_full() && self.work.is_over(&share.client.work)
    }

    /// Whether others need the memory that the address's half-received requests hold: another address of its host
    /// waits, or little is left and it holds more than its share. Its own waiting requests do not count: a client on
    /// a slow link may have many.
    pub(crate) fn keeps_receivers_waiting(&self, share: &ConnectionShare) -> bool {
        let receiving = &share.client.receiving;
        receiving.keeps_others_waiting() || (self.receiving.is_nearly_full() && self.receiving.is_over(receiving))
    }

    /// Whether more than half of the capacity is taken.
    pub(crate) fn is_short(&self) -> bool {
        self.work.is_short()
    }

    /// The number of requests admitted whose replies have not been sent.
    pub(crate) fn under_way(&self) -> usize {
        self.work.held().requests
    }

    /// The number of requests admitted, and its bound.
    pub(crate) fn request_count(&self) -> BudgetUse {
        BudgetUse { used: self.work.held().requests, max: self.work.max().requests }
    }

    /// The bytes of admitted requests and unsent replies.
    pub(crate) fn request_bytes(&self) -> BudgetUse {
        BudgetUse { used: self.work.held().bytes, max: self.work.max().bytes }
    }

    /// The bytes of half-received requests.
    pub(crate) fn receive_bytes(&self) -> BudgetUse {
        BudgetUse { used: self.receiving.held().bytes, max: self.receiving.max().bytes }
    }

    fn client(&self, addr: SocketAddr, is_stranger: bool) -> Arc<Client> {
        let Clients { seats, groups, sweep_at } = &mut *self.clients();
        if seats.len() >= *sweep_at {
            seats.retain(|_, client| client.strong_count() > 0);
            groups.retain(|_, group| group.strong_count() > 0);
            *sweep_at = SWEEP_MIN.max(2 * seats.len());
        }
        let ip = if is_stranger { host_of(addr) } else { addr.ip().to_canonical() };
        let seat = seats.entry((ip, is_stranger)).or_default();
        if let Some(client) = seat.upgrade() {
            return client;
        }
        let (parts, group) = match is_stranger {
            true => (self.strangers, Some(self.stranger_groups.clone())),
            false => (self.host, group_of(addr).map(|host| shared(groups.entry(host).or_default()))),
        };
        let fresh = Arc::new(Client {
            is_stranger,
            work: Seat::new(group.as_ref().map(|group| group.work.clone()), parts.work),
            receiving: Seat::new(group.as_ref().map(|group| group.receiving.clone()), parts.receiving),
            _groups: group,
        });
        *seat = Arc::downgrade(&fresh);
        fresh
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host of an address, if other addresses may belong to it.
fn group_of(addr: SocketAddr) -> Option<IpAddr> {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback().then_some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(_) => Some(host_of(addr)),
    }
}

/// The value of `slot`, created if it is gone.
fn shared(slot: &mut Weak<Groups>) -> Arc<Groups> {
    slot.upgrade().unwrap_or_else(|| {
        let fresh = Arc::<Groups>::default();
        *slot = Arc::downgrade(&fresh);
        fresh
    })
}
#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const MIB: usize = 1 << 20;

    fn admission() -> Admission {
        Admission::new(&remora_server::Limits::default(), 64 * MIB)
    }

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    /// The result of a future that need not wait.
    async fn now<F: Future>(work: F) -> Option<F::Output> {
        let mut work = pin!(tokio::task::unconstrained(work));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// As many permits for requests of `cost` bytes as `from` gets, each on a new connection.
    async fn fill(adm: &Admission, from: &str, cost: usize) -> Vec<Permit> {
        let mut held = Vec::new();
        while let Some(permit) = now(adm.admit(&adm.join(addr(from), false, 8 * MIB), cost)).await {
            held.push(permit);
        }
        held
    }

    #[tokio::test]
    async fn every_bound_holds_and_room_comes_back() {
        let adm = admission();
        let share = adm.join(addr("10.0.0.1:700"), false, 2 * UNIT);
        let first = adm.admit(&share, UNIT).await;
        let second = adm.admit(&share, UNIT).await;
        assert!(now(adm.admit(&share, 1)).await.is_none(), "the connection's room is taken");
        drop((first, second));
        let requests = fill(&adm, "10.0.0.1:1", 1).await;
        assert_eq!((requests.len(), adm.under_way()), (256, 256));
        assert!(adm.try_admit(addr("[::ffff:10.0.0.1]:701"), false, 1).is_none(), "datagrams share the room");
        drop(requests);
        let bytes = fill(&adm, "10.0.0.1:1", MIB).await;
        assert_eq!(bytes.len(), 64);
        assert!(adm.try_admit(addr("10.0.0.2:1"), false, MIB).is_some());
        drop(bytes);
        assert_eq!((adm.under_way(), adm.is_short(), share.room.is_free()), (0, false, true));
    }

    #[tokio::test]
    async fn addresses_of_one_host_leave_room_for_others() {
        for bad in [|n| format!("127.0.1.{n}:1"), |n| format!("[2001:db8::{n:x}]:1")] {
            let adm = admission();
            let mut held = Vec::new();
            for n in 1..40 {
                held.extend(fill(&adm, &bad(n), MIB).await);
            }
            assert!(held.len() <= 64, "{}", held.len());
            for good in ["127.0.0.1:1", "10.0.0.1:1", "[2001:db8:0:1::1]:1"] {
                assert!(now(adm.admit(&adm.join(addr(good), false, 8 * MIB), 80 << 10)).await.is_some(), "{good}");
            }
            let other = adm.join(addr("10.0.0.1:1"), false, 8 * MIB);
            assert!(now(adm.admit(&other, 2 * MIB)).await.is_some());
        }
    }

    #[tokio::test]
    async fn strangers_hold_a_small_part_together() {
        let adm = admission();
        let mut held = Vec::new();
        for n in 0..200 {
            let share = adm.join(addr(&format!("10.0.1.{n}:1")), true, 8 * MIB);
            while let Some(permit) = now(adm.admit(&share, 64 << 10)).await {
                held.push(permit);
            }
        }
        assert!(held.len() <= 64, "{}", held.len());
        assert!(now(adm.admit(&adm.join(addr("10.0.0.1:1"), false, 8 * MIB), 2 * MIB)).await.is_some());
    }

    #[tokio::test]
    async fn unsent_reply_holds_its_length() {
        let adm = admission();
        let share = adm.join(addr("10.0.0.1:1"), false, 2 * MIB);
        let mut unread = Vec::new();
        for _ in 0..200 {
            let mut permit = now(adm.admit(&share, MIB)).await.expect("short replies leave room for the next");
            permit.settle(36);
            unread.push(permit);
        }
        assert_eq!(adm.request_bytes(), BudgetUse { used: 200 * (36 + REPLY_OVERHEAD), max: 256 * MIB });
        let mut large = adm.admit(&share, MIB).await;
        large.settle(MIB);
        assert!(now(adm.admit(&share, MIB)).await.is_none());
        drop((unread, large));
        assert!(share.room.is_free() && adm.under_way() == 0);
    }

    #[tokio::test]
    async fn address_is_crowded_when_an_eighth_is_left_to_it() {
        let adm = admission();
        let share = adm.join(addr("10.0.0.1:1"), false, 256 * MIB);
        let held = adm.admit(&share, 56 * MIB).await;
        assert!(!adm.is_crowded(&share));
        let more = adm.admit(&share, UNIT).await;
        assert!(adm.is_crowded(&share) && adm.is_crowded(&adm.join(addr("10.0.0.1:2"), false, UNIT)));
        assert!(!adm.is_crowded(&adm.join(addr("10.0.0.2:1"), false, UNIT)));
        drop((held, more));
        assert!(!adm.is_crowded(&share));
    }

    #[tokio::test]
    async fn half_received_requests_of_one_client_leave_room_for_others() {
        let adm = admission();
        let [a, again, b] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"].map(|c| adm.join(addr(c), false, UNIT));
        let held = adm.receive(&a, 16 * MIB).await;
        assert!(now(adm.receive(&again, UNIT)).await.is_none(), "a quarter for all its connections");
        assert!(now(adm.receive(&b, MIB)).await.is_some());
        drop(held);
        assert!(now(adm.receive(&again, UNIT)).await.is_some());
    }

    #[tokio::test]
    async fn client_that_reconnects_has_no_more_room_than_before() {
        let adm = admission();
        for from in ["10.0.0.1:1", "127.0.0.1:1"] {
            let join = || adm.join(addr(from), false, 256 * MIB);
            let first = join();
            // A larger request than the bound counts as all of it.
            let under_way = (adm.admit(&first, 64 * MIB).await, adm.receive(&first, 16 * MIB).await);
            drop(first);
            let again = join();
            assert!(now(adm.admit(&again, MIB)).await.is_none(), "its part is taken");
            assert!(adm.try_receive(&again, MIB).is_none(), "and that of half-received requests");
            drop(again);
            drop(under_way);
            let again = join();
            assert!(now(adm.admit(&again, 64 * MIB)).await.is_some());
            assert!(adm.try_receive(&again, 16 * MIB).is_some());
        }
    }

    #[test]
    fn clients_that_left_are_forgotten() {
        let adm = admission();
        for n in 0..10 * SWEEP_MIN as u32 {
            adm.join(SocketAddr::from((Ipv4Addr::from_bits(n), 1)), false, UNIT);
            adm.join(SocketAddr::from((std::net::Ipv6Addr::from_bits(u128::from(n) << 64), 1)), n % 2 == 0, UNIT);
            let clients = adm.clients();
            assert!(clients.seats.len() <= SWEEP_MIN + 1 && clients.groups.len() <= SWEEP_MIN + 1);
        }
    }
}
