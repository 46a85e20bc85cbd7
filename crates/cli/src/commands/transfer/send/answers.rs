//! Answers of the receiver, and the state of the connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_atp::session::PeerId;
use remora_host::atp::{AtpEndpoint, AtpNotice};
use tokio::sync::{mpsc, watch};
use tokio::task::block_in_place;

use crate::commands::transfer::transfer_protocol::{Answer, Verdict};
use crate::cp::ui::progress::Progress;
use crate::output::stdio;

/// Silence that is worth a line.
const SILENCE: Duration = Duration::from_secs(3);
/// Answers to a file that wait to be looked at. A receiver that makes room for other files sends several while the
/// sender repeats its question: waits, missing, missing, waits, stored.
const ANSWERS_MAX: usize = 16;

/// The files on their way, by number, and where answers about them go.
#[derive(Clone, Default)]
pub(crate) struct AnswerRouter(Arc<Mutex<BTreeMap<u32, mpsc::Sender<Verdict>>>>);

impl AnswerRouter {
    /// Adds a file whose turn has come. Removes those that have ended.
    pub(crate) fn add(&self, file: u32) -> mpsc::Receiver<Verdict> {
        let (tell, verdicts) = mpsc::channel(ANSWERS_MAX);
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, file| !file.is_closed());
        files.insert(file, tell);
        verdicts
    }

    fn give(&self, file: u32, verdict: Verdict) {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that has ended, or whose receiver babbles, does not take it.
        let _ = files.get(&file).map(|file| file.try_send(verdict));
    }
}

/// Hands answers to the files they are about, until the endpoint is closed.
pub(crate) async fn answers(endpoint: AtpEndpoint, files: AnswerRouter) {
    while let Ok(received) = endpoint.recv().await {
        // Other objects are none of ours.
        let Ok(answer) = Answer::read(&received.object) else { continue };
        files.give(answer.file, answer.verdict);
    }
}

/// Notes since when the link to the receiver has been silent, and says so.
pub(crate) async fn weather(
    endpoint: AtpEndpoint,
    receiver: PeerId,
    silent: watch::Sender<Option<Instant>>,
    progress: Arc<Progress>,
    quiet: bool,
) {
    let say = |text: String| {
        if !quiet {
            block_in_place(|| progress.suspend(|| stdio::eprint(text)));
        }
    };
    let mut is_said = false;
    loop {
        let since = *silent.borrow();
        let long = async {
            match since.filter(|_| !is_said) {
                Some(since) => tokio::time::sleep(SILENCE.saturating_sub(since.elapsed())).await,
                None => std::future::pending().await,
            }
        };
        let notice = tokio::select! {
            notice = endpoint.notice() => notice,
            () = long => {
                is_said = true;
                say(format!("no answer for {} s; files wait", SILENCE.as_secs()));
                continue;
            }
        };
        match notice {
            Ok(AtpNotice::Silent { peer }) if peer == receiver => {
                silent.send_if_modified(|s| s.replace(s.unwrap_or_else(Instant::now)).is_none());
            }
            Ok(AtpNotice::Heard { peer } | AtpNotice::Up { peer, .. }) if peer == receiver => {
                let since = silent.send_replace(None);
                if let Some(since) = since.filter(|_| is_said) {
                    say(format!("the link is back after {} s", since.elapsed().as_secs()));
                }
                is_said = false;
            }
            Ok(_) => {}
            Err(_) => return,
        }
        progress.silent_since(*silent.borrow());
    }
}
