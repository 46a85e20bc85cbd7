//! `remora gateway`: ATP on the mobiles' side, TCP beyond.

use std::net::SocketAddr;
use std::time::Duration;

use remora_atp::session::Guests;
use remora_atp::stream::{self, Stats};
use remora_host::gateway::{Gateway as Host, News, NfsServer, Report, Service, Settings};
use remora_host::zone;
use serde::Serialize;
use tokio::sync::mpsc;

use super::keys;
use crate::args::Gateway;
use crate::exit::{Error, Result};
use crate::printer::Printer;
use crate::{interrupt, out, units};

/// How often figures are looked at.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// What `--json` prints when mobiles may come.
#[derive(Serialize)]
struct Ready {
    listen: SocketAddr,
    key: String,
}

/// What `--json` prints when whoever reads has not kept up.
#[derive(Serialize)]
pub(super) struct Missed {
    event: &'static str,
    lines: u64,
}

impl Missed {
    pub(super) fn line(json: bool, lines: u64) -> Result<String> {
        match json {
            true => out::json_line(&Missed { event: "missed", lines }),
            false => Ok(format!("{lines} lines are missing: they were not read in time")),
        }
    }
}

/// What `--json` prints of a mobile that comes or leaves.
#[derive(Serialize)]
struct Change {
    event: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What `--json` prints each second in which something happened, and at the end.
#[derive(Serialize)]
struct Figures {
    mobiles: usize,
    connections: usize,
    #[serde(flatten)]
    carried: Carried,
    calls: u64,
    turned_away: u64,
    violations: u64,
}

/// What was carried, at either end.
#[derive(Serialize)]
pub(super) struct Carried {
    asked: u64,
    done: u64,
    refused: u64,
    reset: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

impl From<Stats> for Carried {
    fn from(s: Stats) -> Carried {
        let Stats { asked, refused, done, reset, sent, received } = s;
        Carried { asked, done, refused, reset, sent_bytes: sent, received_bytes: received }
    }
}

impl Carried {
    /// In words, with what `side` is called.
    pub(super) fn to_text(&self, side: &str) -> String {
        let Carried { asked, done, refused, reset, sent_bytes, received_bytes } = self;
        let (sent, received) = (units::human(*sent_bytes), units::human(*received_bytes));
        let s = if *asked == 1 { "" } else { "s" };
        format!(
            "{asked} connection{s}: {done} came to their end, {refused} refused, {reset} reset; {sent} to {side}, {received} from there"
        )
    }
}

pub(crate) async fn run(args: Gateway) -> Result {
    let stop = interrupt::catch();
    tokio::pin!(stop);
    let mut gateway = Host::bind(settings(&args)?).map_err(Error::endpoint)?;
    announce(&args, &gateway)?;
    let watch = gateway.watch();
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut printer = if args.json { Printer::start() } else { Printer::beside() }?;
    let result = {
        // Nobody hears the last news.
        let run = gateway.run(move |n| drop(tell.send(n)));
        tokio::pin!(run);
        let mut figures = tokio::time::interval(EVERY);
        let mut last = Report::default();
        loop {
            tokio::select! {
                _ = &mut stop => break Ok(()),
                e = &mut run => break Err(Error::refused("stopped", e.to_string())),
                e = printer.failed() => break Err(e),
                Some(n) = news.recv() => printer.print(line(&args, n)?),
                _ = figures.tick(), if args.json => {
                    let now = watch();
                    if now != last {
                        printer.print(out::json_line(&Figures::from(now))?);
                    }
                    last = now;
                }
            }
            printer.own_up(|lines| Missed::line(args.json, lines))?;
        }
    };
    gateway.close().await;
    let end = watch();
    if args.json {
        printer.print(out::json_line(&Figures::from(end))?);
    }
    printer.finish().await;
    if !args.json {
        out::text(&summary(&args, end))?;
    }
    result
}

fn settings(args: &Gateway) -> Result<Settings> {
    let service = match &args.nfs {
        Some(nfs) => Service::Nfs(NfsServer { nfs: nfs.clone(), mount_port: args.mount_port }),
        None => Service::Targets {
            targets: args.to.iter().cloned().collect(),
            streams: stream::Config { window: args.window, streams: args.connections.min(STREAMS) },
            connections_max: args.connections,
        },
    };
    Ok(Settings {
        listen: args.listen,
        identity: keys::identity(args.key.as_deref())?,
        guests: Guests::Only(args.allow.iter().copied().collect()),
        mobiles_max: args.mobiles,
        hold: args.hold,
        service,
    })
}

/// Connections of one mobile.
const STREAMS: usize = 256;

/// Says where we are, and how mobiles come here.
fn announce(args: &Gateway, gateway: &Host) -> Result {
    let (listen, key) = (gateway.local_addr(), gateway.public_key().to_string());
    if args.json {
        return out::json(&Ready { listen, key });
    }
    let at = match listen.ip().is_unspecified() {
        true => format!("HOST:{}", listen.port()),
        false => zone::shown(&listen),
    };
    let how = match (&args.nfs, args.to.first()) {
        (Some(_), _) => format!("remora ls 'nfs://{}/?proto=atp&key={key}'", at.replacen('%', "%25", 1)),
        (None, Some(to)) => format!("remora forward --listen PORT --to {to} atp://{at} --key {key}"),
        (None, None) => String::new(),
    };
    out::text(&format!("gateway on {listen}; its key is {key}\n{how}\n"))
}

fn line(args: &Gateway, news: News) -> Result<String> {
    let (event, key, addr, why) = match news {
        News::Came { key, addr } => ("came", key, Some(addr), None),
        News::Left { key, why } => ("left", key, None, Some(why)),
    };
    if args.json {
        return out::json_line(&Change { event, key: key.to_string(), addr, why });
    }
    Ok(match (addr, why) {
        (Some(addr), _) => format!("{key} is there, at {addr}"),
        (None, why) => format!("{key} has left: {}", why.unwrap_or_default()),
    })
}

fn summary(args: &Gateway, end: Report) -> String {
    let Report { stats, calls, .. } = end;
    match args.nfs {
        Some(_) => {
            let (replies, asked) = (units::human(stats.sent), units::human(stats.received));
            format!("{calls} calls, {asked}; replies {replies}\n")
        }
        None => Carried::from(stats).to_text("mobiles") + "\n",
    }
}

impl From<Report> for Figures {
    fn from(report: Report) -> Figures {
        let Report { mobiles, connections, stats, calls, turned_away, violations } = report;
        Figures { mobiles, connections, carried: stats.into(), calls, turned_away, violations }
    }
}
