# A link that dies in the middle of a read, a write, ls -lR, git status and a compilation: all of them go on within 0.5 s
# of its return, without an error. Server and client are in network namespaces with a router between them.
command -v ip > /dev/null || { echo "ip is not installed"; exit 77; }
protos='tcp udp'
if [ -n "${REMORA_MOUNT_LONG:-}" ]; then outages='30 300' limit=500 protos='tcp udp atp'; fi
cd "$io"
id=rm$$
names="$id-router $id-server $id-client"
clean() {
    for name in $names; do
        ip netns pids "$name" 2> /dev/null | xargs -r kill -KILL || true
        ip netns del "$name" 2> /dev/null || true
    done
}
trap clean EXIT
for name in $names; do
    ip netns add "$name" 2> /dev/null || { echo "network namespaces are not possible"; exit 77; }
    ip -n "$name" link set lo up
done
ip -n $id-router link add name near type veth peer name end netns $id-client
ip -n $id-router link add name far type veth peer name end netns $id-server
ip -n $id-router addr add 10.77.1.1/24 dev near
ip -n $id-router addr add 10.77.2.1/24 dev far
ip -n $id-client addr add 10.77.1.2/24 dev end
ip -n $id-server addr add 10.77.2.2/24 dev end
for link in near far; do ip -n $id-router link set $link up; done
for name in $id-client $id-server; do ip -n $name link set end up; done
ip -n $id-client route add default via 10.77.1.1
ip -n $id-server route add default via 10.77.2.1
ip netns exec $id-router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'

mkdir export client state
printf '[safe]\n\tdirectory = *\n' > gitconfig
export GIT_CONFIG_GLOBAL="$io/gitconfig" GIT_CONFIG_SYSTEM=/dev/null XDG_STATE_HOME="$io/state"
dd if=/dev/urandom of=random bs=1M count=100 status=none
cp random export/read
mkdir export/tree export/repository export/compiled
(cd export/tree && for d in $(seq 100); do mkdir $d; (cd $d && seq 30 | split -l 1 - f); done)
(cd export/repository && git init -q && cp -r "$source"/base "$source"/wire "$source"/cache . && git add . \
    && git -c user.name=a -c user.email=a@b commit -qm one && find . -name '*.rs' -exec touch {} +)
for n in $(seq 100); do echo "int number_$n(void) { return $n; }" > export/compiled/$n.c; done
ip netns exec $id-server "$remora" serve --listen 10.77.2.2:2049 --atp 10.77.2.2:4049 --squash none \
    --state "$io/state/server" --json export > serve.log &
while [ ! -s serve.log ]; do sleep 0.1; done
key=$(sed -n 's/.*"key":"\([^"]*\)".*/\1/p' serve.log)

down() {
    ip -n $id-router route add blackhole 10.77.1.2
    ip -n $id-router route add blackhole 10.77.2.2
}
up() {
    ip -n $id-router route del blackhole 10.77.1.2
    ip -n $id-router route del blackhole 10.77.2.2
}
ms() { echo $(($(date +%s%N) / 1000000)); }
# How long the longest of all held calls has waited, in milliseconds; the same of calls that wait for data to be written,
# which go on as soon as the server takes more of it; and the bytes that it has taken.
look() {
    "$remora" status --json client | tr ',{}' '\n' | tr -d ' "' | awk -F : '
        $1 == "operation" { writes = $2 ~ /write|close|fsync/ }
        $1 == "waits_ms" && !writes && $2 >= most { most = $2 }
        $1 == "waits_ms" && writes && $2 >= written { written = $2 }
        $1 == "written_bytes" { taken = $2 }
        END { print most + 0, written + 0, taken + 0 }'
}

for proto in $protos; do for seconds in $outages; do
    url="nfs://10.77.2.2/?proto=$proto"
    [ $proto != atp ] || url="nfs://10.77.2.2:4049/?proto=atp&key=$key"
    nsenter --net=/run/netns/$id-client "$remora" mount "$url" client
    rm -f export/written export/compiled/*.o
    cmp random client/read & jobs=$!
    dd if=random of=client/written bs=64k conv=fsync status=none & jobs="$jobs $!"
    ls -lR client/tree > listed & jobs="$jobs $!"
    git -C client/repository status --short > status & jobs="$jobs $!"
    sh -ec 'cd client/compiled; for n in $(seq 100); do cc -c $n.c; done' & jobs="$jobs $!"
    sleep 0.3
    down
    sleep "$seconds"
    set -- $(look)
    held=$1 written=$2 taken=$3
    start=$(ms)
    up
    # Every call that the outage held is younger now, or its data is on its way.
    while set -- $(look); took=$(($(ms) - start)); [ $1 -ge $took ] || { [ $2 -ge $took ] && [ $3 -le $taken ]; }; do
        [ $took -lt 30000 ] || { echo "a call still waits"; exit 1; }
        sleep 0.02
    done
    echo "$proto: an outage of $seconds s held calls for $held ms and writes for $written ms; all went on $took ms after it"
    [ $held -ge $((seconds * 500)) ]
    [ $written -ge $((seconds * 500)) ]
    # How soon depends on the machine as well: only the long form judges it.
    [ -z "$limit" ] || [ $took -le "$limit" ]
    for job in $jobs; do wait $job; done
    cmp random export/written
    test "$(grep -c ' f[a-z]*$' listed)" = 3000
    test -z "$(cat status)"
    test "$(ls export/compiled | grep -c '\.o$')" = 100
    "$remora" umount client
done; done
