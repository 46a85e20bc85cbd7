//! The first and last calls of `remora cp` with a server known from before (docs/guide/files.md).

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, Busy, CallFailure, CallId, Client, Request};
use remora_wire::mount;
use remora_wire::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, Fh, NfsTime, RenameArgs, Reply, SetAttr, SetAttrArgs, SetTime, Status,
};

use super::config::Direction;

/// The first calls, all sent at once: the mount, the server's limits, the file's name, and for an
/// upload the temporary file.
#[derive(Debug)]
pub(super) struct FirstCalls {
    direction: Direction,
    dir: Fh,
    out: BTreeMap<CallId, FirstCall>,
    /// The file, and its size if the server returned it.
    found: Option<(Fh, Option<u64>)>,
}

/// The kind of a first call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FirstCall {
    Limits,
    /// GETATTR of the directory; not waited for, since FSINFO returns the attributes, too.
    Attributes,
    /// MNT of the path itself, in case the server exports files; its result is ignored.
    File,
    /// MNT of the directory.
    Directory,
    Name,
    Temporary,
}

impl FirstCalls {
    /// Submits all of them for the directory `dir`.
    pub(super) fn ask(
        now: Time,
        client: &mut Client,
        direction: Direction,
        dir: &Fh,
        name: &str,
        temporary: &str,
    ) -> Result<FirstCalls, Busy> {
        let at = |name: &str| DirOp { dir: dir.clone(), name: Bytes::from(name.to_owned()) };
        let mnt = |path: String| Request::Mount(mount::Call::Mnt(path.into()));
        let mut calls = vec![
            (FirstCall::Limits, Request::Nfs(Call::FsInfo(dir.clone()))),
            (FirstCall::File, mnt(format!("/{name}"))),
            (FirstCall::Directory, mnt("/".into())),
            (FirstCall::Attributes, Request::Nfs(Call::GetAttr(dir.clone()))),
            (FirstCall::Name, Request::Nfs(Call::Lookup(at(name)))),
        ];
        if direction == Direction::Write {
            let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), size: Some(0), ..SetAttr::NONE });
            calls.push((FirstCall::Temporary, Request::Nfs(Call::Create(CreateArgs { at: at(temporary), how }))));
        }
        let mut out = BTreeMap::new();
        for (asked, request) in calls {
            out.insert(client.submit(now, request)?, asked);
        }
        Ok(FirstCalls { direction, dir: dir.clone(), out, found: None })
    }

    pub(super) fn dir(&self) -> &Fh {
        &self.dir
    }

    pub(super) fn has(&self, id: CallId) -> bool {
        self.out.contains_key(&id)
    }

    /// Handles the result of one of its calls; an error ends the copy.
    pub(super) fn take(&mut self, id: CallId, result: &Result<Answer, CallFailure>) -> Result<(), String> {
        let Some(asked) = self.out.remove(&id) else { return Ok(()) };
        let answer = result.as_ref().map_err(CallFailure::to_string)?;
        match (asked, answer) {
            (FirstCall::Limits, Answer::Nfs(Reply::FsInfo(Ok(_))))
            | (FirstCall::Attributes, _)
            | (FirstCall::File, Answer::Mount(_))
            | (FirstCall::Directory, Answer::Mount(mount::Reply::Mnt(Ok(_)))) => {}
            (FirstCall::Name, Answer::Nfs(Reply::Lookup(Ok(ok)))) if self.direction == Direction::Read => {
                self.found = Some((ok.fh.clone(), ok.attr.as_ref().map(|attr| attr.size)));
            }
            (FirstCall::Name, Answer::Nfs(reply))
                if self.direction == Direction::Write && reply.status() == Some(Status::NoEnt) => {}
            (FirstCall::Temporary, Answer::Nfs(Reply::Create(Ok(made)))) => {
                self.found = Some((made.fh.clone().ok_or("CREATE brought no handle")?, Some(0)));
            }
            (asked, answer) => return Err(format!("{asked:?}: {answer:?}")),
        }
        Ok(())
    }

    /// The file, and its size if the server returned it, once all required replies arrived.
    pub(super) fn found(&self) -> Option<(Fh, Option<u64>)> {
        self.found.clone().filter(|_| self.out.values().all(|asked| *asked == FirstCall::Attributes))
    }
}

/// RENAME and SETATTR of an upload, side by side unless the server is near.
#[derive(Debug)]
pub(super) struct LastCalls {
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

impl LastCalls {
    /// For the file `fh` in `dir`, which has the temporary name `temporary` and is to get `name`.
    pub(super) fn new(dir: &Fh, name: &str, temporary: &str, fh: Fh) -> LastCalls {
        let at = |name: &str| DirOp { dir: dir.clone(), name: Bytes::from(name.to_owned()) };
        LastCalls { from: at(temporary), to: at(name), fh, renaming: Step::Todo, setting: Step::Todo }
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

    pub(super) fn has(&self, id: CallId) -> bool {
        [self.renaming, self.setting].contains(&Step::Out(id))
    }

    /// Takes the result of one of its calls. Fails with the reason why the copy cannot be completed.
    pub(super) fn take(&mut self, id: CallId, result: &Result<Answer, CallFailure>) -> Result<(), String> {
        let answer = result.as_ref().map_err(CallFailure::to_string)?;
        match answer {
            Answer::Nfs(Reply::Rename(Ok(_))) if self.renaming == Step::Out(id) => self.renaming = Step::Done,
            Answer::Nfs(Reply::SetAttr(Ok(_))) if self.setting == Step::Out(id) => self.setting = Step::Done,
            other => return Err(format!("the copy's end: {other:?}")),
        }
        Ok(())
    }
}
