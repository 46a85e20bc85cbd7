//! The rule that dependencies have the licences and sources that `deny.toml` allows.

use cargo_metadata::{Metadata, MetadataCommand};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use super::violation::{File, Violation};
use crate::cmd::{Result, root};

/// The policy's file.
const POLICY: &str = "deny.toml";

/// The part of `deny.toml` that this rule checks.
#[derive(Deserialize)]
struct Policy {
    graph: Graph,
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// The part of a package's metadata that the policy is about.
struct Package<'a> {
    name: &'a str,
    license: Option<&'a str>,
    /// `None` for the project's own packages.
    source: Option<&'a str>,
}

/// Checks all dependencies, for each target of the policy.
pub(super) fn check(files: &[File]) -> Result<Vec<Violation>> {
    let Some(file) = files.iter().find(|f| f.path == POLICY) else {
        return Ok(vec![Violation::new(POLICY, 1, "is missing: write down which licences dependencies may have")]);
    };
    let policy: Policy = toml::from_str(&file.text)?;
    let mut found = Vec::new();
    for target in &policy.graph.targets {
        let options = ["--locked", "--filter-platform", target].map(str::to_owned).to_vec();
        let metadata = MetadataCommand::new().current_dir(root()).other_options(options).exec()?;
        found.extend(packages(&metadata).filter_map(|package| wrong(&policy, &package)));
    }
    Ok(found)
}

fn packages(metadata: &Metadata) -> impl Iterator<Item = Package<'_>> {
    metadata.packages.iter().map(|p| Package {
        name: p.name.as_str(),
        license: p.license.as_deref(),
        source: p.source.as_ref().map(|s| s.repr.as_str()),
    })
}

/// The violations of one package.
fn wrong(policy: &Policy, package: &Package<'_>) -> Option<Violation> {
    let Package { name, license, source } = package;
    let source = (*source)?;
    let registry = source.strip_prefix("registry+").unwrap_or(source);
    if !policy.sources.allow_registry.iter().any(|allowed| allowed == registry) {
        return Some(Violation::new(
            POLICY,
            1,
            format!("{name} comes from {source}, which is not among allow-registry"),
        ));
    }
    let Some(license) = license else {
        return Some(Violation::new(POLICY, 1, format!("{name} says no licence: take another crate")));
    };
    let is_allowed = |wanted: &spdx::LicenseReq| policy.licenses.allow.contains(&wanted.to_string());
    let allowed = Expression::parse_mode(license, ParseMode::LAX).is_ok_and(|e| e.evaluate(is_allowed));
    (!allowed).then(|| {
        let what = format!("{name} has the licence {license}, which [licenses] does not allow: take another crate");
        Violation::new(POLICY, 1, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_and_sources_are_those_that_the_policy_allows() {
        const HERE: &str = "registry+https://here";
        let policy = Policy {
            graph: Graph { targets: Vec::new() },
            licenses: Licenses { allow: ["MIT", "ISC"].map(str::to_owned).to_vec() },
            sources: Sources { allow_registry: vec!["https://here".to_owned()] },
        };
        for (license, source, fine) in [
            (Some("MIT"), Some(HERE), true),
            (Some("GPL-3.0-only OR MIT"), Some(HERE), true),
            (Some("Apache-2.0/MIT"), Some(HERE), true),
            (Some("MIT AND ISC"), Some(HERE), true),
            (Some("MIT AND GPL-3.0-only"), Some(HERE), false),
            (Some("Apache-2.0 WITH LLVM-exception"), Some(HERE), false),
            (Some("what I like"), Some(HERE), false),
            (None, Some(HERE), false),
            (Some("MIT"), Some("registry+https://there"), false),
            (Some("MIT"), Some("git+https://here"), false),
            (None, None, true),
        ] {
            let found = wrong(&policy, &Package { name: "x", license, source });
            assert_eq!(found.is_none(), fine, "{license:?} from {source:?}");
        }
    }
}
