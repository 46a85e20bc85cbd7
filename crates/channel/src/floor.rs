//! The floor: how soon a perfect sender could have had a file across, in this very weather.

use std::time::Duration;

use remora_base::Time;

use crate::burst::nanos;
use crate::config::{Config, ConfigError};
use crate::fragment::{IP_HEADER, UDP_HEADER};
use crate::weather::Weather;

/// Bad periods passed over before a file is called impossible: 50 days with the papers' means.
const PERIODS_MAX: u32 = 1 << 22;

/// The first moment at which the channel of this configuration and seed could have carried
/// `file_bytes` bytes one way, beginning at `start`. `None` if that is not within the next 2^22
/// bad periods (or every frame is lost).
///
/// Full frames go back to back, each with an IP and a UDP header of its own, then the rest of
/// the file in a short one. A frame that would touch a bad period waits for the next good
/// period that it fits into. The one-way delay of the last frame is added; an empty file takes
/// no time. Queueing, the other direction's traffic and all protocol are free.
///
/// Independent loss enters as its expected value, 1 / (1 - loss) times as many frames, so with
/// loss a lucky run can beat the floor. So can, by a few parts in a thousand, datagrams longer
/// than the MTU (their later fragments have no UDP header) and frames cut to fill the ends of
/// good periods.
pub fn floor(config: &Config, seed: u64, file_bytes: u64, start: Time) -> Result<Option<Time>, ConfigError> {
    let mut weather = Weather::new(config, seed)?;
    Ok(earliest(config, &mut weather, file_bytes, start))
}

fn earliest(config: &Config, weather: &mut Weather, file_bytes: u64, start: Time) -> Option<Time> {
    if file_bytes == 0 {
        return Some(start);
    }
    if config.loss >= 1.0 {
        return None;
    }
    let headers = (IP_HEADER + UDP_HEADER) as u64;
    let mtu = config.mtu as u64;
    let room = mtu - headers; // the MTU is at least 576
    let (full, rest) = (file_bytes / room, file_bytes % room);
    let count = full + u64::from(rest > 0);
    let resent = ((count as f64 / (1.0 - config.loss)).ceil() as u64).saturating_sub(count);

    let mut budget = PERIODS_MAX;
    let full_airtime = config.rate.airtime(mtu);
    let mut at = carry(weather, start, full.saturating_add(resent), full_airtime, &mut budget)?;
    if rest > 0 {
        at = carry(weather, at, 1, config.rate.airtime(rest + headers), &mut budget)?;
    }
    Some(at + config.delay)
}

/// When `frames` frames of the given airtime have been sent, a good period's worth at a time.
fn carry(weather: &mut Weather, from: Time, mut frames: u64, airtime: Duration, budget: &mut u32) -> Option<Time> {
    let each = nanos(airtime);
    let mut at = from;
    while frames > 0 {
        at = weather.first_fit_within(at, airtime, budget)?;
        let all = at + Duration::from_nanos(each.saturating_mul(frames));
        let good_until = weather.first_bad(at, all).map_or(all, |bad| bad.start);
        // At least the one frame that fits, and never more than are left.
        let fit = (nanos(good_until.since(at)) / each).clamp(1, frames);
        at += Duration::from_nanos(each.saturating_mul(fit));
        frames -= fit;
    }
    (at < Time::MAX).then_some(at)
}
