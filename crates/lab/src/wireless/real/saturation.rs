//! The link layer with more to send than the channel carries: `remora link` at the base and on
//! each of its mobiles, and datagrams for all of them faster than any gets its share.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use remora_channel::{Config, ErrorModel};
use remora_host::emulate::{Report, Station};
use remora_sim::copy::link_on;

use super::super::cell::Measure;
use super::super::job::Saturation;
use super::bench::Bench;
use super::tunnel::Tunnel;
use super::{Result, failed, failed_with};

/// How soon a receiver notices that its time is over.
const TICK: Duration = Duration::from_millis(50);
/// IPv4's and UDP's headers.
const HEADERS: usize = 28;
/// Each mobile is offered the channel's rate over this: with the papers' eight, four times as much as there is.
const OFFERED: f64 = 2.0;
/// For how long it is watched what a fair share is.
const REFERENCE: Duration = Duration::from_secs(10);

/// Saturates the link for the job's length. A fair share is an eighth (with eight mobiles) of what the same link
/// delivered just before without errors.
pub(super) fn run(bench: &mut Bench, job: &Saturation, seed: u64) -> Result<(Vec<(Measure, f64)>, Report)> {
    bench.calm(&job.channel)?;
    bench.tunnel(&job.channel)?;
    let ends = Ends::open(bench, job).map_err(failed_with("datagrams"))?;
    let fair = match job.one_good {
        false => None,
        true => {
            let (delivered, report) = flood(bench, &ends, job, seed, REFERENCE, |_| ErrorModel::None)?;
            if !report.valid() {
                return Ok((Vec::new(), report));
            }
            let rate = delivered.iter().sum::<u64>() as f64 / REFERENCE.as_secs_f64();
            Some(rate * job.length.as_secs_f64() / job.destinations as f64)
        }
    };
    let errors = |mobile| match job.one_good && mobile == 0 {
        true => ErrorModel::None,
        false => job.channel.errors.clone(),
    };
    let (delivered, report) = flood(bench, &ends, job, seed, job.length, errors)?;
    // What waits in it must not reach the next run.
    bench.tunnel = None;
    let bits = delivered.iter().sum::<u64>() as f64 * 8.0;
    let mut values = vec![(Measure::Utilisation, bits / (job.channel.rate.bits() as f64 * job.length.as_secs_f64()))];
    let good = delivered.first().copied().unwrap_or_default() as f64;
    values.extend(fair.map(|fair| (Measure::GoodShare, good / fair.max(1.0))));
    Ok((values, report))
}

/// The sockets at both ends of the tunnel.
struct Ends {
    source: UdpSocket,
    sinks: Vec<UdpSocket>,
    /// Where the sinks are.
    addresses: Vec<SocketAddr>,
    /// As long as the tunnel takes them: the simulator's packets are, too.
    payload: Vec<u8>,
}

impl Ends {
    fn open(bench: &Bench, job: &Saturation) -> io::Result<Ends> {
        let bind = |at: Station, address: IpAddr| bench.emulator.within(at, || UdpSocket::bind((address, 0)));
        let source = bind(Station::Base, Tunnel::BASE.into())?;
        let sink = |mobile| {
            let sink = bind(Station::Mobile(mobile), Tunnel::mobile(mobile).into())?;
            sink.set_read_timeout(Some(TICK))?;
            Ok(sink)
        };
        let sinks = (0..job.destinations).map(sink).collect::<io::Result<Vec<_>>>()?;
        let addresses = sinks.iter().map(UdpSocket::local_addr).collect::<io::Result<Vec<_>>>()?;
        let payload = vec![0x5a; link_on(&job.channel).packet_max().saturating_sub(HEADERS)];
        Ok(Ends { source, sinks, addresses, payload })
    }

    /// Offers each sink a packet every `gap` until the deadline.
    fn offer(&self, gap: Duration, deadline: Instant) -> io::Result<()> {
        let mut due = Instant::now();
        while due < deadline {
            for address in &self.addresses {
                self.source.send_to(&self.payload, address)?;
            }
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Bytes of IP packets that reached each mobile, and the emulator's word.
fn flood(
    bench: &mut Bench,
    ends: &Ends,
    job: &Saturation,
    seed: u64,
    length: Duration,
    errors: impl Fn(usize) -> ErrorModel,
) -> Result<(Vec<u64>, Report)> {
    let channel: Config = job.channel.clone();
    let packet_bits = ((ends.payload.len() + HEADERS) * 8) as f64;
    let gap = Duration::from_secs_f64(packet_bits * OFFERED / channel.rate.bits() as f64);
    let deadline = bench.begin_each(channel, seed, errors)? + length;
    let delivered = thread::scope(|scope| {
        let sinks: Vec<_> = ends.sinks.iter().map(|sink| scope.spawn(move || receive(sink, deadline))).collect();
        ends.offer(gap, deadline)?;
        let joined = sinks.into_iter().map(|sink| sink.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<io::Result<Vec<u64>>>()
    });
    let delivered = delivered.map_err(failed_with("datagrams"))?;
    bench.must_run()?;
    if delivered.iter().all(|bytes| *bytes == 0) {
        return Err(failed("nothing came through the link".into()));
    }
    Ok((delivered, bench.report()?))
}

fn receive(sink: &UdpSocket, deadline: Instant) -> io::Result<u64> {
    let mut buffer = [0; 1 << 16];
    let mut arrived = 0;
    while Instant::now() < deadline {
        match sink.recv(&mut buffer) {
            Ok(bytes) => arrived += (bytes + HEADERS) as u64,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(arrived)
}
