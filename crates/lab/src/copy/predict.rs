//! Predictions of a copy beside a load, from copies of one small file without load.
//!
//! A copy has a setup, a flow and an end. Setup and end (with the disk's part) are exchanges one after another,
//! which a tiny copy has, too; the flow is blocks in a window. Frames are counted; the software's time is fitted
//! to the copies without load ([`CopyProgram::fitted`]), for model and simulator separately, since they differ on the
//! cost of collisions. All else is predicted: by the model for the load that was carried, by the simulator for
//! the load that was offered.

use remora_base::Rate;
use remora_channel::{Access, csma};
use remora_model::ring::Discipline;
use remora_model::{
    Bits, Burst, Copy, Flow, Group, Kind, Medium, Network, PacketRate, Reason, Seconds, Size, Topology,
};
use remora_sim::network::{self, Simulated};
use serde::Serialize;

use super::plan::{CopySystem, LOADERS, PROPAGATION};

/// Bisection steps of the software's time, by model and by simulation; simulations are accurate to a per cent only.
const HALVINGS: (usize, usize) = (30, 10);
/// Simulated time in times of the longest frame: for a fitting step, and for a prediction (accurate to a per cent or
/// two).
const FRAME_TIMES: (f64, f64) = (5_000.0, 20_000.0);
/// Frames of an exchange in each direction: data and acknowledgement.
const FRAMES_AN_EXCHANGE: f64 = 2.0;
/// A TCP segment's payload on this medium, in bytes (RFC 7323's timestamps are on).
const SEGMENT: f64 = 1448.0;
/// Outstanding segments of a sender: it fills its device queue. (`nfs-cp` waits for each mebibyte, Remora keeps a
/// window of calls; that cost appears as software time.)
const SEGMENTS: u32 = 48;
/// Highest load at which the model's formula for a station without a queue holds.
const LONELY_LOAD_MAX: f64 = 0.95;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    pub(super) on: On,
    pub(super) bytes: u64,
    /// Time of the flow and of the rest, in seconds.
    pub(super) flow_s: f64,
    pub(super) rest_s: f64,
    pub(super) frames: (Frames, Frames),
    /// The same of a setup copy.
    pub(super) begun: (Frames, Frames),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CopyProgram {
    bytes: u64,
    rest: FlowStage,
    flow: FlowStage,
    /// The stage with the software's time fitted by simulation.
    simulated: FlowStage,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fitted {
    pub system: CopySystem,
    pub bytes: u64,
    /// Time to start and end, in seconds.
    pub rest_s: f64,
    pub exchanges: f64,
    /// Blocks of the file, and the window.
    pub blocks: f64,
    pub window: u32,
    /// Software time of a block in seconds, by the model.
    pub software_s: f64,
    pub software_simulated_s: f64,
}

impl CopyProgram {
    pub(super) fn fitted(seen: &Seen) -> CopyProgram {
        let Seen { on, bytes, begun, .. } = *seen;
        let exchanges = (begun.0.count.min(begun.1.count) / FRAMES_AN_EXCHANGE).max(1.0);
        let blank = FlowStage { on, blocks: exchanges, window: 1, there: begun.0, back: begun.1, software_s: 0.0 };
        let by_model = |stage: &FlowStage| stage.by_model(BackgroundLoad::default()).map(|(seconds, _)| seconds);
        let by_simulation = |stage: &FlowStage| stage.by_simulation(BackgroundLoad::default(), FRAME_TIMES.0, 0);
        let rest = blank.fitted(seen.rest_s, HALVINGS.0, by_model);
        let blocks = bytes.max(1) as f64 / SEGMENT;
        let (there, back) = (seen.frames.0.less(begun.0), seen.frames.1.less(begun.1));
        let flow = FlowStage { blocks, window: SEGMENTS, there, back, ..blank };
        let simulated = flow.fitted(seen.flow_s, HALVINGS.1, by_simulation);
        CopyProgram { bytes: bytes.max(1), rest, flow: flow.fitted(seen.flow_s, HALVINGS.0, by_model), simulated }
    }

    pub(super) fn about(&self, system: CopySystem) -> Fitted {
        Fitted {
            system,
            bytes: self.bytes,
            rest_s: self.rest.by_model(BackgroundLoad::default()).map_or(0.0, |(seconds, _)| seconds),
            exchanges: self.rest.blocks,
            blocks: self.flow.blocks,
            window: self.flow.window,
            software_s: self.flow.software_s,
            software_simulated_s: self.simulated.software_s,
        }
    }

    /// Predicts a copy of `bytes` by the model: `carried` load during the flow, `offered` before and after. Returns
    /// the reasons for doubt, too.
    pub(super) fn by_model(
        &self,
        bytes: u64,
        offered: BackgroundLoad,
        carried: BackgroundLoad,
    ) -> Option<(f64, Vec<Reason>)> {
        let lonely = BackgroundLoad { share: offered.share.min(LONELY_LOAD_MAX), ..offered };
        let (rest_s, _) = self.rest.by_model(lonely)?;
        let (flow_s, doubts) = self.flow.by_model(carried)?;
        Some((rest_s + self.times(bytes) * flow_s, doubts))
    }

    /// Predicts by simulation, from the offered load.
    pub(super) fn by_simulation(&self, bytes: u64, offered: BackgroundLoad, seed: u64) -> Option<f64> {
        let rest_s = self.rest.by_simulation(offered, FRAME_TIMES.1, seed)?;
        Some(rest_s + self.times(bytes) * self.simulated.by_simulation(offered, FRAME_TIMES.1, seed)?)
    }

    /// Size over that of the fit.
    fn times(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes as f64
    }
}

impl FlowStage {
    /// Fits the software's time so that `taken` gives `seconds`; zero if that takes longer anyway.
    fn fitted(self, seconds: f64, halvings: usize, taken: impl Fn(&FlowStage) -> Option<f64>) -> FlowStage {
        let (mut low, mut high) = (0.0, 2.0 * seconds.max(0.0) / self.blocks);
        for _ in 0..halvings {
            let software_s = (low + high) / 2.0;
            let taken = taken(&FlowStage { software_s, ..self });
            if taken.is_none_or(|taken| taken > seconds) { high = software_s } else { low = software_s }
        }
        FlowStage { software_s: low, ..self }
    }
}

impl Frames {
    fn less(self, other: Frames) -> Frames {
        Frames { count: (self.count - other.count).max(0.0), seconds: (self.seconds - other.seconds).max(0.0) }
    }
}

const MEDIUM: &str = "medium";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct On {
    pub(crate) rate: Rate,
    pub(crate) access: Access,
}

/// The load of all other stations.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct BackgroundLoad {
    /// Share of the medium's rate in packets, without overhead of the medium.
    pub(crate) share: f64,
    /// A packet's length in bytes.
    pub(crate) packet_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Frames {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct FlowStage {
    pub(crate) on: On,
    pub(crate) blocks: f64,
    pub(crate) window: u32,
    pub(crate) there: Frames,
    pub(crate) back: Frames,
    pub(crate) software_s: f64,
}

impl FlowStage {
    /// Predicts the time beside a carried load by the model, with its reasons for doubt.
    pub(crate) fn by_model(&self, load: BackgroundLoad) -> Option<(f64, Vec<Reason>)> {
        let outcome = self.network(load)?.solve().copies.into_iter().next()?.outcome;
        Some((self.blocks * outcome.value()?.seconds / f64::from(self.window), outcome.outside().to_vec()))
    }

    /// Predicts the time beside an offered load by simulation; a mean over so many frame times.
    pub(crate) fn by_simulation(&self, load: BackgroundLoad, frame_times: f64, seed: u64) -> Option<f64> {
        let seconds = frame_times * self.on.rate.airtime(1500).as_secs_f64();
        let run = network::run(&self.network(load)?, &network::Options { seconds }, seed).ok()?;
        let copy = Simulated::of(&[run]).copies.into_iter().next()??;
        Some(self.blocks * copy.interval_s.mean)
    }

    fn network(&self, load: BackgroundLoad) -> Option<Network> {
        Network::new(self.topology(load)?).ok()
    }

    fn topology(&self, load: BackgroundLoad) -> Option<Topology> {
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

    fn load(&self, load: BackgroundLoad, loaders: u32) -> Option<Option<Flow>> {
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

    /// A copy of one window: its time is a multiple of the block interval.
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

    /// A copy of 1 MB with ten setup exchanges in `rest_s` and a flow of `flow_s`.
    fn seen(flow_s: f64, rest_s: f64) -> Seen {
        let (stage, few) = (tcp(48), Frames { count: 10.0, seconds: 1e-3 });
        let plus = |f: Frames| Frames { count: f.count + few.count, seconds: f.seconds + few.seconds };
        Seen {
            on: stage.on,
            bytes: 1_000_000,
            flow_s,
            rest_s,
            frames: (plus(stage.there), plus(stage.back)),
            begun: (few, few),
        }
    }

    #[test]
    fn fitted_copy_is_predicted_exactly() {
        let none = BackgroundLoad::default();
        for flow_s in [0.9, 2.0] {
            let program = CopyProgram::fitted(&seen(flow_s, 0.3));
            let again = program.by_model(1_000_000, none, none).unwrap().0;
            assert!((again / (flow_s + 0.3) - 1.0).abs() < 2e-3, "{flow_s}: {again}");
            let simulated = program.by_simulation(1_000_000, none, 1).unwrap();
            assert!((simulated / again - 1.0).abs() < 0.02, "{flow_s}: {simulated} {again}");
            assert!((program.about(CopySystem::Scp).rest_s - 0.3).abs() < 1e-3);
        }
        // Faster than the medium: not explained by software.
        assert_eq!(CopyProgram::fitted(&seen(0.1, 0.3)).flow.software_s, 0.0);
    }

    #[test]
    fn larger_file_has_more_flow_and_the_same_setup() {
        let program = CopyProgram::fitted(&seen(1.0, 0.2));
        let predicted = program.by_model(10_000_000, BackgroundLoad::default(), BackgroundLoad::default()).unwrap().0;
        assert!((predicted / 10.2 - 1.0).abs() < 2e-3, "{predicted}");
    }

    #[test]
    fn load_lengthens_an_exchange_by_one_turn_at_most() {
        let program = CopyProgram::fitted(&seen(0.9, 0.2));
        // Twenty frames, each waiting for at most two others.
        let most = 0.2 + 20.0 * 3.0 * 822.4e-6;
        for share in [0.1f64, 0.6, 0.98] {
            let lonely = BackgroundLoad { share: share.min(LONELY_LOAD_MAX), ..load(share) };
            let model = program.rest.by_model(lonely).unwrap().0;
            let simulated = program.rest.by_simulation(load(share), SOME, 1).unwrap();
            assert!((0.2..most).contains(&model) && (0.2..most).contains(&simulated), "{share}: {model} {simulated}");
            assert!((model / simulated - 1.0).abs() < 0.06, "{share}: {model} {simulated}");
        }
    }

    #[test]
    fn slow_software_ignores_a_light_load() {
        // The flow takes three times the time of its bits.
        let program = CopyProgram::fitted(&seen(2.6, 0.1));
        let (quiet, light) = (BackgroundLoad::default(), load(0.3));
        let alone = program.by_model(1_000_000, quiet, quiet).unwrap().0;
        let beside = program.by_model(1_000_000, light, light).unwrap().0;
        assert!((beside / alone - 1.0).abs() < 0.02, "{alone} {beside}");
    }

    /// Frame times for an accuracy of a few per cent.
    pub(crate) const SOME: f64 = 5_000.0;

    pub(crate) fn tcp(window: u32) -> FlowStage {
        let blocks = 1e6 / 1448.0;
        FlowStage {
            on: On { rate: Rate::mbit(10), access: Access::Turns },
            blocks,
            window,
            there: Frames { count: blocks, seconds: blocks * 1.2e-3 },
            back: Frames { count: blocks / 2.0, seconds: blocks / 2.0 * 41.6e-6 },
            software_s: 0.0,
        }
    }

    pub(crate) fn load(share: f64) -> BackgroundLoad {
        BackgroundLoad { share, packet_bytes: 1028 }
    }

    #[test]
    fn full_window_gets_the_remaining_capacity() {
        let stage = tcp(48);
        for share in [0.0, 0.1, 0.5, 0.55] {
            // Work conservation: the copy uses the time that the load leaves.
            let expected = (stage.there.seconds + stage.back.seconds) / (1.0 - share);
            let model = stage.by_model(load(share)).unwrap().0;
            assert!((model / expected - 1.0).abs() < 0.03, "{share}: {model} {expected}");
            let simulated = stage.by_simulation(load(share), SOME, 1).unwrap();
            assert!((simulated / expected - 1.0).abs() < 0.05, "{share}: {simulated} {expected}");
        }
    }

    #[test]
    fn collisions_lengthen_a_copy() {
        let (turns, mut ethernet) = (tcp(48), tcp(48));
        ethernet.on.access = Access::Collisions;
        let take = |stage: &FlowStage, share| stage.by_simulation(load(share), SOME, 1).unwrap();
        for (share, least, most) in [(0.0, 1.05, 1.3), (0.3, 1.1, 1.5)] {
            let ratio = take(&ethernet, share) / take(&turns, share);
            assert!((least..most).contains(&ratio), "{share}: {ratio}");
        }
    }

    #[test]
    fn saturating_load_leaves_a_turn_to_the_copy() {
        let stage = tcp(48);
        // In each turn the client sends 1500 bytes and two others send 1028.
        let turn = 1.2e-3 + 20.8e-6 + 2.0 * 822.4e-6;
        let expected = stage.blocks * turn;
        let simulated = stage.by_simulation(load(0.98), SOME, 1).unwrap();
        assert!((simulated / expected - 1.0).abs() < 0.03, "{simulated} {expected}");
        // The model takes the load as carried and reports overload.
        assert_eq!(stage.by_model(load(1.0)), None);
    }
}
