//! A stream of numbered datagrams from the base to the first mobile, for the self-test.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::{Emulator, Station};

/// Bytes of IP and UDP headers on a datagram.
const HEADERS: usize = 28;
/// How long the receiver waits before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(20);

/// Room for all datagrams of a stream, in bytes with what the kernel adds.
const BUFFER: usize = 16 << 20;

/// The two ends of the stream.
pub(super) struct Probe {
    from: UdpSocket,
    to: UdpSocket,
}

/// A datagram that came through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Its place among those sent, from 0.
    pub(super) number: u64,
    /// When the kernel got it, on the wall clock.
    pub(super) at: Duration,
}

impl Probe {
    pub(super) fn open(emulator: &Emulator) -> io::Result<Probe> {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let to = emulator.within(Station::Mobile(0), || UdpSocket::bind(any))?;
        to.set_read_timeout(Some(WAIT))?;
        setsockopt(&to, sockopt::ReceiveTimestampns, &true)?;
        // On a busy machine the receiver may sleep for a while.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, BUFFER)?;
        let from = emulator.within(Station::Base, || UdpSocket::bind(any))?;
        from.connect((emulator.addr(Station::Mobile(0)), to.local_addr()?.port()))?;
        Ok(Probe { from, to })
    }

    /// Sends `count` datagrams that make frames of `bytes` bytes, one every `every`; then waits
    /// for `rest`. What arrived, in order of arrival.
    pub(super) fn send(&self, count: u64, bytes: usize, every: Duration, rest: Duration) -> io::Result<Vec<Arrival>> {
        self.forget()?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(&done));
            let began = std::time::Instant::now();
            let mut payload = vec![0; bytes.saturating_sub(HEADERS).max(8)];
            let mut sent = Ok(());
            for number in 0..count {
                let due = every.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                payload[..8].copy_from_slice(&number.to_be_bytes());
                if let Err(e) = self.from.send(&payload) {
                    sent = Err(e);
                    break;
                }
            }
            std::thread::sleep(rest);
            done.store(true, Ordering::Relaxed);
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.and(arrivals)
        })
    }

    /// Throws away what came after an earlier stream was given up.
    fn forget(&self) -> io::Result<()> {
        self.to.set_nonblocking(true)?;
        while self.to.recv(&mut [0]).is_ok() {}
        self.to.set_nonblocking(false)
    }

    fn receive(&self, done: &AtomicBool) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let mut number = [0; 8];
        let mut control = nix::cmsg_space!(TimeSpec);
        while !done.load(Ordering::Relaxed) {
            let mut buffer = [IoSliceMut::new(&mut number)];
            // The rest of the datagram is of no interest.
            let got = recvmsg::<()>(self.to.as_raw_fd(), &mut buffer, Some(&mut control), MsgFlags::empty());
            let time = match got {
                Ok(message) => message.cmsgs()?.find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                    _ => None,
                }),
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let at = time.ok_or_else(|| io::Error::other("the kernel gives no time with a datagram"))?;
            arrivals.push(Arrival { number: u64::from_be_bytes(number), at });
        }
        Ok(arrivals)
    }
}
