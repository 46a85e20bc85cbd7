//! The event loop of an end: packets from the device through link core and session into datagrams, and back. One
//! thread does everything; it sleeps in `poll` until an input or the next timer, with nanosecond resolution.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Time};
use remora_link::{ArqMode, Class, HandOffPhase, Link, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use super::control::LinkCommand;
use super::device::{Classifier, Device, DeviceChange, PacketHeaders, addresses};
use super::diagnostics::{
    Drops, LinkNotice, LinkReport, NoticeThrottle, PeerConditions, PeerFigures, PeerReport, Topic, UnreachablePeers,
    canonical, seconds,
};
use super::error::LinkError;
use super::routing_table::RoutingTable;
use super::tunnel::{self, DownReason, LinkPublicKey, TunnelEndpoint, TunnelEvent};
use crate::Clock;
use crate::handoff::{Herald, Signal};

/// Most packets taken from one source before the others.
const BURST: usize = 64;
/// Niceness of the loop: a frame that is sent late wastes time on the hop.
const NICE: i32 = -15;
/// Interval of the updates of the counters.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// A peer in the event loop.
pub(super) struct LinkPeer {
    pub(super) name: String,
    pub(super) key: LinkPublicKey,
    pub(super) address: Option<IpAddr>,
    /// The peer in the link core.
    pub(super) peer: Peer,
}

/// The state of the event loop.
pub(super) struct Worker {
    pub(super) device: Device,
    pub(super) socket: UdpSocket,
    pub(super) wake: Arc<OwnedFd>,
    pub(super) clock: Clock,
    pub(super) tunnel: TunnelEndpoint,
    pub(super) link: Link,
    pub(super) peers: Vec<LinkPeer>,
    /// The owners of addresses; `None` at a mobile, which sends everything to the base.
    pub(super) table: Option<RoutingTable>,
    pub(super) commands: Receiver<LinkCommand>,
    pub(super) notices: SyncSender<LinkNotice>,
    pub(super) report: Arc<Mutex<LinkReport>>,
    /// Notifies programs on this machine, which then hold their timers. Errors are ignored.
    pub(super) herald: Herald,
}

/// Interval of the attempts to restore what the device lacks.
const MEND_EVERY: Duration = Duration::from_secs(1);

/// The loop's state across iterations.
struct Turn {
    buffer: Vec<u8>,
    classifier: Classifier,
    by_peer: BTreeMap<Peer, usize>,
    drops: Drops,
    report_at: Time,
    throttle: NoticeThrottle,
    /// When to retry the restoration of the device.
    mend_at: Option<Time>,
    unreachable: UnreachablePeers,
    port: Option<u16>,
    /// The destination of the latest datagram.
    spoken_to: Option<SocketAddr>,
    /// Whether [`LinkNotice::RoutingLoop`] was sent.
    circle: bool,
    conditions: Vec<PeerConditions>,
}

impl Worker {
    /// Runs until a stop command or the loss of the device.
    pub(super) fn run(mut self) -> Result<(), LinkError> {
        // Precise timers; without them frames are slightly late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // Linux applies this to the thread only.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut turn = Turn {
            buffer: vec![0; tunnel::DATAGRAM_MAX],
            classifier: Classifier::default(),
            by_peer: self.peers.iter().enumerate().map(|(i, e)| (e.peer, i)).collect(),
            drops: Drops::default(),
            report_at: Time::ZERO,
            throttle: NoticeThrottle::default(),
            mend_at: None,
            unreachable: UnreachablePeers::default(),
            port: self.socket.local_addr().ok().map(|a| a.port()),
            spoken_to: None,
            circle: false,
            conditions: vec![PeerConditions::default(); self.peers.len()],
        };
        loop {
            self.take_datagrams(&mut turn);
            if let Err(gone) = self.take_packets(&mut turn) {
                self.leave(&mut turn);
                return Err(gone);
            }
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    LinkCommand::HandOff(signal) => {
                        self.link.announce_handoff(self.clock.now(), phase(signal));
                        self.tell(signal);
                    }
                    LinkCommand::Stop => {
                        self.leave(&mut turn);
                        return Ok(());
                    }
                }
                self.drain(&mut turn);
            }
            let now = self.clock.now();
            self.tunnel.handle_timeout(now);
            self.link.handle_timeout(now);
            self.drain(&mut turn);
            self.publish(&mut turn);
            self.sleep(&mut turn);
        }
    }

    /// Sends a goodbye. Delivers acknowledged packets first, because no peer retransmits them; the device accepts or
    /// rejects them immediately.
    fn leave(mut self, turn: &mut Turn) {
        for peer in &self.peers {
            self.link.remove_peer(self.clock.now(), peer.peer);
        }
        self.drain(turn);
        self.tunnel.leave(self.clock.now());
        self.send(turn);
        self.herald.finish();
    }

    fn take_datagrams(&mut self, turn: &mut Turn) {
        for _ in 0..BURST {
            // An error refers to an earlier datagram and needs no action.
            let Ok((n, from)) = self.socket.recv_from(&mut turn.buffer) else { return };
            let Some(datagram) = turn.buffer.get(..n) else { return };
            self.tunnel.receive(self.clock.now(), from, datagram);
            self.drain(turn);
        }
    }

    fn take_packets(&mut self, turn: &mut Turn) -> Result<(), LinkError> {
        for _ in 0..BURST {
            let n = match self.device.tun().recv(&mut turn.buffer) {
                Ok(n) => n,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(()),
                // The device is down, on some kernels; `mend_device` detects when it is up again.
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return Ok(()),
                Err(e) => return Err(LinkError::DeviceGone(e)),
            };
            let Some(packet) = turn.buffer.get(..n) else { return Ok(()) };
            let Some(headers) = turn.classifier.read(packet) else {
                turn.drops.no_unicast += 1;
                continue;
            };
            if let Some(to) = self.own_datagram(&headers, turn) {
                turn.drops.own += 1;
                if !std::mem::replace(&mut turn.circle, true) {
                    self.notify(LinkNotice::RoutingLoop { to });
                }
                continue;
            }
            let to = match &self.table {
                Some(table) => table.get(headers.destination),
                None => Some(0),
            };
            let Some((index, end)) = to.and_then(|i| Some((i, self.peers.get(i)?))) else {
                turn.drops.no_route += 1;
                continue;
            };
            let now = self.clock.now();
            if self.tunnel.heard(index).is_none() {
                turn.drops.no_session += 1;
                continue;
            }
            let class = Class::from_dscp(headers.dscp);
            let packet = Packet {
                flow: headers.flow,
                class,
                responsive: headers.responsive,
                bytes: Bytes::copy_from_slice(packet),
            };
            self.link.enqueue(now, end.peer, packet);
            self.drain(turn);
        }
        Ok(())
    }

    /// The destination of a packet that is one of this end's own datagrams, routed back into the tunnel. Sent again,
    /// it would loop forever.
    fn own_datagram(&self, headers: &PacketHeaders, turn: &Turn) -> Option<SocketAddr> {
        let (_, to) = headers.udp.filter(|(from, _)| Some(*from) == turn.port)?;
        let to = SocketAddr::new(headers.destination, to);
        let mut known = (0..self.peers.len()).filter_map(|i| self.tunnel.address(i)).chain(turn.spoken_to);
        known.any(|a| (a.ip().to_canonical(), a.port()) == (to.ip(), to.port())).then_some(to)
    }

    /// Drains transmits and events of both state machines.
    fn drain(&mut self, turn: &mut Turn) {
        loop {
            let now = self.clock.now();
            let mut busy = false;
            while let Some(event) = self.tunnel.poll_event() {
                busy = true;
                self.on_tunnel(now, event, turn);
            }
            while let Some(t) = self.link.poll_transmit(now) {
                busy = true;
                if let Some(&index) = turn.by_peer.get(&t.to) {
                    // Without a session it is lost like any frame; the peer is removed anyway.
                    self.tunnel.send(now, index, &t.payload);
                }
            }
            while let Some(event) = self.link.poll_event() {
                busy = true;
                self.on_link(event, turn);
            }
            self.send(turn);
            if !busy {
                return;
            }
        }
    }

    fn on_tunnel(&mut self, now: Time, event: TunnelEvent, turn: &mut Turn) {
        let end = |peer: usize| self.peers.get(peer).map(|e| (e.name.clone(), e.peer));
        match event {
            TunnelEvent::Up { peer } => {
                let Some((name, in_link)) = end(peer) else { return };
                self.link.add_peer(now, in_link);
                self.notify(LinkNotice::Up { name, address: self.tunnel.address(peer) });
            }
            TunnelEvent::Down { peer, why } => {
                let Some((name, in_link)) = end(peer) else { return };
                self.link.remove_peer(now, in_link);
                if let Some(conditions) = turn.conditions.get_mut(peer) {
                    conditions.channel = Default::default();
                }
                self.notify(match why {
                    DownReason::Left => LinkNotice::Left { name },
                    DownReason::Silent => LinkNotice::Gone { name },
                });
            }
            TunnelEvent::Moved { peer, to } => {
                let Some((name, in_link)) = end(peer) else { return };
                let other = turn.conditions.get_mut(peer).and_then(|c| c.duplicate_key.moved(now, to));
                if let Some(other) = other
                    && turn.throttle.admits(now, Topic::DuplicateKey(in_link))
                {
                    self.notify(LinkNotice::DuplicateKey { name: name.clone(), addresses: [other, to] });
                }
                self.notify(LinkNotice::Moved { name, to });
            }
            TunnelEvent::Frame { peer, frame } => {
                if let Some((_, in_link)) = end(peer) {
                    self.link.handle_input(now, in_link, frame);
                }
            }
            TunnelEvent::NoAnswer { was_up } => {
                if let Some(base) = self.tunnel.address(0) {
                    self.notify(LinkNotice::NoAnswer { base, was_up });
                }
            }
            TunnelEvent::OtherSecret => {
                if let Some(base) = self.tunnel.address(0) {
                    self.notify(LinkNotice::OtherSecret { base });
                }
            }
            TunnelEvent::Stranger { key, from } => {
                if turn.throttle.admits(now, Topic::Stranger(key)) {
                    self.notify(LinkNotice::Stranger { key, from });
                }
            }
            TunnelEvent::OtherBase { from } => {
                if turn.throttle.admits(now, Topic::OtherBase) {
                    self.notify(LinkNotice::OtherBase { from });
                }
            }
            TunnelEvent::Renewed { .. } => {}
            TunnelEvent::Restarted { peer } => {
                let Some((name, in_link)) = end(peer) else { return };
                self.link.restarted(now, in_link);
                self.notify(LinkNotice::Up { name, address: self.tunnel.address(peer) });
            }
        }
    }

    fn on_link(&mut self, event: remora_link::LinkEvent, turn: &mut Turn) {
        let index = |peer| turn.by_peer.get(&peer).copied();
        let name = |peer| index(peer).and_then(|i| Some(self.peers.get(i)?.name.clone())).unwrap_or_default();
        match event {
            remora_link::LinkEvent::Deliver { from, packet } => {
                let Some(index) = index(from) else { return };
                self.deliver(index, &packet, turn);
            }
            remora_link::LinkEvent::State { peer, state } => {
                if let Some(conditions) = index(peer).and_then(|i| turn.conditions.get_mut(i)) {
                    conditions.channel.changed(self.clock.now(), state.into());
                }
            }
            remora_link::LinkEvent::HandOff { peer, phase } => {
                let (signal, expected) = match phase {
                    HandOffPhase::Begin { expected } => (Signal::Begin(expected), Some(expected)),
                    HandOffPhase::End => (Signal::End, None),
                };
                // At a base with several mobiles most programs use other mobiles.
                if self.peers.len() == 1 {
                    self.tell(signal);
                }
                self.notify(LinkNotice::HandOff { name: name(peer), expected });
            }
            // Only counted.
            remora_link::LinkEvent::GaveUp { .. } => {}
        }
    }

    /// Notifies this machine's programs of a handoff. The link retransmits losses during it, so they need not.
    fn tell(&self, signal: Signal) {
        let keeps = self.link.config().mode == ArqMode::Arq;
        self.herald.tell(match signal {
            Signal::Begin(expected) if keeps => Signal::Kept(expected),
            signal => signal,
        });
    }

    /// A mobile may only send from its own addresses.
    fn deliver(&self, from: usize, packet: &[u8], turn: &mut Turn) {
        let Some((source, _)) = addresses(packet) else {
            turn.drops.no_unicast += 1;
            return;
        };
        if self.table.as_ref().is_some_and(|t| t.get(source) != Some(from)) {
            turn.drops.not_theirs += 1;
            self.tell_of_source(from, source, turn);
        } else if self.device.tun().send(packet).is_err() {
            turn.drops.undelivered += 1;
        }
    }

    /// The mobile is up and good, so no other notice explains the lost packets.
    fn tell_of_source(&self, from: usize, source: IpAddr, turn: &mut Turn) {
        if let Some(peer) = self.peers.get(from)
            && turn.throttle.admits(self.clock.now(), Topic::ForeignSource(peer.peer))
        {
            self.notify(LinkNotice::ForeignSource { name: peer.name.clone(), address: peer.address, source });
        }
    }

    fn send(&mut self, turn: &mut Turn) {
        while let Some(o) = self.tunnel.poll_outgoing() {
            turn.spoken_to = Some(o.to);
            match self.socket.send_to(&o.bytes, o.to) {
                Ok(_) => {
                    let is_peer = |at: &SocketAddr| (0..self.peers.len()).any(|i| self.tunnel.address(i) == Some(*at));
                    if turn.unreachable.left(o.to, is_peer) {
                        self.notify(LinkNotice::Network);
                    }
                }
                Err(e) => {
                    // A loss that the link protocol repairs. Without a network (a mobile that roams) the link keeps
                    // trying.
                    turn.drops.unsent += 1;
                    if e.kind() != io::ErrorKind::WouldBlock && turn.unreachable.failed(o.to) {
                        self.notify(LinkNotice::NoNetwork { why: e.to_string() });
                    }
                }
            }
        }
    }

    /// A slow reader misses notices.
    fn notify(&self, notice: LinkNotice) {
        debug!(%notice, "link");
        let _ = self.notices.try_send(notice);
    }

    fn publish(&self, turn: &mut Turn) {
        let now = self.clock.now();
        if now < turn.report_at {
            return;
        }
        turn.report_at = now + REPORT_EVERY;
        turn.drops.count(self.tunnel.counters());
        let snapshot = self.link.snapshot();
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.seconds = seconds(now.since(Time::ZERO));
        report.rate_bits = snapshot.rate.map(|r| r.bits());
        report.drops = turn.drops;
        report.peers.clear();
        for (i, end) in self.peers.iter().enumerate() {
            let view = snapshot.peers.iter().find(|v| v.peer == end.peer);
            if let Some(conditions) = turn.conditions.get_mut(i) {
                let config = self.link.config();
                let advice = view.and_then(|v| conditions.advice.notice(now, &end.name, v, config, &mut turn.throttle));
                let channel = conditions.channel.news(now);
                let channel = channel.map(|state| LinkNotice::Channel { name: end.name.clone(), state });
                advice.into_iter().chain(channel).for_each(|notice| self.notify(notice));
            }
            let heard = self.tunnel.heard(i);
            report.peers.push(PeerReport {
                name: end.name.clone(),
                key: end.key.to_string(),
                address: end.address,
                endpoint: self.tunnel.address(i).map(canonical),
                up: heard.is_some(),
                state: view.map(|v| v.state.into()),
                heard_seconds: heard.map(|t| seconds(now.since(t))),
                figures: view.map(|v| PeerFigures::new(v, snapshot.rate)).unwrap_or_default(),
            });
        }
    }

    /// Restores the device's routes after it was down.
    fn mend_device(&mut self, turn: &mut Turn) {
        let (changes, was_told) = (self.device.changes(), turn.mend_at.take().is_some());
        if changes.contains(&DeviceChange::Down) {
            self.notify(LinkNotice::DeviceDown);
        }
        let lacks = match changes.last() {
            Some(DeviceChange::Down) => false,
            Some(DeviceChange::Up | DeviceChange::Perhaps) => true,
            None => was_told,
        };
        if !lacks {
            return;
        }
        let is_news = changes.contains(&DeviceChange::Up);
        match self.device.restore() {
            Ok(lacked) if lacked || is_news || was_told => self.notify(LinkNotice::DeviceUp { failed: None }),
            Ok(_) => {}
            Err(why) => {
                turn.mend_at = Some(self.clock.now() + MEND_EVERY);
                // If the device was set down again meanwhile, the next iteration reports it.
                if (is_news || !was_told) && !self.device.is_down() {
                    self.notify(LinkNotice::DeviceUp { failed: Some(why) });
                }
            }
        }
    }

    fn sleep(&mut self, turn: &mut Turn) {
        let due = [self.tunnel.poll_timeout(), self.link.poll_timeout(), Some(turn.report_at), turn.mend_at];
        let due = due.into_iter().flatten().min().unwrap_or(turn.report_at);
        let wait = due.since(self.clock.now()).min(REPORT_EVERY);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut fds = [
            PollFd::new(self.device.tun(), PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(self.device.link_monitor(), PollFlags::IN),
        ];
        // An interrupted or failed wait starts another iteration.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[2].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
        if !fds[3].revents().is_empty() || turn.mend_at.is_some_and(|at| at <= self.clock.now()) {
            self.mend_device(turn);
        }
    }
}

fn phase(signal: Signal) -> HandOffPhase {
    match signal {
        Signal::Begin(expected) | Signal::Kept(expected) => HandOffPhase::Begin { expected },
        Signal::End => HandOffPhase::End,
    }
}

/// The identifier of a mobile's base, or of an address of the base, in the link core.
pub(super) fn peer_at(ip: IpAddr) -> Peer {
    Peer::datagram(SocketAddr::new(ip, 0))
}
