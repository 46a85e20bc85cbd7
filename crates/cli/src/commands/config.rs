//! `remora config check`: says what is wrong with a configuration file.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::settings::command_line;
use crate::config::settings::config_file::ConfigFile;
use crate::config::settings::names::Names;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
A configuration file (TOML) has a table for each command, whose keys are the
command's long flags, and names for servers and public keys. Flags of the
command line go before it. Read are /etc/remora/config.toml and
~/.config/remora/config.toml, which goes before the first; or the file of
remora --config FILE.

  [mount]
  cache = \"relaxed\"
  metrics = 9105
  [hosts.nas]                     # remora ls nas:photos
  address = \"192.0.2.7\"
  export = \"/srv/files\"
  [keys]                          # remora recv inbox --from laptop
  laptop = \"PUBLIC-KEY\"

Examples:
  remora config check
  remora config check new.toml
  remora --config new.toml ls nas:";

const CHECK_HELP: &str = "\
Examples:
  remora config check
  remora config check /etc/remora/config.toml

Exit codes: 0 if nothing is wrong, 1 if a file cannot be read, 2 if something is
wrong with it.";

#[derive(Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Say what is wrong with a configuration file, and on which line
    #[command(after_help = CHECK_HELP)]
    Check(ConfigCheck),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCheck {
    /// Configuration file [default: those that commands read]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Judges files by the command line `definition`.
pub(crate) fn run(args: Config, definition: &clap::Command) -> Result {
    let ConfigCommand::Check(ConfigCheck { file }) = args.what;
    let files = match file {
        Some(path) => vec![ConfigFile::named(&path)?],
        None => ConfigFile::usual()?,
    };
    if files.is_empty() {
        let paths: Vec<String> = ConfigFile::usual_paths().iter().map(|path| path.display().to_string()).collect();
        return stdio::print(&format!("there is no configuration file: {}\n", paths.join(", ")));
    }
    let mut names = Names::default();
    let mut is_wrong = false;
    for file in files {
        let problems = command_line::problems(&file, definition, &mut names);
        problems.iter().for_each(|problem| stdio::print_error("config", &file.error(problem)));
        if problems.is_empty() {
            stdio::print(&format!("{}: nothing is wrong\n", file.path.display()))?;
        }
        is_wrong |= !problems.is_empty();
    }
    if is_wrong { Err(Error::Reported(2)) } else { Ok(()) }
}
