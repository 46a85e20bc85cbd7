# An overlay: what is below is changed for the first time, and so copied up, while it is open.
top=${dir%/*}
cd "$top"
exec 3<> below/file 4>> below/file
cd below
echo more >&4
chmod 600 file
echo 3 > /proc/sys/vm/drop_caches
test "$(cat <&3)" = "$(printf 'from below\nmore')"
echo again >&4
exec 3<&- 4>&-
test "$(cat file)" = "$(printf 'from below\nmore\nagain')"
test "$(stat -c %a file)" = 600
# The directory was copied, too, and is where it was.
test "$(pwd -P)" = "$top/below"
echo new > new
test "$(ls)" = "$(printf 'deeper\nfile\nnew')"
truncate -s 4 deeper/file
test "$(cat deeper/file)" = from
mv deeper/file moved
ln moved linked
rm moved
test "$(cat linked)" = from
rm -r deeper
test "$(ls)" = "$(printf 'file\nlinked\nnew')"
