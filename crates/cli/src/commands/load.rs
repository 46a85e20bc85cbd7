//! `remora load`: sends background load and counts what arrives.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use remora_base::Rate;
use remora_host::json::as_digits;
use remora_host::load;
use remora_host::load::{Carried, Law, Plan, Run, Runs, Sent};
use serde::Serialize;

use crate::config::{address, units};
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

const LOAD_SEND: &str = "\
Examples:
  remora load send 5001 --rate 6Mbit
  remora load send 127.0.0.1:5001 --rate '60% of 10Mbit' --poisson --for 1m";

const LOAD_RECV: &str = "\
Examples:
  remora load recv
  remora load recv --listen 10.77.0.1:5001 --for 1m --json";

pub(crate) const HELP: &str = "\
The sender sends UDP packets at a constant rate, the receiver counts them; at
the end the sender asks the receiver for its counts. The rate includes IP and
UDP headers. The load does not react to congestion: by default it may only go to
loopback.

Examples:
  remora load recv --listen 127.0.0.1:5001
  remora load send 127.0.0.1:5001 --rate 6Mbit
  remora load send 127.0.0.1:5001 --rate '60% of 10Mbit' --poisson --for 1m \\
      --json
  remora load recv --listen 10.77.0.1:5001 --for 1m --json

send --json prints one object: run, to, law, packet_bytes, seconds, offered,
sent, refused, skipped (packets), offered_bits_per_s, sent_bits_per_s,
late_ms_max, carried (null: no answer): packets, lost, duplicates, reordered,
bits_per_s, jitter_ms. recv --json prints one object for each run when it ends
or recv stops: run, from, ended, packets, bytes, lost, duplicates, reordered,
jitter_ms, seconds. send exits with code 3 if the receiver does not answer or
its name has no address. docs/reference/load.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Load {
    #[command(subcommand)]
    pub(crate) end: End,
}

#[derive(Subcommand, Debug)]
pub(crate) enum End {
    /// Send packets and report how many arrived
    #[command(after_help = LOAD_SEND)]
    Send(Send),
    /// Count arriving packets
    #[command(after_help = LOAD_RECV)]
    Recv(Recv),
}

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// Address of the receiver
    #[arg(value_name = "[HOST:]PORT")]
    pub(crate) to: String,
    /// Rate, such as 6Mbit, 750kB/s or '60% of 10Mbit'
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: LoadRate,
    /// Payload of a packet in bytes
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub(crate) size: usize,
    /// Exponential instead of equal intervals between packets
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Duration, at most a day
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub(crate) length: Duration,
    /// Number of the run, also its seed [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) run: Option<u64>,
    /// Allow addresses beyond loopback. The load does not react to congestion: use it only on a network
    /// of your own
    #[arg(long)]
    pub(crate) beyond_loopback: bool,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Recv {
    /// Address to listen on; port 0 means a free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:5001", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// Duration [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Print a JSON object with the address, then one for each run
    #[arg(long)]
    pub(crate) json: bool,
}

/// A rate, or a share of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoadRate(pub(crate) Rate);

impl FromStr for LoadRate {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadRate, String> {
        if let Some((share, whole)) = text.split_once("% of ") {
            let whole: Rate = whole.parse()?;
            let share: f64 = share.trim().parse().map_err(|_| format!("'{share}' is not a percentage"))?;
            if !(share > 0.0 && share <= 200.0) {
                return Err(format!("{share} % is out of range: more than 0 and at most 200"));
            }
            return of(whole.bits() as f64 * share / 100.0, text);
        }
        match bytes_per_s(text) {
            Some(bytes) => of(bytes * 8.0, text),
            None => {
                let rate = text.parse().map_err(|_| {
                    format!("'{text}' is not a rate: expected one as in 6Mbit, 750kB/s or '60% of 10Mbit'")
                })?;
                Ok(LoadRate(rate))
            }
        }
    }
}

/// Parses a rate in bytes, as in `750kB/s`, and returns bytes per second.
fn bytes_per_s(text: &str) -> Option<f64> {
    let number = text.strip_suffix("B/s")?;
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((number.strip_suffix(unit)?, factor)))?;
    Some(number.trim().parse::<f64>().ok()? * factor)
}

fn of(bits: f64, text: &str) -> Result<LoadRate, String> {
    let bits = (1.0..=1e15).contains(&bits).then(|| bits.round() as u64);
    bits.and_then(Rate::from_bits).map(LoadRate).ok_or_else(|| format!("'{text}' is out of range"))
}

pub(crate) async fn run(args: Load) -> Result {
    match args.end {
        End::Send(args) => send(args).await,
        End::Recv(args) => recv(args).await,
    }
}

async fn send(args: Send) -> Result {
    let stop_signal = interrupt::catch();
    let wrong = || format!("{} is not HOST:PORT of a receiver", args.to);
    let to = tokio::task::block_in_place(|| address::resolve(&args.to, wrong))?;
    let ip = to.ip();
    let group = ip.is_multicast() || ip.is_unspecified() || matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    if group {
        return Err(Error::Usage(format!("{to} is not the address of a single host")));
    }
    if !ip.to_canonical().is_loopback() && !args.beyond_loopback {
        return Err(Error::Usage(format!(
            "{to} is not this machine's loopback, and a load gives way to nobody: --beyond-loopback says that the \
             network there is yours to fill"
        )));
    }
    let law = if args.poisson { Law::Poisson } else { Law::Even };
    let run = args.run.map_or_else(random, Ok)?;
    let plan = Plan::new(ip, args.rate.0, args.size, law, args.length, run).map_err(|e| Error::Usage(e.to_string()))?;
    let socket = load::connect(to).map_err(Error::local(to))?;
    let (sent, signal) = until(stop_signal, move |stop| load::send(&socket, &plan, stop)).await?;
    let sent = sent.map_err(Error::local(to))?;
    if args.json {
        stdio::print_json(&SentObject::new(&sent, to, law, run))?;
    } else {
        stdio::print(&sent_text(&sent))?;
    }
    match (signal, sent.carried) {
        (Some(number), _) => Err(Error::Interrupted(number)),
        (None, Some(_)) => Ok(()),
        (None, None) => {
            stdio::eprint(format_args!("remora: load: no answer from {to}; run remora load recv there"));
            Err(Error::Reported(3))
        }
    }
}

async fn recv(args: Recv) -> Result {
    let stop_signal = interrupt::catch();
    let socket = load::listen(args.listen).map_err(Error::local(args.listen))?;
    let at = socket.local_addr().map_err(Error::local(args.listen))?;
    if args.json {
        stdio::print_json(&Listening { listen: at })?;
    } else {
        stdio::print(&format!("counting at {at}\n"))?;
    }
    let over = async {
        match args.length {
            Some(length) => {
                tokio::select! {
                    number = stop_signal => Some(number),
                    () = tokio::time::sleep(length) => None,
                }
            }
            None => Some(stop_signal.await),
        }
    };
    let runs = Arc::new(Runs::default());
    let (counted, json) = (runs.clone(), args.json);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let counting = tokio::task::spawn_blocking(move || {
        let mut shown = Ok(());
        let told = stopped.clone();
        let received = load::receive(&socket, &counted, &stopped, |run| {
            if let Err(e) = show(&run, json) {
                shown = Err(e);
                told.store(true, Ordering::Release);
            }
        });
        received.map_err(Error::local(at)).and(shown)
    });
    tokio::pin!(counting);
    let number = tokio::select! {
        ended = &mut counting => return ended.map_err(|e| Error::refused("the receiver", e.to_string()))?,
        number = over => number,
    };
    stop.store(true, Ordering::Release);
    counting.await.map_err(|e| Error::refused("the receiver", e.to_string()))??;
    runs.all().iter().filter(|run| !run.ended).try_for_each(|run| show(run, args.json))?;
    if runs.strays() > 0 {
        stdio::eprint(format_args!("{} packets did not belong to a load", runs.strays()));
    }
    number.map_or(Ok(()), |number| Err(Error::Interrupted(number)))
}

/// Does `work` on a thread until it ends, or soon after the signal; its result, and the signal.
async fn until<T: std::marker::Send + 'static>(
    signal: impl Future<Output = u8>,
    work: impl FnOnce(&AtomicBool) -> T + std::marker::Send + 'static,
) -> Result<(T, Option<u8>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let mut work = tokio::task::spawn_blocking(move || work(&stopped));
    let failed = |e: tokio::task::JoinError| Error::refused("the load", e.to_string());
    tokio::select! {
        done = &mut work => Ok((done.map_err(failed)?, None)),
        number = signal => {
            stop.store(true, Ordering::Release);
            // No handler is left for a second signal; the run ends soon.
            Ok((work.await.map_err(failed)?, Some(number)))
        }
    }
}

fn random() -> Result<u64> {
    // JSON readers keep 53 bits of a number.
    getrandom::u64().map(|bits| bits >> 11).map_err(|e| Error::refused("randomness", e.to_string()))
}

fn show(run: &Run, json: bool) -> Result {
    if json { stdio::print_json(&RunObject::new(run)) } else { stdio::print(&run_text(run)) }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn mbit(bits_per_s: f64) -> String {
    format!("{:.3} Mbit/s", bits_per_s / 1e6)
}

fn sent_text(sent: &Sent) -> String {
    let mut text = format!("offered  {:>9} packets  {}\n", sent.offered, mbit(sent.offered_bits_per_s()));
    text += &format!(
        "sent     {:>9} packets  {}  ({} refused by the system, {} too late to send; {:.1} ms late at most)\n",
        sent.sent,
        mbit(sent.sent_bits_per_s()),
        sent.refused,
        sent.skipped,
        ms(sent.late_max),
    );
    if let (Some(c), Some(rate)) = (sent.carried, sent.carried_bits_per_s()) {
        text += &format!("carried  {:>9} packets  {}  ({})\n", c.packets, mbit(rate), troubles(&c));
    }
    text
}

fn troubles(c: &Carried) -> String {
    let Carried { lost, duplicates, reordered, jitter, .. } = c;
    format!("{lost} lost, {duplicates} twice, {reordered} out of order; jitter {:.3} ms", ms(*jitter))
}

fn run_text(run: &Run) -> String {
    let how = if run.ended { "" } else { ", not ended" };
    let c = &run.carried;
    format!("run {} from {}{how}: {} packets, {} bytes, {}\n", run.run, run.from, c.packets, c.bytes, troubles(c))
}

#[derive(Serialize)]
struct Listening {
    listen: SocketAddr,
}

#[derive(Serialize)]
struct SentObject {
    #[serde(serialize_with = "as_digits")]
    run: u64,
    to: SocketAddr,
    law: &'static str,
    packet_bytes: u64,
    seconds: f64,
    offered: u64,
    sent: u64,
    refused: u64,
    skipped: u64,
    offered_bits_per_s: f64,
    sent_bits_per_s: f64,
    late_ms_max: f64,
    carried: Option<CarriedObject>,
}

#[derive(Serialize)]
struct CarriedObject {
    packets: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    bits_per_s: f64,
    jitter_ms: f64,
}

impl SentObject {
    fn new(sent: &Sent, to: SocketAddr, law: Law, run: u64) -> SentObject {
        let carried = sent.carried.zip(sent.carried_bits_per_s()).map(|(c, bits_per_s)| CarriedObject {
            packets: c.packets,
            lost: c.lost,
            duplicates: c.duplicates,
            reordered: c.reordered,
            bits_per_s,
            jitter_ms: ms(c.jitter),
        });
        SentObject {
            run,
            to,
            law: match law {
                Law::Even => "even",
                Law::Poisson => "poisson",
            },
            packet_bytes: sent.packet_bytes,
            seconds: sent.took.as_secs_f64(),
            offered: sent.offered,
            sent: sent.sent,
            refused: sent.refused,
            skipped: sent.skipped,
            offered_bits_per_s: sent.offered_bits_per_s(),
            sent_bits_per_s: sent.sent_bits_per_s(),
            late_ms_max: ms(sent.late_max),
            carried,
        }
    }
}

#[derive(Serialize)]
struct RunObject {
    #[serde(serialize_with = "as_digits")]
    run: u64,
    from: SocketAddr,
    ended: bool,
    packets: u64,
    bytes: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    jitter_ms: f64,
    seconds: f64,
}

impl RunObject {
    fn new(run: &Run) -> RunObject {
        let c = &run.carried;
        RunObject {
            run: run.run,
            from: run.from,
            ended: run.ended,
            packets: c.packets,
            bytes: c.bytes,
            lost: c.lost,
            duplicates: c.duplicates,
            reordered: c.reordered,
            jitter_ms: ms(c.jitter),
            seconds: c.span.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_they_are_written() {
        for (text, bits) in [
            ("6Mbit", 6_000_000),
            ("60% of 10Mbit", 6_000_000),
            ("12.5 % of 8kbit", 1000),
            ("12.5% of 8kbit", 1000),
            ("750kB/s", 6_000_000),
            ("1000 B/s", 8000),
        ] {
            let read = text.parse::<LoadRate>().map_or(0, |r| r.0.bits());
            assert_eq!(read, bits, "{text}");
        }
        for bad in ["", "60%", "0% of 10Mbit", "300% of 1Mbit", "nan% of 1Mbit", "-1kB/s", "0B/s", "6 potatoes"] {
            assert!(bad.parse::<LoadRate>().is_err(), "{bad}");
        }
    }
}
