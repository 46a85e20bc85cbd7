//! One line of strace's output: which program called what, with which result.

use std::borrow::Cow;

/// A line that tells of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StraceLine<'a> {
    pub(super) pid: u32,
    /// Name of the program, as `--decode-pids=comm` shows it.
    pub(super) program: Option<&'a str>,
    pub(super) at_ms: u64,
    pub(super) event: StraceEvent<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StraceEvent<'a> {
    /// A whole call, with its arguments and result.
    Call(&'a str),
    /// The beginning of a call that another process interrupts.
    Unfinished(&'a str),
    /// The rest of one.
    Resumed(&'a str),
    /// A signal or an exit.
    Other,
}

/// The parts of a line; `None` if it is not strace's.
pub(super) fn parse_line(line: &str) -> Option<StraceLine<'_>> {
    let digits = line.find(|c: char| !c.is_ascii_digit())?;
    let (pid, rest) = line.split_at(digits);
    let (program, rest) = match rest.strip_prefix('<') {
        Some(rest) => rest.split_once("> ").map(|(name, rest)| (Some(name), rest))?,
        None => (None, rest),
    };
    let (time, rest) = rest.trim_start().split_once(' ')?;
    let (seconds, fraction) = time.split_once('.')?;
    let milliseconds: u64 = fraction.get(..3)?.parse().ok()?;
    let at_ms = seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(milliseconds)?;
    let rest = rest.trim_start();
    let event = if rest.starts_with("+++") || rest.starts_with("---") {
        StraceEvent::Other
    } else if let Some(rest) = rest.strip_prefix("<... ") {
        StraceEvent::Resumed(rest.split_once(" resumed>")?.1)
    } else if let Some(call) = rest.strip_suffix("<unfinished ...>") {
        StraceEvent::Unfinished(call.trim_end())
    } else {
        rest.contains('(').then_some(StraceEvent::Call(rest))?
    };
    Some(StraceLine { pid: pid.parse().ok()?, program, at_ms, event })
}

/// A call with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StraceCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Vec<&'a str>,
    /// What follows the equals sign.
    pub(super) result: &'a str,
}

/// The parts of a call; `None` if it is not one.
pub(super) fn parse_call(call: &str) -> Option<StraceCall<'_>> {
    let (name, rest) = call.split_once('(')?;
    let (mut arguments, mut start, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0u32, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' | '(' | '<' => depth += 1,
            ')' if depth == 0 => {
                arguments.push(rest.get(start..at)?.trim());
                let (_, result) = rest.get(at + 1..)?.split_once("= ")?;
                return Some(StraceCall { name, arguments, result: result.trim_end() });
            }
            '}' | ']' | ')' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                arguments.push(rest.get(start..at)?.trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// The path that `--decode-fds=path` shows behind a descriptor, as in `3</home/a>`.
pub(super) fn shown_path(descriptor: &str) -> Option<Cow<'_, str>> {
    let (_, path) = descriptor.split_once('<')?;
    let (path, _) = path.rsplit_once('>')?;
    path.starts_with('/').then(|| unescaped(path))
}

/// The text of a quoted argument.
pub(super) fn quoted(argument: &str) -> Option<Cow<'_, str>> {
    argument.strip_prefix('"')?.strip_suffix('"').map(unescaped)
}

/// Text without strace's escapes, which are C's; bytes that are not UTF-8 become U+FFFD.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let mut octal = None;
        for _ in 0..3 {
            let Some(digit) = rest.next_if(|byte| (b'0'..=b'7').contains(byte)) else { break };
            octal = Some(octal.unwrap_or(0u32) * 8 + u32::from(digit - b'0'));
        }
        match (octal, octal.is_none().then(|| rest.next()).flatten()) {
            (Some(code), _) => bytes.push(code as u8),
            (None, Some(b'n')) => bytes.push(b'\n'),
            (None, Some(b't')) => bytes.push(b'\t'),
            (None, Some(other)) => bytes.push(other),
            (None, None) => {}
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_program_time_and_event() {
        let line = |event| StraceLine { pid: 7, program: Some("opt cgu.0"), at_ms: 1012, event };
        for (text, event) in [
            ("open(\"a\") = 3", StraceEvent::Call("open(\"a\") = 3")),
            ("open(\"a\" <unfinished ...>", StraceEvent::Unfinished("open(\"a\"")),
            ("<... open resumed>) = 3", StraceEvent::Resumed(") = 3")),
            ("+++ exited with 0 +++", StraceEvent::Other),
        ] {
            let text = format!("7<opt cgu.0> 1.012999 {text}");
            assert_eq!(parse_line(&text), Some(line(event)), "{text}");
        }
        let plain = parse_line("12   3.500000 close(3) = 0").unwrap();
        assert_eq!((plain.pid, plain.program, plain.at_ms), (12, None, 3500));
    }

    #[test]
    fn line_of_another_format_is_refused() {
        for text in
            ["", "7", "7 ", "x 1.0 open() = 3", "7 1 open() = 3", "7 1.0 open() = 3", "7<a 1.000 open()", "7 1.000 a"]
        {
            assert_eq!(parse_line(text), None, "{text}");
        }
    }

    #[test]
    fn arguments_are_separated_outside_of_brackets() {
        let text = r#"newfstatat(3</a,b>, "x\", (y", {st_mode=S_IFREG|0644, st_size=4, ...}, 0) = 0"#;
        let call = parse_call(text).unwrap();
        let stat = "{st_mode=S_IFREG|0644, st_size=4, ...}";
        assert_eq!(
            call,
            StraceCall { name: "newfstatat", arguments: vec!["3</a,b>", r#""x\", (y""#, stat, "0"], result: "0" }
        );
        assert_eq!(parse_call("open(\"a\""), None);
        assert_eq!(parse_call("open(\"a\") ?"), None);
    }

    #[test]
    fn escapes_of_paths_are_undone() {
        assert_eq!(shown_path(r"3</a\76b\303\244>").as_deref(), Some("/a>b\u{e4}"));
        assert_eq!(shown_path("3<socket:[1]>"), None);
        assert_eq!(quoted(r#""a\"b\n""#).as_deref(), Some("a\"b\n"));
        assert_eq!(quoted("NULL"), None);
    }
}
