//! The rule that each deterministic crate has a `clippy.toml` that forbids clocks, threads, sockets and ambient
//! randomness.

use super::violation::{File, Violation};

/// Crates whose behaviour is a function of their inputs.
const DETERMINISTIC: &[&str] =
    &["base", "wire", "vfs", "server", "client", "cache", "atp", "link", "channel", "model", "sim"];

/// A line of the file that all of them share.
const MARK: &str = "std::time::Instant::now";

/// Checks that each of these crates has the file.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let has = |path: &str, mark: &str| files.iter().any(|f| f.path == path && f.text.contains(mark));
    let mut found = Vec::new();
    for name in DETERMINISTIC {
        let (manifest, lints) = (format!("crates/{name}/Cargo.toml"), format!("crates/{name}/clippy.toml"));
        if has(&manifest, "") && !has(&lints, MARK) {
            let what = format!("clippy does not forbid clocks here: ln -s ../base/clippy.toml {lints}");
            found.push(Violation::new(&manifest, 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    #[test]
    fn a_deterministic_crate_without_the_lints_is_found() {
        let manifest = || file("crates/wire/Cargo.toml", "[package]\n");
        let lints = |text| file("crates/wire/clippy.toml", text);
        assert_eq!(check(&[manifest()]).len(), 1);
        assert_eq!(check(&[manifest(), lints("disallowed-methods = []\n")]).len(), 1);
        assert!(check(&[manifest(), lints("\"std::time::Instant::now\"\n")]).is_empty());
        assert!(check(&[file("crates/host/Cargo.toml", "")]).is_empty());
    }
}
