//! The floor: the earliest time at which a perfect sender could deliver a file over this error
//! process.

use remora_base::Time;

use crate::config::{Config, ConfigError};
use crate::error_process::ErrorProcess;
use crate::lane::Side;
use crate::medium::LinkRate;
use crate::traffic::{IP_HEADER, UDP_HEADER};

/// Bad periods passed before a file is called impossible: 50 days with the papers' means.
const PERIODS_MAX: u32 = 1 << 22;

/// The earliest time at which the channel of this configuration and seed could have carried
/// `file_bytes` bytes from side `from` to the other, beginning at `start`. `None` if it is not
/// within the next 2^22 bad periods (or every frame is lost). For a mobile other than the first,
/// pass its own seed, [`Channel::seed_of`](crate::Channel::seed_of). The side matters only with a
/// trace.
///
/// Full frames go back to back, each with an IP and a UDP header, then the rest of the file in a
/// short one. A frame that would overlap a bad period waits for the next good period into which it
/// fits. The one-way delay of the last frame is added; an empty file takes no time. Queueing, other
/// traffic, slow receivers and protocol overhead cost nothing.
///
/// Independent loss enters as its expected value, 1 / (1 - loss) times as many frames, so with loss
/// a lucky run can beat the floor. So can, by a few parts in a thousand, datagrams longer than the
/// MTU (their later fragments have no UDP header) and frames cut to fill the ends of good periods.
pub fn floor(
    config: &Config,
    seed: u64,
    from: Side,
    file_bytes: u64,
    start: Time,
) -> Result<Option<Time>, ConfigError> {
    let mut errors = ErrorProcess::new(config, seed)?;
    Ok(earliest(config, &mut errors, LinkRate::new(config, from), file_bytes, start))
}

fn earliest(config: &Config, errors: &mut ErrorProcess, rate: LinkRate, file_bytes: u64, start: Time) -> Option<Time> {
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

    let mut sender = Sender { errors, rate, at: start, budget: PERIODS_MAX };
    sender.send(full.saturating_add(resent), mtu)?;
    if rest > 0 {
        sender.send(1, rest + headers)?;
    }
    Some(sender.at + config.delay)
}

/// Bad periods it may still wait for.
struct Sender<'a> {
    errors: &'a mut ErrorProcess,
    rate: LinkRate,
    at: Time,
    /// Sends `frames` frames of `bytes` bytes, one good period's worth at a time. `None` at the end
    /// of time.
    budget: u32,
}

impl Sender<'_> {
    /// Sends `frames` frames of `bytes` bytes, a good period's worth at a time. `None` if the end
    /// of time comes first.
    fn send(&mut self, mut frames: u64, bytes: u64) -> Option<()> {
        while frames > 0 {
            let rate = &self.rate;
            let one = |at| rate.send(at, bytes, 1).airtime;
            let at = self.errors.first_fit_within(self.at, &mut self.budget, one)?;
            let all = rate.send(at, bytes, frames).airtime;
            let fit = match self.errors.first_bad(all.start, all.end) {
                None => frames,
                // At least the one frame that fits, and never more than are left.
                Some(bad) => rate.frames_until(at, bytes, bad.start).clamp(1, frames),
            };
            let sent = rate.send(at, bytes, fit);
            self.rate.use_up(&sent);
            self.at = sent.end;
            frames -= fit;
        }
        (self.at < Time::MAX).then_some(())
    }
}
