# POSIX ACLs by NFSACL: set, enforced, inherited, removed, and seen by a mount without a shared cache.
as() { setpriv --reuid 1234 --regid 1234 --clear-groups "$@"; }
# The entries of the ACL of $1, one after another.
of() { getfacl --omit-header --absolute-names --numeric --no-effective "$1" | tr '\n' ' ' | sed 's/ *$//'; }
# The same of a file as the server has it.
there() { echo 3 > /proc/sys/vm/drop_caches; of "$other/$1"; }
echo secret > file
chmod 640 file
test "$(of file)" = 'user::rw- group::r-- other::---'
not as cat file
setfacl -m u:1234:r file
test "$(there file)" = 'user::rw- user:1234:r-- group::r-- mask::r-- other::---'
test "$(as cat file)" = secret
not as sh -c 'echo x >> file'
not as setfacl -m u:1234:rw file
# The mode shows the mask, and a change of the mode changes the mask.
test "$(stat -c %a file)" = 640
setfacl -m m::rw,g:77:rwx file
test "$(stat -c %a file)" = 660
chmod 600 file
test "$(there file)" = 'user::rw- user:1234:r-- group::r-- group:77:rwx mask::--- other::---'
not as cat file
chmod 660 file
not as chmod 644 file
setfacl -b file
test "$(there file)" = 'user::rw- group::r-- other::---'
test "$(stat -c %a "$other/file")" = 640
# New objects inherit a default ACL; the umask does not count there, as on a local disk.
mkdir -m 750 d
setfacl -d -m u:1234:rwx,o::- d
inherited='user::rwx user:1234:rwx group::r-x mask::rwx other::---'
test "$(there d)" = "user::rwx group::r-x other::--- $(echo " $inherited" | sed 's/ \([ugmo]\)/ default:\1/g; s/^ //')"
(umask 077; echo x > d/file; mkdir d/sub)
test "$(there d/file)" = 'user::rw- user:1234:rwx group::r-x mask::rw- other::---'
test "$(there d/sub | sed 's/ default.*//')" = 'user::rwx user:1234:rwx group::r-x mask::rwx other::---'
test "$(there d/sub | grep -o default | wc -l)" = 5
setfacl -k d
test "$(there d)" = 'user::rwx group::r-x other::---'
(umask 077; echo x > d/later)
test "$(there d/later)" = 'user::rw- group::--- other::---'
# As many entries as a block of the disk holds, and other things that have no default ACL.
echo x > many
setfacl -m "$(seq -f 'u:%g:r' 10000 10299 | tr '\n' ',')m::r" many
test "$(getfacl -cpn "$other/many" | grep -c ^user:1)" = 300
not setfacl -d -m u:1234:r file
cp --preserve=mode many copy
test "$(getfacl -cpn "$other/copy" | grep -c ^user:1)" = 300
