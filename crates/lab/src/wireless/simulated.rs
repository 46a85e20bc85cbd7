//! The jobs in virtual time.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{Config, ErrorModel};
use remora_client::BlockSize;
use remora_sim::PacketKind;
use remora_sim::copy::small::{self, SmallConfig};
use remora_sim::copy::{self, CopyConfig, CopyResult, Direction, Manner, MobileCopy};
use remora_sim::saturation::{self, SaturationConfig};
use remora_sim::testbed;

use super::cell::{Measure, Packet, RunError, Runner, Sample};
use super::cell_load::CellLoad;
use super::job::{Copy, Job, Saturation, SmallOperations, System, Testbed};
use crate::report::provenance::Source;
use crate::report::statistics::{percentile, sorted};

/// Runs the protocol cores in virtual time: a minute takes milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Runner for Simulator {
    fn source(&self) -> Source {
        Source::Simulated
    }

    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample, RunError> {
        match job {
            Job::Testbed(job) => on_testbed(job, seed, limit),
            Job::Copy(job) => copy(job, seed, limit),
            Job::SmallOperations(job) => small_operations(job, seed, limit),
            Job::Saturation(job) => saturation(job, seed),
            Job::Tcp(_) => Err(RunError::Unsupported),
        }
    }
}

fn make(config: &CopyConfig, seed: u64) -> Result<CopyResult, RunError> {
    copy::run(config, seed).map_err(|e| RunError::Failed(e.to_string()))
}

/// Seconds of a copy; infinite if it was cut off.
fn seconds(copy: &MobileCopy) -> f64 {
    copy.seconds.unwrap_or(f64::INFINITY)
}

fn on_testbed(job: &Testbed, seed: u64, limit: Duration) -> Result<Sample, RunError> {
    let mut config = testbed::copy_config(job.treatment, job.direction, job.bad_mean, job.block, job.mobiles);
    config.channel.errors = config.channel.errors.distributed(job.distribution);
    if let (Some(receiver), Some(frames)) = (&mut config.channel.receiver, job.receive_frames) {
        receiver.frames = frames;
    }
    config.progress = job.packets;
    config.limit = limit;
    let result = make(&config, seed)?;
    // NFS/W 95 reports the same mobile.
    let copy = result.first();
    let packets: Vec<Packet> = copy.packets.iter().filter_map(packet).collect();
    let mut values = vec![(Measure::Seconds, seconds(copy))];
    values.extend(cell_load(&config, &result).values());
    values.extend(of_buffers(copy));
    values.extend(longest_pause(&packets).map(|pause| (Measure::Pause, pause)));
    // Without a floor: the testbed's hosts are slower than its channel.
    Ok(Sample { values, packets, ..Sample::default() })
}

fn cell_load(config: &CopyConfig, result: &CopyResult) -> CellLoad {
    let airtime = |copy: &MobileCopy| copy.frames.base.airtime + copy.frames.mobile.airtime;
    CellLoad {
        seconds: result.copies.iter().map(seconds).collect(),
        bytes: config.bytes,
        rate: config.channel.rate,
        airtime: result.copies.iter().map(airtime).sum(),
        limit: config.limit,
    }
}

/// Retransmissions, and what may have caused them without errors.
fn of_buffers(copy: &MobileCopy) -> [(Measure, f64); 2] {
    let (base, mobile) = (&copy.frames.base, &copy.frames.mobile);
    let full = base.frames_receiver_full + base.frames_queue_full + mobile.frames_queue_full;
    [(Measure::Retransmissions, copy.client.retransmissions as f64), (Measure::Overflows, full as f64)]
}

/// Longest time between two messages of a client, in seconds.
fn longest_pause(packets: &[Packet]) -> Option<f64> {
    packets.iter().zip(packets.iter().skip(1)).map(|(one, next)| next.seconds - one.seconds).reduce(f64::max)
}

fn packet(packet: &remora_sim::Packet) -> Option<Packet> {
    let again = match packet.kind {
        PacketKind::Call => false,
        PacketKind::Retransmission => true,
        PacketKind::Probe | PacketKind::Reply => return None,
    };
    Some(Packet { seconds: packet.at.as_secs_f64(), number: packet.number, again })
}

fn config(
    system: System,
    channel: &Config,
    direction: Direction,
    bytes: u64,
    limit: Duration,
) -> Result<CopyConfig, RunError> {
    let client = system.client().ok_or(RunError::Unsupported)?;
    let config = CopyConfig {
        channel: channel.clone(),
        manner: Manner::Command,
        bytes,
        limit,
        ..CopyConfig::new(client, direction)
    };
    Ok(if system.has_link() { config.with_link() } else { config })
}

fn copy(job: &Copy, seed: u64, limit: Duration) -> Result<Sample, RunError> {
    let mut config = config(job.system, &job.channel, job.direction, job.bytes, limit)?;
    config.mobiles = job.mobiles;
    if let Some(block) = job.block {
        config.client.block = BlockSize::Fixed(block);
    }
    config.handoffs = job
        .hand_offs
        .iter()
        .map(|h| remora_sim::copy::HandOff { at: h.at, length: h.length, signalled: h.announced })
        .collect();
    let result = make(&config, seed)?;
    let copy = result.first();
    let mut values = vec![(Measure::Seconds, seconds(copy))];
    values.extend(cell_load(&config, &result).values());
    let outages = job.channel.outages.iter().map(|o| o.start + o.length);
    let ends = outages.chain(job.hand_offs.iter().map(|h| h.at + h.length));
    if let Some(longest) = ends.filter_map(|end| resumed(copy, end)).reduce(f64::max) {
        values.push((Measure::Resume, longest));
    }
    // The floor assumes one mobile alone on the medium.
    let floor_seconds = copy.floor_seconds.filter(|_| job.mobiles == 1);
    Ok(Sample { values, floor_seconds, ..Sample::default() })
}

/// Time from `end` until bytes flowed; infinite if they never did, `None` if the copy was complete.
fn resumed(copy: &MobileCopy, end: Time) -> Option<f64> {
    match copy.first_bytes_after(end) {
        Some(wait) => Some(wait.as_secs_f64()),
        None if copy.seconds.is_some() => None,
        None => Some(f64::INFINITY),
    }
}

fn small_operations(job: &SmallOperations, seed: u64, limit: Duration) -> Result<Sample, RunError> {
    let bulk = config(job.system, &job.channel, Direction::Write, job.bytes, limit)?;
    let config = SmallConfig { own_client: job.second_client, ..SmallConfig::under(bulk) };
    let result = small::run(&config, seed).map_err(|e| RunError::Failed(e.to_string()))?;
    let latency = |l: &Option<Duration>| l.map_or(f64::INFINITY, |l| l.as_secs_f64());
    Ok(Sample { values: of_latencies(&result.latencies.iter().map(latency).collect::<Vec<_>>()), ..Sample::default() })
}

/// Measures of latencies in seconds; infinite for operations that did not end.
pub(super) fn of_latencies(latencies: &[f64]) -> Vec<(Measure, f64)> {
    let latencies = sorted(latencies);
    let at = |percent| percentile(&latencies, percent);
    let values = [(Measure::LatencyMedian, at(50)), (Measure::Latency95, at(95)), (Measure::LatencyMax, at(100))];
    values.into_iter().filter_map(|(m, v)| Some((m, v?))).collect()
}

fn saturation(job: &Saturation, seed: u64) -> Result<Sample, RunError> {
    let run = |errors: ErrorModel, good: usize| {
        let channel = Config { errors, ..job.channel.clone() };
        let (link, destinations, length) = (copy::link_on(&channel), job.destinations, job.length);
        let config = SaturationConfig { channel, link, destinations, good, length };
        saturation::run(&config, seed).map_err(|e| RunError::Failed(e.to_string()))
    };
    if !job.one_good {
        let result = run(job.channel.errors.clone(), 0)?;
        return Ok(Sample { values: vec![(Measure::Utilisation, result.utilisation)], ..Sample::default() });
    }
    let result = run(job.channel.errors.clone(), 1)?;
    // The fair share is an equal part of the throughput without errors.
    let fair = run(ErrorModel::None, 0)?.delivered.iter().sum::<u64>() as f64 / job.destinations.max(1) as f64;
    let good = result.delivered.first().copied().unwrap_or_default() as f64;
    let values = vec![(Measure::Utilisation, result.utilisation), (Measure::GoodShare, good / fair.max(1.0))];
    Ok(Sample { values, ..Sample::default() })
}
