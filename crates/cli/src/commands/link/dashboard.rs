//! `--view`: the figures on the terminal, four times a second. Columns that find no room are
//! left out, the least telling first.

use std::collections::VecDeque;
use std::io;
use std::io::IsTerminal;
use std::pin::Pin;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use remora_host::link::{ChannelState, Daemon, LinkReport, PeerReport};

use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::keys::{Press, pressed};

const REFRESH: Duration = Duration::from_millis(250);
/// Notices that are kept on show.
const NOTICES: usize = 50;

/// Shows the figures until `q` or a signal (`stop`).
pub(crate) async fn run(daemon: &Daemon, mut stop: Pin<&mut impl Future<Output = u8>>) -> Result {
    if !io::stdout().is_terminal() {
        return Err(Error::Usage("--view needs a terminal; --json prints lines".into()));
    }
    let mut terminal = ratatui::try_init().map_err(Error::local("terminal"))?;
    let mut notices = VecDeque::new();
    let result = loop {
        while let Some(notice) = daemon.notice(Duration::ZERO) {
            notices.push_back(notice.to_string());
            if notices.len() > NOTICES {
                notices.pop_front();
            }
        }
        let report = daemon.control().report();
        let drawn = terminal.draw(|frame| draw(frame, &report, &notices));
        if let Err(e) = drawn {
            break Err(Error::local("terminal")(e));
        }
        tokio::select! {
            _ = &mut stop => break Ok(()),
            // In raw mode Ctrl-C is a key like others.
            key = tokio::task::spawn_blocking(|| pressed(REFRESH)) => {
                if let Ok(Ok(Some(Press::Quit | Press::Interrupt))) = key {
                    break Ok(());
                }
            }
        }
        if daemon.has_ended() {
            break Ok(());
        }
    };
    ratatui::restore();
    result
}

/// A column: its title, width and content.
type Column = (&'static str, u16, fn(&PeerReport) -> String);

/// The most telling first: these stay when the terminal is narrow.
const COLUMNS: [Column; 11] = [
    ("name", 14, |p| p.name.clone()),
    ("state", 9, |p| state_text(p).to_owned()),
    ("queue", 6, |p| p.figures.queue_packets.to_string()),
    ("again", 7, |p| p.figures.retransmitted.to_string()),
    ("sent", 8, |p| units::human(p.figures.acknowledged_bytes)),
    ("received", 8, |p| units::human(p.figures.delivered_bytes)),
    ("trip ms", 7, |p| p.figures.round_trip_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.0}"))),
    ("airtime s", 9, |p| p.figures.airtime_seconds.map_or_else(|| "-".into(), |s| format!("{s:.1}"))),
    ("given up", 8, |p| p.figures.abandoned.to_string()),
    ("dropped", 7, |p| p.figures.dropped.to_string()),
    ("at", 21, |p| p.endpoint.map_or_else(|| "-".into(), |e| e.to_string())),
];

/// The columns that fit a width, at least the first.
fn fitting(width: u16) -> &'static [Column] {
    let mut used = 0;
    let n = COLUMNS.iter().take_while(|(_, w, _)| {
        used += w + 1;
        used <= width
    });
    COLUMNS.get(..n.count().max(1)).unwrap_or(&COLUMNS)
}

fn draw(frame: &mut Frame<'_>, report: &LinkReport, notices: &VecDeque<String>) {
    let peers = u16::try_from(report.peers.len()).unwrap_or(u16::MAX);
    let parts = [Constraint::Length(1), Constraint::Max(peers.saturating_add(3)), Constraint::Min(0)];
    let [head, table, log] = Layout::vertical(parts).areas(frame.area());
    let rate = report.rate_bits.map_or_else(|| "rate unknown".to_owned(), |b| format!("{:.3} Mbit/s", b as f64 / 1e6));
    let title = format!("remora link {} on {}  {rate}  {:.0} s  (q quits)", report.role, report.device, report.seconds);
    frame.render_widget(Line::from(title).bold(), head);
    let columns = fitting(table.width.saturating_sub(2));
    let rows = report.peers.iter().map(|p| {
        let cells = columns.iter().map(|(_, _, text)| Cell::from(text(p)));
        Row::new(cells).style(Style::new().fg(colour(p)))
    });
    let widths = columns.iter().map(|(_, width, _)| Constraint::Length(*width));
    let titles = Row::new(columns.iter().map(|(title, ..)| *title)).bold();
    frame.render_widget(Table::new(rows, widths).header(titles).block(Block::bordered()), table);
    let lines = notices.iter().rev().take(usize::from(log.height)).map(|n| Line::from(n.as_str()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), log);
}

/// The state of an end in a word.
pub(crate) fn state_text(p: &PeerReport) -> &'static str {
    match (p.up, p.state) {
        (false, _) => "down",
        (true, Some(ChannelState::Suspect)) => "bad",
        (true, Some(ChannelState::HandOff)) => "hand-off",
        (true, Some(ChannelState::Good) | None) => "good",
    }
}

fn colour(p: &PeerReport) -> Color {
    match state_text(p) {
        "good" => Color::Green,
        "down" => Color::DarkGray,
        _ => Color::Yellow,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn report() -> LinkReport {
        let peer = PeerReport {
            name: "robot".into(),
            key: String::new(),
            address: None,
            endpoint: Some("192.0.2.7:4000".parse().unwrap()),
            up: true,
            state: Some(ChannelState::Suspect),
            heard_seconds: Some(0.1),
            figures: Default::default(),
        };
        LinkReport { role: "base".into(), device: "rlink0".into(), peers: vec![peer], ..LinkReport::default() }
    }

    fn shown(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let notices = VecDeque::from(["robot is up".to_owned()]);
        terminal.draw(|f| draw(f, &report(), &notices)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn narrow_terminal_shows_the_most_important_columns() {
        let wide = shown(130, 12);
        for text in ["robot", "bad", "192.0.2.7:4000", "given up", "robot is up"] {
            assert!(wide.contains(text), "no {text} in\n{wide}");
        }
        let narrow = shown(40, 8);
        assert!(narrow.contains("robot") && narrow.contains("bad") && !narrow.contains("192.0.2.7"), "{narrow}");
        for (width, height) in [(1, 1), (3, 2), (16, 3)] {
            shown(width, height);
        }
    }
}
