//! The other mobiles' copies, where several copy a file each at once. They begin with the first
//! one's, whose time is the run's (as in NFS/W 95), and are compared with their files like it.

use std::fs;
use std::time::Instant;

use remora_channel::Channel;
use remora_host::emulate::Station;

use super::super::job::Copy;
use super::bench::{Bench, Scene, content};
use super::carrier::{self, Files, LOG};
use super::program::{Program, Start};
use super::{Result, failed, failed_with};

/// A mobile, all set to copy its file.
#[derive(Debug)]
pub(super) struct Other {
    mobile: usize,
    files: Files,
    line: Vec<String>,
    content: Vec<u8>,
}

/// All mobiles but the first.
pub(super) fn ready(bench: &Bench, job: &Copy, seed: u64, run: u64) -> Result<Vec<Other>> {
    let ready = |mobile| {
        let files = Files::of(&bench.scratch, run, mobile);
        let content = content(Channel::seed_of(seed, mobile), job.bytes);
        fs::write(files.source(job.direction), &content).map_err(failed_with("the file to be copied"))?;
        Ok(Other { mobile, line: carrier::line(bench, job, &files)?, files, content })
    };
    (1..job.mobiles).map(ready).collect()
}

/// Makes their copies, which are ended at the limit.
pub(super) fn carry(others: &[Other], job: &Copy, scene: &Scene<'_>, limit: Instant) -> Result<()> {
    let programs = others.iter().map(|other| other.start(scene)).collect::<Result<Vec<Program>>>()?;
    for (other, mut program) in others.iter().zip(programs) {
        match program.ended(limit)? {
            None => {}
            Some(status) if status.success() => other.check(job)?,
            Some(_) => return Err(failed(program.words())),
        }
        other.files.remove();
    }
    Ok(())
}

impl Other {
    fn start(&self, scene: &Scene<'_>) -> Result<Program> {
        let environment = carrier::environment_of(scene.scratch, self.mobile);
        let name = format!("{LOG}-{}", self.mobile);
        let start = Start { environment: &environment, ..Start::new(&name, &self.line) };
        Program::start(scene.emulator, scene.scratch, Station::Mobile(self.mobile), &start)
    }

    fn check(&self, job: &Copy) -> Result<()> {
        let copy = fs::read(self.files.copy(job.direction)).map_err(failed_with("the copy"))?;
        match copy == self.content {
            true => Ok(()),
            false => Err(failed(format!("mobile {}: the copy differs from the file", self.mobile))),
        }
    }
}
