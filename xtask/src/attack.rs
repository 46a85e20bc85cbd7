//! `cargo xtask attack`: starts `remora serve` and attacks it with `crates/lab/src/bin/attack.rs`.

use std::process::Command;

use clap::Args;

use crate::cmd::{self, Build, Result};

/// Largest 99th percentile of the good client's calls on a debug build, in milliseconds.
const DEBUG_P99_MAX_MS: &str = "3000";
/// Smallest part of its rate that the good client keeps on a debug build. A server that blocks it falls below on any
/// machine; one on a busy machine, where the attacker and 160 connections want the same processors, does not.
const DEBUG_RATE_RATIO_MIN: &str = "0.01";

/// Flags of `cargo xtask attack`.
#[derive(Args)]
pub(crate) struct Options {
    /// How long each attack lasts
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Draws what is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Attack a debug build, as the tests do
    #[arg(long)]
    pub(crate) debug: bool,
    /// Names of attacks; all of them if none is named
    pub(crate) names: Vec<String>,
}

impl Options {
    /// The short form, which `cargo xtask test` runs.
    pub(crate) const SHORT: Options = Options { seconds: 1.0, seed: 1, json: false, debug: true, names: Vec::new() };
}

/// Builds the server and the attacker, then runs the attacks.
pub(crate) fn run(options: &Options) -> Result {
    let build = if options.debug { Build::Debug } else { Build::Release };
    let server = cmd::built("remora", build)?;
    let mut attack = Command::new(cmd::built("attack", build)?);
    attack.current_dir(cmd::root()).arg("--server").arg(server);
    attack.args(["--seconds", &options.seconds.to_string(), "--seed", &options.seed.to_string()]);
    if options.debug {
        attack.args(["--p99-max-ms", DEBUG_P99_MAX_MS, "--rate-ratio-min", DEBUG_RATE_RATIO_MIN]);
    }
    if options.json {
        attack.arg("--json");
    }
    cmd::run(attack.args(&options.names))
}
