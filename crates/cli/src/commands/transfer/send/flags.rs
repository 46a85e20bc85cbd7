//! The flags of `remora send`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_atp::Priority;

use crate::commands::transfer::keys::PeerFlags;
use crate::commands::transfer::transfer_protocol;
use crate::config::units;

pub(crate) const HELP: &str = "\
Sends files and directories to a remora recv, with their modes and times. The
most urgent go first; what the link cannot carry by the deadline is given up as
soon as that is clear. While the link is away everything is held, for a day at
most. A file that was interrupted goes on where it was if it is sent again while
the receiver runs. What is in a directory is named as cp -r names it; symbolic
links in it are not sent. The file - is standard input, and takes --name.

Examples:
  remora send notes.txt 192.0.2.7:4100 --key PUBLIC-KEY
  remora send *.jpg field.example.net:4100 --key PUBLIC-KEY --priority low
  remora send alarm.json 192.0.2.7:4100 --key PUBLIC-KEY --priority high \\
      --deadline 5s
  remora send photos 192.0.2.7:4100 --key PUBLIC-KEY
  journalctl -b | remora send - 192.0.2.7:4100 --key PUBLIC-KEY --name boot.log

Exit codes, the worst of all files:
  0    all are on the receiver's disk
  1    refused by the receiver, or a file cannot be read or sent
  2    wrong usage
  3    nobody answers, or the receiver is gone
  5    not by the deadline: rejected, given up or expired
  130  interrupted (Ctrl-C): what was on its way is cancelled

--json prints an object for each file: file, outcome (stored, refused,
unreadable, rejected, expired, evicted, lost, cancelled by Ctrl-C), why, bytes,
kept_bytes (which the receiver had from before), seconds.";

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// Files, directories, or - for standard input; and last the receiver
    #[arg(value_name = "FILE... HOST:PORT", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) peer: PeerFlags,
    /// What the only FILE is called over there [default: its own name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// low, medium, high, or 0 to 15: higher goes first
    #[arg(long, value_name = "PRIORITY", default_value = "medium")]
    pub(crate) priority: Priority,
    /// Give up what has not arrived so long from now
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) deadline: Option<Duration>,
    /// Send larger files in parts of this size, 4K to 32M: what is sent again after an interruption
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = part)]
    pub(crate) part: u64,
    /// Print an object for each file
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}

fn part(text: &str) -> Result<u64, String> {
    let size = units::bytes(text)?;
    if (4 << 10..=transfer_protocol::PART_MAX).contains(&size) { Ok(size) } else { Err("expected 4K to 32M".into()) }
}
