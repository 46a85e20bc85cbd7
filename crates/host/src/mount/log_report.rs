//! What a mount reports of its connection and of its change log.

use std::io;
use std::time::Duration;

use remora_base::Time;
use remora_cache::{Conflict, ConflictKind, Connectivity, LogChange, LogRecord, LogStatus};

use super::driver::ConnectionChange;
use super::report::{ConflictName, ConflictReport, ConnectionReport, ConnectionState, LogReport, RefusedChange};

/// The connection, as it has been since its last change.
pub(super) fn connection(change: ConnectionChange, now: Time) -> ConnectionReport {
    let (state, is_asked) = match change.connectivity {
        Connectivity::Connected => (ConnectionState::Connected, false),
        Connectivity::Weak => (ConnectionState::Weak, false),
        Connectivity::Disconnected { is_asked } => (ConnectionState::Disconnected, is_asked),
    };
    let problem = change.is_root_stale.then(|| {
        "the server does not know the mounted directory any more (ESTALE): it was removed, or the server was set up \
         anew; unmount and mount again"
            .to_owned()
    });
    ConnectionReport { state, since_ms: milliseconds(now.since(change.since)), is_asked, problem }
}

/// The log, with those of these records that the server refused.
pub(super) fn log(status: LogStatus, records: &[LogRecord], missed: Vec<Vec<u8>>) -> LogReport {
    let LogStatus { records: count, refused, in_flight, sent, conflicts } = status;
    let refusals = records.iter().filter_map(|record| Some(refused_change(record, record.refusal?)));
    LogReport {
        records: count,
        refused,
        in_flight,
        sent,
        conflicts,
        refusals: refusals.collect(),
        missed: missed.iter().map(|path| text(path)).collect(),
    }
}

fn refused_change(record: &LogRecord, errno: u32) -> RefusedChange {
    let change = match record.change {
        LogChange::Make { .. } => "make",
        LogChange::Link { .. } => "link",
        LogChange::Remove { .. } => "remove",
        LogChange::Rename { .. } => "rename",
        LogChange::SetAttr { .. } => "attributes",
    };
    let why = io::Error::from_raw_os_error(errno.cast_signed()).to_string();
    RefusedChange { path: text(&record.path), change: change.to_owned(), why }
}

pub(super) fn conflict(conflict: &Conflict) -> ConflictReport {
    let kind = match conflict.kind {
        ConflictKind::Content => ConflictName::Content,
        ConflictKind::Type => ConflictName::Type,
        ConflictKind::RemovedThere => ConflictName::RemovedThere,
        ConflictKind::ChangedThere => ConflictName::ChangedThere,
        ConflictKind::Renamed => ConflictName::Renamed,
        ConflictKind::Skipped => ConflictName::Skipped,
        ConflictKind::DirectoryRemovedThere => ConflictName::DirectoryRemovedThere,
        ConflictKind::Attributes => ConflictName::Attributes,
    };
    ConflictReport {
        id: conflict.id.0,
        kind,
        path: text(&conflict.path),
        copy: conflict.copy.as_deref().map(text),
        at_ms: u64::from(conflict.at.secs) * 1000 + u64::from(conflict.at.nanos) / 1_000_000,
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
