//! `remora generate`: man pages, and completions for shells, from the definitions of the flags.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;

use crate::output::exit::{Error, Result};

pub(crate) const HELP: &str = "\
Writes below DIR, where man, bash, zsh and fish look if DIR is the directory
share of a prefix:
  man/man1/remora*.1
  bash-completion/completions/remora
  zsh/site-functions/_remora
  fish/vendor_completions.d/remora.fish

Examples:
  remora generate /usr/local/share
  remora generate ~/.local/share";

/// Where each shell looks for completions, below `share`.
pub(crate) const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/remora"),
    (Shell::Zsh, "zsh/site-functions/_remora"),
    (Shell::Fish, "fish/vendor_completions.d/remora.fish"),
];

#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Writes what belongs to the command line `definition`.
pub(crate) fn run(args: &Generate, mut definition: clap::Command) -> Result {
    for (shell, path) in COMPLETIONS {
        let path = args.dir.join(path);
        make_parent(&path)?;
        let mut file = File::create(&path).map_err(Error::local(path.display()))?;
        clap_complete::generate(shell, &mut definition, "remora", &mut file);
    }
    let pages = args.dir.join("man/man1");
    fs::create_dir_all(&pages).map_err(Error::local(pages.display()))?;
    clap_mangen::generate_to(without_help_commands(definition), &pages).map_err(Error::local(pages.display()))
}

/// `remora link help base` needs no page of its own.
fn without_help_commands(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

fn make_parent(path: &Path) -> Result {
    let Some(dir) = path.parent() else { return Ok(()) };
    fs::create_dir_all(dir).map_err(Error::local(dir.display()))
}
