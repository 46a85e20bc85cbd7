//! Notices of a change of the connection: a line on standard error in the foreground, and a desktop notification.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use remora_cache::Connectivity;
use remora_host::mount::{ConnectionChange, RunningMount};

use crate::commands::mount::status::path_text;
use crate::output::stdio;

/// Watches the connection of `mount`. Never ends.
pub(super) async fn print(mount: &RunningMount, is_foreground: bool) {
    let mut changes = mount.connection();
    let mut before = *changes.borrow_and_update();
    loop {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let now = *changes.borrow_and_update();
        let Some(text) = text(before, now, &path_text(mount.dir()), mount.log_len()) else { continue };
        if is_foreground {
            stdio::eprint(&text);
        }
        // A weak link comes and goes too often for the desktop.
        if is_offline(before) != is_offline(now) || now.is_root_stale {
            notify(&text);
        }
        before = now;
    }
}

fn is_offline(change: ConnectionChange) -> bool {
    matches!(change.connectivity, Connectivity::Disconnected { .. })
}

/// What to say of a change.
fn text(before: ConnectionChange, now: ConnectionChange, dir: &str, changes: usize) -> Option<String> {
    if now.is_root_stale && !before.is_root_stale {
        return Some(format!(
            "{dir}: the server does not know this directory any more (ESTALE); unmount and mount it again"
        ));
    }
    if now.connectivity == before.connectivity {
        return None;
    }
    let rest = if changes > 0 { format!("; changes to be sent: {changes}") } else { String::new() };
    Some(match now.connectivity {
        Connectivity::Disconnected { is_asked: true } => format!("{dir} works offline until remora online {dir}"),
        Connectivity::Disconnected { is_asked: false } => {
            format!("{dir} works offline: the server does not answer; changes are kept on this machine")
        }
        Connectivity::Weak => format!("{dir}: the link is slow or drops; changes are sent in the background{rest}"),
        Connectivity::Connected if is_offline(before) => format!("{dir} is online again{rest}"),
        Connectivity::Connected => format!("{dir}: the link is good again{rest}"),
    })
}

/// Shows a notification, if there is a desktop. Does not wait for it.
fn notify(text: &str) {
    if !has_session_bus() {
        return;
    }
    let mut command = Command::new("notify-send");
    command.args(["--app-name=remora", "--", "Remora", text]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without the program there is no notification.
    if let Ok(mut shown) = command.spawn() {
        std::thread::spawn(move || shown.wait());
    }
}

/// Whether this user has a session bus. Another user's is not tried.
fn has_session_bus() -> bool {
    if std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty()) {
        return true;
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    !rustix::process::geteuid().is_root() && runtime.is_some_and(|dir| dir.join("bus").exists())
}

#[cfg(test)]
mod tests {
    use remora_base::Time;

    use super::*;

    #[test]
    fn every_change_of_state_has_one_line() {
        let change = |connectivity| ConnectionChange { connectivity, since: Time::ZERO, is_root_stale: false };
        let [connected, weak] = [Connectivity::Connected, Connectivity::Weak].map(change);
        let [asked, silent] = [true, false].map(|is_asked| change(Connectivity::Disconnected { is_asked }));
        let stale = ConnectionChange { is_root_stale: true, ..connected };
        for (before, now, changes, words) in [
            (connected, silent, 0, "/mnt works offline: the server does not answer"),
            (connected, asked, 0, "/mnt works offline until remora online /mnt"),
            (silent, connected, 3, "/mnt is online again; changes to be sent: 3"),
            (connected, weak, 0, "slow or drops"),
            (weak, connected, 0, "good again"),
            (connected, stale, 0, "ESTALE"),
        ] {
            let text = text(before, now, "/mnt", changes).unwrap();
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(text(stale, stale, "/mnt", 1), None);
    }
}
