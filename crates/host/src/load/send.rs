//! The sending end: packets at their moments, as far as the system lets us, and what came of it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use remora_base::Time;

use super::Plan;
use super::datagram::{DATA_MIN, Datagram, REPORT_BYTES, decode, encode};
use super::pace::Pace;
use super::tally::Carried;
use crate::Clock;

/// A packet that would be later than this is not sent: a load that has been held up shall not come
/// as a flood afterwards.
const LATE_MAX: Duration = Duration::from_millis(500);
/// The longest sleep, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// How long the receiver has for its answer before it is asked again.
const ANSWER: Duration = Duration::from_millis(200);
/// How often it is asked. What is under way on a slow link comes before the first question.
const QUESTIONS: u32 = 10;

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
/// set, and asks the receiver what came. It sleeps a lot: give it a thread of its own.
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
    let clock = Clock::start();
    let end = Time::ZERO + plan.duration;
    let mut pace = Pace::new(plan);
    let mut buffer = vec![0; plan.payload.max(DATA_MIN)];
    loop {
        let due = pace.next();
        if !wait(&clock, due.min(end), stop) || due >= end {
            break;
        }
        sent.offered += 1;
        let now = clock.now();
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
    sent.took = clock.now().since(Time::ZERO);
    sent.carried = ask(socket, plan.run, sent.sent)?;
    Ok(sent)
}

/// Waits until `due`; false when it is not worth while because of `stop`.
fn wait(clock: &Clock, due: Time, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Acquire) {
            return false;
        }
        let left = due.since(clock.now());
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

/// Asks the receiver what came, until it answers or will not.
fn ask(socket: &UdpSocket, run: u64, sent: u64) -> io::Result<Option<Carried>> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TICK))?;
    let mut question = [0; REPORT_BYTES];
    encode(run, &Datagram::End { sent }, &mut question);
    for _ in 0..QUESTIONS {
        hand_over(socket, &question);
        let deadline = Instant::now() + ANSWER;
        while Instant::now() < deadline {
            let mut answer = [0; REPORT_BYTES];
            match socket.recv(&mut answer).ok().and_then(|n| decode(answer.get(..n)?)) {
                Some((of, Datagram::Report(carried))) if of == run => return Ok(Some(carried)),
                // Nothing, something else, or word that nobody is there, which comes at once.
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    Ok(None)
}
