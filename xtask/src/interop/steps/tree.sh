# A source tree copied with all its attributes, compared as the server has it, and removed.
cp -a "$source/vfs" tree
echo 3 > /proc/sys/vm/drop_caches
diff -r --no-dereference "$source/vfs" tree
attributes() { (cd "$1" && find . -printf '%P %y %m %U:%G %s %T@ %l\n' | grep -v ' d ' | sort); }
attributes "$source/vfs" > "$io/source.list"
attributes tree > "$io/tree.list"
cmp "$io/source.list" "$io/tree.list"
rm -rf tree
test -z "$(ls -A)"
