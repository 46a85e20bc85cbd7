//! `remora serve --check`: what would be served, without serving it.

use remora_host::server::{Descriptors, Options};
use serde::Serialize;

use super::file::Pipes;
use super::key::Keys;
use super::share::{self, Plan};
use super::table::{self, ExportView};
use super::{load, notes, ports};
use crate::args::Serve;
use crate::exit::{Error, Result};
use crate::out;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    exports: Vec<ExportView<'a>>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Reads flags and files, opens the directories, and shows the exports. Whatever is wrong with
/// them is wrong usage.
pub(super) fn run(args: &Serve) -> Result {
    match planned(args) {
        Ok(plan) => show(args, &plan),
        Err(error) => {
            let error = error.to_string();
            if args.json {
                out::json(&Report { ok: false, exports: Vec::new(), notes: &[], error: Some(&error) })?;
            }
            Err(Error::Usage(error))
        }
    }
}

fn planned(args: &Serve) -> Result<Plan> {
    ports::distinct(args)?;
    // No handle is signed, so any key will do, and none need be made.
    let loaded = load::open(share::plan(args, Pipes::Read)?, &Keys::default(), None)?;
    let exports = loaded.plan.shares.len();
    let descriptors = Descriptors::count(exports, Options::default_threads());
    descriptors.check().map_err(|e| Error::Usage(e.to_string()))?;
    let mut plan = loaded.plan;
    plan.notes.extend(notes::of_user(&plan.shares));
    plan.notes.extend(notes::of_room(descriptors.connections(), exports, descriptors.max));
    Ok(plan)
}

fn show(args: &Serve, plan: &Plan) -> Result {
    if args.json {
        let exports = table::views(&plan.shares);
        return out::json(&Report { ok: true, exports, notes: &plan.notes, error: None });
    }
    plan.notes.iter().for_each(out::say);
    out::text(&table::text(&plan.shares))
}
