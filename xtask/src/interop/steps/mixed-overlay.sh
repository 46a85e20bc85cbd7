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
# A file that is open while it is copied to the other file system.
number=$(stat -c %i below/deeper/file)
exec 3<> below/deeper/file 4>> below/deeper/file
echo more >&4
test "$(cat <&3)" = "$(printf 'from below\nmore')"
echo 3 > /proc/sys/vm/drop_caches
echo again >&4
chmod 640 below/deeper/file
exec 3<&- 4>&-
test "$(cat below/deeper/file)" = "$(printf 'from below\nmore\nagain')"
test "$(stat -c '%i %a' below/deeper/file)" = "$number 640"
mv below/deeper/file moved
rm moved made
find . > /dev/null
