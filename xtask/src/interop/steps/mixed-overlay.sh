# An overlay whose layers are in two file systems: their files have two device numbers.
cd "${dir%/*}"
test "$(cat below/file)" = 'from below'
test "$(stat -c %d below/file)" = "$(stat -c %d .)"
chmod 600 below/file
echo new > below/file
echo 3 > /proc/sys/vm/drop_caches
test "$(cat below/file)" = new
test "$(stat -c %a below/file)" = 600
seq 1000 > made
exec 3>> made
seq 1000 >&3
exec 3>&-
echo 3 > /proc/sys/vm/drop_caches
test "$(wc -l < made)" = 2000
test "$(cat below/deeper/file)" = 'from below'
mv below/deeper/file moved
rm moved made
find . > /dev/null
