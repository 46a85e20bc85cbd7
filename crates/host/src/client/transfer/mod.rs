//! Whole files through a session, as many blocks at once as the window takes.

mod flying;

use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_client::{Answer, Download, Piece, TransferError, Upload};
use remora_wire::nfs3::{self, Fh, Reply};

use super::ClientError;
use super::later::Later;
use super::session::Session;
use flying::Flying;

/// How long what has arrived goes uncommitted, at first and later: an interruption loses no more.
const COMMIT_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// How long what a server made stable without a COMMIT goes untold.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// The largest blocks the server takes, from FSINFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest READ in bytes.
    pub read_max: u32,
    /// Largest WRITE in bytes.
    pub write_max: u32,
}

/// How a download went.
#[derive(Clone, Debug)]
pub struct Downloaded {
    /// Where the file ended.
    pub end: u64,
    /// Its attributes as the last READ found them, if the server said so.
    pub attr: Option<nfs3::Attr>,
}

/// Reads `range` of a file; `sink` gets each piece with its offset, in any order. Returns
/// where the file ended. Dropping the future stops it.
pub async fn download(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<u64, ClientError> {
    receive(session, fh, range, limits, sink).await.map(|d| d.end)
}

/// [`download`], and the file's attributes.
pub async fn receive(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    mut sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<Downloaded, ClientError> {
    let mut left = range.end.saturating_sub(range.start);
    let mut file = Download::new(fh, range);
    let mut flying = Flying::new(session, false);
    let mut later = session.later();
    while !file.is_done() {
        let mut is_last = false;
        while let Some(line) = flying.line_with_room() {
            let block = flying.block(&line, session.read_block(&line, limits.read_max), left);
            let Some((piece, call)) = file.poll(block) else {
                is_last = true;
                break;
            };
            flying.push(piece, &line, call)?;
        }
        match flying.next(is_last).await? {
            (piece, Some(Answer::Nfs(Reply::Read(Err(fail))))) if Later::is(fail.status) => {
                later.wait().await?;
                file.put_back(piece);
            }
            (piece, Some(Answer::Nfs(Reply::Read(result)))) => {
                later.is_over();
                let at = piece.start;
                let data = file.on_read(piece, result.map_err(|f| f.status)?)?;
                left = left.saturating_sub(data.len() as u64);
                sink(at, data)?;
            }
            (_, Some(_)) => return Err(ClientError::Closed),
            (piece, None) => file.put_back(piece),
        }
    }
    Ok(Downloaded { end: file.end(), attr: file.attr().cloned() })
}

/// What an upload tells its owner.
pub trait Progress {
    /// The bytes of a piece, all of them.
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes>;

    /// Bytes arrived.
    fn sent(&mut self, bytes: u64);

    /// These bytes will outlive a crash of the server. Not for every WRITE.
    fn stable(&mut self, pieces: Vec<Piece>) -> std::io::Result<()>;

    /// The path is long, nothing was lost on it, and all is on its way; what is asked for
    /// now arrives behind it. Told at most once, and never if it does not come to that.
    fn all_sent(&mut self) {}
}

/// What the server said of a file while it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The greatest size it had, if any reply said.
    pub size: Option<u64>,
    /// The latest time of change (ctime) in seconds and nanoseconds, if every reply said one.
    pub changed: Option<(u32, u32)>,
}

impl Written {
    /// Takes what a WRITE's reply says; `first`: it is the first.
    fn take(&mut self, after: Option<&nfs3::Attr>, first: bool) {
        self.size = self.size.max(after.map(|a| a.size));
        let known = if first { Some((0, 0)) } else { self.changed };
        self.changed = known.zip(after).map(|(known, a)| known.max((a.ctime.secs, a.ctime.nanos)));
    }
}

/// Writes `range` of a file and commits it; `source` gives the bytes of a piece (all of
/// them), `progress` hears of bytes that arrived.
pub async fn upload(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    source: impl FnMut(Piece) -> std::io::Result<Bytes>,
    progress: impl FnMut(u64),
) -> Result<(), ClientError> {
    send(session, fh, Some(range), limits, &mut Plain { source, progress }).await.map(|_| ())
}

/// An owner that does not care what is stable until all is.
struct Plain<S, P> {
    source: S,
    progress: P,
}

impl<S: FnMut(Piece) -> std::io::Result<Bytes>, P: FnMut(u64)> Progress for Plain<S, P> {
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes> {
        (self.source)(piece)
    }

    fn sent(&mut self, bytes: u64) {
        (self.progress)(bytes);
    }

    fn stable(&mut self, _pieces: Vec<Piece>) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes `ranges` of a file, in order, and commits them, every few seconds what has arrived and at last all.
pub async fn send(
    session: &Session,
    fh: Fh,
    ranges: impl IntoIterator<Item = Piece>,
    limits: Limits,
    progress: &mut impl Progress,
) -> Result<Written, ClientError> {
    let mut seen: Option<Written> = None;
    let lost = session.stats().lost();
    let mut is_told = false;
    let ranges: Vec<Piece> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    let mut left: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut file = to_write(fh, ranges);
    let mut flying = Flying::new(session, true);
    let mut later = session.later();
    let (mut committed, mut every) = (Instant::now(), COMMIT_EVERY.0);
    let mut told = Instant::now();
    while !file.is_done() {
        let mut is_last = false;
        let tail = session.shared().lock().core.sync_tail();
        while let Some(line) = flying.line_with_room() {
            file.sync_tail(tail);
            let block = flying.block(&line, session.write_block(&line, file.fh(), limits.write_max), left);
            let Some(piece) = file.poll(block) else {
                is_last = true;
                break;
            };
            let call = write(&file, &piece, progress)?;
            flying.push(piece, &line, call)?;
        }
        // Not shortly before the end: the last COMMIT would have to wait for this one, and comes as soon.
        if committed.elapsed() >= every && left > 3 * tail && flying.takes(left) > every {
            file.commit_soon();
        }
        if let Some(commit) = file.poll_commit() {
            (committed, every) = (Instant::now(), (every * 2).min(COMMIT_EVERY.1));
            flying.push(0..0, &flying.commit_line(left == 0), commit)?;
        }
        if !is_told && file.is_all_asked() && session.has_sent_all_far() && session.stats().lost() == lost {
            is_told = true;
            progress.all_sent();
        }
        match flying.next(is_last).await? {
            (piece, Some(Answer::Nfs(Reply::Write(Err(fail))))) if Later::is(fail.status) => {
                later.wait().await?;
                file.put_back(piece);
            }
            (_, Some(Answer::Nfs(Reply::Commit(Err(fail))))) if Later::is(fail.status) => {
                later.wait().await?;
                flying.push(0..0, session.own_line(), commit_all(&file))?;
            }
            (piece, Some(Answer::Nfs(Reply::Write(result)))) => {
                later.is_over();
                let written = result.map_err(|f| f.status)?;
                let first = seen.is_none();
                seen.get_or_insert_default().take(written.wcc.after.as_ref(), first);
                let bytes = file.on_write(piece, &written)?;
                left = left.saturating_sub(bytes);
                progress.sent(bytes);
                // Many servers write all to the disk at once, whatever they are asked.
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    tell_stable(&mut file, progress)?;
                }
            }
            (_, Some(Answer::Nfs(Reply::Commit(result)))) => {
                file.on_commit(&result.map_err(|f| f.status)?)?;
                tell_stable(&mut file, progress)?;
            }
            (_, Some(_)) => return Err(ClientError::Closed),
            (piece, None) if piece.is_empty() => flying.push(piece, session.own_line(), commit_all(&file))?,
            (piece, None) => file.put_back(piece),
        }
    }
    tell_stable(&mut file, progress)?;
    Ok(seen.unwrap_or_default())
}

/// All of these ranges. It is begun with the last one, and what is handed back to it goes first.
fn to_write(fh: Fh, mut ranges: Vec<Piece>) -> Upload {
    let mut file = Upload::new(fh, ranges.pop().unwrap_or_default());
    ranges.into_iter().rev().for_each(|range| file.put_back(range));
    file
}

/// Tells of what became stable since it was last told.
fn tell_stable(file: &mut Upload, progress: &mut impl Progress) -> std::io::Result<()> {
    let pieces = file.take_stable();
    if pieces.is_empty() { Ok(()) } else { progress.stable(pieces) }
}

/// A COMMIT of all of the file.
fn commit_all(file: &Upload) -> nfs3::Call {
    nfs3::Call::Commit(nfs3::CommitArgs { fh: file.fh().clone(), offset: 0, count: 0 })
}

/// The WRITE of a piece.
fn write(file: &Upload, piece: &Piece, source: &mut impl Progress) -> Result<nfs3::Call, ClientError> {
    let data = source.read(piece.clone())?;
    let given = piece.end - piece.start;
    if data.len() as u64 != given {
        return Err(TransferError::BadCount { claimed: data.len() as u32, given }.into());
    }
    Ok(file.write(piece.start, data))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use remora_client::{Config, Transport};
    use remora_wire::nfs3::{Attr, Call, FileType, NfsTime, Proc, SpecData, Wcc, WriteOk};
    use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
    use remora_wire::{Reader, Xdr};
    use tokio::net::UdpSocket;

    use super::*;
    use crate::Clock;
    use crate::client::line::Line;
    use crate::client::mount::Options;

    const SIZE: u64 = 200_000;
    const TRIP: Duration = Duration::from_millis(230);

    fn attr(size: u64, secs: u32) -> Attr {
        let time = NfsTime { secs, nanos: 3 };
        let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
        let (mode, nlink, uid, gid, used, fsid, fileid) = (0o600, 1, 0, 0, 0, 1, 2);
        let (atime, mtime, ctime) = (time, time, time);
        Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
    }

    fn reply(xid: u32, body: &Reply) -> Vec<u8> {
        let mut reply = Vec::new();
        ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut reply);
        body.encode(&mut reply);
        reply
    }

    /// A server answers so; if it `syncs`, it writes all to the disk at once.
    fn answer(message: Bytes, syncs: bool) -> Option<(Proc, Vec<u8>)> {
        let mut r = Reader::new(message);
        let call = CallHeader::decode(&mut r).ok()?;
        let proc =
            [Proc::Null, Proc::GetAttr, Proc::Write, Proc::Commit].into_iter().find(|p| *p as u32 == call.proc)?;
        let body = match Call::decode(proc, &mut r).ok()? {
            Call::Write(w) => {
                let wcc = Wcc { before: None, after: Some(attr(w.offset + u64::from(w.count), 1)) };
                let committed = if syncs { nfs3::Stable::FileSync } else { w.stable };
                Reply::Write(Ok(WriteOk { wcc, count: w.count, committed, verf: [1; 8] }))
            }
            Call::Commit(_) => Reply::Commit(Ok(nfs3::CommitOk { wcc: Wcc::NONE, verf: [1; 8] })),
            Call::GetAttr(_) => Reply::GetAttr(Ok(attr(0, 1))),
            _ => Reply::Null,
        };
        Some((proc, reply(call.xid, &body)))
    }

    /// A server at `trip` from here, which never sees the first WRITE if `loses`.
    async fn serve(trip: Duration, mut loses: bool, syncs: bool) -> SocketAddr {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let at = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                let Some((proc, reply)) = answer(Bytes::copy_from_slice(&buffer[..n]), syncs) else { continue };
                if proc == Proc::Write && std::mem::take(&mut loses) {
                    continue;
                }
                let socket = socket.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(trip).await;
                    let _ = socket.send_to(&reply, from).await;
                });
            }
        });
        at
    }

    /// Counts, and notes how much had been answered when all was sent.
    #[derive(Default)]
    struct Owner {
        answered: u64,
        all_sent_after: Vec<u64>,
        /// How much had been answered when it was told so many pieces.
        stable_after: Vec<(u64, usize)>,
    }

    impl Progress for Owner {
        fn read(&mut self, piece: Piece) -> std::io::Result<Bytes> {
            Ok(vec![7; (piece.end - piece.start) as usize].into())
        }

        fn sent(&mut self, bytes: u64) {
            self.answered += bytes;
        }

        fn stable(&mut self, pieces: Vec<Piece>) -> std::io::Result<()> {
            self.stable_after.push((self.answered, pieces.len()));
            Ok(())
        }

        fn all_sent(&mut self) {
            self.all_sent_after.push(self.answered);
        }
    }

    async fn session(at: SocketAddr, config: Config) -> Session {
        let options = Options { config, seed: 1, clock: Clock::start() };
        let line = Line::open(Transport::Udp, at, options.config.clone(), &options).await.unwrap();
        Session::new(line, None, Fh(Bytes::from_static(b"file")))
    }

    /// Then no COMMIT tells of it.
    #[tokio::test]
    async fn the_owner_hears_what_a_server_made_stable_by_itself_while_it_goes_on() {
        let config = Config { window: remora_client::WindowSize::Fixed(2), ..Config::new(Transport::Udp) };
        let session = session(serve(Duration::from_millis(100), false, true).await, config).await;
        let limits = Limits { read_max: 8192, write_max: 8192 };
        let mut owner = Owner::default();
        send(&session, session.root().clone(), Some(0..SIZE), limits, &mut owner).await.unwrap();
        let told = &owner.stable_after;
        assert!(told[0].0 < SIZE && told.last().unwrap().0 == SIZE && told.len() < 10, "{told:?}");
    }

    #[tokio::test]
    async fn the_owner_hears_when_all_is_on_its_way_over_a_long_path_without_loss() {
        for (trip, loses, times) in [(TRIP, false, 1), (TRIP, true, 0), (Duration::from_millis(60), false, 0)] {
            let session = session(serve(trip, loses, false).await, Config::new(Transport::Udp)).await;
            let fh = session.root().clone();
            session.call(nfs3::Call::GetAttr(fh.clone())).await.unwrap();
            let limits = Limits { read_max: 8192, write_max: 8192 };
            let mut owner = Owner::default();
            let written = send(&session, fh, Some(0..SIZE), limits, &mut owner).await.unwrap();
            assert_eq!((written.size, owner.answered), (Some(SIZE), SIZE), "{trip:?} {loses}");
            assert_eq!(owner.all_sent_after.len(), times, "{trip:?} {loses}");
            assert!(owner.all_sent_after.iter().all(|n| *n < SIZE), "{:?}", owner.all_sent_after);
        }
    }

    #[test]
    fn the_latest_change_is_known_if_every_reply_told_one() {
        let attr = |secs| attr(5, secs);
        for (replies, changed) in [
            (vec![Some(attr(7)), Some(attr(6))], Some((7, 3))),
            (vec![Some(attr(7)), None, Some(attr(9))], None),
            (vec![None], None),
        ] {
            let mut written = Written::default();
            for (nth, reply) in replies.iter().enumerate() {
                written.take(reply.as_ref(), nth == 0);
            }
            assert_eq!(written.changed, changed, "{replies:?}");
        }
    }
}
