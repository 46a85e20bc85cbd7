//! A mount in the background: this program again, which says when it has mounted.

use std::env;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use remora_host::mount::daemon;

use crate::commands::mount::mount_helper;
use crate::config::settings::command_line::BeforeCommand;
use crate::output::exit::{Error, Result};

/// What the process in the background writes once it has mounted.
const READY: &[u8] = b"mounted\n";

/// Starts the process in the background and waits until it has mounted, or has printed why it could not.
pub(crate) async fn start() -> Result {
    tokio::task::spawn_blocking(start_blocking).await.unwrap_or_else(|e| Err(Error::refused("starting", e.to_string())))
}

fn start_blocking() -> Result {
    let starting = || Error::local("starting");
    let program = env::current_exe().map_err(starting())?;
    let mut words: Vec<OsString> = mount_helper::translated(env::args_os().collect());
    let behind = BeforeCommand::of(&words).command_at + 1;
    words.insert(words.len().min(behind), "--daemon".into());
    let mut command = Command::new(program);
    command.args(words.into_iter().skip(1)).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Starting(command.spawn().map_err(starting())?);
    let mut said = Vec::new();
    if let Some(stdout) = &mut child.0.stdout {
        // It closes its end after the word.
        stdout.read_to_end(&mut said).map_err(starting())?;
    }
    if said == READY {
        // It goes on without this process.
        std::mem::forget(child);
        return Ok(());
    }
    let status = child.0.wait().map_err(starting())?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        // It has printed the error.
        Some(code @ 1..) => Err(Error::Reported(code)),
        _ => Err(Error::refused("the mount's process", format!("ended before it mounted: {status}"))),
    }
}

/// A process that is ended if it is not waited for.
struct Starting(Child);

impl Drop for Starting {
    fn drop(&mut self) {
        // Both do nothing where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells the parent process that it is mounted, and leaves it.
pub(crate) fn announce_ready() -> Result {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(READY).and_then(|()| stdout.flush()).map_err(Error::local("the starting process"))?;
    daemon::leave_parent().map_err(Error::local("leaving the terminal"))
}
