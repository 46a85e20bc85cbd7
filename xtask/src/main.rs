//! The project's own commands, run as `cargo xtask COMMAND`.

mod attack;
mod ci;
mod cmd;
mod figures;
mod fuzz;
mod interop;
mod libatp;
mod package;
mod swarm;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Remora's own commands: what the project checks, and how.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                    # everything a newcomer needs to run
  cargo xtask test -p remora-wire     # the tests of one crate
  cargo xtask tidy                    # the import law and the house style
  cargo xtask sim --seeds 10000       # a long swarm in the simulator
  cargo xtask repro 8675309           # the one world of this seed, with its trace
  cargo xtask repro --world atp 8675309     # the same, of the swarm of ATP endpoints
  cargo xtask attack --seconds 10     # a live server under attack
  cargo xtask fuzz nfs3_call --seconds 60
  cargo xtask install-libatp --prefix /usr/local
  cargo xtask figures model           # are the model's figures in the documents those it prints?
  cargo xtask package --check         # a Debian package, put to work in a bare Debian
  cargo xtask interop git fsx         # parts of what the Linux client is put to
  cargo xtask ci                      # all of it, as the build machine does";

#[derive(Subcommand)]
enum Command {
    /// Check the import law, the dependencies and the house style
    Tidy,
    /// Install what the tests need, run them and the simulator, and sum up
    #[command(after_help = test::HELP)]
    Test(test::Options),
    /// All checks, as the build machine does them: fmt, tidy, clippy, doc, fuzz targets, figures, test
    Ci,
    /// Run the simulator over many seeds
    Sim {
        /// How many seeds
        #[arg(long, value_name = "N", default_value_t = 1000)]
        seeds: u64,
        /// The first seed
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        from: u64,
    },
    /// Run the simulator for the one seed that failed, and say what happens
    Repro {
        /// The seed that was printed
        seed: u64,
        /// Kind of the world
        #[arg(long, value_enum, default_value_t = swarm::World::Nfs)]
        world: swarm::World,
    },
    /// Put the Linux kernel's NFS client, in a QEMU guest, to work on `remora serve`
    #[command(after_help = interop::HELP)]
    Interop(interop::Options),
    /// Attack a live server, with a well-behaved client beside, and see that it holds
    Attack(attack::Options),
    /// Compare figures in documents with what the commands print that they name
    Figures {
        /// Only commands whose names contain this
        filter: Option<String>,
        /// Use the tests' build, and leave out what takes minutes in it
        #[arg(long)]
        debug: bool,
    },
    /// Build ATP's C library and install it: libatp.so, libatp.a, atp.h, libatp.pc
    InstallLibatp(libatp::Options),
    /// Make the Debian package
    #[command(after_help = package::HELP)]
    Package(package::Options),
    /// Feed the decoders bytes that look for trouble (needs cargo-fuzz)
    Fuzz {
        /// A file of fuzz/fuzz_targets without its .rs; all of them if none is named
        target: Option<String>,
        /// For how long, each
        #[arg(long, value_name = "N", default_value_t = 30)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Test(options) => test::run(&options),
        Command::Ci => ci::run(),
        Command::Sim { seeds, from } => swarm::run(seeds, from, cmd::Build::Release),
        Command::Repro { seed, world } => swarm::repro(seed, world),
        Command::Interop(options) => interop::run(&options),
        Command::Attack(options) => attack::run(&options),
        Command::Figures { filter, debug } => {
            figures::run(filter.as_deref(), if debug { cmd::Build::Debug } else { cmd::Build::Release })
        }
        Command::InstallLibatp(options) => libatp::install(&options),
        Command::Package(options) => package::run(&options),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            if !why.is::<cmd::Told>() {
                eprintln!("error: {why}");
            }
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
