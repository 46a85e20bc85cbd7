//! Whole files in memory through a client: what both the workload and the copies do.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, CallId, Client, Download, Failure, Piece, Request, TransferError, Upload};
use remora_wire::nfs3::{Call, Fh, Reply, Status};

/// Why a transfer came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TransferFailure {
    /// The server refused.
    #[error("the server says {0:?}")]
    Status(Status),
    /// There was no usable answer.
    #[error("{0}")]
    Call(#[from] Failure),
    /// The answers make no sense.
    #[error("{0}")]
    Nonsense(#[from] TransferError),
    /// The client took no more requests although it had room.
    #[error("the client is busy")]
    Busy,
}

/// A file being read or written.
#[derive(Debug)]
pub(crate) struct Transfer {
    kind: Kind,
    /// The most bytes the server takes in one call.
    io_max: u32,
    flying: BTreeMap<CallId, Piece>,
    failure: Option<TransferFailure>,
}

#[derive(Debug)]
enum Kind {
    Read { download: Download, bytes: Vec<u8> },
    Write { upload: Upload, bytes: Bytes },
}

impl Transfer {
    /// Reads the first `len` bytes of a file.
    pub(crate) fn read(fh: Fh, len: u64, io_max: u32) -> Transfer {
        let download = Download::new(fh, 0..len);
        Transfer::new(Kind::Read { download, bytes: vec![0; len as usize] }, io_max)
    }

    /// Writes `bytes` to the start of a file and commits them.
    pub(crate) fn write(fh: Fh, bytes: Bytes, io_max: u32) -> Transfer {
        let upload = Upload::new(fh, 0..bytes.len() as u64);
        Transfer::new(Kind::Write { upload, bytes }, io_max)
    }

    fn new(kind: Kind, io_max: u32) -> Transfer {
        Transfer { kind, io_max, flying: BTreeMap::new(), failure: None }
    }

    /// Asks for as much as the client has room for.
    pub(crate) fn drive(&mut self, now: Time, client: &mut Client) {
        if self.failure.is_some() {
            return;
        }
        while client.room() > 0 {
            let Some((piece, call)) = self.next_piece(client) else { break };
            if !self.submit(now, client, piece, call) {
                return;
            }
        }
        if let Kind::Write { upload, .. } = &mut self.kind
            && let Some(commit) = upload.poll_commit()
        {
            self.submit(now, client, 0..0, commit);
        }
    }

    fn next_piece(&mut self, client: &Client) -> Option<(Piece, Call)> {
        match &mut self.kind {
            Kind::Read { download, .. } => download.poll(client.read_block(self.io_max)),
            Kind::Write { upload, bytes } => {
                let piece = upload.poll(client.write_block(upload.fh(), self.io_max))?;
                let data = bytes.slice(piece.start as usize..piece.end as usize);
                Some((piece.clone(), upload.write(piece.start, data)))
            }
        }
    }

    fn submit(&mut self, now: Time, client: &mut Client, piece: Piece, call: Call) -> bool {
        match client.submit(now, Request::Nfs(call)) {
            Ok(id) => {
                self.flying.insert(id, piece);
                true
            }
            Err(_) => {
                self.failure = Some(TransferFailure::Busy);
                false
            }
        }
    }

    /// Takes a result if it is one of this transfer's; says whether it was.
    pub(crate) fn on_done(&mut self, id: CallId, result: &Result<Answer, Failure>) -> bool {
        let Some(piece) = self.flying.remove(&id) else { return false };
        if let Err(failure) = self.take(piece, result) {
            self.failure.get_or_insert(failure);
        }
        true
    }

    fn take(&mut self, piece: Piece, result: &Result<Answer, Failure>) -> Result<(), TransferFailure> {
        let Answer::Nfs(reply) = result.as_ref().map_err(Clone::clone)? else { return Ok(()) };
        if let Some(status) = reply.status() {
            return Err(TransferFailure::Status(status));
        }
        match (&mut self.kind, reply) {
            (Kind::Read { download, bytes }, Reply::Read(Ok(ok))) => {
                let at = piece.start as usize;
                let data = download.on_read(piece, ok.clone())?;
                if let Some(room) = bytes.get_mut(at..at + data.len()) {
                    room.copy_from_slice(&data);
                }
            }
            (Kind::Write { upload, .. }, Reply::Write(Ok(ok))) => {
                upload.on_write(piece, ok)?;
            }
            (Kind::Write { upload, .. }, Reply::Commit(Ok(ok))) => upload.on_commit(ok)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether nothing of it is under way any more: it is complete, or it failed.
    pub(crate) fn is_over(&self) -> bool {
        let complete = match &self.kind {
            Kind::Read { download, .. } => download.is_done(),
            Kind::Write { upload, .. } => upload.is_done(),
        };
        self.flying.is_empty() && (complete || self.failure.is_some())
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<&TransferFailure> {
        self.failure.as_ref()
    }

    /// The bytes read (up to the file's end), or those written.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.kind {
            Kind::Read { download, mut bytes, .. } => {
                bytes.truncate(download.end() as usize);
                bytes.into()
            }
            Kind::Write { bytes, .. } => bytes,
        }
    }
}
