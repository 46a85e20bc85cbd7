//! The parts of a guest: QEMU, a static busybox, a kernel with its modules. They are searched for on
//! the machine; apt-get downloads a missing kernel.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::package::{self, entries};
use crate::{Missing, find};

/// Modules of every guest, roughly in loading order. Some kernels have some of them built in or
/// lack them.
const MODULES: [&str; 18] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "netfs",
    "fscache",
    "sunrpc",
    "grace",
    "lockd",
    "nfs_acl",
    "nfs_localio",
    "nfs",
    "nfsv2",
    "nfsv3",
];
/// Modules required for NFS, unless built in.
const NEEDED: [&str; 2] = ["virtio_net", "nfsv3"];
/// Maximum depth of the search in a kernel's module directory.
const DEPTH_MAX: u32 = 12;

/// The parts of a guest.
#[derive(Debug)]
pub struct Kernel {
    qemu: PathBuf,
    pub(crate) busybox: PathBuf,
    image: PathBuf,
    pub(crate) modules: Vec<Module>,
    /// Version, such as 6.1.0-56-amd64.
    pub version: String,
}

/// A kernel module's file, compressed or not.
#[derive(Debug)]
pub(crate) struct Module(PathBuf);

impl Module {
    /// The uncompressed module.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let unpack = match self.0.extension().and_then(|e| e.to_str()) {
            Some("xz") => "xz",
            Some("zst") => "zstd",
            Some("gz") => "gzip",
            _ => return fs::read(&self.0),
        };
        let output = Command::new(unpack).arg("-dc").stdin(File::open(&self.0)?).stderr(Stdio::null()).output()?;
        if output.status.success() { Ok(output.stdout) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// The kernel's name of the module.
    fn name(path: &Path) -> Option<String> {
        let (name, _) = path.file_name()?.to_str()?.split_once(".ko")?;
        Some(name.replace('-', "_"))
    }
}

impl Kernel {
    /// Searches an unpacked kernel package if one is given, then this machine, then asks apt-get.
    /// `more` names modules required beyond those of the network card and NFS, in loading order.
    pub fn find(package: Option<&Path>, more: &[&str]) -> Result<Kernel, Missing> {
        let need = |program: &str, hint: &str| find(program).ok_or_else(|| Missing(format!("install {hint}")));
        let qemu = need("qemu-system-x86_64", "qemu-system-x86")?;
        let busybox = need("busybox", "busybox-static")?;
        if !is_static(&busybox) {
            return Err(Missing("install busybox-static: busybox here needs libraries".into()));
        }
        let with = |root: &Path| {
            let (image, version, modules) = kernel_in(root, more)?;
            Some(Kernel { qemu: qemu.clone(), busybox: busybox.clone(), image, modules, version })
        };
        if let Some(package) = package {
            let why = || Missing(format!("{}: no boot/vmlinuz-* with its lib/modules", package.display()));
            return with(package).ok_or_else(why);
        }
        if let Some(kernel) = with(Path::new("/")) {
            return Ok(kernel);
        }
        let fetched = fetch(more).map_err(|why| Missing(format!("name a kernel package by --kernel DIR ({why})")))?;
        with(&fetched).ok_or_else(|| Missing(format!("{} has no kernel with NFS", fetched.display())))
    }

    /// QEMU's command line for these files, for a guest on standard input and output. The caller
    /// adds the network card and other devices.
    pub fn command_line(&self, initrd: &Path, memory_mib: u32, processors: u32) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (memory, processors) = (memory_mib.to_string(), processors.to_string());
        let options = [
            ["-accel", "tcg,thread=multi"],
            ["-cpu", "max"],
            ["-m", &memory],
            ["-smp", &processors],
            ["-nodefaults", "-no-reboot"],
            ["-display", "none"],
            ["-serial", "stdio"],
            ["-append", "console=ttyS0 quiet panic=1"],
            ["-kernel", &text(&self.image)],
            ["-initrd", &text(initrd)],
        ];
        let options = options.as_flattened().iter().map(|o| (*o).to_owned());
        std::iter::once(text(&self.qemu)).chain(options).collect()
    }
}

/// The newest complete kernel in `root`: image, version, modules.
fn kernel_in(root: &Path, more: &[&str]) -> Option<(PathBuf, String, Vec<Module>)> {
    let mut images: Vec<PathBuf> = entries(&root.join("boot"));
    images.sort();
    images.into_iter().rev().find_map(|image| {
        let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        let places = [root.join("lib/modules"), root.join("usr/lib/modules")];
        let modules = places.iter().find_map(|place| modules_in(&place.join(&version), more))?;
        Some((image, version, modules))
    })
}

fn modules_in(directory: &Path, more: &[&str]) -> Option<Vec<Module>> {
    let built_in = fs::read_to_string(directory.join("modules.builtin")).ok()?;
    let is_built_in = |name: &str| built_in.lines().any(|l| Module::name(Path::new(l)).as_deref() == Some(name));
    let mut files = Vec::new();
    collect(&directory.join("kernel"), DEPTH_MAX, &mut files);
    let find = |name: &str| files.iter().find(|f| Module::name(f).as_deref() == Some(name));
    if NEEDED.iter().chain(more).any(|name| find(name).is_none() && !is_built_in(name)) {
        return None;
    }
    Some(MODULES.iter().chain(more).filter_map(|name| find(name).cloned().map(Module)).collect())
}

/// All files below a directory; links are not followed.
fn collect(directory: &Path, depth: u32, to: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for path in entries(directory) {
        match fs::symlink_metadata(&path) {
            Ok(m) if m.is_dir() => collect(&path, depth, to),
            Ok(m) if m.is_file() => to.push(path),
            _ => {}
        }
    }
}

/// Whether a program is statically linked: without an ELF PT_INTERP.
fn is_static(program: &Path) -> bool {
    let head = fs::read(program).unwrap_or_default();
    let head = head.get(..4096).unwrap_or(&head);
    head.starts_with(b"\x7fELF") && !head.windows(8).any(|w| w == b"ld-linux" || w == b"/ld-musl")
}

/// Downloads the distribution's kernel; returns its directory.
fn fetch(more: &[&str]) -> Result<PathBuf, String> {
    let place = package::cache()?.join("guest");
    if kernel_in(&place, more).is_some() {
        return Ok(place);
    }
    let depends = package::ask("apt-cache", &["depends", "linux-image-amd64"], Path::new("/"))?;
    let package = depends.lines().find_map(|l| l.trim().strip_prefix("Depends: linux-image-"));
    package::unpack(&format!("linux-image-{}", package.ok_or("apt-get knows no kernel")?), &place)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_is_found_by_its_name() {
        let names = ["net/sunrpc/sunrpc.ko", "kernel/drivers/virtio/virtio-net.ko.xz", "modules.dep"];
        let names = names.map(|n| Module::name(Path::new(n)));
        assert_eq!(names, [Some("sunrpc".to_owned()), Some("virtio_net".to_owned()), None]);
    }

    #[test]
    fn kernel_without_required_modules_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1");
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::create_dir_all(modules.join("kernel/fs")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.1"), "").unwrap();
        fs::write(modules.join("modules.builtin"), "kernel/drivers/net/virtio_net.ko\n").unwrap();
        assert!(kernel_in(root.path(), &[]).is_none(), "no NFS");
        for name in ["nfsv3.ko", "sunrpc.ko.xz", "other.ko"] {
            fs::write(modules.join("kernel/fs").join(name), "").unwrap();
        }
        for (more, names) in [(&[][..], &["sunrpc", "nfsv3"][..]), (&["other"], &["sunrpc", "nfsv3", "other"])] {
            let (_, version, modules) = kernel_in(root.path(), more).unwrap();
            let found: Vec<_> = modules.iter().filter_map(|m| Module::name(&m.0)).collect();
            assert_eq!(version, "6.1");
            assert_eq!(found, names);
        }
        assert!(kernel_in(root.path(), &["another"]).is_none());
    }
}
