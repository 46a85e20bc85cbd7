# `remora mount` on NFS-Ganesha, in network, mount and process namespaces of its own.
for program in ganesha.nfsd rpcbind unshare; do
    command -v $program > /dev/null || { echo "$program is not installed"; exit 77; }
done
cd "$io"
if [ -z "${REMORA_INSIDE:-}" ]; then
    rmdir "$dir"
    exec env REMORA_INSIDE=yes unshare --net --mount --pid --fork --kill-child --mount-proc /bin/sh -eux "$0"
fi
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/ganesha export
cat > ganesha.conf <<END
NFS_CORE_PARAM { Protocols = 3; Enable_UDP = true; Enable_NLM = false; MNT_Port = 20048; NFS_Port = 2049;
    allow_set_io_flusher_fail = true; }
EXPORT { Export_Id = 1; Path = $io/export; Pseudo = /export; Protocols = 3; Transports = UDP,TCP; Access_Type = RW;
    Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; } }
END
rpcbind -f -w & sleep 1
ganesha.nfsd -F -f ganesha.conf -L "$io/ganesha.log" -p "$io/ganesha.pid" 2> /dev/null & server=$!
for _ in $(seq 300); do
    if grep -q 'NFS SERVER INITIALIZED' ganesha.log 2> /dev/null; then break; fi
    sleep 0.1
done
url="nfs://127.0.0.1:2049$io/export?mountport=20048"
outage() {
    kill -STOP $server
    sleep 3
    kill -CONT $server
}
