//! Metrics of `remora mount`, from the report that `remora status` and `remora top` show.

use remora_host::mount::report::{ConnectionState, MountReport, MountState};

use crate::metrics::table::Family;

/// The metrics of a mount.
pub(crate) fn families(report: &MountReport) -> Vec<Family> {
    let all = state(report).into_iter().chain(estimates(report)).chain(calls(report));
    all.chain(data(report)).chain(changes(report)).collect()
}

fn state(report: &MountReport) -> [Family; 5] {
    let labels = vec![
        ("url", report.url.clone().into()),
        ("dir", report.dir.to_string_lossy().into_owned().into()),
        ("server", report.server.address.clone().into()),
        ("transport", report.server.transport.clone().into()),
    ];
    let (is, connection) = (|state| report.connection.state == state, &report.connection);
    [
        Family::info("mount", "What is mounted, and where", labels),
        Family::gauge("mount_connection_state", "1 for the state of the connection to the server").by(
            "state",
            [
                ("connected", is(ConnectionState::Connected)),
                ("weak", is(ConnectionState::Weak)),
                ("disconnected", is(ConnectionState::Disconnected)),
            ],
        ),
        Family::gauge("mount_connection_state_age", "How long the connection has had its state")
            .in_seconds()
            .value(seconds(connection.since_ms)),
        Family::gauge("mount_connection_problem", "Whether something is wrong with the connection, beside silence")
            .value(connection.problem.is_some()),
        Family::gauge("mount_unmounting", "Whether the mount is detached and sends what is left")
            .value(report.state == MountState::Unmounting),
    ]
}

fn estimates(report: &MountReport) -> [Family; 6] {
    let server = &report.server;
    let gauge = Family::gauge;
    [
        gauge("mount_round_trip_min", "Minimum round-trip time").in_seconds().maybe(server.rtt_ms.map(|ms| ms / 1e3)),
        gauge("mount_window_calls", "Congestion window, in READs and WRITEs").value(u64::from(server.window)),
        gauge("mount_rate_bytes_per_second", "Estimated rate of the slowest hop")
            .maybe(server.rate_bits.map(|bits| bits as f64 / 8.0)),
        gauge("mount_loss_ratio", "Estimated share of frames lost independently").maybe(server.loss),
        gauge("mount_server_silence", "How long the server has owed a reply")
            .in_seconds()
            .value(seconds(server.silent_ms)),
        gauge("mount_server_deferral", "How long the server has asked to try again later")
            .in_seconds()
            .value(seconds(server.deferred_ms)),
    ]
}

fn calls(report: &MountReport) -> [Family; 5] {
    let queue = &report.queue;
    [
        Family::gauge("mount_calls_queued", "Calls that wait for room in the window, by priority").by(
            "priority",
            [
                ("foreground", queue.foreground),
                ("durable", queue.durable),
                ("write_back", queue.write_back),
                ("read_ahead", queue.read_ahead),
                ("prefetch", queue.prefetch),
            ],
        ),
        Family::gauge("mount_calls_in_flight", "Calls without a reply").value(report.calls_in_flight),
        Family::gauge("mount_requests_held", "System calls that wait for the server").value(report.held.len()),
        Family::counter("mount_cache_requests", "Requests of programs by whether the cache answered them")
            .by("result", [("hit", report.hits), ("miss", report.misses)]),
        Family::gauge("mount_cache_objects", "Objects that the cache knows").value(report.nodes),
    ]
}

fn data(report: &MountReport) -> [Family; 6] {
    let disk = report.disk.as_ref();
    [
        Family::counter("mount_read", "File data that the server has sent").in_bytes().value(report.read_bytes),
        Family::counter("mount_written", "File data that the server has taken").in_bytes().value(report.written_bytes),
        Family::gauge("mount_memory", "File data in memory, by budget")
            .in_bytes()
            .by("budget", [("clean", report.cached_bytes), ("dirty", report.dirty_bytes)]),
        Family::gauge("mount_disk_cache", "Size of the cache on disk").in_bytes().maybe(disk.map(|disk| disk.bytes)),
        Family::gauge("mount_disk_cache_limit", "Most bytes of the cache on disk")
            .in_bytes()
            .maybe(disk.map(|disk| disk.limit)),
        Family::counter("mount_disk_cache_read", "File data that the cache on disk gave to programs")
            .in_bytes()
            .maybe(disk.map(|disk| disk.read_bytes)),
    ]
}

fn changes(report: &MountReport) -> [Family; 6] {
    let log = &report.log;
    let gauge = Family::gauge;
    [
        gauge("mount_change_log_records", "Changes that the server lacks").value(log.records),
        gauge("mount_change_log_refused", "Changes that the server refused").value(log.refused),
        gauge("mount_change_log_in_flight", "Changes that are being sent").value(log.in_flight),
        Family::counter("mount_change_log_sent", "Changes that were sent").value(log.sent),
        gauge("mount_conflicts", "Conflicts that nobody has dismissed").value(log.conflicts),
        gauge("mount_unsent_files", "Files with unsent data or attributes").value(report.unsent_files),
    ]
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

#[cfg(test)]
pub(crate) mod tests {
    use remora_host::mount::report::{ConnectionReport, LogReport, QueueReport, ServerReport};

    use super::*;
    use crate::metrics::table::Format;

    pub(crate) fn report() -> MountReport {
        let connection =
            ConnectionReport { state: ConnectionState::Weak, since_ms: 1500, is_asked: false, problem: None };
        let server = ServerReport {
            address: "10.0.0.1:2049".into(),
            transport: "udp".into(),
            silent_ms: 250,
            deferred_ms: 0,
            rtt_ms: Some(30.0),
            window: 8,
            rate_bits: Some(8_000_000),
            loss: None,
        };
        MountReport {
            url: "nfs://nas/export".into(),
            dir: "/mnt/\"nas\"".into(),
            pid: 1,
            state: MountState::Mounted,
            cache: "default".into(),
            read_only: false,
            writes: "back".into(),
            soft_ms: None,
            server,
            connection,
            log: LogReport { records: 4, sent: 9, ..LogReport::default() },
            dirty_bytes: 70,
            unsent_files: 1,
            unsent: Vec::new(),
            cached_bytes: 80,
            disk: None,
            nodes: 5,
            calls_waiting: 2,
            queue: QueueReport { read_ahead: 2, ..QueueReport::default() },
            calls_in_flight: 3,
            hits: 10,
            misses: 11,
            read_bytes: 12,
            written_bytes: 13,
            held: Vec::new(),
        }
    }

    #[test]
    fn page_has_state_estimates_queue_and_change_log() {
        let page = Format::Prometheus.page(families(&report())).unwrap();
        for line in [
            "remora_mount_connection_state{state=\"weak\"} 1",
            "remora_mount_connection_state{state=\"connected\"} 0",
            "remora_mount_connection_state_age_seconds 1.5",
            "remora_mount_round_trip_min_seconds 0.03",
            "remora_mount_rate_bytes_per_second 1000000.0",
            "remora_mount_calls_queued{priority=\"read_ahead\"} 2",
            "remora_mount_memory_bytes{budget=\"dirty\"} 70",
            "remora_mount_cache_requests_total{result=\"miss\"} 11",
            "remora_mount_change_log_records 4",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
        assert!(!page.contains("loss_ratio") && !page.contains("disk_cache"), "unknown figures have no sample: {page}");
        assert!(page.contains("dir=\"/mnt/\\\"nas\\\"\""), "{page}");
    }
}
