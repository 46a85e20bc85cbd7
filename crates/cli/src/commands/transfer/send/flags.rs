//! The flags of `remora send`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_atp::Priority;

use crate::commands::transfer::keys::PeerFlags;
use crate::commands::transfer::transfer_protocol;
use crate::config::units;

pub(crate) const HELP: &str = "\
Sends files and directories to remora recv, with their modes and times. Higher
priorities go first. A file that the link cannot deliver by the deadline is
rejected as soon as that is known. During an outage send waits, for at most a
day. If an interrupted file is sent again while the receiver still runs, only
the missing part is sent. Names in a directory are as cp -r makes them; symbolic
links in it are skipped. The file - is standard input and needs --name.

Examples:
  remora send notes.txt 192.0.2.7:4100 --key PUBLIC-KEY
  remora send *.jpg field.example.net:4100 --key PUBLIC-KEY --priority low
  remora send alarm.json 192.0.2.7:4100 --key PUBLIC-KEY --priority high \\
      --deadline 5s
  remora send photos 192.0.2.7:4100 --key PUBLIC-KEY
  journalctl -b | remora send - 192.0.2.7:4100 --key PUBLIC-KEY --name boot.log

Exit codes, the worst of all files:
  0    all files are on the receiver's disk
  1    the receiver refused a file, or a file cannot be read or sent
  2    wrong usage
  3    the receiver does not answer or disappeared
  5    missed the deadline: rejected, evicted or expired
  130  interrupted (Ctrl-C): unfinished files are cancelled

--json prints an object for each file: file, outcome (stored, refused,
unreadable, rejected, expired, evicted, lost, cancelled by Ctrl-C), why, bytes,
kept_bytes (already at the receiver), seconds.";

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// Files and directories, or - for standard input; the receiver comes last
    #[arg(value_name = "FILE... HOST:PORT", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) peer: PeerFlags,
    /// Name of the file at the receiver, for a single FILE [default: its own name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// low, medium, high, or 0 to 15; higher goes first
    #[arg(long, value_name = "PRIORITY", default_value = "medium")]
    pub(crate) priority: Priority,
    /// Give up files that do not arrive within this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) deadline: Option<Duration>,
    /// Split files into parts of this size, 4K to 32M; an interruption loses at most one part
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = part)]
    pub(crate) part: u64,
    /// Print a JSON object for each file
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
