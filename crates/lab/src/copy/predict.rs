//! What the analytic model says of a copy, from the same topology, the load that was carried, and
//! what a copy without load needed.
//!
//! The emulated medium gives stations their turns frame by frame and loses no time between them: a
//! token ring with one packet a turn and no walk is just that, so it stands for it in the model.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::{
    Bits, Burst, Copy, Flow, Group, Kind, Medium, Network, PacketRate, Reason, Seconds, Size, Topology,
};

use super::plan::{LOADERS, System};

/// Halvings of the interval that the software's time is in.
const HALVINGS: usize = 30;
/// A TCP segment's payload on this medium, in bytes (RFC 7323's timestamps are on).
const SEGMENT: u64 = 1448;
/// The segments that a sender has under way: it fills its station's device queue.
const SEGMENTS: u32 = 48;
/// What `nfs-cp` hands to libnfs at a time, and waits for.
const NFS_CP_BLOCK: u64 = 1 << 20;

/// A copy as the model sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Given {
    /// Of the medium.
    pub(super) rate: Rate,
    pub(super) system: System,
    /// The file.
    pub(super) bytes: u64,
    /// Frames of the copy there and back without load, and their time on the medium in seconds.
    pub(super) there: (f64, f64),
    pub(super) back: (f64, f64),
    /// The load: packets a second in all, and bytes of one.
    pub(super) load: (f64, u64),
}

/// A prediction.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Prediction {
    pub(super) seconds: f64,
    /// Why to doubt it, by the model's own word.
    pub(super) doubts: Vec<Reason>,
}

/// How a system's blocks go: bytes of one, and how many are under way.
fn blocks(system: System) -> (u64, u32) {
    match system {
        System::Libnfs => (NFS_CP_BLOCK, 1),
        _ => (SEGMENT, SEGMENTS),
    }
}

impl Given {
    /// How long the copy takes if its software needs so much time for a block.
    pub(super) fn predict(&self, software_s: f64) -> Option<Prediction> {
        let network = Network::new(self.topology(software_s)?).ok()?;
        let outcome = network.solve().copies.into_iter().next()?.outcome;
        Some(Prediction { seconds: outcome.value()?.seconds, doubts: outcome.outside().to_vec() })
    }

    /// The software's time for a block with which the model takes `seconds` for this copy; nothing
    /// if it takes longer without any.
    pub(super) fn calibrate(&self, seconds: f64) -> f64 {
        let blocks = (self.bytes as f64 / blocks(self.system).0 as f64).max(1.0);
        let (mut low, mut high) = (0.0, 2.0 * seconds / blocks);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            let longer = self.predict(middle).is_none_or(|p| p.seconds > seconds);
            if longer { high = middle } else { low = middle }
        }
        low
    }

    fn topology(&self, software_s: f64) -> Option<Topology> {
        let (block, window) = blocks(self.system);
        let block_bytes = block.min(self.bytes).max(1);
        let count = self.bytes as f64 / block_bytes as f64;
        let burst = |(frames, seconds): (f64, f64)| {
            let bits = if frames > 0.0 { seconds * self.rate.bits() as f64 / frames } else { 8.0 };
            Some(Burst { packets: frames / count, size: Size::constant(Bits::new(bits).ok()?) })
        };
        let group = |name: &str, stations: u32| Group {
            name: name.into(),
            medium: MEDIUM.into(),
            stations,
            cost: Seconds::ZERO,
        };
        let loaders = u32::try_from(LOADERS).ok()?;
        let (packets_per_s, packet_bytes) = self.load;
        let each = PacketRate::new(packets_per_s / f64::from(loaders)).ok()?;
        let size = Size::constant(Bits::new((packet_bytes * 8).max(8) as f64).ok()?);
        let flow = Flow { from: "load".into(), to: "server".into(), rate: each, size };
        let copy = Copy {
            from: "client".into(),
            to: "server".into(),
            file_bytes: self.bytes,
            block_bytes,
            window,
            data: burst(self.there)?,
            reply: burst(self.back)?,
            software: Seconds::new(software_s).ok()?,
            disk: Seconds::ZERO,
            think: Seconds::ZERO,
        };
        let ring = Kind::Ring { walk: Seconds::ZERO, discipline: Discipline::OneLimited };
        Some(Topology {
            media: vec![Medium { name: MEDIUM.into(), rate: self.rate, kind: ring }],
            groups: vec![group("client", 1), group("server", 1), group("load", loaders)],
            gateways: Vec::new(),
            flows: if packets_per_s > 0.0 { vec![flow] } else { Vec::new() },
            copies: vec![copy],
        })
    }
}

/// What the model calls the medium.
const MEDIUM: &str = "medium";

#[cfg(test)]
mod tests {
    use super::*;

    fn given(system: System, load: f64) -> Given {
        let rate = Rate::mbit(10);
        let frames = 1e6 / 1448.0;
        Given {
            rate,
            system,
            bytes: 1_000_000,
            there: (frames, frames * 1.2e-3),
            back: (frames / 2.0, frames / 2.0 * 41.6e-6),
            load: (load * 1e7 / 8224.0, 1028),
        }
    }

    #[test]
    fn a_full_window_gets_what_the_load_leaves() {
        for load in [0.0, 0.1, 0.5, 0.6] {
            let alone = 1e6 / 1448.0 * (1.2e-3 + 20.8e-6);
            let predicted = given(System::Scp, load).predict(0.0).unwrap().seconds;
            // Work is conserved: the copy's bits take the time that the load leaves.
            let expected = alone / (1.0 - load);
            assert!((predicted / expected - 1.0).abs() < 0.03, "{load}: {predicted} {expected}");
        }
    }

    #[test]
    fn the_software_of_a_copy_without_load_is_found_again() {
        for system in [System::Scp, System::Libnfs] {
            let quiet = given(system, 0.0);
            for seconds in [0.9, 2.0] {
                let software = quiet.calibrate(seconds);
                let again = quiet.predict(software).unwrap().seconds;
                assert!((again / seconds - 1.0).abs() < 1e-3, "{system:?} {seconds}: {again}");
            }
            // Faster than the medium: no software explains that.
            assert_eq!(quiet.calibrate(0.1), 0.0);
        }
    }

    #[test]
    fn a_load_that_leaves_nothing_has_no_prediction() {
        assert_eq!(given(System::Scp, 1.0).predict(0.0), None);
    }
}
