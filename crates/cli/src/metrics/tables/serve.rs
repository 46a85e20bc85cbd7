//! Metrics of `remora serve`.

use std::collections::BTreeMap;

use remora_host::server::{BudgetUse, Budgets, ServerMetrics};
use remora_server::{LATENCY_BOUNDS, LatencyHistogram, RequestStats};

use crate::metrics::table::{Buckets, Family};

/// Counters of [`ServerSnapshot::named`](remora_host::server::ServerSnapshot::named) without a label.
const COUNTERS: [Row; 17] = [
    row("serve_messages", "Messages received, well-formed or not", "messages"),
    row("serve_replies", "Replies sent, replays included", "replies"),
    row("serve_nfs2_calls", "Calls of the NFS program in version 2", "nfs2_calls"),
    row("serve_jobs", "Jobs given to the executor", "executed"),
    row("serve_jobs_failed", "Jobs that failed, except for a denied client or an invalid handle", "failed"),
    row("serve_job_panics", "Jobs that panicked and were answered with an error", "job_panics"),
    row("serve_datagrams_received", "Datagrams received", "datagrams_in"),
    row("serve_datagrams_sent", "Datagrams sent as replies", "datagrams_out"),
    row("serve_datagram_errors", "Datagrams that could not be sent", "datagram_errors"),
    row("serve_connections_accepted", "Connections accepted, over TCP and ATP", "accepted"),
    row("serve_accept_errors", "Failures to accept a connection", "accept_errors"),
    row("serve_replies_unreachable", "Replies dropped because their connection had ended", "unreachable"),
    row("serve_stray_answers", "Answers to jobs that the server does not know", "stray_answers"),
    row("serve_cache_requests", "Requests looked up in the duplicate request cache", "cache_requests"),
    row("serve_cache_new_ports", "Duplicates recognised from another port of their client", "cache_from_new_port"),
    row("serve_flush_failures", "Failures to write data to stable storage", "flushes_failed"),
    row("serve_opens_refused", "Files not opened for lack of descriptors", "open_refused"),
];
/// Counters by a label.
const LABELLED: [LabelledRow; 5] = [
    LabelledRow {
        name: "serve_calls",
        help: "Decoded calls by program",
        label: "program",
        values: &[("nfs", "nfs_calls"), ("mount", "mount_calls"), ("portmap", "portmap_calls")],
    },
    LabelledRow {
        name: "serve_refusals",
        help: "Messages, calls and connections that were refused or dropped",
        label: "reason",
        values: &[
            ("no_call", "not_calls"),
            ("rpc_version", "bad_rpc_version"),
            ("credential", "bad_auth"),
            ("program", "bad_program"),
            ("procedure", "bad_procedure"),
            ("arguments", "bad_arguments"),
            ("denied", "denied"),
            ("handle", "bad_handles"),
            ("overload_dropped", "overload_dropped"),
            ("overload_deferred", "overload_deferred"),
            ("datagram_dropped", "datagrams_dropped"),
            ("connection", "refused"),
            ("unvalidated_cut", "unvalidated_cut"),
            ("unvalidated_dropped", "unvalidated_dropped"),
        ],
    },
    LabelledRow {
        name: "serve_connections_closed",
        help: "Connections closed, by cause",
        label: "cause",
        values: &[
            ("client", "closed_by_client"),
            ("bad_record", "closed_bad_record"),
            ("partial_request", "closed_partial"),
            ("unread_replies", "closed_stalled"),
            ("idle", "closed_idle"),
        ],
    },
    LabelledRow {
        name: "serve_cache_verdicts",
        help: "Duplicate requests by what the duplicate request cache did",
        label: "verdict",
        values: &[
            ("replayed", "cache_replays"),
            ("joined", "cache_in_progress_parked"),
            ("dropped_in_progress", "cache_in_progress_dropped"),
            ("dropped_recent", "cache_throwaway_dropped"),
            ("executed_again", "cache_executed_again"),
            ("uncached", "cache_uncached"),
        ],
    },
    LabelledRow {
        name: "serve_cache_removals",
        help: "Replies removed from the duplicate request cache",
        label: "cause",
        values: &[("memory", "cache_evictions"), ("age", "cache_expirations")],
    },
];
/// The present state.
const GAUGES: [Row; 3] = [
    row("serve_connections", "Connections open, over TCP and ATP", "connections"),
    row("serve_requests_in_progress", "Requests admitted whose replies have not been sent", "under_way"),
    row("serve_requests_executing", "Requests that execute", "executing"),
];
/// Memory of the cores, a budget without a limit of its own.
const CORES: &str = "core_memory_bytes";

/// A metric with one sample.
struct Row {
    name: &'static str,
    help: &'static str,
    /// The number's name in the snapshot.
    from: &'static str,
}

/// A metric with a sample for each value of a label.
struct LabelledRow {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    /// Values, and the numbers' names in the snapshot.
    values: &'static [(&'static str, &'static str)],
}

const fn row(name: &'static str, help: &'static str, from: &'static str) -> Row {
    Row { name, help, from }
}

/// The families that a scrape shows. `plain`: every counter of the snapshot and of the disks, by name.
pub(crate) fn families(metrics: &ServerMetrics, plain: &BTreeMap<&'static str, u64>) -> Vec<Family> {
    let read = |name: &str| plain.get(name).copied().unwrap_or(0);
    let counters = COUNTERS.iter().map(|row| Family::counter(row.name, row.help).value(read(row.from)));
    let labelled = LABELLED.iter().map(|row| {
        let values = row.values.iter().map(|(value, from)| (*value, read(from)));
        Family::counter(row.name, row.help).by(row.label, values)
    });
    let gauges = GAUGES.iter().map(|row| Family::gauge(row.name, row.help).value(read(row.from)));
    let all = requests(&metrics.requests).into_iter().chain(counters).chain(labelled).chain(gauges);
    all.chain(budgets(&metrics.budgets, read(CORES))).collect()
}

fn requests(requests: &RequestStats) -> [Family; 2] {
    let mut counts = Family::counter("serve_requests", "NFS requests answered, by procedure and status");
    let mut latencies = Family::histogram("serve_request_duration", "Time of NFS requests from call to reply");
    for (proc, stats) in requests.procedures() {
        for count in &stats.statuses {
            let status = count.status.map_or("OK", |status| status.name());
            let labels = vec![("procedure", proc.name().into()), ("status", status.into())];
            counts = counts.sample(labels, count.requests);
        }
        latencies = latencies.buckets(vec![("procedure", proc.name().into())], buckets(&stats.latency));
    }
    [counts, latencies]
}

fn buckets(latency: &LatencyHistogram) -> Buckets {
    let bounds = LATENCY_BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
    Buckets { sum: latency.sum.as_secs_f64(), buckets: bounds.zip(latency.buckets).collect() }
}

fn budgets(budgets: &Budgets, cores: u64) -> [Family; 4] {
    let Budgets { connections, requests, request_bytes, receive_bytes, cache_bytes } = *budgets;
    let memory = [("requests", request_bytes), ("receive", receive_bytes), ("cache", cache_bytes)];
    // What has no bound has no sample.
    let bound = |budget: BudgetUse| (budget.max < usize::MAX).then_some(budget.max);
    let limits = memory.into_iter().filter_map(|(name, budget)| bound(budget).map(|max| (name, max)));
    [
        Family::gauge("serve_memory", "Memory held, by budget")
            .in_bytes()
            .by("budget", memory.map(|(name, budget)| (name, budget.used)))
            .by("budget", [("cores", cores)]),
        Family::gauge("serve_memory_limit", "Most memory of a budget").in_bytes().by("budget", limits),
        Family::gauge("serve_connections_limit", "Most connections over TCP").maybe(bound(connections)),
        Family::gauge("serve_requests_limit", "Most requests in progress").maybe(bound(requests)),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use remora_host::server::ServerSnapshot;

    use super::*;
    use crate::metrics::table::Format;

    pub(crate) fn snapshot() -> ServerMetrics {
        let budgets = Budgets {
            request_bytes: BudgetUse { used: 5, max: 100 },
            cache_bytes: BudgetUse { used: 0, max: usize::MAX },
            ..Budgets::default()
        };
        ServerMetrics { snapshot: ServerSnapshot::default(), requests: RequestStats::default(), budgets }
    }

    #[test]
    fn every_number_of_the_snapshot_is_in_one_metric() {
        let mut shown: Vec<&str> = COUNTERS.iter().chain(&GAUGES).map(|row| row.from).chain([CORES]).collect();
        shown.extend(LABELLED.iter().flat_map(|row| row.values).map(|(_, from)| *from));
        let mut named: Vec<&str> = ServerSnapshot::default().named().into_iter().map(|(name, _)| name).collect();
        named.extend(["flushes_failed", "open_refused"]);
        shown.sort_unstable();
        named.sort_unstable();
        assert_eq!(shown, named);
    }

    #[test]
    fn budgets_without_a_bound_have_no_limit() {
        let page = Format::Prometheus.page(families(&snapshot(), &BTreeMap::from([(CORES, 9)]))).unwrap();
        for line in [
            "remora_serve_memory_bytes{budget=\"requests\"} 5",
            "remora_serve_memory_bytes{budget=\"cores\"} 9",
            "remora_serve_memory_limit_bytes{budget=\"requests\"} 100",
            "remora_serve_refusals_total{reason=\"denied\"} 0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
        assert!(!page.contains("limit_bytes{budget=\"cache\"}"), "{page}");
    }
}
