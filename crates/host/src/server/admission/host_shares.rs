//! Shares of what all clients use together: requests, and the bytes that they hold.
//!
//! A host may hold a fixed ratio of what is free (dynamic thresholds; Choudhury and Hahne, 1998): one host alone gets
//! its part of a [`CapacityPool`], a quarter for instance, and each of `n` hosts that want all they can get holds
//! `1 / (n + 3)`, so that `3 / (n + 3)` stay free for newcomers. A host that took more while it was alone is
//! [over its share](Pool::is_over) then: connections that keep it there without progress are closed within seconds.
//!
//! A host has one [`Seat`], or several in one [`HostGroup`]: the addresses of an IPv6 network of 64 bits, or of
//! 127.0.0.0/8. Within a group a seat may hold no more than the group leaves unused, so that one address of this
//! machine does not block the others.
//!
//! There is no order among hosts. Up to some 250 that want all they can get, a third of what is free has room for the
//! largest request; beyond, a large request may wait without a bound while the other hosts send small ones.
//!
//! What does not fit now waits in the order of arrival of its seat. A release wakes the seat it belongs to; a seat
//! that waits for others looks again after at most [`LOOK_EVERY`]. Nothing is held while it waits, so nothing can
//! deadlock.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// How often a waiting seat looks whether others have given something back: less and less often.
const LOOK_EVERY: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(100);
/// The part of a pool that datagrams may hold together, as its divisor: their source addresses may be forged.
const DATAGRAMS: usize = 2;

/// Requests and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Amount {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    /// Combines both numbers with those of `other`.
    fn zip(self, other: Amount, f: impl Fn(usize, usize) -> usize) -> Amount {
        Amount { requests: f(self.requests, other.requests), bytes: f(self.bytes, other.bytes) }
    }

    fn min(self, other: Amount) -> Amount {
        self.zip(other, usize::min)
    }

    fn plus(self, other: Amount) -> Amount {
        self.zip(other, usize::saturating_add)
    }

    fn minus(self, other: Amount) -> Amount {
        self.zip(other, usize::saturating_sub)
    }

    /// One part of so many.
    pub(crate) fn part(self, divisor: usize) -> Amount {
        Amount { requests: self.requests / divisor, bytes: self.bytes / divisor }
    }
}

/// What a seat or a group holds. Changed under the lock of its pool only.
#[derive(Debug, Default)]
struct Held {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Held {
    fn get(&self) -> Amount {
        Amount { requests: self.requests.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    fn set(&self, amount: Amount) {
        self.requests.store(amount.requests, Relaxed);
        self.bytes.store(amount.bytes, Relaxed);
    }
}

/// Seats that share the part of one host.
#[derive(Debug, Default)]
pub(crate) struct HostGroup {
    held: Held,
    waiting: AtomicUsize,
}

/// A holder of a share.
#[derive(Debug)]
pub(crate) struct Seat {
    group: Option<Arc<HostGroup>>,
    /// What the seat, or its group, gets when it is alone.
    part: Amount,
    held: Held,
    waiting: AtomicUsize,
    /// Held by the one that is next.
    turn: Semaphore,
    freed: Notify,
}

impl Seat {
    /// A seat, in `group` if it shares its `part` with others.
    pub(crate) fn new(group: Option<Arc<HostGroup>>, part: Amount) -> Arc<Seat> {
        let (held, waiting, freed) = (Held::default(), AtomicUsize::new(0), Notify::new());
        Arc::new(Seat { group, part, held, waiting, turn: Semaphore::new(1), freed })
    }

    fn in_group(&self) -> Option<Amount> {
        self.group.as_ref().map(|group| group.held.get())
    }

    /// Whether something waits for this seat.
    fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Whether something waits for another seat of its group.
    pub(crate) fn keeps_others_waiting(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.waiting.load(Relaxed) > self.waiting.load(Relaxed))
    }

    fn change(&self, to: impl Fn(Amount) -> Amount) {
        self.held.set(to(self.held.get()));
        if let Some(HostGroup { held, .. }) = self.group.as_deref() {
            held.set(to(held.get()));
        }
    }
}

/// Something that all clients share.
#[derive(Debug)]
pub(crate) struct CapacityPool {
    max: Amount,
    held: Mutex<Totals>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    all: Amount,
    datagrams: Amount,
}

/// A piece of a pool. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct CapacityHold {
    pool: Arc<CapacityPool>,
    seat: Arc<Seat>,
    amount: Amount,
    is_datagram: bool,
}

impl CapacityPool {
    /// A pool of `max`.
    pub(crate) fn new(max: Amount) -> Arc<CapacityPool> {
        Arc::new(CapacityPool { max, held: Mutex::default() })
    }

    /// Waits for room for `want` at `seat`. What is more than the seat could ever get counts as all of that.
    pub(crate) async fn take(self: &Arc<CapacityPool>, seat: &Arc<Seat>, want: Amount) -> CapacityHold {
        if !seat.has_waiters()
            && let Some(hold) = self.try_take(seat, want)
        {
            return hold;
        }
        let _counted = Waiting::new(seat);
        // Never closed, the only thing that this can fail for.
        let _turn = seat.turn.acquire().await;
        let mut pause = LOOK_EVERY.start;
        loop {
            let freed = seat.freed.notified();
            if let Some(hold) = self.try_take(seat, want) {
                return hold;
            }
            // Another seat's release shows at the next look.
            let _ = timeout(pause, freed).await;
            pause = (2 * pause).min(LOOK_EVERY.end);
        }
    }

    /// The same, if there is room now.
    pub(crate) fn try_take(self: &Arc<CapacityPool>, seat: &Arc<Seat>, want: Amount) -> Option<CapacityHold> {
        self.try_take_as(seat, want, false)
    }

    pub(crate) fn try_take_datagram(self: &Arc<CapacityPool>, seat: &Arc<Seat>, want: Amount) -> Option<CapacityHold> {
        self.try_take_as(seat, want, true)
    }

    fn try_take_as(
        self: &Arc<CapacityPool>,
        seat: &Arc<Seat>,
        want: Amount,
        is_datagram: bool,
    ) -> Option<CapacityHold> {
        let amount = want.min(self.alone(seat));
        let mut totals = self.lock();
        let is_idle = totals.all == Amount::default();
        if !is_idle && !(self.fits(&totals, seat, amount) && (!is_datagram || self.has_for_datagrams(&totals, amount)))
        {
            return None;
        }
        totals.all = totals.all.plus(amount);
        if is_datagram {
            totals.datagrams = totals.datagrams.plus(amount);
        }
        seat.change(|held| held.plus(amount));
        drop(totals);
        Some(CapacityHold { pool: self.clone(), seat: seat.clone(), amount, is_datagram })
    }

    /// Whether less than an eighth of what it could get is left to `seat`.
    pub(crate) fn is_crowded(&self, seat: &Seat) -> bool {
        let totals = *self.lock();
        let eighth = self.alone(seat).part(8);
        let requests = Amount { requests: eighth.requests, bytes: 0 };
        !(self.fits(&totals, seat, requests) && self.fits(&totals, seat, Amount { requests: 0, ..eighth }))
    }

    /// Whether `seat` holds more than it could get now: others came after it.
    pub(crate) fn is_over(&self, seat: &Seat) -> bool {
        let totals = *self.lock();
        let [requests, bytes] = self.things(&totals, seat);
        let (group, held) = (seat.in_group(), seat.held.get());
        held != Amount::default()
            && !(requests.allows(group.map(|g| g.requests), held.requests)
                && bytes.allows(group.map(|g| g.bytes), held.bytes))
    }

    /// Whether more than half of it is held.
    pub(crate) fn is_short(&self) -> bool {
        let all = self.lock().all;
        all.requests > self.max.requests / 2 || all.bytes > self.max.bytes / 2
    }

    /// Whether no more than an eighth of it is left.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let all = self.lock().all;
        all.requests >= self.max.requests - self.max.requests / 8 || all.bytes >= self.max.bytes - self.max.bytes / 8
    }

    pub(crate) fn held(&self) -> Amount {
        self.lock().all
    }

    pub(crate) fn max(&self) -> Amount {
        self.max
    }

    fn fits(&self, totals: &Totals, seat: &Seat, want: Amount) -> bool {
        let [requests, bytes] = self.things(totals, seat);
        let (group, held) = (seat.in_group(), seat.held.get());
        requests.has(want.requests, group.map(|g| g.requests), held.requests)
            && bytes.has(want.bytes, group.map(|g| g.bytes), held.bytes)
    }

    fn things(&self, totals: &Totals, seat: &Seat) -> [Thing; 2] {
        let (max, part, all) = (self.max, seat.part, totals.all);
        [(max.requests, part.requests, all.requests), (max.bytes, part.bytes, all.bytes)]
            .map(|(max, part, all)| Thing { max, part, all })
    }

    fn has_for_datagrams(&self, totals: &Totals, want: Amount) -> bool {
        let (after, max) = (totals.datagrams.plus(want), self.max.part(DATAGRAMS));
        after.requests <= max.requests && after.bytes <= max.bytes
    }

    /// What `seat` gets when nobody else holds anything.
    fn alone(&self, seat: &Seat) -> Amount {
        let of_group =
            |part: usize, max: usize| (part as u128 * max as u128 / (2 * max - part).max(1) as u128) as usize;
        let part = seat.part.min(self.max);
        if seat.group.is_some() { part.zip(self.max, of_group) } else { part }
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the things in a pool: how much there is, what a host alone gets, and what all hold.
struct Thing {
    max: usize,
    part: usize,
    all: usize,
}

impl Thing {
    /// Whether a seat that holds `held`, in a group that holds `group`, may have `want` more.
    fn has(&self, want: usize, group: Option<usize>, held: usize) -> bool {
        if want == 0 {
            return true;
        }
        let all = self.all.saturating_add(want);
        all <= self.max && Thing { all, ..*self }.allows(group.map(|group| group + want), held + want)
    }

    /// Whether a seat may hold `held`, in a group that holds `group`, while all hold what they do.
    fn allows(&self, group: Option<usize>, held: usize) -> bool {
        let free = self.max.saturating_sub(self.all);
        let limit = free as u128 * self.part as u128 / self.max.saturating_sub(self.part).max(1) as u128;
        limit.checked_sub(group.unwrap_or(0) as u128).is_some_and(|left| held as u128 <= left)
    }
}

impl CapacityHold {
    /// Gives back what is beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let excess = Amount { requests: 0, bytes: self.amount.bytes.saturating_sub(bytes) };
        self.give_back(excess);
    }

    fn give_back(&mut self, amount: Amount) {
        if amount == Amount::default() {
            return;
        }
        self.amount = self.amount.minus(amount);
        let mut totals = self.pool.lock();
        totals.all = totals.all.minus(amount);
        if self.is_datagram {
            totals.datagrams = totals.datagrams.minus(amount);
        }
        self.seat.change(|held| held.minus(amount));
        drop(totals);
        self.seat.freed.notify_one();
    }
}

impl Drop for CapacityHold {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

/// Counts one that waits for as long as it exists.
struct Waiting<'a>(&'a Seat);

impl Waiting<'_> {
    fn new(seat: &Seat) -> Waiting<'_> {
        let waiting = Waiting(seat);
        waiting.counts().for_each(|count| _ = count.fetch_add(1, Relaxed));
        waiting
    }

    fn counts(&self) -> impl Iterator<Item = &AtomicUsize> {
        [&self.0.waiting].into_iter().chain(self.0.group.as_ref().map(|group| &group.waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.counts().for_each(|count| _ = count.fetch_sub(1, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 7000;

    fn bytes(bytes: usize) -> Amount {
        Amount { requests: 1, bytes }
    }

    fn pool() -> Arc<CapacityPool> {
        CapacityPool::new(Amount { requests: MAX, bytes: MAX })
    }

    fn seat(group: Option<&Arc<HostGroup>>) -> Arc<Seat> {
        Seat::new(group.cloned(), Amount { requests: MAX, bytes: MAX }.part(4))
    }

    /// All that `seat` gets, ten bytes at a time.
    fn fill(pool: &Arc<CapacityPool>, seat: &Arc<Seat>) -> Vec<CapacityHold> {
        std::iter::from_fn(|| pool.try_take(seat, bytes(10))).collect()
    }

    /// All that these get, in turns.
    fn fill_all(pool: &Arc<CapacityPool>, seats: &[Arc<Seat>]) -> Vec<CapacityHold> {
        let turn = || seats.iter().filter_map(|seat| pool.try_take(seat, bytes(10))).collect::<Vec<_>>();
        std::iter::from_fn(|| Some(turn()).filter(|held| !held.is_empty())).flatten().collect()
    }

    #[test]
    fn lone_host_gets_its_part_and_many_leave_room() {
        let pool = pool();
        let first = fill(&pool, &seat(None));
        assert_eq!(first.len() * 10, MAX / 4);
        drop(first);
        let hosts: Vec<_> = (0..100).map(|_| seat(None)).collect();
        let held = fill_all(&pool, &hosts);
        let newcomer = seat(None);
        assert!(pool.try_take(&newcomer, bytes(20)).is_some(), "{:?}", pool.held());
        drop(held);
        assert_eq!(pool.held(), Amount::default());
        assert_eq!(fill(&pool, &newcomer).len() * 10, MAX / 4, "all came back");
    }

    #[test]
    fn addresses_of_one_group_share_its_part() {
        let (pool, group) = (pool(), Arc::new(HostGroup::default()));
        let alone = fill(&pool, &seat(Some(&group)));
        assert_eq!(alone.len() * 10, MAX / 7);
        drop(alone);
        let addresses: Vec<_> = (0..16).map(|_| seat(Some(&group))).collect();
        let held = fill_all(&pool, &addresses);
        assert!(held.len() * 10 <= MAX / 4, "no more than one host: {}", held.len());
        assert!(pool.try_take(&seat(Some(&group)), bytes(50)).is_some(), "the next address finds room");
        assert!(pool.try_take(&seat(None), bytes(MAX / 6)).is_some(), "another host notices little");
    }

    #[test]
    fn first_host_is_over_its_share_when_others_come() {
        let group = Arc::new(HostGroup::default());
        for group in [None, Some(&group)] {
            let (pool, [first, second]) = (pool(), [seat(group), seat(group)]);
            let held = fill(&pool, &first);
            assert!(!pool.is_over(&first));
            let more = fill(&pool, &second);
            assert!(pool.is_over(&first) && !pool.is_over(&second));
            drop(more);
            assert!(!pool.is_over(&first));
            drop(held);
            assert!(!pool.is_over(&first));
        }
    }

    #[test]
    fn request_larger_than_any_share_passes_when_nothing_is_held() {
        let pool = CapacityPool::new(Amount { requests: 1, bytes: 10 });
        let one = Seat::new(None, Amount { requests: 1, bytes: 2 });
        let hold = pool.try_take(&one, bytes(usize::MAX)).unwrap();
        assert!(pool.try_take(&seat(None), bytes(1)).is_none());
        drop(hold);
        assert!(pool.try_take(&seat(None), bytes(1)).is_some());
    }

    #[test]
    fn shrunk_hold_gives_back_the_rest() {
        let (pool, seat) = (pool(), seat(None));
        let mut hold = pool.try_take(&seat, bytes(1000)).unwrap();
        hold.shrink(100);
        hold.shrink(2000);
        assert_eq!(pool.held(), bytes(100));
        drop(hold);
        assert_eq!(pool.held(), Amount::default());
    }

    #[test]
    fn datagrams_of_any_number_of_hosts_leave_half() {
        let pool = pool();
        let held: Vec<_> = (0..1000).filter_map(|_| pool.try_take_datagram(&seat(None), bytes(100))).collect();
        assert_eq!(held.len() * 100, MAX / 2);
        assert!(pool.try_take(&seat(None), bytes(MAX / 10)).is_some());
    }

    #[tokio::test]
    async fn waiters_of_a_seat_keep_their_order() {
        let (pool, seat) = (pool(), seat(None));
        let first = pool.take(&seat, bytes(MAX / 4)).await;
        let done = Arc::new(Mutex::new(Vec::new()));
        let wait = |n: usize, want: usize| {
            let (pool, seat, done) = (pool.clone(), seat.clone(), done.clone());
            tokio::spawn(async move {
                let hold = pool.take(&seat, bytes(want)).await;
                done.lock().unwrap().push(n);
                hold
            })
        };
        let large = wait(0, MAX / 5);
        tokio::task::yield_now().await;
        let small = wait(1, 1);
        tokio::task::yield_now().await;
        assert!(seat.has_waiters() && done.lock().unwrap().is_empty());
        drop(first);
        let _held = (large.await.unwrap(), small.await.unwrap());
        assert_eq!(*done.lock().unwrap(), [0, 1]);
        assert!(!seat.has_waiters());
    }

    #[tokio::test]
    async fn seat_sees_memory_released_by_another() {
        let (pool, one, other) = (pool(), seat(None), seat(None));
        let held = fill(&pool, &one);
        let waits = pool.take(&other, bytes(MAX / 4));
        let release = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(held);
        };
        let (hold, ()) = tokio::join!(waits, release);
        assert_eq!(hold.amount.bytes, MAX / 4);
    }
}
