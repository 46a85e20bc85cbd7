//! Talking to a program line by line, and to a guest's first process in particular.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Instant;

/// Lines of a program's output that wait for us; more are forgotten.
const LINES_MAX: usize = 1000;
/// How much of what a line prints is kept, in bytes.
const SAID_MAX: usize = 1 << 16;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// Not in time.
    #[error("it did not say what was expected in time")]
    Late,
    /// Its output is closed.
    #[error("it ended too early")]
    Over,
    /// It could not be told.
    #[error("its input: {0}")]
    Deaf(#[from] io::Error),
}

/// What a program prints, line by line.
#[derive(Debug)]
pub struct Talk {
    lines: Receiver<String>,
}

impl Talk {
    /// Listens to this output, by a thread, so that nobody is held up by our not listening.
    pub fn new(output: impl Read + Send + 'static) -> io::Result<Talk> {
        let (to, lines) = sync_channel(LINES_MAX);
        thread::Builder::new().name("listener".into()).spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                // Whoever does not listen any more misses nothing.
                let _ = to.try_send(String::from_utf8_lossy(&line).trim().to_owned());
                line.clear();
            }
        })?;
        Ok(Talk { lines })
    }

    /// The first line that `wanted` makes something of.
    pub fn until<T>(&self, limit: Instant, mut wanted: impl FnMut(&str) -> Option<T>) -> Result<T, Silence> {
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match wanted(&line) {
                    Some(found) => return Ok(found),
                    None => continue,
                },
                Err(RecvTimeoutError::Timeout) => return Err(Silence::Late),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Over),
            }
        }
    }
}

/// A guest that has booted and waits for lines: the other end of [`CONVERSE`](crate::CONVERSE).
#[derive(Debug)]
pub struct Console<W> {
    input: W,
    talk: Talk,
    said: String,
}

impl<W: Write> Console<W> {
    /// Waits until the guest has booted.
    pub fn new(input: W, talk: Talk, limit: Instant) -> Result<Console<W>, Silence> {
        talk.until(limit, |line| line.ends_with("guest-ready").then_some(()))?;
        Ok(Console { input, talk, said: String::new() })
    }

    /// Runs a line; its exit code, or `None` if it does not end in time. Only one that ended may be
    /// followed by another.
    pub fn run(&mut self, line: &str, limit: Instant) -> Result<Option<u8>, Silence> {
        writeln!(self.input, "{line}")?;
        let said = &mut self.said;
        said.clear();
        let code = |line: &str| {
            let code = line.strip_prefix("guest-done ").map(|code| code.parse().unwrap_or(u8::MAX));
            if code.is_none() && said.len() < SAID_MAX {
                *said += line;
                said.push('\n');
            }
            code
        };
        match self.talk.until(limit, code) {
            Ok(code) => Ok(Some(code)),
            Err(Silence::Late) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// What the last line printed, at most 64 KiB and 1000 lines of it.
    pub fn said(&self) -> &str {
        &self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_line_is_answered_by_its_code_and_what_it_said() {
        let output = b"booting\r\nxguest-ready\r\none\r\ntwo\r\nguest-done 3\r\nguest-done x\r\n";
        let mut input = Vec::new();
        let mut console = Console::new(&mut input, Talk::new(&output[..]).unwrap(), soon()).unwrap();
        assert_eq!(console.run("first", soon()).unwrap(), Some(3));
        assert_eq!(console.said(), "one\ntwo\n");
        assert_eq!(console.run("second", soon()).unwrap(), Some(255));
        assert_eq!(console.said(), "");
        assert!(matches!(console.run("third", soon()), Err(Silence::Over)));
        assert_eq!(input, b"first\nsecond\nthird\n");
    }

    #[test]
    fn who_says_nothing_is_late() {
        let (_open, output) = std::os::unix::net::UnixStream::pair().unwrap();
        let talk = Talk::new(output).unwrap();
        assert!(matches!(talk.until(Instant::now(), |_| Some(())), Err(Silence::Late)));
    }
}
