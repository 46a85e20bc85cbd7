//! `remora handoff`: tells the clients of this machine that the link goes away or is back.

use remora_host::handoff::{Signal, announce};

use crate::args::{HandOff, Phase};
use crate::exit::{Error, Result};
use crate::out;

pub(crate) async fn run(args: HandOff) -> Result {
    let signal = match args.phase {
        Phase::Begin { expected } => Signal::Begin(expected),
        Phase::End => Signal::End,
    };
    let told = announce(signal).map_err(Error::local("the signal"))?;
    out::say(format_args!("told {told} client{}", if told == 1 { "" } else { "s" }));
    Ok(())
}
