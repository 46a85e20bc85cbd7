# POSIX's word on every call through remora mount, as root and as others.
# The read-only tests come apart, as for the kernel's client. mount(8) would look for the helper in /sbin, where nothing
# is installed.
chmod 755 .
cd /
set +e
"$tools/pjdfstest" -c "$io/pjdfstest.toml" -s /dev/shm -p "$dir" > "$io/pjdfstest.log" 2>&1
mkdir "$io/bin"
ln -s "$remora" "$io/bin/mount.fuse.remora"
printf '#!/bin/sh\nexec "${0%%/*}/mount.fuse.remora" remora "$3" -o "$2"\n' > "$io/bin/mount"
chmod +x "$io/bin/mount"
sed 's/^allow_remount = false/allow_remount = true/' "$io/pjdfstest.toml" > "$io/remount.toml"
PATH="$io/bin:$PATH" "$tools/pjdfstest" -c "$io/remount.toml" -s /dev/shm -p "$dir" erofs > "$io/remount.log" 2>&1
true
