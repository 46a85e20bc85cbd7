//! The sender: packets at their due times, and the receiver's counters.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use remora_base::Time;

use super::datagram::{DATA_MIN, Datagram, REPORT_BYTES, decode, encode};
use super::plan::{ANSWER_MAX, Plan, Schedule, elapsed};
use super::tally::Carried;

/// Packets later than this are skipped, so that a delayed load does not become a burst.
const LATE_MAX: Duration = Duration::from_millis(500);
/// Longest sleep, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Time until a request for the counters is repeated.
const ANSWER: Duration = Duration::from_millis(200);
/// The same after [`ANSWER_STOPPED`], so that requests do not fill a slow link.
const ANSWER_LATE: Duration = Duration::from_secs(1);
/// Time limit for the counters after a stop, for which a person waits.
const ANSWER_STOPPED: Duration = Duration::from_secs(2);
/// Refusals (ICMP) after which no receiver is assumed. One may belong to an earlier packet.
const REFUSALS: u32 = 3;

/// Result of a run at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Packets that were due.
    pub offered: u64,
    /// Packets that the system accepted.
    pub sent: u64,
    /// Packets that the system refused: queue full, or no route.
    pub refused: u64,
    /// Packets skipped because they were half a second late.
    pub skipped: u64,
    /// Bytes of a packet, including IP and UDP headers.
    pub packet_bytes: u64,
    /// Duration; shorter than planned after a stop.
    pub took: Duration,
    /// Largest lateness of a packet.
    pub late_max: Duration,
    /// The receiver's counters; `None` without an answer.
    pub carried: Option<Carried>,
}

impl Sent {
    /// Rate that was due, in bits per second.
    pub fn offered_bits_per_s(&self) -> f64 {
        self.bits_per_s(self.offered)
    }

    /// Rate that the system accepted.
    pub fn sent_bits_per_s(&self) -> f64 {
        self.bits_per_s(self.sent)
    }

    /// Rate that was received.
    pub fn carried_bits_per_s(&self) -> Option<f64> {
        self.carried.map(|c| self.bits_per_s(c.packets))
    }

    fn bits_per_s(&self, packets: u64) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { (packets * self.packet_bytes * 8) as f64 / seconds } else { 0.0 }
    }
}

/// Creates a socket for [`send`] to `to`, in the network namespace of the calling thread.
pub fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a plan's packets on a [connected](connect) socket until its end or `stop`, then asks for the counters: at
/// most [`ANSWER_MAX`], or 2 s after a stop. It blocks, so use a thread of its own.
pub fn send(socket: &UdpSocket, plan: &Plan, stop: &AtomicBool) -> io::Result<Sent> {
    // A load never waits for the socket.
    socket.set_nonblocking(true)?;
    // Precise sleeps.
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
    let mut pace = Schedule::new(plan);
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

/// Waits until `due`; false if `stop` makes it useless.
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

/// Whether the system accepted the packet.
fn hand_over(socket: &UdpSocket, packet: &[u8]) -> bool {
    // An error may belong to the previous packet; then the second attempt succeeds.
    [(); 2].iter().any(|()| socket.send(packet).is_ok())
}

/// Asks for the counters until an answer, a refusal or `longest`; packets in flight on a slow link precede the
/// request. An earlier stop shortens it, a stop meanwhile ends it.
fn ask(socket: &UdpSocket, run: u64, sent: u64, longest: Duration, stop: &AtomicBool) -> io::Result<Option<Carried>> {
    // Sending may take as long as the answer.
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
                // No answer, another datagram, or an immediate refusal.
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    Ok(None)
}

/// Whether the error says that there is no receiver.
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
    fn silent_receiver_is_asked_until_deadline() {
        let longest = ANSWER * 2;
        let (carried, took) = asked(&bound(), longest, &AtomicBool::new(false));
        assert!(carried.is_none() && took >= longest && took < ANSWER_MAX, "{took:?}");
    }

    #[test]
    fn missing_receiver_is_given_up_soon() {
        let nobody = bound();
        let socket = connect(nobody.local_addr().unwrap()).unwrap();
        drop(nobody);
        let began = Instant::now();
        assert_eq!(ask(&socket, 1, 1, ANSWER_MAX, &AtomicBool::new(false)).unwrap(), None);
        assert!(began.elapsed() < ANSWER_MAX / 2, "{:?}", began.elapsed());
    }

    #[test]
    fn stop_shortens_final_questions() {
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
