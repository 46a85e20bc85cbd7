//! Rules about the text of a file. Each rule takes one file and returns its violations.

use super::violation::{File, Violation};

/// A longer file has two subjects.
const LINES_MAX: usize = 800;

/// Endings of the names of files that these rules read.
const TEXT: &[&str] = &[".rs", ".toml", ".md", ".sh", ".yml", ".c", ".h", ".py", ".ci/run"];

/// Marks of unfinished Rust code, and what to do. (Split in halves, because this file is checked too.)
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it"),
    (concat!("unimple", "mented!("), "finish it, or return an error"),
    (concat!("db", "g!("), "remove it, or use tracing"),
    (concat!("#[ign", "ore"), "fix the test; if it lacks something here, let it call skip::skipped"),
];

/// Directories that exist on one machine only.
const MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

const RULES: &[fn(&File) -> Vec<Violation>] = &[length, header, unfinished, unheard, spaces, machine_paths];

/// Applies all rules to all files.
pub(super) fn check_all(files: &[File]) -> Vec<Violation> {
    let text = files.iter().filter(|f| TEXT.iter().any(|end| f.path.ends_with(end)));
    text.flat_map(|f| RULES.iter().flat_map(move |rule| rule(f))).collect()
}

fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

/// A Rust file has a limited length.
fn length(file: &File) -> Vec<Violation> {
    let lines = file.text.lines().count();
    let long = is_rust(file) && lines > LINES_MAX;
    let what = || format!("{lines} lines, at most {LINES_MAX}: find the seam and split the file");
    long.then(|| Violation::new(&file.path, LINES_MAX + 1, what())).into_iter().collect()
}

/// A Rust file begins with a module comment.
fn header(file: &File) -> Vec<Violation> {
    let bare = is_rust(file) && !file.text.starts_with("//! ");
    let what = "begin with //! lines: what this is, and which paper or RFC section it follows";
    bare.then(|| Violation::new(&file.path, 1, what)).into_iter().collect()
}

/// Code is finished.
fn unfinished(file: &File) -> Vec<Violation> {
    if !is_rust(file) {
        return Vec::new();
    }
    lines(file, |line| {
        let (bad, instead) = UNFINISHED.iter().find(|(bad, _)| line.contains(bad))?;
        Some(format!("{bad}...: {instead}"))
    })
}

/// A test that cannot run reports that to `cargo xtask test`; libtest swallows printed lines.
fn unheard(file: &File) -> Vec<Violation> {
    if !is_rust(file) {
        return Vec::new();
    }
    lines(file, |line| {
        let prints = ["print!(", "println!(", "write!(", "writeln!("].iter().any(|print| line.contains(print));
        (prints && line.contains("\"SKIPPED")).then(|| "libtest swallows this: call skip::skipped".to_owned())
    })
}

/// No tabs, and no spaces at line ends.
fn spaces(file: &File) -> Vec<Violation> {
    lines(file, |line| {
        if line.contains('\t') {
            Some("a tab: use spaces".to_owned())
        } else if line.ends_with([' ', '\r']) {
            Some("space at the end of the line: remove it".to_owned())
        } else {
            None
        }
    })
}

/// No paths of one machine.
fn machine_paths(file: &File) -> Vec<Violation> {
    lines(file, |line| {
        let path = MACHINE.iter().find(|p| line.match_indices(*p).any(|(at, _)| begins_path(line, at)))?;
        Some(format!("{path} is a folder of one machine: name the file from the project's root"))
    })
}

/// Whether an absolute path begins at byte `at`, rather than a part of a longer path or URL.
fn begins_path(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~*".contains(c))
}

/// A violation for each line for which `judge` returns a message.
fn lines(file: &File, judge: impl Fn(&str) -> Option<String>) -> Vec<Violation> {
    let judged = file.text.split('\n').enumerate().filter_map(|(i, line)| Some((i + 1, judge(line)?)));
    judged.map(|(at, what)| Violation::new(&file.path, at, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    fn at(rule: fn(&File) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        rule(&file(path, text)).iter().map(|v| v.line).collect()
    }

    #[test]
    fn each_rule_finds_what_it_is_for() {
        type Rule = fn(&File) -> Vec<Violation>;
        let work = format!("see {}x", MACHINE[0]);
        let url = format!("http://example.org{}x and a{}b", MACHINE[0], MACHINE[1]);
        let call = format!("ok\n  {}\"later\")\n", UNFINISHED[0].0);
        let skip = format!("{}]\nfn f() {{}}", UNFINISHED[3].0);
        let silent = format!("ok\n eprintln{}\n", "!(\"SKIPPED ls: no root\");");
        let (full, long) = ("x\n".repeat(LINES_MAX), "x\n".repeat(LINES_MAX + 1));
        let cases: &[(Rule, &str, &str, &[usize])] = &[
            (length, "a.rs", &full, &[]),
            (length, "a.rs", &long, &[LINES_MAX + 1]),
            (length, "a.md", &long, &[]),
            (header, "a.rs", "//! A thing.\n", &[]),
            (header, "a.rs", "use x;\n//! late\n", &[1]),
            (header, "a.rs", "", &[1]),
            (header, "a.toml", "x = 1\n", &[]),
            (unfinished, "a.rs", &call, &[2]),
            (unfinished, "a.rs", &skip, &[1]),
            (unfinished, "a.md", &call, &[]),
            (unheard, "a.rs", &silent, &[2]),
            (unheard, "a.rs", "let why = \"SKIPPED ls: no nfs-ls\";\n", &[]),
            (spaces, "a.rs", "a\n\tb\nc \n", &[2, 3]),
            (spaces, "a.md", "a\r\nb\n", &[1]),
            (spaces, "a.md", "a b\n", &[]),
            (machine_paths, "a.md", &work, &[1]),
            (machine_paths, "a.md", &url, &[]),
        ];
        for (i, (rule, path, text, expected)) in cases.iter().enumerate() {
            assert_eq!(at(*rule, path, text), *expected, "case {i}: {path}: {text:.40}");
        }
    }

    #[test]
    fn only_text_files_are_read() {
        assert!(check_all(&[file("a.svg", "\t \n")]).is_empty());
        assert_eq!(check_all(&[file(".ci/run", "\t\n")]).len(), 1);
    }
}
