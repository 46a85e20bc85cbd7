//! Names and URLs escaped for the terminal.

/// A name for the terminal: replaces invalid UTF-8, escapes control characters and invisible ones, so that a name can
/// neither control the terminal nor imitate another.
pub(crate) fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let plays_tricks = |c: char| c.is_control() || rearranges(c) || is_invisible(c);
    let escape = |c: char| if plays_tricks(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Whether a character changes the order or line of its neighbours: `gpj.exe` can look like `exe.jpg`.
pub(crate) fn rearranges(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is invisible. The two joiners are not counted: they change their neighbours, and many scripts
/// and emoji need them.
fn is_invisible(c: char) -> bool {
    let alone = matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{feff}');
    alone || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The URL of `name` in the directory `url`, for the terminal. The query stays at the end.
pub(crate) fn child_url(url: &str, name: &[u8]) -> String {
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let name = printable(name).replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("{}/{name}{query}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_entries_can_be_used_again() {
        for (dir, name, url) in [
            ("nfs://h/a", &b"b"[..], "nfs://h/a/b"),
            ("nfs://h:1/", b"b", "nfs://h:1/b"),
            ("nfs://h/a/?proto=tcp&mountport=2", b"b", "nfs://h/a/b?proto=tcp&mountport=2"),
            ("nfs://h/a", b"100%? #1\n", "nfs://h/a/100%25%3F %231\\n"),
        ] {
            assert_eq!(child_url(dir, name), url);
        }
    }

    #[test]
    fn names_cannot_play_tricks() {
        for (name, text) in [
            (&b"a b"[..], "a b"),
            ("é".as_bytes(), "é"),
            (b"a\x1b[2Jb\n", "a\\u{1b}[2Jb\\n"),
            ("a\u{202e}gpj.exe".as_bytes(), "a\\u{202e}gpj.exe"),
            ("\u{61c}\u{200f}\u{2028}\u{2066}".as_bytes(), "\\u{61c}\\u{200f}\\u{2028}\\u{2066}"),
            ("a\u{200b}\u{feff}\u{ad}\u{e0061}b".as_bytes(), "a\\u{200b}\\u{feff}\\u{ad}\\u{e0061}b"),
            // Hebrew, Persian with a joiner, a family: as they are.
            ("שלום می\u{200c}خواهم 👨\u{200d}👧".as_bytes(), "שלום می\u{200c}خواهم 👨\u{200d}👧"),
        ] {
            assert_eq!(printable(name), text);
        }
    }
}
