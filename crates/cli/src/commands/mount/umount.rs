//! `remora umount`: detaches a mount and waits until it has sent what the server lacks.

use std::path::Path;
use std::time::{Duration, Instant};

use remora_host::fuse;
use remora_host::mount::control_client::{self, KnownMount};
use remora_host::mount::report::{UnmountMode, UnmountProgress};
use remora_host::mount::runtime_dir::MountNote;
use remora_host::mount::{KeptWork, mount_point};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use crate::commands::mount::command::kept_text;
use crate::commands::mount::flags::Umount;
use crate::commands::mount::kernel_error::kernel_error;
use crate::commands::mount::known_mounts::{self, not_mounted, unanswered};
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: Umount) -> Result {
    let dir = mount_point::resolve(&args.dir).map_err(Error::local(args.dir.display()))?;
    let mounts = known_mounts::all()?.into_iter().filter(|mount| mount.note.dir == dir).collect::<Vec<_>>();
    if mounts.is_empty() {
        // Its process is dead, or another user's.
        return if mount_point::is_mounted(&dir) { detach(&dir) } else { Err(not_mounted(&args.dir)) };
    }
    for mount in mounts {
        end(mount, &args).await?;
    }
    Ok(())
}

/// Detaches what is mounted at `dir`, if anything of ours is.
fn detach(dir: &Path) -> Result {
    if !mount_point::is_mounted(dir) {
        return Ok(());
    }
    fuse::unmount(dir).map_err(|error| kernel_error(&error))
}

/// Unmounts and waits for the end.
async fn end(mount: KnownMount, args: &Umount) -> Result {
    let force = args.force;
    let mode = match (force, args.keep) {
        (true, _) => UnmountMode::Drop,
        (false, true) => UnmountMode::Keep,
        (false, false) => UnmountMode::Send,
    };
    let (told, mut unsent) = watch::channel(None);
    let asked = mount.clone();
    let ending = tokio::task::spawn_blocking(move || {
        let mut kept = KeptWork { files: 0, changes: 0 };
        let ended = asked.unmount(mode, |UnmountProgress { dirty_bytes, kept_files, kept_changes, .. }| {
            kept = KeptWork { files: kept_files, changes: kept_changes };
            told.send_replace(Some(dirty_bytes));
        });
        ended.map(|()| kept)
    });
    let ended = tokio::select! {
        ended = ending => ended.unwrap_or_else(|e| Err(std::io::Error::other(e))),
        number = interrupt::wait() => {
            let unsent = (*unsent.borrow()).unwrap_or_default();
            stdio::eprint(format_args!(
                "{} is detached; {} are still sent in the background (--force drops them)",
                mount.note.dir.display(),
                units::human(unsent)
            ));
            return Err(Error::Interrupted(number));
        }
        () = print_progress(&mount, &mut unsent) => Ok(KeptWork { files: 0, changes: 0 }),
    };
    match ended {
        Err(e) if control_client::is_silent(&e) && force => kill(&mount),
        Err(e) if control_client::is_silent(&e) => {
            detach(&mount.note.dir)?;
            let MountNote { dir, pid, .. } = &mount.note;
            let why = format!("it is detached; its process {pid} does not answer, and may have something to send");
            let hint = format!("if it is stopped, kill -CONT {pid} lets it go on; kill -KILL {pid} ends it");
            Err(Error::refused(dir.display(), why).with_hint(hint))
        }
        Ok(kept) => {
            if let Some(text) = kept_text(kept) {
                stdio::eprint(format_args!("{text}; the next mount of {} sends them", mount.note.url));
            }
            Ok(())
        }
        Err(e) => Err(unanswered(&mount, e)),
    }
}

/// Prints what is unsent, now and then. Never ends.
async fn print_progress(mount: &KnownMount, unsent: &mut watch::Receiver<Option<u64>>) {
    let mut printed = Instant::now();
    loop {
        if unsent.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let bytes = *unsent.borrow_and_update();
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && printed.elapsed() >= PROGRESS) {
            printed = Instant::now();
            stdio::eprint(format_args!(
                "sending {} to {} (Ctrl-C goes on in the background)",
                units::human(bytes),
                mount.note.url
            ));
        }
    }
}

/// Detaches a mount whose process does not answer, and ends the process.
fn kill(mount: &KnownMount) -> Result {
    detach(&mount.note.dir)?;
    let pid = i32::try_from(mount.note.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(()) };
    kill_process(pid, Signal::KILL).map_err(|e| Error::local(format_args!("process {}", mount.note.pid))(e.into()))
}
