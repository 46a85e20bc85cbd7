#!/bin/sh
# Compares `remora serve` with NFS-Ganesha: same machine, same disk, interleaved runs, in
# namespaces of their own that end with this script. Needs root, and Debian's nfs-ganesha,
# nfs-ganesha-vfs, rpcbind and iproute2.
#
#   docs/bench-ganesha.sh [REMORA [DIRECTORY]]
#
# REMORA is the binary (target/release/remora), DIRECTORY is on the disk to be measured (/var/tmp).
# ROUNDS (7), DURATION (2s), FILES (50000) and ONLY (all) may be set in the environment; ONLY is some
# of: ops names data udp list (names, create-remove alone, is among ops and must be asked for). EXTRA goes to every `remora bench`, --json for instance, SERVE to `remora serve`:
# AS=1000 makes the calls as the user and group of that number, and not as root.
# SERVE='--durability names-later' has both servers acknowledge CREATE and REMOVE before they are stable.
set -eu

if [ "${REMORA_BENCH_INSIDE:-}" != yes ]; then
    case ${1:-} in
    -*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    remora=$(readlink -f "${1:-target/release/remora}" || true)
    if ! [ -x "$remora" ]; then
        echo "$0: ${1:-target/release/remora}: no such program (cargo build --release makes it)" >&2
        exit 2
    fi
    for program in ganesha.nfsd rpcbind ip unshare setpriv; do
        command -v "$program" > /dev/null && continue
        echo "$0: needs $program: run as root, with nfs-ganesha, nfs-ganesha-vfs, rpcbind and iproute2" >&2
        exit 2
    done
    dir=$(mktemp -d "$(readlink -f "${2:-/var/tmp}")/remora-bench.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
    REMORA_BENCH_INSIDE=yes unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$0" "$remora" "$dir"
    exit
fi

remora=$1
dir=$2
rounds=${ROUNDS:-7}
duration=${DURATION:-2s}
files=${FILES:-50000}
as=${AS:-0}

ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/ganesha "$dir/remora" "$dir/ganesha" "$dir/state"
chmod 755 "$dir"
chown "$as:$as" "$dir/remora" "$dir/ganesha"
rpcbind -f -w &
cat > "$dir/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 3; Enable_UDP = true; Enable_NLM = false; MNT_Port = 20048;
    NFS_Port = 2049; allow_set_io_flusher_fail = true; }
EXPORT { Export_Id = 1; Path = $dir/ganesha; Pseudo = /export; Protocols = 3; Transports = UDP,TCP;
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; } }
END
sleep 1
ganesha.nfsd -F -f "$dir/ganesha.conf" -L "$dir/ganesha.log" -p "$dir/ganesha.pid" 2> /dev/null &
# shellcheck disable=SC2086 # SERVE is a list of flags
"$remora" serve --listen 127.0.0.1:3049 --squash none --state "$dir/state" ${SERVE:-} "$dir/remora" > "$dir/remora.log" &
for _ in $(seq 300); do
    grep -q "NFS SERVER INITIALIZED" "$dir/ganesha.log" 2> /dev/null && break
    sleep 0.1
done

a="nfs://127.0.0.1:3049/"
b="nfs://127.0.0.1:2049$dir/ganesha?mountport=20048"
compare() {
    # shellcheck disable=SC2086 # EXTRA is a list of flags
    setpriv --reuid "$as" --regid "$as" --clear-groups "$remora" bench "$a" --vs "$b" --rounds "$rounds" --duration "$duration" --files "$files" ${EXTRA:-} "$@"
}

for part in ${ONLY:-ops data udp list}; do
    case $part in
        ops) compare --outstanding 32 --ops null,getattr,lookup,access,create-remove,mix ;;
        names) compare --outstanding 32 --ops create-remove ;;
        data) compare --outstanding 32 --ops read-4k,read-64k,read-1m,write-64k,write-sync-4k,commit ;;
        udp) compare --outstanding 32 --ops getattr --proto udp ;;
        list) compare --ops readdirplus ;;
        *) echo "unknown part: $part" >&2; exit 2 ;;
    esac
done
