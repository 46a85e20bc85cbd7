//! The sending end: packets at their moments, as far as the system lets us, and what came of it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use remora_base::Time;

use super::datagram::{DATA_MIN, Datagram, REPORT_BYTES, decode, encode};
use super::pace::Pace;
use super::tally::Carried;
use super::{ANSWER_MAX, Plan, elapsed};

/// A packet that would be later than this is not sent: a load that has been held up shall not come
/// as a flood afterwards.
const LATE_MAX: Duration = Duration::from_millis(500);
/// The longest sleep, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// How long the receiver has for its answer before it is asked again.
const ANSWER: Duration = Duration::from_millis(200);
/// The same once it has been asked for [`ANSWER_STOPPED`]: questions shall not fill a slow link.
const ANSWER_LATE: Duration = Duration::from_secs(1);
/// How long it is asked after a stop, for which somebody waits.
const ANSWER_STOPPED: Duration = Duration::from_secs(2);
/// So many refusals say that nobody counts. One may have been to a packet sent long before.
const REFUSALS: u32 = 3;

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Packets that were due.
    pub offered: u64,
    /// Packets that the system took.
    pub sent: u64,
    /// Packets that it refused: its queue was full, or there is no way.
    pub refused: u64,
    /// Packets that were not sent because they would have been too late, by half a second.
    pub skipped: u64,
    /// A packet's length in bytes, headers of IP and UDP included.
    pub packet_bytes: u64,
    /// How long it took; shorter than planned if it was stopped.
    pub took: Duration,
    /// How late the latest packet was.
    pub late_max: Duration,
    /// What the receiver has counted; `None` if it did not answer.
    pub carried: Option<Carried>,
}

impl Sent {
    /// What was due, in bits a second of the time it took.
    pub fn offered_bits_per_s(&self) -> f64 {
        self.bits_per_s(self.offered)
    }

    /// What the system took.
    pub fn sent_bits_per_s(&self) -> f64 {
        self.bits_per_s(self.sent)
    }

    /// What arrived.
    pub fn carried_bits_per_s(&self) -> Option<f64> {
        self.carried.map(|c| self.bits_per_s(c.packets))
    }

    fn bits_per_s(&self, packets: u64) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { (packets * self.packet_bytes * 8) as f64 / seconds } else { 0.0 }
    }
}

/// A socket for [`send`] to `to`. It is made here, on the calling thread, and so belongs to that
/// thread's network namespace.
pub fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a plan's packets on a [connected](connect) socket until its time is over or `stop` is
/// set, and asks the receiver what came, for [`ANSWER_MAX`] at most, and no longer than 2 s after a stop. It
/// sleeps a lot: give it a thread of its own.
pub fn send(socket: &UdpSocket, plan: &Plan, stop: &AtomicBool) -> io::Result<Sent> {
    // A load waits for nobody.
    socket.set_nonblocking(true)?;
    // Sleeps end when they should.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut sent = Sent {
        offered: 0,
        sent: 0,
        refused: 0,
        skipped: 0,
        packet_bytes: plan.packet_bytes(),
        took: Duration::ZERO,
        late_max: Duration::ZERO,
        carried: None,
    };
    let began = Instant::now();
    let end = Time::ZERO + plan.duration;
    let mut pace = Pace::new(plan);
    let mut buffer = vec![0; plan.payload.max(DATA_MIN)];
    loop {
        let due = pace.next();
        if !wait(began, due.min(end), stop) || due >= end {
            break;
        }
        sent.offered += 1;
        let now = elapsed(began);
        let late = now.since(due);
        if late > LATE_MAX {
            sent.skipped += 1;
            continue;
        }
        sent.late_max = sent.late_max.max(late);
        let data = Datagram::Data { number: sent.sent, sent: now.since(Time::ZERO) };
        encode(plan.run, &data, &mut buffer);
        match hand_over(socket, &buffer) {
            true => sent.sent += 1,
            false => sent.refused += 1,
        }
    }
    sent.took = began.elapsed();
    sent.carried = ask(socket, plan.run, sent.sent, ANSWER_MAX, stop)?;
    Ok(sent)
}

/// Waits until `due`; false when it is not worth while because of `stop`.
fn wait(began: Instant, due: Time, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Acquire) {
            return false;
        }
        let left = due.since(elapsed(began));
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TICK));
    }
}

/// Whether the system took it.
fn hand_over(socket: &UdpSocket, packet: &[u8]) -> bool {
    // A refusal may be the news that nobody listened to the packet before: this one may still go.
    [(); 2].iter().any(|()| socket.send(packet).is_ok())
}

/// Asks the receiver what came, until it answers or will not, or `longest` is over: what is under way on a slow
/// link comes before the first question. A stop that came before leaves it little time, one that comes meanwhile
/// none.
fn ask(socket: &UdpSocket, run: u64, sent: u64, longest: Duration, stop: &AtomicBool) -> io::Result<Option<Carried>> {
    // The system may be as slow to take a question as the receiver to answer it.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK))?;
    let mut question = [0; REPORT_BYTES];
    encode(run, &Datagram::End { sent }, &mut question);
    let is_stopped = || stop.load(Ordering::Acquire);
    let was_stopped = is_stopped();
    let began = Instant::now();
    let end = began + if was_stopped { longest.min(ANSWER_STOPPED) } else { longest };
    let mut refusals = 0;
    while Instant::now() < end && refusals < REFUSALS {
        refusals += u32::from(is_refused(&socket.send(&question)));
        let pause = if began.elapsed() < ANSWER_STOPPED { ANSWER } else { ANSWER_LATE };
        let again = end.min(Instant::now() + pause);
        while Instant::now() < again {
            if is_stopped() && !was_stopped {
                return Ok(None);
            }
            let mut answer = [0; REPORT_BYTES];
            let received = socket.recv(&mut answer);
            refusals += u32::from(is_refused(&received));
            match received.ok().and_then(|n| decode(answer.get(..n)?)) {
                Some((of, Datagram::Report(carried))) if of == run => return Ok(Some(carried)),
                // Nothing, something else, or word that nobody is there, which comes at once.
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    Ok(None)
}

/// Whether it is the news that nobody listens.
fn is_refused(done: &io::Result<usize>) -> bool {
    done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(to: &UdpSocket, longest: Duration, stop: &AtomicBool) -> (Option<Carried>, Duration) {
        let (socket, began) = (connect(to.local_addr().unwrap()).unwrap(), Instant::now());
        (ask(&socket, 1, 1, longest, stop).unwrap(), began.elapsed())
    }

    fn bound() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn who_is_silent_is_asked_until_the_time_is_over() {
        let longest = ANSWER * 2;
        let (carried, took) = asked(&bound(), longest, &AtomicBool::new(false));
        assert!(carried.is_none() && took >= longest && took < ANSWER_MAX, "{took:?}");
    }

    #[test]
    fn nobody_is_not_asked_for_long() {
        let nobody = bound();
        let socket = connect(nobody.local_addr().unwrap()).unwrap();
        drop(nobody);
        let began = Instant::now();
        assert_eq!(ask(&socket, 1, 1, ANSWER_MAX, &AtomicBool::new(false)).unwrap(), None);
        assert!(began.elapsed() < ANSWER_MAX / 2, "{:?}", began.elapsed());
    }

    #[test]
    fn a_stop_leaves_little_time_and_one_while_it_asks_none() {
        let (carried, took) = asked(&bound(), ANSWER_MAX, &AtomicBool::new(true));
        assert!(carried.is_none() && took >= ANSWER_STOPPED && took < ANSWER_MAX / 2, "{took:?}");
        let stop = AtomicBool::new(false);
        let took = thread::scope(|scope| {
            let asking = scope.spawn(|| asked(&bound(), ANSWER_MAX, &stop).1);
            thread::sleep(ANSWER);
            stop.store(true, Ordering::Release);
            asking.join().unwrap()
        });
        assert!(took < ANSWER_MAX / 2, "{took:?}");
    }
}
