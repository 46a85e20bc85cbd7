//! The command lines of `remora hoard`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use remora_cache::{HOARD_PRIORITY_MAX, HOARD_PRIORITY_MIN, NameGlob};

/// Priority of an entry that names none.
pub(crate) const PRIORITY_DEFAULT: u8 = 50;

pub(crate) const HELP: &str = "\
A mount keeps what the profile names in its cache on disk, and evicts it last.
It reads what is missing in the background, in link time that no program uses,
within a second of a change of the profile and then every 10 minutes. Hoarded
files take at most 80 % of the mount's --cache-size; the highest priority comes
first.

Examples:
  remora hoard add --recursive ~/nas/project
  remora hoard walk ~/nas && echo ready to leave
  remora hoard check ~/nas
  remora hoard suggest ~/nas

The profile is $XDG_CONFIG_HOME/remora/hoard.toml (without that variable,
~/.config/remora/hoard.toml), one table for each entry:

  [[entry]]
  url = \"nfs://nas/export\"
  path = \"/project\"
  priority = 90
  recursive = true
  glob = \"*.rs\"

After a change by hand, remora hoard walk reads it.";

/// Keep files on this machine for the time without the server.
#[derive(Args, Debug)]
pub(crate) struct Hoard {
    #[command(subcommand)]
    pub(crate) command: HoardCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum HoardCommand {
    /// Keep a file or directory of a mount on this machine
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Remove an entry, so that the cache may evict its files again
    #[command(after_help = REMOVE_HELP)]
    Remove(Remove),
    /// List what is kept, by the profile
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Read what is missing now, and wait for the end
    #[command(after_help = WALK_HELP)]
    Walk(HoardWalk),
    /// Say whether everything is there, and list what is missing
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Propose what to add, from what programs opened and missed
    #[command(after_help = SUGGEST_HELP)]
    Suggest(Suggest),
}

const ADD_HELP: &str = "\
Without --recursive a directory stands for its names and the files directly in
it. Adding the same path and glob again changes the priority and --recursive.

Examples:
  remora hoard add ~/nas/mail/inbox
  remora hoard add --recursive --priority 90 ~/nas/project
  remora hoard add --recursive --glob '*.pdf' ~/nas/papers";

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// A file or directory in a mount
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// 1 to 100; the highest is read first
    #[arg(short, long, value_name = "N", default_value_t = PRIORITY_DEFAULT,
          value_parser = clap::value_parser!(u8).range(HOARD_PRIORITY_MIN as i64..=HOARD_PRIORITY_MAX as i64))]
    pub(crate) priority: u8,
    /// With all directories below
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Only files with such names, as in '*.pdf'
    #[arg(short, long, value_name = "GLOB", value_parser = NameGlob::parse)]
    pub(crate) glob: Option<NameGlob>,
}

const REMOVE_HELP: &str = "\
Removes all entries of this path, or those with this glob. The files stay in the
cache on disk until others need the room.

Examples:
  remora hoard remove ~/nas/project
  remora hoard remove --glob '*.pdf' ~/nas/papers";

#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The path of the entry
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Only the entry with this glob
    #[arg(short, long, value_name = "GLOB")]
    pub(crate) glob: Option<String>,
}

const LIST_HELP: &str = "\
Examples:
  remora hoard list
  remora hoard list ~/nas
  remora hoard list --json | jq .path

--json prints an object for each entry: url, path, priority, recursive, glob.";

#[derive(Args, Debug)]
pub(crate) struct List {
    /// The mounted directory, or one in it [default: all entries]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print an object for each entry instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const WALK_HELP: &str = "\
Confirms that what is there has not changed, and reads the rest. Ctrl-C ends the
command, and the mount goes on.

Examples:
  remora hoard walk ~/nas

Exit codes:
  0    everything is there
  1    the operation failed
  6    something is missing";

#[derive(Args, Debug)]
pub(crate) struct HoardWalk {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

const CHECK_HELP: &str = "\
Says what the last walk found; remora hoard walk looks at the server again.

Examples:
  remora hoard check ~/nas
  remora hoard check --json ~/nas | jq '.missing[].path'

Exit codes:
  0    everything is there
  1    the operation failed
  6    something is missing, or no walk has come to its end

--json prints an object: is_ready, entries, files, bytes, files_missing,
bytes_missing, seconds_left, disk_bytes, disk_bytes_max, is_full, is_paused,
is_walking, age_ms (of the last walk), missing (path, bytes, reason).";

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Print an object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const SUGGEST_HELP: &str = "\
Prints commands to copy, with the reason before each: opens of files since the
mount began, and what programs missed while it was disconnected.

Examples:
  remora hoard suggest ~/nas";

#[derive(Args, Debug)]
pub(crate) struct Suggest {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
