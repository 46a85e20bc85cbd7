//! Cell switches are announced while a copy runs, as on a mobile: by the link where there is
//! one, which tells the other end and the programs, and otherwise by any program (NFS/W 95 and
//! 97 plan for the signal; `docs/guide/handoff.md` is the protocol).

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use remora_host::handoff::{self, Signal};
use remora_sim::copy::SWITCH_NOTICE;

use super::super::job::HandOff;
use super::bench::Scene;
use super::carrier::HAND_OFF;
use super::{Result, failed, failed_with};

/// How soon it is noticed that the copy is over.
const TICK: Duration = Duration::from_millis(10);

/// Announces each switch shortly before it begins, as the simulator does, and its end.
pub(super) fn announce(scene: &Scene<'_>, switches: &[HandOff]) -> Result<()> {
    for switch in switches.iter().filter(|s| s.announced) {
        let notice = switch.at - SWITCH_NOTICE;
        let begin = Signal::Begin(SWITCH_NOTICE + switch.length);
        for (at, signal) in [(notice, begin), (switch.at + switch.length, Signal::End)] {
            let due = scene.began + Duration::from_nanos(at.as_nanos());
            if !wait(scene, due) {
                return Ok(());
            }
            let told = tell(scene, signal).map_err(failed_with("a hand-off signal"))?;
            if !told && !scene.over.load(Ordering::Acquire) {
                return Err(failed("nobody listens for hand-off signals".into()));
            }
        }
    }
    Ok(())
}

/// Waits; whether the copy is still under way then.
fn wait(scene: &Scene<'_>, due: Instant) -> bool {
    while !scene.over.load(Ordering::Acquire) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TICK));
    }
    false
}

/// Whether anybody was told.
fn tell(scene: &Scene<'_>, signal: Signal) -> io::Result<bool> {
    match scene.tunnel {
        Some(tunnel) => tunnel.hand_off(signal).map(|()| true),
        None => handoff::announce_in(&scene.scratch.path(HAND_OFF), signal).map(|told| told > 0),
    }
}
