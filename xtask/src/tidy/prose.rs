//! Rules about English: constructs that a reader has to decode, empty comments, long lines of documents.

use super::violation::{File, Violation};

/// The width of a document's line outside tables and examples, in characters.
const DOCUMENT_COLUMNS_MAX: usize = 110;
/// A doc comment of fewer words repeats the name of its item.
const COMMENT_WORDS_MIN: usize = 3;

/// Constructs that hide who does what to what, and the plain way. All are matched as whole words, in any case.
const DECODED: &[(&str, &str)] = &[
    ("whoever", "name the actor: the client, the server, a thread, the caller"),
    ("whomever", "name the actor"),
    ("who asks", "name the actor: the client, the caller"),
    ("who asked", "name the actor: the client, the caller"),
    ("whom it", "name the actor"),
    ("be it", "use `whether` or list the cases"),
    ("is told", "say who notifies whom: `the caller receives an event`"),
    ("are told", "say who notifies whom"),
    ("for so long", "give the time, or `until` and the event"),
    ("be that as", "delete it"),
    ("what was sent", "name it: the request, the packet, the bytes in flight"),
    ("what is gone", "name it: the closed connection, the removed file"),
    ("something that is", "name the thing"),
    ("once more ends", "name the actor: `a second signal`"),
    ("there and back", "round trip"),
    ("sent again for nothing", "spurious retransmission"),
];

/// Checks Rust sources and documents.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        if file.path.ends_with(".rs") {
            found.extend(empty_comments(file));
            found.extend(constructs(file, comment));
        } else if file.path.ends_with(".md") {
            found.extend(columns(file));
            found.extend(constructs(file, |line| Some(line)));
        }
    }
    found
}

/// The comment of a line of Rust.
fn comment(line: &str) -> Option<&str> {
    let at = line.find("//")?;
    // `://` is part of a URL in a string.
    (!line[..at].ends_with(':')).then(|| &line[at..])
}

fn constructs(file: &File, prose: fn(&str) -> Option<&str>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, line) in file.text.lines().enumerate() {
        let Some(text) = prose(line) else { continue };
        let text = text.to_lowercase();
        for (construct, instead) in DECODED {
            if text.match_indices(construct).any(|(at, _)| is_whole(&text, at, construct.len())) {
                found.push(Violation::new(&file.path, i + 1, format!("\"{construct}\": {instead}")));
            }
        }
    }
    found
}

/// Whether no letter stands right before or behind.
fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    !letter(text[..at].chars().next_back()) && !letter(text[at + length..].chars().next())
}

/// Comments of one or two words.
fn empty_comments(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut before = false;
    let lines: Vec<&str> = file.text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let doc = line.trim_start().strip_prefix("/// ");
        let goes_on = lines.get(i + 1).is_some_and(|next| next.trim_start().starts_with("///"));
        if let Some(text) = doc
            && !before
            && !goes_on
            && text.split_whitespace().count() < COMMENT_WORDS_MIN
        {
            let what = format!("/// {text}: say what the name does not, or delete the comment");
            found.push(Violation::new(&file.path, i + 1, what));
        }
        before = line.trim_start().starts_with("///");
    }
    found
}

/// Lines of a document that are too wide for a terminal beside an editor.
fn columns(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut in_example = false;
    for (i, line) in file.text.lines().enumerate() {
        in_example ^= line.trim_start().starts_with("```");
        let columns = line.chars().count();
        if !in_example && !line.starts_with('|') && columns > DOCUMENT_COLUMNS_MAX && line.contains(' ') {
            let what = format!("{columns} columns, at most {DOCUMENT_COLUMNS_MAX}: break the line");
            found.push(Violation::new(&file.path, i + 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    #[test]
    fn prose_rule_finds_what_it_is_for() {
        let wide = format!("{} b\n", "a".repeat(DOCUMENT_COLUMNS_MAX));
        let asker = format!("// The client {}.\n", DECODED[2].0);
        let cases: &[(&str, &str, &[usize])] = &[
            ("a.rs", "/// Its name.\nname: String,\n", &[1]),
            ("a.rs", "/// Says more.\n/// Much more than its name.\n", &[]),
            ("a.rs", &asker, &[1]),
            ("a.rs", &format!("let a = \"http://{}\";\n", DECODED[2].0), &[]),
            ("a.rs", "// A maybe it is.\n", &[]),
            ("a.md", &asker, &[1]),
            ("a.md", &wide, &[1]),
            ("a.md", &format!("| {wide}"), &[]),
            ("a.md", &format!("```console\n{wide}```\n"), &[]),
            ("a.md", &"a".repeat(DOCUMENT_COLUMNS_MAX + 1), &[]),
        ];
        for (path, text, expected) in cases {
            let lines: Vec<usize> = check(&[file(path, text)]).iter().map(|v| v.line).collect();
            assert_eq!(lines, *expected, "{path}: {text:.40}");
        }
    }
}
