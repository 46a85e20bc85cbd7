//! Progress for people: a bar on standard error when a copy takes its time.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remora_host::client::Session;
use tokio::task::{JoinHandle, block_in_place};

use crate::units;

/// Copies that are done sooner show no bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(200);
/// Silence worth mentioning.
const SILENCE: Duration = Duration::from_secs(1);
/// The text is cut off at the terminal's edge.
const TEMPLATE: &str = "{wide_msg}";
/// Columns of the bar at its end.
const BAR: u64 = 30;

/// What has been copied, and the bar that shows it.
#[derive(Debug)]
pub(crate) struct Progress {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
    can_be_seen: bool,
}

#[derive(Debug)]
struct Shared {
    bar: ProgressBar,
    total: AtomicU64,
    done: AtomicU64,
    /// Bytes that were there before; they do not count as speed.
    before: AtomicU64,
    /// Bytes in holes, which are not copied.
    in_holes: AtomicU64,
    sessions: Mutex<Vec<Session>>,
    /// Since when a link that is no session has been silent.
    silent_since: Mutex<Option<Instant>>,
    /// It takes its time, and somebody is to be told.
    is_slow: AtomicBool,
}

/// Whether standard error is a terminal that a bar can be drawn on: a dumb one takes lines only.
pub(crate) fn can_be_drawn() -> bool {
    !ProgressDrawTarget::stderr().is_hidden()
}

impl Progress {
    /// A bar if `visible` and there is a terminal. Needs the runtime.
    pub(crate) fn new(visible: bool) -> Progress {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let shared = Arc::new(Shared {
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()).with_style(style),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            before: AtomicU64::new(0),
            in_holes: AtomicU64::new(0),
            sessions: Mutex::default(),
            silent_since: Mutex::default(),
            is_slow: AtomicBool::new(false),
        });
        let ticker = visible.then(|| tokio::spawn(tick(shared.clone())));
        Progress { shared, ticker, can_be_seen: visible && can_be_drawn() }
    }

    /// Counts what this session does, once.
    pub(crate) fn watch(&self, session: &Session) {
        let mut sessions = self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if !sessions.iter().any(|known| known.counts_with(session)) {
            sessions.push(session.clone());
        }
    }

    /// Says since when the link has been silent, where it is no session's; `None` if it is not.
    pub(crate) fn silent_since(&self, since: Option<Instant>) {
        *self.shared.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// So many more bytes are to be copied.
    pub(crate) fn expect(&self, bytes: u64) {
        self.shared.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many more bytes have been copied.
    pub(crate) fn add(&self, bytes: u64) {
        self.shared.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were there before.
    pub(crate) fn skip(&self, bytes: u64) {
        self.shared.before.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are in holes: they are in the copy, and need not be copied.
    pub(crate) fn leave_out(&self, bytes: u64) {
        self.shared.in_holes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Prints something without tearing the bar. Whoever does not read what is printed holds up no other task.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        if self.can_be_seen { block_in_place(|| self.shared.bar.suspend(print)) } else { print() }
    }

    /// Bytes copied.
    pub(crate) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Bytes that were there before.
    pub(crate) fn before(&self) -> u64 {
        self.shared.before.load(Ordering::Relaxed)
    }

    /// Bytes in holes.
    pub(crate) fn in_holes(&self) -> u64 {
        self.shared.in_holes.load(Ordering::Relaxed)
    }

    /// Requests and retransmissions so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        self.shared.calls()
    }

    /// Takes the bar off the terminal; says whether there was one, or would have been on one that is not dumb.
    pub(crate) fn clear(&self) -> bool {
        self.shared.bar.finish_and_clear();
        self.shared.is_slow.load(Ordering::Relaxed) && io::stderr().is_terminal()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(ticker) = &self.ticker {
            ticker.abort();
        }
        self.shared.bar.finish_and_clear();
    }
}

impl Shared {
    fn calls(&self) -> (u64, u64) {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = sessions.iter().map(Session::stats);
        stats.fold((0, 0), |sum, s| (sum.0 + s.requests, sum.1 + s.retransmissions))
    }

    fn silence(&self) -> Duration {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().map(Session::silence).chain(since.map(|at| at.elapsed())).max().unwrap_or_default()
    }

    fn draw(&self) {
        let [before, in_holes] = [&self.before, &self.in_holes].map(|bytes| bytes.load(Ordering::Relaxed));
        let total = self.total.load(Ordering::Relaxed).saturating_sub(before).saturating_sub(in_holes);
        let done = self.done.load(Ordering::Relaxed).min(total);
        self.bar.set_length(total);
        self.bar.set_position(done);
        let pace = Pace { done, total, per_second: self.bar.per_sec(), left: self.bar.eta() };
        self.bar.set_message(line(&pace, self.calls().1, self.silence()));
    }
}

/// How far, and how fast.
struct Pace {
    done: u64,
    total: u64,
    per_second: f64,
    left: Duration,
}

async fn tick(shared: Arc<Shared>) {
    tokio::time::sleep(PATIENCE).await;
    shared.is_slow.store(true, Ordering::Relaxed);
    shared.bar.set_draw_target(ProgressDrawTarget::stderr());
    loop {
        block_in_place(|| shared.draw());
        tokio::time::sleep(TICK).await;
    }
}

/// The most important first, and the bar last: a narrow terminal cuts off the end.
fn line(pace: &Pace, retransmissions: u64, silence: Duration) -> String {
    let mut parts = vec![format!("{} of {}", units::human(pace.done), units::human(pace.total))];
    if silence > SILENCE {
        parts.push(format!("link silent for {} s", silence.as_secs()));
    } else {
        parts.push(format!("{}/s", units::human(pace.per_second as u64)));
        parts.push(format!("{} s left", pace.left.as_secs()));
    }
    if retransmissions > 0 {
        parts.push(format!("{retransmissions} sent again"));
    }
    let full = pace.done.saturating_mul(BAR).checked_div(pace.total).unwrap_or(BAR).min(BAR) as usize;
    let bar = "█".repeat(full) + &"░".repeat(BAR as usize - full);
    format!("{}  {bar}", parts.join(", "))
}

/// One line about a finished copy.
pub(crate) fn summary(bytes: u64, took: Duration, retransmissions: u64) -> String {
    let rate = (bytes as f64 / took.as_secs_f64().max(1e-3)) as u64;
    let again = if retransmissions > 0 { format!(", {retransmissions} requests sent again") } else { String::new() };
    format!("{} in {:.1} s ({}/s){again}", units::human(bytes), took.as_secs_f64(), units::human(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_worth_saying() {
        let pace = Pace { done: 1_000_000, total: 3_000_000, per_second: 5e5, left: Duration::from_secs(4) };
        let text = line(&pace, 0, Duration::from_millis(900));
        assert!(text.starts_with("1.0 MB of 3.0 MB, 500 kB/s, 4 s left  ██████████░░"), "{text}");
        let text = line(&pace, 3, Duration::from_secs(4));
        assert!(text.starts_with("1.0 MB of 3.0 MB, link silent for 4 s, 3 sent again  █"), "{text}");
        let nothing = Pace { done: 0, total: 0, per_second: f64::NAN, left: Duration::ZERO };
        assert!(line(&nothing, 0, Duration::ZERO).starts_with("0 B of 0 B, 0 B/s"));
        assert_eq!(summary(2_000_000, Duration::from_secs(4), 0), "2.0 MB in 4.0 s (500 kB/s)");
        assert_eq!(summary(0, Duration::ZERO, 1), "0 B in 0.0 s (0 B/s), 1 requests sent again");
    }

    #[test]
    fn the_template_is_understood() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
