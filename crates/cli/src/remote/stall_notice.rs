//! Notices on standard error while a server is silent or defers requests.

use std::future::Future;
use std::time::{Duration, Instant};

use remora_host::client::Session;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::output::stdio;

/// Silence that is worth a line.
const SILENCE: Duration = Duration::from_secs(3);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Says when a server has fallen silent, and when it is back, for as long as this is there.
#[derive(Debug)]
pub(crate) struct StallMonitor(JoinHandle<()>);

impl StallMonitor {
    /// Over this session; a notice ends with `advice`.
    pub(crate) fn over(session: &Session, advice: &'static str) -> StallMonitor {
        StallMonitor(tokio::spawn(watch(session.clone(), advice)))
    }
}

impl Drop for StallMonitor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a command waits for while a server does nothing for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stall {
    /// The server, or the link, is silent.
    Silent,
    /// The server asks to try again later.
    Deferred,
}

/// Why and how long this server has done nothing.
pub(crate) fn stall(session: &Session) -> (Stall, Duration) {
    let (silence, deferral) = (session.silence(), session.deferral());
    if deferral > silence { (Stall::Deferred, deferral) } else { (Stall::Silent, silence) }
}

async fn watch(session: Session, advice: &'static str) {
    let mut longest = Duration::ZERO;
    loop {
        sleep(LOOK).await;
        let ((stall, lasts), is_said) = (stall(&session), longest >= SILENCE);
        if lasts >= SILENCE {
            if !is_said {
                stdio::eprint(notice(session.server(), stall, advice));
            }
            longest = longest.max(lasts);
        } else if is_said {
            stdio::eprint(format_args!("the server is back after {} s", longest.as_secs()));
            longest = Duration::ZERO;
        }
    }
}

fn notice(server: &str, stall: Stall, advice: &str) -> String {
    let what = match stall {
        Stall::Silent => "has not answered for",
        Stall::Deferred => "has been busy (NFS3ERR_JUKEBOX) for",
    };
    let advice = if advice.is_empty() { String::new() } else { format!(" ({advice})") };
    format!("{server} {what} {} s; waiting{advice}", SILENCE.as_secs())
}

/// Waits for `server` to be mounted, and says so if that takes long, and when it is.
pub(crate) async fn until_mounted<T, E>(server: &str, mounted: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    until(server, ["is not mounted", "is mounted"], mounted).await
}

/// The same for the first answer of one that is not mounted.
pub(crate) async fn until_answered<T, E>(server: &str, answer: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    until(server, ["has not answered", "has answered"], answer).await
}

async fn until<T, E>(
    server: &str,
    [not_yet, done]: [&str; 2],
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::pin!(answer);
    let began = Instant::now();
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        () = sleep(SILENCE) => {}
    }
    stdio::eprint(format_args!("{server} {not_yet} after {} s; waiting", SILENCE.as_secs()));
    let answer = answer.await?;
    stdio::eprint(format_args!("{server} {done} after {} s", began.elapsed().as_secs()));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_names_the_stall_and_what_to_do() {
        for (stall, advice, text) in [
            (Stall::Silent, "", "nas:2049 has not answered for 3 s; waiting"),
            (
                Stall::Deferred,
                "Ctrl-C ends it",
                "nas:2049 has been busy (NFS3ERR_JUKEBOX) for 3 s; waiting (Ctrl-C ends it)",
            ),
        ] {
            assert_eq!(notice("nas:2049", stall, advice), text);
        }
    }
}
