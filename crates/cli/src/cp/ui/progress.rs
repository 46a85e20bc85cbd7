//! Progress bar on standard error.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remora_host::client::Session;
use tokio::task::{JoinHandle, block_in_place};

use crate::config::units;
use crate::remote::stall_notice::{Stall, stall};

/// Time before the bar is shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval of drawing.
const TICK: Duration = Duration::from_millis(200);
/// Stall that is shown.
const STALL: Duration = Duration::from_secs(1);
/// Stall after which advice is shown.
const LONG_STALL: Duration = Duration::from_secs(3);
/// Advice of `cp` during a stall.
pub(crate) const ADVICE: &str = "Ctrl-C keeps the received part, --resume continues";
/// The text is cut off at the terminal's edge.
const TEMPLATE: &str = "{wide_msg}";
/// Columns of the bar.
const BAR: u64 = 30;

/// Counters of a copy, and the bar that shows them.
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
    /// Of those, bytes that are neither copied nor compared.
    passed_over: AtomicU64,
    /// Bytes in holes, which are not copied.
    in_holes: AtomicU64,
    /// Files found so far, and finished ones.
    files: AtomicU64,
    files_done: AtomicU64,
    /// Directory walks that may find more files.
    walks: AtomicUsize,
    /// Bytes to compare with their sources, and bytes compared.
    to_compare: AtomicU64,
    compared: AtomicU64,
    /// `--verify`: every copy is compared.
    compares_all: bool,
    /// Advice during a stall.
    advice: &'static str,
    sessions: Mutex<Vec<Session>>,
    /// Start of the silence of a link that is no session.
    silent_since: Mutex<Option<Instant>>,
    /// The bar is due.
    is_slow: AtomicBool,
}

/// Whether standard error is a terminal that can draw a bar.
pub(crate) fn can_be_drawn() -> bool {
    !ProgressDrawTarget::stderr().is_hidden()
}

impl Progress {
    /// A bar if `visible` and there is a terminal. Needs the runtime.
    pub(crate) fn new(visible: bool) -> Progress {
        Progress::with(visible, false, "")
    }

    /// The bar of `cp`; with `compares_all` every copy is compared.
    pub(crate) fn of_copy(visible: bool, compares_all: bool) -> Progress {
        Progress::with(visible, compares_all, ADVICE)
    }

    fn with(visible: bool, compares_all: bool, advice: &'static str) -> Progress {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let shared = Arc::new(Shared {
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()).with_style(style),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            before: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            in_holes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            walks: AtomicUsize::new(0),
            to_compare: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            compares_all,
            advice,
            sessions: Mutex::default(),
            silent_since: Mutex::default(),
            is_slow: AtomicBool::new(false),
        });
        let ticker = visible.then(|| tokio::spawn(tick(shared.clone())));
        Progress { shared, ticker, can_be_seen: visible && can_be_drawn() }
    }

    /// Counts this session once.
    pub(crate) fn watch(&self, session: &Session) {
        let mut sessions = self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if !sessions.iter().any(|known| known.counts_with(session)) {
            sessions.push(session.clone());
        }
    }

    /// Sets the start of the silence of a link that is no session; `None` if it is not silent.
    pub(crate) fn silent_since(&self, since: Option<Instant>) {
        *self.shared.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// More bytes are to be copied.
    pub(crate) fn expect(&self, bytes: u64) {
        self.shared.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file of `bytes` bytes is to be copied.
    pub(crate) fn expect_file(&self, bytes: u64) {
        self.shared.files.fetch_add(1, Ordering::Relaxed);
        self.expect(bytes);
    }

    /// A file is copied, or its copy has failed.
    pub(crate) fn file_done(&self) {
        self.shared.files_done.fetch_add(1, Ordering::Relaxed);
    }

    /// More files may be found until the guard is dropped.
    pub(crate) fn walk(&self) -> Walk {
        self.shared.walks.fetch_add(1, Ordering::Relaxed);
        Walk(self.shared.clone())
    }

    /// More bytes are to be compared.
    pub(crate) fn expect_comparison(&self, bytes: u64) {
        self.shared.to_compare.fetch_add(bytes, Ordering::Relaxed);
    }

    /// More bytes were compared.
    pub(crate) fn compare(&self, bytes: u64) {
        self.shared.compared.fetch_add(bytes, Ordering::Relaxed);
    }

    /// More bytes were copied.
    pub(crate) fn add(&self, bytes: u64) {
        self.shared.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were there before.
    pub(crate) fn skip(&self, bytes: u64) {
        self.shared.before.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes in holes: in the copy, and not copied.
    pub(crate) fn leave_out(&self, bytes: u64) {
        self.shared.in_holes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Prints something without tearing the bar. A blocked standard error holds up no other task.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        if self.can_be_seen { block_in_place(|| self.shared.bar.suspend(print)) } else { print() }
    }

    pub(crate) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// A file of `bytes` bytes at the destination is left as it is.
    pub(crate) fn pass_over(&self, bytes: u64) {
        self.shared.passed_over.fetch_add(bytes, Ordering::Relaxed);
        self.skip(bytes);
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

    /// Clears the bar. Returns whether one was shown, or would have been on a terminal that is not dumb.
    pub(crate) fn clear(&self) -> bool {
        self.shared.bar.finish_and_clear();
        self.shared.is_slow.load(Ordering::Relaxed) && io::stderr().is_terminal()
    }
}

/// A directory walk.
#[derive(Debug)]
pub(crate) struct Walk(Arc<Shared>);

impl Drop for Walk {
    fn drop(&mut self) {
        self.0.walks.fetch_sub(1, Ordering::Relaxed);
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

    /// The longest stall.
    fn stall(&self) -> CurrentStall {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        let link = since.map(|at| (Stall::Silent, at.elapsed()));
        let longest = sessions.iter().map(stall).chain(link).max_by_key(|(_, lasts)| *lasts);
        let (kind, lasts) = longest.unwrap_or((Stall::Silent, Duration::ZERO));
        CurrentStall { kind, lasts }
    }

    fn draw(&self) {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let found = get(&self.total);
        let total = found.saturating_sub(get(&self.before)).saturating_sub(get(&self.in_holes));
        let compared_max = if self.compares_all { found.saturating_sub(get(&self.passed_over)) } else { 0 };
        let to_compare = get(&self.to_compare).max(compared_max);
        let mut pace = Pace {
            done: get(&self.done).min(total),
            total,
            compared: get(&self.compared).min(to_compare),
            to_compare,
            files_done: get(&self.files_done),
            files: get(&self.files),
            is_counting: self.walks.load(Ordering::Relaxed) > 0,
            per_second: 0.0,
            left: Duration::ZERO,
        };
        self.bar.set_length(pace.whole());
        self.bar.set_position(pace.position());
        (pace.per_second, pace.left) = (self.bar.per_sec(), self.bar.eta());
        self.bar.set_message(line(&pace, self.calls().1, self.stall(), self.advice));
    }
}

/// Progress and rate.
#[derive(Default)]
struct Pace {
    /// Bytes copied, and bytes to copy as far as known.
    done: u64,
    total: u64,
    /// Bytes compared, and bytes to compare.
    compared: u64,
    to_compare: u64,
    files_done: u64,
    files: u64,
    /// A walk may find more.
    is_counting: bool,
    per_second: f64,
    left: Duration,
}

impl Pace {
    /// Bytes to copy and to compare.
    fn whole(&self) -> u64 {
        self.total.saturating_add(self.to_compare)
    }

    fn position(&self) -> u64 {
        self.done.saturating_add(self.compared)
    }

    /// Whether only flushing and renaming are left.
    fn is_finishing(&self) -> bool {
        !self.is_counting && self.whole() > 0 && self.position() >= self.whole()
    }
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

/// A stall and how long it has lasted; no time if there is none.
#[derive(Clone, Copy, Debug)]
struct CurrentStall {
    kind: Stall,
    lasts: Duration,
}

/// The most important part comes first and the bar last, for a narrow terminal cuts off the end. The bar is never full:
/// it is drawn only while something is left to do.
fn line(pace: &Pace, retransmissions: u64, stall: CurrentStall, advice: &str) -> String {
    let CurrentStall { kind, lasts } = stall;
    let mut parts = vec![format!("{} of {}", units::human(pace.done), units::human(pace.total))];
    if pace.files > 1 {
        parts.push(format!("{} of {} files", pace.files_done.min(pace.files), pace.files));
    }
    if pace.is_counting {
        parts.push("still counting".to_owned());
    }
    if pace.compared > 0 || (pace.to_compare > 0 && pace.done >= pace.total && !pace.is_counting) {
        parts.push(format!("{} of {} compared", units::human(pace.compared), units::human(pace.to_compare)));
    }
    if lasts > STALL {
        let what = match kind {
            Stall::Silent => "link silent",
            Stall::Deferred => "server busy",
        };
        let advice = if advice.is_empty() || lasts < LONG_STALL { String::new() } else { format!(" ({advice})") };
        parts.push(format!("{what} for {} s{advice}", lasts.as_secs()));
    } else if pace.is_finishing() {
        parts.push("finishing".to_owned());
    } else {
        parts.push(format!("{}/s", units::human(pace.per_second as u64)));
        if !pace.is_counting {
            parts.push(format!("{} s left", pace.left.as_secs()));
        }
    }
    if retransmissions > 0 {
        parts.push(format!("{retransmissions} retransmitted"));
    }
    let share = pace.position().saturating_mul(BAR).checked_div(pace.whole()).unwrap_or_default();
    let full = share.min(BAR - 1) as usize;
    let bar = "█".repeat(full) + &"░".repeat(BAR as usize - full);
    format!("{}  {bar}", parts.join(", "))
}

/// The line about a finished copy.
pub(crate) fn summary(bytes: u64, took: Duration, retransmissions: u64) -> String {
    let rate = (bytes as f64 / took.as_secs_f64().max(1e-3)) as u64;
    let again = if retransmissions > 0 { format!(", {retransmissions} retransmissions") } else { String::new() };
    format!("{} in {:.1} s ({}/s){again}", units::human(bytes), took.as_secs_f64(), units::human(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_STALL: CurrentStall = CurrentStall { kind: Stall::Silent, lasts: Duration::ZERO };

    fn text(pace: &Pace) -> String {
        line(pace, 0, NO_STALL, ADVICE)
    }

    #[test]
    fn line_shows_only_relevant_parts() {
        let pace = Pace {
            done: 1_000_000,
            total: 3_000_000,
            per_second: 5e5,
            left: Duration::from_secs(4),
            ..Pace::default()
        };
        let text = line(&pace, 0, CurrentStall { kind: Stall::Silent, lasts: Duration::from_millis(900) }, ADVICE);
        assert!(text.starts_with("1.0 MB of 3.0 MB, 500 kB/s, 4 s left  ██████████░░"), "{text}");
        let text = line(&pace, 3, CurrentStall { kind: Stall::Silent, lasts: Duration::from_secs(2) }, ADVICE);
        assert!(text.starts_with("1.0 MB of 3.0 MB, link silent for 2 s, 3 retransmitted  █"), "{text}");
        let text = line(&pace, 0, CurrentStall { kind: Stall::Deferred, lasts: Duration::from_secs(4) }, ADVICE);
        let advised = "server busy for 4 s (Ctrl-C keeps the received part, --resume continues)  █";
        assert!(text.starts_with(&format!("1.0 MB of 3.0 MB, {advised}")), "{text}");
        let text = line(&Pace { per_second: f64::NAN, ..Pace::default() }, 0, NO_STALL, "");
        assert!(text.starts_with("0 B of 0 B, 0 B/s"), "{text}");
        assert_eq!(summary(2_000_000, Duration::from_secs(4), 0), "2.0 MB in 4.0 s (500 kB/s)");
        assert_eq!(summary(0, Duration::ZERO, 1), "0 B in 0.0 s (0 B/s), 1 retransmissions");
    }

    #[test]
    fn line_of_a_tree_shows_counts_so_far() {
        let mut pace = Pace { done: 1000, total: 3000, files_done: 2, files: 7, is_counting: true, ..Pace::default() };
        assert!(text(&pace).starts_with("1.0 kB of 3.0 kB, 2 of 7 files, still counting, 0 B/s  █"), "{}", text(&pace));
        pace.done = pace.total;
        assert!(!text(&pace).contains("finishing"), "more may be found");
        pace = Pace { is_counting: false, done: 1000, ..pace };
        assert!(text(&pace).starts_with("1.0 kB of 3.0 kB, 2 of 7 files, 0 B/s, 0 s left  █"), "{}", text(&pace));
    }

    #[test]
    fn bar_is_never_full_and_phases_are_named() {
        let sent = Pace { done: 3000, total: 3000, ..Pace::default() };
        assert!(text(&sent).starts_with("3.0 kB of 3.0 kB, finishing  █") && text(&sent).ends_with('░'));
        let compares = Pace { to_compare: 3000, ..sent };
        let half = "█".repeat(15) + "░";
        assert!(text(&compares).starts_with("3.0 kB of 3.0 kB, 0 B of 3.0 kB compared, 0 B/s, 0 s left"));
        assert!(text(&compares).contains(&half), "{}", text(&compares));
        let compared = Pace { compared: 3000, ..compares };
        assert!(text(&compared).starts_with("3.0 kB of 3.0 kB, 3.0 kB of 3.0 kB compared, finishing  █"));
        assert!(text(&compared).ends_with('░'));
    }

    #[test]
    fn template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
