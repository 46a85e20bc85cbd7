//! Downloads: READs, as many at once as the window takes.

use bytes::Bytes;
use remora_client::{Answer, Download, Piece};
use remora_wire::nfs3::{self, Fh, Reply};
use tokio::time::Instant;

use crate::client::error::ClientError;
use crate::client::rate_limit::or_open;
use crate::client::session::Session;
use crate::client::transfer::deferred_pieces::DeferredPieces;
use crate::client::transfer::in_flight::PiecesInFlight;
use crate::client::transport::jukebox_retry::JukeboxRetry;

/// Largest blocks of the server, from FSINFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferLimits {
    /// Largest READ in bytes.
    pub read_max: u32,
    /// Largest WRITE in bytes.
    pub write_max: u32,
}

/// Result of a download.
#[derive(Clone, Debug)]
pub struct Downloaded {
    pub end: u64,
    /// Attributes of the last READ, if it had any.
    pub attr: Option<nfs3::Attr>,
}

/// Reads `range` of a file. `sink` gets the pieces with their offsets in any order. Returns the end of the file.
/// Dropping the future cancels it.
pub async fn download(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: TransferLimits,
    sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<u64, ClientError> {
    receive(session, fh, range, limits, sink).await.map(|d| d.end)
}

/// As [`download`], with the file's attributes.
pub async fn receive(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: TransferLimits,
    mut sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<Downloaded, ClientError> {
    let mut left = range.end.saturating_sub(range.start);
    let mut file = Download::new(fh, range);
    let mut in_flight = PiecesInFlight::new(session, false);
    let mut refused = DeferredPieces::new(session.later());
    while !file.is_done() {
        let now = Instant::now();
        let (mut is_last, mut closed_until) = (false, None);
        while let Some(connection) = in_flight.connection_with_room() {
            closed_until = session.closed_until(now);
            if closed_until.is_some() {
                break;
            }
            match refused.take_due(now) {
                Some(piece) => file.put_back(piece),
                None if refused.is_held() => break,
                None => {}
            }
            let block = match in_flight.uses_datagrams() {
                true => session.read_tail(limits.read_max),
                false => in_flight.block(&connection, session.read_block(&connection, limits.read_max), left),
            };
            let Some((piece, call)) = file.poll(block) else {
                is_last = refused.is_empty();
                break;
            };
            session.take(now, piece.end - piece.start);
            in_flight.push(piece, &connection, call)?;
        }
        match or_open(closed_until, refused.or_due(now, in_flight.next(is_last))).await? {
            None => {}
            Some((piece, Some(Answer::Nfs(Reply::Read(Err(fail)))))) if JukeboxRetry::is(fail.status) => {
                refused.push(piece, Instant::now())?;
            }
            Some((piece, Some(Answer::Nfs(Reply::Read(result))))) => {
                refused.done(&piece);
                let at = piece.start;
                let data = file.on_read(piece, result.map_err(|f| f.status)?)?;
                left = left.saturating_sub(data.len() as u64);
                sink(at, data)?;
            }
            Some((_, Some(_))) => return Err(ClientError::Closed),
            Some((piece, None)) => file.put_back(piece),
        }
    }
    Ok(Downloaded { end: file.end(), attr: file.attr().cloned() })
}
