//! A part of a copy as model and simulator see it: blocks that go round between client and server on
//! one medium, beside two stations that make a load.
//!
//! A medium that gives stations their turns frame by frame loses no time between them: a token ring
//! with one packet a turn and no walk is just that, so it stands for it in both. One with collisions
//! is the shared Ethernet of both.

use remora_base::Rate;
use remora_channel::{Access, csma};
use remora_model::ring::Discipline;
use remora_model::{
    Bits, Burst, Copy, Flow, Group, Kind, Medium, Network, PacketRate, Reason, Seconds, Size, Topology,
};
use remora_sim::network::{self, Simulated};

use super::super::plan::{LOADERS, PROPAGATION};

/// What the topology calls the medium.
const MEDIUM: &str = "medium";

/// A medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct On {
    pub(crate) rate: Rate,
    pub(crate) access: Access,
}

/// The load beside a copy, all stations' together.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Load {
    /// Share of the medium's rate, as packets, without what the medium adds.
    pub(crate) share: f64,
    /// A packet's length in bytes.
    pub(crate) packet_bytes: u64,
}

/// Frames in one direction.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Frames {
    /// How many.
    pub(crate) count: f64,
    /// Their time on the medium, in seconds.
    pub(crate) seconds: f64,
}

/// Blocks that go round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stage {
    /// What they go over.
    pub(crate) on: On,
    /// How many blocks there are; above 0.
    pub(crate) blocks: f64,
    /// How many are under way.
    pub(crate) window: u32,
    /// Frames of all blocks, there and back.
    pub(crate) there: Frames,
    pub(crate) back: Frames,
    /// The client's time for a block, in seconds.
    pub(crate) software_s: f64,
}

impl Stage {
    /// How long it takes beside a load that is carried, by the model; and why to doubt that, by the
    /// model's own word.
    pub(crate) fn by_model(&self, load: Load) -> Option<(f64, Vec<Reason>)> {
        let outcome = self.network(load)?.solve().copies.into_iter().next()?.outcome;
        Some((self.blocks * outcome.value()?.seconds / f64::from(self.window), outcome.outside().to_vec()))
    }

    /// How long it takes beside a load that is offered, frame by frame; means over so many frame times
    /// of the medium.
    pub(crate) fn by_simulation(&self, load: Load, frame_times: f64, seed: u64) -> Option<f64> {
        let seconds = frame_times * self.on.rate.airtime(1500).as_secs_f64();
        let run = network::run(&self.network(load)?, &network::Options { seconds }, seed).ok()?;
        let copy = Simulated::of(&[run]).copies.into_iter().next()??;
        Some(self.blocks * copy.interval_s.mean)
    }

    fn network(&self, load: Load) -> Option<Network> {
        Network::new(self.topology(load)?).ok()
    }

    fn topology(&self, load: Load) -> Option<Topology> {
        let group = |name: &str, stations: u32| Group {
            name: name.into(),
            medium: MEDIUM.into(),
            stations,
            cost: Seconds::ZERO,
        };
        let loaders = u32::try_from(LOADERS).ok()?;
        let kind = match self.on.access {
            Access::Turns => Kind::Ring { walk: Seconds::ZERO, discipline: Discipline::OneLimited },
            Access::Collisions => Kind::Ethernet { propagation: Seconds::new(PROPAGATION.as_secs_f64()).ok()? },
        };
        Some(Topology {
            media: vec![Medium { name: MEDIUM.into(), rate: self.on.rate, kind }],
            groups: vec![group("client", 1), group("server", 1), group("load", loaders)],
            gateways: Vec::new(),
            flows: self.load(load, loaders)?.into_iter().collect(),
            copies: vec![self.copy()?],
        })
    }

    fn load(&self, load: Load, loaders: u32) -> Option<Option<Flow>> {
        let bits = (load.packet_bytes * 8) as f64;
        if load.share <= 0.0 || bits <= 0.0 {
            return Some(None);
        }
        let each = load.share * self.on.rate.bits() as f64 / bits / f64::from(loaders);
        let frame_bytes = match self.on.access {
            Access::Turns => load.packet_bytes,
            Access::Collisions => csma::frame_bytes(load.packet_bytes),
        };
        let size = Size::constant(Bits::new((frame_bytes * 8) as f64).ok()?);
        let rate = PacketRate::new(each).ok()?;
        Some(Some(Flow { from: "load".into(), to: "server".into(), rate, size }))
    }

    /// A copy that fills its window once: its time is so many times that from block to block.
    fn copy(&self) -> Option<Copy> {
        let burst = |frames: Frames| {
            let bits =
                if frames.count > 0.0 { frames.seconds * self.on.rate.bits() as f64 / frames.count } else { 8.0 };
            Some(Burst { packets: frames.count / self.blocks, size: Size::constant(Bits::new(bits).ok()?) })
        };
        Some(Copy {
            from: "client".into(),
            to: "server".into(),
            file_bytes: self.window.into(),
            block_bytes: 1,
            window: self.window,
            data: burst(self.there)?,
            reply: burst(self.back)?,
            software: Seconds::new(self.software_s).ok()?,
            disk: Seconds::ZERO,
            think: Seconds::ZERO,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Frame times that are enough for a few per cent.
    pub(crate) const SOME: f64 = 5_000.0;

    /// A megabyte by TCP.
    pub(crate) fn tcp(window: u32) -> Stage {
        let blocks = 1e6 / 1448.0;
        Stage {
            on: On { rate: Rate::mbit(10), access: Access::Turns },
            blocks,
            window,
            there: Frames { count: blocks, seconds: blocks * 1.2e-3 },
            back: Frames { count: blocks / 2.0, seconds: blocks / 2.0 * 41.6e-6 },
            software_s: 0.0,
        }
    }

    pub(crate) fn load(share: f64) -> Load {
        Load { share, packet_bytes: 1028 }
    }

    #[test]
    fn a_full_window_gets_what_the_load_leaves() {
        let stage = tcp(48);
        for share in [0.0, 0.1, 0.5, 0.55] {
            // Work is conserved: the copy's bits take the time that the load leaves.
            let expected = (stage.there.seconds + stage.back.seconds) / (1.0 - share);
            let model = stage.by_model(load(share)).unwrap().0;
            assert!((model / expected - 1.0).abs() < 0.03, "{share}: {model} {expected}");
            let simulated = stage.by_simulation(load(share), SOME, 1).unwrap();
            assert!((simulated / expected - 1.0).abs() < 0.05, "{share}: {simulated} {expected}");
        }
    }

    #[test]
    fn collisions_cost_time() {
        let (turns, mut ethernet) = (tcp(48), tcp(48));
        ethernet.on.access = Access::Collisions;
        let take = |stage: &Stage, share| stage.by_simulation(load(share), SOME, 1).unwrap();
        for (share, least, most) in [(0.0, 1.05, 1.3), (0.3, 1.1, 1.5)] {
            let ratio = take(&ethernet, share) / take(&turns, share);
            assert!((least..most).contains(&ratio), "{share}: {ratio}");
        }
    }

    #[test]
    fn a_load_that_fills_the_medium_leaves_a_turn_to_who_wants_one() {
        let stage = tcp(48);
        // Each turn the client sends a frame of 1500 bytes, each of two others one of 1028.
        let turn = 1.2e-3 + 20.8e-6 + 2.0 * 822.4e-6;
        let expected = stage.blocks * turn;
        let simulated = stage.by_simulation(load(0.98), SOME, 1).unwrap();
        assert!((simulated / expected - 1.0).abs() < 0.03, "{simulated} {expected}");
        // The model takes a load as carried, and says that there is no room.
        assert_eq!(stage.by_model(load(1.0)), None);
    }
}
