test ! -e /srv/kernel || exit 0
# Becomes an NFS server: 64 MiB of memory that anybody may write to, some that nobody may,
# some that wants to be asked from reserved ports, and NFSv3 alone.
mount -t nfsd nfsd /proc/fs/nfsd
mkdir -p /run/rpcbind /run/sendsigs.omit.d /var/lib/nfs/v4recovery /srv/kernel /srv/read-only /srv/secure
mount -t tmpfs -o size=64m kernel /srv/kernel
mount -t tmpfs -o size=1m read-only /srv/read-only
echo 'only to read' > /srv/read-only/file
mount -t tmpfs -o size=1m secure /srv/secure
echo 'for root' > /srv/secure/file
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
cat > /etc/exports <<END
/srv/kernel *(rw,insecure,no_root_squash,no_subtree_check,fsid=1)
/srv/read-only *(ro,insecure,root_squash,no_subtree_check,fsid=2)
/srv/secure *(rw,secure,no_root_squash,no_subtree_check,fsid=3)
END
rpcbind -w
"$programs/exportfs" -a
"$programs/rpc.mountd" --port 20048
serve() { "$programs/rpc.nfsd" --udp --no-nfs-version 4 8; }
serve
# Whoever makes this file has the server stopped and started again; it is gone afterwards. A busy guest may
# not have let go of the ports yet, or may not have heard from rpcbind in time: then again, and what was
# said stays to be read.
again() {
    date
    "$programs/rpc.nfsd" 0 || echo "it does not stop: $?"
    sleep 1
    until serve; do "$programs/rpc.nfsd" 0 || :; sleep 1; done
    rm "$io/again"
}
set +x
while sleep 0.1; do
    if test -e "$io/again"; then again; fi
done < /dev/null > "$io/serve.log" 2>&1 &
