//! Signals of programs that wait for a request.
//!
//! The kernel sends at most one INTERRUPT for a request, whatever the signal. Answering it, or ending the request with
//! EINTR, would break programs that handle the signal and expect the call to go on. So the first INTERRUPT starts a
//! watch over the waiting thread, and the request ends only once a signal that kills the program is pending.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno as SystemError;
use rustix::process::{Pid, test_kill_process};

/// Interval between two looks at a thread.
const INTERVAL: Duration = Duration::from_millis(20);
/// Time after which the call of a thread that cannot be watched ends.
const UNKNOWN_AFTER: Duration = Duration::from_secs(1);

/// Length of a thread's `status` in bytes: usually less than this, and at most.
const PROC_FILE: usize = 4096;
const PROC_FILE_MAX: u64 = 1 << 20;

const SIGKILL: u32 = 9;
/// Signals that do not end a program by default: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
/// Flag in `/proc/PID/stat` of a thread that exits (`PF_EXITING`).
const PF_EXITING: u32 = 0x4;

/// Watches the threads whose requests were interrupted.
#[derive(Default)]
pub struct InterruptWatch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The watched threads by the numbers of their requests.
    watched: BTreeMap<u64, Watched>,
    is_stopped: bool,
}

#[derive(Clone, Copy)]
struct Watched {
    pid: u32,
    since: Instant,
}

impl InterruptWatch {
    /// Starts to watch thread `pid`, which waits for request `unique` and has a signal pending.
    pub fn watch(&self, unique: u64, pid: u32) {
        let watched = Watched { pid, since: Instant::now() };
        self.lock().watched.entry(unique).or_insert(watched);
        self.changed.notify_all();
    }

    /// Ends the watch for request `unique`, which is answered.
    pub fn forget(&self, unique: u64) {
        self.lock().watched.remove(&unique);
    }

    /// Calls `on_fatal` with the number of each request whose thread must end, at every look until
    /// [`forget`](InterruptWatch::forget): the request may not have reached its handler yet. Returns after
    /// [`stop`](InterruptWatch::stop), and sleeps while no thread is watched.
    pub fn run(&self, on_fatal: impl Fn(u64)) {
        loop {
            let mut state = self.lock();
            while state.watched.is_empty() && !state.is_stopped {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_stopped {
                return;
            }
            let watched = state.watched.clone();
            drop(state);
            for (unique, watched) in watched {
                if watched.must_end() {
                    on_fatal(unique);
                }
            }
            let state = self.lock();
            if !state.is_stopped {
                drop(self.changed.wait_timeout(state, INTERVAL).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Makes [`run`](InterruptWatch::run) return.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn must_end(&self) -> bool {
        // Thread 0 is one in another PID namespace.
        let status = if self.pid == 0 { None } else { proc_file(self.pid, "status").ok() };
        status.map_or_else(|| self.since.elapsed() >= UNKNOWN_AFTER, |status| is_fatal(&status))
    }
}

/// Whether a signal is pending that ends the thread with this status (proc_pid_status(5)): SIGKILL, or one that is
/// neither caught, ignored nor blocked, and fatal by default.
pub fn is_fatal(status: &str) -> bool {
    let set = |name: &str| {
        let set = status.lines().find_map(|line| line.strip_prefix(name));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
    };
    let pending = set("SigPnd:") | set("ShdPnd:");
    let spared = set("SigBlk:") | set("SigIgn:") | set("SigCgt:") | HARMLESS.iter().fold(0, |all, s| all | bit(*s));
    pending & (bit(SIGKILL) | !spared) != 0
}

/// The bit of a signal in a set.
const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The file `name` of thread `pid` in `/proc`: at each close, so in few system calls.
pub fn proc_file(pid: u32, name: &str) -> io::Result<String> {
    let mut text = String::with_capacity(PROC_FILE);
    File::open(format!("/proc/{pid}/{name}"))?.take(PROC_FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether thread `pid` exits, so that it closes its files without anybody to receive an error.
pub fn is_exiting(pid: u32) -> bool {
    pid != 0 && proc_file(pid, "stat").is_ok_and(|stat| has_exiting_flag(&stat))
}

/// Whether thread `pid` no longer exists. The kernel reads ahead in a thread's name and does not tell of its end.
pub fn has_ended(pid: u32) -> bool {
    let thread = i32::try_from(pid).ok().and_then(Pid::from_raw);
    thread.is_some_and(|thread| test_kill_process(thread) == Err(SystemError::SRCH))
}

/// Judges a line of `/proc/PID/stat` (proc_pid_stat(5)).
fn has_exiting_flag(stat: &str) -> bool {
    // The program's name, in parentheses, may hold any character.
    let flags = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    const INT: u32 = 2;
    const QUIT: u32 = 3;
    const ALRM: u32 = 14;
    const URG: u32 = 23;
    const TSTP: u32 = 20;
    const REALTIME: u32 = 64;

    /// A status with the sets SigPnd, ShdPnd, SigBlk, SigIgn, SigCgt.
    fn status(sets: [&[u32]; 5]) -> String {
        let names = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
        let lines = names.iter().zip(sets).map(|(name, signals)| {
            let set = signals.iter().fold(0, |all, signal| all | bit(*signal));
            format!("{name}:\t{set:016x}\n")
        });
        format!("Name:\tx\nSigQ:\t1/30000\n{}Threads:\t1\n", lines.collect::<String>())
    }

    #[test]
    fn only_a_signal_that_kills_is_fatal() {
        for (sets, fatal) in [
            ([&[][..], &[], &[], &[], &[]], false),
            ([&[SIGKILL], &[], &[], &[], &[]], true),
            ([&[], &[SIGKILL], &[], &[], &[]], true),
            ([&[SIGKILL], &[], &[SIGKILL], &[], &[]], true),
            ([&[], &[INT], &[], &[], &[]], true),
            ([&[QUIT], &[], &[], &[], &[]], true),
            ([&[], &[REALTIME], &[], &[], &[]], true),
            ([&[], &[INT], &[INT], &[], &[]], false),
            ([&[], &[INT], &[], &[INT], &[]], false),
            ([&[], &[INT], &[], &[], &[INT]], false),
            ([&[ALRM], &[INT], &[], &[INT], &[ALRM]], false),
            ([&[ALRM], &[INT], &[], &[], &[ALRM]], true),
            ([&[], &[URG, TSTP], &[], &[], &[]], false),
            ([&[], &[URG, SIGKILL], &[], &[], &[URG]], true),
        ] {
            assert_eq!(is_fatal(&status(sets)), fatal, "{sets:?}");
        }
        assert!(!is_fatal(""));
        assert!(!is_fatal("SigPnd:\tnonsense\n"));
    }

    #[test]
    fn exiting_flag_is_found_behind_any_name() {
        let stat = |name: &str, flags: u32| format!("12 ({name}) S 1 12 12 0 -1 {flags} 95 0 0 0 0 0 0 0 20 0 1");
        for name in ["cat", "a) S 1 12 12 0 -1 4 (b", "a b"] {
            assert!(has_exiting_flag(&stat(name, 0x40_0104)), "{name}");
            assert!(!has_exiting_flag(&stat(name, 0x40_0100)), "{name}");
        }
        assert!(!has_exiting_flag(""));
        assert!(!is_exiting(std::process::id()) && !is_exiting(0));
    }

    #[test]
    fn thread_has_ended_only_once_its_parent_knows() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        assert!(!has_ended(pid) && !has_ended(0) && !has_ended(u32::MAX));
        child.wait().unwrap();
        assert!(has_ended(pid));
    }

    #[test]
    fn thread_that_cannot_be_seen_ends_and_a_healthy_one_goes_on() {
        let watch = Arc::new(InterruptWatch::default());
        let (ended, ends) = mpsc::channel();
        let runner = std::thread::spawn({
            let watch = watch.clone();
            move || watch.run(|unique| ended.send(unique).unwrap())
        });
        let start = Instant::now();
        watch.watch(1, std::process::id());
        watch.watch(2, 0);
        watch.watch(3, 0);
        watch.forget(3);
        assert_eq!(ends.recv_timeout(Duration::from_secs(60)), Ok(2));
        assert!(start.elapsed() >= UNKNOWN_AFTER);
        assert_eq!(ends.recv_timeout(Duration::from_secs(60)), Ok(2), "until it is forgotten");
        watch.stop();
        runner.join().unwrap();
        assert!(ends.iter().all(|unique| unique == 2), "neither the healthy nor the forgotten");
    }
}
