//! The last calls of a `remora cp` upload (docs/guide/files.md): RENAME from the temporary to the final name, SETATTR of mode
//! and time.

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, Busy, CallId, Client, Failure, Request};
use remora_wire::nfs3::{Call, DirOp, Fh, NfsTime, RenameArgs, Reply, SetAttr, SetAttrArgs, SetTime};

/// RENAME and SETATTR of an upload, side by side unless the server is near.
#[derive(Debug)]
pub(super) struct Closing {
    from: DirOp,
    to: DirOp,
    fh: Fh,
    renaming: Step,
    setting: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Todo,
    Out(CallId),
    Done,
}

impl Closing {
    /// For the file `fh` in `dir`, which has the temporary name `hidden` and is to get `name`.
    pub(super) fn new(dir: &Fh, (name, hidden): (&str, &str), fh: Fh) -> Closing {
        let at = |name: &str| DirOp { dir: dir.clone(), name: Bytes::from(name.to_owned()) };
        Closing { from: at(hidden), to: at(name), fh, renaming: Step::Todo, setting: Step::Todo }
    }

    /// Submits the next calls, if the last ones have been answered. Returns whether all are done.
    pub(super) fn go_on(&mut self, now: Time, client: &mut Client) -> Result<bool, Busy> {
        if matches!(self.renaming, Step::Out(_)) || matches!(self.setting, Step::Out(_)) {
            return Ok(false);
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

    /// Whether `id` is one of its calls.
    pub(super) fn has(&self, id: CallId) -> bool {
        [self.renaming, self.setting].contains(&Step::Out(id))
    }

    /// Takes the result of one of its calls. Fails with the reason why the copy cannot be completed.
    pub(super) fn take(&mut self, id: CallId, result: &Result<Answer, Failure>) -> Result<(), String> {
        let answer = result.as_ref().map_err(Failure::to_string)?;
        match answer {
            Answer::Nfs(Reply::Rename(Ok(_))) if self.renaming == Step::Out(id) => self.renaming = Step::Done,
            Answer::Nfs(Reply::SetAttr(Ok(_))) if self.setting == Step::Out(id) => self.setting = Step::Done,
            other => return Err(format!("the copy's end: {other:?}")),
        }
        Ok(())
    }
}
