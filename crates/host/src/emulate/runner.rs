//! The thread between the devices: reads the stations' packets, runs the channel, writes deliveries.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ipnet::Ipv4Net;
use remora_channel::{Channel, Config, Delivery, ErrorModel, Lane, Side};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use super::pcap::{Captures, Moment};
use super::report::{EmulationReport, Journal, LaneReport, Latenesses};
use super::setup::{EmulateError, EmulationSetup, Station};
use super::station::{Link, Tun};
use crate::Clock;

/// Packets read from a device before deliveries get their turn.
const READS_MAX: usize = 32;
/// Packets discarded for each device when a channel begins: more than a device holds.
const STALE_MAX: usize = 20_000;
/// Maximum size of an IP packet.
const PACKET_MAX: usize = 65_535;
/// Frame records kept between two turns of the loop.
const TRACE_FRAMES: usize = 1 << 17;

/// Time for the captures to be written before a report omits their last frames.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// Real-time priority of the thread, 0 to 99.
const PRIORITY: u8 = 10;

/// A request to the thread.
enum Request {
    Begin(Box<Run>, Sender<Reported>),
    Report(Sender<Reported>),
    Clock(Sender<Clock>),
    Stop,
}

/// A report, and a receiver for the number of frames not captured. The thread does not wait for it.
type Reported = (EmulationReport, Option<Receiver<u64>>);

/// Owner of the thread. Dropping it stops the channel.
#[derive(Debug)]
pub(super) struct Runner {
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<OnceLock<Failure>>,
    setup: EmulationSetup,
}

/// A station whose device is gone, and the system's error.
type Failure = (Station, String);

impl Runner {
    pub(super) fn start(setup: &EmulationSetup, links: &[Link]) -> Result<Runner, EmulateError> {
        let captures = match &setup.pcap {
            Some(dir) => Some(
                Captures::create(dir, links.iter().map(|l| l.station))
                    .map_err(|e| EmulateError::System { what: format!("captures in {}", dir.display()), source: e })?,
            ),
            None => None,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| EmulateError::system("an event")(e.into()))?;
        let wake = Arc::new(wake);
        let (requests, incoming) = channel();
        let mut worker = Worker {
            devices: links.iter().map(Link::device).collect(),
            network: setup.network,
            run: Run::new(setup, setup.config.clone(), setup.seed, &vec![setup.config.errors.clone(); setup.mobiles])?,
            captures,
            incoming,
            wake: wake.clone(),
            buffer: vec![0; PACKET_MAX + 1],
        };
        let failure = Arc::new(OnceLock::new());
        let sender = failure.clone();
        let thread = std::thread::Builder::new().name("channel".into()).spawn(move || {
            if let Err(failure) = worker.work() {
                // Set before the worker is dropped, because the callers then read it.
                let _ = sender.set(failure);
            }
        });
        let thread = thread.map_err(EmulateError::system("a thread"))?;
        Ok(Runner { requests, wake, thread: Some(thread), failure, setup: setup.clone() })
    }

    /// `errors` has an error model for each mobile.
    pub(super) fn begin(
        &self,
        config: Config,
        seed: u64,
        errors: &[ErrorModel],
    ) -> Result<EmulationReport, EmulateError> {
        let run = Box::new(Run::new(&self.setup, config, seed, errors)?);
        self.ask(|reply| Request::Begin(run, reply)).map(settled)
    }

    pub(super) fn report(&self) -> Result<EmulationReport, EmulateError> {
        self.ask(Request::Report).map(settled)
    }

    pub(super) fn clock(&self) -> Result<Clock, EmulateError> {
        self.ask(Request::Clock)
    }

    /// Why the thread ended by itself, if it has.
    pub(super) fn failure(&self) -> Option<EmulateError> {
        let (station, why) = self.failure.get()?;
        Some(EmulateError::DeviceGone { station: *station, why: why.clone() })
    }

    fn stopped(&self) -> EmulateError {
        self.failure().unwrap_or(EmulateError::Stopped)
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, EmulateError> {
        let (reply, answer) = channel();
        self.tell(request(reply))?;
        answer.recv().map_err(|_| self.stopped())
    }

    fn tell(&self, request: Request) -> Result<(), EmulateError> {
        self.requests.send(request).map_err(|_| self.stopped())?;
        // Fails only if the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        Ok(())
    }
}

fn settled((mut report, captures): Reported) -> EmulationReport {
    report.captures_missed += captures.and_then(|c| c.recv_timeout(SETTLE_MAX).ok()).unwrap_or_default();
    report
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.tell(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of one channel.
struct Run {
    channel: Channel,
    clock: Clock,
    /// The clock's zero, for captures.
    wall: SystemTime,
    /// Frame records overwritten before they were read.
    overwritten: u64,
    lateness: Latenesses,
    journal: Journal,
    /// Constant parts of the report.
    facts: EmulationReport,
}

impl Run {
    fn new(setup: &EmulationSetup, config: Config, seed: u64, errors: &[ErrorModel]) -> Result<Run, EmulateError> {
        let traced = setup.pcap.is_some() || setup.journal > 0;
        let inner = Config { trace_frames: if traced { TRACE_FRAMES } else { 0 }, ..config.clone() };
        Ok(Run {
            channel: Channel::with_errors(inner, seed, errors)?,
            clock: Clock::start(),
            wall: SystemTime::now(),
            overwritten: 0,
            lateness: Latenesses::new(),
            journal: Journal::new(setup.journal),
            facts: EmulationReport::new(setup, config, seed),
        })
    }

    /// Sets the channel's time zero to now.
    fn begin(&mut self) {
        (self.clock, self.wall) = (Clock::start(), SystemTime::now());
    }

    /// Returns and clears the number of overwritten frame records.
    fn unseen(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.overwritten, self.channel.trace_overwritten());
        self.overwritten - before
    }

    fn report(&self) -> EmulationReport {
        let mobiles = self.facts.mobiles;
        let lanes = (0..mobiles).flat_map(|mobile| Side::ALL.map(|from| Lane { mobile, from }));
        EmulationReport {
            until: self.clock.now(),
            lanes: lanes.map(|lane| LaneReport { lane, stats: *self.channel.stats(lane) }).collect(),
            collisions: self.channel.collisions(),
            lateness: self.lateness.summary(),
            journal: self.journal.clone(),
            ..self.facts.clone()
        }
    }
}

struct Worker {
    /// The base's device, then the mobiles'.
    devices: Vec<Arc<Tun>>,
    network: Ipv4Net,
    run: Run,
    captures: Option<Captures>,
    incoming: Receiver<Request>,
    wake: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Worker {
    /// Runs until a stop request, or until a device is gone.
    fn work(&mut self) -> Result<(), Failure> {
        raise_priority();
        self.run.begin();
        loop {
            self.deliver();
            self.take()?;
            self.deliver();
            self.record();
            if self.answer().is_break() {
                return Ok(());
            }
            self.sleep();
        }
    }

    /// Reads the stations' packets; bounded, so that a flood cannot delay deliveries.
    fn take(&mut self) -> Result<(), Failure> {
        for index in 0..self.devices.len() {
            for _ in 0..READS_MAX {
                let Some(device) = self.devices.get(index) else { break };
                let read = device.read(&mut self.buffer).map_err(|e| (Station::at(index), e.to_string()))?;
                let Some(n) = read else { break };
                let packet = Bytes::copy_from_slice(self.buffer.get(..n).unwrap_or_default());
                let Some(lane) = self.lane(index, &packet) else {
                    self.run.facts.strays += 1;
                    continue;
                };
                let now = self.run.clock.now();
                self.run.journal.offer(now, lane, packet.len());
                self.run.channel.send_packet(now, lane, packet);
            }
        }
        Ok(())
    }

    /// The direction of a packet from device `index`. The base's packets are assigned by address; a single mobile
    /// gets all, including those for networks behind it.
    fn lane(&self, index: usize, packet: &[u8]) -> Option<Lane> {
        if packet.first()? >> 4 != 4 {
            return None;
        }
        if let Some(mobile) = index.checked_sub(1) {
            return Some(Lane { mobile, from: Side::Mobile });
        }
        let to = u32::from_be_bytes(packet.get(16..20)?.try_into().ok()?);
        let mobiles = self.devices.len().checked_sub(1)?;
        let first = Station::Mobile(0).addr(self.network).to_bits();
        let mobile = match usize::try_from(to.wrapping_sub(first)).ok().filter(|m| *m < mobiles) {
            Some(mobile) => mobile,
            None if mobiles == 1 => 0,
            None => return None,
        };
        Some(Lane { mobile, from: Side::Base })
    }

    /// Writes the packets that have arrived.
    fn deliver(&mut self) {
        loop {
            let now = self.run.clock.now();
            let Some(delivery) = self.run.channel.poll_delivery(now) else { return };
            self.run.lateness.add(now.since(delivery.at));
            let to = arrives_at(&delivery);
            let taken = self.devices.get(to.index()).is_some_and(|d| d.write(&delivery.datagram));
            self.run.facts.refused += u64::from(!taken);
            if let Some(captures) = &mut self.captures {
                captures.add(to, self.run.wall, delivery.at, Moment::Received, delivery.datagram);
            }
        }
    }

    /// Records the fates of frames.
    fn record(&mut self) {
        while let Some(frame) = self.run.channel.poll_trace() {
            if let Some(captures) = &mut self.captures {
                let from = match frame.from {
                    Side::Base => Station::Base,
                    Side::Mobile => Station::Mobile(frame.mobile),
                };
                captures.add(from, self.run.wall, frame.start, Moment::Sent(frame.fate), frame.packet.clone());
            }
            self.run.journal.frame(frame);
        }
        let unseen = self.run.unseen();
        self.run.journal.missed += unseen;
        if let Some(captures) = &mut self.captures {
            captures.miss(unseen);
            captures.pass_on(self.run.wall, self.run.clock.now());
        }
    }

    fn answer(&mut self) -> std::ops::ControlFlow<()> {
        // The value does not matter.
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        while let Ok(request) = self.incoming.try_recv() {
            // The caller may have gone.
            match request {
                Request::Stop => return std::ops::ControlFlow::Break(()),
                Request::Report(reply) => drop(reply.send(self.report())),
                Request::Clock(reply) => drop(reply.send(self.run.clock)),
                Request::Begin(run, reply) => {
                    let report = self.report();
                    self.discard_stale();
                    self.run = *run;
                    self.run.begin();
                    drop(reply.send(report));
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    fn report(&self) -> Reported {
        let missed = self.captures.as_ref().map_or(0, Captures::missed);
        (EmulationReport { captures_missed: missed, ..self.run.report() }, self.captures.as_ref().map(Captures::settle))
    }

    /// Discards packets that were sent into the old channel.
    fn discard_stale(&mut self) {
        for device in &self.devices {
            for _ in 0..STALE_MAX {
                // The next turn detects a missing device.
                if !matches!(device.read(&mut self.buffer), Ok(Some(_))) {
                    break;
                }
            }
        }
    }

    fn sleep(&self) {
        let mut fds: Vec<PollFd<'_>> = self.devices.iter().map(|d| PollFd::new(&**d, PollFlags::IN)).collect();
        fds.push(PollFd::new(&*self.wake, PollFlags::IN));
        let wait = self.run.channel.poll_timeout().map(|due| due.since(self.run.clock.now()));
        let timeout = wait.and_then(|w| Timespec::try_from(w).ok());
        // An interrupted wait means another turn of the loop.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

fn arrives_at(delivery: &Delivery) -> Station {
    match delivery.to {
        Side::Base => Station::Base,
        Side::Mobile => Station::Mobile(delivery.mobile),
    }
}

/// Makes sleeps precise and raises the thread's priority, as far as permitted.
fn raise_priority() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let priority = ThreadPriorityValue::try_from(PRIORITY).map(ThreadPriority::Crossplatform);
    let real_time = priority.is_ok_and(|p| set_thread_priority_and_policy(thread_native_id(), p, policy).is_ok());
    if !real_time {
        let _ = rustix::process::setpriority_process(None, -20);
    }
}
