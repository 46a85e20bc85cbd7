//! `remora forward`: local TCP ports that lead to a gateway's targets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use remora_atp::Priority;
use remora_atp::session::Refusal;
use remora_atp::stream::{Config, End, Reset, Target, Terms};
use remora_host::client::ClientError;
use remora_host::clock::timeout;
use remora_host::forward::{Forward as Host, ForwardError, ForwardEvent, ForwardRoute, ForwardSettings, ForwardStatus};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};

use crate::commands::forwarding::gateway::{Carried, DroppedLines, EVERY, connections, hold, window};
use crate::commands::transfer::keys::PeerFlags;
use crate::config::{address, units};
use crate::interrupt;
use crate::metrics::endpoint::{self, MetricsFlags, MetricsPage};
use crate::metrics::tables;
use crate::output::background_writer::BackgroundWriter;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Listens on local TCP ports and carries each connection as ATP objects to a
remora gateway, which connects to the target. Connections survive outages of the
link and address changes of this machine. They are reset when the gateway ends
or drops this client, and when the target refuses them; the local program may
see its connection accepted before that.

Short messages overtake long transfers of the same priority. Between forwards
the priority decides.

Examples:
  remora forward --listen 8080 --to wiki.example.net:80 atp://192.0.2.7:4050 \\
      --key PUBLIC-KEY
  remora forward --listen 2222 --to nas:22 --priority high --listen 8730 \\
      --to nas:873 --priority low atp://gw.example.net:4050 --key PUBLIC-KEY
  remora forward --listen 7000 --to alarm:7000 --deadline 5s \\
      atp://192.0.2.7:4050 --key PUBLIC-KEY

Exit codes:
  0    stopped by Ctrl-C or SIGTERM
  1    a port is in use, or a key is wrong
  2    wrong usage
  3    the gateway's name has no address, or at the start it does not answer
       within --timeout; later, forward waits for it

--json prints an object when ready: listen (a list), gateway, key; one for each
change: event (up, silent, heard, down, failed), why, to, connections (or missed
with lines, the number of dropped output lines); and one for each second with
activity, and at the end: up, sessions, connections, asked, done, refused,
reset, sent_bytes, received_bytes.";

#[derive(Args, Debug)]
pub(crate) struct Forward {
    /// The gateway, such as atp://192.0.2.7:4050
    #[arg(value_name = "atp://HOST:PORT", value_parser = gateway)]
    pub(crate) gateway: Target,
    #[command(flatten)]
    pub(crate) peer: PeerFlags,
    /// Local TCP address; a port alone means loopback. One for each --to
    #[arg(long, value_name = "[HOST:]PORT", required = true, value_parser = address::listen)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Target that the gateway connects to, one for each --listen; a port alone means the gateway's machine
    #[arg(long, value_name = "[HOST:]PORT", required = true, value_parser = address::target)]
    pub(crate) to: Vec<Target>,
    /// low, medium, high, or 0 to 15; higher goes first. One for all, or one for each --to
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Vec<Priority>,
    /// Reset a connection whose data takes longer over the link. One for all, or one for each --to
    /// [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) deadline: Vec<Duration>,
    /// Reset all connections after this much silence of the gateway
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = hold)]
    pub(crate) hold: Duration,
    /// Maximum number of connections; more wait
    #[arg(long, value_name = "N", default_value = "128", value_parser = connections)]
    pub(crate) connections: usize,
    /// Maximum bytes in flight for each connection and direction, 64K to 16M. Less than the link's rate
    /// times its RTT slows a connection down
    #[arg(long, value_name = "SIZE", default_value = "512K", value_parser = window)]
    pub(crate) window: u32,
    /// Print JSON objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no notices about the link
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}

/// Reads `atp://HOST:PORT`; the scheme may be left out.
fn gateway(text: &str) -> Result<Target, String> {
    text.strip_prefix("atp://").unwrap_or(text).trim_end_matches('/').parse().map_err(|e| format!("{e}"))
}

/// Silence that causes a notice.
const SILENCE: Duration = Duration::from_secs(3);
/// Exit code if the gateway does not answer.
const LOST: u8 = 3;
const UNHEARD: &str = "hint: check that remora gateway runs there on this port, and that UDP passes";
const FULL: &str = "hint: the gateway has its maximum number of mobiles; try again later";

/// The `--json` record when the gateway answers.
#[derive(Serialize)]
struct Ready {
    listen: Vec<SocketAddr>,
    gateway: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// The `--json` record of an event.
#[derive(Serialize)]
struct Change {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<usize>,
}

/// The `--json` record of each second with traffic, and at the end.
#[derive(Serialize)]
struct Figures {
    up: bool,
    sessions: u64,
    connections: usize,
    #[serde(flatten)]
    carried: Carried,
}

impl From<ForwardStatus> for Figures {
    fn from(report: ForwardStatus) -> Figures {
        let ForwardStatus { up, sessions, connections, stats } = report;
        Figures { up, sessions, connections, carried: stats.into() }
    }
}

pub(crate) async fn run(args: Forward) -> Result {
    let stop = interrupt::catch();
    let routes = routes(&args)?;
    let identity = args.peer.identity()?;
    let settings = ForwardSettings {
        gateway: args.gateway.clone(),
        key: args.peer.key,
        identity,
        routes,
        streams: Config { streams: args.connections, window: args.window },
        hold: args.hold,
    };
    let metrics = args.metrics.bind().await?;
    let mut forward = Host::bind(settings).await.map_err(|e| failed(&args, None, e))?;
    let key = forward.public_key();
    let (watch, status) = (forward.watch(), forward.watch());
    let metrics = metrics.map(|open| open.serve(move || tables::forwarding::forward(&status())));
    let ready = Ready {
        listen: forward.local_addrs(),
        gateway: args.gateway.to_string(),
        key: key.to_string(),
        metrics: metrics.as_ref().map(MetricsPage::address),
    };
    let (tell, news) = mpsc::unbounded_channel();
    let mut printer = if args.json { BackgroundWriter::stdout() } else { BackgroundWriter::stderr() }?;
    let result = {
        // The receiver may be gone at the end.
        let run = forward.run(move |n| drop(tell.send(n)));
        let mut talk = ForwardReporter { args: &args, printer: &mut printer, silent: None, is_said: false };
        let talking = talk.run(news, ready, &watch);
        tokio::select! {
            _ = stop => Ok(()),
            e = run => Err(failed(&args, Some(key.to_string()), e)),
            e = talking => Err(e),
        }
    };
    forward.close().await;
    let end = watch();
    if args.json {
        printer.print(stdio::json_line(&Figures::from(end))?);
    }
    printer.finish().await;
    if !args.json && result.is_ok() {
        stdio::print(&(Carried::from(end.stats).to_text("the gateway") + "\n"))?;
    }
    result
}

/// Routes in the order of the command line.
fn routes(args: &Forward) -> Result<Vec<ForwardRoute>> {
    let Forward { listen, to, priority, deadline, .. } = args;
    if listen.len() != to.len() {
        return Err(Error::Usage(format!(
            "{} --listen and {} --to: give one --to for each --listen",
            listen.len(),
            to.len()
        )));
    }
    let nth = |what, given: usize, n: usize| match given {
        0 => Ok(None),
        1 => Ok(Some(0)),
        many if many == to.len() => Ok(Some(n)),
        many => Err(Error::Usage(format!("{many} {what} for {} --to: give one for all, or one for each", to.len()))),
    };
    let route = |(n, (listen, target)): (usize, (&SocketAddr, &remora_atp::stream::Target))| {
        let priority = nth("--priority", priority.len(), n)?.and_then(|n| priority.get(n)).copied();
        let deadline = nth("--deadline", deadline.len(), n)?.and_then(|n| deadline.get(n)).copied();
        let terms = Terms { priority: priority.unwrap_or_default(), deadline: deadline.filter(|d| !d.is_zero()) };
        Ok(ForwardRoute { listen: *listen, target: target.clone(), terms })
    };
    listen.iter().zip(to).enumerate().map(route).collect()
}

fn failed(args: &Forward, own: Option<String>, e: ForwardError) -> Error {
    let gateway = args.gateway.to_string();
    match e {
        ForwardError::Listen { addr, source } => Error::listen(addr, "TCP")(source),
        ForwardError::Resolve { host, source } => Error::remote(gateway)(ClientError::Resolve { host, source }),
        ForwardError::Refused(Refusal::WrongKey) => Error::refused(gateway, "the gateway has another key than --key"),
        ForwardError::Refused(Refusal::NotAdmitted) => {
            let own = own.unwrap_or_default();
            Error::refused(gateway, format!("the gateway does not admit this key: start it with --allow {own}"))
        }
        other => Error::refused(gateway, other.to_string()),
    }
}

/// Output while the command runs.
struct ForwardReporter<'a> {
    args: &'a Forward,
    printer: &'a mut BackgroundWriter,
    /// Start of the gateway's silence, and whether it was reported.
    silent: Option<Instant>,
    is_said: bool,
}

impl ForwardReporter<'_> {
    /// Reports events until a failure.
    async fn run(
        &mut self,
        mut news: mpsc::UnboundedReceiver<ForwardEvent>,
        ready: Ready,
        watch: &impl Fn() -> ForwardStatus,
    ) -> Error {
        if let Err(e) = self.first(&mut news).await {
            return e;
        }
        let mut figures = interval(EVERY);
        match self.announce(&ready) {
            Ok(()) => self.go_on(news, &mut figures, watch).await,
            Err(e) => e,
        }
    }

    /// Waits for the first answer.
    async fn first(&self, news: &mut mpsc::UnboundedReceiver<ForwardEvent>) -> Result {
        let mut why = None;
        let up = async {
            loop {
                match news.recv().await {
                    Some(ForwardEvent::Up) | None => return,
                    Some(ForwardEvent::Down { why: reason, .. }) => why = Some(reason),
                    Some(_) => {}
                }
            }
        };
        if timeout(self.args.peer.timeout(), up).await.is_ok() {
            return Ok(());
        }
        let hint = hint(why.as_deref());
        let why = why.unwrap_or_else(|| format!("no answer for {} s", self.args.peer.timeout().as_secs_f64()));
        stdio::eprint(format_args!("remora: forward: {}: {why}", self.args.gateway));
        hint.into_iter().for_each(stdio::eprint);
        Err(Error::Reported(LOST))
    }

    fn announce(&self, ready: &Ready) -> Result {
        if self.args.json {
            return stdio::print_json(ready);
        }
        let lines = ready.listen.iter().zip(&self.args.to);
        let lines = lines.map(|(at, to)| format!("{at} forwards to {to} through {}\n", ready.gateway));
        let metrics = ready.metrics.map(|at| endpoint::notice(at) + "\n");
        stdio::print(&lines.chain(metrics).collect::<String>())
    }

    async fn go_on(
        &mut self,
        mut news: mpsc::UnboundedReceiver<ForwardEvent>,
        figures: &mut Interval,
        watch: &impl Fn() -> ForwardStatus,
    ) -> Error {
        let mut last = ForwardStatus::default();
        loop {
            let said = tokio::select! {
                e = self.printer.failed() => Err(e),
                Some(n) = news.recv() => self.tell(n),
                () = long_silence(self.silent.filter(|_| !self.is_said)) => {
                    self.is_said = true;
                    self.say(format!("no answer for {} s; connections wait", SILENCE.as_secs()));
                    Ok(())
                }
                _ = figures.tick(), if self.args.json => {
                    let now = watch();
                    let is_news = std::mem::replace(&mut last, now) != now;
                    if is_news { self.print(&Figures::from(now)) } else { Ok(()) }
                }
            };
            let json = self.args.json;
            if let Err(e) = said.and_then(|()| self.printer.report_dropped(|lines| DroppedLines::line(json, lines))) {
                return e;
            }
        }
    }

    fn tell(&mut self, news: ForwardEvent) -> Result {
        let (event, why, to, connections) = match news {
            ForwardEvent::Up | ForwardEvent::Heard => {
                let since = self.silent.take();
                if let Some(since) = since.filter(|_| self.is_said) {
                    self.say(format!("the link is back after {} s", since.elapsed().as_secs()));
                }
                self.is_said = false;
                (if news == ForwardEvent::Up { "up" } else { "heard" }, None, None, None)
            }
            ForwardEvent::Silent => {
                self.silent.get_or_insert_with(Instant::now);
                ("silent", None, None, None)
            }
            ForwardEvent::Down { why, connections } => {
                (self.silent, self.is_said) = (None, false);
                let cut = match connections {
                    0 => String::new(),
                    1 => ": 1 connection was reset".to_owned(),
                    n => format!(": {n} connections were reset"),
                };
                self.say(format!("the gateway is lost ({why}){cut}"));
                ("down", Some(why), None, Some(connections))
            }
            ForwardEvent::Failed { target, end } => {
                let why = match end {
                    End::Refused(why) => why.to_string(),
                    End::Reset(why) => why.to_string(),
                    End::Done => String::new(),
                };
                // Programs end so that leave bytes unread. The program here sees it itself.
                if end != End::Reset(Reset::Broken) {
                    self.say(format!("{target}: {why}"));
                }
                ("failed", Some(why), Some(target.to_string()), None)
            }
        };
        if self.args.json { self.print(&Change { event, why, to, connections }) } else { Ok(()) }
    }

    fn print(&mut self, object: &impl Serialize) -> Result {
        self.printer.print(stdio::json_line(object)?);
        Ok(())
    }

    fn say(&mut self, text: String) {
        if !self.args.quiet && !self.args.json {
            self.printer.print(format!("remora: forward: {text}"));
        }
    }
}

/// What to do about a gateway that could not be reached, by the reason of the last attempt, if one has ended.
fn hint(why: Option<&str>) -> Option<&'static str> {
    match why {
        None => Some(UNHEARD),
        Some(why) if why == Refusal::Silent.to_string() => Some(UNHEARD),
        Some(why) if why == Refusal::Full.to_string() => Some(FULL),
        Some(_) => None,
    }
}

/// Waits until nothing was heard for [`SILENCE`], if there is silence.
async fn long_silence(silent: Option<Instant>) {
    match silent {
        Some(since) => tokio::time::sleep(SILENCE.saturating_sub(since.elapsed())).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_read() {
        for text in ["atp://nas:4050", "atp://nas:4050/", "nas:4050"] {
            assert_eq!(gateway(text).unwrap().to_string(), "nas:4050", "{text}");
        }
        assert!(gateway("http://nas:4050").is_err() && gateway("atp://nas").is_err());
    }

    #[test]
    fn hint_asks_for_a_gateway_only_where_nothing_was_heard() {
        let given = |why: Refusal| hint(Some(&why.to_string()));
        assert_eq!((hint(None), given(Refusal::Silent)), (Some(UNHEARD), Some(UNHEARD)));
        assert_eq!(given(Refusal::Full), Some(FULL));
        assert_eq!(given(Refusal::Protocol("no such version".into())), None);
    }
}
