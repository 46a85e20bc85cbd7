//! Happy Eyeballs (RFC 8305): races two transports or addresses, of which one is enough.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::Refusal;
use remora_client::{ClientConfig, Transport};
use tracing::debug;

use crate::atp::AtpError;
use crate::client::error::ClientError;
use crate::client::options::Options;
use crate::client::target::Keys;
use crate::client::transport::connect::is_away;
use crate::client::transport::connection::Connection;
use crate::client::transport::shared_core::SharedCore;

/// Time limit of an attempt for a session that never gives up.
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// Head start of UDP.
const HEAD_START: Duration = Duration::from_millis(500);
/// How much later than the other answer that of the preferred attempt may come.
const PREFERRED: Duration = Duration::from_secs(2);

/// An attempt to mount over one transport.
pub(crate) struct TransportAttempt<'a> {
    pub(crate) transport: Transport,
    options: &'a Options,
    /// Connections opened over it.
    connections: Mutex<Vec<Arc<SharedCore>>>,
}

impl TransportAttempt<'_> {
    pub(crate) fn new(transport: Transport, options: &Options) -> TransportAttempt<'_> {
        TransportAttempt { transport, options, connections: Mutex::default() }
    }

    /// Connects to `server`.
    pub(crate) async fn reach(&self, keys: Option<&Keys>, server: SocketAddr) -> Result<Connection, ClientError> {
        debug!(%server, transport = ?self.transport, "connecting");
        let give_up = self.options.config.give_up.unwrap_or(MOUNT_PATIENCE);
        let config = ClientConfig { give_up: Some(give_up), ..self.options.config.clone() };
        let connection = match keys {
            Some(keys) => Connection::open_objects(keys, server, config, self.options).await?,
            None => Connection::open(self.transport, server, config, self.options).await?,
        };
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection.shared.clone());
        Ok(connection)
    }

    /// Head start over the other transport: [`HEAD_START`], or until the kernel reports "port unreachable".
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

    /// Whether every server on it has answered anything. One port may be open and another not.
    pub(crate) fn is_answered(&self) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().all(|connection| connection.lock().core.has_answer())
    }
}

/// Repeats `attempt` while nobody answers, unless `give_up` is set.
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

/// Whether the error means that nobody answered, or there was no route.
fn is_silence(e: &ClientError) -> bool {
    match e {
        ClientError::Silent { .. } | ClientError::Atp { source: AtpError::Refused(Refusal::Silent), .. } => true,
        ClientError::Connect { source, .. } => is_away(source),
        _ => false,
    }
}

pub(crate) fn never() -> bool {
    false
}

/// Races two attempts. The second starts when the first fails, or after `head_start`. If the server has answered
/// anything on the first it is preferred, for its reply may have been lost. If both fail, an error that is an answer
/// wins, else the first one's.
pub(crate) async fn race<T>(
    first: impl Future<Output = Result<T, ClientError>>,
    second: impl Future<Output = Result<T, ClientError>>,
    head_start: impl Future<Output = ()>,
    is_first_alive: impl Fn() -> bool,
) -> Result<T, ClientError> {
    // A closed port says less than silence on the other.
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

/// Whether another attempt may succeed.
fn is_unreachable(e: &ClientError) -> bool {
    matches!(e, ClientError::Connect { .. } | ClientError::Silent { .. } | ClientError::Rpc(_))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use remora_client::CallFailure;
    use remora_wire::rpc::Outcome;

    use super::*;

    #[tokio::test]
    async fn attempt_without_limit_is_repeated_until_an_answer() {
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
    async fn race_takes_the_attempt_that_succeeds() {
        let ms = |n: u64| Duration::from_micros(n * 200);
        let silent = || ClientError::Silent { server: "s".into(), what: "asked" };
        let refused = || ClientError::Rpc(CallFailure::Rpc(Outcome::ProgUnavail));
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
