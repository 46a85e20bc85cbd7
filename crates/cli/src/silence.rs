//! A line on standard error for whoever waits and sees nothing happen.

use std::future::Future;
use std::time::{Duration, Instant};

use remora_host::client::Session;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::out;

/// Silence that is worth a line.
const SILENCE: Duration = Duration::from_secs(3);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Says when a server has fallen silent, and when it is back, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Watch(JoinHandle<()>);

impl Watch {
    /// Over this session.
    pub(crate) fn over(session: &Session) -> Watch {
        Watch(tokio::spawn(watch(session.clone())))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(session: Session) {
    let mut longest = Duration::ZERO;
    loop {
        sleep(LOOK).await;
        let (silence, is_said) = (session.silence(), longest >= SILENCE);
        if silence >= SILENCE {
            if !is_said {
                let server = session.server();
                out::say(format_args!("{server} has been silent for {} s; waiting", SILENCE.as_secs()));
            }
            longest = longest.max(silence);
        } else if is_said {
            out::say(format_args!("the server is back after {} s", longest.as_secs()));
            longest = Duration::ZERO;
        }
    }
}

/// Waits for `server` to be mounted, and says so if that takes long, and when it is.
pub(crate) async fn until_mounted<T, E>(server: &str, mounted: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::pin!(mounted);
    let began = Instant::now();
    tokio::select! {
        biased;
        mounted = &mut mounted => return mounted,
        () = sleep(SILENCE) => {}
    }
    out::say(format_args!("{server} is not mounted after {} s; waiting", SILENCE.as_secs()));
    let mounted = mounted.await?;
    out::say(format_args!("{server} is mounted after {} s", began.elapsed().as_secs()));
    Ok(mounted)
}
