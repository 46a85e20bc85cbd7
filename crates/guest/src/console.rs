//! The serial console of a guest, and line-oriented output of programs in general.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Instant;

/// Lines buffered before further ones are dropped.
const LINES_MAX: usize = 1000;
/// Bytes of a command's output that are kept.
const SAID_MAX: usize = 1 << 16;

/// A failure of the conversation.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// The expected output did not come in time.
    #[error("no expected output in time")]
    Late,
    /// The program closed its output.
    #[error("the program ended too early")]
    Over,
    /// Writing to the program failed.
    #[error("cannot write to the program: {0}")]
    Deaf(#[from] io::Error),
}

/// The output of a program, line by line.
#[derive(Debug)]
pub struct Talk {
    lines: Receiver<String>,
}

impl Talk {
    /// Reads the output in a thread, so that the program never blocks on it.
    pub fn new(output: impl Read + Send + 'static) -> io::Result<Talk> {
        let (to, lines) = sync_channel(LINES_MAX);
        thread::Builder::new().name("listener".into()).spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                // A receiver that no longer reads misses nothing.
                let _ = to.try_send(String::from_utf8_lossy(&line).trim().to_owned());
                line.clear();
            }
        })?;
        Ok(Talk { lines })
    }

    /// The first line for which `wanted` returns a value.
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

/// A booted guest that waits for lines, run by [`CONVERSE`](crate::CONVERSE).
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

    /// Runs a shell line; returns its exit code, or `None` if it does not end in time. Call it
    /// again only after a line ended.
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

    /// The output of the last line, at most 64 KiB and 1000 lines.
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
    fn line_returns_exit_code_and_output() {
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
    fn silent_program_times_out() {
        let (_open, output) = std::os::unix::net::UnixStream::pair().unwrap();
        let talk = Talk::new(output).unwrap();
        assert!(matches!(talk.until(Instant::now(), |_| Some(())), Err(Silence::Late)));
    }
}
