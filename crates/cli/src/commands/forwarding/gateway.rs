//! `remora gateway`: accepts ATP sessions from mobiles, and connects each stream in them to a TCP target.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use remora_atp::session::{Guests, PublicKey};
use remora_atp::stream;
use remora_atp::stream::{STREAMS_MAX, Stats, Target, WINDOW_MIN};
use remora_host::gateway::{Gateway as Host, GatewayEvent, GatewaySettings, GatewayStatus, NfsServer, Service};
use remora_host::zone;
use remora_wire::nfs3;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::commands::transfer::keys;
use crate::config::settings::names;
use crate::config::{address, units};
use crate::interrupt;
use crate::metrics::endpoint::{self, MetricsFlags, MetricsPage};
use crate::metrics::tables;
use crate::output::background_writer::BackgroundWriter;
use crate::output::exit::{Error, Result};
use crate::output::stdio;
use crate::service_manager::{self, Watchdog};

/// Less would take a slow answer for silence.
const HOLD_MIN: Duration = Duration::from_secs(10);
/// More than any link carries in a round trip.
const WINDOW_MAX: u64 = 16 << 20;

pub(crate) const HELP: &str = "\
The fixed end of a link with outages: ATP towards the mobiles, TCP towards the
servers. With --to it connects the remora forward of each allowed mobile to the
listed targets and to no others. With --nfs it gives an NFS server without ATP
an ATP address; clients use proto=atp.

Examples:
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY \\
      --to wiki.example.net:80 --to nas:22
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY --nfs nas
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY --nfs 127.0.0.1 \\
      --mount-port 20048
  # on a mobile, with --nfs here
  remora ls 'nfs://gw:4050/export?proto=atp&key=GATEWAY-KEY'

The gateway resolves names when it makes a connection. The NFS server sees all
calls come from this machine, each with the user that the client names; if the
gateway runs as root, they come from a port below 1024, which some servers
require.

Ctrl-C stops it and resets all connections (exit code 0).

--json prints an object when ready: listen, key; one for each change: event
(came, left), key, addr, why (or missed with lines, the number of dropped output
lines); and one for each second with activity, and at the end: mobiles,
connections, asked, done, refused, reset, sent_bytes, received_bytes (to and
from mobiles), calls (of NFS), turned_away, violations.";

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("service").required(true).args(["to", "nfs"]))]
pub(crate) struct Gateway {
    /// UDP address for mobiles; a port alone means loopback, port 0 a free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:4050", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// Public key of a mobile to accept. May be repeated
    #[arg(long, value_name = "KEY", required = true, value_parser = names::key::<PublicKey>)]
    pub(crate) allow: Vec<PublicKey>,
    /// Target that mobiles may connect to; a port alone means this machine. May be repeated
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::target)]
    pub(crate) to: Vec<Target>,
    /// Carry NFS calls over TCP to this server; a port alone means this machine
    #[arg(long, value_name = "HOST[:PORT]", value_parser = server)]
    pub(crate) nfs: Option<Target>,
    /// MOUNT port of the NFS server [default: from its portmapper, else the NFS port]
    #[arg(long, value_name = "PORT", requires = "nfs", conflicts_with = "to", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) mount_port: Option<u16>,
    /// File with this end's private key; created if missing [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Maximum number of sessions; if all are in use, keys with fewer sessions have priority
    #[arg(long, value_name = "N", default_value = "256", value_parser = connections)]
    pub(crate) mobiles: usize,
    /// Maximum number of connections of all mobiles; more are refused
    #[arg(long, value_name = "N", default_value = "512", value_parser = connections, conflicts_with = "nfs")]
    pub(crate) connections: usize,
    /// Maximum bytes in flight for each connection and direction, 64K to 16M
    #[arg(long, value_name = "SIZE", default_value = "512K", value_parser = window, conflicts_with = "nfs")]
    pub(crate) window: u32,
    /// Drop a mobile that is silent for this long, and reset its connections
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = hold)]
    pub(crate) hold: Duration,
    /// Print JSON objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}

/// Reads `HOST`, `HOST:PORT` or a port of loopback.
fn server(text: &str) -> Result<Target, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    address::target(text).or_else(|_| Target::new(bare, nfs3::PORT)).map_err(|e| e.to_string())
}

/// Reads how many connections there may be.
pub(crate) fn connections(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
    n.ok_or_else(|| format!("expected 1 to {STREAMS_MAX}"))
}

/// Reads how many bytes of a connection may be on their way.
pub(crate) fn window(text: &str) -> Result<u32, String> {
    let size = units::bytes(text)?;
    let size = u32::try_from(size).ok().filter(|_| (u64::from(WINDOW_MIN)..=WINDOW_MAX).contains(&size));
    size.ok_or_else(|| "expected 64K to 16M".into())
}

/// Reads how long a silent peer is held: long enough for a round trip or two over any link.
pub(crate) fn hold(text: &str) -> Result<Duration, String> {
    let hold = units::duration(text)?;
    if hold >= HOLD_MIN { Ok(hold) } else { Err("expected 10s or more".into()) }
}

/// Interval of the figures.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// The `--json` record at startup.
#[derive(Serialize)]
struct Ready {
    listen: SocketAddr,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// The `--json` record of dropped output lines.
#[derive(Serialize)]
pub(crate) struct DroppedLines {
    event: &'static str,
    lines: u64,
}

impl DroppedLines {
    pub(crate) fn line(json: bool, lines: u64) -> Result<String> {
        match json {
            true => stdio::json_line(&DroppedLines { event: "missed", lines }),
            false => Ok(format!("{lines} lines of output were dropped: nobody read them in time")),
        }
    }
}

/// The `--json` record of a mobile that connects or leaves.
#[derive(Serialize)]
struct Change {
    event: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The `--json` record of each second with traffic, and at the end.
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

/// Connections and bytes, at either end.
#[derive(Serialize)]
pub(crate) struct Carried {
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
    /// One line of text; `side` names the peer.
    pub(crate) fn to_text(&self, side: &str) -> String {
        let Carried { asked, done, refused, reset, sent_bytes, received_bytes } = self;
        let (sent, received) = (units::human(*sent_bytes), units::human(*received_bytes));
        let s = if *asked == 1 { "" } else { "s" };
        format!(
            "{asked} connection{s}: {done} completed, {refused} refused, {reset} reset; {sent} to {side}, {received} from there"
        )
    }
}

pub(crate) async fn run(args: Gateway) -> Result {
    let stop = interrupt::catch();
    tokio::pin!(stop);
    let metrics = args.metrics.bind().await?;
    let mut gateway = Host::bind(settings(&args)?).map_err(Error::endpoint)?;
    let (watch, status) = (gateway.watch(), gateway.watch());
    let metrics = metrics.map(|open| open.serve(move || tables::forwarding::gateway(&status())));
    announce(&args, &gateway, metrics.as_ref().map(MetricsPage::address))?;
    service_manager::ready();
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut printer = if args.json { BackgroundWriter::stdout() } else { BackgroundWriter::stderr() }?;
    let result = {
        // The receiver may be gone at the end.
        let run = gateway.run(move |n| drop(tell.send(n)));
        tokio::pin!(run);
        let mut figures = tokio::time::interval(EVERY);
        let mut last = GatewayStatus::default();
        let mut watchdog = Watchdog::start();
        loop {
            tokio::select! {
                _ = &mut stop => break Ok(()),
                e = &mut run => break Err(Error::refused("stopped", e.to_string())),
                e = printer.failed() => break Err(e),
                () = watchdog.due() => watchdog.works(),
                Some(n) = news.recv() => printer.print(line(&args, n)?),
                _ = figures.tick(), if args.json => {
                    let now = watch();
                    if now != last {
                        printer.print(stdio::json_line(&Figures::from(now))?);
                    }
                    last = now;
                }
            }
            printer.report_dropped(|lines| DroppedLines::line(args.json, lines))?;
        }
    };
    service_manager::stopping();
    gateway.close().await;
    let end = watch();
    if args.json {
        printer.print(stdio::json_line(&Figures::from(end))?);
    }
    printer.finish().await;
    if !args.json {
        stdio::print(&summary(&args, end))?;
    }
    result
}

fn settings(args: &Gateway) -> Result<GatewaySettings> {
    let service = match &args.nfs {
        Some(nfs) => Service::Nfs(NfsServer { nfs: nfs.clone(), mount_port: args.mount_port }),
        None => Service::Targets {
            targets: args.to.iter().cloned().collect(),
            streams: stream::Config { window: args.window, streams: args.connections.min(STREAMS) },
            connections_max: args.connections,
        },
    };
    Ok(GatewaySettings {
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
fn announce(args: &Gateway, gateway: &Host, metrics: Option<SocketAddr>) -> Result {
    let (listen, key) = (gateway.local_addr(), gateway.public_key().to_string());
    if args.json {
        return stdio::print_json(&Ready { listen, key, metrics });
    }
    let metrics = metrics.map_or_else(String::new, |at| endpoint::notice(at) + "\n");
    let at = match listen.ip().is_unspecified() {
        true => format!("HOST:{}", listen.port()),
        false => zone::shown(&listen),
    };
    let how = match (&args.nfs, args.to.first()) {
        (Some(_), _) => format!("remora ls 'nfs://{}/?proto=atp&key={key}'", at.replacen('%', "%25", 1)),
        (None, Some(to)) => format!("remora forward --listen PORT --to {to} atp://{at} --key {key}"),
        (None, None) => String::new(),
    };
    stdio::print(&format!("gateway on {listen}; public key {key}\n{metrics}{how}\n"))
}

fn line(args: &Gateway, news: GatewayEvent) -> Result<String> {
    let (event, key, addr, why) = match news {
        GatewayEvent::Came { key, addr } => ("came", key, Some(addr), None),
        GatewayEvent::Left { key, why } => ("left", key, None, Some(why)),
    };
    if args.json {
        return stdio::json_line(&Change { event, key: key.to_string(), addr, why });
    }
    Ok(match (addr, why) {
        (Some(addr), _) => format!("{key} connected from {addr}"),
        (None, why) => format!("{key} disconnected: {}", why.unwrap_or_default()),
    })
}

fn summary(args: &Gateway, end: GatewayStatus) -> String {
    let GatewayStatus { stats, calls, .. } = end;
    match args.nfs {
        Some(_) => {
            let (replies, asked) = (units::human(stats.sent), units::human(stats.received));
            format!("{calls} calls, {asked}; replies {replies}\n")
        }
        None => Carried::from(stats).to_text("mobiles") + "\n",
    }
}

impl From<GatewayStatus> for Figures {
    fn from(report: GatewayStatus) -> Figures {
        let GatewayStatus { mobiles, connections, stats, calls, turned_away, violations } = report;
        Figures { mobiles, connections, carried: stats.into(), calls, turned_away, violations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_address_without_port_gets_the_nfs_port() {
        for (text, at) in [
            ("nas", "nas:2049"),
            ("nas:20", "nas:20"),
            ("20", "127.0.0.1:20"),
            ("[::1]", "[::1]:2049"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), at);
        }
        assert!(server("").is_err() && server("nas:0").is_err() && server("nas:").is_err());
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!((window("64K"), window("16M")), (Ok(WINDOW_MIN), Ok(16 << 20)));
        assert!(window("63K").is_err() && window("17M").is_err() && window("5G").is_err());
        assert!(hold("9s").is_err() && hold("10s").is_ok());
        assert!(connections("0").is_err() && connections("4097").is_err() && connections("1") == Ok(1));
    }
}
