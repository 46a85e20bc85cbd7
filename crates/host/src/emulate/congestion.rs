//! TCP's congestion control in a namespace.
//!
//! Outside the initial namespace Linux sets a default only from those that unprivileged
//! programs may choose (`tcp_allowed_congestion_control`, ip-sysctl). That list belongs to the
//! whole machine, so a name that is not on it is there only for the moment it takes.

use std::fs;
use std::io;

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// Another emulator may put the list back between our two writes; not often.
const TRIES: u32 = 20;

/// Makes `name` the default in the namespace that `inside` runs its work in.
pub(super) fn set(
    name: &str,
    inside: impl Fn(&(dyn Fn() -> io::Result<()> + Sync)) -> io::Result<()>,
) -> io::Result<()> {
    check(name)?;
    let choose = || fs::write(DEFAULT, name);
    for _ in 0..TRIES {
        match inside(&choose) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
        let allowed = fs::read_to_string(ALLOWED)?;
        fs::write(ALLOWED, format!("{} {name}", allowed.trim()))?;
        let done = inside(&choose);
        // It was not on the list; if it is now, that was another emulator, for a moment.
        let before: Vec<&str> = allowed.split_whitespace().filter(|a| *a != name).collect();
        fs::write(ALLOWED, before.join(" "))?;
        match done {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
    }
    Err(io::Error::other(format!("TCP congestion control {name}: the system does not allow it")))
}

/// Whether the kernel has it, or can load it.
fn check(name: &str) -> io::Result<()> {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let available = fs::read_to_string(AVAILABLE)?;
    if plain && available.split_whitespace().any(|a| a == name) {
        return Ok(());
    }
    let why = format!("no TCP congestion control '{name}' here; there are: {}", available.trim());
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
