//! Numbers and names as text and as HTML.

/// A file size, as in `5 MB`.
pub(crate) fn megabytes(bytes: u64) -> String {
    if bytes < 10_000 { format!("{bytes} B") } else { format!("{} MB", figure(bytes as f64 / 1e6)) }
}

/// Three significant digits without trailing zeros.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "cut off".into();
    }
    trimmed(&rounded(value, 3, 3)).to_owned()
}

/// `value` with so many significant digits, but at most `decimals_max` after the point.
pub(crate) fn rounded(value: f64, significant: i32, decimals_max: i32) -> String {
    let decimals = match value.abs() {
        0.0 => decimals_max,
        magnitude => (significant - 1 - magnitude.log10().floor() as i32).clamp(0, decimals_max),
    };
    format!("{value:.*}", decimals as usize)
}

pub fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() { format!("{value}") } else { rounded(value, 4, 9) }
}

/// Removes zeros at the end of a decimal fraction.
pub(crate) fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// `1 run`, `2 runs`.
pub(crate) fn count(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// `value` as text, or an empty cell.
pub(crate) fn or_empty<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map(show).unwrap_or_default()
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_any_magnitude_are_four() {
        for (value, text) in
            [(0.0, "0"), (1234.56, "1235"), (0.0123449, "0.01234"), (12.3456, "12.35"), (1e6, "1000000")]
        {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn rounded_value_keeps_its_decimals_limit() {
        for (x, text) in [(0.0, "0.00"), (9.876, "9.88"), (98.76, "98.8"), (987.6, "988"), (98765.4, "98765")] {
            assert_eq!(rounded(x, 3, 2), text);
        }
    }

    #[test]
    fn trimmed_text_keeps_zeros_before_the_point() {
        assert_eq!([trimmed("1.500"), trimmed("2.00"), trimmed("100")], ["1.5", "2", "100"]);
    }
}
