//! The command line of `remora lab`.

use clap::{Args, Subcommand};

use crate::commands::lab::atp::Atp;
use crate::commands::lab::drc::Drc;
use crate::commands::lab::emulate::{Emulate, Inside};
use crate::commands::lab::nfs_atp::NfsAtp;
use crate::commands::lab::relay::Relay;
use crate::commands::lab::wireless::Wireless;
use crate::commands::lab::{atp, copy, drc, emulate, mount, nfs_atp, predict, relay, wireless};

pub(crate) const HELP: &str = "\
Examples:
  remora lab wireless --list
  remora lab drc
  remora lab atp --help";

#[derive(Args, Debug)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Experiment {
    /// Emulate a poor link between clients and a server, over UDP
    #[command(after_help = relay::HELP)]
    Relay(Box<Relay>),
    /// Run programs on both sides of an emulated link, in network namespaces (root)
    #[command(after_help = emulate::HELP)]
    Emulate(Box<Emulate>),
    #[command(hide = true)]
    Inside(Inside),
    /// Run experiments over wireless links, the papers' and others
    #[command(after_help = wireless::HELP)]
    Wireless(Wireless),
    /// Repeat DRC 89: the load test and the lost write without a duplicate request cache
    #[command(after_help = drc::HELP)]
    Drc(Drc),
    /// Repeat ATP 02: objects with priorities and deadlines over a link with outages
    #[command(after_help = atp::HELP)]
    Atp(Atp),
    /// Compare NFS over ATP with NFS over TCP while the bandwidth varies (root)
    #[command(after_help = nfs_atp::HELP)]
    NfsAtp(NfsAtp),
    /// Repeat Copy 89: copies under load, of real programs beside the model (root) or simulated
    #[command(after_help = copy::HELP)]
    Copy(Box<copy::CopyLab>),
    /// Run programs on mounts over a bad link: Remora over UDP, ATP and TCP, and sshfs (root)
    #[command(after_help = mount::HELP)]
    Mount(Box<mount::MountLab>),
    /// Evaluate the prediction of opened files on recorded traces
    #[command(after_help = predict::HELP)]
    Predict(predict::Predict),
}
