//! What the help of the commands on files adds: examples, and what flags alone do not say.

pub(super) const CP: &str = "\
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

pub(super) const LS: &str = "\
Examples:
  remora ls nfs://nas/home
  remora ls -lh nfs://nas/home nfs://nas/media
  remora ls -R --json nfs://nas/home | jq -r .name";

pub(super) const CAT: &str = "\
Examples:
  remora cat nfs://nas/home/notes.txt
  remora cat nfs://nas/logs/day.gz | gunzip | less";

pub(super) const MKDIR: &str = "\
Examples:
  remora mkdir nfs://nas/home/photos
  remora mkdir -p nfs://nas/home/photos/2026/november";

pub(super) const RM: &str = "\
Examples:
  remora rm nfs://nas/home/old.txt
  remora rm -r nfs://nas/home/photos/2019";

pub(super) const MV: &str = "\
Examples:
  remora mv nfs://nas/home/draft.txt nfs://nas/home/final.txt
  remora mv nfs://nas/home/final.txt nfs://nas/home/archive/";

pub(super) const STAT: &str = "\
Examples:
  remora stat nfs://nas/home/notes.txt
  remora stat --json nfs://nas/home/notes.txt | jq .size";

pub(super) const DF: &str = "\
Examples:
  remora df nfs://nas/home
  remora df --json nfs://nas/home | jq .available";

pub(super) const EXPORTS: &str = "\
Examples:
  remora exports nas
  remora exports 'nfs://127.0.0.1:2049/?mountport=20048'
  remora exports --json nas | jq -r .path

Each line has a path to mount and the clients that may mount it, as the server's
MOUNT program lists them to this machine. A server may serve more than it lists.";
