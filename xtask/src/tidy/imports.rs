//! The import law: which crate may depend on which, as one table.
//!
//! `base <- wire <- cores`; cores exchange bytes and never import one another; `sim` and `host` combine cores into
//! stacks and never import each other; `lab` and `cli` may import everything.

use cargo_metadata::{Dependency, DependencyKind, Metadata};

use super::violation::{File, Violation, line_of};

/// A row of the table.
struct Law {
    /// The crate's name without `remora-`.
    name: &'static str,
    /// Crates of the workspace that it may import.
    ours: &'static [&'static str],
    /// Other crates that it may import.
    others: Others,
}

enum Others {
    /// These only: the crate is deterministic, and each of these is data structures and arithmetic without a clock, a
    /// socket, a thread or randomness.
    Only(&'static [&'static str]),
    /// Every crate on crates.io.
    Any,
}

use Others::{Any, Only};

const STACKED: &[&str] = &["base", "wire", "vfs", "server", "client", "cache", "atp", "link", "channel"];
/// The simulator also runs what the analytic model solves, so that tests can compare them.
const SIMULATED: &[&str] = &["base", "wire", "vfs", "server", "client", "cache", "atp", "link", "channel", "model"];
const BELOW_LAB: &[&str] =
    &["base", "wire", "vfs", "server", "client", "cache", "atp", "link", "channel", "model", "sim", "host"];
const BELOW_CLI: &[&str] =
    &["base", "wire", "vfs", "server", "client", "cache", "atp", "link", "channel", "model", "sim", "host", "lab"];

#[rustfmt::skip]
const LAW: &[Law] = &[
    //    crate             of ours                       of others
    Law { name: "base",    ours: &[],                     others: Only(&["base64", "bytes", "rand_chacha", "rand_core", "siphasher"]) },
    Law { name: "wire",    ours: &["base"],               others: Only(&["bytes", "thiserror"]) },
    // rustix and nix: the local disk. lru: its caches. The rest of vfs is a pure core.
    Law { name: "vfs",     ours: &["base", "wire"],       others: Only(&["bytes", "lru", "thiserror", "siphasher", "rustix", "nix"]) },
    Law { name: "server",  ours: &["base", "wire", "vfs"], others: Only(&["bytes", "thiserror", "siphasher", "highway", "ipnet"]) },
    Law { name: "client",  ours: &["base", "wire"],       others: Only(&["bytes", "thiserror", "siphasher"]) },
    // globset: names of hoarded files. jiff: dates in the names of conflict copies.
    Law { name: "cache",   ours: &["base", "wire"],       others: Only(&["bytes", "globset", "jiff"]) },
    // noq-proto: QUIC as a state machine whose caller gives it the time; it is seeded, and TLS keys influence
    // neither sizes nor timing. rustls, ring: its handshake, with keys derived from a secret that the caller
    // gives. base64: keys as text.
    Law { name: "atp",     ours: &["base", "wire"],       others: Only(&["bytes", "thiserror", "siphasher", "noq-proto", "rustls", "ring"]) },
    // etherparse: IP headers as values.
    Law { name: "link",    ours: &["base", "wire"],       others: Only(&["bytes", "thiserror", "siphasher", "etherparse"]) },
    Law { name: "channel", ours: &["base", "wire"],       others: Only(&["bytes", "thiserror"]) },
    Law { name: "model",   ours: &["base"],               others: Only(&["thiserror", "serde"]) },
    // clap: the swarm's flags. noq-proto, rustls: ATP's baselines.
    Law { name: "sim",     ours: SIMULATED,               others: Only(&["bytes", "thiserror", "siphasher", "etherparse", "clap", "serde", "serde_json", "noq-proto", "rustls"]) },
    Law { name: "host",    ours: STACKED,                 others: Any },
    // ATP for C programs.
    Law { name: "libatp",  ours: &["base", "atp", "host"], others: Any },
    Law { name: "lab",     ours: BELOW_LAB,               others: Any },
    Law { name: "cli",     ours: BELOW_CLI,               others: Any },
];

/// Crates that the tests of every crate may use.
const TEST_TOOLS: &[&str] = &["proptest", "insta", "criterion", "libtest-mimic", "skip", "tempfile"];

/// Further crates that the tests of one crate may use: crate, dependency, reason.
const TEST_EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Compares cargo's metadata with the table.
pub(super) fn check(metadata: &Metadata, files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let manifest = package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap_or(&package.manifest_path);
        for dep in &package.dependencies {
            if let Err(what) = judge(&package.name, dep) {
                let line = line_of(files, manifest.as_str(), &dep.name);
                found.push(Violation::new(manifest.as_str(), line, what));
            }
        }
    }
    found
}

fn judge(package: &str, dep: &Dependency) -> Result<(), String> {
    allowed(package, &dep.name, dep.kind == DependencyKind::Development)
}

fn allowed(package: &str, dep: &str, in_tests: bool) -> Result<(), String> {
    let ours = dep.strip_prefix("remora-");
    let Some(name) = package.strip_prefix("remora-") else {
        // Tools, which use the crates from outside.
        return match ours {
            Some(_) => Err(format!("{package} must not import {dep}: tools look at the crates from outside")),
            None => Ok(()),
        };
    };
    if in_tests && (TEST_TOOLS.contains(&dep) || TEST_EXCEPTIONS.iter().any(|(p, d, _)| (*p, *d) == (package, dep))) {
        return Ok(());
    }
    let Some(law) = LAW.iter().find(|l| l.name == name) else {
        return Err(format!("{package} has no place in the import law: give it a row in xtask/src/tidy/imports.rs"));
    };
    match (ours, &law.others) {
        (Some(ours), _) if law.ours.contains(&ours) => Ok(()),
        (Some(_), _) => Err(format!(
            "{package} must not import {dep} (it may import: {}): exchange bytes, or move the code to where both may \
             reach it; ARCHITECTURE.md has the import law",
            list(law.ours)
        )),
        (None, Any) => Ok(()),
        (None, Only(others)) if others.contains(&dep) => Ok(()),
        (None, Only(others)) => Err(format!(
            "{package} is deterministic and must not depend on {dep} (it may on: {}): do it in host, or argue for a \
             place on the list in xtask/src/tidy/imports.rs",
            list(others)
        )),
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_says_who_may_import_whom() {
        let cases = [
            ("remora-server", "remora-wire", false, true),
            ("remora-server", "remora-vfs", false, true),
            ("remora-server", "remora-client", false, false),
            ("remora-server", "remora-client", true, false),
            ("remora-client", "remora-vfs", false, false),
            ("remora-wire", "remora-server", false, false),
            ("remora-sim", "remora-host", false, false),
            ("remora-host", "remora-sim", true, false),
            ("remora-cli", "remora-sim", false, true),
            ("remora-model", "remora-wire", false, false),
            ("remora-libatp", "remora-host", false, true),
            ("remora-libatp", "remora-client", false, false),
            ("remora-client", "tokio", false, false),
            ("remora-client", "tokio", true, false),
            ("remora-base", "getrandom", false, false),
            ("remora-client", "proptest", true, true),
            ("remora-client", "proptest", false, false),
            ("remora-host", "tokio", false, true),
            ("remora-unheard-of", "bytes", false, false),
            ("xtask", "clap", false, true),
            ("xtask", "remora-base", false, false),
        ];
        for (package, dep, in_tests, expected) in cases {
            assert_eq!(allowed(package, dep, in_tests).is_ok(), expected, "{package} -> {dep}, in tests: {in_tests}");
        }
    }

    #[test]
    fn the_law_has_no_circle() {
        // Each row imports only rows above it.
        for (i, law) in LAW.iter().enumerate() {
            for ours in law.ours {
                let place = LAW.iter().position(|l| l.name == *ours);
                assert!(place.is_some_and(|p| p < i), "{} imports {ours}", law.name);
            }
        }
    }
}
