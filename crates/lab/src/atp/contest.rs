//! The contests: which hosts contend, and where.

use remora_sim::atp::contention::{HostKind, Place};

const ATP: [HostKind; 8] = [HostKind::Atp; 8];

/// Hosts that contend; the last one joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contest {
    pub(super) place: Place,
    pub(super) hosts: &'static [HostKind],
}

/// All, in the order of the table.
pub(super) fn contests() -> impl Iterator<Item = Contest> {
    use HostKind::{Atp, Bbr, Cubic};
    const BESIDE_TCP: [&[HostKind]; 9] = [
        &[Cubic, Atp],
        &[Atp, Cubic],
        &[Cubic, Cubic, Atp, Atp],
        &[Bbr, Atp],
        &[Atp, Bbr],
        &[Bbr, Bbr, Atp, Atp],
        &[Cubic, Cubic],
        &[Bbr, Bbr],
        &[Cubic, Bbr],
    ];
    let places = [Place::Bottleneck, Place::Cell, Place::FadingCell];
    let alone = places.into_iter().flat_map(|place| [2, 4, 8].map(|n| Contest { place, hosts: &ATP[..n] }));
    let beside = BESIDE_TCP.into_iter().map(|hosts| Contest { place: Place::Bottleneck, hosts });
    alone.chain(beside)
}

impl Contest {
    /// As in `2 cubic, 1 atp`: groups in the order of their start.
    pub(super) fn words(self) -> String {
        let groups = self.hosts.chunk_by(|a, b| a == b);
        let words = groups.filter_map(|group| Some(format!("{} {}", group.len(), group.first()?.name())));
        words.collect::<Vec<_>>().join(", ")
    }
}
