# Random reads, writes, mappings and truncations of a file against a model of it.
if [ -n "${REMORA_MOUNT_LONG:-}" ]; then operations=1000000; fi
for seed in $seeds; do
    "$tools/fsx" -S "$seed" -N "$operations" -f "$io/fsx.toml" -P "$io" "$dir/file"
done
