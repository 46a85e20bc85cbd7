//! The first and last calls of `remora cp` with a server known from before (docs/guide/files.md).

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, Busy, CallId, Client, Failure, Request};
use remora_wire::mount;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Status};

use super::Direction;

/// The first calls, all sent at once: the mount, the server's limits, the file's name, and for an
/// upload the temporary file.
#[derive(Debug)]
pub(super) struct Beginning {
    direction: Direction,
    dir: Fh,
    out: BTreeMap<CallId, Asked>,
    /// The file, and its size if the server returned it.
    found: Option<(Fh, Option<u64>)>,
}

/// The kind of a first call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// FSINFO.
    Limits,
    /// GETATTR of the directory; not waited for, since FSINFO returns the attributes, too.
    Attributes,
    /// MNT of the path itself, in case the server exports files; its result is ignored.
    File,
    /// MNT of the directory.
    Directory,
    /// LOOKUP.
    Name,
    /// CREATE.
    Hidden,
}

impl Beginning {
    /// Submits all of them for the directory `dir`.
    pub(super) fn ask(
        now: Time,
        client: &mut Client,
        direction: Direction,
        dir: &Fh,
        (name, hidden): (&str, &str),
    ) -> Result<Beginning, Busy> {
        let at = |name: &str| DirOp { dir: dir.clone(), name: Bytes::from(name.to_owned()) };
        let mnt = |path: String| Request::Mount(mount::Call::Mnt(path.into()));
        let mut calls = vec![
            (Asked::Limits, Request::Nfs(Call::FsInfo(dir.clone()))),
            (Asked::File, mnt(format!("/{name}"))),
            (Asked::Directory, mnt("/".into())),
            (Asked::Attributes, Request::Nfs(Call::GetAttr(dir.clone()))),
            (Asked::Name, Request::Nfs(Call::Lookup(at(name)))),
        ];
        if direction == Direction::Write {
            let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), size: Some(0), ..SetAttr::NONE });
            calls.push((Asked::Hidden, Request::Nfs(Call::Create(CreateArgs { at: at(hidden), how }))));
        }
        let mut out = BTreeMap::new();
        for (asked, request) in calls {
            out.insert(client.submit(now, request)?, asked);
        }
        Ok(Beginning { direction, dir: dir.clone(), out, found: None })
    }

    pub(super) fn dir(&self) -> &Fh {
        &self.dir
    }

    /// Whether `id` is one of its calls.
    pub(super) fn has(&self, id: CallId) -> bool {
        self.out.contains_key(&id)
    }

    /// Handles the result of one of its calls; an error ends the copy.
    pub(super) fn take(&mut self, id: CallId, result: &Result<Answer, Failure>) -> Result<(), String> {
        let Some(asked) = self.out.remove(&id) else { return Ok(()) };
        let answer = result.as_ref().map_err(Failure::to_string)?;
        match (asked, answer) {
            (Asked::Limits, Answer::Nfs(Reply::FsInfo(Ok(_))))
            | (Asked::Attributes, _)
            | (Asked::File, Answer::Mount(_))
            | (Asked::Directory, Answer::Mount(mount::Reply::Mnt(Ok(_)))) => {}
            (Asked::Name, Answer::Nfs(Reply::Lookup(Ok(ok)))) if self.direction == Direction::Read => {
                self.found = Some((ok.fh.clone(), ok.attr.as_ref().map(|attr| attr.size)));
            }
            (Asked::Name, Answer::Nfs(reply))
                if self.direction == Direction::Write && reply.status() == Some(Status::NoEnt) => {}
            (Asked::Hidden, Answer::Nfs(Reply::Create(Ok(made)))) => {
                self.found = Some((made.fh.clone().ok_or("CREATE brought no handle")?, Some(0)));
            }
            (asked, answer) => return Err(format!("{asked:?}: {answer:?}")),
        }
        Ok(())
    }

    /// The file, and its size if the server returned it, once all required replies arrived.
    pub(super) fn found(&self) -> Option<(Fh, Option<u64>)> {
        self.found.clone().filter(|_| self.out.values().all(|asked| *asked == Asked::Attributes))
    }
}
