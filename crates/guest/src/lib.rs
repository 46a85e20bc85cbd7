//! Linux guests in QEMU for tests: the kernel and its files, found on this machine or downloaded;
//! the initramfs; and the serial console. Shared by the laboratory and `xtask`.
//!
//! A guest has no disk: a kernel, a few modules and a static busybox in an initramfs. Its first
//! process is a shell script: [`BEGIN`], the user's part, and [`CONVERSE`], which reads shell lines
//! from the serial console and reports their exit codes. [`Kernel::command_line`] starts it,
//! [`Console`] talks to it. KVM is not used, since guests may hang on machines that offer it.

mod console;
mod host;
mod initramfs;
mod kernel;
mod package;
mod programs;
mod scratch;

pub use console::{Console, Silence, Talk};
pub use host::{HOST_MODULES, HOST_ROOT, mount_share, share, share_root};
pub use initramfs::write as write_initramfs;
pub use kernel::Kernel;
pub use package::{cache, unpacked};
pub use programs::{Missing, find};
pub use scratch::Scratch;

/// The start of a guest's first process: busybox's programs, the kernel's file systems, and the
/// modules. Their dependencies differ between kernels, so the script retries modules that do not
/// load. Afterwards the network card is up, without an address.
pub const BEGIN: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
stty -echo
for pass in 1 2 3 4; do for m in /modules/*; do insmod $m 2>/dev/null && rm $m; done; done
ip link set lo up
ip link set eth0 up
";

/// The end of a guest's first process: the peer of [`Console`].
pub const CONVERSE: &str = "
echo guest-ready
while read -r line; do eval \"$line\"; echo \"guest-done $?\"; done
poweroff -f
";
