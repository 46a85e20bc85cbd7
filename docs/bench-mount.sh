#!/bin/sh
# Compares `remora mount` with sshfs and rclone (sftp) on loopback: exports on tmpfs, interleaved rounds, in
# namespaces of their own that end with this script. Needs root, /dev/fuse, and Debian's fuse3, sshfs,
# openssh-server, rclone and iproute2.
#
#   docs/bench-mount.sh [REMORA]
#
# REMORA is the binary (target/release/remora). ROUNDS (3), MIB (1024), FILES (10000), NAMES (1000000), PEERS
# ("remora sshfs rclone"), MOUNT (flags of `remora mount`) and ONLY (all) may be set in the environment; ONLY is
# some of: data names idle memory. A write ends when the server has all bytes; a read starts with a new mount.
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
    for program in fusermount3 sshfs /usr/sbin/sshd ssh-keygen rclone ip unshare; do
        command -v "$program" > /dev/null && continue
        echo "$0: needs $program: run as root, with fuse3, sshfs, openssh-server, rclone and iproute2" >&2
        exit 2
    done
    [ -c /dev/fuse ] || { echo "$0: needs /dev/fuse" >&2; exit 2; }
    dir=$(mktemp -d "${TMPDIR:-/tmp}/remora-bench.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
    REMORA_BENCH_INSIDE=yes timeout "${LIMIT:-1800}" unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$0" "$remora" "$dir"
    exit
fi

remora=$1
dir=$2
mount -t tmpfs -o size=90%,nr_inodes=0 tmpfs "$dir"
mount -t tmpfs tmpfs /run
cd "$dir"
rounds=${ROUNDS:-3}
mib=${MIB:-1024}
files=${FILES:-10000}
names=${NAMES:-1000000}
peers=${PEERS:-remora sshfs rclone}
export HOME="$dir" XDG_CACHE_HOME="$dir/cache" XDG_STATE_HOME="$dir/state" RCLONE_CONFIG="$dir/rclone.conf"

ip link set lo up
mkdir -p /run/sshd export/remora export/sshfs export/rclone mnt cache state
"$remora" serve --listen 127.0.0.1:3049 --squash none --state state/serve --durability names-later \
    export/remora > serve.log 2>&1 &
ssh-keygen -q -t ed25519 -N '' -f key
printf '%s\n' 'Port 3022' 'ListenAddress 127.0.0.1' "HostKey $dir/key" "AuthorizedKeysFile $dir/key.pub" \
    'StrictModes no' 'PermitRootLogin yes' 'PidFile none' 'UsePAM no' 'Subsystem sftp internal-sftp' > sshd.conf
/usr/sbin/sshd -D -f "$dir/sshd.conf" -E sshd.log &
printf '%s\n' '[bench]' 'type = sftp' 'host = 127.0.0.1' 'port = 3022' 'user = root' "key_file = $dir/key" \
    > rclone.conf
sleep 1

# Mounts the export of peer $1 at mnt, with nothing cached.
attach() {
    case $1 in
    # shellcheck disable=SC2086 # MOUNT is a list of flags
    remora) "$remora" mount -f ${MOUNT:-} nfs://127.0.0.1:3049/ mnt 2> mount.log & ;;
    sshfs)
        sshfs -f -p 3022 -o "IdentityFile=$dir/key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null" \
            "root@127.0.0.1:$dir/export/sshfs" mnt 2> mount.log &
        ;;
    rclone)
        rm -rf cache/rclone
        rclone mount --vfs-cache-mode full --vfs-write-back 0s --cache-dir cache/rclone \
            "bench:$dir/export/rclone" mnt 2> mount.log &
        ;;
    esac
    daemon=$!
    for _ in $(seq 200); do
        mountpoint -q mnt && return
        sleep 0.05
    done
    echo "$1 does not mount:" >&2
    cat mount.log >&2
    exit 1
}

detach() {
    fusermount3 -u mnt || fusermount3 -uz mnt
    wait "$daemon" || true
}

seconds() { date +%s.%N; }

# Notes that peer $1 took the time since $3 for $2.
took() { echo "$1 $2 $(seconds) $3" | awk '{ printf "%s %s %.3f\n", $1, $2, $3 - $4 }' | tee -a times >&2; }

data() {
    attach "$1"
    start=$(seconds)
    dd if=/dev/zero of=mnt/big bs=1M count="$mib" status=none
    while [ "$(stat -c %s "export/$1/big" 2> /dev/null || echo 0)" != $((mib << 20)) ]; do sleep 0.01; done
    took "$1" write "$start"
    detach
    attach "$1"
    start=$(seconds)
    dd if=mnt/big of=/dev/null bs=1M status=none
    took "$1" read "$start"
    detach
    rm "export/$1/big"
}

# Runs the shell code $3 for each number i of a file, in the directory of the files, as $2 of peer $1.
each() {
    start=$(seconds)
    sh -c "cd mnt/dir; i=0; while [ \$i -lt $files ]; do $3; i=\$((i + 1)); done"
    took "$1" "$2" "$start"
}

# shellcheck disable=SC2016 # each expands them
names() {
    attach "$1"
    mkdir mnt/dir
    each "$1" create 'echo "the text of a small file" > file$i'
    each "$1" stat '[ -s file$i ] || echo file$i is missing'
    detach
    attach "$1"
    each "$1" stat-cold '[ -s file$i ] || echo file$i is missing'
    start=$(seconds)
    rm -r mnt/dir
    took "$1" remove "$start"
    detach
    rm -rf "export/$1/dir"
}

memory() { awk '/^VmRSS/ { printf "%d MiB", $2 / 1024 }' "/proc/$daemon/status"; }
ticks() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; }

: > times
for part in ${ONLY:-data names idle memory}; do
    case $part in
    data | names)
        for _ in $(seq "$rounds"); do
            for peer in $peers; do
                # rclone keeps small files for later, with an unmount between.
                [ "$part $peer" = "names rclone" ] || "$part" "$peer"
            done
        done
        ;;
    idle)
        attach remora
        ls -lR mnt > /dev/null
        sleep 5
        before=$(ticks)
        sleep 30
        echo "idle: $(($(ticks) - before)) ticks of 10 ms in 30 s"
        detach
        ;;
    memory)
        sh -c "i=0; while [ \$i -lt $names ]; do d=export/remora/d\$((i / 1000)); mkdir \$d
            j=0; while [ \$j -lt 1000 ]; do : > \$d/file\$((i + j)); j=\$((j + 1)); done; i=\$((i + 1000)); done"
        attach remora
        echo "memory: $(memory) after the mount"
        start=$(seconds)
        ls -lR mnt > listing
        took remora list "$start"
        echo "memory: $(memory) after ls -lR of $(grep -c '^-' listing) files"
        detach
        rm -rf export/remora/d*
        ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
    esac
done

# Medians, and how many times as long each peer takes as Remora.
sort -k2,2 -k1,1 -k3,3n times | awk -v mib="$mib" '
    { key = $2 " " $1; time[key, ++count[key]] = $3 }
    function median(key) { return time[key, int((count[key] + 1) / 2)] }
    END {
        for (key in count) {
            split(key, part, " ")
            printf "%-10s %-7s %8.3f s (%.3f to %.3f)", part[1], part[2], median(key), time[key, 1],
                time[key, count[key]]
            if (part[1] == "read" || part[1] == "write") printf ", %5d MB/s", mib * 1.048576 / median(key)
            own = part[1] " remora"
            if (key != own && own in count) printf ", Remora is %.2f times as fast", median(key) / median(own)
            printf "\n"
        }
    }' | sort
