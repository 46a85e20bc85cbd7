//! `remora status` and `remora mount --list`: the mounts of this user.

use std::path::{Path, PathBuf};

use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{
    ConnectionReport, ConnectionState, DiskReport, HeldReport, LogReport, MountReport, MountState, ServerReport,
    UnsentReport,
};
use remora_host::mount::store::{self, KeptExport};
use serde::Serialize;

use crate::commands::mount::flags::MountStatus;
use crate::commands::mount::known_mounts;
use crate::config::{state_dir, units};
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Silence of the server that is worth words.
const SILENT_MIN_MS: u64 = 1000;
/// Held calls that the text shows.
const HELD_SHOWN: usize = 20;

pub(crate) fn show(args: &MountStatus) -> Result {
    let mounts = match &args.dir {
        Some(dir) => vec![known_mounts::around(dir)?],
        None => known_mounts::all()?,
    };
    if mounts.is_empty() && !args.json {
        stdio::eprint("no mounts of this user");
    }
    let mut worst = 0;
    for mount in mounts {
        let shown = match mount.report() {
            Ok(report) if args.json => stdio::print_json(&report),
            Ok(report) => stdio::print(&text(&report)),
            Err(error) => Err(known_mounts::unanswered(&mount, error)),
        };
        match shown {
            // One that is stopped hides no other.
            Err(error @ (Error::Local { .. } | Error::Refused { .. })) => {
                stdio::print_error("status", &error);
                worst = worst.max(error.code());
            }
            other => other?,
        }
    }
    if worst == 0 { Ok(()) } else { Err(Error::Reported(worst)) }
}

/// What `--list --json` prints of a mount.
#[derive(Serialize)]
struct ListedMount {
    url: String,
    dir: PathBuf,
    pid: Option<u32>,
    state: &'static str,
    dirty_bytes: Option<u64>,
    /// Files that the server lacks something of.
    unsent_files: Option<u64>,
    /// Changes of names that the server lacks.
    changes: Option<u64>,
    /// Conflicts that nobody has dismissed.
    conflicts: Option<u64>,
    /// System calls that wait for the server.
    held: Option<usize>,
}

impl ListedMount {
    fn of(mount: KnownMount) -> ListedMount {
        let report = mount.report().ok();
        ListedMount {
            state: report.as_ref().map_or("silent", |report| state_name(report.state)),
            dirty_bytes: report.as_ref().map(|report| report.dirty_bytes),
            held: report.as_ref().map(|report| report.held.len()),
            url: mount.note.url,
            dir: mount.note.dir,
            pid: Some(mount.note.pid),
            unsent_files: report.as_ref().map(|report| report.unsent_files as u64),
            changes: report.as_ref().map(|report| report.log.records as u64),
            conflicts: report.as_ref().map(|report| report.log.conflicts as u64),
        }
    }

    /// Unsent data without a mount.
    fn kept(kept: KeptExport) -> ListedMount {
        ListedMount {
            url: kept.note.url,
            dir: kept.note.dir,
            pid: None,
            state: "kept",
            dirty_bytes: None,
            unsent_files: kept.counts.map(|counts| counts.files),
            changes: kept.counts.map(|counts| counts.changes),
            conflicts: kept.counts.map(|counts| counts.conflicts),
            held: None,
        }
    }

    fn line(&self) -> String {
        let count = |number: Option<u64>, what: &str| match number {
            None | Some(0) => String::new(),
            Some(number) => format!(", {what}: {number}"),
        };
        let kept = count(self.changes, "changes of names kept") + &count(self.conflicts, "conflicts");
        if self.pid.is_none() {
            let url = url_text(&self.url);
            return match self.unsent_files {
                Some(files) => {
                    format!("{url}: not mounted, unsent files kept: {files}{kept}; mounting it sends them\n")
                }
                None => format!("{url}: not mounted, its unsent data cannot be read; mounting it says what to do\n"),
            };
        }
        let unsent = self.dirty_bytes.filter(|bytes| *bytes > 0);
        let unsent = unsent.map_or(String::new(), |bytes| format!(", {} unsent", units::human(bytes)));
        let held = self.held.filter(|calls| *calls > 0).map_or(String::new(), |calls| format!(", {calls} waiting"));
        format!("{} on {}: {}{unsent}{kept}{held}\n", url_text(&self.url), path_text(&self.dir), self.state)
    }
}

/// Lists the mounts.
pub(crate) fn list(json: bool) -> Result {
    let mut mounts: Vec<_> = known_mounts::all()?.into_iter().map(ListedMount::of).collect();
    if let Some(dir) = state_dir::unsent_dir() {
        let kept = store::kept_exports(&dir).map_err(Error::local(dir.display()))?;
        mounts.extend(kept.into_iter().map(ListedMount::kept));
    }
    if json {
        return mounts.iter().try_for_each(stdio::print_json);
    }
    if mounts.is_empty() {
        stdio::eprint("no mounts of this user");
    }
    stdio::print(&mounts.iter().map(ListedMount::line).collect::<String>())
}

pub(super) fn state_name(state: MountState) -> &'static str {
    match state {
        MountState::Mounted => "mounted",
        MountState::Unmounting => "unmounting",
    }
}

pub(super) fn url_text(url: &str) -> String {
    escape::printable(url.as_bytes())
}

pub(super) fn path_text(path: &Path) -> String {
    escape::printable(path.as_os_str().as_encoded_bytes())
}

fn text(report: &MountReport) -> String {
    let mut text = format!(
        "{} on {}: {}{}, cache {}, writes {}, process {}\n  {}\n  {}\n",
        url_text(&report.url),
        path_text(&report.dir),
        state_name(report.state),
        if report.read_only { ", read-only" } else { "" },
        report.cache,
        report.writes,
        report.pid,
        server_text(&report.server),
        connection_text(&report.connection),
    );
    text += &log_text(&report.log);
    text += &format!(
        "  {} unsent, {} cached{}, {} objects; {} calls in flight, {} waiting for their turn\n",
        units::human(report.dirty_bytes),
        units::human(report.cached_bytes),
        report.disk.as_ref().map_or(String::new(), disk_text),
        report.nodes,
        report.calls_in_flight,
        report.calls_waiting,
    );
    let refused: Vec<_> = report.unsent.iter().filter_map(|unsent| Some((unsent, unsent.refused.as_ref()?))).collect();
    for (unsent, why) in refused.iter().take(HELD_SHOWN) {
        text += &refused_line(unsent, why);
    }
    text += &missed_text(&report.log.missed);
    for held in report.held.iter().take(HELD_SHOWN) {
        text += &format!("  {}\n", held_text(held));
    }
    let more = report.held.len().saturating_sub(HELD_SHOWN);
    if more > 0 {
        text += &format!("  and {more} more calls wait; --json lists them all\n");
    }
    text
}

/// State of the connection, in words.
pub(super) fn connection_text(connection: &ConnectionReport) -> String {
    let lasts = lasts_text(connection.since_ms);
    let mut text = match (connection.state, connection.is_asked) {
        (ConnectionState::Connected, _) => format!("connected for {lasts}"),
        (ConnectionState::Weak, _) => format!("weakly connected for {lasts}: the link is slow or drops"),
        (ConnectionState::Disconnected, true) => format!("disconnected for {lasts} by remora offline"),
        (ConnectionState::Disconnected, false) => {
            format!("disconnected for {lasts}: the server does not answer")
        }
    };
    if let Some(problem) = &connection.problem {
        text += &format!("; {}", escape::printable(problem.as_bytes()));
    }
    text
}

/// A time for people: `34 s`, `5 min`, `2 h 5 min`, `3 d`.
fn lasts_text(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match (minutes, hours) {
        (0, _) => format!("{seconds} s"),
        (_, 0) => format!("{minutes} min"),
        (_, 1..48) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d", hours / 24),
    }
}

/// Changes of names on their way, in words; nothing if there are none.
fn log_text(log: &LogReport) -> String {
    let mut text = String::new();
    let unsent = log.records.saturating_sub(log.refused);
    if log.records > 0 || log.sent > 0 {
        text += &format!(
            "  changes of names: {unsent} to be sent ({} in flight), {} sent, {} refused\n",
            log.in_flight, log.sent, log.refused
        );
    }
    for refusal in log.refusals.iter().take(HELD_SHOWN) {
        let (path, why) = (escape::printable(refusal.path.as_bytes()), escape::printable(refusal.why.as_bytes()));
        text += &format!("  {} of {path} is kept: the server refused it: {why}\n", refusal.change);
    }
    if log.conflicts > 0 {
        text += &format!("  conflicts: {} (remora conflicts DIR lists them)\n", log.conflicts);
    }
    text
}

/// What programs needed while disconnected, the latest first.
fn missed_text(missed: &[String]) -> String {
    let mut text = String::new();
    for path in missed.iter().rev().take(HELD_SHOWN) {
        text += &format!("  missed while disconnected: {}\n", escape::printable(path.as_bytes()));
    }
    let more = missed.len().saturating_sub(HELD_SHOWN);
    if more > 0 {
        text += &format!("  and {more} more were missed; --json lists them all\n");
    }
    text
}

fn disk_text(disk: &DiskReport) -> String {
    match &disk.error {
        None => format!(" and {} of {} on disk", units::human(disk.bytes), units::human(disk.limit)),
        Some(why) => format!(" (none on disk: {})", escape::printable(why.as_bytes())),
    }
}

pub(super) fn server_text(server: &ServerReport) -> String {
    let mut text = format!("server {} over {}", server.address, server.transport);
    if let Some(rtt) = server.rtt_ms {
        text += &format!(", RTT {rtt:.1} ms");
    }
    if let Some(bits) = server.rate_bits {
        text += &format!(", {bits} bit/s");
    }
    if server.silent_ms >= SILENT_MIN_MS {
        text += &format!("; silent for {} s", server.silent_ms / 1000);
    } else if server.deferred_ms >= SILENT_MIN_MS {
        text += &format!("; asks to try again later for {} s", server.deferred_ms / 1000);
    }
    text
}

fn refused_line(unsent: &UnsentReport, why: &str) -> String {
    let kept = match &unsent.data {
        Some(data) => format!("in {}", path_text(data)),
        None => "in memory".to_owned(),
    };
    let path = escape::printable(unsent.path.as_bytes());
    format!("  {path} is not sent: {why}; its {} are kept {kept}\n", units::human(unsent.bytes))
}

/// A call that waits, in words.
pub(super) fn held_text(held: &HeldReport) -> String {
    let program = if held.program.is_empty() { "a process" } else { &held.program };
    format!(
        "{} (pid {}) waits for {} of {} for {:.1} s",
        escape::printable(program.as_bytes()),
        held.pid,
        held.operation,
        escape::printable(held.path.as_bytes()),
        held.waits_ms as f64 / 1000.0,
    )
}

/// A report for tests.
#[cfg(test)]
pub(super) fn sample_report() -> MountReport {
    use remora_host::mount::report::{QueueReport, RefusedChange};

    let held =
        HeldReport { pid: 42, program: "cat".into(), operation: "READ".into(), path: "/a\nb".into(), waits_ms: 3456 };
    MountReport {
        url: "nfs://nas/srv".into(),
        dir: "/home/a/nas".into(),
        pid: 7,
        state: MountState::Mounted,
        cache: "default".into(),
        read_only: true,
        writes: "back".into(),
        soft_ms: None,
        server: ServerReport {
            address: "nas:2049".into(),
            transport: "udp".into(),
            silent_ms: 34_000,
            deferred_ms: 0,
            rtt_ms: Some(12.34),
            window: 2,
            rate_bits: Some(1_000_000),
            loss: None,
        },
        connection: ConnectionReport {
            state: ConnectionState::Disconnected,
            since_ms: 7_530_000,
            is_asked: false,
            problem: None,
        },
        log: LogReport {
            records: 12,
            refused: 1,
            in_flight: 3,
            sent: 140,
            conflicts: 2,
            refusals: vec![RefusedChange {
                path: "/n".into(),
                change: "rename".into(),
                why: "Permission denied".into(),
            }],
            missed: (1..HELD_SHOWN + 3).map(|n| format!("/m{n}")).collect(),
        },
        dirty_bytes: 3_100_000,
        unsent_files: 1,
        unsent: vec![UnsentReport {
            path: "/r".into(),
            bytes: 1000,
            refused: Some("Permission denied".into()),
            data: Some("/s/1".into()),
        }],
        cached_bytes: 0,
        disk: Some(DiskReport { bytes: 2_000_000, limit: 10_000_000_000, read_bytes: 0, error: None }),
        nodes: 5,
        calls_waiting: 2,
        queue: QueueReport { foreground: 2, ..QueueReport::default() },
        calls_in_flight: 1,
        hits: 3,
        misses: 1,
        read_bytes: 0,
        written_bytes: 0,
        held: vec![held; HELD_SHOWN + 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_server_unsent_data_and_who_waits() {
        let text = text(&sample_report());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "nfs://nas/srv on /home/a/nas: mounted, read-only, cache default, writes back, process 7");
        assert_eq!(lines[1], "  server nas:2049 over udp, RTT 12.3 ms, 1000000 bit/s; silent for 34 s");
        assert_eq!(lines[2], "  disconnected for 2 h 5 min: the server does not answer");
        assert_eq!(lines[3], "  changes of names: 11 to be sent (3 in flight), 140 sent, 1 refused");
        assert_eq!(lines[4], "  rename of /n is kept: the server refused it: Permission denied");
        assert_eq!(lines[5], "  conflicts: 2 (remora conflicts DIR lists them)");
        assert_eq!(
            lines[6],
            "  3.1 MB unsent, 0 B cached and 2.0 MB of 10 GB on disk, 5 objects; 1 calls in flight, 2 waiting for their turn"
        );
        assert_eq!(lines[7], "  /r is not sent: Permission denied; its 1.0 kB are kept in /s/1");
        assert_eq!(lines[8], "  missed while disconnected: /m22");
        assert_eq!(lines[8 + HELD_SHOWN], "  and 2 more were missed; --json lists them all");
        assert_eq!(lines[9 + HELD_SHOWN], "  cat (pid 42) waits for READ of /a\\nb for 3.5 s");
        assert_eq!(lines[lines.len() - 1], "  and 3 more calls wait; --json lists them all");
    }

    #[test]
    fn state_of_the_connection_says_since_when_and_why() {
        let text = |state, since_ms, is_asked, problem: Option<&str>| {
            connection_text(&ConnectionReport { state, since_ms, is_asked, problem: problem.map(str::to_owned) })
        };
        assert_eq!(text(ConnectionState::Connected, 34_999, false, None), "connected for 34 s");
        let weak = text(ConnectionState::Weak, 300_000, false, None);
        assert_eq!(weak, "weakly connected for 5 min: the link is slow or drops");
        let asked = text(ConnectionState::Disconnected, 3 * 86_400_000, true, Some("x\n"));
        assert_eq!(asked, "disconnected for 3 d by remora offline; x\\n");
        assert_eq!(log_text(&LogReport::default()) + &missed_text(&[]), "");
    }
}
