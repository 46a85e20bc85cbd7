//! A guest with the Linux kernel in QEMU: what it is made of, found on this machine or fetched;
//! its first files; and the conversation with it. Shared by the laboratory and `xtask`.
//!
//! The guest has no disk: a kernel, a few modules and a static busybox in an initramfs. Its first
//! process is a shell script, [`BEGIN`], whatever the user needs, and [`CONVERSE`], which reads
//! shell lines on the serial console and says how each ended. [`Kernel::command_line`] starts it,
//! [`Console`] talks to it. KVM is not used: where its device is there, guests may still hang.

mod console;
mod initramfs;
mod kernel;
mod package;
mod scratch;

use std::path::PathBuf;

pub use console::{Console, Silence, Talk};
pub use initramfs::write as write_initramfs;
pub use kernel::Kernel;
pub use package::unpacked;
pub use scratch::Scratch;

/// The beginning of a guest's first process: busybox's programs, the kernel's file systems, and
/// the modules. Which module needs which differs from kernel to kernel, so what cannot be loaded
/// yet is tried again. The network card is up afterwards, without an address.
pub const BEGIN: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
stty -echo
for pass in 1 2 3 4; do for m in /modules/*; do insmod $m 2>/dev/null && rm $m; done; done
ip link set lo up
ip link set eth0 up
";

/// The end of a guest's first process: [`Console`]'s other end.
pub const CONVERSE: &str = "
echo guest-ready
while read -r line; do eval \"$line\"; echo \"guest-done $?\"; done
poweroff -f
";

/// What is missing, and how to get it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

/// A program on the path, or where administrators' programs are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|p| p.join(program)).find(|p| p.is_file())
}
