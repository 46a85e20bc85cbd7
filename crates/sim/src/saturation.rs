//! The link protocol under saturation: a base station that always has packets for each of its
//! mobiles. Measures the share of the channel that carries packets, its division among mobiles, and
//! the use of the channel's time (NFS/W 95, section 5, and channel-state-dependent scheduling).

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, ConfigError, ErrorModel, ErrorProcess, Fate, FrameRecord, Lane, Side};
use remora_link::Class;
use remora_wire::link::Frame;

use crate::net::Air;

/// Capacity of the channel's trace between two reads.
const TRACE_FRAMES: usize = 1024;

/// A mobile with fewer packets queued at the base station
const BACKLOG_MIN: usize = 10;
/// gets this many more.
const REFILL: usize = 10;

/// A base station and its mobiles.
#[derive(Clone, Debug)]
pub struct SaturationConfig {
    /// The channel, with the errors of those mobiles whose channel is not good.
    pub channel: remora_channel::Config,
    pub link: remora_link::LinkConfig,
    /// Number of mobiles (range: 1 to 64).
    pub destinations: usize,
    /// Mobiles, from the first on, whose channel has no errors.
    pub good: usize,
    pub length: Duration,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Saturation {
    /// Bytes of IP packets delivered, over those at the channel's full rate.
    pub utilisation: f64,
    /// Bytes of IP packets delivered to each mobile.
    pub delivered: Vec<u64>,
    /// The use of the channel's time, where all share one medium.
    pub account: Account,
}

impl Saturation {
    /// A mobile's share of all bytes delivered.
    pub fn share(&self, mobile: usize) -> f64 {
        let all: u64 = self.delivered.iter().sum();
        let own = self.delivered.get(mobile).copied().unwrap_or_default();
        own as f64 / (all as f64).max(1.0)
    }
}

/// Saturates the link in virtual time.
pub fn run(config: &SaturationConfig, seed: u64) -> Result<Saturation, ConfigError> {
    let errors = |m: usize| if m < config.good { ErrorModel::None } else { config.channel.errors.clone() };
    let errors: Vec<ErrorModel> = (0..config.destinations).map(errors).collect();
    let traced = remora_channel::Config { trace_frames: TRACE_FRAMES, ..config.channel.clone() };
    let mut processes = error_processes(&traced, &errors, seed)?;
    let channel = Channel::with_errors(traced, seed, &errors)?;
    let mut air = Air::new(channel, config.channel.mtu, Some(&config.link), seed);
    let packet = Bytes::from(vec![0; air.mtu()]);
    let end = Time::ZERO + config.length;
    let mut delivered = vec![0; config.destinations];
    let mut account = Account::default();
    let mut now = Time::ZERO;
    loop {
        while let Some(frame) = air.poll_frame() {
            account.book(&frame, config.link.overhead, &mut processes);
        }
        while let Some((lane, packet)) = air.poll(now) {
            delivered[lane.mobile] += packet.len() as u64;
        }
        for mobile in short_of_work(&air) {
            for _ in 0..REFILL {
                air.send(now, Lane { mobile, from: Side::Base }, 0, Class::Default, packet.clone());
            }
        }
        match air.poll_timeout() {
            Some(next) if next <= end => now = now.max(next),
            _ => break,
        }
    }
    let bits = delivered.iter().sum::<u64>() as f64 * 8.0;
    let utilisation = bits / (config.channel.rate.bits() as f64 * config.length.as_secs_f64());
    account.pause(end, &mut processes);
    Ok(Saturation { utilisation, delivered, account })
}

/// The error process of each mobile.
fn error_processes(
    channel: &remora_channel::Config,
    errors: &[ErrorModel],
    seed: u64,
) -> Result<Vec<ErrorProcess>, ConfigError> {
    let of = |(m, errors): (usize, &ErrorModel)| {
        let config = remora_channel::Config { errors: errors.clone(), ..channel.clone() };
        ErrorProcess::new(&config, Channel::seed_of(seed, m))
    };
    errors.iter().enumerate().map(of).collect()
}

/// Mobiles with few queued packets. The base station's peers are in order of address, which is the
/// mobiles' order.
fn short_of_work(air: &Air) -> Vec<usize> {
    let peers = air.base().map(|link| link.snapshot().peers).unwrap_or_default();
    peers.iter().enumerate().filter(|(_, p)| p.queue_packets < BACKLOG_MIN).map(|(mobile, _)| mobile).collect()
}

/// Resolution of the search for good channels in a pause.
const PIECE: Duration = Duration::from_millis(1);

/// The channel's time by use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Account {
    /// DATA that arrived, including headers and duplicates.
    pub arrived: Duration,
    /// DATA that was lost.
    pub lost: Duration,
    /// Separate ACK frames.
    pub acks: Duration,
    pub probes: Duration,
    pub answers: Duration,
    /// Pauses while the channels of all mobiles were bad: unusable.
    pub hopeless: Duration,
    /// Pauses while some channel was good.
    pub idle: Duration,
    /// The end of the last frame.
    until: Time,
}

impl Account {
    /// Books a frame and the pause before it. Frames of one medium come in order; each has
    /// `overhead` bytes that are not the link's.
    fn book(&mut self, frame: &FrameRecord, overhead: usize, processes: &mut [ErrorProcess]) {
        self.pause(frame.start, processes);
        self.until = self.until.max(frame.end);
        let payload = frame.packet.slice(..frame.packet.len().saturating_sub(overhead));
        let arrived = frame.fate == Fate::Delivered;
        let entry = match Frame::decode(payload) {
            Ok(Frame::Ack(_)) => &mut self.acks,
            Ok(Frame::Rts(_)) => &mut self.probes,
            Ok(Frame::Cts(_)) => &mut self.answers,
            _ if arrived => &mut self.arrived,
            _ => &mut self.lost,
        };
        *entry += frame.end.since(frame.start);
    }

    /// Books a pause until `end`.
    fn pause(&mut self, end: Time, processes: &mut [ErrorProcess]) {
        while self.until < end {
            let piece = PIECE.min(end.since(self.until));
            let all_bad = processes.iter_mut().all(|process| process.is_bad(self.until + piece / 2));
            *if all_bad { &mut self.hopeless } else { &mut self.idle } += piece;
            self.until += piece;
        }
    }
}
