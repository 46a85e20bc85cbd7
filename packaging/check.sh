#!/bin/sh
# What `cargo xtask package --check` does in a bare Debian with systemd: an operator's day with the package, from
# installation to purge. Any failure ends it.
set -eu
export DEBIAN_FRONTEND=noninteractive
mkdir -p "$HOME"

step() { echo "   - $*"; }
fail() {
    echo "FAILED: $*" >&2
    systemctl status 'remora-*' --no-pager --lines=5 >&2 || true
    journalctl --no-pager --lines=30 >&2 || true
    exit 1
}
# Waits for a condition, for 20 s at most.
until_true() {
    for _ in $(seq 100); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    fail "never true: $*"
}
# The value of a property of a unit.
of() { systemctl show --property "$2" --value "$1"; }
# The public key that a service prints.
key_of() {
    until_true sh -c "journalctl --no-pager -o cat -u $1 | grep -q 'public key'"
    journalctl --no-pager -o cat -u "$1" | sed -n 's/.*public key //p' | head -1
}
url=nfs://127.0.0.1/

# Files of the system but for what apt, dpkg and the journal note of any package.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /var/lib/dpkg \
        -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/log -o -path /var/lib/systemd \) -prune -o -print |
        sort
}

step 'installation'
files >/tmp/before
apt-get install -y -qq --no-install-recommends /remora.deb >/tmp/install.log 2>&1 || { cat /tmp/install.log; fail 'apt install'; }
remora --version
for page in remora remora-serve remora-link-base; do
    test -s "/usr/share/man/man1/$page.1" || fail "no page $page"
done
bash -n /usr/share/bash-completion/completions/remora
test -s /usr/share/zsh/vendor-completions/_remora && test -s /usr/share/fish/vendor_completions.d/remora.fish
systemd-analyze verify /usr/lib/systemd/system/remora-*.service /usr/lib/systemd/system/remora-*.socket >/tmp/verify 2>&1 || true
# The bare system has no man.
if grep remora /tmp/verify | grep -v "Command 'man "; then fail 'units'; fi
# Exposure in tenths.
systemd-analyze security --no-pager --threshold=25 remora-serve.service >/tmp/security || fail "$(tail -1 /tmp/security)"
tail -1 /tmp/security

step 'one file edited, the server started, a client'
install -d -o remora -g remora /srv/files /srv/more
printf '\n[[export]]\npath = "/srv/files"\nclients = ["127.0.0.1"]\n' >>/etc/remora/exports.toml
systemctl start remora-serve || fail "start"
test "$(of remora-serve ActiveState)" = active || fail 'not active'
head -c 3000000 /dev/urandom >/tmp/data
remora cp -q --verify /tmp/data "$url" && remora cp -q --verify "$url"data /tmp/back && cmp /tmp/data /tmp/back
test "$(stat -c %U /srv/files/data)" = remora

step 'reload: a good file, and a bad one'
printf '\n[[export]]\npath = "/srv/more"\nclients = ["127.0.0.1"]\n' >>/etc/remora/exports.toml
systemctl reload remora-serve || fail "reload"
until_true remora ls nfs://127.0.0.1/srv/more
cp /etc/remora/exports.toml /tmp/good && echo 'nonsense' >>/etc/remora/exports.toml
if systemctl reload remora-serve 2>/dev/null; then fail 'a bad file was accepted'; fi
cp /tmp/good /etc/remora/exports.toml
remora ls nfs://127.0.0.1/srv/files >/dev/null

step 'stop: SIGTERM ends with 0'
systemctl -q stop remora-serve
test "$(of remora-serve Result)/$(of remora-serve ExecMainStatus)" = success/0 || fail 'stop'

step 'socket activation, over TCP and UDP'
systemctl start remora-serve.socket
test "$(of remora-serve ActiveState)" = inactive
remora ls 'nfs://127.0.0.1/srv/files?proto=tcp' >/dev/null
test "$(of remora-serve ActiveState)" = active
systemctl -q stop remora-serve
remora ls 'nfs://127.0.0.1/srv/files?proto=udp' >/dev/null
test "$(of remora-serve ActiveState)" = active
systemctl stop remora-serve.socket remora-serve

step 'watchdog: a server that does not run any more is started again'
mkdir -p /run/systemd/system/remora-serve.service.d
printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/remora-serve.service.d/watchdog.conf
systemctl daemon-reload
systemctl start remora-serve || fail "start"
sleep 5
test "$(of remora-serve NRestarts)" = 0 || fail 'restarted without need'
kill -STOP "$(of remora-serve MainPID)"
until_true sh -c 'test "$(systemctl show --property NRestarts --value remora-serve)" = 1'
until_true remora ls nfs://127.0.0.1/srv/files
rm -r /run/systemd/system/remora-serve.service.d

step 'as users: the example drop-in, with the same key of handles'
key=$(cksum </var/lib/remora/serve/handle-key)
mkdir -p /etc/systemd/system/remora-serve.service.d
cp /usr/share/doc/remora/examples/serve-as-users.conf /etc/systemd/system/remora-serve.service.d/
systemctl daemon-reload
systemctl restart remora-serve
install -d -m 0777 /srv/files/open
chown 1000:1000 /tmp/data
setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/tmp remora cp -q /tmp/data nfs://127.0.0.1/srv/files/open/mine
test "$(stat -c %u /srv/files/open/mine)" = 1000 || fail 'not the owner of its file'
test "$(cksum </var/lib/remora/serve/handle-key)" = "$key"
rm -r /etc/systemd/system/remora-serve.service.d
systemctl daemon-reload

step 'state of a newer version is refused'
systemctl -q stop remora-serve
printf '2\n' >/var/lib/remora/serve/version
if systemctl start remora-serve 2>/dev/null; then fail 'newer state was used'; fi
journalctl --no-pager -u remora-serve | grep -q 'version 2, which a newer remora has written' || fail 'no message'
systemctl -q stop remora-serve
printf '1\n' >/var/lib/remora/serve/version
systemctl reset-failed remora-serve 2>/dev/null || true
systemctl start remora-serve || fail "start"

step 'a mount'
mkdir -p /etc/remora/mount /mnt/nas
printf 'URL=nfs://127.0.0.1/srv/files\nDIR=/mnt/nas\nFLAGS=--allow-other\n' >/etc/remora/mount/nas.conf
systemctl start remora-mount@nas
cmp /tmp/data /mnt/nas/data
test -x /usr/sbin/mount.remora
systemctl stop remora-mount@nas
test "$(of remora-mount@nas Result)/$(of remora-mount@nas ExecMainStatus)" = success/0 || fail 'stop of the mount'
if mountpoint -q /mnt/nas; then fail 'still mounted'; fi

step 'receiver, gateway, link'
sender=$(remora keys 2>/dev/null)
install -d -o remora -g remora /srv/inbox
printf 'DIR=/srv/inbox\nFLAGS="--listen 127.0.0.1:4100 --from %s"\n' "$sender" >/etc/remora/recv.conf
systemctl start remora-recv
receiver=$(key_of remora-recv)
remora send -q /tmp/data 127.0.0.1:4100 --key "$receiver"
cmp /tmp/data /srv/inbox/data
printf 'FLAGS="--listen 127.0.0.1:4050 --allow %s --nfs 127.0.0.1"\n' "$sender" >/etc/remora/gateway.conf
systemctl start remora-gateway
gateway=$(key_of remora-gateway)
remora ls "nfs://127.0.0.1:4050/srv/files?proto=atp&key=$gateway" | grep -q data
key=$(remora link keys)
printf 'listen = "127.0.0.1:51900"\naddress = ["10.78.0.1/24"]\nrate = "1Mbit"\n[[mobile]]\nname = "robot"\nkey = "%s"\naddress = "10.78.0.2"\n' "$(remora link keys --key /tmp/robot.key)" >/etc/remora/link-base.toml
systemctl start remora-link-base
remora link status | grep -q base
systemctl stop remora-recv remora-gateway remora-link-base
for unit in recv gateway link-base; do
    test "$(of remora-$unit Result)/$(of remora-$unit ExecMainStatus)" = success/0 || fail "stop of $unit"
done

step 'Prometheus scrapes the server, whose port is in the configuration'
printf '\n[serve]\nmetrics = 9105\n' >>/etc/remora/config.toml
remora config check || fail 'the configuration'
systemctl restart remora-serve || fail "restart"
remora ls nfs://127.0.0.1/srv/files >/dev/null
printf 'global: {scrape_interval: 1s}\nscrape_configs: [{job_name: remora, static_configs: [{targets: ["127.0.0.1:9105"]}]}]\n' >/tmp/prometheus.yml
/opt/promtool check config /tmp/prometheus.yml >/dev/null || fail 'the configuration of Prometheus'
/opt/prometheus --config.file=/tmp/prometheus.yml --storage.tsdb.path=/tmp/prometheus \
    --web.listen-address=127.0.0.1:9090 >/tmp/prometheus.log 2>&1 &
prometheus=$!
for query in 'up{job="remora"} == 1' remora_build_info 'sum(remora_serve_requests_total) > 0'; do
    until_true sh -c "/opt/promtool query instant http://127.0.0.1:9090 '$query' | grep -q '=>'"
done
kill "$prometheus"
wait "$prometheus" || fail 'Prometheus'

step 'upgrade: the running server has the new binary, and the same state'
pid=$(of remora-serve MainPID)
apt-get install -y -qq --reinstall --no-install-recommends /remora.deb >/tmp/install.log 2>&1 || { cat /tmp/install.log; fail 'apt install'; }
until_true remora ls nfs://127.0.0.1/srv/files
test "$(of remora-serve MainPID)" != "$pid" || fail 'the old binary runs on'

step 'purge'
systemctl -q enable remora-serve remora-mount@nas
systemctl start remora-mount@nas
apt-get purge -y -qq remora >/tmp/purge.log 2>&1 || { cat /tmp/purge.log; fail 'apt purge'; }
files >/tmp/after
# The operator made these.
operator='^/(srv|mnt)/|^/etc/remora$|^/etc/remora/(recv.conf|gateway.conf|link-base.toml|mount(/nas.conf)?)$'
operator="$operator|^$HOME/|^/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-|var/cache/ldconfig/aux-cache)$"
left=$(comm -13 /tmp/before /tmp/after | grep -Ev "$operator" || true)
test -z "$left" || fail "left behind: $left"
gone=$(comm -23 /tmp/before /tmp/after)
test -z "$gone" || fail "taken along: $gone"
if getent passwd remora >/dev/null; then fail 'the user is still there'; fi
if grep -lx remora /proc/[0-9]*/comm 2>/dev/null; then fail 'still running'; fi
