//! The flags of `remora model`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(crate) const HELP: &str = "\
FILE describes media (shared Ethernet, token ring, switch, wireless cell), groups of stations on them,
gateways between them, flows of packets and file copies. The answer is arithmetic: utilisation, delay and
copy time, each with a word where a formula is used beyond what it has been held to.

Examples:
  remora model --example > office.toml
  remora model office.toml
  remora model office.toml --json | jq '.copies[] | [.from, .to, .outcome.value.seconds]'
  remora model docs/examples/copy89-fig9.toml --compat nmt1989     # the paper's own formulas

--json prints one object: stations, media, gateways, flows, copies; an estimate has value (null where
queues grow without end) and outside (why to doubt it). docs/model.md has the formulas and their bands.";

#[derive(Args, Debug)]
pub(crate) struct Model {
    /// The network (TOML)
    #[arg(value_name = "FILE", required_unless_present = "example")]
    pub(crate) file: Option<PathBuf>,
    /// Print an example of such a file and end
    #[arg(long, conflicts_with_all = ["file", "json", "compat"])]
    pub(crate) example: bool,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
    /// Use another model's formulas
    #[arg(long, value_enum, value_name = "MODEL")]
    pub(crate) compat: Option<Compat>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Compat {
    /// The Network Modeling Tool of Copy 89, faults included: one copy on one Ethernet
    Nmt1989,
}
