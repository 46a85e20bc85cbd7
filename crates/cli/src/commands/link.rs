//! `remora link`: the two ends of a poor hop, their keys and what they tell.

mod config;
mod file;
mod running;
mod status;
mod view;

use std::path::{Path, PathBuf};

use remora_host::link::{Identity, KeyError, LinkError};

use crate::args::tunnel::{Ends, Keys, Tunnel, What};
use crate::exit::{Error, Result, io_text};
use crate::{out, state};

pub(crate) async fn run(args: Tunnel) -> Result {
    match args.what {
        What::Keys(args) => keys(&args),
        What::Base(args) if args.ends.print_config => out::text(file::BASE_EXAMPLE),
        What::Mobile(args) if args.ends.print_config => out::text(file::MOBILE_EXAMPLE),
        What::Base(args) => {
            let settings = config::base(&args)?;
            running::run(settings, &args.ends).await
        }
        What::Mobile(args) => {
            let settings = tokio::task::block_in_place(|| config::mobile(&args))?;
            running::run(settings, &args.ends).await
        }
        What::Status(args) => status::show(&args),
        What::Handoff(args) => status::hand_off(&args),
    }
}

/// Makes the key if there is none; prints what the other ends are to be told.
fn keys(args: &Keys) -> Result {
    let path = key_path(args.key.clone())?;
    let identity = Identity::load_or_create(&path).map_err(|e| key_error(&path, &e))?;
    out::text(&format!("{}\n", identity.public))
}

/// Where an end's key is, if nothing else was said.
fn key_path(told: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = told {
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    let dir = if root { Some(PathBuf::from("/var/lib/remora")) } else { state::user_dir() };
    let dir = dir.ok_or_else(|| {
        Error::Usage("there is no home directory to keep the link's key in: name a file with --key FILE".into())
    })?;
    Ok(dir.join("link.key"))
}

fn load_key(ends: &Ends, in_file: Option<PathBuf>) -> Result<Identity> {
    let path = key_path(ends.key.clone().or(in_file))?;
    Identity::load(&path).map_err(|e| key_error(&path, &e))
}

fn key_error(path: &Path, error: &KeyError) -> Error {
    match error {
        KeyError::File(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Error::refused(path.display(), "there is no key: remora link keys makes one")
        }
        KeyError::File(e) => Error::refused(path.display(), io_text(e)),
        other => Error::refused(path.display(), other.to_string()),
    }
}

/// A link's error in the command's terms.
fn link_error(error: LinkError) -> Error {
    match error {
        LinkError::Settings(why) => Error::Usage(why),
        LinkError::Overlap { .. } | LinkError::Loop { .. } | LinkError::Mtu { .. } => Error::Usage(error.to_string()),
        LinkError::DeviceGone(_) => Error::refused("stopped", error.to_string()),
        other => Error::refused("cannot start", other.to_string()),
    }
}
