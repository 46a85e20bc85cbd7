//! Signals that whoever started us has had ignored, as nohup(1) does with a hang-up, stay ignored: here, and in what we
//! start. (A signal that has a handler would be at its default again in a program that is started.)

use std::fs;
use std::io;
use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears a signal from now on; nothing is heard, and nothing changed, where it was ignored from the start.
pub fn unless_ignored(kind: SignalKind) -> io::Result<Option<Signal>> {
    if is_ignored(kind) { Ok(None) } else { signal(kind).map(Some) }
}

/// Whether it was ignored from the start.
fn is_ignored(kind: SignalKind) -> bool {
    static INHERITED: OnceLock<u64> = OnceLock::new();
    // Asked before the first handler, for a signal that has one is not ignored any more.
    let inherited = INHERITED.get_or_init(|| fs::read_to_string("/proc/self/status").map_or(0, |s| ignored(&s)));
    inherited & (1 << (kind.as_raw_value() - 1)) != 0
}

/// The set of ignored signals in a process's status (proc_pid_status(5)); the lowest bit is signal 1.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_status_tells_what_is_ignored() {
        let status = "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!((super::ignored(status), super::ignored("Name:\tx\n")), (0x1001, 0));
    }
}
