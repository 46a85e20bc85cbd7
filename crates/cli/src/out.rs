//! Standard output and standard error: a reader that goes away is no error, a full disk is. What only
//! prints ends quietly then; a service goes on without.

use std::io::{self, Write};
use std::sync::{Once, OnceLock};

use remora_host::client::ClientError;
use rustix::io::Errno;
use serde::Serialize;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::exit::{Error, Result};
use crate::inherited;

/// The name of the service that this process is, if it is one.
static SERVICE: OnceLock<&str> = OnceLock::new();
/// That nobody reads is said once.
static UNREAD: Once = Once::new();

/// From now on it is no reason to end that nobody reads standard output: others rely on `command`.
pub(crate) fn outlive_readers(command: &'static str) {
    SERVICE.get_or_init(|| command);
}

/// A command as one would type it into a shell.
pub(crate) fn for_shell(words: &[String]) -> Result<String> {
    shlex::try_join(words.iter().map(String::as_str)).map_err(|_| Error::Usage("a flag has a NUL in it".into()))
}

/// Writes to standard output, all of it.
pub(crate) fn bytes(data: &[u8]) -> io::Result<()> {
    if inherited::is_stdout_closed() {
        return Err(Errno::BADF.into());
    }
    aside(|| {
        let mut out = io::stdout().lock();
        out.write_all(data)?;
        out.flush()
    })
}

/// Prints text as it is.
pub(crate) fn text(text: &str) -> Result {
    match (bytes(text.as_bytes()), SERVICE.get()) {
        (Err(e), Some(command)) if is_unread(&e) => {
            let what = "nobody reads the output any more; going on without";
            UNREAD.call_once(|| say(format_args!("remora: {command}: {what}")));
            Ok(())
        }
        (written, _) => written.map_err(failed),
    }
}

/// Prints an object on a line of its own.
pub(crate) fn json(object: &impl Serialize) -> Result {
    let mut line = json_line(object)?;
    line.push('\n');
    text(&line)
}

/// The object on one line, without its end; integers above 2^53 are strings.
pub(crate) fn json_line(object: &impl Serialize) -> Result<String> {
    remora_lab::json::line(object).map_err(|e| Error::refused("standard output", e.to_string()))
}

/// A line on standard error. If nobody reads that, there is nobody to tell, and work goes on. Whoever says it holds no
/// lock that others wait for: the reader may take its time here, too.
pub(crate) fn say(line: impl std::fmt::Display) {
    aside(|| {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

/// The reader may take its time; the worker thread's other tasks shall not wait for it. A laboratory has runtimes of its
/// own, with nobody in them to wait.
fn aside<T>(write: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(write),
        _ => write(),
    }
}

/// Whether no reader exists: it went away, or standard output was closed from the start.
fn is_unread(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::BrokenPipe || inherited::is_stdout_closed()
}

fn failed(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::BrokenPipe { Error::Pipe } else { Error::local("standard output")(e) }
}

/// A transfer whose sink is standard output failed.
pub(crate) fn transfer_failed(what: impl std::fmt::Display) -> impl FnOnce(ClientError) -> Error {
    move |e| match e {
        ClientError::Local(e) => failed(e),
        other => Error::remote(what)(other),
    }
}

/// A name for the terminal: bytes that are not UTF-8 are replaced, control characters and others that are not
/// seen shown as such, so that a name cannot play tricks with the terminal, or look like another.
pub(crate) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let plays_tricks = |c: char| c.is_control() || rearranges(c) || is_invisible(c);
    let escape = |c: char| if plays_tricks(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Whether a character has what is around it shown in another order, or on another line: `gpj.exe` can look like
/// `exe.jpg`.
pub(crate) fn rearranges(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether nothing of a character is seen. The two joiners are none of these: they change the letters beside them,
/// and many languages' names, and faces, need them.
fn is_invisible(c: char) -> bool {
    let alone = matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{feff}');
    alone || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The URL of `name` in the directory at `url`, for the terminal: before the `?` and what follows it.
pub(crate) fn below(url: &str, name: &[u8]) -> String {
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let name = shown(name).replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("{}/{name}{query}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_entries_can_be_used_again() {
        for (dir, name, url) in [
            ("nfs://h/a", &b"b"[..], "nfs://h/a/b"),
            ("nfs://h:1/", b"b", "nfs://h:1/b"),
            ("nfs://h/a/?proto=tcp&mountport=2", b"b", "nfs://h/a/b?proto=tcp&mountport=2"),
            ("nfs://h/a", b"100%? #1\n", "nfs://h/a/100%25%3F %231\\n"),
        ] {
            assert_eq!(super::below(dir, name), url);
        }
    }

    #[test]
    fn names_cannot_play_tricks() {
        for (name, text) in [
            (&b"a b"[..], "a b"),
            ("é".as_bytes(), "é"),
            (b"a\x1b[2Jb\n", "a\\u{1b}[2Jb\\n"),
            ("a\u{202e}gpj.exe".as_bytes(), "a\\u{202e}gpj.exe"),
            ("\u{61c}\u{200f}\u{2028}\u{2066}".as_bytes(), "\\u{61c}\\u{200f}\\u{2028}\\u{2066}"),
            ("a\u{200b}\u{feff}\u{ad}\u{e0061}b".as_bytes(), "a\\u{200b}\\u{feff}\\u{ad}\\u{e0061}b"),
            // Hebrew, Persian with a joiner, a family: as they are.
            ("שלום می\u{200c}خواهم 👨\u{200d}👧".as_bytes(), "שלום می\u{200c}خواهم 👨\u{200d}👧"),
        ] {
            assert_eq!(super::shown(name), text);
        }
    }
}
