//! A directory for as long as a guest or a bench is needed, gone afterwards, after `kill -9` too.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Waits until whoever started it is gone, then removes what is left of the directory. What is
/// killed with its owner may write for another moment.
const JANITOR: &str = "read _; rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";

/// A directory.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// Ends when its input does: when this is dropped, or this process ends however it may.
    janitor: Child,
}

impl Scratch {
    /// A directory in `place` whose name begins with `prefix`, empty but for these ones.
    pub fn new(place: &Path, prefix: &str, inside: &[&str]) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(place)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", JANITOR, "janitor"]).arg(directory.path());
        // The terminal's interrupts are for us, not for it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let scratch = Scratch { janitor: command.spawn()?, directory };
        for name in inside {
            fs::create_dir(scratch.path(name))?;
        }
        Ok(scratch)
    }

    /// Where something in it is.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        // It removes the directory, which is then not there for its owner to remove.
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_gone_afterwards() {
        let scratch = Scratch::new(&std::env::temp_dir(), "guest-", &["a"]).unwrap();
        let path = scratch.path("");
        fs::write(scratch.path("a/f"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
