//! `remora hoard walk`: a walk now, with its progress.

use std::time::Duration;

use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{HoardProgressReport, HoardReport};

use crate::commands::hoard::check;
use crate::commands::hoard::flags::HoardWalk;
use crate::commands::mount::known_mounts;
use crate::cp::ui::progress::Progress;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// How often the mount is asked.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: &HoardWalk) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    tokio::select! {
        report = walk(&mount) => check::explain(&report?),
        number = interrupt::wait() => {
            stdio::eprint("the walk goes on in the background; remora hoard check says how far it is");
            Err(Error::Interrupted(number))
        }
    }
}

/// Walks to the end. Returns what the mount reports then.
async fn walk(mount: &KnownMount) -> Result<HoardReport> {
    let mut report = ask(mount, KnownMount::walk_hoard).await?;
    if let Some(why) = report.error {
        return Err(Error::refused(mount.note.dir.display(), why));
    }
    let progress = Progress::new(true);
    let mut shown = Shown::default();
    let mut waits = false;
    // A walk that is asked for begins at once, unless the server is silent.
    while report.has_disk && (report.running.is_some() || report.is_paused) {
        if let Some(running) = &report.running {
            shown.show(&progress, running);
        }
        if report.is_paused && !std::mem::replace(&mut waits, true) {
            stdio::eprint("the server is silent: the walk waits for it (Ctrl-C lets it wait in the background)");
        }
        waits &= report.is_paused;
        tokio::time::sleep(LOOK).await;
        report = ask(mount, KnownMount::hoard).await?;
    }
    progress.clear();
    Ok(report)
}

async fn ask(mount: &KnownMount, question: fn(&KnownMount) -> std::io::Result<HoardReport>) -> Result<HoardReport> {
    let asked = mount.clone();
    let answer = tokio::task::spawn_blocking(move || question(&asked)).await;
    let answer = answer.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    answer.map_err(|error| known_mounts::unanswered(mount, error))
}

/// What the bar has been told.
#[derive(Debug, Default)]
struct Shown {
    files: u64,
    bytes: u64,
    files_done: u64,
    bytes_done: u64,
}

impl Shown {
    /// Brings the bar up to date. Figures that decrease wait until they have increased again.
    fn show(&mut self, progress: &Progress, running: &HoardProgressReport) {
        let files_done = running.files_wanted - running.files_missing.min(running.files_wanted);
        let bytes_done = running.bytes_wanted - running.bytes_missing.min(running.bytes_wanted);
        for _ in self.files..running.files_wanted {
            progress.expect_file(0);
        }
        progress.expect(running.bytes_wanted.saturating_sub(self.bytes));
        for _ in self.files_done..files_done {
            progress.file_done();
        }
        progress.add(bytes_done.saturating_sub(self.bytes_done));
        self.files = self.files.max(running.files_wanted);
        self.bytes = self.bytes.max(running.bytes_wanted);
        self.files_done = self.files_done.max(files_done);
        self.bytes_done = self.bytes_done.max(bytes_done);
    }
}
