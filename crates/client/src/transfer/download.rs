//! Downloads: the READs of a file.

use std::collections::VecDeque;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, Call, Fh, ReadArgs, ReadOk};

use super::piece::{Piece, TransferError, take_front};

/// A download of a range of a file.
#[derive(Clone, Debug)]
pub struct Download {
    fh: Fh,
    todo: VecDeque<Piece>,
    in_flight: usize,
    end: u64,
    received: u64,
    attr: Option<Attr>,
}

impl Download {
    /// Downloads `range` of the file.
    pub fn new(fh: Fh, range: Piece) -> Download {
        let end = range.end;
        let todo = if range.is_empty() { VecDeque::new() } else { VecDeque::from([range]) };
        Download { fh, todo, in_flight: 0, end, received: 0, attr: None }
    }

    /// The next piece of at most `block` bytes, with its call.
    pub fn poll(&mut self, block: u32) -> Option<(Piece, Call)> {
        let piece = take_front(&mut self.todo, block)?;
        self.in_flight += 1;
        let count = (piece.end - piece.start) as u32;
        let call = Call::Read(ReadArgs { fh: self.fh.clone(), offset: piece.start, count });
        Some((piece, call))
    }

    /// Takes the reply for `piece` and returns the bytes for `piece.start`. A short reply is completed by another call;
    /// a file that became shorter ends there.
    pub fn on_read(&mut self, piece: Piece, ok: ReadOk) -> Result<Bytes, TransferError> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let mut data = ok.data;
        data.truncate((piece.end - piece.start) as usize);
        let got = piece.start + data.len() as u64;
        self.received += data.len() as u64;
        // Replies come in any order.
        if ok.attr.as_ref().is_some_and(|new| self.attr.as_ref().is_none_or(|known| ctime(known) <= ctime(new))) {
            self.attr = ok.attr;
        }
        if ok.eof {
            self.end = self.end.min(got);
            self.todo.retain(|p| p.start < got);
        } else if data.is_empty() {
            return Err(TransferError::NoProgress);
        } else if got < piece.end {
            self.todo.push_front(got..piece.end);
        }
        Ok(data)
    }

    /// `piece` will not be answered: it is given out again.
    pub fn put_back(&mut self, piece: Piece) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.todo.push_front(piece);
    }

    /// Whether every piece is answered.
    pub fn is_done(&self) -> bool {
        self.todo.is_empty() && self.in_flight == 0
    }

    /// End of the file as far as known.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The attributes with the latest ctime in a READ reply.
    pub fn attr(&self) -> Option<&Attr> {
        self.attr.as_ref()
    }

    pub fn received(&self) -> u64 {
        self.received
    }
}

/// Time of the last change of content or attributes, in seconds and nanoseconds.
fn ctime(attr: &Attr) -> (u32, u32) {
    (attr.ctime.secs, attr.ctime.nanos)
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;

    /// The reply to a READ of 10 bytes of a file with this ctime.
    fn read(secs: Option<u32>) -> ReadOk {
        let attr = secs.map(|secs| {
            let time = NfsTime { secs, nanos: 3 };
            let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
            let (mode, nlink, uid, gid, size, used, fsid, fileid) = (0o600, 1, 0, 0, 30, 0, 1, 2);
            let (atime, mtime, ctime) = (time, time, time);
            Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
        });
        ReadOk { attr, count: 10, eof: false, data: Bytes::from_static(&[0; 10]) }
    }

    #[test]
    fn attributes_with_the_latest_ctime_are_kept() {
        for (replies, want) in [
            ([Some(7), Some(8), Some(9)], Some(9)),
            ([Some(8), Some(9), Some(7)], Some(9)),
            ([Some(9), None, Some(7)], Some(9)),
            ([None, Some(7), None], Some(7)),
            ([None; 3], None),
        ] {
            let mut file = Download::new(Fh(Bytes::new()), 0..30);
            for secs in replies {
                let (piece, _) = file.poll(10).unwrap();
                file.on_read(piece, read(secs)).unwrap();
            }
            assert_eq!(file.attr().map(|attr| attr.ctime.secs), want, "{replies:?}");
        }
    }
}
