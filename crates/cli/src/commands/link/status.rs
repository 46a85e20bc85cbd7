//! `remora link status` and `remora link handoff`: over the control sockets of running links.

use std::io;
use std::path::{Path, PathBuf};

use remora_host::handoff::{EXPECTED_MAX, Signal};
use remora_host::link::{LinkReport, PeerReport, control};

use crate::commands::link::dashboard::state_text;
use crate::commands::link::flags::{Handoff, LinkHandoffPhase, Status};
use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

pub(crate) fn show(args: &Status) -> Result {
    each(args.device.as_deref(), |path| {
        let report = control::status(path).map_err(|e| unasked(path, e))?;
        if args.json { stdio::print_json(&report) } else { stdio::print(&text(&report)) }
    })
}

/// Does it with each link, and says at the end with which it failed: one that stands still hides no other.
fn each(device: Option<&str>, mut work: impl FnMut(&Path) -> Result) -> Result {
    let mut failures = Vec::new();
    for path in running(device)? {
        match work(&path) {
            Ok(()) => {}
            Err(failure @ (Error::Local { .. } | Error::Refused { .. })) => failures.push(failure),
            // Nobody reads, and the like.
            Err(other) => return Err(other),
        }
    }
    failures.iter().for_each(|failure| stdio::print_error("link", failure));
    failures.iter().map(Error::code).max().map_or(Ok(()), |worst| Err(Error::Reported(worst)))
}

/// The error of a link that did not answer on `path`.
fn unasked(path: &Path, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::refused(path.display(), "the link does not answer")
        }
        _ => Error::local(path.display())(e),
    }
}

pub(crate) fn hand_off(args: &Handoff) -> Result {
    let signal = match args.phase {
        LinkHandoffPhase::Begin { expected } if expected > EXPECTED_MAX || expected.is_zero() => {
            return Err(Error::Usage(format!("the duration must be above 0 and at most {EXPECTED_MAX:?}")));
        }
        LinkHandoffPhase::Begin { expected } => Signal::Begin(expected),
        LinkHandoffPhase::End => Signal::End,
    };
    each(args.device.as_deref(), |path| control::hand_off(path, signal).map_err(|e| unasked(path, e)))
}

/// The control sockets of links on `device`, or of all.
fn running(device: Option<&str>) -> Result<Vec<PathBuf>> {
    let Some(dir) = control::directory() else {
        return Err(Error::refused("status", "XDG_RUNTIME_DIR is not set: links of this user have no control socket"));
    };
    let all = control::sockets(&dir).map_err(Error::local(dir.display()))?;
    if all.is_empty() {
        return Err(Error::refused(
            "status",
            "no link of this user runs on this machine (start one with remora link base or mobile)",
        ));
    }
    let Some(device) = device else { return Ok(all) };
    let (wanted, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| control::device_of(p) == device);
    if wanted.is_empty() {
        let others: Vec<_> = others.iter().map(|p| escape::printable(control::device_of(p).as_bytes())).collect();
        let why = format!("no link of this user has this device; the devices are {}", others.join(", "));
        return Err(Error::refused(device, why));
    }
    Ok(wanted)
}

fn text(report: &LinkReport) -> String {
    let rate = report.rate_bits.map_or_else(|| "rate not known yet".to_owned(), |b| format!("{b} bit/s"));
    let mut text = format!("{} on {}, packets up to {} bytes, {rate}\n", report.role, report.device, report.mtu);
    for peer in &report.peers {
        text.push_str(&peer_text(peer));
    }
    match report.drops.total() {
        0 => {}
        1 => text.push_str("  1 datagram or packet went nowhere; --json says why\n"),
        drops => text.push_str(&format!("  {drops} datagrams and packets went nowhere; --json says why\n")),
    }
    text
}

fn peer_text(p: &PeerReport) -> String {
    let f = &p.figures;
    let at = p.endpoint.map_or_else(|| "nowhere yet".to_owned(), |e| e.to_string());
    // A mobile without a name goes by its address, and the base has none here.
    let address = p.address.map(|a| a.to_string()).filter(|a| *a != p.name);
    let address = address.map_or_else(String::new, |a| format!(" ({a})"));
    let trip = f.round_trip_ms.map_or_else(String::new, |ms| format!(", round trip {ms:.1} ms"));
    format!(
        "  {}{address} at {at}: {}{trip}\n    queue {} packets ({}), {} sent and not acknowledged\n    \
         sent {}, received {}; {} frames, {} again; {} given up, {} dropped\n",
        p.name,
        state_text(p),
        f.queue_packets,
        units::human(f.queue_bytes as u64),
        f.unacknowledged,
        units::human(f.acknowledged_bytes),
        units::human(f.delivered_bytes),
        f.frames,
        f.retransmitted,
        f.abandoned,
        f.dropped,
    )
}
