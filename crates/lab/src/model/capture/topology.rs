//! A network's file out of a capture: a start, to be corrected by who knows the network.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::stations::{Calibration, Pair};

/// Flows that the file has at most; the rest is said in a comment.
const FLOWS_MAX: usize = 100;
/// What a file takes as variation at most.
const VARIATION_MAX: f64 = 100.0;

/// The file, in TOML: one medium, a group for each address, a flow for each pair.
pub fn skeleton(calibration: &Calibration) -> String {
    // A station that sends to itself never touches a medium.
    let across = |p: &&Pair| p.from != p.to;
    let all: Vec<&Pair> = calibration.pairs.iter().filter(across).collect();
    let flows = &all[..all.len().min(FLOWS_MAX)];
    let names: BTreeSet<&str> = flows.iter().flat_map(|p| [p.from.as_str(), p.to.as_str()]).collect();
    let mut toml = format!(
        "# From a capture of {:.3} s with {} packets. What it cannot know, and you may: the medium and its\n\
         # rate, which stations stand behind a gateway, what a copy would do. Addresses of groups (multicast,\n\
         # broadcast) are stations of their own here.\n\n\
         [[medium]]\nname = \"network\"\ntype = \"switch\"               # or \"ethernet\", \"ring\", \"wifi\"\n\
         rate = \"100Mbit\"\n",
        calibration.seconds, calibration.packets
    );
    for name in &names {
        let _ = write!(toml, "\n[[group]]\nname = \"{name}\"\nmedium = \"network\"\nstations = 1\n");
    }
    for flow in flows {
        let _ = write!(
            toml,
            "\n[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nrate = {}\nsize = \"{}B\"\nvariation = {:.4}\n",
            flow.from,
            flow.to,
            rate(flow.packets_per_s),
            flow.mean_bytes.round().max(1.0),
            flow.variation.min(VARIATION_MAX),
        );
    }
    if flows.len() < all.len() {
        let left = &all[flows.len()..];
        let rest: f64 = left.iter().map(|p| p.packets_per_s).sum();
        let _ = write!(toml, "\n# Left out: {} smaller flows, {} packets a second together.\n", left.len(), rate(rest));
    }
    toml
}

/// Six digits or so, and never in a form that TOML takes for something else.
fn rate(value: f64) -> String {
    format!("{value:.6}")
}
