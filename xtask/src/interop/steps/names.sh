# Links, pipes and devices: made, seen as what they are, used, removed.
echo target > file
ln -s file relative
ln -s /nowhere dangling
long=$(printf '%01000d' 0)
ln -s "$long" long
ln file second
mkfifo pipe
mknod char c 1 3
mknod block b 259 1048575
echo 3 > /proc/sys/vm/drop_caches
test "$(cat relative)" = target
test "$(readlink dangling)" = /nowhere
test "$(readlink long)" = "$long"
test "$(stat -c '%h %i' file)" = "$(stat -c '%h %i' second)"
test "$(stat -c %h file)" = 2
test "$(stat -c '%F %t %T' char)" = 'character special file 1 3'
test "$(stat -c '%F %t %T' block)" = 'block special file 103 fffff'
test "$(stat -c %F pipe)" = fifo
echo through > pipe &
test "$(cat pipe)" = through
rm file
test "$(cat second)" = target
test "$(stat -c %h second)" = 1
not cat relative
# As long as a name may be, and one byte more.
long=$(printf '%0255d' 0)
echo x > "$long"
not touch "${long}0"
odd=$(printf 'new\nline \\ \377 *')
mkdir "$odd"
echo x > "$odd/$odd"
test "$(cat "$odd/$odd")" = x
rm -rf ./*
test -z "$(ls -A)"
