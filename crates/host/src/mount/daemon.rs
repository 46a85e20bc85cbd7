//! A process that goes on in the background.

use std::fs::File;
use std::io;

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Leaves the terminal, the working directory and the standard streams of the parent process. What is printed later is
/// dropped.
pub fn leave_parent() -> io::Result<()> {
    // Fails if this process leads its session already.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}
