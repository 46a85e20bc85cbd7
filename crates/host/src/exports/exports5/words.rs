//! Words of an exports(5) file: quotes, octal escapes, comments and continuation lines.

use std::iter::Peekable;
use std::str::Chars;

use super::super::types::Wrong;

/// A word, and the line (from 1) where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Word {
    /// An error about this word.
    pub(super) fn wrong(&self, why: String) -> Wrong {
        Wrong::at(self.line, why)
    }
}

/// The words of each line that is not empty. A backslash at the end of a line continues it, as in Linux even in a
/// comment.
pub(super) fn lines(text: &str) -> Result<Vec<Vec<Word>>, Wrong> {
    let mut reader = Reader { chars: text.chars().peekable(), line: 1 };
    let mut lines = Vec::new();
    while reader.chars.peek().is_some() {
        let words = reader.words()?;
        if !words.is_empty() {
            lines.push(words);
        }
    }
    Ok(lines)
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    /// The line of the next character, from 1.
    line: usize,
}

/// A decoded character.
enum Part {
    /// Without special meaning.
    Plain(char),
    /// A byte written in octal.
    Byte(u8),
    Blank,
    Quote,
    Comment,
    EndOfLine,
}

impl Reader<'_> {
    /// The words up to the end of the line.
    fn words(&mut self) -> Result<Vec<Word>, Wrong> {
        let mut words = Vec::new();
        loop {
            let line = self.line;
            match self.part(false)? {
                Part::Blank => {}
                Part::EndOfLine => return Ok(words),
                Part::Comment => {
                    self.skip_comment();
                    return Ok(words);
                }
                first => {
                    let (text, end) = self.word(first, line)?;
                    words.push(Word { line, text });
                    match end {
                        Part::Comment => {
                            self.skip_comment();
                            return Ok(words);
                        }
                        Part::EndOfLine => return Ok(words),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The word that begins with `part`, and the part that ended it.
    fn word(&mut self, mut part: Part, line: usize) -> Result<(String, Part), Wrong> {
        let (mut bytes, mut quoted) = (Vec::new(), false);
        loop {
            match part {
                Part::Plain(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                Part::Byte(b) => bytes.push(b),
                Part::Quote => quoted = !quoted,
                Part::EndOfLine if quoted => return Err(Wrong::at(line, "a quote is not closed".into())),
                end => {
                    let text = String::from_utf8(bytes);
                    let text = text.map_err(|_| Wrong::at(line, "a path that is not UTF-8 is not supported".into()))?;
                    return Ok((text, end));
                }
            }
            part = self.part(quoted)?;
        }
    }

    /// Decodes the next character.
    fn part(&mut self, quoted: bool) -> Result<Part, Wrong> {
        let Some(c) = self.next() else { return Ok(Part::EndOfLine) };
        Ok(match c {
            '\n' => Part::EndOfLine,
            '"' => Part::Quote,
            '\\' if self.chars.peek() == Some(&'\n') => {
                self.next();
                Part::Blank
            }
            '\\' => Part::Byte(self.octal()?),
            ' ' | '\t' | '\r' if !quoted => Part::Blank,
            '#' if !quoted => Part::Comment,
            c => Part::Plain(c),
        })
    }

    /// Decodes three octal digits.
    fn octal(&mut self) -> Result<u8, Wrong> {
        let wrong = || Wrong::at(self.line, "behind '\\' three octal digits are expected, as in \\040".into());
        let digits: Option<String> = {
            let mut chars = self.chars.clone();
            (0..3).map(|_| chars.next().filter(|c| c.is_digit(8))).collect()
        };
        let byte = digits.and_then(|d| u8::from_str_radix(&d, 8).ok()).filter(|b| *b != 0).ok_or_else(wrong)?;
        for _ in 0..3 {
            self.next();
        }
        Ok(byte)
    }

    fn skip_comment(&mut self) {
        let mut goes_on = false;
        while let Some(c) = self.next() {
            if c == '\n' && !goes_on {
                return;
            }
            goes_on = c == '\\';
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line number and its content.
    type At = (usize, String);

    fn read(text: &str) -> Result<Vec<Vec<At>>, At> {
        let lines = lines(text).map_err(|w| (w.line, w.why))?;
        Ok(lines.into_iter().map(|l| l.into_iter().map(|w| (w.line, w.text)).collect()).collect())
    }

    #[test]
    fn words_follow_exports_5() {
        let line = |words: &[(usize, &str)]| words.iter().map(|(n, w)| (*n, (*w).to_owned())).collect::<Vec<_>>();
        for (text, want) in [
            ("", vec![]),
            (" \t\n\n# nothing\n", vec![]),
            ("/a b\tc # d\n/e", vec![line(&[(1, "/a"), (1, "b"), (1, "c")]), line(&[(2, "/e")])]),
            ("/a#b", vec![line(&[(1, "/a")])]),
            ("\"/a b#c\" *", vec![line(&[(1, "/a b#c"), (1, "*")])]),
            ("/a\\040b\\043 *\r\n", vec![line(&[(1, "/a b#"), (1, "*")])]),
            ("/gr\\303\\274n \"/grün\\040\"", vec![line(&[(1, "/grün"), (1, "/grün ")])]),
            ("/a b \\\n  c\n/d", vec![line(&[(1, "/a"), (1, "b"), (2, "c")]), line(&[(3, "/d")])]),
            ("/a\\\nb", vec![line(&[(1, "/a"), (2, "b")])]),
            ("# x \\\n/a *\n/b *", vec![line(&[(3, "/b"), (3, "*")])]),
        ] {
            assert_eq!(read(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn broken_words_are_refused_where_they_begin() {
        let octal = "behind '\\' three octal digits are expected, as in \\040";
        for (text, line, why) in [
            ("/a\n\"/b *\n", 2, "a quote is not closed"),
            ("\n\"/b", 2, "a quote is not closed"),
            ("/a\\", 1, octal),
            ("/a\\04", 1, octal),
            ("/a\\n", 1, octal),
            ("/a\\400", 1, octal),
            ("/a\\000", 1, octal),
            ("/a\\377 *", 1, "a path that is not UTF-8 is not supported"),
        ] {
            assert_eq!(read(text), Err((line, why.to_owned())), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_path_can_be_written(path in "/[^\u{0}]{0,20}") {
            let written: String = path.bytes().map(|b| format!("\\{b:03o}")).collect();
            let lines = lines(&format!("{written} *")).unwrap();
            proptest::prop_assert_eq!(&lines[0][0].text, &path);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".{0,60}") {
            let _ = lines(&text);
        }
    }
}
