# Random reads, writes, mappings and truncations of a file against a model of it.
for seed in $seeds; do
    "$tools/fsx" -S "$seed" -N "$operations" -f "$io/fsx.toml" -P "$io" "$dir/file"
done
