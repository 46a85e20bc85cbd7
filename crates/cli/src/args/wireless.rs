//! The flags of `remora lab wireless`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_lab::wireless::SEEDS_MAX;

use crate::units;

pub(crate) const HELP: &str = "\
Everything is simulated: the real client, server and link code in virtual time,
on all processors. With --real, real programs run on an emulated link instead; a
second takes a second.

Examples:
  remora lab wireless --list
  # NFS/W 95's tables, ours beside the papers'
  remora lab wireless treatments two-mobiles
  remora lab wireless --seeds 30 --html wireless.html
  remora lab wireless --real --list
  remora lab wireless --real --peers bursts --html real.html
  remora lab wireless bursts --json \\
      | jq '.experiments[].cells[] | [.labels, .ratio.median]'

--json prints one object: version, source, complete (false: interrupted),
command, first_seed, seeds, experiments (name, about, origin, seeds, cells);
each cell: labels (by axis), source, settings, limit_seconds, seeds, results
(measure, summary, values; null: cut off at the limit, or not there),
floor_seconds, ratio, paper, reduction_percent, reduction_interval_percent (95 %
interval), paper_reduction_percent, failures. A summary: runs, censored, median,
low and high (95 % interval of the median), min, max, mean (of the runs that
ended). With --real there are also peers, jobs, lateness_ms_bound, and in each
cell simulated, difference_percent, fastest, lateness_ms_max, repeated.
docs/results/wireless.md and docs/results/peers.md have more.";

const JOBS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
const GUESTS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const LATENESS_MAX: &str = "5ms";

#[derive(Args, Debug)]
pub(crate) struct Wireless {
    /// Which experiments; all if none is named
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
    /// List the experiments
    #[arg(long, conflicts_with = "json")]
    pub(crate) list: bool,
    /// Seeds for each cell; fewer than 6 give no interval [default: 10; two-mobiles, simulated: 40]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub(crate) seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "FIRST", default_value = "1")]
    pub(crate) seed: u64,
    /// Three seeds only; with --real and no names: check and bursts only
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) quick: bool,
    /// Only cells at this level, as in "80 ms" or scp; of several, those on one axis are alternatives.
    /// A level that there is not shows all there are
    #[arg(long, value_name = "LEVEL")]
    pub(crate) only: Vec<String>,
    /// Run real programs in network namespaces on an emulated link, in real time (root)
    #[arg(long, conflicts_with = "threads")]
    pub(crate) real: bool,
    /// Run others' systems, too: the Linux kernel's NFS client in a guest, libnfs, scp, rsync
    #[arg(long, requires = "real")]
    pub(crate) peers: bool,
    /// Runs at a time, each on a link of its own
    #[arg(long, value_name = "N", default_value_t = JOBS, requires = "real")]
    pub(crate) jobs: NonZeroUsize,
    /// How late the emulator may hand over a frame in a valid run
    #[arg(long, value_name = "TIME", default_value = LATENESS_MAX, requires = "real", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Guests at a time; each keeps half a processor busy
    #[arg(long, value_name = "N", default_value_t = GUESTS, requires = "peers")]
    pub(crate) guests: NonZeroUsize,
    /// An unpacked linux-image package for the guest [default: this machine's kernel, or one from
    /// apt-get]
    #[arg(long, value_name = "DIR", requires = "peers")]
    pub(crate) kernel: Option<PathBuf>,
    /// Threads; the results do not depend on it [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print an object with every run instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with tables and figures, too
    #[arg(long, value_name = "PAGE")]
    pub(crate) html: Option<PathBuf>,
}

impl Wireless {
    /// The flags that count for what real runs give and are not as usual.
    pub(crate) fn unusual(&self) -> Vec<(&'static str, String)> {
        let mut flags = Vec::new();
        if self.jobs != JOBS {
            flags.push(("--jobs", self.jobs.to_string()));
        }
        if units::duration(LATENESS_MAX) != Ok(self.lateness_max) {
            flags.push(("--lateness-max", format!("{}ms", self.lateness_max.as_secs_f64() * 1e3)));
        }
        if self.guests != GUESTS {
            flags.push(("--guests", self.guests.to_string()));
        }
        flags.extend(self.kernel.as_ref().map(|kernel| ("--kernel", kernel.display().to_string())));
        flags
    }
}
