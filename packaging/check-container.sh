#!/bin/sh
# What `cargo xtask package --static --check` does as root: makes a container of the static binary in directory $1 and
# runs it read-only, without privileges, in a network namespace of its own. It is killed in the middle of a copy, and
# another one goes on with the same files and a copy of the state.
set -eu
here=$(dirname "$(readlink -f "$0")")
cd "$1"
place=$(mktemp -d)
net=remora-check-$$
# A root of images of its own: nothing of the machine's podman is touched. runc runs with old control groups, too.
podman="podman --storage-driver vfs --root $place/images --runroot $place/run --cgroup-manager cgroupfs --runtime runc"

clean() {
    $podman rm --force --all >/dev/null 2>&1 || true
    ip netns delete "$net" 2>/dev/null || true
    rm -rf "$place"
}
trap clean EXIT

step() { echo "   - $*"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
# Starts a container by this name with this state.
start() {
    $podman run --detach --name "$1" --network "ns:/run/netns/$net" --ulimit nofile=8192:8192 --ulimit nproc=4000:4000 \
        --read-only --cap-drop all --security-opt no-new-privileges \
        --volume "$2:/var/lib/remora" --volume "$place/files:/srv/files" remora >/dev/null
}
client() { ip netns exec "$net" timeout 60 env HOME="$place" "$place/remora" "$@"; }

step 'the image'
cp remora "$place/remora"
TMPDIR=$place $podman build --quiet --isolation chroot --file "$here/Containerfile" --tag remora . >/dev/null
mkdir "$place/files" "$place/state" "$place/elsewhere"
chown 65532:65532 "$place/files" "$place/state" "$place/elsewhere"
ip netns add "$net"
ip -n "$net" link set lo up

step 'a server without privileges'
start first "$place/state"
pid=$($podman inspect --format '{{.State.Pid}}' first)
grep -q '^CapEff:.0*$' "/proc/$pid/status" || fail 'it has capabilities'
grep -q '^Uid:.65532' "/proc/$pid/status" || fail 'it is another user'
if [ -e "/proc/$pid/root/lib/modules" ]; then fail 'it sees modules of the kernel'; fi
if touch "/proc/$pid/root/x" 2>/dev/null; then fail 'its root can be written'; fi

step 'killed during a copy, and started elsewhere: the client goes on'
head -c 4000000 /dev/urandom >"$place/data"
client cp -q --bwlimit 800K --verify "$place/data" nfs://127.0.0.1/ &
copy=$!
sleep 2
$podman kill --signal KILL first >/dev/null
cmp -s "$place/data" "$place/files/data" && fail 'the copy was over before'
cp -a "$place/state/." "$place/elsewhere/"
start second "$place/elsewhere"
wait "$copy" || fail 'the copy'
cmp "$place/data" "$place/files/data"

step 'SIGTERM ends with 0'
$podman stop --time 20 second >/dev/null
test "$($podman inspect --format '{{.State.ExitCode}}' second)" = 0 || fail 'exit code'
