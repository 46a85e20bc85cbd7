# The other way round: remora's commands on the Linux kernel's own server, in the guest.
# Trees and files both ways over TCP and UDP, also while the server stops and starts again; what it refuses.
url() { echo "nfs://127.0.0.1:$port/srv$1?mountport=$mountport&proto=$proto"; }
# What must fail, with this code and such a message.
refused() {
    code=$1 message=$2 got=0
    shift 2
    "$remora" "$@" 2> said || got=$?
    cat said
    test "$got" = "$code"
    grep -q "$message" said
}
# Waits for the server to be there again, and says what it said if it is not.
serves_again() {
    for _ in $(seq 60); do
        test -e "$io/again" || return 0
        sleep 1
    done
    cat "$io/serve.log"
    return 1
}
mkdir -p tree/below/deeper
for n in $(seq 60); do head -c $((n * 1777)) /dev/urandom > "tree/below/file $n"; done
ln tree/below/file\ 7 tree/linked
ln -s below/nowhere tree/symbolic
head -c 50000000 /dev/urandom > big
head -c 70000000 /dev/zero > bigger
mkdir many
seq 3000 | (cd many && xargs touch)
for proto in tcp udp; do
    "$remora" cp -q -r --verify tree "$(url /kernel/tree)"
    "$remora" cp -q -r "$(url /kernel/tree)" "$proto-tree"
    diff -r --no-dereference tree "$proto-tree"
    "$remora" mkdir "$(url /kernel/a%20directory)"
    "$remora" mv "$(url /kernel/tree/below/file%203)" "$(url /kernel/a%20directory/moved)"
    "$remora" cat "$(url /kernel/a%20directory/moved)" | cmp - "tree/below/file 3"
    # This server mounts files, too: they are replaced, and have names, all the same.
    "$remora" cp -q "tree/below/file 5" "$(url /kernel/a%20directory/moved)"
    "$remora" cp -q "tree/below/file 6" "$(url /kernel/a%20directory/other)"
    "$remora" mv "$(url /kernel/tree/below/file%207)" "$(url /kernel/a%20directory/other)"
    "$remora" cat "$(url /kernel/a%20directory/moved)" | cmp - "tree/below/file 5"
    "$remora" cat "$(url /kernel/a%20directory/other)" | cmp - "tree/below/file 7"
    test "$("$remora" ls "$(url /kernel/a%20directory/moved)")" = moved
    refused 1 'not a directory' ls "$(url /kernel/a%20directory/moved/)"
    refused 1 'exists' mkdir -p "$(url /kernel/a%20directory/moved)"
    # The server goes away in mid-copy, or before it begins.
    for direction in up down; do
        touch "$io/again"
        case $direction in
            up) "$remora" cp -q --timeout 0 big "$(url /kernel/big)" ;;
            down) "$remora" cp -q --timeout 0 "$(url /kernel/big)" "$proto-big" ;;
        esac
        serves_again
    done
    cmp big "$proto-big"
    # What does not fit leaves nothing behind.
    refused 1 'no space' cp -q bigger "$(url /kernel/bigger)"
    "$remora" cp -q -r many "$(url /kernel/many)"
    test "$("$remora" ls "$(url /kernel/many)" | sort -n | tail -n 1)" = 3000
    test "$("$remora" ls "$(url /kernel/many)" | wc -l)" = 3000
    "$remora" ls "$(url /kernel)" > listed
    printf '%s\n' 'a directory' big many tree | cmp - listed
    "$remora" rm -r "$(url /kernel/tree)" "$(url /kernel/many)" "$(url /kernel/a%20directory)" "$(url /kernel/big)"
    test -z "$("$remora" ls "$(url /kernel)")"
    test "$("$remora" cat "$(url /read-only/file)")" = 'only to read'
    refused 1 'read-only' cp -q big "$(url /read-only/big)"
    # Only root asks from reserved ports.
    if test "$(id -u)" = 0; then
        test "$("$remora" cat "$(url /secure/file)")" = 'for root'
    else
        refused 1 'insecure' cat "$(url /secure/file)"
    fi
    refused 1 'export' ls "$(url /elsewhere)"
done
