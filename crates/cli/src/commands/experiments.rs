//! The commands of the laboratory: a server's binary is built without them (feature `lab`).

use clap::Subcommand;

use crate::commands::bench::Bench;
use crate::commands::demo::Demo;
use crate::commands::lab::flags::{Experiment, Lab};
use crate::commands::model::flags::{Model, ModelCommand};
use crate::commands::{bench, demo, lab, model};
use crate::interrupt::interruptible;
use crate::output::diagnostics::Verbosity;
use crate::output::exit::Result;

#[derive(Subcommand, Debug)]
pub(crate) enum ExperimentCommand {
    /// Watch three clients copy a file over a bad link
    #[command(after_help = demo::HELP)]
    Demo(Demo),
    /// Measure the performance of a server, or compare two
    #[command(after_help = bench::HELP)]
    Bench(Box<Bench>),
    /// Predict utilisation, delay and copy times of a network
    #[command(after_help = model::flags::HELP)]
    Model(Model),
    /// Run experiments and emulated links
    #[command(after_help = lab::flags::HELP)]
    Lab(Lab),
}

impl ExperimentCommand {
    pub(crate) fn is_service(&self) -> bool {
        match self {
            ExperimentCommand::Lab(lab) => matches!(lab.experiment, Experiment::Relay(_)),
            ExperimentCommand::Model(model) => matches!(model.command, Some(ModelCommand::Serve(_))),
            ExperimentCommand::Demo(_) | ExperimentCommand::Bench(_) => false,
        }
    }

    pub(crate) fn verbosity(&self) -> Option<&Verbosity> {
        match self {
            ExperimentCommand::Lab(Lab { experiment: Experiment::Relay(args) }) => Some(&args.verbosity),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            ExperimentCommand::Demo(_) => "demo",
            ExperimentCommand::Bench(_) => "bench",
            ExperimentCommand::Model(_) => "model",
            ExperimentCommand::Lab(_) => "lab",
        }
    }

    pub(crate) async fn run(self) -> Result {
        match self {
            ExperimentCommand::Demo(args) => interruptible(demo::run(args)).await,
            ExperimentCommand::Model(args) => interruptible(model::command::run(args)).await,
            // These tidy up after a signal themselves.
            ExperimentCommand::Bench(args) => bench::run(*args).await,
            ExperimentCommand::Lab(lab) => match lab.experiment {
                Experiment::Relay(args) => lab::relay::run(*args).await,
                Experiment::Emulate(args) => lab::emulate::run(*args).await,
                Experiment::Inside(args) => lab::emulate::inside(args).await,
                Experiment::Wireless(args) => lab::wireless::run(args).await,
                Experiment::Drc(args) => interruptible(lab::drc::run(args)).await,
                Experiment::Atp(args) => interruptible(lab::atp::run(args)).await,
                Experiment::NfsAtp(args) => interruptible(lab::nfs_atp::run(args)).await,
                Experiment::Copy(args) => lab::copy::run(*args).await,
                Experiment::Mount(args) => lab::mount::run(*args).await,
                Experiment::Predict(args) => interruptible(lab::predict::run(args)).await,
            },
        }
    }
}
