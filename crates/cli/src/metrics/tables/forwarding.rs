//! Metrics of `remora gateway` and `remora forward`.

use remora_atp::stream::Stats;
use remora_host::forward::ForwardStatus;
use remora_host::gateway::GatewayStatus;

use crate::metrics::table::Family;

/// All metrics of a gateway.
pub(crate) fn gateway(status: &GatewayStatus) -> Vec<Family> {
    let GatewayStatus { mobiles, connections, stats, calls, turned_away, violations } = status;
    vec![
        Family::gauge("gateway_mobiles", "Mobiles with a session").value(*mobiles),
        Family::gauge("gateway_connections", "Connections of the mobiles, or to the NFS server").value(*connections),
        requests(Family::counter("gateway_connection_requests", "Connections requested"), stats),
        ends(Family::counter("gateway_connections_ended", "Connections by their end"), stats),
        sent(Family::counter("gateway_sent", "Data sent to the mobiles"), stats),
        received(Family::counter("gateway_received", "Data received from the mobiles"), stats),
        Family::counter("gateway_nfs_calls", "NFS calls carried").value(*calls),
        Family::counter("gateway_refusals", "Mobiles refused or disconnected, by reason")
            .by("reason", [("not_admitted", *turned_away), ("protocol", *violations)]),
    ]
}

/// All metrics of a forward.
pub(crate) fn forward(status: &ForwardStatus) -> Vec<Family> {
    let ForwardStatus { up, sessions, connections, stats } = status;
    vec![
        Family::gauge("forward_up", "Whether there is a session with the gateway").value(*up),
        Family::counter("forward_sessions", "Sessions with the gateway").value(*sessions),
        Family::gauge("forward_connections", "Connections that have not ended").value(*connections),
        requests(Family::counter("forward_connection_requests", "Connections requested"), stats),
        ends(Family::counter("forward_connections_ended", "Connections by their end"), stats),
        sent(Family::counter("forward_sent", "Data sent to the gateway"), stats),
        received(Family::counter("forward_received", "Data received from the gateway"), stats),
    ]
}

fn requests(family: Family, stats: &Stats) -> Family {
    family.value(stats.asked)
}

fn ends(family: Family, stats: &Stats) -> Family {
    family.by("end", [("done", stats.done), ("refused", stats.refused), ("reset", stats.reset)])
}

fn sent(family: Family, stats: &Stats) -> Family {
    family.in_bytes().value(stats.sent)
}

fn received(family: Family, stats: &Stats) -> Family {
    family.in_bytes().value(stats.received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::table::Format;

    #[test]
    fn pages_have_connections_by_their_end() {
        let stats = Stats { asked: 6, refused: 1, done: 2, reset: 3, sent: 40, received: 50 };
        let gateway_page = Format::Prometheus
            .page(gateway(&GatewayStatus { turned_away: 7, stats, ..GatewayStatus::default() }))
            .unwrap();
        let forward_page =
            Format::Prometheus.page(forward(&ForwardStatus { up: true, stats, ..ForwardStatus::default() })).unwrap();
        for (page, line) in [
            (&gateway_page, "remora_gateway_refusals_total{reason=\"not_admitted\"} 7"),
            (&gateway_page, "remora_gateway_connections_ended_total{end=\"reset\"} 3"),
            (&gateway_page, "remora_gateway_received_bytes_total 50"),
            (&forward_page, "remora_forward_up 1"),
            (&forward_page, "remora_forward_connections_ended_total{end=\"refused\"} 1"),
            (&forward_page, "remora_forward_sent_bytes_total 40"),
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
    }
}
