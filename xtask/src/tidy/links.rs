//! The rule that required documents exist and that links inside the project have targets.

use super::violation::{File, Violation};

/// Documents that must exist in the root or in `docs/`.
const REQUIRED: &[&str] =
    &["README.md", "ARCHITECTURE.md", "SEMANTICS.md", "SECURITY.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Checks the documents. `exists` knows the project's files and folders.
pub(super) fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    for name in REQUIRED {
        if !exists(name) && !exists(&format!("docs/{name}")) {
            found.push(Violation::new(name, 1, "is missing: write it"));
        }
    }
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        found.extend(dead_links(file, &exists));
    }
    found
}

fn dead_links(file: &File, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut code = false;
    for (i, line) in file.text.lines().enumerate() {
        code ^= line.trim_start().starts_with("```");
        for target in if code { Vec::new() } else { targets(line) } {
            let resolved = resolve(&file.path, target);
            if !resolved.as_deref().is_some_and(&exists) {
                let what = format!("the link to {target} leads nowhere: correct it or write the file");
                found.push(Violation::new(&file.path, i + 1, what));
            }
        }
    }
    found
}

/// The files that a line of Markdown links to (`](target)`), without addresses and anchors.
fn targets(line: &str) -> Vec<&str> {
    let behind = line.split("](").skip(1);
    let target = behind.filter_map(|rest| rest.split(')').next()?.split(['#', ' ']).next());
    target.filter(|t| !t.is_empty() && !t.contains("://") && !t.starts_with("mailto:")).collect()
}

/// `target` as seen from the document `from`, or `None` if it is outside the project.
fn resolve(from: &str, target: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    #[test]
    fn dead_links_are_found_where_they_stand() {
        let exists = |p: &str| ["docs/a.md", "README.md", "docs", ""].contains(&p) || REQUIRED.contains(&p);
        let cases: &[(&str, &[usize])] = &[
            ("[a](a.md) and [up](../README.md#top)", &[]),
            ("[a](b.md)", &[1]),
            ("fine\n[a](a.md) [b](../a.md)", &[2]),
            ("[out](../../etc)", &[1]),
            ("[web](https://example.org/x) [here](#section) [mail](mailto:a@b)", &[]),
            ("```\n[code](nowhere)\n```\n[dead](nowhere)", &[4]),
        ];
        for (text, lines) in cases {
            let found = check(&[file("docs/x.md", text)], exists);
            assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), *lines, "{text}");
        }
    }

    #[test]
    fn missing_documents_are_found() {
        assert_eq!(check(&[], |p| !p.ends_with("SEMANTICS.md")).len(), 1);
        assert_eq!(check(&[], |p| p.starts_with("docs/")).len(), 0);
        assert_eq!(check(&[], |_| false).len(), REQUIRED.len());
    }
}
