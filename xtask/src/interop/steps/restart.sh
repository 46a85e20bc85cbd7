# Work that goes on while the server is killed and started again, time and again.
# Random operations on a file against a model, and a copy: nothing fails, and no byte is lost.
dd if=/dev/urandom of=/dev/shm/random bs=1M count=24 status=none
touch "$io/under-way"
for seed in 6 7; do
    "$tools/fsx" -S $seed -N 800 -f "$io/fsx.toml" -P "$io" "$dir/file"
    cp /dev/shm/random copy
    echo 3 > /proc/sys/vm/drop_caches
    cmp /dev/shm/random copy
done
rm /dev/shm/random
