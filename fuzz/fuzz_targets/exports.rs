//! Exports files, in TOML and as exports(5): whatever an operator writes there is refused with a line
//! of the file, or comes to exports whose lines are there, with clients that can be written again.
//!
//! The first byte chooses the format: `0` is TOML, `1` is exports(5). Hosts have the addresses that their names are drawn to.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use remora_host::exports::{self, Format, Parsed, Wrong};
use remora_server::Clients;

/// As if the system had been asked: none, one or two addresses, or an error.
fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    let n = host.bytes().fold(0u8, u8::wrapping_add);
    match n % 4 {
        0 => Err("not known".into()),
        more => Ok((1..more).map(|i| IpAddr::from([10, 0, n, i])).collect()),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let format = if first & 1 == 0 { Format::Toml } else { Format::Exports5 };
    let lines = 1 + text.matches('\n').count();
    match exports::parse(text, format, &resolve) {
        Err(Wrong { line, why }) => assert!((1..=lines).contains(&line) && !why.is_empty(), "{line}: {why}"),
        Ok(Parsed { entries, notes }) => {
            for (line, _) in &notes {
                assert!((1..=lines).contains(line), "{line} of {lines}");
            }
            for entry in &entries {
                assert!((1..=lines).contains(&entry.line), "{} of {lines}", entry.line);
                assert!(!entry.access.rules().is_empty(), "an export for nobody");
                for rule in entry.access.rules() {
                    assert_eq!(rule.clients.to_string().parse::<Clients>(), Ok(rule.clients));
                }
            }
            // What could be read can be read again.
            assert_eq!(exports::parse(text, format, &resolve), Ok(Parsed { entries, notes }));
        }
    }
});
