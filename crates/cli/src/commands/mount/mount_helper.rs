//! The command line of mount(8)'s helpers: `mount.remora URL DIR [-sfnv] [-o OPTIONS]`, as for lines of fstab(5) with
//! the type `remora`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name by which mount(8) calls the program.
const NAME: &str = "mount.remora";

/// The command line of `remora mount`, if these words are those of the helper.
pub(crate) fn translated(words: Vec<OsString>) -> Vec<OsString> {
    let is_helper = words.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new(NAME)));
    if !is_helper {
        return words;
    }
    let mut translated: Vec<OsString> = ["remora", "mount"].map(OsString::from).into();
    let mut rest = words.into_iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            // Its value is the namespace, or the type.
            Some("-N" | "-t") => drop(rest.next()),
            // Sloppy options, no mtab, verbose: nothing to do.
            Some("-s" | "-n" | "-v") => {}
            _ => translated.push(word),
        }
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn helper_line_becomes_that_of_the_command() {
        let line = "/sbin/mount.remora nas:/srv /mnt -n -t remora -o rw,_netdev";
        assert_eq!(translated(words(line)), words("remora mount nas:/srv /mnt -o rw,_netdev"));
        assert_eq!(translated(words("remora ls -n")), words("remora ls -n"));
    }
}
