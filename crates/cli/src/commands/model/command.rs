//! `remora model`: what a network will do to packets and copies.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remora_lab::model::{Effort, Spreadsheet, Study, answer, write_nmt1989, write_page};
use remora_model::nmt1989::Sheet;

use crate::commands::model::environment::{threads, width};
use crate::commands::model::flags::{Compat, Model, ModelCommand};
use crate::commands::model::serve::server;
use crate::commands::model::{calibrate, check, example, network_file, simulate, sweep, tables};
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Default seed of --check.
const CHECK_SEED: u64 = 7;

pub(crate) async fn run(args: Model) -> Result {
    match args.command {
        Some(ModelCommand::Serve(args)) => return server::run(args).await,
        Some(ModelCommand::Calibrate(args)) => return blocking(move || calibrate::run(&args)).await,
        None => {}
    }
    if let Some(count) = args.check {
        return blocking(move || check::run(count, args.seed.unwrap_or(CHECK_SEED), args.within, args.json)).await;
    }
    if let Some(example) = args.example {
        return stdio::print(&example::text(example));
    }
    let Some(path) = args.file else {
        return Err(Error::Usage("no FILE".into()));
    };
    for output in args.html.iter().chain(&args.xlsx) {
        if is_same(&path, output) {
            return Err(Error::Usage(format!("{} is the model itself: choose another file", output.display())));
        }
    }
    if let (Some(html), Some(xlsx)) = (&args.html, &args.xlsx)
        && (is_same(html, xlsx) || place(html).is_some_and(|at| place(xlsx) == Some(at)))
    {
        return Err(Error::Usage(format!("{} is named by both --html and --xlsx", xlsx.display())));
    }
    blocking(move || match (args.compat, args.sweep) {
        (Some(Compat::Nmt1989), _) => sheet(&path, args.xlsx.as_deref(), args.json),
        (None, Some(range)) => sweep::run(&path, &range, args.json),
        (None, None) if args.simulate => {
            let seeds = simulate::Seeds { first: args.seed.unwrap_or(0), seeds: args.seeds };
            simulate::run(&path, seeds, args.seconds, args.json)
        }
        (None, None) => {
            let outputs = Outputs { html: args.html.as_deref(), xlsx: args.xlsx.as_deref(), json: args.json };
            solve(&path, args.within, &outputs)
        }
    })
    .await
}

/// Whether both are one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let of = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    of(a).is_some_and(|a| of(b) == Some(a))
}

/// Where a file that need not be there is.
fn place(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(parent.canonicalize().ok()?.join(path.file_name()?))
}

/// Solving keeps a processor busy and cannot be cut short: a signal ends the process around it.
async fn blocking(work: impl FnOnce() -> Result + Send + 'static) -> Result {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::refused("no results", e.to_string()))?
}

/// Where the answer goes, beside the terminal.
struct Outputs<'a> {
    html: Option<&'a Path>,
    xlsx: Option<&'a Path>,
    json: bool,
}

fn solve(path: &Path, within: Duration, outputs: &Outputs<'_>) -> Result {
    let Outputs { html, xlsx, json } = *outputs;
    let source = network_file::text(path)?;
    let (topology, network) = network_file::parse_at(path, &source)?;
    let report = answer(&network, &Effort::within(within, threads()));
    if let Some(xlsx) = xlsx {
        let refused = |why| Error::Usage(format!("{}: the spreadsheet cannot hold {why}", path.display()));
        let sheets = Spreadsheet::of(&network, &report).map_err(refused)?;
        sheets.write(xlsx).map_err(Error::local(xlsx.display()))?;
    }
    if let Some(html) = html {
        let study = Study { topology: &topology, report: &report, threads: threads() };
        write_page(html, &study, &path.display().to_string(), &source).map_err(Error::local(html.display()))?;
    }
    if json { stdio::print_json(&report) } else { stdio::print(&tables::text(&report, width())) }
}

fn sheet(path: &Path, xlsx: Option<&Path>, json: bool) -> Result {
    let (_, network) = network_file::read(path)?;
    let wrong = |why| Error::Usage(format!("{}: nmt1989 cannot do this: {why}", path.display()));
    let results = Sheet::of(&network).map_err(wrong)?.results();
    let results = results.ok_or_else(|| wrong("its formulas have no value here"))?;
    if let Some(xlsx) = xlsx {
        write_nmt1989(xlsx, &network).map_err(Error::local(xlsx.display()))?;
    }
    if json { stdio::print_json(&results) } else { stdio::print(&tables::sheet(&results)) }
}
