# Bytes beyond 4 GiB, in a file that is mostly holes.
at=$((5 * 1024 * 1024))
echo far | dd of=file bs=1024 seek=$at conv=notrunc status=none
echo near | dd of=file conv=notrunc status=none
echo 3 > /proc/sys/vm/drop_caches
test "$(stat -c %s file)" = $((at * 1024 + 4))
test "$(du -k file | cut -f1)" -lt 1024
test "$(dd if=file bs=1024 skip=$at status=none)" = far
test "$(head -c 4 file)" = near
test "$(dd if=file bs=1M skip=4095 count=2 status=none | tr -d '\0' | wc -c)" = 0
truncate -s 4294967297 file
test "$(stat -c %s file)" = 4294967297
truncate -s 3 file
test "$(cat file)" = nea
truncate -s 8T file
test "$(stat -c %s file)" = 8796093022208
rm file
