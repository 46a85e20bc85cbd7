//! `remora keys`: who we are to `send` and `recv`.

use std::path::{Path, PathBuf};

use remora_atp::session::Identity;
use remora_host::atp::keys::{self, KeyError};
use serde::Serialize;

use crate::args::Keys;
use crate::exit::{Error, Result};
use crate::out;

/// What `--json` prints.
#[derive(Serialize)]
struct Line<'a> {
    public: String,
    file: &'a Path,
    made: bool,
}

pub(crate) fn run(args: &Keys) -> Result {
    let path = path(args.file.as_deref())?;
    let made = !path.exists();
    let public = load(&path)?.public().to_string();
    if args.json {
        return out::json(&Line { public, file: &path, made });
    }
    out::text(&format!("{public}\n"))?;
    let what = if made { "made a key" } else { "the key is" };
    out::say(format_args!("{what} in {}; the line above is its public half", path.display()));
    Ok(())
}

/// The identity in the file that was told, or in the user's own; made if there is none.
pub(super) fn identity(told: Option<&Path>) -> Result<Identity> {
    load(&path(told)?)
}

fn path(told: Option<&Path>) -> Result<PathBuf> {
    match told {
        Some(path) => Ok(path.to_owned()),
        None => keys::default_path().map_err(|e| Error::Usage(e.to_string())),
    }
}

fn load(path: &Path) -> Result<Identity> {
    keys::load_or_create(path).map_err(|e: KeyError| Error::refused(path.display(), e.to_string()))
}
