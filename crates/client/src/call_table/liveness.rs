//! Liveness of the connection and the server: when they were last heard of, and whether a hold is on.

use remora_base::Time;

/// The present connection and its predecessors.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionState {
    /// False until the next connection is made.
    pub(super) connected: bool,
    /// When it was made.
    pub(super) since: Time,
    /// It has brought nothing but replies to NULL.
    pub(super) is_untried: bool,
    /// Connections in a row that were no better than the one before.
    pub(super) in_vain: u32,
    /// The unanswered NULL call on it, and when that was sent.
    pub(super) asked: Option<(u32, Time)>,
}

impl ConnectionState {
    pub(super) fn new(now: Time, connected: bool) -> ConnectionState {
        ConnectionState { connected, since: now, is_untried: false, in_vain: 0, asked: None }
    }

    /// Takes the reply to the NULL call with this `xid`. Returns when that was sent.
    pub(super) fn take_asked(&mut self, xid: u32) -> Option<Time> {
        self.asked.take_if(|(asked, _)| *asked == xid).map(|(_, at)| at)
    }
}

/// When the server was last heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastContact {
    pub(super) last: Time,
    /// Start of the present silence.
    pub(super) patient_since: Time,
    /// That was the reply to a probe, and no request was answered since.
    pub(super) is_probe: bool,
}

impl LastContact {
    pub(super) fn new(now: Time) -> LastContact {
        LastContact { last: now, patient_since: now, is_probe: false }
    }

    /// A reply to a request, or a part of one.
    pub(super) fn note(&mut self, now: Time) {
        let latest = |then: Time| then.max(now);
        *self = LastContact { last: latest(self.last), patient_since: latest(self.patient_since), is_probe: false };
    }

    pub(super) fn note_probe(&mut self, now: Time) {
        self.last = self.last.max(now);
        if !self.is_probe {
            (self.patient_since, self.is_probe) = (self.last, true);
        }
    }
}

/// A hold: nothing is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// When it ends by itself.
    pub(super) until: Time,
    /// The link keeps what is in flight.
    pub(super) kept: bool,
}
