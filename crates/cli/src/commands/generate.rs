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
    clap_mangen::generate_to(without_help_commands(definition), &pages).map_err(Error::local(pages.display()))?;
    for page in fs::read_dir(&pages).map_err(Error::local(pages.display()))? {
        let page = page.map_err(Error::local(pages.display()))?.path();
        let text = fs::read_to_string(&page).map_err(Error::local(page.display()))?;
        fs::write(&page, with_lines_kept(&text)).map_err(Error::local(page.display()))?;
    }
    Ok(())
}

/// A man page whose section with the examples keeps its lines as they are.
fn with_lines_kept(page: &str) -> String {
    match page.split_once(".SH EXTRA\n") {
        None => page.to_owned(),
        Some((before, after)) => {
            let (examples, rest) = after.find("\n.SH ").map_or((after, ""), |end| after.split_at(end + 1));
            format!("{before}.SH NOTES\n.nf\n{}\n.fi\n{rest}", examples.trim_end())
        }
    }
}

/// `remora link help base` needs no page of its own.
fn without_help_commands(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

fn make_parent(path: &Path) -> Result {
    let Some(dir) = path.parent() else { return Ok(()) };
    fs::create_dir_all(dir).map_err(Error::local(dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_in_a_page_keep_their_lines() {
        for (page, expected) in [
            (".SH NAME\nx\n", ".SH NAME\nx\n"),
            (".SH EXTRA\na\nb\n", ".SH NOTES\n.nf\na\nb\n.fi\n"),
            (".SH EXTRA\na\n.SH VERSION\n1\n", ".SH NOTES\n.nf\na\n.fi\n.SH VERSION\n1\n"),
        ] {
            assert_eq!(with_lines_kept(page), expected);
        }
    }
}
