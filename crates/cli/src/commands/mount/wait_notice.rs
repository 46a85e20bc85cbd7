//! Notices of a mount in the foreground: which program waits for the server.

use std::time::{Duration, Instant};

use remora_host::mount::RunningMount;
use remora_host::mount::report::HeldReport;

use crate::commands::mount::status::held_text;
use crate::output::stdio;

/// Wait that is worth words.
const WAIT_MIN_MS: u64 = 3000;
/// Interval of looking.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest time between two notices.
const INTERVAL: Duration = Duration::from_secs(60);

/// Prints what waits for long. Never ends.
pub(super) async fn print(mount: &RunningMount) {
    let mut notice = WaitNotice::default();
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(text) = notice.look(&mount.held(), Instant::now()) {
            stdio::eprint(format_args!("{text}"));
        }
    }
}

/// Says once that programs wait, until none waits any more, and at most once in [`INTERVAL`].
#[derive(Debug, Default)]
struct WaitNotice {
    is_said: bool,
    quiet_until: Option<Instant>,
}

impl WaitNotice {
    /// What to say of the calls that wait, the oldest first.
    fn look(&mut self, held: &[HeldReport], now: Instant) -> Option<String> {
        let Some(oldest) = held.first().filter(|oldest| oldest.waits_ms >= WAIT_MIN_MS) else {
            self.is_said = false;
            return None;
        };
        if self.is_said || self.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        self.is_said = true;
        self.quiet_until = Some(now + INTERVAL);
        let others = match held.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more (remora status shows them)"),
        };
        Some(format!("{}{others}", held_text(oldest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(waits_ms: u64) -> HeldReport {
        let (operation, path) = ("read".into(), "/a".into());
        HeldReport { pid: 7, program: "cat".into(), operation, path, waits_ms }
    }

    #[test]
    fn long_wait_is_said_once() {
        let (start, mut notice) = (Instant::now(), WaitNotice::default());
        let mut look = |held: &[HeldReport], seconds| notice.look(held, start + Duration::from_secs(seconds));
        assert_eq!(look(&[held(2900)], 0), None);
        assert_eq!(look(&[held(3100)], 1).as_deref(), Some("cat (pid 7) waits for read of /a for 3.1 s"));
        assert_eq!(look(&[held(9000)], 100), None, "it was said");
        assert_eq!(look(&[], 101), None);
        let text = look(&[held(3000), held(100)], 110).unwrap();
        assert!(text.ends_with(" for 3.0 s, and 1 more (remora status shows them)"), "{text}");
        assert_eq!(look(&[], 111), None);
        assert_eq!(look(&[held(3000)], 115), None, "too soon");
        assert!(look(&[held(63_000)], 175).is_some(), "it still waits");
    }
}
