//! `remora serve --check`: what would be served, without serving it.

use serde::Serialize;

use super::load;
use super::share::{self, Plan};
use super::table::{self, ExportView};
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
    // No handle is signed, so any key will do, and none need be made.
    Ok(load::open(share::plan(args)?, &[0; 16], None)?.plan)
}

fn show(args: &Serve, plan: &Plan) -> Result {
    if args.json {
        let exports = table::views(&plan.shares);
        return out::json(&Report { ok: true, exports, notes: &plan.notes, error: None });
    }
    plan.notes.iter().for_each(out::say);
    out::text(&table::text(&plan.shares))
}
