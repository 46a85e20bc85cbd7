# Modes, owners and times, to the nanosecond, as the server keeps them.
echo x > file
for mode in 0 400 4755 2711 1777 7777 644; do
    chmod $mode file
    echo 3 > /proc/sys/vm/drop_caches
    test "$(stat -c %a file)" = $mode
done
chown 12345:54321 file
chmod 6755 file
chown 0:0 file
test "$(stat -c '%a %u %g' file)" = '755 0 0'
chown 4294967294:4294967294 file
test "$(stat -c '%u %g' file)" = '4294967294 4294967294'
touch -d '2001-02-03 04:05:06.123456789 UTC' file
touch -a -d '2033-02-03 04:05:06.987654321 UTC' file
echo 3 > /proc/sys/vm/drop_caches
test "$(TZ=UTC stat -c %y file)" = '2001-02-03 04:05:06.123456789 +0000'
test "$(TZ=UTC stat -c %x file)" = '2033-02-03 04:05:06.987654321 +0000'
touch -d '1970-01-01 00:00:00 UTC' file
test "$(stat -c %Y file)" = 0
# The server's clock is the guest's: they are one machine's.
before=$(date +%s)
touch now
after=$(date +%s)
test "$(stat -c %Y now)" -ge $((before - 1))
test "$(stat -c %Y now)" -le $((after + 1))
# As somebody else: what the mode allows, and no more.
mkdir -m 1777 shared
mkdir -m 700 private
echo mine > shared/file
as() { setpriv --reuid 1234 --regid 1234 --groups 5678 "$@"; }
as touch shared/theirs
test "$(stat -c '%u %g' shared/theirs)" = '1234 1234'
not as rm -f shared/file
not as ls private
not as chmod 777 private
not as chown 1234 shared/file
echo group > group
chown 0:5678 group
chmod 640 group
test "$(as cat group)" = group
not as sh -c 'echo x >> group'
as chgrp 5678 shared/theirs
as rm shared/theirs
mkdir -m 2775 heirs
chown 0:5678 heirs
touch heirs/file
mkdir heirs/d
test "$(stat -c %g heirs/file)" = 5678
test "$(stat -c '%g %a' heirs/d)" = '5678 2755'
as sh -c 'umask 002; mkdir heirs/w'
test "$(stat -c '%g %a' heirs/w)" = '5678 2775'
# Who may write a file, and does not own it, writes it anew, empties it, touches it.
echo text > common
chmod 666 common
as sh -c 'echo new > common'
test "$(cat common)" = new
as truncate -s 0 common
test ! -s common
as touch common
as touch -m common
not as touch -d '2001-02-03' common
# A directory that may be listed and not searched.
mkdir -m 744 list
touch list/name
test "$(as ls list 2>&1 | grep -c name)" -ge 1
not as cat list/name
