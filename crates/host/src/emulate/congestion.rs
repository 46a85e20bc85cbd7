//! TCP congestion control in a network namespace.
//!
//! Outside the initial namespace Linux accepts as default only the algorithms that unprivileged programs may choose
//! (`tcp_allowed_congestion_control`, ip-sysctl). That list is global and writable only in the initial namespace,
//! so a missing name is added for a moment. Emulators exclude each other by a lock on the list itself.

use std::fs::{self, File};
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::setup::EmulateError;

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Held while the global list is changed.
static CHANGED: Mutex<()> = Mutex::new(());

/// Waits until the global list is restored, and prevents further changes. Call it before the process ends while
/// emulators may be starting.
pub fn leave_machine() {
    std::mem::forget(CHANGED.lock());
}

/// Makes `name` the default in the namespace in which `inside` runs its work.
pub(super) fn set(
    name: &str,
    inside: impl Fn(&(dyn Fn() -> io::Result<()> + Sync)) -> io::Result<()>,
) -> Result<(), EmulateError> {
    check(name)?;
    let choose = || fs::write(DEFAULT, name);
    let done = match inside(&choose) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => while_allowed(name, || inside(&choose)),
        done => done,
    };
    done.map_err(|source| {
        let allowed = fs::read_to_string(ALLOWED).unwrap_or_default().trim().to_owned();
        EmulateError::Congestion { name: name.to_owned(), allowed, source }
    })
}

/// Runs `work` with `name` on the list, then restores it.
fn while_allowed(name: &str, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let turn = File::open(ALLOWED)?;
    flock(&turn, FlockOperation::LockExclusive)?;
    // Locked only now, after the lock of the list: the end of this process waits only for its own work.
    to_the_end(|| {
        let before = fs::read_to_string(ALLOWED)?;
        fs::write(ALLOWED, format!("{} {name}", before.trim()))?;
        let done = work();
        let put_back = fs::write(ALLOWED, before.trim());
        done.and(put_back)
    })
}

/// Runs work that the end of this process must not interrupt.
fn to_the_end<T>(work: impl FnOnce() -> T) -> T {
    let _changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Whether the kernel has the algorithm, or can load it.
fn check(name: &str) -> Result<(), EmulateError> {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let failed = EmulateError::system("out what congestion controls there are");
    let available = fs::read_to_string(AVAILABLE).map_err(failed)?;
    if plain && available.split_whitespace().any(|a| a == name) {
        return Ok(());
    }
    Err(EmulateError::NoCongestion { name: name.to_owned(), available: available.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn congestion_control_is_restored() {
        let (begins, begun) = channel();
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            to_the_end(|| {
                begins.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                done.send("put back").unwrap();
            });
        });
        begun.recv().unwrap();
        leave_machine();
        assert_eq!(is_done.try_recv(), Ok("put back"));
        let (begins, begun) = channel();
        std::thread::spawn(move || to_the_end(|| begins.send(())));
        assert!(begun.recv_timeout(Duration::from_millis(200)).is_err(), "it is changed once more");
    }
}
