#!/bin/sh
# Measures offline work on a mount over an emulated link: changes made without the server, then how long they take to
# send, and what a program that opens other files meanwhile waits. Needs root, /dev/fuse, and Debian's fuse3, git,
# jq and iproute2.
#
#   docs/bench-offline.sh [REMORA]
#
# REMORA is the binary (target/release/remora). ROUNDS (3), FILES (1000), CREATES (5000) and LINK (flags of
# `remora lab emulate`) may be set in the environment; so may ONLY (creates send), the parts. Each round of
# `send` rewrites FILES files of 1 KiB offline; alone and during the sending, 4 KiB files that the mount has never
# seen are opened one after another, when their directory has been listed.
set -eu

link=${LINK:---rate 1Mbit --delay 300ms --duplex full --queue 200}
if [ "${1:-}" != --inside ]; then
    case ${1:-} in
    -*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    remora=$(readlink -f "${1:-target/release/remora}" || true)
    if ! [ -x "$remora" ]; then
        echo "$0: ${1:-target/release/remora}: no such program (cargo build --release makes it)" >&2
        exit 2
    fi
    for program in fusermount3 git jq ip shuf; do
        command -v "$program" > /dev/null && continue
        echo "$0: needs $program: run as root, with fuse3, git, jq and iproute2" >&2
        exit 2
    done
    [ -c /dev/fuse ] || { echo "$0: needs /dev/fuse" >&2; exit 2; }
    dir=$(mktemp -d "${TMPDIR:-/tmp}/remora-bench.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
    for part in ${ONLY:-creates send}; do
        case $part in
        creates) flags="--rate 1Gbit --delay 0ms --queue 1000" ;;
        send) flags=$link ;;
        *) echo "unknown part: $part" >&2; exit 2 ;;
        esac
        rm -rf "$dir/export"
        mkdir -p "$dir/export"
        # shellcheck disable=SC2086 # a list of flags
        timeout "${LIMIT:-1800}" "$remora" lab emulate $flags --lateness-max 20ms --base "exec '$remora' serve \
            --listen 10.77.0.1:2049 --squash none --state '$dir/state' '$dir/export' > '$dir/serve.log' 2>&1" \
            -- "$(readlink -f "$0")" --inside "$remora" "$dir" "$part"
    done
    exit
fi

remora=$2
dir=$3
part=$4
files=${FILES:-1000}
creates=${CREATES:-5000}
export HOME="$dir" XDG_CACHE_HOME="$dir/cache-$part" XDG_STATE_HOME="$dir/state-$part" XDG_RUNTIME_DIR="$dir/run"
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=bench GIT_CONFIG_KEY_1=user.email \
    GIT_CONFIG_VALUE_1=bench@localhost
cd "$dir"
mkdir -p -m 700 run
mkdir -p mnt

seconds() { date +%s.%N; }
since() { echo "$(seconds) $1" | awk '{ printf "%.2f\n", $1 - $2 }'; }

attach() {
    "$remora" mount nfs://10.77.0.1/ mnt > mount.log 2>&1 && return
    cat mount.log serve.log >&2
    exit 1
}

# Waits until the server has all changes.
sent() {
    until "$remora" status --json mnt | jq -e '.log.records == 0 and .unsent_files == 0' > /dev/null; do
        sleep 0.2
    done
}

# Bytes that this station has sent.
bytes() { cat /sys/class/net/remora0/statistics/tx_bytes; }

# Opens the files named on standard input while process $1 runs (or all, for 0), and prints the time of each.
open_each() {
    while read -r name && { [ "$1" = 0 ] || kill -0 "$1" 2> /dev/null; }; do
        start=$(seconds)
        cat "mnt/others/$name" > /dev/null
        since "$start"
    done
}

median() { sort -n | awk '{ t[NR] = $1 } END { printf "%.2f", t[int((NR + 1) / 2)] }'; }
p95() { sort -n | awk '{ t[NR] = $1 } END { printf "%.2f", t[int(NR * 0.95 + 0.999)] }'; }

measure_creates() {
    git init -q -b main export/repository
    (cd export/repository && for d in $(seq 50); do mkdir "d$d"; seq 100 | while read -r f; do echo "$d $f" \
        > "d$d/f$f"; done; done && git add . && git commit -q -m start)
    attach
    git -C mnt/repository status --short
    mkdir mnt/new mnt/filled
    sync mnt/new
    "$remora" offline mnt > offline.log
    (cd mnt/new && start=$(seconds) && seq "$creates" | xargs touch \
        && echo "create $creates empty files offline: $(since "$start") s")
    (cd mnt/filled && start=$(seconds) && head -c $((creates * 1024)) /dev/zero | split -a 5 -b 1024 - f \
        && echo "create $creates files of 1 KiB offline: $(since "$start") s")
    for round in $(seq "${ROUNDS:-3}"); do
        start=$(seconds)
        git -C mnt/repository status --short
        echo "git status of 5000 files offline: $(since "$start") s"
    done
    "$remora" online mnt > /dev/null
    start=$(seconds)
    sent
    echo "send these $((2 * creates)) files: $(since "$start") s"
    "$remora" umount mnt > /dev/null
    [ "$(find export/filled -size 1024c | wc -l)" = "$creates" ] || { echo "files are missing" >&2; exit 1; }
}

measure_send() {
    mkdir export/changed export/others
    head -c $((files * 1024)) /dev/zero | split -a 5 -b 1024 - export/changed/f
    head -c $((1000 * 4096)) /dev/zero | split -a 5 -b 4096 - export/others/f
    # In no order, so that nothing of it is expected.
    ls export/others | shuf > names
    attach
    "$remora" hoard add --recursive mnt/changed > hoard.log
    exec 3< names
    for round in $(seq "${ROUNDS:-3}"); do
        "$remora" hoard walk mnt > walk.log 2>&1 # these files may be written offline
        head -n 30 <&3 > some || true
        open_each 0 < some >> alone
        "$remora" offline mnt > offline.log
        for file in mnt/changed/*; do head -c 1024 /dev/urandom > "$file"; done
        before=$(bytes)
        begin=$(seconds)
        "$remora" online mnt > /dev/null
        sent &
        sender=$!
        ls mnt/others > /dev/null
        open_each $sender >> beside <&3
        wait $sender
        echo "round $round: $(since "$begin") s to send $files files of 1 KiB; $(($(bytes) - before)) bytes sent"
    done
    "$remora" umount mnt > /dev/null
    for end in alone beside; do
        echo "open other files, $end: $(wc -l < $end) times, median $(median < $end) s, p95 $(p95 < $end) s"
    done
}

"measure_$part"
