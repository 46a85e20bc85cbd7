//! Whole files in memory through a client, for workloads and copies.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::Time;
use remora_client::{Answer, CallFailure, CallId, Client, Download, Piece, Request, TransferError, Upload};
use remora_wire::nfs3::{Call, Fh, Reply, Stable, Status};

use super::slow_host::{Pacer, SlowHost};

/// A failed transfer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TransferFailure {
    /// The server returned an error.
    #[error("the server returned {0:?}")]
    Status(Status),
    /// No usable reply arrived.
    #[error("{0}")]
    Call(#[from] CallFailure),
    /// The replies are inconsistent.
    #[error("{0}")]
    Nonsense(#[from] TransferError),
    /// The client accepted no more requests although its window was open.
    #[error("the client is busy")]
    Busy,
}

/// A file being read or written.
#[derive(Debug)]
pub(crate) struct Transfer {
    kind: Kind,
    /// Maximum bytes that the server accepts in one call.
    io_max: u32,
    flying: BTreeMap<CallId, Piece>,
    failure: Option<TransferFailure>,
    /// The slow host, if any.
    pacer: Option<Pacer>,
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
        Transfer { kind, io_max, flying: BTreeMap::new(), failure: None, pacer: None }
    }

    /// Limits the transfer to the speed of a slow host.
    pub(crate) fn on_host(self, host: SlowHost) -> Transfer {
        Transfer { pacer: Some(Pacer::new(host)), ..self }
    }

    /// Submits as many requests as the client's window and the host allow.
    pub(crate) fn drive(&mut self, now: Time, client: &mut Client) {
        if self.failure.is_some() {
            return;
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.handle_timeout(now);
        }
        while client.room() > 0 && self.host_is_ready(client) {
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

    fn host_is_ready(&self, client: &Client) -> bool {
        let Some(pacer) = &self.pacer else { return true };
        match &self.kind {
            Kind::Read { .. } => pacer.may_read(client.read_block(self.io_max)),
            Kind::Write { .. } => pacer.may_write(),
        }
    }

    fn next_piece(&mut self, client: &Client) -> Option<(Piece, Call)> {
        match &mut self.kind {
            Kind::Read { download, .. } => {
                let (piece, call) = download.poll(client.read_block(self.io_max))?;
                if let Some(pacer) = &mut self.pacer {
                    pacer.on_read(&piece);
                }
                Some((piece, call))
            }
            Kind::Write { upload, bytes } => {
                upload.sync_tail(client.sync_tail());
                let piece = upload.poll(client.write_block(upload.fh(), self.io_max))?;
                let data = bytes.slice(piece.start as usize..piece.end as usize);
                let mut call = upload.write(piece.start, data);
                if let Some(pacer) = &mut self.pacer {
                    pacer.on_write(&piece);
                    if let Call::Write(args) = &mut call
                        && pacer.stable_writes()
                    {
                        args.stable = Stable::FileSync;
                    }
                }
                Some((piece, call))
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

    /// Handles a completion if it is its own; returns whether it was.
    pub(crate) fn on_done(&mut self, id: CallId, result: &Result<Answer, CallFailure>) -> bool {
        let Some(piece) = self.flying.remove(&id) else { return false };
        if let Err(failure) = self.take(piece, result) {
            self.failure.get_or_insert(failure);
        }
        true
    }

    fn take(&mut self, piece: Piece, result: &Result<Answer, CallFailure>) -> Result<(), TransferFailure> {
        let reply = match result {
            Ok(Answer::Nfs(reply)) => reply,
            Ok(_) => return Ok(()),
            // Resubmitted in pieces that fit the path.
            Err(CallFailure::Fragments) => {
                match &mut self.kind {
                    Kind::Read { download, .. } => download.put_back(piece),
                    Kind::Write { upload, .. } => upload.put_back(piece),
                }
                return Ok(());
            }
            Err(failure) => return Err(failure.clone().into()),
        };
        if let Some(status) = reply.status() {
            return Err(TransferFailure::Status(status));
        }
        match (&mut self.kind, reply) {
            (Kind::Read { download, bytes }, Reply::Read(Ok(ok))) => {
                let at = piece.start as usize;
                let start = piece.start;
                let data = download.on_read(piece, ok.clone())?;
                if let Some(pacer) = &mut self.pacer {
                    pacer.on_arrival(start..start + data.len() as u64);
                }
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

    /// Bytes confirmed; those written again count again.
    pub(crate) fn moved(&self) -> u64 {
        match &self.kind {
            Kind::Read { download, .. } => download.received(),
            Kind::Write { upload, .. } => upload.sent(),
        }
    }

    /// When a slow host continues without another event.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.pacer.as_ref().and_then(Pacer::poll_timeout)
    }

    /// Whether no call is outstanding: it is complete, or it failed.
    pub(crate) fn is_over(&self) -> bool {
        let complete = match &self.kind {
            Kind::Read { download, .. } => download.is_done(),
            Kind::Write { upload, .. } => upload.is_done(),
        };
        self.flying.is_empty() && (complete || self.failure.is_some())
    }

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
