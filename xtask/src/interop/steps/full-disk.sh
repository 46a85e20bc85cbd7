# A disk that is filled: who writes is told so, what was there stays, and room that is given back
# can be had again.
full() {
    "$@" 2> /dev/shm/said && exit 1
    grep 'No space left on device' /dev/shm/said
}
seq 20000 > before
sum=$(cksum < before)
full dd if=/dev/zero of=big bs=64k count=200 status=none
full dd if=/dev/zero of=more bs=64k count=8 oflag=sync status=none
full dd if=/dev/zero of=more bs=64k count=8 oflag=direct status=none
full dd if=/dev/zero of=more bs=64k count=8 conv=fsync status=none
room() { df -k --output=avail . | tail -n 1; }
# remora mount answers with the last figures and refreshes them behind; the kernel's client must be right at once.
if [ -n "${figures_lag:-}" ]; then until [ "$(room)" -lt 64 ]; do sleep 0.1; done; fi
test "$(room)" -lt 64
full cp before copy
echo 3 > /proc/sys/vm/drop_caches
test "$(cksum < before)" = "$sum"
mv before after
rm big more copy
dd if=/dev/urandom of=/dev/shm/random bs=1M count=6 status=none
cp /dev/shm/random copy
echo 3 > /proc/sys/vm/drop_caches
cmp /dev/shm/random copy
test "$(cksum < "$other/after")" = "$sum"
rm /dev/shm/random /dev/shm/said
