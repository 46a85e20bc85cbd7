//! This machine's programs in a guest: 9p shares its root, and an overlay takes what the guest writes.

use std::path::Path;

/// Kernel modules for [`HOST_ROOT`], in loading order.
pub const HOST_MODULES: [&str; 4] = ["9pnet", "9pnet_virtio", "9p", "overlay"];

/// Shell lines of a guest that make `/new` this machine's root below an overlay in memory, with the guest's own
/// `/dev`, `/proc` and `/sys`. They need [`HOST_MODULES`] and [`share_root`].
pub const HOST_ROOT: &str = "
mkdir /lower /over /new
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 root /lower
mount -t tmpfs over /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /new
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm
mount -t tmpfs shm /new/dev/shm
";

/// QEMU's arguments that share this machine's root for [`HOST_ROOT`].
pub fn share_root() -> [String; 2] {
    let share = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap";
    ["-virtfs", share].map(str::to_owned)
}

/// QEMU's arguments that share a directory under a tag; [`mount_share`] mounts it.
pub fn share(tag: &str, directory: &Path) -> [String; 2] {
    ["-virtfs".into(), format!("local,path={},mount_tag={tag},security_model=none", directory.display())]
}

/// The shell line of a guest that mounts a share; both sides see each other's changes at once.
pub fn mount_share(tag: &str, at: &str) -> String {
    format!("mkdir -p '{at}' && mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=1048576 {tag} '{at}'")
}
