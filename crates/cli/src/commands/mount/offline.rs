//! `remora offline` and `remora online`: work without the server, and with it again.

use std::path::Path;

use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{ConnectionState, MountReport};

use crate::commands::mount::flags::{Offline, Online};
use crate::commands::mount::known_mounts;
use crate::commands::mount::status::path_text;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) fn go_offline(args: &Offline) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let connection = mount.go_offline().map_err(|error| known_mounts::unanswered(&mount, error))?;
    if connection.state != ConnectionState::Disconnected {
        return Err(not_offline(&mount, &args.dir));
    }
    let dir = path_text(&mount.note.dir);
    stdio::eprint(format_args!("{dir} works offline until remora online {dir}"));
    Ok(())
}

/// A mount that cannot keep changes stays online.
fn not_offline(mount: &KnownMount, dir: &Path) -> Error {
    let why = "it cannot work offline: it has no store for changes";
    let hint = format!("remora umount {} and mount it again; the message then says why", path_text(&mount.note.dir));
    Error::refused(dir.display(), why).with_hint(hint)
}

pub(crate) fn go_online(args: &Online) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let answered = mount.go_online().and_then(|_| mount.report());
    let report = answered.map_err(|error| known_mounts::unanswered(&mount, error))?;
    stdio::eprint(online_text(&report));
    Ok(())
}

fn online_text(report: &MountReport) -> String {
    let dir = path_text(&report.dir);
    let rest = match (report.log.records, report.unsent_files) {
        (0, 0) => String::new(),
        (names, files) => format!("; to be sent: changes of names: {names}, files: {files}"),
    };
    match report.connection.state {
        ConnectionState::Disconnected => format!("{dir} goes online when the server answers{rest}"),
        ConnectionState::Connected | ConnectionState::Weak => format!("{dir} is online{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::mount::status::sample_report;

    #[test]
    fn text_says_what_is_still_to_be_sent() {
        let mut report = sample_report();
        assert_eq!(
            online_text(&report),
            "/home/a/nas goes online when the server answers; to be sent: changes of names: 12, files: 1"
        );
        report.connection.state = ConnectionState::Connected;
        report.log.records = 0;
        report.unsent_files = 0;
        assert_eq!(online_text(&report), "/home/a/nas is online");
    }
}
