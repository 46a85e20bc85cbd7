//! Prediction of opened files on recorded traces: hits, waste and lead time of each way to prefetch.
//!
//! Read `trace` (what a trace is) and `strace` (how one is made) first, then `lru`, `method`, `neighbours` and
//! `evaluation` (a method on a trace), then `outcome`, `tables` and `page`.

mod anonymous;
mod evaluation;
mod input;
mod lru;
mod method;
mod neighbours;
mod options;
mod outcome;
mod page;
mod strace;
mod strace_line;
mod tables;
mod trace;

use rayon::prelude::*;

pub use input::{InputError, LoadedTrace, built_in, load};
pub use method::Method;
pub use options::Options;
pub use outcome::PredictReport;
pub use strace::StraceDoubts;
pub use trace::{Access, AccessKind, Trace, TraceError, TracedFile};

/// Parts of a trace's bytes of which the cache holds one.
const CACHE_PARTS: u64 = 10;

/// Evaluates all methods on all traces.
pub fn run(options: &Options) -> PredictReport {
    let traces: Vec<LoadedTrace> = options.traces.iter().map(|loaded| part(loaded, options.is_tuning)).collect();
    let jobs: Vec<(&LoadedTrace, Method)> =
        traces.iter().flat_map(|loaded| Method::ALL.map(|method| (loaded, method))).collect();
    let evaluated = jobs.into_par_iter().map(|(loaded, method)| {
        let capacity = loaded.trace.bytes() / CACHE_PARTS;
        outcome::Evaluated {
            trace: loaded.trace.name.clone(),
            programs: loaded.trace.programs.clone(),
            method,
            counts: evaluation::evaluate(&loaded.trace, method, options.model, capacity),
        }
    });
    let evaluated: Vec<outcome::Evaluated> = evaluated.collect();
    PredictReport::new(options, &traces, CACHE_PARTS, &evaluated)
}

/// The part of a trace that is used.
fn part(loaded: &LoadedTrace, is_tuning: bool) -> LoadedTrace {
    match is_tuning {
        true => LoadedTrace { trace: loaded.trace.first_half(), doubts: loaded.doubts.clone() },
        false => loaded.clone(),
    }
}
