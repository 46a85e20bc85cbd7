//! The command lines of `remora mount`, `umount`, `status`, `top`, `release`, `offline`, `online` and `conflicts`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::commands::mount::options::{
    CachePolicy, MissMode, MountOption, OfflineMode, WriteMode, cache_memory, cache_size, soft,
};
use crate::config::settings::names;
use crate::metrics::endpoint::MetricsFlags;
use crate::output::diagnostics::Verbosity;
use crate::remote::flags::LinkArgs;

pub(crate) const MOUNT_HELP: &str = "\
Programs see the directory of an NFSv3 server as a local one. What is cached is
answered without the server; a program that needs the server waits while it is
out of reach, and Ctrl-C or kill ends the program. remora status shows what
waits, remora release ends what cannot be killed. Locks are local to this
machine. --timeout counts until the server first answers, --soft later.

Examples:
  remora mount nfs://nas/export ~/nas
  remora mount --soft 30s --ro nfs://nas/export ~/nas
  remora mount --cache strict 'nfs://nas:4049/?proto=atp&key=KEY' ~/nas
  remora mount -f -v nfs://nas/export ~/nas       in the foreground
  remora mount --list
  remora umount ~/nas

--cache says how old an answer may be:
            at an open   stat
  strict    0            0       close-to-open consistency
  default   3 s          60 s
  relaxed   60 s         60 s

--writes back: close returns when the file is on this machine's disk, safe from
a crash of the mount, and within 1 s from a loss of power; fsync waits for that.
The file is sent in the background, after a restart by the next mount of the
same URL. remora status shows what is unsent.

When the server has not answered for 10 s, the mount works offline: what is
cached stays usable, changes are kept on this machine's disk and answered at
once, and they are sent when the server is back. remora conflicts lists what
another machine changed, too. A mount whose server does not answer starts
offline if it was mounted before. --offline never prevents both.

What was read stays in $XDG_CACHE_HOME/remora (root: /var/cache/remora), and is
used after the server has shown that it is still the same.

-o takes the options of mount.nfs that mean the same here (ro, soft, timeo,
noac, port, mountport, proto, rsize, wsize), soft=TIME, cache=, writes=,
offline=, offline-miss=, cache-memory=, cache-size=, allow_other, nonempty; it
ignores those that only mount(8) needs.";

#[derive(Args, Debug)]
pub(crate) struct Mount {
    /// The directory on the server; HOST:/PATH is taken, too
    #[arg(value_name = "URL", required_unless_present = "list", value_parser = names::url)]
    pub(crate) url: Option<String>,
    /// Where to mount it: an empty directory
    #[arg(value_name = "DIR", required_unless_present = "list")]
    pub(crate) dir: Option<PathBuf>,
    /// List the mounts of this user
    #[arg(long, conflicts_with_all = ["url", "dir"])]
    pub(crate) list: bool,
    /// Print an object for each mount of --list: url, dir, pid, state (mounted, unmounting, silent, kept), dirty_bytes, unsent_files, changes, conflicts, held
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Mount options, separated by commas, as in /etc/fstab
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<MountOption>,
    /// How old what a program sees may be [default: default]
    #[arg(long, value_enum)]
    pub(crate) cache: Option<CachePolicy>,
    /// What close and fsync wait for [default: through]
    #[arg(long, value_enum)]
    pub(crate) writes: Option<WriteMode>,
    /// When to work without the server [default: auto]
    #[arg(long, value_enum)]
    pub(crate) offline: Option<OfflineMode>,
    /// What a call does without the server that the cache cannot answer [default: wait]
    #[arg(long, value_enum)]
    pub(crate) offline_miss: Option<MissMode>,
    /// Fail calls with an input/output error when the server has been silent for this long [default: wait]
    #[arg(long, value_name = "TIME", value_parser = soft)]
    pub(crate) soft: Option<Duration>,
    /// Mount read-only: every change fails
    #[arg(long)]
    pub(crate) ro: bool,
    /// Let other users in; unprivileged users need user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Memory for unchanged file data, 1M or more [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = cache_memory)]
    pub(crate) cache_memory: Option<u64>,
    /// Disk for names and file data that survive an unmount, 1M or more; 0 for memory only [default: 10G or a tenth of what is free]
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub(crate) cache_size: Option<u64>,
    /// Started by the command itself in the background
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

pub(crate) const UMOUNT_HELP: &str = "\
The directory is detached at once, even if programs use it. Then the mount sends
what the server does not have yet, and ends. Ctrl-C ends the command, and the
mount goes on sending. A mount whose server is silent keeps the rest on disk and
ends; the next mount of the same URL sends it.

Examples:
  remora umount ~/nas
  remora umount --keep ~/nas                      sends later
  remora umount --force ~/nas                     drops what is not sent";

#[derive(Args, Debug)]
pub(crate) struct Umount {
    /// The mounted directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Keep what is not sent yet on disk for the next mount
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) keep: bool,
    /// Drop what is not sent yet, and end a mount that does not answer
    #[arg(short, long)]
    pub(crate) force: bool,
}

pub(crate) const STATUS_HELP: &str = "\
Examples:
  remora status
  remora status ~/nas
  remora status --json ~/nas | jq '.held[].pid'

--json prints an object for each mount: url, dir, pid, state, cache, read_only,
writes, soft_ms, server (address, transport, silent_ms, deferred_ms, rtt_ms,
window, rate_bits, loss), connection (state: connected, weak or disconnected;
since_ms, is_asked, problem), log (records: changes of names that the server
lacks; refused, in_flight, sent, conflicts, refusals (path, change, why),
missed), dirty_bytes, unsent_files, unsent (path, bytes, refused, data; the
first 1000), cached_bytes, disk (bytes, limit, read_bytes, error), nodes,
calls_waiting, queue (foreground, durable, write_back, read_ahead, prefetch),
calls_in_flight, hits, misses, read_bytes, written_bytes, held (pid, program,
operation, path, waits_ms).";

#[derive(Args, Debug)]
pub(crate) struct MountStatus {
    /// The mounted directory, or one in it [default: all mounts of this user]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print an object for each mount instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const TOP_HELP: &str = "\
Shows goodput, RTT, loss, window, queues, hits, unsent data and which program
waits for what, every second. q or Ctrl-C quits.

Examples:
  remora top
  remora top ~/nas";

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// The mounted directory, or one in it [default: all mounts of this user]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) const RELEASE_HELP: &str = "\
A program that waits for another one's call to the same directory or file cannot
be killed. This ends all calls that wait for the server, with the error
\"Interrupted system call\"; data that was written is kept and sent later.

Examples:
  remora release ~/nas";

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

pub(crate) const OFFLINE_HELP: &str = "\
The mount works without the server until remora online: what is cached stays
usable, changes are kept on this machine's disk, and what the cache lacks fails
with \"No route to host\". Nothing is sent.

Examples:
  remora offline ~/nas";

#[derive(Args, Debug)]
pub(crate) struct Offline {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

pub(crate) const ONLINE_HELP: &str = "\
The mount uses the server again, as soon as it answers, and sends what was
changed meanwhile. remora status shows the progress, remora conflicts what
another machine changed, too.

Examples:
  remora online ~/nas";

#[derive(Args, Debug)]
pub(crate) struct Online {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

pub(crate) const CONFLICTS_HELP: &str = "\
A conflict is a change made here without the server that excludes a change of
another machine. Both versions are kept: the server's at its name, ours as
\"NAME (conflict from HOST DATE TIME).EXT\" beside it. Without flags this lists
the conflicts; --keep ends one:
  mine      our version replaces the server's
  theirs    our version is removed
  both      both stay as they are
PATH is the name of either version.

Examples:
  remora conflicts ~/nas
  remora conflicts ~/nas --diff notes.txt
  remora conflicts ~/nas --keep mine notes.txt

--json prints an object for each conflict: id, kind (content, type,
removed-there, changed-there, renamed, skipped, directory-removed-there,
attributes), path, copy, at_ms.";

#[derive(Args, Debug)]
pub(crate) struct Conflicts {
    /// The mounted directory, or one in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Which version of PATH stays
    #[arg(long, value_enum, value_name = "VERSION", requires = "path", conflicts_with = "diff")]
    pub(crate) keep: Option<KeptVersion>,
    /// Compare both versions of PATH with diff -u
    #[arg(long, requires = "path")]
    pub(crate) diff: bool,
    /// Either version of a file in conflict
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Print an object for each conflict instead of text
    #[arg(long, conflicts_with_all = ["keep", "diff"])]
    pub(crate) json: bool,
}

/// The version of a conflict that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum KeptVersion {
    /// Ours replaces the server's
    Mine,
    /// Ours is removed
    Theirs,
    /// Neither is changed
    Both,
}
