//! The writing process and its block I/O daemons: LOOKUP, SETATTR to size 0, then block after
//! block.
//!
//! The process passes a block to an idle block I/O daemon (biod) and continues; if all are busy it
//! writes the block itself and waits for the reply (DRC 89, sections 2.1 and 3). Meanwhile, idle
//! daemons have nothing to do. The file is closed when all blocks are written.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, CallFailure, CallId, Request};
use remora_wire::nfs3::{Call, DirOp, Fh, Reply, SetAttr, SetAttrArgs, Stable, WriteArgs};

use crate::world::User;

/// Writes of a run: 1 MB in blocks of 8 KB.
pub const WRITES: u32 = 128;
/// Bytes of a write.
pub const BLOCK: u32 = crate::world::ufs::BLOCK as u32;
/// Block I/O daemons.
pub const BIODS: usize = 4;
/// Calls before the first WRITE.
pub(super) const CALLS_BEFORE: u32 = 2;

/// The assignment of blocks to writers, independent of the transport. `K` identifies calls.
#[derive(Clone, Debug)]
pub struct Process<K> {
    /// Time in which the process produces a block.
    copy: Duration,
    next: u32,
    /// When the next block is ready.
    ready_at: Time,
    /// The block that the process writes itself.
    own: Option<K>,
    biods: BTreeSet<K>,
}

/// The next action of a [`Process`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Write this block.
    Write(u32),
    /// Call again at this time, or after a reply.
    Until(Time),
    /// Call again after a reply.
    Wait,
    /// All blocks are written.
    Done,
}

impl<K: Ord> Process<K> {
    /// A process before its first block, which takes `copy` to produce a block.
    pub fn new(copy: Duration) -> Process<K> {
        Process { copy, next: 0, ready_at: Time::ZERO, own: None, biods: BTreeSet::new() }
    }

    /// The file is open: the process begins.
    pub fn begin(&mut self, now: Time) {
        self.ready_at = now + self.copy;
    }

    /// The next action.
    pub fn step(&self, now: Time) -> Step {
        match () {
            () if self.own.is_some() => Step::Wait,
            () if self.next >= WRITES && self.biods.is_empty() => Step::Done,
            () if self.next >= WRITES => Step::Wait,
            () if now < self.ready_at => Step::Until(self.ready_at),
            () => Step::Write(self.next),
        }
    }

    /// The block of [`Step::Write`] was sent as `call`.
    pub fn on_sent(&mut self, now: Time, call: K) {
        self.next += 1;
        if self.biods.len() < BIODS {
            self.biods.insert(call);
            self.ready_at = now + self.copy;
        } else {
            self.own = Some(call);
        }
    }

    /// A reply arrived.
    pub fn on_done(&mut self, now: Time, call: &K) {
        if self.own.as_ref() == Some(call) {
            self.own = None;
            self.ready_at = now + self.copy;
        }
        self.biods.remove(call);
    }
}

/// A block's bytes, which differ from the file's earlier ones.
pub(super) fn block(n: u32) -> Bytes {
    Bytes::from(vec![(n % 251) as u8; BLOCK as usize])
}

/// Whether a file holds all blocks and nothing else.
pub fn is_intact(bytes: &[u8]) -> bool {
    bytes.len() == (WRITES * BLOCK) as usize
        && (0..WRITES).zip(bytes.chunks(BLOCK as usize)).all(|(n, b)| b == block(n))
}

/// The user of the simulated client.
#[derive(Debug)]
pub(super) struct Writer {
    root: Fh,
    name: String,
    /// LOOKUPs of the file beside each WRITE, of which the process awaits none.
    lookups: u32,
    state: State,
    process: Process<CallId>,
    now: Time,
}

#[derive(Debug)]
enum State {
    Start,
    Opening,
    Opened(Fh),
    Truncating(Fh),
    Writing(Fh),
    Done(Time),
    Failed(String),
}

impl Writer {
    pub(super) fn new(root: Fh, name: &str, process: Process<CallId>) -> Writer {
        let name = name.to_owned();
        Writer { root, name, lookups: 0, state: State::Start, process, now: Time::ZERO }
    }

    /// Sends `lookups` LOOKUPs beside each WRITE.
    pub(super) fn with_lookups(self, lookups: u32) -> Writer {
        Writer { lookups, ..self }
    }

    fn lookup_call(&self) -> Call {
        Call::Lookup(DirOp { dir: self.root.clone(), name: Bytes::from(self.name.clone()) })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Done(_) | State::Failed(_))
    }

    /// When the file was closed.
    pub(super) fn ended(&self) -> Result<Time, String> {
        match &self.state {
            State::Done(at) => Ok(*at),
            State::Failed(why) => Err(why.clone()),
            _ => Err("the run is not complete".into()),
        }
    }

    fn submit(&mut self, now: Time, client: &mut remora_client::Client, call: Call) -> Option<CallId> {
        let id = client.submit(now, Request::Nfs(call));
        if let Err(busy) = &id {
            self.state = State::Failed(busy.to_string());
        }
        id.ok()
    }

    fn write(&mut self, now: Time, client: &mut remora_client::Client, fh: &Fh) {
        loop {
            match self.process.step(now) {
                Step::Write(n) => {
                    let Some(id) = self.submit(now, client, write_call(fh, n)) else { return };
                    self.process.on_sent(now, id);
                    for _ in 0..self.lookups {
                        let call = self.lookup_call();
                        if self.submit(now, client, call).is_none() {
                            return;
                        }
                    }
                }
                Step::Done => {
                    self.state = State::Done(now);
                    return;
                }
                Step::Until(_) | Step::Wait => return,
            }
        }
    }
}

pub fn write_call(fh: &Fh, n: u32) -> Call {
    let (offset, data) = (u64::from(n) * u64::from(BLOCK), block(n));
    Call::Write(WriteArgs { fh: fh.clone(), offset, count: BLOCK, stable: Stable::FileSync, data })
}

/// The SETATTR that truncates the file.
pub fn truncate_call(fh: &Fh) -> Call {
    let attr = SetAttr { size: Some(0), ..SetAttr::NONE };
    Call::SetAttr(SetAttrArgs { fh: fh.clone(), attr, guard: None })
}

impl User for Writer {
    fn drive(&mut self, now: Time, client: &mut remora_client::Client) {
        self.now = now;
        match &self.state {
            State::Start => {
                let call = self.lookup_call();
                if self.submit(now, client, call).is_some() {
                    self.state = State::Opening;
                }
            }
            State::Opened(fh) => {
                let fh = fh.clone();
                if self.submit(now, client, truncate_call(&fh)).is_some() {
                    self.state = State::Truncating(fh);
                }
            }
            State::Writing(fh) => {
                let fh = fh.clone();
                self.write(now, client, &fh);
            }
            State::Opening | State::Truncating(_) | State::Done(_) | State::Failed(_) => {}
        }
    }

    fn on_done(&mut self, now: Time, id: CallId, result: Result<Answer, CallFailure>) {
        let state = std::mem::replace(&mut self.state, State::Start);
        self.state = match (state, result) {
            (State::Opening, Ok(Answer::Nfs(Reply::Lookup(Ok(found))))) => State::Opened(found.fh),
            (State::Truncating(fh), Ok(Answer::Nfs(Reply::SetAttr(Ok(_))))) => {
                self.process.begin(now);
                State::Writing(fh)
            }
            (State::Writing(fh), Ok(Answer::Nfs(Reply::Write(Ok(ok))))) if ok.count == BLOCK => {
                self.process.on_done(now, &id);
                State::Writing(fh)
            }
            // One of those beside the WRITEs.
            (state @ (State::Writing(_) | State::Done(_)), Ok(Answer::Nfs(Reply::Lookup(Ok(_))))) => state,
            (failed @ State::Failed(_), _) => failed,
            (_, Err(why)) => State::Failed(why.to_string()),
            (_, Ok(answer)) => State::Failed(format!("unexpected reply: {answer:?}")),
        };
    }

    fn poll_timeout(&self) -> Option<Time> {
        let State::Writing(_) = self.state else { return None };
        match self.process.step(self.now) {
            Step::Until(at) => Some(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Duration = Duration::from_millis(10);

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    #[test]
    fn process_passes_four_blocks_and_writes_the_fifth() {
        let mut process = Process::new(COPY);
        process.begin(ms(0));
        for n in 0..5 {
            let at = ms(10 * u64::from(n + 1));
            assert_eq!(process.step(ms(10 * u64::from(n))), Step::Until(at));
            assert_eq!(process.step(at), Step::Write(n));
            process.on_sent(at, n);
        }
        // A daemon is idle again, but the process waits.
        process.on_done(ms(60), &0);
        assert_eq!(process.step(ms(60)), Step::Wait);
        process.on_done(ms(70), &4);
        assert_eq!(process.step(ms(70)), Step::Until(ms(80)));
        assert_eq!(process.step(ms(80)), Step::Write(5));
    }

    #[test]
    fn file_is_closed_after_all_replies() {
        let mut process = Process::new(Duration::ZERO);
        let mut now = ms(0);
        process.begin(now);
        for n in 0..WRITES {
            assert_eq!(process.step(now), Step::Write(n));
            process.on_sent(now, n);
            if n >= BIODS as u32 {
                now += COPY;
                process.on_done(now, &n);
            }
        }
        assert_eq!(process.step(now), Step::Wait);
        (0..BIODS as u32).for_each(|n| process.on_done(now, &n));
        assert_eq!(process.step(now), Step::Done);
    }

    #[test]
    fn file_with_missing_or_extra_block_is_not_intact() {
        let file: Vec<u8> = (0..WRITES).flat_map(block).collect();
        assert!(is_intact(&file));
        let mut hole = file.clone();
        hole[BLOCK as usize] = 0;
        assert!(!is_intact(&hole) && !is_intact(&file[1..]) && !is_intact(&[&file[..], &[0]].concat()));
    }
}
