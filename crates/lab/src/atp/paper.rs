//! What ATP 02 has: Table 2, and the figures its text names.

use remora_sim::atp::{Protocol, Workload};
use serde::Serialize;

/// Final status of high objects (ATP 02, Table 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Paper {
    /// Delivered.
    pub delivered: u32,
    /// Rejected on entry.
    pub rejected: u32,
    /// Past their deadlines.
    pub late: u32,
}

/// What the paper has for the high objects of a workload. Its ATP stands beside ours of either
/// policy.
pub(super) fn high(workload: Workload, protocol: Protocol) -> Option<Paper> {
    let [atp, tcp, mtcp2] = match workload {
        Workload::Equal => [(524, 62, 14), (497, 103, 0), (506, 69, 25)],
        Workload::Unequal2 => [(522, 58, 20), (360, 240, 0), (512, 62, 26)],
        Workload::Filesystem => [(2605, 1, 394), (1319, 1681, 0), (1783, 397, 360)],
        Workload::Random => [(162, 30, 12), (150, 43, 11), (128, 36, 37)],
        Workload::Uniform | Workload::Unequal1 | Workload::Reversed => return None,
    };
    let (delivered, rejected, late) = match protocol.name() {
        "atp" | "atp-paper" => atp,
        "tcp" => tcp,
        "mtcp-2" => mtcp2,
        _ => return None,
    };
    Some(Paper { delivered, rejected, late })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_workloads() {
        for (workload, sum) in
            [(Workload::Equal, 600), (Workload::Unequal2, 600), (Workload::Filesystem, 3000), (Workload::Random, 204)]
        {
            for protocol in Protocol::ALL {
                let Some(paper) = high(workload, protocol) else { continue };
                let total = paper.delivered + paper.rejected + paper.late;
                // Two rows of M-TCP do not add up in the paper.
                let short = match (workload, protocol.name()) {
                    (Workload::Filesystem, "mtcp-2") => 460,
                    (Workload::Random, "mtcp-2") => 3,
                    _ => 0,
                };
                assert_eq!(total + short, sum, "{workload:?} {protocol:?}");
            }
        }
    }
}
