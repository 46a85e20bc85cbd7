//! A directory for the length of a bench, gone afterwards, after `kill -9` too.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// In memory, so that no disk's moods get into the figures; every system has the same.
const IN_MEMORY: &str = "/dev/shm";

/// Waits until whoever started it is gone, then removes what is left of the directory. What is
/// killed with its owner may write for another moment.
const JANITOR: &str = "read _; rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";

/// A directory.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: TempDir,
    /// Ends when its input does: when this is dropped, or this process ends however it may.
    janitor: Child,
}

impl Scratch {
    /// An empty directory with these ones in it.
    pub(super) fn new(inside: &[&str]) -> io::Result<Scratch> {
        let named = |place: PathBuf| tempfile::Builder::new().prefix("remora-lab-").tempdir_in(place);
        let directory = named(IN_MEMORY.into()).or_else(|_| named(std::env::temp_dir()))?;
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
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
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
        let scratch = Scratch::new(&["a"]).unwrap();
        let path = scratch.path("");
        fs::write(scratch.path("a/f"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
