//! `remora link`: runs the ends of a poor hop, makes their keys and shows their state.

use remora_host::link::LinkIdentity;

use crate::commands::link::flags::{Keys, LinkCommand, Tunnel};
use crate::commands::link::settings::{key_error, key_path};
use crate::commands::link::{config_file, daemon, settings, status};
use crate::commands::transfer::keys::KeyRecord;
use crate::output::exit::Result;
use crate::output::stdio;

pub(crate) async fn run(args: Tunnel) -> Result {
    match args.what {
        LinkCommand::Keys(args) => keys(&args),
        LinkCommand::Base(args) if args.ends.print_config => stdio::print(config_file::BASE_EXAMPLE),
        LinkCommand::Mobile(args) if args.ends.print_config => stdio::print(config_file::MOBILE_EXAMPLE),
        LinkCommand::Base(args) => {
            let settings = settings::base(&args)?;
            daemon::run(settings, &args.ends).await
        }
        LinkCommand::Mobile(args) => {
            let settings = tokio::task::block_in_place(|| settings::mobile(&args))?;
            daemon::run(settings, &args.ends).await
        }
        LinkCommand::Status(args) => status::show(&args),
        LinkCommand::Handoff(args) => status::hand_off(&args),
    }
}

/// Creates the key if it is missing, and prints the public key.
fn keys(args: &Keys) -> Result {
    let path = key_path(args.key.clone())?;
    let made = !path.exists();
    let identity = LinkIdentity::load_or_create(&path).map_err(|e| key_error(&path, &e))?;
    let public = identity.public.to_string();
    if args.json {
        return stdio::print_json(&KeyRecord { public, file: &path, made });
    }
    stdio::print(&format!("{public}\n"))
}
