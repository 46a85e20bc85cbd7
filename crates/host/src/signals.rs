//! Signal handlers that respect ignored signals. A signal that the parent ignores, as nohup(1) does with SIGHUP,
//! stays ignored, here and in child processes. (A signal with a handler would get its default action in children.)

use std::fs;
use std::io;
use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Installs a handler. `None` if the signal was ignored at the start; then nothing changes.
pub fn unless_ignored(kind: SignalKind) -> io::Result<Option<Signal>> {
    if is_ignored(kind) { Ok(None) } else { signal(kind).map(Some) }
}

/// Whether the signal was ignored at the start.
fn is_ignored(kind: SignalKind) -> bool {
    static INHERITED: OnceLock<u64> = OnceLock::new();
    // Read before the first handler is installed: a signal with a handler is no longer ignored.
    let inherited = INHERITED.get_or_init(|| fs::read_to_string("/proc/self/status").map_or(0, |s| ignored(&s)));
    inherited & (1 << (kind.as_raw_value() - 1)) != 0
}

/// The set of ignored signals in a process's status (proc_pid_status(5)). Bit 0 is signal 1.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn process_status_shows_ignored_signals() {
        let status = "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!((super::ignored(status), super::ignored("Name:\tx\n")), (0x1001, 0));
    }
}
