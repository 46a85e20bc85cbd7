# Work that goes on while the server is killed and started again, time and again.
# Random operations on a file against a model, and a copy: nothing fails, and no byte is lost.
dd if=/dev/urandom of=/dev/shm/random bs=1M count=24 status=none
touch "$io/under-way"
# At least two rounds, and until the server was started again: a fast machine needs more rounds.
seed=6
while [ $seed -lt 8 ] || [ ! -e "$io/restarted" ]; do
    "$tools/fsx" -S $seed -N 800 -f "$io/fsx.toml" -P "$io" "$dir/file"
    cp /dev/shm/random copy
    echo 3 > /proc/sys/vm/drop_caches
    cmp /dev/shm/random copy
    seed=$((seed + 1))
done
rm /dev/shm/random
