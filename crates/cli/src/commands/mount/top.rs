//! `remora top`: the mounts of this user on the terminal, every second.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::style::{Color, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{HeldReport, MountReport};
use tokio::sync::watch;

use crate::commands::mount::flags::Top;
use crate::commands::mount::known_mounts;
use crate::commands::mount::status::{connection_text, path_text, server_text, state_name, url_text};
use crate::config::units;
use crate::interrupt;
use crate::output::escape;
use crate::output::exit::{Error, Result};
use crate::output::keys::{Press, pressed};

/// The signal's number.
const INTERRUPT: u8 = 2;
const REFRESH: Duration = Duration::from_secs(1);
/// Longest wait for a key before the view is drawn again.
const KEY: Duration = Duration::from_millis(250);
/// Space between two figures of a line.
const GAP: &str = "   ";

pub(crate) async fn run(args: Top) -> Result {
    if !io::stdout().is_terminal() {
        return Err(Error::Usage("needs a terminal; remora status --json prints the figures".into()));
    }
    // A wrong directory is reported before the view begins.
    let first = look(args.dir.as_deref())?;
    let (latest, shown) = watch::channel(View::of(first, &[]));
    let refreshing = tokio::spawn(refresh(args.dir, latest));
    let mut terminal = ratatui::try_init().map_err(Error::local("terminal"))?;
    let mut stop = pin!(interrupt::wait());
    let result = loop {
        let drawn = terminal.draw(|frame| draw(frame, &shown.borrow()));
        if let Err(e) = drawn {
            break Err(Error::local("terminal")(e));
        }
        tokio::select! {
            signal = &mut stop => break Err(Error::Interrupted(signal)),
            // In raw mode Ctrl-C is a key like others.
            key = tokio::task::spawn_blocking(|| pressed(KEY)) => match key {
                Ok(Ok(Some(Press::Quit))) => break Ok(()),
                Ok(Ok(Some(Press::Interrupt))) => break Err(Error::Interrupted(INTERRUPT)),
                _ => {}
            }
        }
    };
    ratatui::restore();
    refreshing.abort();
    result
}

/// Looks at the mounts every second. Never ends.
async fn refresh(dir: Option<PathBuf>, latest: watch::Sender<View>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let dir = dir.clone();
        // A stopped mount takes seconds.
        let found = tokio::task::spawn_blocking(move || look(dir.as_deref()).unwrap_or_default()).await;
        if let Ok(found) = found {
            latest.send_modify(|view| *view = View::of(found, &view.mounts));
        }
    }
}

/// What a mount answered, and when.
#[derive(Debug)]
struct Sample {
    mount: KnownMount,
    report: io::Result<MountReport>,
    at: Instant,
}

fn look(dir: Option<&Path>) -> Result<Vec<Sample>> {
    let mounts = match dir {
        Some(dir) => vec![known_mounts::around(dir)?],
        None => known_mounts::all()?,
    };
    let sample = |mount: KnownMount| Sample { report: mount.report(), mount, at: Instant::now() };
    Ok(mounts.into_iter().map(sample).collect())
}

/// The mounts and their rates.
#[derive(Debug, Default)]
struct View {
    mounts: Vec<ShownMount>,
}

#[derive(Debug)]
struct ShownMount {
    title: String,
    /// `None` where the mount does not answer.
    report: Option<MountReport>,
    at: Instant,
    goodput: Option<Goodput>,
}

/// File data in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Goodput {
    read: f64,
    written: f64,
}

impl View {
    fn of(samples: Vec<Sample>, before: &[ShownMount]) -> View {
        let mounts = samples.into_iter().map(|Sample { mount, report, at }| {
            let report = report.ok();
            let earlier = before.iter().find(|shown| {
                shown.report.as_ref().zip(report.as_ref()).is_some_and(|(a, b)| a.pid == b.pid && a.dir == b.dir)
            });
            let goodput = earlier.zip(report.as_ref()).and_then(|(earlier, now)| {
                let (before, seconds) = (earlier.report.as_ref()?, at.duration_since(earlier.at).as_secs_f64());
                Some(Goodput::between(before, now, seconds))
            });
            let state = report.as_ref().map_or("does not answer", |report| state_name(report.state));
            let title = format!("{} on {}: {state}", url_text(&mount.note.url), path_text(&mount.note.dir));
            ShownMount { title, report, at, goodput }
        });
        View { mounts: mounts.collect() }
    }
}

impl Goodput {
    fn between(before: &MountReport, now: &MountReport, seconds: f64) -> Goodput {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds.max(1e-3);
        Goodput {
            read: rate(before.read_bytes, now.read_bytes),
            written: rate(before.written_bytes, now.written_bytes),
        }
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let width = usize::from(frame.area().width);
    let mut lines = vec![Line::from("remora top (q quits)").bold()];
    if view.mounts.is_empty() {
        lines.push("no mounts of this user".into());
    }
    for mount in &view.mounts {
        lines.push("".into());
        lines.push(Line::from(mount.title.clone()).bold());
        if let Some(report) = &mount.report {
            lines.extend(figures(report, mount.goodput, width).into_iter().map(Line::from));
            lines.extend(report.held.iter().map(|held| Line::from(waiting_text(held)).fg(Color::Yellow)));
        }
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), frame.area());
}

/// The figures of a mount in lines of at most `width`.
fn figures(report: &MountReport, goodput: Option<Goodput>, width: usize) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rate = |rate: f64| format!("{}/s", units::human(rate as u64));
    let (queue, server) = (&report.queue, &report.server);
    let asked = report.hits + report.misses;
    let hits = (asked > 0).then(|| format!("{:.1} %", report.hits as f64 * 100.0 / asked as f64));
    let log = &report.log;
    let mut lines = flow(&[server_text(server)], width);
    lines.extend(flow(
        &[
            connection_text(&report.connection),
            format!("changes to send {}", log.records.saturating_sub(log.refused)),
            format!("sent {}", log.sent),
            format!("refused {}", log.refused),
            format!("conflicts {}", log.conflicts),
        ],
        width,
    ));
    lines.extend(flow(
        &[
            format!("read {}", or_dash(goodput.map(|goodput| rate(goodput.read)))),
            format!("written {}", or_dash(goodput.map(|goodput| rate(goodput.written)))),
            format!("loss {}", or_dash(server.loss.map(|loss| format!("{:.1} %", loss * 100.0)))),
            format!("window {}", server.window),
            format!("in flight {}", report.calls_in_flight),
            format!("hits {}", or_dash(hits)),
            format!("unsent {}", units::human(report.dirty_bytes)),
            format!("cached {}", units::human(report.cached_bytes)),
            format!("objects {}", report.nodes),
        ],
        width,
    ));
    lines.extend(flow(
        &[
            format!("queued: foreground {}", queue.foreground),
            format!("durable {}", queue.durable),
            format!("write-back {}", queue.write_back),
            format!("read-ahead {}", queue.read_ahead),
            format!("prefetch {}", queue.prefetch),
        ],
        width,
    ));
    lines
}

/// A call that waits.
fn waiting_text(held: &HeldReport) -> String {
    format!(
        "  {:>7.1} s  {} (pid {})  {}  {}",
        held.waits_ms as f64 / 1000.0,
        escape::printable(held.program.as_bytes()),
        held.pid,
        held.operation,
        escape::printable(held.path.as_bytes()),
    )
}

/// The items in as few indented lines of at most `width` as their order permits. A longer item has a line of its own.
fn flow(items: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + GAP.len() + item.len() <= width => {
                line.push_str(GAP);
                line.push_str(item);
            }
            _ => lines.push(format!("  {item}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::mount::status::sample_report;

    fn shown(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn view() -> View {
        let report = sample_report();
        let later = MountReport { read_bytes: report.read_bytes + 3_000_000, ..report.clone() };
        let goodput = Some(Goodput::between(&report, &later, 2.0));
        let title = "nfs://nas/srv on /home/a/nas: mounted".to_owned();
        let silent = ShownMount { title: "b: does not answer".into(), report: None, at: Instant::now(), goodput: None };
        View { mounts: vec![ShownMount { title, report: Some(later), at: Instant::now(), goodput }, silent] }
    }

    #[test]
    fn view_shows_rates_queues_and_who_waits() {
        let text = shown(&view(), 120, 40);
        for part in [
            "nfs://nas/srv on /home/a/nas: mounted",
            "server nas:2049 over udp, RTT 12.3 ms",
            "disconnected for 2 h 5 min: the server does not answer",
            "changes to send 11   sent 140   refused 1   conflicts 2",
            "read 1.5 MB/s",
            "written 0 B/s",
            "hits 75.0 %",
            "unsent 3.1 MB",
            "queued: foreground 2",
            "3.5 s  cat (pid 42)  READ  /a\\nb",
            "b: does not answer",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(shown(&View::default(), 40, 4).contains("no mounts"));
    }

    #[test]
    fn narrow_terminal_gets_more_lines() {
        let text = shown(&view(), 30, 40);
        for part in ["read 1.5 MB/s", "prefetch 0", "cat (pid 42)"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        for (width, height) in [(1, 1), (3, 2), (16, 3)] {
            shown(&view(), width, height);
        }
    }
}
