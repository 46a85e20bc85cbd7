//! The media, and loads that really occupy a given share of them.

use std::time::Duration;

use remora_base::Rate;
use remora_channel::{Access, Config, ConfigError, Duplex};
use remora_sim::net::{BackgroundLoad, Carried, carried_alone};
use serde::Serialize;

use crate::copy::plan::PROPAGATION;

/// Copy 89's rate.
const RATE: Rate = Rate::mbit(10);
/// A load packet with its IP and UDP headers, in bytes: `udpsend` sends 1000.
const PACKET_BYTES: usize = 1028;
/// Halvings of the search for a load's rate, from half of it on.
const HALVINGS: usize = 9;
/// Time over which a load alone is measured.
const LENGTH: Duration = Duration::from_secs(60);
/// Offered load of stations that always have a frame.
const FULL: f64 = 1.5;

/// A medium that all stations share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedMedium {
    /// CSMA/CD (IEEE 802.3 clause 4).
    Ethernet,
    /// Stations take turns frame by frame, as on a token ring with one frame a token.
    Turns,
    /// The full-duplex link between the server and a switch: towards the server stations take turns, and nothing
    /// else uses the way back.
    FullDuplex,
}

impl SharedMedium {
    pub const ALL: [SharedMedium; 3] = [SharedMedium::Ethernet, SharedMedium::Turns, SharedMedium::FullDuplex];

    pub fn name(self) -> &'static str {
        match self {
            SharedMedium::Ethernet => "ethernet",
            SharedMedium::Turns => "turns",
            SharedMedium::FullDuplex => "full-duplex",
        }
    }

    pub(super) fn config(self) -> Config {
        let (duplex, access) = match self {
            SharedMedium::Ethernet => (Duplex::Half, Access::Collisions),
            SharedMedium::Turns => (Duplex::Half, Access::Turns),
            SharedMedium::FullDuplex => (Duplex::Full, Access::Turns),
        };
        Config { rate: RATE, duplex, access, delay: PROPAGATION, ..Config::default() }
    }

    /// The load of so many stations that occupies this share of the medium when nobody else sends, by bisection of
    /// the offered load. From 1 on, stations always have a frame.
    pub(super) fn loaded(self, share: f64, stations: usize) -> Result<LoadLevel, ConfigError> {
        let level = |offered: f64| {
            let load = BackgroundLoad::share_of(RATE.bits(), offered, stations, PACKET_BYTES);
            carried_alone(&self.config(), &load, LENGTH, 1).map(|carried| LoadLevel::new(load, offered, carried))
        };
        if share >= 1.0 {
            return level(FULL);
        }
        let (mut low, mut high) = (0.6 * share, 1.1 * share);
        let mut best = level(low)?;
        for _ in 0..HALVINGS {
            let middle = level((low + high) / 2.0)?;
            if middle.used < share {
                low = middle.offered
            } else {
                high = middle.offered
            }
            // Near saturation chance weighs more than the last steps.
            if (middle.used - share).abs() < (best.used - share).abs() {
                best = middle;
            }
        }
        Ok(best)
    }
}

/// A load, and what it carries alone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LoadLevel {
    #[serde(skip)]
    pub(super) load: BackgroundLoad,
    /// Bits of packets over the medium's rate.
    pub offered: f64,
    /// The share of the time in which the medium is in use.
    pub used: f64,
    /// The share of the time that frames take.
    pub frames: f64,
    pub collisions_per_frame: f64,
}

impl LoadLevel {
    fn new(load: BackgroundLoad, offered: f64, carried: Carried) -> LoadLevel {
        LoadLevel {
            load,
            offered,
            used: carried.used(),
            frames: carried.load(),
            collisions_per_frame: carried.collisions as f64 / carried.frames.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_of_98_percent_occupies_98_percent() {
        for medium in SharedMedium::ALL {
            for stations in [1, 8] {
                let level = medium.loaded(0.98, stations).unwrap();
                assert!((level.used - 0.98).abs() < 0.015, "{} {stations}: {level:?}", medium.name());
                // Gaps, collisions and back-off are part of it.
                let is_ethernet = medium == SharedMedium::Ethernet;
                assert_eq!(level.frames < level.used - 0.01, is_ethernet, "{} {stations}: {level:?}", medium.name());
            }
        }
    }

    #[test]
    fn full_ethernet_carries_less_frames_than_turns() {
        let full = |medium: SharedMedium| medium.loaded(1.0, 2).unwrap();
        let (ethernet, turns) = (full(SharedMedium::Ethernet), full(SharedMedium::Turns));
        assert!(turns.frames > 0.999 && ethernet.frames < 0.97 && ethernet.used > 0.999, "{ethernet:?} {turns:?}");
        assert!(ethernet.collisions_per_frame > 0.05 && turns.collisions_per_frame == 0.0);
    }
}
