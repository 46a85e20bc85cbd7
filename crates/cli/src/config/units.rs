//! Durations, sizes and dates, as people write and read them.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Reads `5us`, `700ms`, `1.5s`, `2m`, `1h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a length of time: expected one as in 700ms, 1.5s, 2m or 1h");
    let (number, unit) = split(text);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<f64>().map_err(|_| bad())? * factor;
    if !(0.0..=1e8).contains(&seconds) {
        return Err(format!("'{text}' is out of range"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The same, and not nothing: what takes time cannot be done in none.
#[cfg(feature = "lab")]
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("the time must be above 0".to_owned()) } else { Ok(time) }
}

/// Reads `4096`, `8K`, `32KiB`, `1M`: bytes, in powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size: expected one as in 4096, 8K or 1M");
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is out of range"))
}

/// Reads a limit as rclone's `--bwlimit` has it, in bytes per second: `10M`, `1.5G`, `512B`; a bare number is KiB.
/// `off` and 0 are none.
pub(crate) fn bandwidth(text: &str) -> Result<Bandwidth, String> {
    let bad = || format!("'{text}' is not a rate: expected KiB per second, or one as in 512K, 10M or 1.5G, or off");
    if text == "off" {
        return Ok(Bandwidth(None));
    }
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "b" => 0,
        "" | "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let bytes = number * (1_u64 << shift) as f64;
    if !(0.0..=1e15).contains(&bytes) {
        return Err(format!("'{text}' is out of range"));
    }
    Ok(Bandwidth(Some(bytes.ceil() as u64).filter(|bytes| *bytes > 0)))
}

/// Bytes per second; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bandwidth(pub(crate) Option<u64>);

/// Reads `10.78.0.1/24`: an end's address and the length of its network's.
pub(crate) fn address_in_network(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(bare) => {
            let len = if bare.is_ipv4() { 24 } else { 64 };
            format!("'{text}' lacks the prefix length: expected {bare}/{len}")
        }
        Err(_) => format!("'{text}' is not an address with a prefix length, such as 10.78.0.1/24"),
    })
}

/// Reads `192.168.7.0/24`; an address by itself is a network of one.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let net = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map_err(|_| format!("'{text}' is not a network, as in 192.168.7.0/24, or an address"))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

/// Bytes for people: `999 B`, `1.5 kB`, `20 MB` (powers of 1000, as links are measured).
pub(crate) fn human(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // What would be shown as 1000 belongs to the next unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", units[unit])
}

/// Bytes as `ls -h` has them: `999`, `1.5K`, `20M` (powers of 1024, rounded up).
pub(crate) fn human_as_ls(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    // In tenths of the unit.
    let mut tenths = u128::from(bytes) * 10;
    while tenths.div_ceil(10) >= 1024 && unit < units.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    match unit.checked_sub(1).and_then(|unit| units.get(unit)) {
        None => bytes.to_string(),
        Some(name) if tenths < 100 => format!("{}.{}{name}", tenths / 10, tenths % 10),
        Some(name) => format!("{}{name}", tenths.div_ceil(10)),
    }
}

/// Seconds since 1970 as `2026-11-21 12:13:38` (UTC).
pub(crate) fn date(secs: u32) -> String {
    let (days, time) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

/// The date so many days after 1970-01-01: counts in eras of 400 years that begin in March,
/// so that the leap day comes last.
fn civil(days: u32) -> (u32, u32, u32) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u32::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [("700ms", 700), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000), ("30", 30_000), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1", "1 fortnight", "nan", "1e99", "inf"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks() {
        for (text, net) in [
            ("192.168.7.0/24", "192.168.7.0/24"),
            ("fd00::/64", "fd00::/64"),
            ("10.78.0.2", "10.78.0.2/32"),
            ("fd78::2", "fd78::2/128"),
        ] {
            assert_eq!(network(text).map(|net| net.to_string()).as_deref(), Ok(net));
        }
        assert!(network("lan").is_err_and(|e| e.contains("'lan' is not a network")));
        assert!(address_in_network("10.78.0.1/24").is_ok());
        for (bad, why) in [("10.78.0.1", "10.78.0.1/24"), ("fd78::1", "fd78::1/64"), ("home", "not an address")] {
            assert!(address_in_network(bad).is_err_and(|e| e.contains(why)), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, n) in [("4096", 4096), ("8K", 8192), ("32KiB", 32 << 10), ("1m", 1 << 20), ("2GB", 2 << 30)] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for bad in ["", "K", "-1", "1.5M", "1X", "99999999999999G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bandwidths_are_those_of_rclone() {
        for (text, n) in [
            ("100", Some(100 << 10)),
            ("512B", Some(512)),
            ("10M", Some(10 << 20)),
            ("0.5k", Some(512)),
            ("1.5G", Some(3 << 29)),
            ("1MiB", Some(1 << 20)),
            ("off", None),
            ("0", None),
        ] {
            assert_eq!(bandwidth(text), Ok(Bandwidth(n)), "{text}");
        }
        for bad in ["", "M", "-1M", "10Mbit", "fast", "nan", "1e99G", "10M:1M"] {
            assert!(bandwidth(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_for_people() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9949, "9.9 kB"),
            (9960, "10 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(human(n), text);
        }
    }

    #[test]
    fn sizes_are_those_of_ls() {
        // As coreutils' ls -lh prints them.
        for (n, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024 + 1, "1.0M"),
            (1 << 20, "1.0M"),
            (3 << 30, "3.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human_as_ls(n), text, "{n}");
        }
    }

    #[test]
    fn dates() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (1_795_263_218, "2026-11-21 12:13:38"),
            (u32::MAX, "2106-02-07 06:28:15"),
        ] {
            assert_eq!(date(secs), text);
        }
    }
}
