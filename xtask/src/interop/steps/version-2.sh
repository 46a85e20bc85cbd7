# NFSv2, for which mount.nfs has no words left but most kernels have: files, names and attributes.
grep -qw nfs_v2 /proc/kallsyms || { echo 'the guest has no NFSv2'; exit 77; }
where=$(grep " $(df --output=target . | tail -n 1) " /proc/mounts | head -n 1)
port=$(echo "$where" | sed 's/.*[ ,]port=\([0-9]*\).*/\1/')
old=/interop/version-2
mkdir -p $old
busybox mount -i -t nfs -o "vers=2,proto=tcp,nolock,hard,port=$port,mountport=$port,mountproto=tcp,mountvers=1,addr=10.0.2.2" \
    10.0.2.2:/disk $old
grep " $old nfs .*vers=2" /proc/mounts
trap 'cd /; umount $old' EXIT
cd $old/version-2
dd if=/dev/urandom of=/dev/shm/random bs=1k count=777 status=none
cp /dev/shm/random file
echo 3 > /proc/sys/vm/drop_caches
cmp /dev/shm/random file
cmp /dev/shm/random "$dir/file"
truncate -s 1000 file
test "$(stat -c %s "$other/file")" = 1000
chown 12:34 file
chmod 2751 file
touch -m -d '2001-02-03 04:05:06 UTC' file
echo 3 > /proc/sys/vm/drop_caches
test "$(stat -c '%a %u %g %Y' "$other/file")" = '2751 12 34 981173106'
mkdir d
# Names so long that a listing takes several calls.
long=$(printf '%0200d' 0)
for i in $(seq 100); do : > d/$long$i; done
test "$(ls d | sort | uniq | wc -l)" = 100
(cd d && rm *[02468])
test "$(ls d | wc -l)" = 50
ln file d/file
ln -s ../file d/link
mkfifo d/pipe
mknod d/null c 1 3
test "$(readlink d/link)" = ../file
test "$(stat -c '%F %t %T' "$dir/d/null")" = 'character special file 1 3'
mv d e
exec 3< e/file
rm e/file file
test "$(wc -c <&3)" = 1000
exec 3<&-
not rmdir e
rm -r e
test -z "$(ls -A)"
rm /dev/shm/random
