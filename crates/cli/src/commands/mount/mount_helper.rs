//! The command line of mount(8)'s helpers: `mount.remora URL DIR [-sfnv] [-o OPTIONS]`, as for lines of fstab(5) with
//! the type `remora`. Its second name is for `mount -o remount,ro DIR`, which takes the type from the table of mounts.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};

/// The names by which mount(8) calls the program.
const NAMES: [&str; 2] = ["mount.remora", "mount.fuse.remora"];

/// Options that a change of a mount takes. The kernel keeps no option of the mount that is not repeated.
const CHANGEABLE: [(&str, MountFlags); 8] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("sync", MountFlags::SYNCHRONOUS),
];

/// The command line of `remora mount`, if these words are those of the helper. What root mounts so is for all users, as
/// with other file systems in fstab(5); the server checks their permissions.
pub(crate) fn translated(words: Vec<OsString>) -> Vec<OsString> {
    if !is_helper(&words) {
        return words;
    }
    let mut translated: Vec<OsString> = ["remora", "mount"].map(OsString::from).into();
    if rustix::process::geteuid().is_root() {
        translated.push("--allow-other".into());
    }
    let mut rest = words.into_iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            // Its value is the namespace, or the type.
            Some("-N" | "-t") => drop(rest.next()),
            // Sloppy options, no mtab, verbose: nothing to do.
            Some(word) if flags(word).is_some() => {}
            _ => translated.push(word),
        }
    }
    translated
}

/// Whether mount(8) asks to do everything but to mount (`-f`).
pub(crate) fn is_fake(words: &[OsString]) -> bool {
    is_helper(words) && words.iter().filter_map(|word| flags(word.to_str()?)).any(|flags| flags.contains('f'))
}

/// A change of a mounted directory's options, which the kernel makes without the mount's process.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Remount<'a> {
    dir: &'a Path,
    flags: MountFlags,
}

impl Remount<'_> {
    /// The change that mount(8) asks for, if it asks for one (`-o remount,...`).
    pub(crate) fn wanted(words: &[OsString]) -> Option<Remount<'_>> {
        let at = words.iter().position(|word| word == "-o").filter(|_| is_helper(words))?;
        let options: Vec<&str> = words.get(at + 1)?.to_str()?.split(',').collect();
        let flag = |option: &&str| CHANGEABLE.iter().find(|(name, _)| name == option).map(|(_, flag)| *flag);
        // Of `ro` and `rw` the last one counts.
        let is_writable = options.iter().rfind(|option| ["ro", "rw"].contains(option)) == Some(&"rw");
        let mut flags = options.iter().filter_map(flag).fold(MountFlags::empty(), |all, flag| all | flag);
        flags.set(MountFlags::RDONLY, flags.contains(MountFlags::RDONLY) && !is_writable);
        let dir = Path::new(words.get(2)?);
        options.contains(&"remount").then_some(Remount { dir, flags })
    }

    /// Makes the change.
    pub(crate) fn perform(&self) -> Result<(), String> {
        mount_remount(self.dir, self.flags, "")
            .map_err(|e| format!("cannot change the mount at {}: {}", self.dir.display(), std::io::Error::from(e)))
    }
}

fn is_helper(words: &[OsString]) -> bool {
    let name = words.first().and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| NAMES.iter().any(|helper| name == OsStr::new(helper)))
}

/// The letters of a word such as `-sn`.
fn flags(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|flags| !flags.is_empty() && flags.chars().all(|flag| "sfnv".contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn helper_line_becomes_that_of_the_command() {
        let line = "/sbin/mount.remora nas:/srv /mnt -sn -t remora -o rw,_netdev";
        let mut translated = translated(words(line));
        translated.retain(|word| word != "--allow-other");
        assert_eq!(translated, words("remora mount nas:/srv /mnt -o rw,_netdev"));
        assert_eq!(super::translated(words("remora ls -n")), words("remora ls -n"));
    }

    #[test]
    fn remount_keeps_only_repeated_options() {
        let wanted = |line: &str| Remount::wanted(&words(line)).map(|remount| remount.flags);
        let dir = "/sbin/mount.fuse.remora nas:/srv /mnt";
        assert_eq!(wanted(&format!("{dir} -o rw,nosuid,remount,ro")), Some(MountFlags::NOSUID | MountFlags::RDONLY));
        assert_eq!(wanted(&format!("{dir} -n -o ro,remount,rw,user_id=0")), Some(MountFlags::empty()));
        assert_eq!(wanted(&format!("{dir} -o ro")), None);
        assert_eq!(wanted("remora mount nas:/srv /mnt -o remount,ro"), None);
        let words = words(&format!("{dir} -o remount"));
        assert_eq!(Remount::wanted(&words).unwrap().dir, Path::new("/mnt"));
    }

    #[test]
    fn fake_mount_is_recognised() {
        assert!(is_fake(&words("mount.remora nas:/srv /mnt -nf")));
        assert!(!is_fake(&words("mount.remora nas:/srv /mnt -n -o file")));
        assert!(!is_fake(&words("remora mount -f nas:/srv /mnt")));
    }
}
