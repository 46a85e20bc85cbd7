//! A temporary directory of a guest or a benchmark, removed afterwards, even after `kill -9`.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A process that waits until its parent ends, then removes the directory. It retries, since killed
/// processes may write for another moment.
const JANITOR: &str = "read _; rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";

/// A temporary directory.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// The janitor, which ends when its input closes: on drop, or at the end of this process.
    janitor: Child,
}

impl Scratch {
    /// A directory in `place` whose name begins with `prefix`, with the subdirectories `inside`.
    pub fn new(place: &Path, prefix: &str, inside: &[&str]) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(place)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", JANITOR, "janitor"]).arg(directory.path());
        // The terminal's interrupts are for this process, not for the janitor.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let scratch = Scratch { janitor: command.spawn()?, directory };
        for name in inside {
            fs::create_dir(scratch.path(name))?;
        }
        Ok(scratch)
    }

    /// A path within the directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        // The janitor removes the directory.
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_directory_is_removed_on_drop() {
        let scratch = Scratch::new(&std::env::temp_dir(), "guest-", &["a"]).unwrap();
        let path = scratch.path("");
        fs::write(scratch.path("a/f"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
