# `remora mount` on the Linux kernel's own server, in the guest.
url="nfs://127.0.0.1:$port/srv/kernel?mountport=$mountport"
outage() {
    touch "$io/again"
    for _ in $(seq 60); do
        test -e "$io/again" || return 0
        sleep 1
    done
    cat "$io/serve.log"
    return 1
}
