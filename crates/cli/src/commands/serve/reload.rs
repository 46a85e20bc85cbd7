//! SIGHUP: the flags' directories and files are read again, and served if all is well.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use remora_host::server::Serving;
use serde::Serialize;
use tokio::signal::unix::Signal;

use crate::commands::serve::exports::export_list::Changes;
use crate::commands::serve::exports::exports_file::Pipes;
use crate::commands::serve::exports::open_exports::Loaded;
use crate::commands::serve::exports::{open_exports, plan};
use crate::commands::serve::flags::Serve;
use crate::commands::serve::keys::Keys;
use crate::commands::serve::output::console::Console;
use crate::output::exit::{Error, Result};
use crate::service_manager;

/// What `--json` prints then.
#[derive(Serialize)]
struct Report<'a> {
    reloaded: bool,
    #[serde(flatten)]
    changes: Option<Changes>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Reads everything again at each hang-up, for ever. What is wrong then changes nothing.
pub(crate) async fn at_hangups(
    mut hangups: Signal,
    serving: &Serving,
    args: &Arc<Serve>,
    keys: &Arc<Keys>,
    first: Loaded,
    voice: &Console,
) -> Infallible {
    let mut now = Arc::new(first);
    let mut due = false;
    loop {
        if !due && hangups.recv().await.is_none() {
            // No more will come.
            return std::future::pending().await;
        }
        service_manager::reloading();
        let read;
        (read, due) = read_unless_hung_up(&mut hangups, again(args, keys.clone(), &now), voice).await;
        match read {
            Ok((next, changes)) => {
                serving.set_exports(next.exports.clone());
                let notes: Vec<String> =
                    next.plan.notes.iter().cloned().chain(open_exports::room(serving, &next)).collect();
                tell(args, voice, Ok((changes, &notes)));
                let_go(std::mem::replace(&mut now, Arc::new(next)));
            }
            Err(error) => tell(args, voice, Err(error)),
        }
        service_manager::ready();
    }
}

/// Lets go of what may have thousands of files to close, beside who listens to signals. The end waits for none of it.
fn let_go<T: Send + 'static>(old: T) {
    drop(tokio::task::spawn_blocking(move || drop(old)));
}

/// Reads the exports again until that is done or a further hang-up arrives. A further hang-up is reported, because
/// directories on an unresponsive file server can block for ever.
async fn read_unless_hung_up<T>(hangups: &mut Signal, read: impl Future<Output = T>, voice: &Console) -> (T, bool) {
    let (since, mut read, mut due) = (Instant::now(), pin!(read), false);
    loop {
        tokio::select! {
            read = &mut read => return (read, due),
            Some(()) = hangups.recv() => {
                due = true;
                let secs = since.elapsed().as_secs();
                voice.say(format!("remora: serve: still reading the exports ({secs} s); it reads them again after that"));
            }
        }
    }
}

/// Reads and opens, beside the threads that serve: names of hosts may take a while to find.
async fn again(args: &Arc<Serve>, keys: Arc<Keys>, now: &Arc<Loaded>) -> Result<(Loaded, Changes)> {
    let (args, now) = (args.clone(), now.clone());
    let read = move || {
        let next = open_exports::open(plan::plan(&args, Pipes::Refused)?, &keys, Some(&now))?;
        let changes = Changes::between(&now, &next);
        Ok((next, changes))
    };
    let done = tokio::task::spawn_blocking(read).await;
    done.unwrap_or_else(|e| Err(Error::refused("cannot read the exports", e.to_string())))
}

/// Says what came of it.
fn tell(args: &Serve, voice: &Console, result: Result<(Changes, &Vec<String>)>) {
    match result {
        Ok((changes, notes)) if args.json => {
            voice.json(&Report { reloaded: true, changes: Some(changes), notes, error: None });
        }
        Ok((changes, notes)) => {
            voice.say(notes.join("\n"));
            voice.print(format!("exports reloaded: {changes}\n"));
        }
        Err(error) => {
            voice.say(format!("remora: serve: the exports remain unchanged: {error}"));
            if args.json {
                let error = Some(error.to_string());
                voice.json(&Report { reloaded: false, changes: None, notes: &[], error });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Blocks in `drop` until the channel closes, and reports whether it was closed in time.
    struct Slow(Receiver<()>, Sender<bool>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let told = self.0.recv_timeout(Duration::from_secs(5)).is_ok();
            self.1.send(told).unwrap();
        }
    }

    #[tokio::test]
    async fn slowly_closing_exports_block_no_reload() {
        let ((close, told), (closed, was_told)) = (channel(), channel());
        let_go(Slow(told, closed));
        close.send(()).unwrap();
        assert!(was_told.recv().unwrap());
    }
}
