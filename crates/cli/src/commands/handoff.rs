//! `remora handoff`: announces a link hand-off to the clients on this machine.

use std::time::Duration;

use clap::{Args, Subcommand};
use remora_host::handoff::{EXPECTED_MAX, Signal, announce};

use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

const HANDOFF_BEGIN: &str = "\
Examples:
  remora handoff begin --for 2s";

const HANDOFF_END: &str = "\
Examples:
  remora handoff end";

pub(crate) const HELP: &str = "\
During an announced outage, clients send nothing, so that nothing is lost and no
timer backs off; at its end they retransmit all outstanding requests at once.
root signals the clients of all users.

Examples:
  remora handoff begin --for 2s
  remora handoff end";

#[derive(Args, Debug)]
pub(crate) struct HandOff {
    #[command(subcommand)]
    pub(crate) phase: Phase,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Phase {
    /// The outage begins
    #[command(after_help = HANDOFF_BEGIN)]
    Begin {
        /// How long clients wait if no end is announced: 1ms to 60s
        #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = expected)]
        expected: Duration,
    },
    /// The outage is over
    #[command(after_help = HANDOFF_END)]
    End,
}

fn expected(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let is_possible = time >= Duration::from_millis(1) && time <= EXPECTED_MAX;
    if is_possible { Ok(time) } else { Err(format!("'{text}' is not from 1ms to {EXPECTED_MAX:?}")) }
}

pub(crate) async fn run(args: HandOff) -> Result {
    let signal = match args.phase {
        Phase::Begin { expected } => Signal::Begin(expected),
        Phase::End => Signal::End,
    };
    let told = announce(signal).map_err(Error::local("the signal"))?;
    stdio::eprint(format_args!("signalled {told} client{}", if told == 1 { "" } else { "s" }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert_eq!(expected("2s"), Ok(Duration::from_secs(2)));
        assert!(expected("0").is_err() && expected("61s").is_err() && expected("soon").is_err());
    }
}
