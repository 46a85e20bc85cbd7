//! Detection of servers slower than the retransmission timeout.
//!
//! Such a server gets every request again. No reply then belongs to a request that was sent once, so its response time
//! would never be measured. Two patterns show it:
//!
//! * Each transmission is answered. The first reply then belongs to the first transmission.
//! * The server has a duplicate request cache and replies once. Three requests in a row are answered only after a
//!   retransmission, although no probe is lost meanwhile.

use remora_base::Time;

use crate::request::CallClass;

/// Requests in a row, each transmission of which was answered.
const ALL_ANSWERED_MIN: u32 = 2;
/// Requests in a row that were answered once, after a retransmission.
const RETRANSMITTED_MIN: u32 = 3;

/// Runs of retransmitted requests, by class.
#[derive(Debug, Default)]
pub(crate) struct SpuriousTimeouts {
    runs: [ResendRun; CallClass::ALL.len()],
    lost_probe: Option<Time>,
}

/// Retransmitted requests in a row.
#[derive(Clone, Copy, Debug, Default)]
struct ResendRun {
    all_answered: u32,
    retransmitted: u32,
    /// First transmission of the first of `retransmitted`.
    since: Time,
}

impl SpuriousTimeouts {
    pub(crate) fn on_probe_lost(&mut self, now: Time) {
        self.lost_probe = Some(now);
    }

    /// A request that was sent once was answered: ends the run.
    pub(crate) fn on_answered_once(&mut self, class: CallClass) {
        self.runs[class as usize] = ResendRun::default();
    }

    /// A retransmitted request, first sent at `first`, was answered. Returns whether the server is taken to be slow if
    /// no RTT is known; where one is, the requests may have been lost.
    pub(crate) fn on_retransmitted(&mut self, class: CallClass, first: Time) -> bool {
        let run = &mut self.runs[class as usize];
        if run.retransmitted == 0 {
            run.since = first;
        }
        run.retransmitted += 1;
        if self.lost_probe.is_some_and(|t| t >= run.since) {
            run.retransmitted = 0;
        }
        run.retransmitted >= RETRANSMITTED_MIN
    }

    /// Each transmission of a request was answered. Returns whether the server is slow.
    pub(crate) fn on_all_answered(&mut self, class: CallClass) -> bool {
        let run = &mut self.runs[class as usize];
        run.all_answered += 1;
        run.all_answered >= ALL_ANSWERED_MIN
    }
}
