//! The command line of mount(8)'s helpers: `mount.remora URL DIR [-sfnv] [-o OPTIONS]`, as for lines of fstab(5) with
//! the type `remora`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name by which mount(8) calls the program.
const NAME: &str = "mount.remora";

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

fn is_helper(words: &[OsString]) -> bool {
    words.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new(NAME)))
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
    fn fake_mount_is_recognised() {
        assert!(is_fake(&words("mount.remora nas:/srv /mnt -nf")));
        assert!(!is_fake(&words("mount.remora nas:/srv /mnt -n -o file")));
        assert!(!is_fake(&words("remora mount -f nas:/srv /mnt")));
    }
}
