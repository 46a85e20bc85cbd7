# An archive made on the mount, taken apart on the mount, and compared.
tar -C "$source" -czf source.tar.gz server vfs
mkdir tree
tar -xzpf source.tar.gz -C tree
echo 3 > /proc/sys/vm/drop_caches
for part in server vfs; do diff -r --no-dereference "$source/$part" "tree/$part"; done
tar -dzf source.tar.gz -C tree
rm -rf tree source.tar.gz
