//! The commands to a running link, and the handle that sends them.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use crate::handoff::Signal;
use crate::link::diagnostics::LinkReport;

/// Commands to a running link.
pub(in crate::link) enum LinkCommand {
    /// Announces the beginning or end of a handoff.
    HandOff(Signal),
    /// Sends a goodbye and stops.
    Stop,
}

/// A handle to a running link, which can be cloned and sent.
#[derive(Clone, Debug)]
pub struct LinkControl {
    pub(in crate::link) commands: Sender<LinkCommand>,
    pub(in crate::link) wake: Arc<OwnedFd>,
    pub(in crate::link) report: Arc<Mutex<LinkReport>>,
}

impl LinkControl {
    /// A handle without a link.
    #[cfg(test)]
    pub(in crate::link) fn of_nothing() -> LinkControl {
        let wake =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)
                .unwrap();
        LinkControl { commands: std::sync::mpsc::channel().0, wake: Arc::new(wake), report: Arc::default() }
    }

    /// The counters, at most a quarter of a second old.
    pub fn report(&self) -> LinkReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Announces the beginning or end of a handoff to the peers and to this machine's programs.
    pub fn hand_off(&self, signal: Signal) {
        self.send(LinkCommand::HandOff(signal));
    }

    pub(in crate::link) fn send(&self, command: LinkCommand) {
        // An ended link receives no commands.
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}
