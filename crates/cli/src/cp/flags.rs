//! Flags of `remora cp`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::config::filter::FilterArgs;
use crate::config::settings::names;
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

A file appears under its name only when it is complete: cp writes it to a hidden
file beside it (.NAME.remora-part), flushes that to disk and renames it. Modes
and modification times are kept; -p also keeps owners.

Symbolic links: a link as destination is followed to a file or directory. cp
never replaces a link to a pipe or device (/dev/stdout): use remora cat. In a
local destination directory, a file or link replaces a link of the same name; a
directory does not. With -r, links in a tree are copied as links; devices,
pipes, sockets and remains of unfinished copies (.NAME.remora-part) are skipped.
Without -r, links are followed; a device, pipe or socket is an error.

--include and --exclude take patterns as in rclone, for paths below SRC: *, ?
and [...] match within a name, ** matches any directories, {a,b} matches a or b.
A pattern with a leading / begins at SRC, any other at any name; dir/ is all of
dir. The first matching pattern decides. If none matches, a file is copied
unless there is an --include.

A source that changes during the copy is an error. The copy stays, with the
source's initial modification time, so --resume copies it again. If only the
ctime changed, and not by a change of mode, owner or link count, that is an
error too; --resume --verify compares the two.

After an interruption, a lost server or a temporary server error, cp keeps the
part that arrived. The same command with --resume continues from there if the
source is unchanged (size, mtime and ctime); otherwise, or without --resume, cp
starts again. Any other failure removes the partial copy. The journal of a
download is beside the file; that of an upload is in $XDG_STATE_HOME/remora (or
~/.local/state/remora), together with the list of incomplete directories of -r
and the file handles of distant servers, which save a round trip at the start.

--verify reads source and copy again and compares them before the rename. cp
copies differing blocks again, up to three times, and reports them. Without
--verify, damage that the checksums of IP, UDP and TCP miss stays undetected.

--json prints one object at the end, unless interrupted: files, directories,
symlinks, skipped, failed, verified (counts); bytes (copied now), resumed_bytes
(from before), hole_bytes (holes of uploaded files, which stay holes), seconds
(of which mount_seconds until the first server was mounted or found in the
cache, copy_seconds since), requests, retransmissions; errors (a list of texts).";

#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// Same as -r -p
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories recursively, and symbolic links as links
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Also keep owner and group (if permitted), access time, set-ID and sticky bits. Permission bits and modification
    /// times are always kept
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Do not replace existing files
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Print the name of each copied file
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Maximum bytes of file data per second: 512K, 10M, 1.5G (powers of 1024); a bare number is KiB; off: no limit
    #[arg(long, value_name = "RATE", default_value = "off", hide_default_value = true, value_parser = units::bandwidth)]
    pub(crate) bwlimit: Bandwidth,
    /// Continue interrupted copies
    #[arg(long)]
    pub(crate) resume: bool,
    /// Read source and copy again, and compare them
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print a JSON object with counts at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Sources and destination; either the sources or the destination are URLs
    #[arg(value_name = "PATH", required = true, value_parser = PathBufValueParser::new().try_map(names::path))]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}
