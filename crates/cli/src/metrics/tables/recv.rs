//! Metrics of `remora recv`.

use crate::metrics::table::Family;

/// What a receiver has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReceiveCounts {
    pub(crate) stored: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) refused: u64,
    /// Objects that are no message of `remora send`.
    pub(crate) malformed: u64,
}

/// The metrics of a receiver.
pub(crate) fn families(counts: &ReceiveCounts) -> Vec<Family> {
    vec![
        Family::counter("recv_files", "Files by outcome")
            .by("outcome", [("stored", counts.stored), ("refused", counts.refused)]),
        Family::counter("recv_stored", "Size of the files stored").in_bytes().value(counts.stored_bytes),
        Family::counter("recv_malformed_objects", "Objects that are no message of remora send").value(counts.malformed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::table::Format;

    #[test]
    fn page_has_files_by_outcome() {
        let counts = ReceiveCounts { stored: 2, stored_bytes: 30, refused: 1, malformed: 0 };
        let page = Format::Prometheus.page(families(&counts)).unwrap();
        for line in [
            "remora_recv_files_total{outcome=\"stored\"} 2",
            "remora_recv_files_total{outcome=\"refused\"} 1",
            "remora_recv_stored_bytes_total 30",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
    }
}
