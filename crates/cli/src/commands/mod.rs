//! The commands, a module each.

mod atp;
mod bench;
mod cat;
mod channel;
mod copy_lab;
mod demo;
mod df;
mod drc;
mod emulate;
mod exports;
mod forward;
mod gateway;
mod handoff;
mod keys;
mod lab;
mod link;
mod load;
mod ls;
mod mkdir;
mod model;
mod mv;
mod nfs_atp;
mod recv;
mod relay;
mod rm;
mod send;
mod serve;
mod several;
mod stat;
mod wireless;

use crate::args::{Command, Experiment};
use crate::cp;
use crate::exit::Result;
use crate::interrupt::{Kept, interruptible, interruptible_safely};

/// Does what the command line says.
pub(crate) async fn run(command: Command, kept: Kept) -> Result {
    match command {
        Command::Ls(args) => interruptible(ls::run(args)).await,
        Command::Cat(args) => interruptible(cat::run(args)).await,
        Command::Cp(args) => {
            let ending = kept.ending();
            interruptible_safely(cp::run(args, kept), ending).await
        }
        Command::Mkdir(args) => interruptible(mkdir::run(args)).await,
        Command::Rm(args) => interruptible(rm::run(args)).await,
        Command::Mv(args) => interruptible(mv::run(args)).await,
        Command::Stat(args) => interruptible(stat::run(args)).await,
        Command::Df(args) => interruptible(df::run(args)).await,
        Command::Exports(args) => interruptible(exports::run(args)).await,
        Command::Demo(args) => interruptible(demo::run(args)).await,
        Command::Model(args) => interruptible(model::run(args)).await,
        Command::Keys(args) => keys::run(&args),
        Command::Handoff(args) => handoff::run(args).await,
        // These tidy up after a signal themselves.
        Command::Send(args) => send::run(args).await,
        Command::Recv(args) => recv::run(args).await,
        Command::Forward(args) => forward::run(*args).await,
        Command::Gateway(args) => gateway::run(*args).await,
        Command::Serve(args) => serve::run(*args).await,
        Command::Link(args) => link::run(args).await,
        Command::Bench(args) => bench::run(*args).await,
        Command::Load(args) => load::run(args).await,
        Command::Lab(lab) => match lab.experiment {
            Experiment::Relay(args) => relay::run(*args).await,
            Experiment::Emulate(args) => emulate::run(*args).await,
            Experiment::Inside(args) => emulate::inside(args).await,
            Experiment::Wireless(args) => wireless::run(args).await,
            Experiment::Drc(args) => interruptible(drc::run(args)).await,
            Experiment::Atp(args) => interruptible(atp::run(args)).await,
            Experiment::NfsAtp(args) => interruptible(nfs_atp::run(args)).await,
            Experiment::Copy(args) => copy_lab::run(*args).await,
        },
    }
}
