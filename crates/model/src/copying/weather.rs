//! What a wireless medium does to a copy as a whole: bad periods stretch its round, and a block waits there for
//! no more than others send meanwhile.

use super::Round;
use super::needs::Needs;
use crate::cell::Cell;
use crate::wifi::Weather;

/// A wireless medium on a copy's way.
pub(super) struct Channel {
    pub(super) weather: Weather,
    /// For how long a block needs it, in seconds.
    pub(super) on_s: f64,
    /// For how long a block waits there for others, in seconds.
    pub(super) waits_s: f64,
}

impl Round<'_> {
    /// Each wait is found as if the others' queues did not remember the packet before; but all of them together
    /// are no longer than what the others send in one round. As one queue is served at a time: a wait is `x`,
    /// all else of the round `r`, the others send for `load * (r + x)`, some of that while the copy is elsewhere. On
    /// each medium from the round as it is without any such bound: none of them comes first.
    pub(super) fn wait_no_longer(&self, needs: &mut Needs, cells: &[Cell<'_>]) {
        let beyond_s = |(medium, channel): (&usize, &Channel)| {
            let cell = &cells[*medium];
            // What comes up in bad periods is sent in good ones.
            let later = channel.weather.bad_s / channel.weather.good_s;
            let load = cell.share(cell.all()) * (1.0 + later);
            let rest_s = needs.alone_s - channel.waits_s;
            let most_s = rest_s * load / (1.0 - load).max(1e-9);
            (channel.waits_s - most_s).max(0.0)
        };
        needs.alone_s -= needs.channels.iter().map(beyond_s).sum::<f64>();
    }

    /// Where the channel is not what the copy waits for, a window may outlast a bad period, wholly or in part:
    /// a doubt of all that bad periods cost. Where much of the time is bad, others' packets have gathered by
    /// the end of it.
    pub(super) fn outlast(&self, needs: &mut Needs) {
        let busiest = needs.servers.iter().map(|s| s.filled_s).fold(0.0, f64::max);
        for Channel { weather, on_s, .. } in needs.channels.values() {
            needs.bad_share = needs.bad_share.max(weather.bad_share());
            if self.copy.under_way() > 1 && *on_s < busiest {
                needs.outlasted += weather.bad_s / weather.good_s;
            }
        }
    }

    /// By how much bad periods stretch the time from block to block. They come with time, and hold up all of
    /// the window: as long as they last nothing else has much to do.
    pub(super) fn stretch(&self, needs: &Needs, blocks_per_s: f64) -> f64 {
        let window = f64::from(self.copy.under_way());
        // Data and replies, of each block under way.
        let of = |c: &Channel| c.weather.stretch(window / blocks_per_s, c.on_s * window, 2.0 * window);
        needs.channels.values().map(of).product()
    }
}
