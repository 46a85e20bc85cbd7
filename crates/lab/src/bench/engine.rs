//! A run: one thread for each connection, which sends, waits, checks and sends again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use remora_client::Transport;
use rustix::time::{ClockId, clock_gettime};

use super::lane::{Lane, LaneTally, Share};
use super::outbox::Outbox;
use super::plan::{CallPlan, Image};
use super::socket::{Fault, Socket};

/// Interval of the retransmission check for datagrams.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(super) struct RunLoad {
    pub(super) server: SocketAddr,
    pub(super) transport: Transport,
    /// Concurrent scripts on all connections.
    pub(super) outstanding: usize,
    pub(super) connections: usize,
    pub(super) length: Length,
    pub(super) patience: Duration,
    pub(super) files: u64,
    pub(super) seed: u64,
    pub(super) nonce: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    /// A duration, after a warm-up.
    Time {
        warm_up: Duration,
        measured: Duration,
    },
    Scripts(u64),
}

#[derive(Clone, Debug)]
pub(super) struct EngineRun {
    pub(super) tally: LaneTally,
    pub(super) seconds: f64,
    /// Utilisation of the busiest generator thread; 1 is a whole processor.
    pub(super) busy: f64,
    /// Processor time of the generator in seconds.
    pub(super) cpu: f64,
    pub(super) wall: f64,
}

/// Runs `plan` under `load`. Connections are open before the first call.
pub(super) fn run(plan: &CallPlan, image: &Image, load: &RunLoad, stop: &AtomicBool) -> Result<EngineRun, Fault> {
    let connections = load.connections.max(1);
    let depth = load.outstanding.div_ceil(connections);
    let sockets: Vec<Socket> =
        (0..connections).map(|_| Socket::connect(load.transport, load.server, depth)).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let (from, until) = match load.length {
        Length::Time { warm_up, measured } => (start + warm_up, Some(start + warm_up + measured)),
        Length::Scripts(_) => (start, None),
    };
    let share = |nth: usize| {
        // The remainder goes to the first connections.
        let part = |whole: u64| whole / connections as u64 + u64::from((nth as u64) < whole % connections as u64);
        let scripts = match load.length {
            Length::Scripts(n) => Some(part(n)),
            Length::Time { .. } => None,
        };
        let depth = part(load.outstanding as u64) as usize;
        Share {
            nth: nth as u64,
            of: connections as u64,
            depth,
            scripts,
            files: load.files,
            seed: load.seed,
            nonce: load.nonce,
            from,
            until,
        }
    };
    let halt = AtomicBool::new(false);
    let work = |nth: usize, socket: Socket| {
        let thread = Thread { plan, image, patience: load.patience, stops: [stop, &halt] };
        let result = thread.work(socket, share(nth));
        if result.is_err() {
            halt.store(true, Ordering::Relaxed);
        }
        result
    };
    let results: Vec<Result<(LaneTally, f64), Fault>> = thread::scope(|scope| {
        let threads: Vec<_> =
            sockets.into_iter().enumerate().map(|(nth, s)| scope.spawn(move || work(nth, s))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Err(Fault::Interrupted))).collect()
    });
    sum_up(results, start, load.length)
}

fn sum_up(results: Vec<Result<(LaneTally, f64), Fault>>, start: Instant, length: Length) -> Result<EngineRun, Fault> {
    let wall = start.elapsed().as_secs_f64();
    let (mut tally, mut cpu, mut most) = (LaneTally::new(), 0.0, 0.0_f64);
    let mut fault = None;
    for result in results {
        match result {
            Ok((part, used)) => {
                tally.add(&part);
                cpu += used;
                most = most.max(used);
            }
            // The first failed thread interrupted the others; its error is the reason.
            Err(Fault::Interrupted) => fault = fault.or(Some(Fault::Interrupted)),
            Err(e) => fault = fault.filter(|f| !matches!(f, Fault::Interrupted)).or(Some(e)),
        }
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let seconds = match (length, tally.last) {
        (Length::Time { measured, .. }, _) => measured.as_secs_f64(),
        (Length::Scripts(_), last) => last.map_or(wall, |t| (t - start).as_secs_f64()),
    };
    Ok(EngineRun { tally, seconds, busy: most / wall.max(1e-9), cpu, wall })
}

struct Thread<'a> {
    plan: &'a CallPlan,
    image: &'a Image,
    patience: Duration,
    stops: [&'a AtomicBool; 2],
}

impl Thread<'_> {
    /// Returns the counts and the processor time in seconds.
    fn work(&self, mut socket: Socket, share: Share) -> Result<(LaneTally, f64), Fault> {
        let mut now = Instant::now();
        let mut lane = Lane::new(self.plan, self.image, share, now);
        let mut out = Outbox::default();
        let (mut heard, mut looked) = (now, now);
        let is_datagram = socket.is_datagram();
        loop {
            if self.stops.iter().any(|s| s.load(Ordering::Relaxed)) {
                return Err(Fault::Interrupted);
            }
            let open = share.until.is_none_or(|t| now < t);
            if open {
                lane.start(now, &mut out);
            }
            if lane.is_idle() && (!open || lane.is_spent()) {
                return Ok((lane.tally, thread_seconds()));
            }
            let is_taken = socket.flush(&mut out, self.image)?;
            let sending = !out.is_empty();
            // One clock reading for each system call.
            let mut came = None;
            let is_heard = socket.receive(sending, &mut |message| {
                let at = *came.get_or_insert_with(Instant::now);
                match lane.take(at, message, &mut out)? {
                    // A stream needs no retransmission.
                    false if !is_datagram => Err(Fault::Foreign("a reply to no call")),
                    _ => Ok(()),
                }
            })?;
            now = came.unwrap_or_else(Instant::now);
            // Partial replies and calls count as progress: large ones are slow on a slow link.
            if is_taken || is_heard {
                heard = now;
            }
            let is_silent = now.saturating_duration_since(heard) > self.patience;
            if is_datagram && now.saturating_duration_since(looked) > LOOK {
                looked = now;
                lane.resend(now, &mut out).ok_or(Fault::Silent(now.saturating_duration_since(heard)))?;
            }
            if is_silent {
                return Err(Fault::Silent(self.patience));
            }
        }
    }
}

/// Processor time of this thread.
fn thread_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use bytes::Bytes;
    use remora_wire::Xdr;
    use remora_wire::nfs3::{Call, Entries, EntryPlus, Fh, ReadArgs, ReadDirPlusArgs, ReadDirPlusOk, ReadOk, Reply};
    use remora_wire::record::mark;
    use remora_wire::rpc::{OpaqueAuth, Outcome, ReplyHeader};

    use super::*;
    use crate::bench::plan::{CallKind, CountedUnit, Encoder, Script, Span};

    const LEN: u32 = 256;
    const SPAN: Span = Span { base: 0, len: LEN as usize };

    /// A server that answers each call on one connection with `reply`, in pieces of `piece` bytes.
    fn server(reply: Reply, piece: usize, pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 8];
            while stream.read_exact(&mut head).is_ok() {
                let [len, xid] = [&head[..4], &head[4..]].map(|word| u32::from_be_bytes(word.try_into().unwrap()));
                stream.read_exact(&mut vec![0; (len & 0x7fff_ffff) as usize - 4]).unwrap();
                let mut message = Vec::new();
                ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut message);
                reply.encode(&mut message);
                for piece in [&mark(message.len())[..], &message].concat().chunks(piece) {
                    thread::sleep(pause);
                    if stream.write_all(piece).is_err() {
                        return;
                    }
                }
            }
        });
        at
    }

    fn plan(call: Call, kind: CallKind) -> CallPlan {
        let encoder = Encoder { cred: OpaqueAuth::none() };
        CallPlan::new(vec![Script::single(1, encoder.step(kind, vec![(call, SPAN)]))], CountedUnit::Script).unwrap()
    }

    /// Runs one script against `server` with a patience of 1 s and a long time limit.
    fn one(plan: &CallPlan, server: SocketAddr) -> Result<EngineRun, Fault> {
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let load = RunLoad {
            server,
            transport: Transport::Tcp,
            outstanding: 1,
            connections: 1,
            length: Length::Scripts(1),
            patience: Duration::from_secs(1),
            files: 3,
            seed: 1,
            nonce: 1,
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let began = Instant::now();
                while !over.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(20) {
                    thread::sleep(Duration::from_millis(10));
                }
                stop.store(true, Ordering::Relaxed);
            });
            let done = run(plan, &Image::new(SPAN.len), &load, &stop);
            over.store(true, Ordering::Relaxed);
            done
        })
    }

    fn read() -> (CallPlan, Reply) {
        let fh = Fh(Bytes::from_static(b"file"));
        let data = Bytes::copy_from_slice(Image::new(SPAN.len).bytes(SPAN, 0, SPAN.len));
        let reply = Reply::Read(Ok(ReadOk { attr: None, count: LEN, eof: false, data }));
        (plan(Call::Read(ReadArgs { fh, offset: 0, count: LEN }), CallKind::Read(LEN)), reply)
    }

    #[test]
    fn slow_reply_does_not_end_the_run() {
        let (plan, reply) = read();
        let done = one(&plan, server(reply, 10, Duration::from_millis(100))).unwrap();
        assert_eq!((done.tally.operations, done.tally.bytes), (1, u64::from(LEN)));
        assert!(done.seconds > 2.0, "{}", done.seconds);
    }

    #[test]
    fn silent_server_ends_the_run() {
        let (plan, reply) = read();
        let done = one(&plan, server(reply, 10, Duration::from_secs(3)));
        assert!(matches!(done, Err(Fault::Silent(_))), "{done:?}");
    }

    #[test]
    fn listing_with_looping_cookies_ends() {
        let dir = Fh(Bytes::from_static(b"dir"));
        let entry = EntryPlus { fileid: 1, name: "again".into(), cookie: 5, attr: None, fh: None };
        let dots = EntryPlus { name: ".".into(), ..entry.clone() };
        for entry in [entry, dots] {
            let entries = Entries { list: vec![entry], eof: false };
            let reply = Reply::ReadDirPlus(Ok(ReadDirPlusOk { dir: None, verf: [0; 8], entries }));
            let args = ReadDirPlusArgs { dir: dir.clone(), cookie: 0, verf: [0; 8], dir_count: 512, max_count: 512 };
            let done = one(&plan(Call::ReadDirPlus(args), CallKind::Page), server(reply, 1000, Duration::ZERO));
            assert!(matches!(done, Err(Fault::Foreign(_))), "{done:?}");
        }
    }
}
