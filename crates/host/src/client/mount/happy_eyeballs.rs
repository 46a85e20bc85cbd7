//! Two ways to a server, of which one will do: transports, and addresses (the idea of RFC 8305).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::Refusal;
use remora_client::{Config, Transport};
use tracing::debug;

use crate::atp::AtpError;
use crate::client::error::ClientError;
use crate::client::options::Options;
use crate::client::target::Keys;
use crate::client::transport::connect::is_away;
use crate::client::transport::connection::Connection;
use crate::client::transport::shared_core::SharedCore;

/// How long a try to mount may take when the session itself would wait for ever.
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// How long UDP is tried alone where either will do.
const HEAD_START: Duration = Duration::from_millis(500);
/// How much later than the other's the answer of a preferred way may come.
const PREFERRED: Duration = Duration::from_secs(2);

/// A transport that is tried for mounting.
pub(crate) struct TransportAttempt<'a> {
    pub(crate) transport: Transport,
    options: &'a Options,
    /// What was opened over it.
    connections: Mutex<Vec<Arc<SharedCore>>>,
}

impl TransportAttempt<'_> {
    pub(crate) fn new(transport: Transport, options: &Options) -> TransportAttempt<'_> {
        TransportAttempt { transport, options, connections: Mutex::default() }
    }

    /// A connection to `server`.
    pub(crate) async fn reach(&self, keys: Option<&Keys>, server: SocketAddr) -> Result<Connection, ClientError> {
        debug!(%server, transport = ?self.transport, "connecting");
        let give_up = self.options.config.give_up.unwrap_or(MOUNT_PATIENCE);
        let config = Config { give_up: Some(give_up), ..self.options.config.clone() };
        let connection = match keys {
            Some(keys) => Connection::open_objects(keys, server, config, self.options).await?,
            None => Connection::open(self.transport, server, config, self.options).await?,
        };
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection.shared.clone());
        Ok(connection)
    }

    /// How long it is tried alone: until [`HEAD_START`] is over, or the kernel says that nobody listens there. (That
    /// is doubted for a while, but meanwhile the other way may be tried.)
    pub(crate) async fn head_start(&self) {
        let turn = HEAD_START / 50;
        for _ in 0..50 {
            tokio::time::sleep(turn).await;
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            if connections.iter().any(|connection| connection.lock().refused_since.is_some()) {
                return;
            }
        }
    }

    /// Whether everybody who was asked over it has answered something, be it a probe. It may be that one port is
    /// open and another is not. Where there was no way nobody was asked yet, but will be at once if there is one now.
    pub(crate) fn is_answered(&self) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().all(|connection| connection.lock().core.has_answer())
    }
}

/// What `attempt` comes to; without `give_up` it is made again while nobody answers.
pub(crate) async fn until_answered<T, F: Future<Output = Result<T, ClientError>>>(
    give_up: Option<Duration>,
    attempt: impl Fn() -> F,
) -> Result<T, ClientError> {
    loop {
        match attempt().await {
            Err(e) if give_up.is_none() && is_silence(&e) => {}
            done => return done,
        }
    }
}

/// Whether nobody said anything in the time that a try may take, or was there to be asked.
fn is_silence(e: &ClientError) -> bool {
    match e {
        ClientError::Silent { .. } | ClientError::Atp { source: AtpError::Refused(Refusal::Silent), .. } => true,
        ClientError::Connect { source, .. } => is_away(source),
        _ => false,
    }
}

/// Neither of two ways is preferred.
pub(crate) fn never() -> bool {
    false
}

/// The first of two ways that leads to the server. The second one is tried when the first does not, or
/// has not before `head_start` is over. Where the server has answered something on the first it is preferred all the same: its
/// answer may only have been lost. If neither does, an answer that was none is the error, or else the first one's.
pub(crate) async fn race<T>(
    first: impl Future<Output = Result<T, ClientError>>,
    second: impl Future<Output = Result<T, ClientError>>,
    head_start: impl Future<Output = ()>,
    is_first_alive: impl Fn() -> bool,
) -> Result<T, ClientError> {
    // That a port is closed over one says less than that nobody answers over the other.
    let told = |first, second| match (&first, &second) {
        (_, ClientError::Rpc(_)) | (ClientError::Connect { .. }, ClientError::Silent { .. }) => second,
        _ => first,
    };
    tokio::pin!(first);
    tokio::select! {
        biased;
        answer = &mut first => match answer {
            Err(e) if is_unreachable(&e) => return second.await.map_err(|second| told(e, second)),
            answer => return answer,
        },
        () = head_start => {}
    }
    tokio::pin!(second);
    tokio::select! {
        biased;
        answer = &mut first => match answer {
            Err(e) if is_unreachable(&e) => second.await.map_err(|second| told(e, second)),
            answer => answer,
        },
        answer = &mut second => match answer {
            Err(e) if is_unreachable(&e) => first.await.map_err(|first| told(first, e)),
            answer if answer.is_err() || !is_first_alive() => answer,
            answer => match tokio::time::timeout(PREFERRED, first).await {
                Ok(Ok(preferred)) => Ok(preferred),
                _ => answer,
            },
        },
    }
}

/// Whether the server may be reached some other way.
fn is_unreachable(e: &ClientError) -> bool {
    matches!(e, ClientError::Connect { .. } | ClientError::Silent { .. } | ClientError::Rpc(_))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use remora_client::Failure;
    use remora_wire::rpc::Outcome;

    use super::*;

    #[tokio::test]
    async fn who_never_gives_up_asks_until_somebody_answers() {
        let tries = Cell::new(0);
        let server = || "s".to_owned();
        let attempt = || async {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 => Err(ClientError::Silent { server: server(), what: "asked" }),
                2 => Err(ClientError::Connect { server: server(), source: io::ErrorKind::TimedOut.into() }),
                3 => Err(ClientError::Atp { server: server(), source: AtpError::Refused(Refusal::Silent) }),
                4 => Err(ClientError::Connect { server: server(), source: io::ErrorKind::NetworkUnreachable.into() }),
                tries => Ok(tries),
            }
        };
        assert_eq!(until_answered(None, &attempt).await.unwrap(), 5);
        tries.set(0);
        assert!(matches!(until_answered(Some(MOUNT_PATIENCE), &attempt).await, Err(ClientError::Silent { .. })));
        let refused = until_answered(None, || async { Err::<(), _>(ClientError::Closed) }).await;
        assert!(matches!(refused, Err(ClientError::Closed)));
    }

    #[tokio::test]
    async fn of_two_ways_the_one_that_leads_there_is_taken() {
        let ms = |n: u64| Duration::from_micros(n * 200);
        let silent = || ClientError::Silent { server: "s".into(), what: "asked" };
        let refused = || ClientError::Rpc(Failure::Rpc(Outcome::ProgUnavail));
        let way = |after, end: Result<u8, ClientError>| async move {
            tokio::time::sleep(after).await;
            end
        };
        let head = || tokio::time::sleep(ms(500));
        assert_eq!(race(way(ms(400), Ok(1)), way(ms(0), Ok(2)), head(), never).await.unwrap(), 1, "it is in time");
        assert_eq!(race(way(ms(9000), Ok(1)), way(ms(100), Ok(2)), head(), never).await.unwrap(), 2);
        assert_eq!(race(way(ms(700), Ok(1)), way(ms(900), Ok(2)), head(), never).await.unwrap(), 1);
        assert_eq!(race(way(ms(100), Err(silent())), way(ms(900), Ok(2)), head(), never).await.unwrap(), 2);
        assert_eq!(race(way(ms(900), Ok(1)), way(ms(100), Err(silent())), head(), never).await.unwrap(), 1);
        let alive = || true;
        assert_eq!(race(way(ms(2000), Ok(1)), way(ms(100), Ok(2)), head(), alive).await.unwrap(), 1, "it is preferred");
        assert_eq!(race(way(ms(2000), Err(silent())), way(ms(100), Ok(2)), head(), alive).await.unwrap(), 2);
        let no = ClientError::Closed;
        let refused_at_once = race(way(ms(2000), Ok(1)), way(ms(100), Err(no)), head(), alive).await;
        assert!(matches!(refused_at_once, Err(ClientError::Closed)), "nobody waits to be refused twice");
        let closed =
            || ClientError::Connect { server: "s".into(), source: std::io::ErrorKind::ConnectionRefused.into() };
        let failed = race(way(ms(900), Err(closed())), way(ms(100), Err(silent())), head(), never).await.unwrap_err();
        assert!(matches!(failed, ClientError::Silent { .. }), "somebody may be there");
        for ways in [[ms(100), ms(100)], [ms(900), ms(100)], [ms(900), ms(2000)]] {
            let [one, two] = ways;
            let failed = race(way(one, Err(silent())), way(two, Err(refused())), head(), never).await.unwrap_err();
            assert!(matches!(failed, ClientError::Rpc(_)), "that is more than silence");
            let failed = race(way(one, Err(refused())), way(two, Err(silent())), head(), never).await.unwrap_err();
            assert!(matches!(failed, ClientError::Rpc(_)));
        }
    }
}
