//! Names of conflict copies.

use remora_wire::nfs3::Name;

/// Longest name in bytes.
const NAME_MAX: usize = 255;
/// Longest part of the host's name, and longest extension, in bytes.
const HOST_MAX: usize = 32;
const EXTENSION_MAX: usize = 16;

/// `NAME (conflict from HOST YYYY-MM-DD HHMM).EXT`, at most 255 bytes and valid on other systems. `secs` is the time since
/// 1970; from the second `number` on the name has a counter.
pub(crate) fn conflict_name(name: &[u8], host: &[u8], secs: i64, number: u32) -> Name {
    let (stem, extension) = split(name);
    let host: String = host.iter().take(HOST_MAX).map(|byte| plain(*byte)).collect();
    let host = if host.is_empty() { "a client" } else { &host };
    let counter = if number > 1 { format!(" {number}") } else { String::new() };
    let mark = format!(" (conflict from {host} {}{counter})", date(secs));
    let room = NAME_MAX - mark.len() - extension.len();
    let mut copy = cut(stem, room).to_vec();
    copy.extend_from_slice(mark.as_bytes());
    copy.extend_from_slice(extension);
    copy.into()
}

/// The name without its extension, and the extension with its dot.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0 && name.len() - at <= EXTENSION_MAX);
    name.split_at(dot.unwrap_or(name.len()))
}

/// The beginning of `stem` that fits into `room` bytes, without a part of a character of UTF-8.
fn cut(stem: &[u8], room: usize) -> &[u8] {
    if stem.len() <= room {
        return stem;
    }
    let is_continued = |byte: u8| byte & 0xc0 == 0x80;
    let end = (0..=room).rev().find(|at| !is_continued(stem[*at])).unwrap_or(room);
    &stem[..end]
}

fn plain(byte: u8) -> char {
    if byte.is_ascii_alphanumeric() || byte == b'-' { char::from(byte) } else { '-' }
}

/// `YYYY-MM-DD HHMM` in UTC.
fn date(secs: i64) -> String {
    let time = jiff::Timestamp::from_second(secs).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d %H%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_name_has_host_and_date() {
        for (name, host, secs, number, expected) in [
            ("a.txt", "lap", 0, 1, "a (conflict from lap 1970-01-01 0000).txt"),
            ("a.txt", "lap", 951_782_400, 1, "a (conflict from lap 2000-02-29 0000).txt"),
            (".profile", "lap:1", 1_795_996_740, 2, ".profile (conflict from lap-1 2026-11-29 2359 2)"),
            ("x.tar.gz", "", -60, 1, "x.tar (conflict from a client 1969-12-31 2359).gz"),
        ] {
            let copy = conflict_name(name.as_bytes(), host.as_bytes(), secs, number);
            assert_eq!(String::from_utf8_lossy(&copy), expected, "{name} at {secs}");
        }
    }

    #[test]
    fn conflict_name_of_longest_name_fits() {
        for name in ["é".repeat(127), format!("{}.jpeg", "x".repeat(250)), format!("{}{}", "x".repeat(250), ".txt")] {
            let copy = conflict_name(name.as_bytes(), &[b'h'; 100], 0, 1000);
            assert!(copy.len() <= NAME_MAX && std::str::from_utf8(&copy).is_ok(), "{copy:?}");
        }
    }
}
