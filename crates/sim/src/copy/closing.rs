//! What `remora cp` asks at last of a server (docs/files.md): the hidden file gets its name and its source's mode and
//! time. On a long path where nothing was lost it does so behind the last WRITEs; elsewhere when all is on the disk.

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, Busy, CallId, Client, Failure, Request, Written};
use remora_wire::nfs3::{Attr, Call, DirOp, Fh, NfsTime, RenameArgs, Reply, SetAttr, SetAttrArgs, SetTime};

/// The last calls of a copy to the server.
#[derive(Debug)]
pub(super) struct Closing {
    from: DirOp,
    to: DirOp,
    fh: Fh,
    /// What was lost before the file's bytes were sent.
    lost: u64,
    renaming: Step,
    setting: Step,
    /// What they found, if it was said.
    set: Option<Attr>,
    /// If they were asked for early: what had been sent again by then.
    sent_again: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Todo,
    Out(CallId),
    Done,
}

impl Closing {
    /// Of the file `fh`, whose bytes are about to be sent, from its hidden name in `dir` to its own.
    pub(super) fn new(client: &Client, dir: &Fh, (name, hidden): (&str, &str), fh: Fh) -> Closing {
        let at = |name: &str| DirOp { dir: dir.clone(), name: Bytes::from(name.to_owned()) };
        let (from, to, lost) = (at(hidden), at(name), client.stats().lost());
        Closing { from, to, fh, lost, renaming: Step::Todo, setting: Step::Todo, set: None, sent_again: None }
    }

    /// All is asked for: goes on already if all is on its way, too, on a long path where nothing was lost.
    pub(super) fn all_asked(&mut self, now: Time, client: &mut Client) -> Result<(), Busy> {
        let is_begun = self.renaming != Step::Todo;
        if is_begun || !client.has_sent_all_far() || client.stats().lost() != self.lost {
            return Ok(());
        }
        self.sent_again = Some(client.stats().retransmissions);
        self.rename(now, client)?;
        self.set(now, client)
    }

    /// All is on the disk: goes on. Says whether there is nothing left to do.
    pub(super) fn go_on(&mut self, now: Time, client: &mut Client, written: &Written) -> Result<bool, Busy> {
        if matches!(self.renaming, Step::Out(_)) || matches!(self.setting, Step::Out(_)) {
            return Ok(false);
        }
        if let Some(sent_again) = self.sent_again.take() {
            // What was sent again later may have been done later, and have set the time.
            let is_later = self.set.as_ref().is_some_and(|set| written.is_before(set));
            if !is_later || client.stats().retransmissions != sent_again {
                self.setting = Step::Todo;
            }
        }
        let is_set = self.setting == Step::Done;
        if !is_set {
            self.set(now, client)?;
        }
        if self.renaming == Step::Todo && (is_set || !client.is_near()) {
            self.rename(now, client)?;
        }
        Ok(is_set && self.renaming == Step::Done)
    }

    fn rename(&mut self, now: Time, client: &mut Client) -> Result<(), Busy> {
        let args = RenameArgs { from: self.from.clone(), to: self.to.clone() };
        self.renaming = Step::Out(client.submit(now, Request::Nfs(Call::Rename(args)))?);
        Ok(())
    }

    fn set(&mut self, now: Time, client: &mut Client) -> Result<(), Busy> {
        let mtime = SetTime::To(NfsTime { secs: 1, nanos: 0 });
        let attr = SetAttr { mode: Some(0o644), mtime, ..SetAttr::NONE };
        let args = SetAttrArgs { fh: self.fh.clone(), attr, guard: None };
        self.setting = Step::Out(client.submit(now, Request::Nfs(Call::SetAttr(args)))?);
        Ok(())
    }

    /// Whether the call is one of these.
    pub(super) fn has(&self, id: CallId) -> bool {
        [self.renaming, self.setting].contains(&Step::Out(id))
    }

    /// Takes what one of its calls came to, or says why it cannot go on.
    pub(super) fn take(&mut self, id: CallId, result: &Result<Answer, Failure>) -> Result<(), String> {
        let answer = result.as_ref().map_err(Failure::to_string)?;
        match answer {
            Answer::Nfs(Reply::Rename(Ok(_))) if self.renaming == Step::Out(id) => self.renaming = Step::Done,
            Answer::Nfs(Reply::SetAttr(Ok(wcc))) if self.setting == Step::Out(id) => {
                (self.setting, self.set) = (Step::Done, wcc.after.clone());
            }
            other => return Err(format!("the copy's end: {other:?}")),
        }
        Ok(())
    }
}
