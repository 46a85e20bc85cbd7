//! The command line of `remora lab`.

use clap::{Args, Subcommand};

use crate::commands::lab::atp::Atp;
use crate::commands::lab::drc::Drc;
use crate::commands::lab::emulate::{Emulate, Inside};
use crate::commands::lab::nfs_atp::NfsAtp;
use crate::commands::lab::relay::Relay;
use crate::commands::lab::wireless::Wireless;
use crate::commands::lab::{atp, copy, drc, emulate, nfs_atp, relay, wireless};

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
    /// The papers' experiments over wireless links and those beyond, in virtual time
    #[command(after_help = wireless::HELP)]
    Wireless(Wireless),
    /// DRC 89's load test and its lost write: what a duplicate request cache is for
    #[command(after_help = drc::HELP)]
    Drc(Drc),
    /// ATP 02's experiments: objects with priorities and deadlines over a link that comes and goes
    #[command(after_help = atp::HELP)]
    Atp(Atp),
    /// NFS over ATP against NFS over TCP while the bandwidth comes and goes (root)
    #[command(after_help = nfs_atp::HELP)]
    NfsAtp(NfsAtp),
    /// Copy 89's study: files copied by NFS, scp, rsync and FTP beside a load, and what the model says (root)
    #[command(after_help = copy::HELP)]
    Copy(Box<copy::CopyLab>),
}
