//! How much of the channel TCP gets, by itself and through the link layer: one stream of the
//! kernel's own, with the congestion control that the emulator sets (CUBIC).

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use remora_channel::Config;
use remora_host::emulate::{Report, Station};
use remora_sim::copy::Direction;

use super::super::cell::Measure;
use super::super::job::Tcp;
use super::bench::{Bench, READY};
use super::tunnel::Tunnel;
use super::{Result, failed_with, floor_seconds};

/// How soon an end notices that its time is over.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of a read or write.
const CHUNK: usize = 16 << 10;

/// Watches a stream for the job's length. See [`Measure::CapacityShare`].
pub(super) fn run(bench: &mut Bench, job: &Tcp, seed: u64) -> Result<(Vec<(Measure, f64)>, Report)> {
    bench.calm(&job.channel)?;
    let (base, mobile) = match job.link {
        true => {
            let tunnel = bench.tunnel(&job.channel)?;
            (tunnel.base(), Tunnel::mobile(0))
        }
        false => {
            bench.tunnel = None;
            (bench.emulator.addr(Station::Base), bench.emulator.addr(Station::Mobile(0)))
        }
    };
    let (from, to, sink) = match job.direction {
        Direction::Read => (Station::Base, Station::Mobile(0), mobile),
        Direction::Write => (Station::Mobile(0), Station::Base, base),
    };
    let (sender, receiver) = connect(bench, from, to, sink.into()).map_err(failed_with("a TCP stream"))?;
    let deadline = bench.begin(job.channel.clone(), seed)? + job.length;
    let arrived = std::thread::scope(|scope| {
        scope.spawn(|| send(&sender, deadline));
        receive(&receiver, deadline)
    });
    let arrived = arrived.map_err(failed_with("a TCP stream"))?;
    let report = bench.report()?;
    bench.must_run()?;
    let share = share(&job.channel, seed, job.direction, arrived, job.length)?;
    // What is still under way must not reach the next run.
    drop((sender, receiver));
    bench.calm(&job.channel)?;
    Ok((vec![(Measure::CapacityShare, share)], report))
}

fn connect(bench: &Bench, from: Station, to: Station, sink: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = bench.emulator.within(to, || TcpListener::bind((sink, 0)))?;
    let at = SocketAddr::new(sink, listener.local_addr()?.port());
    let sender = bench.emulator.within(from, || TcpStream::connect_timeout(&at, READY))?;
    let (receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(TICK))?;
    receiver.set_read_timeout(Some(TICK))?;
    Ok((sender, receiver))
}

/// Whether it only took too long, or was interrupted.
fn is_nothing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn send(mut to: &TcpStream, deadline: Instant) {
    let chunk = [0x5a; CHUNK];
    while Instant::now() < deadline {
        match to.write(&chunk) {
            Err(e) if !is_nothing(&e) => return,
            _ => {}
        }
    }
}

fn receive(mut from: &TcpStream, deadline: Instant) -> io::Result<u64> {
    let mut buffer = [0; CHUNK];
    let mut arrived = 0;
    while Instant::now() < deadline {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(arrived),
            Ok(n) => arrived += n as u64,
            Err(e) if is_nothing(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(arrived)
}

fn share(channel: &Config, seed: u64, direction: Direction, bytes: u64, length: Duration) -> Result<f64> {
    let floor = floor_seconds(channel, seed, direction, bytes)?;
    Ok(floor.unwrap_or_default() / length.as_secs_f64())
}
