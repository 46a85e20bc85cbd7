//! Flags of `remora cp`.

use std::path::PathBuf;

use clap::Args;

use crate::config::filter::FilterArgs;
use crate::config::units;
use crate::config::units::Bandwidth;
use crate::remote::flags::LinkArgs;

pub(crate) const HELP: &str = "\
Examples:
  remora cp notes.txt nfs://nas/home/
  remora cp -r --verify photos nfs://nas/home/
  remora cp -av --exclude '*.tmp' --exclude cache/ work nfs://nas/home/
  remora cp -rn --bwlimit 2M --include '*.jpg' nfs://nas/home/photos .
  remora cp --resume \\
      'nfs://127.0.0.1:20490/export/big.iso?proto=udp&mountport=2049' .

A file appears under its name whole or not at all: it is copied to a hidden name
beside it (.NAME.remora-part) and renamed when all of it is on the disk.
Permission bits and times of modification are kept, owners with -p. A symbolic
link as destination is followed to a file or directory, and nothing that leads
to a pipe or a device (/dev/stdout) is replaced: use remora cat. One in a local
directory that is copied into gives way to a file or link of its name, and to no
directory. With -r symbolic links are copied as links; devices, pipes and
sockets in a directory are skipped, and what unfinished copies left
(.NAME.remora-part). Without -r a link is followed; a device,
pipe or socket that is named is an error.

--include and --exclude take patterns as rclone does, for paths below SRC: *, ?
and [...] match within a name, ** any directories, {a,b} either; with a leading
/ the pattern begins at SRC, else at any name; dir/ is all that is in dir. The
first pattern that matches decides. If none does, a file is copied unless there
is an --include.

A source that changes while it is copied is an error; the copy stays, with the
time that the source had at first, and --resume copies it again. If only its
ctime is new, and no mode, owner or number of names says why, that is one, too:
--resume --verify compares.

A copy that was interrupted, or lost its server, or met it in trouble that may
pass, keeps what has arrived; the same command with --resume goes on from there
if the source is still the same (size, mtime and ctime), and starts afresh if it
is not, or without --resume. Any other failure
removes what was copied. What has arrived of a download is recorded beside it,
of an upload in $XDG_STATE_HOME/remora (or ~/.local/state/remora); there it is
noted, too, which directories of -r are not complete, and what servers far away
were found to be: cp begins there while it mounts them again.

--verify reads source and copy again and compares them before the copy gets its
name. What differs is copied again, up to three times, and said. Without it what
the network damages so that the checksums of IP, UDP and TCP fit is not seen.

--json prints one object at the end, unless it is interrupted: files,
directories, symlinks, skipped, failed, verified (counts); bytes (copied now),
resumed_bytes (kept from before), hole_bytes (in holes of what is uploaded,
which are holes there, too), seconds (of these mount_seconds until the first
server was mounted, or known from before; copy_seconds since), requests,
retransmissions; errors (a list of texts).";

#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// The same as -r -p
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories with all that is in them, and symbolic links as links
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep also owner and group (where they may be set), the time of access, and set-ID and sticky bits. Permission
    /// bits and times of modification are always kept
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Leave files that exist at the destination as they are
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Print the name of each file when its copy is there
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Move at most so many bytes of files per second: 512K, 10M, 1.5G (powers of 1024); a bare number is KiB. off: no
    /// limit
    #[arg(long, value_name = "RATE", default_value = "off", hide_default_value = true, value_parser = units::bandwidth)]
    pub(crate) bwlimit: Bandwidth,
    /// Go on where an interrupted copy stopped
    #[arg(long)]
    pub(crate) resume: bool,
    /// Read source and copy again and compare them
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print an object with the numbers at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy: URLs or local paths, and where to: the other of the two
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}
