//! Juszczak's cache (DRC 89, section 4).
//!
//! It covers every request. Duplicates of a request in progress are dropped (4.1), and so are those of a recent
//! success (4.2); failures are executed again. The success of a non-idempotent request is replayed (4.3) while the
//! file's times show that the file has not changed since. The replay is the original reply, byte for byte.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::Proc;

use super::key::Request;
use super::ring::Ring;
use super::types::{Completion, EntryId, FileTimes, Stats, Verdict};

#[derive(Debug)]
pub(super) struct Juszczak {
    ring: Ring<State>,
    throwaway: Duration,
}

#[derive(Debug)]
enum State {
    /// Executes, or waits for the times of its target; then with the earlier success.
    InProgress(Option<Success>),
    Failed,
    Succeeded(Success),
}

#[derive(Clone, Debug)]
struct Success {
    at: Time,
    /// The reply to replay, and the times that the file must still have.
    repeat: Option<(Bytes, FileTimes)>,
}

impl State {
    fn reply_len(&self) -> usize {
        match self {
            State::InProgress(Some(s)) | State::Succeeded(s) => s.repeat.as_ref().map_or(0, |(reply, _)| reply.len()),
            State::InProgress(None) | State::Failed => 0,
        }
    }
}

impl Juszczak {
    pub(super) fn new(entries: usize, throwaway: Duration) -> Juszczak {
        Juszczak { ring: Ring::new(entries), throwaway }
    }

    pub(super) fn begin(&mut self, now: Time, request: &Request, room: bool, stats: &mut Stats) -> Verdict {
        let key = request.xid_key();
        let Some(at) = self.ring.find(&key) else {
            return self.begin_new(request, room, stats);
        };
        let Some(state) = self.ring.get_mut(at) else { return Verdict::Execute(None) };
        let id = EntryId(at as u64);
        match state {
            State::InProgress(_) => {
                stats.in_progress_dropped += 1;
                Verdict::InProgress
            }
            State::Succeeded(s) if now.since(s.at) < self.throwaway => {
                stats.throwaway_dropped += 1;
                Verdict::Recent
            }
            _ if !room => Verdict::NoRoom,
            State::Succeeded(s) if s.repeat.is_some() => {
                *state = State::InProgress(Some(s.clone()));
                Verdict::Check(id)
            }
            State::Succeeded(_) | State::Failed => {
                stats.executed_again += 1;
                *state = State::InProgress(None);
                Verdict::Execute(Some(id))
            }
        }
    }

    fn begin_new(&mut self, request: &Request, room: bool, stats: &mut Stats) -> Verdict {
        if !room {
            return Verdict::NoRoom;
        }
        let may_go = |s: &State| !matches!(s, State::InProgress(_));
        let at = self.ring.insert(request.xid_key(), State::InProgress(None), may_go);
        stats.uncached += u64::from(at.is_none());
        Verdict::Execute(at.map(|at| EntryId(at as u64)))
    }

    /// Notes the result of an execution. Returns the reply to send.
    pub(super) fn finish(&mut self, now: Time, id: EntryId, proc: Proc, done: Completion) -> Bytes {
        if let Some(state) = self.ring.get_mut(id.0 as usize) {
            let repeat = done.times.filter(|_| proc.is_non_idempotent()).map(|t| (done.reply.clone(), t));
            *state = if done.ok { State::Succeeded(Success { at: now, repeat }) } else { State::Failed };
        }
        done.reply
    }

    /// Removes the entry of a request that was not executed.
    pub(super) fn withdraw(&mut self, id: EntryId) {
        if let Some(state) = self.ring.get_mut(id.0 as usize) {
            *state = State::Failed;
        }
    }

    /// The reply to replay if `times` are those of the original's completion. Otherwise the entry stays in progress
    /// for the execution that follows.
    pub(super) fn checked(&mut self, id: EntryId, times: Option<FileTimes>, stats: &mut Stats) -> Option<Bytes> {
        let state = self.ring.get_mut(id.0 as usize)?;
        let State::InProgress(held) = state else { return None };
        let held = held.take();
        match held.as_ref().and_then(|s| s.repeat.clone()).filter(|(_, then)| times == Some(*then)) {
            Some((reply, _)) => {
                *state = held.map_or(State::Failed, State::Succeeded);
                stats.replays += 1;
                Some(reply)
            }
            None => {
                stats.executed_again += 1;
                None
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ring.bytes(State::reply_len)
    }
}
