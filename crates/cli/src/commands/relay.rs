//! `remora lab relay`: a poor link between clients and a server, until Ctrl-C.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use remora_channel::SideStats;
use remora_host::Clock;
use remora_host::relay;
use serde::Serialize;

use super::channel;
use crate::args::Relay;
use crate::exit::{Error, Result};
use crate::{interrupt, out};

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
struct Line {
    client: SocketAddr,
    up: Side,
    down: Side,
    /// The latest any delivery was.
    lateness_ms: f64,
}

/// One direction: what was offered, and what became of it.
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
        out::json(&Ready { listen: relay.addr(), server: args.server, seed })?;
    } else {
        out::text(&format!("relaying {} to {} over UDP, seed {}\n", relay.addr(), args.server, seed))?;
    }
    let stop = interrupt::wait();
    tokio::pin!(stop);
    let mut last = Vec::new();
    loop {
        tokio::select! {
            _ = &mut stop => break,
            () = tokio::time::sleep(EVERY) => {
                let lines: Vec<Line> = relay.progress().iter().map(Line::new).collect();
                if args.json || std::io::stdout().is_terminal() {
                    show(&args, &lines, &mut last)?;
                }
            }
        }
    }
    let lines: Vec<Line> = relay.progress().iter().map(Line::new).collect();
    show(&args, &lines, &mut Vec::new())
}

/// Shows the clients whose numbers have changed.
fn show(args: &Relay, lines: &[Line], last: &mut Vec<String>) -> Result {
    let texts: Vec<String> = lines
        .iter()
        .map(|l| if args.json { Ok(out::json_line(l)? + "\n") } else { Ok(l.to_text()) })
        .collect::<Result<_>>()?;
    let news: String = texts.iter().enumerate().filter(|(i, t)| last.get(*i) != Some(t)).map(|(_, t)| &t[..]).collect();
    *last = texts;
    out::text(&news)
}

impl Line {
    fn new(p: &relay::Progress) -> Line {
        let lateness_ms = p.lateness.as_secs_f64() * 1e3;
        Line { client: p.mobile, up: Side::new(&p.up), down: Side::new(&p.down), lateness_ms }
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
