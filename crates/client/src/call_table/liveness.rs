//! What is known of the connection and of the server behind it: when it was last heard of, and whether a hold is on.

use remora_base::Time;

/// The present connection, and what came of those before.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionState {
    /// False while it has to be made again.
    pub(super) connected: bool,
    /// When it was made.
    pub(super) since: Time,
    /// Nothing but the answer to a NULL call has come over it.
    pub(super) is_untried: bool,
    /// How many of those that were made last were no better than the one before.
    pub(super) in_vain: u32,
    /// The NULL call on it that was not answered yet, and when it was sent.
    pub(super) asked: Option<(u32, Time)>,
}

impl ConnectionState {
    pub(super) fn new(now: Time, connected: bool) -> ConnectionState {
        ConnectionState { connected, since: now, is_untried: false, in_vain: 0, asked: None }
    }

    /// If `xid` is that of the NULL call on it: that is answered. When it was sent.
    pub(super) fn take_asked(&mut self, xid: u32) -> Option<Time> {
        self.asked.take_if(|(asked, _)| *asked == xid).map(|(_, at)| at)
    }
}

/// When the server last gave signs of life.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastContact {
    /// Any.
    pub(super) last: Time,
    /// The one from which on it is waited for.
    pub(super) patient_since: Time,
    /// That was the answer to a probe, and no request has been answered since.
    pub(super) is_probe: bool,
}

impl LastContact {
    pub(super) fn new(now: Time) -> LastContact {
        LastContact { last: now, patient_since: now, is_probe: false }
    }

    /// The answer to a request, a part of one, or as good as that.
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

/// A hold that is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// When it ends if nobody ends it before.
    pub(super) until: Time,
    /// Whether the link keeps what is under way.
    pub(super) kept: bool,
}
