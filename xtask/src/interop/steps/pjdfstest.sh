# POSIX's word on every call, as root and as others.
# The read-only tests come apart: they mount again, and a mount does not become read-only while a
# test before it has left a file open.
chmod 755 .
cd /
set +e
"$tools/pjdfstest" -c "$io/pjdfstest.toml" -s /dev/shm -p "$dir" > "$io/pjdfstest.log" 2>&1
sed 's/^allow_remount = false/allow_remount = true/' "$io/pjdfstest.toml" > "$io/remount.toml"
"$tools/pjdfstest" -c "$io/remount.toml" -s /dev/shm -p "$dir" erofs > "$io/remount.log" 2>&1
true
