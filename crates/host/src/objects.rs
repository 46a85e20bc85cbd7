//! Priorities of NFS over ATP, for client and server (ATP 02).

use remora_atp::Priority;
use remora_wire::urgency::Urgency;

/// The priority of a call and its reply. Levels above and between stay free for other traffic.
pub(crate) fn priority(urgency: Urgency) -> Priority {
    let level = match urgency {
        Urgency::Foreground => 14,
        Urgency::Sync => 12,
        Urgency::WriteBack => 6,
        Urgency::Bulk => 4,
    };
    Priority::new(level).unwrap_or(Priority::MEDIUM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_maps_to_priority_in_order() {
        let all = [Urgency::Bulk, Urgency::WriteBack, Urgency::Sync, Urgency::Foreground];
        assert!(all.windows(2).all(|w| w[0] < w[1] && priority(w[0]) < priority(w[1])));
    }
}
