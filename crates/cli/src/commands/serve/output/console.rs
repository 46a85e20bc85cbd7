//! Output of a running server. Two threads write to standard output and standard error, so that neither a request nor
//! a signal waits for a reader.

use std::sync::mpsc::{SyncSender, sync_channel};

use serde::Serialize;
use tokio::sync::oneshot;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Queued texts; further ones are dropped.
const WAITING_MAX: usize = 16;

/// A text, and the channel for its result.
struct Item {
    text: String,
    done: Option<oneshot::Sender<Result>>,
}

#[derive(Clone)]
pub(crate) struct Console {
    output: SyncSender<Item>,
    messages: SyncSender<Item>,
}

impl Console {
    /// Starts both threads.
    pub(crate) fn start() -> Result<Console> {
        let mut torn = false;
        let output = speaker("output", move |text| print(text, &mut torn))?;
        let messages = speaker("messages", |text| {
            stdio::eprint(text);
            Ok(())
        })?;
        Ok(Console { output, messages })
    }

    /// Queues text for standard output.
    pub(crate) fn print(&self, text: String) {
        let _ = self.output.try_send(Item { text, done: None });
    }

    /// Queues an object as a line of JSON for standard output.
    pub(crate) fn json(&self, object: &impl Serialize) {
        match line(object) {
            Ok(line) => self.print(line),
            Err(error) => self.say(format!("remora: serve: {error}")),
        }
    }

    /// Queues lines for standard error. The last has no newline.
    pub(crate) fn say(&self, lines: String) {
        if !lines.is_empty() {
            let _ = self.messages.try_send(Item { text: lines, done: None });
        }
    }

    /// The same as [`Console::print`]; waits until it is written.
    pub(crate) async fn printed(&self, text: String) -> Result {
        written(&self.output, text).await
    }

    /// Waits until standard error has been written.
    pub(crate) async fn said(&self) {
        let _ = written(&self.messages, String::new()).await;
    }
}

pub(crate) fn line(object: &impl Serialize) -> Result<String> {
    Ok(stdio::json_line(object)? + "\n")
}

async fn written(to: &SyncSender<Item>, text: String) -> Result {
    let (done, how) = oneshot::channel();
    if to.try_send(Item { text, done: Some(done) }).is_err() {
        return Err(Error::Pipe);
    }
    how.await.unwrap_or(Err(Error::Pipe))
}

/// Starts a thread that calls `write` with each text.
fn speaker(name: &str, mut write: impl FnMut(&str) -> Result + Send + 'static) -> Result<SyncSender<Item>> {
    let (items, said) = sync_channel::<Item>(WAITING_MAX);
    let work = move || {
        for Item { text, done } in said {
            let how = if text.is_empty() { Ok(()) } else { write(&text) };
            match (done, how) {
                // The waiter may have given up.
                (Some(done), how) => drop(done.send(how)),
                (None, Err(error)) => stdio::eprint(format_args!("remora: serve: {error}")),
                (None, Ok(())) => {}
            }
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(Error::local("cannot start a thread"))?;
    Ok(items)
}

/// Prints `text`. After a failed write it starts a new line.
fn print(text: &str, torn: &mut bool) -> Result {
    let printed = if *torn { stdio::print(&format!("\n{text}")) } else { stdio::print(text) };
    *torn = printed.is_err();
    printed
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn unread_output_blocks_no_caller() {
        let (begin, has_begun) = channel();
        let (open, gate) = channel::<()>();
        let to = speaker("test", move |text| {
            let _ = begin.send(text.to_owned());
            // Shut until its other end is gone.
            let _ = gate.recv();
            if text == "bad" { Err(Error::Pipe) } else { Ok(()) }
        })
        .unwrap();
        let give = |n: usize| to.try_send(Item { text: n.to_string(), done: None }).is_ok();
        assert!(give(0));
        assert_eq!(has_begun.recv().unwrap(), "0");
        assert!((1..=WAITING_MAX).all(give));
        assert!(!give(WAITING_MAX + 1) && written(&to, "more".into()).await.is_err(), "there is no room");
        drop(open);
        let texts: Vec<String> = has_begun.iter().take(WAITING_MAX).collect();
        assert_eq!(texts, (1..=WAITING_MAX).map(|n| n.to_string()).collect::<Vec<_>>());
        for (text, good) in [("bad", false), ("good", true), ("", true)] {
            assert_eq!(written(&to, text.into()).await.is_ok(), good, "{text}");
        }
    }
}
