# rsync -a to the mount, again without changes, and back.
command -v rsync > /dev/null || { echo "rsync is not installed"; exit 77; }
mkdir tree
rsync -a "$source"/ tree/
test -z "$(rsync -ai --delete "$source"/ tree/)"
find tree -name '*.rs' | head -10 | while read -r file; do echo changed >> "$file"; done
test "$(rsync -aic --delete "$source"/ tree/ | grep -c '^>f')" = 10
ln -s target tree/link
mkdir -m 700 tree/private
rsync -aH --inplace tree/ copy/
echo 3 > /proc/sys/vm/drop_caches
diff -r --no-dereference tree copy
test "$(stat -c %a copy/private)" = 700
test "$(stat -c %Y copy/wire/Cargo.toml)" = "$(stat -c %Y "$source/wire/Cargo.toml")"
