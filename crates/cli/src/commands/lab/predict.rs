//! `remora lab predict`: prediction of opened files on recorded traces.

use std::path::{Path, PathBuf};

use clap::Args;
use remora_cache::PredictorConfig;
use remora_lab::predict;
use remora_lab::predict::{InputError, LoadedTrace, Options, PredictReport};

use crate::commands::lab::publication;
use crate::commands::lab::publication::ReportFlags;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
Traces of opened files are played to a cache of a tenth of their bytes that
evicts the least recently used file. By method, this prints the hits, the
prefetched bytes that were wasted, and the lead time from a prefetch to its use:
LRU alone, the last successor of a file, its neighbours in the directory (what
the mount reads ahead), a partial-match model of each program's files, and the
last two together. Methods learn all the time and are judged on the second half.

TRACE is strace's output, or a trace in the text format of --save. Without
TRACE, the traces that come with Remora are used: git, make, cargo, vim and
mutt. This records one:

  strace -f -ttt -y -Y -qq -e signal=none -e trace=%file,fstat -o a.strace make

The program's name is the process's (-Y), paths are those of descriptors (-y),
and sizes are those that stat(2) showed or, failing that, the files' of now.

Examples:
  remora lab predict --html predict.html
  remora lab predict make.strace --under ~/project
  remora lab predict make.strace --under ~/project --save make.trace
  remora lab predict --json | jq '.rows[] | select(.program == null)'

--json prints one object: version, command, is_tuning, order_max, threshold,
escape, nodes_max (the model's parameters), traces (trace, reads, files, bytes,
cache_bytes, hours, bad_lines, first_bad_line, unknown_sizes), rows (trace,
program, method, reads, hits, hit_percent, gain_points, prefetched_bytes,
wasted_bytes, wasted_percent, lead_ms, lead_accesses). A program of null is all
of the trace; gains are above neighbours; leads are medians.
docs/results/predict.md has more.";

#[derive(Args, Debug)]
pub(crate) struct Predict {
    /// Output of strace, or saved traces [default: those that come with Remora]
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Only count files below this directory, as if it were the mount [default: all files on disks]
    #[arg(long, value_name = "DIR", requires = "traces")]
    pub(crate) under: Option<PathBuf>,
    /// Also write the trace, with anonymous names, in a short text format; needs exactly one TRACE
    #[arg(long, value_name = "FILE", requires = "traces")]
    pub(crate) save: Option<PathBuf>,
    /// Use the first half of each trace only, to choose the model's parameters
    #[arg(long)]
    pub(crate) tuning: bool,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

pub(crate) async fn run(args: Predict) -> Result {
    if args.save.is_some() && args.traces.len() != 1 {
        return Err(Error::Usage("--save needs exactly one TRACE".into()));
    }
    let page = args.report.reserve()?;
    let (command, is_tuning) = (command(&args)?, args.tuning);
    let evaluate = move || -> Result<PredictReport> {
        let traces = load(&args)?;
        if let (Some(path), [loaded]) = (&args.save, traces.as_slice()) {
            std::fs::write(path, loaded.trace.to_text()).map_err(Error::local(path.display()))?;
        }
        Ok(predict::run(&Options { traces, model: PredictorConfig::default(), is_tuning, command }))
    };
    // The work keeps processors busy and cannot be cut short: a signal ends the process around it.
    let report = publication::finished(tokio::task::spawn_blocking(evaluate).await)??;
    publication::publish(&report, || Ok(report.to_text(stdio::report_width())), page)
}

fn load(args: &Predict) -> Result<Vec<LoadedTrace>> {
    let failed = |path: &Path| {
        let name = path.display().to_string();
        move |error: InputError| match error {
            InputError::Io(error) => Error::local(name)(error),
            error => Error::refused(name, error.to_string()),
        }
    };
    if args.traces.is_empty() {
        return predict::built_in().map_err(failed(Path::new("the traces of this program")));
    }
    // Descriptors show resolved paths.
    let resolved = |dir: &PathBuf| dir.canonicalize().map_err(Error::local(dir.display()));
    let under = args.under.as_ref().map(resolved).transpose()?.unwrap_or_default();
    args.traces.iter().map(|path| predict::load(path, &under.to_string_lossy()).map_err(failed(path))).collect()
}

/// The command that gives the same figures again, for a shell.
fn command(args: &Predict) -> Result<String> {
    let mut words: Vec<String> = ["remora", "lab", "predict"].map(str::to_owned).into();
    words.extend(args.traces.iter().map(|path| path.display().to_string()));
    if let Some(dir) = &args.under {
        words.extend(["--under".to_owned(), dir.display().to_string()]);
    }
    words.extend(args.tuning.then(|| "--tuning".to_owned()));
    stdio::for_shell(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::publication::tests::assert_reproducible;

    #[test]
    fn recorded_command_evaluates_the_same_traces() {
        for (words, line) in [
            (&[][..], "remora lab predict"),
            (&["--tuning", "--json"], "remora lab predict --tuning"),
            (&["--under", "/h", "a b", "c"], "remora lab predict 'a b' c --under /h"),
        ] {
            assert_reproducible(words, line, |args| command(args).unwrap());
        }
    }
}
