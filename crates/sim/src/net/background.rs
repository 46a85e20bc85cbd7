//! Background load (Copy 89, section 3.2): stations on the mobiles' medium that send packets to the
//! base station's side, as `udpsend` does to `udprecv`.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};
use remora_channel::{Channel, Config, ConfigError, Lane, Side};

/// Time until a load is steady: a station's device queue of 50 frames fills and empties several times.
pub(crate) const START: Duration = Duration::from_secs(2);
/// Shortest time between two packets of a station: a bound for rates beyond all media.
const INTERVAL_MIN: Duration = Duration::from_micros(1);

/// Stations that send packets at random times (Poisson). Packets beyond a station's device queue
/// are dropped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BackgroundLoad {
    /// Stations with an equal part of the load each.
    pub stations: usize,
    /// Packets per second of all stations together.
    pub packets_per_s: f64,
    /// Length of a packet in bytes, IP header included.
    pub packet_bytes: usize,
}

impl BackgroundLoad {
    /// A load of this share of the rate, in bits of its packets.
    pub fn share_of(rate_bits_per_s: u64, share: f64, stations: usize, packet_bytes: usize) -> BackgroundLoad {
        let packets_per_s = share * rate_bits_per_s as f64 / (packet_bytes.max(1) * 8) as f64;
        BackgroundLoad { stations, packets_per_s, packet_bytes }
    }
}

/// What a medium carried in some time.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Carried {
    pub seconds: f64,
    /// Frames of the load.
    pub frames: u64,
    /// Their time, in seconds.
    pub load_s: f64,
    /// Time in which the medium was in use: all frames; with collisions also gaps, collisions and
    /// back-off. In seconds.
    pub used_s: f64,
    pub collisions: u64,
    /// Frames of the load given up after sixteen collisions.
    pub given_up: u64,
}

impl Carried {
    /// The load's frames as a share of the time.
    pub fn load(&self) -> f64 {
        self.load_s / self.seconds
    }

    /// The time in which the medium was in use, as a share.
    pub fn used(&self) -> f64 {
        self.used_s / self.seconds
    }

    /// The counters of a channel with load stations from mobile `first` on, since its start.
    fn until(channel: &Channel, first: usize, now: Time) -> Carried {
        let lanes = (first..channel.mobiles()).map(|mobile| Lane { mobile, from: Side::Mobile });
        let stats = lanes.map(|lane| channel.stats(lane));
        let mut carried = Carried {
            seconds: now.as_secs_f64(),
            used_s: channel.in_use().as_secs_f64(),
            collisions: channel.collisions(),
            ..Carried::default()
        };
        for stats in stats {
            carried.frames += stats.frames_sent;
            carried.load_s += stats.airtime.as_secs_f64();
            carried.given_up += stats.frames_collided;
        }
        carried
    }

    /// The difference between these counts and the `earlier` ones.
    pub(crate) fn since(self, earlier: Carried) -> Carried {
        Carried {
            seconds: self.seconds - earlier.seconds,
            frames: self.frames - earlier.frames,
            load_s: self.load_s - earlier.load_s,
            used_s: self.used_s - earlier.used_s,
            collisions: self.collisions - earlier.collisions,
            given_up: self.given_up - earlier.given_up,
        }
    }
}

/// The senders of a load.
#[derive(Debug)]
pub(crate) struct Background {
    /// The first sender's mobile; the others follow.
    first: usize,
    /// Mean time between two packets of a station, in seconds.
    interval_s: f64,
    packet: Bytes,
    senders: Vec<Sender>,
}

#[derive(Debug)]
struct Sender {
    next: Time,
    rng: Rng,
}

impl Background {
    /// Senders on the mobiles from `first` on. None send at a rate of 0.
    pub(crate) fn new(load: &BackgroundLoad, first: usize, seed: u64) -> Background {
        let stations = if load.packets_per_s > 0.0 { load.stations } else { 0 };
        let interval_s = stations as f64 / load.packets_per_s;
        let sender = |i: usize| Sender { next: Time::ZERO, rng: Rng::stream(seed, &format!("background {i}")) };
        let packet = Bytes::from(vec![0; load.packet_bytes]);
        let mut background = Background { first, interval_s, packet, senders: (0..stations).map(sender).collect() };
        (0..stations).for_each(|i| background.plan(i, Time::ZERO));
        background
    }

    fn plan(&mut self, sender: usize, now: Time) {
        let Sender { next, rng } = &mut self.senders[sender];
        // The argument is in (0, 1], so the logarithm is finite.
        let interval_s = -(1.0 - rng.unit()).ln() * self.interval_s;
        *next = now + Duration::try_from_secs_f64(interval_s).unwrap_or(Duration::MAX).max(INTERVAL_MIN);
    }

    /// When the next packet is sent.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.senders.iter().map(|sender| sender.next).min()
    }

    /// The next packet that is sent by `now`.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(Time, Lane, Bytes)> {
        let (sender, at) = self.senders.iter().map(|s| s.next).enumerate().min_by_key(|(_, next)| *next)?;
        (at <= now).then(|| {
            self.plan(sender, at);
            (at, Lane { mobile: self.first + sender, from: Side::Mobile }, self.packet.clone())
        })
    }

    pub(crate) fn carried(&self, channel: &Channel, now: Time) -> Carried {
        Carried::until(channel, self.first, now)
    }
}

/// What a load carries on a medium that nobody else uses, in `length` from its steady state on.
pub fn carried_alone(
    config: &Config,
    load: &BackgroundLoad,
    length: Duration,
    seed: u64,
) -> Result<Carried, ConfigError> {
    let mut channel = Channel::with_mobiles(config.clone(), seed, load.stations)?;
    let mut background = Background::new(load, 0, seed);
    let mut until = |end: Time| {
        while let Some((at, lane, packet)) = background.poll(end) {
            channel.send_packet(at, lane, packet);
            while channel.poll_delivery(at).is_some() {}
        }
        channel.handle_timeout(end);
        background.carried(&channel, end)
    };
    let warm = Time::ZERO + START;
    let end = warm + length;
    let before = until(warm);
    Ok(until(end).since(before))
}

#[cfg(test)]
mod tests {
    use remora_base::Rate;
    use remora_channel::Access;

    use super::*;

    fn carried(access: Access, share: f64, stations: usize) -> Carried {
        let config = Config { rate: Rate::mbit(10), access, delay: Duration::from_micros(1), ..Config::default() };
        let load = BackgroundLoad::share_of(10_000_000, share, stations, 1028);
        carried_alone(&config, &load, Duration::from_secs(5), 1).unwrap()
    }

    #[test]
    fn turns_carry_what_is_offered() {
        for stations in [1, 4] {
            let carried = carried(Access::Turns, 0.9, stations);
            assert!((carried.load() - 0.9).abs() < 0.05 && carried.load() - carried.used() < 1e-9, "{carried:?}");
        }
        assert!((carried(Access::Turns, 1.5, 2).load() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn collisions_leave_less_to_more_stations() {
        let full = |stations| carried(Access::Collisions, 1.5, stations);
        // A frame and its gap alone.
        let (one, two, eight) = (full(1), full(2), full(8));
        assert!((one.load() - 1054.0 / 1066.0).abs() < 2e-3 && one.collisions == 0, "{one:?}");
        // Of few stations one keeps the medium while the others back off.
        assert!((0.94..0.97).contains(&two.load()) && eight.load() < two.load(), "{two:?} {eight:?}");
        assert!(eight.collisions > 3 * two.collisions && (two.used() - 1.0).abs() < 1e-2, "{two:?} {eight:?}");
    }
}
