//! systemd, or another manager with its protocol: readiness, reloads, the watchdog, and sockets that it opened. Without
//! one, nothing here does anything.

use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use listenfd::ListenFd;
use remora_host::server::InheritedSockets;
use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::output::exit::{Error, Result};

/// Sockets that nobody has taken yet.
static SOCKETS: Mutex<Option<ListenFd>> = Mutex::new(None);

/// Finds the sockets that this process was started with. Removes their variables from the environment, so it must
/// come before any thread.
pub(crate) fn find_sockets() {
    *SOCKETS.lock().unwrap_or_else(PoisonError::into_inner) = Some(ListenFd::from_env());
}

/// The sockets that this process was started with. Later calls return none.
pub(crate) fn take_sockets() -> Result<InheritedSockets> {
    let found = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner).take();
    sorted(found.unwrap_or_else(ListenFd::empty))
}

fn sorted(mut found: ListenFd) -> Result<InheritedSockets> {
    let mut sockets = InheritedSockets::default();
    for n in 0..found.len() {
        if let Ok(Some(tcp)) = found.take_tcp_listener(n) {
            sockets.tcp.push(tcp);
        } else if let Ok(Some(udp)) = found.take_udp_socket(n) {
            sockets.udp.push(udp);
        } else {
            let why = "is neither a TCP nor a UDP socket: ListenStream= and ListenDatagram= need a port";
            return Err(Error::refused(format_args!("socket {n} of the service manager"), why));
        }
    }
    Ok(sockets)
}

/// The service answers.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// The service reads its configuration again; [`ready`] ends that.
pub(crate) fn reloading() {
    // Without the time, Type=notify-reload ignores it; other types ignore the time.
    let since = NotifyState::monotonic_usec_now();
    notify(&[NotifyState::Reloading].into_iter().chain(since).collect::<Vec<_>>());
}

/// The service ends in good order.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // A manager that does not listen cannot be told so.
    let _: io::Result<()> = sd_notify::notify(states);
}

/// Tells the service manager that the service works, twice in its time limit.
pub(crate) struct Watchdog(Option<Interval>);

impl Watchdog {
    /// Must be called in a runtime.
    pub(crate) fn start() -> Watchdog {
        Watchdog(sd_notify::watchdog_enabled().map(|limit| {
            let mut due = interval((limit / 2).max(Duration::from_millis(1)));
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            due
        }))
    }

    /// Waits until the manager is to be told, for ever if it does not want to be. Cancelling it loses nothing.
    pub(crate) async fn due(&mut self) {
        match &mut self.0 {
            Some(due) => drop(due.tick().await),
            None => pending().await,
        }
    }

    /// The service works; the manager counts anew.
    pub(crate) fn works(&self) {
        notify(&[NotifyState::Watchdog]);
    }
}
