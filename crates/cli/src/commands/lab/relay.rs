//! `remora lab relay`: emulates a poor link between clients and a server until Ctrl-C.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use remora_channel::SideStats;
use remora_host::{Clock, relay};
use serde::Serialize;

use crate::commands::lab::channel;
use crate::commands::lab::channel::ChannelArgs;
use crate::config::address;
use crate::interrupt;
use crate::output::diagnostics::Verbosity;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Examples:
  remora lab relay --listen 127.0.0.1:20490 --server 127.0.0.1:2049 \\
      --bad-mean 80ms
  remora lab relay --listen 127.0.0.1:20490 --server 127.0.0.1:2049 \\
      --rate 64kbit --outage 10s+30s
  remora cp big.iso 'nfs://127.0.0.1:20490/?proto=udp&mountport=2049'";

#[derive(Args, Debug)]
pub(crate) struct Relay {
    /// UDP address for clients; a port alone means loopback, port 0 a free port
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// The server behind the link
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) server: SocketAddr,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Print a JSON object each second for each active client, and one for each client at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

/// How often statistics are shown.
const EVERY: Duration = Duration::from_secs(1);

/// What `--json` prints when the relay is ready.
#[derive(Serialize)]
struct Ready {
    listen: SocketAddr,
    server: SocketAddr,
    seed: u64,
}

/// What `--json` prints of each client, each second and at the end.
#[derive(Serialize)]
struct RelayRecord {
    client: SocketAddr,
    up: Side,
    down: Side,
    /// The latest any delivery was.
    lateness_ms: f64,
}

/// Figures of one direction.
#[derive(Serialize)]
struct Side {
    datagrams: u64,
    datagrams_delivered: u64,
    frames: u64,
    bytes: u64,
    frames_sent: u64,
    frames_queue_full: u64,
    frames_bad: u64,
    frames_lost: u64,
    airtime_seconds: f64,
}

pub(crate) async fn run(args: Relay) -> Result {
    let (config, seed) = (channel::config(&args.channel)?, args.channel.seed);
    let relay = relay::Relay::start(args.listen, args.server, config, seed, Clock::start())
        .map_err(|e| Error::refused("cannot start", e.to_string()))?;
    if args.json {
        stdio::print_json(&Ready { listen: relay.addr(), server: args.server, seed })?;
    } else {
        stdio::print(&format!("relaying {} to {} over UDP, seed {}\n", relay.addr(), args.server, seed))?;
    }
    let stop = interrupt::wait();
    tokio::pin!(stop);
    let mut last = Vec::new();
    loop {
        tokio::select! {
            _ = &mut stop => break,
            () = tokio::time::sleep(EVERY) => {
                let lines: Vec<RelayRecord> = relay.progress().iter().map(RelayRecord::new).collect();
                if args.json || std::io::stdout().is_terminal() {
                    show(&args, &lines, &mut last)?;
                }
            }
        }
    }
    let lines: Vec<RelayRecord> = relay.progress().iter().map(RelayRecord::new).collect();
    show(&args, &lines, &mut Vec::new())
}

/// Shows the clients whose numbers have changed.
fn show(args: &Relay, lines: &[RelayRecord], last: &mut Vec<String>) -> Result {
    let texts: Vec<String> = lines
        .iter()
        .map(|l| if args.json { Ok(stdio::json_line(l)? + "\n") } else { Ok(l.to_text()) })
        .collect::<Result<_>>()?;
    let news: String = texts.iter().enumerate().filter(|(i, t)| last.get(*i) != Some(t)).map(|(_, t)| &t[..]).collect();
    *last = texts;
    stdio::print(&news)
}

impl RelayRecord {
    fn new(p: &relay::Progress) -> RelayRecord {
        let lateness_ms = p.lateness.as_secs_f64() * 1e3;
        RelayRecord { client: p.mobile, up: Side::new(&p.up), down: Side::new(&p.down), lateness_ms }
    }

    fn to_text(&self) -> String {
        let side = |s: &Side| {
            let lost = s.frames_queue_full + s.frames_bad + s.frames_lost;
            format!("{} frames, {lost} lost ({} queue full, {} bad)", s.frames, s.frames_queue_full, s.frames_bad)
        };
        format!(
            "{}  up: {}  down: {}  latest by {:.1} ms\n",
            self.client,
            side(&self.up),
            side(&self.down),
            self.lateness_ms
        )
    }
}

impl Side {
    fn new(s: &SideStats) -> Side {
        Side {
            datagrams: s.datagrams_offered,
            datagrams_delivered: s.datagrams_delivered,
            frames: s.frames_offered,
            bytes: s.bytes_offered,
            frames_sent: s.frames_sent,
            frames_queue_full: s.frames_queue_full,
            frames_bad: s.frames_bad,
            frames_lost: s.frames_random_loss,
            airtime_seconds: s.airtime.as_secs_f64(),
        }
    }
}
