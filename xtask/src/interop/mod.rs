//! `cargo xtask interop`: the Linux kernel's NFS client, in a QEMU guest, on `remora serve`, and `remora` on the
//! kernel's own server.
//!
//! Nothing is installed in the guest and nothing changes on this machine. Read [`step`] for the list of steps, `steps/`
//! for their scripts, then [`site`], [`machine`] and [`kernel_server`]. Some steps are also put to `remora mount`, without
//! the guest: [`fuse`].

mod fuse;
mod kernel_server;
mod machine;
mod outcome;
mod posix;
mod server;
mod site;
mod step;
mod tools;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use guest::{Kernel, Missing, Scratch};

use crate::cmd::{self, Result};
use crate::test::{Report, Tally, provide, requires_all};
use fuse::FuseSite;
use outcome::{Outcome, Verdict};
use site::Site;
use step::{Besides, Policy, Step};

/// Programs that the steps or the guest need.
const PROGRAMS: [&str; 6] = ["setpriv", "timeout", "git", "make", "cc", "setfacl"];
/// Limit for all steps in the guest together, and for all on this machine.
const WHOLE: Duration = Duration::from_secs(15 * 60);

pub(crate) const HELP: &str = "\
Needs qemu-system-x86, busybox-static, make and git, which it installs as root on Debian, and a
kernel, which it finds in /boot or downloads. Without root, only what a server without privileges
can do is done, and what is done on the guest's. What the steps say is kept in target/interop/STEP.log.
With REMORA_MOUNT_LONG=1 the release build is taken, mount-fsx makes 4 x 250,000 operations a seed,
mount-outage lasts 30 s and 5 minutes (and judges times), and mount-signals takes a minute.

Examples:
  cargo xtask interop --list
  cargo xtask interop git pjdfstest";

/// Flags of `cargo xtask interop`.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Results as JSON, and nothing else on the standard output
    #[arg(long)]
    json: bool,
    /// List the steps
    #[arg(long)]
    list: bool,
    /// Install no packages
    #[arg(long)]
    no_install: bool,
    /// An unpacked kernel package for the guest; also REMORA_GUEST_KERNEL
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// Steps; all of them if none is named
    names: Vec<String>,
}

impl Options {
    /// Runs a step, and prints its outcome.
    fn timed(&self, step: &Step, run: impl FnOnce() -> Verdict) -> Outcome {
        let began = Instant::now();
        let outcome = Outcome::new(step.name, run(), began.elapsed());
        if !self.json {
            println!("{outcome}");
        }
        outcome
    }
}

/// Runs the steps and prints the summary.
pub(crate) fn run(options: &Options) -> Result {
    let steps = step::named(&options.names)?;
    if options.list {
        steps.iter().for_each(|s| println!("{:18} {}", s.name, s.script.lines().next().unwrap_or_default()));
        return Ok(());
    }
    let installed = provide(options.no_install);
    let outcomes = execute(options, &steps)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&outcomes)?);
    }
    let mut tally = Tally::default();
    outcomes.iter().for_each(|o| o.count(&mut tally));
    let report = Report::new(tally, installed, requires_all());
    if options.json { report.verdict().map_err(|_| cmd::Told.into()) } else { report.tell() }
}

/// Runs all steps as part of the project's tests and counts them.
pub(crate) fn count(tally: &mut Tally) -> Result {
    let options = Options::default();
    execute(&options, &step::named(&[])?)?.iter().for_each(|o| o.count(tally));
    Ok(())
}

/// Installs and downloads what all steps need, before they run. A step that lacks something reports it.
pub(crate) fn prepare() {
    if let (Ok(steps), Ok(target)) = (step::named(&[]), cmd::target_dir()) {
        Means::find(&Options::default(), &steps, &target);
    }
}

/// Runs the steps. Failures of steps are in the outcomes; an error is a fault of the runner.
fn execute(options: &Options, steps: &[&'static Step]) -> Result<Vec<Outcome>> {
    let target = cmd::target_dir()?;
    let means = Means::find(options, steps, &target);
    let mut outcomes = Vec::new();
    let mut able = Vec::new();
    for step in steps {
        match means.missing(step) {
            Some(why) => outcomes.push(options.timed(step, || Verdict::Skipped(why))),
            None => able.push(*step),
        }
    }
    let (in_guest, here): (Vec<&Step>, Vec<&Step>) = able.into_iter().partition(|step| step.is_in_guest());
    if !in_guest.is_empty() {
        cmd::built("remora", cmd::Build::Debug)?;
    }
    let tools = means.tools.as_deref().unwrap_or(Path::new(""));
    // The guest mostly waits for its one processor.
    let (in_guest, here) = thread::scope(|scope| {
        let in_guest = scope.spawn(|| in_the_guest(options, &means, &target, tools, &in_guest));
        let here = on_this_machine(options, &target, tools, &here);
        (in_guest.join(), here)
    });
    outcomes.extend(in_guest.map_err(|_| "the steps in the guest ended with a panic")?);
    outcomes.extend(here);
    Ok(outcomes)
}

/// Runs the steps that the guest's kernel is put to.
fn in_the_guest(options: &Options, means: &Means, target: &Path, tools: &Path, steps: &[&Step]) -> Vec<Outcome> {
    let (Ok(kernel), false) = (&means.kernel, steps.is_empty()) else { return Vec::new() };
    let limit = Instant::now() + WHOLE;
    let mut site = Site::build(target, kernel, tools, steps).map_err(|e| e.to_string());
    let done = |step: &&Step| options.timed(step, || perform(&mut site, limit, |site| site.run(step)));
    steps.iter().map(done).collect()
}

/// Runs the steps with `remora mount` on this machine.
fn on_this_machine(options: &Options, target: &Path, tools: &Path, steps: &[&Step]) -> Vec<Outcome> {
    if steps.is_empty() {
        return Vec::new();
    }
    let limit = Instant::now() + WHOLE;
    let mut site = FuseSite::build(target, tools).map_err(|e| e.to_string());
    let policy = |step: &Step| step.remora.unwrap_or(Policy::Default);
    let done = |step: &&Step| options.timed(step, || perform(&mut site, limit, |site| site.run(step, policy(step))));
    steps.iter().map(done).collect()
}

/// Runs a step if its site exists and time is left.
fn perform<S>(
    site: &mut std::result::Result<S, String>,
    limit: Instant,
    run: impl FnOnce(&mut S) -> Result<Verdict>,
) -> Verdict {
    match site {
        Err(why) => Verdict::Failed(format!("not done: {why}")),
        Ok(_) if Instant::now() > limit => Verdict::Failed("not done: it took too long up to here".into()),
        Ok(open) => run(open).unwrap_or_else(|e| {
            let why = e.to_string();
            *site = Err(why.clone());
            Verdict::Failed(why)
        }),
    }
}

/// What the steps need, or why it is missing.
struct Means {
    kernel: std::result::Result<Kernel, String>,
    tools: std::result::Result<PathBuf, String>,
    /// Whether a server may mount file systems.
    may_mount: bool,
    /// Whether the guest can run an NFS server.
    serves: std::result::Result<(), String>,
}

impl Means {
    /// Finds what `steps` need, and installs or downloads what is missing.
    fn find(options: &Options, steps: &[&Step], target: &Path) -> Means {
        let kernel = options.kernel.clone().or_else(|| std::env::var_os("REMORA_GUEST_KERNEL").map(PathBuf::from));
        let kernel = Kernel::find(kernel.as_deref(), &machine::modules()).map_err(|Missing(why)| why);
        let wanted = |s: &&Step| s.besides != Besides::Nothing && !s.lacks_root();
        let has_fuse = steps.iter().any(|s| !s.is_in_guest()) && fuse::missing().is_none();
        let tools = if (kernel.is_ok() || has_fuse) && steps.iter().any(wanted) {
            tools::provide(target).map_err(|e| e.to_string())
        } else {
            Err("not asked for".into())
        };
        let asked = kernel.is_ok() && cmd::is_root() && steps.iter().any(|s| s.is_on_servers_own());
        let place = Scratch::new(&std::env::temp_dir(), "remora-interop-", &[]);
        let may_mount = asked && place.is_ok_and(|place| server::may_mount(&place.path("")));
        let reversed = kernel.is_ok() && steps.iter().any(|s| s.is_reversed());
        let serves = if reversed { kernel_server::programs().map(drop) } else { Err("not asked for".into()) };
        Means { kernel, tools, may_mount, serves }
    }

    /// Why a step cannot run.
    fn missing(&self, step: &Step) -> Option<String> {
        let program = || PROGRAMS.into_iter().find(|p| guest::find(p).is_none());
        if !step.is_in_guest() {
            let tools = self.tools.as_ref().err().filter(|_| step.besides != Besides::Nothing).cloned();
            return fuse::missing().or(tools).or_else(|| program().map(|p| format!("{p} is not installed")));
        }
        match (&self.kernel, &self.tools) {
            (Err(why), _) => Some(why.clone()),
            _ if step.lacks_root() => Some("needs root".into()),
            _ if step.is_on_servers_own() && !self.may_mount => Some("may not mount file systems".into()),
            _ if step.is_reversed() && self.serves.is_err() => self.serves.clone().err(),
            (_, Err(why)) if step.besides != Besides::Nothing => Some(why.clone()),
            _ => program().map(|p| format!("{p} is not installed")),
        }
    }
}
