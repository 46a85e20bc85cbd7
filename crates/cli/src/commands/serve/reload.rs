//! SIGHUP: the flags' directories and files are read again, and served if all is well.

use std::convert::Infallible;
use std::sync::Arc;

use remora_host::server::Serving;
use serde::Serialize;
use tokio::signal::unix::Signal;

use super::load::{self, Loaded};
use super::share;
use super::table::Changes;
use crate::args::Serve;
use crate::exit::{Error, Result};
use crate::out;

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
pub(super) async fn at_hangups(
    mut hangups: Signal,
    serving: &Serving,
    args: &Arc<Serve>,
    key: [u8; 16],
    first: Loaded,
) -> Infallible {
    let mut now = Arc::new(first);
    loop {
        if hangups.recv().await.is_none() {
            // No more will come.
            return std::future::pending().await;
        }
        match again(args, key, &now).await {
            Ok(next) => {
                serving.set_exports(next.exports.clone());
                let notes: Vec<String> = next.plan.notes.iter().cloned().chain(super::room(serving, &next)).collect();
                tell(args, Ok((Changes::between(&now, &next), &notes)));
                now = Arc::new(next);
            }
            Err(error) => tell(args, Err(error)),
        }
    }
}

/// Reads and opens, beside the threads that serve: names of hosts may take a while to find.
async fn again(args: &Arc<Serve>, key: [u8; 16], now: &Arc<Loaded>) -> Result<Loaded> {
    let (args, now) = (args.clone(), now.clone());
    let read = move || load::open(share::plan(&args)?, &key, Some(&now));
    let done = tokio::task::spawn_blocking(read).await;
    done.unwrap_or_else(|e| Err(Error::refused("cannot read the exports", e.to_string())))
}

/// Says what came of it. Who does not listen does not end the server.
fn tell(args: &Serve, result: Result<(Changes, &Vec<String>)>) {
    if let Err(error) = &result {
        out::say(format_args!("remora: serve: the exports stay as they are: {error}"));
    }
    let said = match result {
        Ok((changes, notes)) if args.json => {
            out::json(&Report { reloaded: true, changes: Some(changes), notes, error: None })
        }
        Err(error) if args.json => {
            let error = Some(error.to_string());
            out::json(&Report { reloaded: false, changes: None, notes: &[], error })
        }
        Ok((changes, notes)) => {
            notes.iter().for_each(out::say);
            out::text(&format!("exports read again: {changes}\n"))
        }
        Err(_) => Ok(()),
    };
    if let Err(error) = said {
        out::say(format_args!("remora: serve: {error}"));
    }
}
