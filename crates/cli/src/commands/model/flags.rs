//! The flags of `remora model`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::config::{address, units};

const MODEL_SERVE: &str = "\
Examples:
  remora model serve
  remora model serve office.toml --listen 8090";

const MODEL_CALIBRATE: &str = "\
Examples:
  remora model calibrate office.pcapng
  remora model calibrate any.pcap --bin 10ms --json | jq .stations
  remora model calibrate office.pcapng --topology > office.toml";

pub(crate) const HELP: &str = "\
FILE describes media (shared Ethernet, token ring, switch, wireless cell),
groups of stations on them, gateways between them, packet flows and file copies.
model computes utilisation, delay and copy time by formulas, and simulates each
figure whose formula is outside its tested range.

Examples:
  remora model --example > office.toml
  remora model office.toml
  remora model office.toml --json \\
      | jq '.copies[] | [.from, .to, .outcome.value.seconds]'
  # the paper's own formulas
  remora model docs/examples/copy89-fig9.toml --compat nmt1989
  remora model docs/examples/copy89-fig9.toml --compat nmt1989 --xlsx fig9.xlsx
  # a spreadsheet with live formulas
  remora model docs/examples/copy89-fig9.toml --xlsx today.xlsx
  remora model office.toml --html office.html
  remora model office.toml --sweep copy.1.window=1..16/16
  # model and simulation side by side
  remora model office.toml --simulate --seconds 100
  remora model --check 500 --seed 8    # random networks, answers judged
  remora model serve office.toml   # a page with sliders
  remora model calibrate office.pcapng

--json prints one object: stations, media, gateways, flows, copies; an estimate
has value (null: queues grow without limit), how (formula, simulated,
saturated), half_width_s and outside (why no formula gives it).
docs/reference/model.md has the formulas, docs/results/model.md their ranges.";

/// Flags that exclude `--simulate` and its flags. (clap's `requires` does not do: it accepts a missing flag if a
/// present one conflicts with it.)
const NOT_SIMULATED: [&str; 5] = ["compat", "html", "sweep", "xlsx", "check"];
/// The longest simulation of an answer.
const WITHIN_MAX: Duration = Duration::from_secs(3600);
/// The shortest bin: captures have no finer time.
const BIN_MIN: Duration = Duration::from_micros(1);

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Model {
    /// A page with sliders, or the stations of a capture.
    #[command(subcommand)]
    pub(crate) command: Option<ModelCommand>,
    /// Description of the network (TOML)
    #[arg(value_name = "FILE", required_unless_present_any = ["example", "check"])]
    pub(crate) file: Option<PathBuf>,
    /// Print an example file with all keys and exit; =campus: one with 10,000 stations
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "office", hide_possible_values = true, conflicts_with_all = ["file", "json", "compat", "xlsx", "html", "sweep", "simulate", "seeds", "seconds", "check", "seed"])]
    pub(crate) example: Option<Example>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Use another model's formulas
    #[arg(long, value_enum, value_name = "MODEL")]
    pub(crate) compat: Option<Compat>,
    /// Also write a spreadsheet with live formulas, of the network or of --compat nmt1989
    #[arg(long, value_name = "OUT")]
    pub(crate) xlsx: Option<PathBuf>,
    /// Also write an HTML report with a drawing, curves and the main influences
    #[arg(long, value_name = "OUT", conflicts_with = "compat")]
    pub(crate) html: Option<PathBuf>,
    /// Solve for N values of a key, such as flow.1.rate=0..100/21 or medium.floor.rate=1Mbit..1Gbit/9
    #[arg(long, value_name = "KEY=FROM..TO/N", conflicts_with_all = ["compat", "html", "xlsx"])]
    pub(crate) sweep: Option<String>,
    /// Also simulate the network packet by packet, and show both side by side
    #[arg(long, group = "drawn", conflicts_with_all = ["compat", "html", "sweep", "xlsx"])]
    pub(crate) simulate: bool,
    /// Number of simulations, each with its own seed
    #[arg(long, value_name = "N", default_value_t = 4, requires = "simulate", conflicts_with_all = NOT_SIMULATED, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: u64,
    /// Simulated seconds of each simulation, after a warm-up of a fifth of them
    #[arg(long, value_name = "S", default_value_t = 60.0, requires = "simulate", conflicts_with_all = NOT_SIMULATED, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Answer N random networks of all kinds and hold every figure against a longer simulation; exit with 1 if one
    /// has no answer or too many are off
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100", group = "drawn", conflicts_with_all = ["file", "compat", "simulate", "sweep", "html", "xlsx"], value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) check: Option<u64>,
    /// Time for the simulation of figures that no formula gives: a million events a second, up to four million where
    /// queues still fill, and on slower machines the time itself; 0: formulas alone
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = within, conflicts_with_all = ["compat", "example", "simulate", "sweep"])]
    pub(crate) within: Duration,
    /// Seed of the networks of --check [default: 7], or first seed of --simulate [default: 0]
    #[arg(long, value_name = "S", requires = "drawn")]
    pub(crate) seed: Option<u64>,
}

fn bin(text: &str) -> Result<Duration, String> {
    let bin = units::duration(text)?;
    if bin >= BIN_MIN { Ok(bin) } else { Err(format!("'{text}' is too short: expected 1us or more")) }
}

fn within(text: &str) -> Result<Duration, String> {
    let within = units::duration(text)?;
    if within <= WITHIN_MAX { Ok(within) } else { Err(format!("'{text}' is too long: expected 1h or less")) }
}

/// Seconds of network time.
fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|s: &f64| (1e-3..=1e6).contains(s));
    value.ok_or_else(|| format!("'{text}': expected 0.001 to 1000000 seconds"))
}

#[derive(Subcommand, Debug)]
pub(crate) enum ModelCommand {
    /// Serve a web page with sliders for a network, on loopback
    #[command(after_help = MODEL_SERVE)]
    Serve(ModelServe),
    /// Print packet rates, sizes and burstiness of the stations in a capture (pcap, pcapng)
    #[command(after_help = MODEL_CALIBRATE)]
    Calibrate(Calibrate),
}

#[derive(Args, Debug)]
pub(crate) struct ModelServe {
    /// Description of the network (TOML) [default: the example]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Loopback address to listen on; port 0 means a free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:8089", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// Print the address as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Calibrate {
    /// The pcap or pcapng file
    #[arg(value_name = "CAPTURE")]
    pub(crate) file: PathBuf,
    /// Print a JSON object: seconds, packets, bin_s, stations, pairs, packets_of_others, cut_short
    #[arg(long, conflicts_with = "topology")]
    pub(crate) json: bool,
    /// Print a description of the network as a starting point
    #[arg(long)]
    pub(crate) topology: bool,
    /// Length of the bins for burstiness
    #[arg(long, value_name = "TIME", value_parser = bin, default_value = "100ms")]
    pub(crate) bin: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Example {
    /// A file with every key, commented
    Office,
    /// 10,000 stations on 200 shared Ethernets
    Campus,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Compat {
    /// The Network Modeling Tool of Copy 89 with its errors: one copy on one Ethernet
    Nmt1989,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Model,
    }

    fn parsed(line: &str) -> Result<Model, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn flags_without_effect_are_errors() {
        for line in [
            "--check 2 --seeds 9",
            "--check 2 --seconds 9",
            "--check --example",
            "--example --simulate",
            "--example --seeds 9",
            "--example --seed 9",
            "a.toml --seeds 9",
            "a.toml --seed 9",
            "a.toml --sweep copy.1.window=1..2/2 --seeds 9",
            "a.toml --html a.html --seconds 9",
            "a.toml --within 2h",
            "a.toml --simulate --within 3s",
            "a.toml --sweep copy.1.window=1..2/2 --within 3s",
            "a.toml --compat nmt1989 --seeds 9",
            "calibrate a.pcap --bin 0s",
            "calibrate a.pcap --bin 0.5us",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        for line in [
            "a.toml",
            "a.toml --simulate --seeds 9 --seconds 9 --json",
            "--check 2 --seed 9 --json",
            "a.toml --within 0",
            "--check 2 --within 500ms",
            "a.toml --simulate --seed 9 --seeds 2",
            "--example=campus",
            "a.toml --html a --xlsx b",
            "calibrate a.pcap --bin 1us",
        ] {
            assert!(parsed(line).is_ok(), "{line}: {:?}", parsed(line).err());
        }
    }
}
