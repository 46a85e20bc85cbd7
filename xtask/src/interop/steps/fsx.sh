# Random reads, writes, mappings and truncations of a file against a model of it.
# fsx 0.3.2 keeps each mapping that it reads; a million operations need more than a process may have, so they are parts.
parts=0
if [ -n "${REMORA_MOUNT_LONG:-}" ]; then operations=250000 parts='1 2 3 4'; fi
for seed in $seeds; do
    for part in $parts; do
        "$tools/fsx" -S "$seed$part" -N "$operations" -f "$io/fsx.toml" -P "$io" "$dir/file"
    done
done
