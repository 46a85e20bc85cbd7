//! `remora lab nfs-atp`: NFS over ATP against NFS over TCP, on emulated links.

use std::time::Duration;

use remora_lab::atp::Trace;
use remora_lab::atp::nfs::{self, Options};

use crate::args::NfsAtp;
use crate::exit::{Error, Result};
use crate::out;
use crate::text::{self, TRACE_MAX};

pub(crate) async fn run(args: NfsAtp) -> Result {
    let options = options(&args)?;
    let report = tokio::task::spawn_blocking(move || nfs::run(&options)).await;
    let report = report.map_err(|e| Error::refused("no results", e.to_string()))?;
    let report = report.map_err(|e| Error::refused("no results", e.to_string()))?;
    if args.json {
        out::json(&report)?
    } else {
        out::text(&report.to_text())?
    }
    if report.holds() {
        Ok(())
    } else {
        Err(Error::refused("the figures", "the bar is not held, or frames were too late"))
    }
}

fn options(args: &NfsAtp) -> Result<Options> {
    let (trace, trace_name) = match &args.trace {
        None => (Trace::paper(), "the trace of ATP 02, reconstructed".to_owned()),
        Some(path) => {
            let text = text::read(path, TRACE_MAX, "a trace")?;
            let trace = Trace::parse(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
            (trace, path.display().to_string())
        }
    };
    let length = args.length.unwrap_or_else(|| trace.length().saturating_sub(args.from));
    if length < Duration::from_secs(1) {
        return Err(Error::Usage("there is less than a second of the trace left: begin earlier".into()));
    }
    Ok(Options { trace, trace_name, from: args.from, length, seed: args.seed, command: command(args), bar: !args.json })
}

/// The command that gives figures like these again.
fn command(args: &NfsAtp) -> String {
    let mut words = vec!["remora lab nfs-atp".to_owned()];
    words.extend(args.trace.as_ref().map(|path| format!("--trace {}", path.display())));
    if !args.from.is_zero() {
        words.push(format!("--from {:?}", args.from));
    }
    words.extend(args.length.map(|length| format!("--length {length:?}")));
    words.push(format!("--seed {}", args.seed));
    words.join(" ")
}
