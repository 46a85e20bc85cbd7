//! Flags for the connection to a server, shared by all commands on files.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::config::units;

/// The shortest timeout that can be asked for.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// How to speak to servers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkArgs {
    /// Transport, whatever the URL says [default: auto]
    #[arg(long, value_enum)]
    pub(crate) proto: Option<Proto>,
    /// Give up when the server has answered no request for this long; 0: never [default: 30 until the server first
    /// answers, then never]
    #[arg(long, value_name = "SECONDS", value_parser = units::duration)]
    pub(crate) timeout: Option<Duration>,
    /// When to send a request again (UDP)
    #[arg(long, value_enum, default_value = "adaptive")]
    pub(crate) retry: Retry,
    /// First timeout of the other two policies
    #[arg(long, value_name = "TIME", default_value = "700ms", value_parser = timeout)]
    pub(crate) initial: Duration,
    /// Longest timeout of the other two policies
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = timeout)]
    pub(crate) longest: Duration,
    /// What exponential multiplies its timeout by
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) factor: u32,
    /// What hybrid-linear adds to its timeout at first
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    pub(crate) step: Duration,
    /// How many times hybrid-linear adds before it doubles
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) linear_retries: u32,
    /// Bytes in a READ or WRITE: 1K to 1M (UDP: at most 60K), or auto to learn from the link. No more than the
    /// server takes: remora serve 32K over UDP
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = block)]
    pub(crate) block: Auto,
    /// READs or WRITEs under way at once: 1 to 1024, or auto to learn from the link
    #[arg(long, value_name = "N", default_value = "auto", value_parser = window)]
    pub(crate) window: Auto,
}

/// A number, or what the link teaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Auto {
    Learn,
    Fixed(u32),
}

/// A timeout of nothing would have requests sent again without end.
fn timeout(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    if time < TIMEOUT_MIN { Err(format!("'{text}' is less than {TIMEOUT_MIN:?}")) } else { Ok(time) }
}

fn block(text: &str) -> Result<Auto, String> {
    auto(text, 1024..=1 << 20)
}

fn window(text: &str) -> Result<Auto, String> {
    auto(text, 1..=1024)
}

fn auto(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<Auto, String> {
    if text == "auto" {
        return Ok(Auto::Learn);
    }
    let n = units::bytes(text)?;
    if !range.contains(&n) {
        return Err(format!("{n} is not in {} to {}", range.start(), range.end()));
    }
    Ok(Auto::Fixed(n as u32))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Proto {
    /// What serves best: datagrams, and streams beside them where losses are scattered
    Auto,
    /// Use UDP only
    Udp,
    /// Use one TCP connection
    Tcp,
    /// Objects with priorities; the URL names the server's key
    Atp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Retry {
    /// Each timeout a multiple of the one before
    Exponential,
    /// Growing steadily at first, then doubling
    HybridLinear,
    /// As the link's behaviour suggests
    Adaptive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked() {
        assert_eq!(block("8K"), Ok(Auto::Fixed(8192)));
        assert_eq!(block("auto"), Ok(Auto::Learn));
        assert_eq!(window("5"), Ok(Auto::Fixed(5)));
        assert_eq!(timeout("10ms"), Ok(TIMEOUT_MIN));
        assert!(timeout("0").is_err() && timeout("9ms").is_err());
        assert!(block("1").is_err() && block("2M").is_err() && window("0").is_err());
    }
}
