//! The flags of `remora load`.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use remora_base::Rate;

use super::examples;
use crate::address;
use crate::units;

pub(crate) const HELP: &str = "\
One end sends UDP packets at a rate, the other counts them; the sender asks at
its end what came. The rate counts IP and UDP headers. Packets that arrive are
dropped, so this load gives way to nobody: by default it goes to this machine
only.

Examples:
  remora load recv --listen 127.0.0.1:5001
  remora load send 127.0.0.1:5001 --rate 6Mbit
  remora load send 127.0.0.1:5001 --rate '60% of 10Mbit' --poisson --for 1m \\
      --json
  remora load recv --listen 10.77.0.1:5001 --for 1m --json

send --json prints one object: run, to, law, packet_bytes, seconds, offered,
sent, refused, skipped (packets), offered_bits_per_s, sent_bits_per_s,
late_ms_max, carried (null: nobody answered): packets, lost, duplicates,
reordered, bits_per_s, jitter_ms. recv --json prints one for each run as it
ends, and for those still under way when it is stopped: run, from, ended,
packets, bytes, lost, duplicates, reordered, jitter_ms, seconds. The exit code
of send is 3 if nobody answered, or the receiver's name has no address.
docs/reference/load.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Load {
    #[command(subcommand)]
    pub(crate) end: End,
}

#[derive(Subcommand, Debug)]
pub(crate) enum End {
    /// Send packets, and say what was carried
    #[command(after_help = examples::LOAD_SEND)]
    Send(Send),
    /// Count packets
    #[command(after_help = examples::LOAD_RECV)]
    Recv(Recv),
}

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// The receiver
    #[arg(value_name = "[HOST:]PORT")]
    pub(crate) to: String,
    /// How much: as in 6Mbit, 750kB/s or '60% of 10Mbit'
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: LoadRate,
    /// Payload of a packet in bytes
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub(crate) size: usize,
    /// At exponential distances instead of equal ones
    #[arg(long)]
    pub(crate) poisson: bool,
    /// For how long, at most a day
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub(crate) length: Duration,
    /// The run's name, which draws what is random in it [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) run: Option<u64>,
    /// Send to an address that is not this machine's loopback, too. The load gives way to nobody:
    /// the network there must be yours to fill
    #[arg(long)]
    pub(crate) beyond_loopback: bool,
    /// Print an object instead
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Recv {
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:5001", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// For how long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) length: Option<Duration>,
    /// Print an object for each run, and one with the address first
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
            let share: f64 = share.trim().parse().map_err(|_| format!("'{share}' is not a number of percent"))?;
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

/// Reads `750kB/s`.
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
