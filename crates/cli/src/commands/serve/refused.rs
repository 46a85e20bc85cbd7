//! What the operator hears when no more files may be open: who asks then is told to come again, and sees but that
//! it takes long.

use std::time::Duration;

use remora_vfs::local::{FdExhaustion, fd_exhaustion};
use rustix::process::{Resource, getrlimit};
use tokio::time::{Instant, interval};

use crate::commands::serve::console::Voice;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often there is a line.
const EVERY: Duration = Duration::from_secs(60);

/// Says so, for as long as the process lives.
pub(crate) fn tell(voice: Voice) {
    tokio::spawn(async move {
        let (mut look, mut told) = (interval(LOOK), Told::default());
        loop {
            let now = look.tick().await;
            if let Some(times) = told.due(now, fd_exhaustion().count) {
                voice.say(line(times, fd_exhaustion(), getrlimit(Resource::Nofile).current));
            }
        }
    });
}

/// What has been said.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    times: u64,
}

impl Told {
    /// It has happened so often by now. Where that is to be told, how often since the last time.
    fn due(&mut self, now: Instant, times: u64) -> Option<u64> {
        if times == self.times || self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(times - std::mem::replace(&mut self.times, times))
    }
}

fn line(times: u64, what: FdExhaustion, limit: Option<u64>) -> String {
    let (whose, todo) = match what.system_wide {
        true => ("on this machine (ENFILE)".to_owned(), "raise the system's limit, sysctl fs.file-max"),
        false => {
            let limit = limit.map_or("its limit".to_owned(), |limit| limit.to_string());
            (
                format!("in this process (EMFILE; it may have {limit})"),
                "raise LimitNOFILE= or ulimit -Hn, and restart it",
            )
        }
    };
    let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("remora: serve: no more files may be open {whose}, {often}: clients are made to wait; {todo}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_minute_for_as_long_as_it_goes_on() {
        let (start, mut told) = (Instant::now(), Told::default());
        for (secs, times, due) in
            [(0, 0, None), (2, 3, Some(3)), (4, 3, None), (6, 9, None), (62, 10, Some(7)), (500, 10, None)]
        {
            assert_eq!(told.due(start + Duration::from_secs(secs), times), due, "after {secs} s");
        }
    }

    #[test]
    fn it_says_whose_limit_it_is_and_what_to_do() {
        let ours = line(2, FdExhaustion { count: 9, system_wide: false }, Some(64));
        let once = "remora: serve: no more files may be open in this process (EMFILE; it may have 64), 2 times: \
                    clients are made to wait; raise LimitNOFILE= or ulimit -Hn, and restart it";
        assert_eq!(ours, once);
        let theirs = line(1, FdExhaustion { count: 9, system_wide: true }, Some(64));
        assert!(theirs.contains("(ENFILE), once: clients") && theirs.contains("fs.file-max"), "{theirs}");
    }
}
