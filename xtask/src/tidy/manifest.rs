//! The rule that each dependency is declared once, in the root manifest, with a reason.

use super::violation::{File, Violation};

/// Checks the root manifest and those of the members.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let manifests = files.iter().filter(|f| is_manifest(&f.path));
    manifests.flat_map(|f| if f.path == "Cargo.toml" { reasons(f) } else { inherited(f) }).collect()
}

/// The manifests of the workspace; `fuzz` is outside it.
fn is_manifest(path: &str) -> bool {
    path == "Cargo.toml" || (path.ends_with("/Cargo.toml") && !path.starts_with("fuzz/"))
}

/// Every dependency on an external crate has a comment with the reason.
fn reasons(manifest: &File) -> Vec<Violation> {
    let lines = section_lines(manifest, |section| section == "workspace.dependencies");
    let bare = lines.filter(|(_, line)| !line.contains("path = ") && !reason(line));
    bare.map(|(at, line)| {
        let name = line.split(['=', ' ']).next().unwrap_or(line);
        Violation::new(&manifest.path, at, format!("{name}: say on its line why it is a dependency: # reason"))
    })
    .collect()
}

/// Whether a comment with words follows the entry.
fn reason(line: &str) -> bool {
    line.rsplit_once('#').is_some_and(|(_, why)| why.chars().any(char::is_alphabetic))
}

/// Members inherit versions from the root.
fn inherited(manifest: &File) -> Vec<Violation> {
    let lines = section_lines(manifest, |section| section.ends_with("dependencies"));
    let own = lines.filter(|(_, line)| !line.contains("workspace = true"));
    own.map(|(at, _)| {
        Violation::new(&manifest.path, at, "declare it in the root Cargo.toml and write NAME.workspace = true")
    })
    .collect()
}

/// The entries of the chosen sections with their line numbers.
fn section_lines(manifest: &File, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.text.lines().enumerate().filter_map(move |(i, line)| {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            inside = wanted(section);
            return None;
        }
        // An entry continues on lines that are indented or close a bracket.
        let entry = line.starts_with(|c: char| c.is_ascii_alphanumeric());
        (inside && entry).then_some((i + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&[file(path, text)]).iter().map(|v| v.line).collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let root = "[workspace.dependencies]\nours = { path = \"x\" }\nbytes = \"1\"  # slices\nurl = \"2\"\n\n[profile]\na = 1\n";
        assert_eq!(lines("Cargo.toml", root), [4]);
        assert_eq!(lines("Cargo.toml", "[workspace.dependencies]\nurl = \"2\" #\n"), [2]);
    }

    #[test]
    fn a_version_in_a_member_is_found() {
        let member = "[package]\nname = \"x\"\n[dependencies]\nbytes.workspace = true\nurl = \"2\"\n\n[dev-dependencies]\nproptest = \"1\"\n[lints]\nworkspace = true\n";
        assert_eq!(lines("crates/x/Cargo.toml", member), [5, 8]);
        assert_eq!(lines("fuzz/Cargo.toml", member), [0; 0]);
    }
}
