//! `remora hoard`: what is kept on this machine for the time without the server.
//!
//! [`flags`] has the command lines. [`profile`] is the file with the entries, [`operand`] finds the mount and the path in
//! it; [`change`] adds, removes and lists entries, [`walk`] walks, [`check`] says what is missing, and [`suggest`]
//! proposes entries.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod flags;
mod operand;
pub(crate) mod profile;
pub(crate) mod suggest;
pub(crate) mod walk;

use crate::commands::hoard::flags::{Hoard, HoardCommand};
use crate::output::exit::Result;

pub(crate) async fn run(args: Hoard) -> Result {
    match args.command {
        HoardCommand::Add(args) => change::add(&args),
        HoardCommand::Remove(args) => change::remove(&args),
        HoardCommand::List(args) => change::list(&args),
        HoardCommand::Walk(args) => walk::run(&args).await,
        HoardCommand::Check(args) => check::run(&args),
        HoardCommand::Suggest(args) => suggest::run(&args),
    }
}
