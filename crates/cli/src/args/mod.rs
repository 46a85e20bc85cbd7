//! The command line, as clap parses it. What flags mean is resolved where they are used.

mod atp;
mod bench;
mod channel;
pub(crate) mod copy_lab;
mod drc;
mod emulate;
mod examples;
mod file_help;
mod filter;
mod forward;
mod gateway;
mod handoff;
mod keys;
mod link;
pub(crate) mod load;
mod model;
mod nfs_atp;
mod recv;
mod send;
mod serve;
pub(crate) mod tunnel;
mod wireless;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::io::Errno;

pub(crate) use atp::Atp;
pub(crate) use bench::Bench;
pub(crate) use channel::{ChannelArgs, Distribution, Duplex};
pub(crate) use drc::Drc;
pub(crate) use emulate::{Emulate, Inside};
pub(crate) use filter::FilterArgs;
pub(crate) use forward::Forward;
pub(crate) use gateway::Gateway;
pub(crate) use handoff::{HandOff, Phase};
pub(crate) use keys::Keys;
pub(crate) use link::{Auto, LinkArgs, Proto, Retry};
pub(crate) use model::{Calibrate, Compat, Example, Model, ModelCommand, ModelServe};
pub(crate) use nfs_atp::NfsAtp;
pub(crate) use recv::Recv;
pub(crate) use send::Send;
pub(crate) use serve::{Cache, Durability, ExportsFormat, Serve};
pub(crate) use wireless::Wireless;

use crate::address;
use crate::exit::{self, Error};
use crate::inherited;
use crate::units::{self, Bandwidth};

/// Remote files over links that drop, stall and crawl.
///
/// URLs are `nfs://host[:port]/path[?proto=auto|udp|tcp&mountport=N]`; any NFSv3 server will do.
/// Over ATP, to `remora serve --atp`: `nfs://host:port/path?proto=atp&key=KEY`.
#[derive(Parser, Debug)]
#[command(name = "remora", version = env!("REMORA_VERSION"), after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line of this process; one that is none ends it and says why.
pub(crate) fn parse() -> Cli {
    let command = numbers_are_values(Cli::command());
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|e| leave(&e))
}

/// Prints help, the version or what is wrong with the command line, and ends the process. That help cannot be written
/// is an error, unless the reader has gone.
fn leave(error: &clap::Error) -> ! {
    let is_lost = !error.use_stderr() && inherited::is_stdout_closed();
    let printed = match is_lost {
        true => Err(Errno::BADF.into()),
        false => error.print().and_then(|()| io::stdout().flush()),
    };
    match printed {
        Err(e) if !error.use_stderr() && e.kind() != io::ErrorKind::BrokenPipe => {
            exit::show("help", &Error::local("standard output")(e));
            process::exit(1)
        }
        _ => process::exit(error.exit_code()),
    }
}

/// A negative number after a flag is its value, and the flag says what it expected: it would be told to be no flag.
fn numbers_are_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes = !arg.is_positional() && arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(numbers_are_values)
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List directories
    #[command(after_help = file_help::LS)]
    Ls(Ls),
    /// Write files to standard output
    #[command(after_help = file_help::CAT)]
    Cat(Cat),
    /// Copy files to or from a server
    #[command(after_help = file_help::CP, override_usage = "remora cp [OPTIONS] SRC... DST")]
    Cp(Cp),
    /// Make directories
    #[command(after_help = file_help::MKDIR)]
    Mkdir(Mkdir),
    /// Remove files
    #[command(after_help = file_help::RM)]
    Rm(Rm),
    /// Rename or move within a server
    #[command(after_help = file_help::MV)]
    Mv(Mv),
    /// Show a file's attributes
    #[command(after_help = file_help::STAT)]
    Stat(Stat),
    /// Show a file system's size and free space
    #[command(after_help = file_help::DF)]
    Df(Df),
    /// List what a server exports
    #[command(after_help = file_help::EXPORTS)]
    Exports(Exports),
    /// Share directories
    #[command(after_help = serve::HELP)]
    Serve(Box<Serve>),
    /// Send files with priorities and deadlines over a link that comes and goes
    #[command(after_help = send::HELP, override_usage = "remora send [OPTIONS] FILE... HOST:PORT --key KEY")]
    Send(Send),
    /// Receive what remora send sends
    #[command(after_help = recv::HELP)]
    Recv(Recv),
    /// Make or show the key that you are known by to send and recv
    #[command(after_help = keys::HELP)]
    Keys(Keys),
    /// Carry local TCP ports through a gateway, over a link that comes and goes
    #[command(after_help = forward::HELP)]
    Forward(Box<Forward>),
    /// Run the fixed end of forwards, or stand in front of an NFS server: ATP here, TCP beyond
    #[command(after_help = gateway::HELP)]
    Gateway(Box<Gateway>),
    /// Watch three clients copy a file over a bad link
    #[command(after_help = DEMO_HELP)]
    Demo(Demo),
    /// Run an end of a poor hop: frames that are lost are sent again
    #[command(after_help = tunnel::HELP)]
    Link(tunnel::Tunnel),
    /// Tell the clients of this machine that the link goes away for a moment, or is back
    #[command(after_help = handoff::HELP)]
    Handoff(HandOff),
    /// Measure how fast a server is, alone or beside another
    #[command(after_help = bench::HELP)]
    Bench(Box<Bench>),
    /// Say what a network will do to packets and file copies
    #[command(after_help = model::HELP)]
    Model(Model),
    /// Fill a network with packets, and count what it carried
    #[command(after_help = load::HELP)]
    Load(load::Load),
    /// Experiments
    #[command(after_help = examples::LAB)]
    Lab(Lab),
}

const RELAY_HELP: &str = "\
Examples:
  remora lab relay --listen 127.0.0.1:20490 --server 127.0.0.1:2049 \\
      --bad-mean 80ms
  remora lab relay --listen 127.0.0.1:20490 --server 127.0.0.1:2049 \\
      --rate 64kbit --outage 10s+30s
  remora cp big.iso 'nfs://127.0.0.1:20490/?proto=udp&mountport=2049'";

const DEMO_HELP: &str = "\
Everything runs in this process, on loopback, without root: a server on a
temporary directory and, for each client, an emulated link of 1 Mbit/s that
fails every second or so, for 80 ms in the mean (--bad-mean). It takes half a
minute mostly, two minutes at most.

Examples:
  remora demo
  remora demo --seed 7 --bad-mean 500ms holiday.jpg
  remora demo --json | jq '.legs[] | [.racer, .way, .ratio]'

--json prints one object: seed, bad_mean_ms, bytes, report, legs (racer, way, finish,
seconds, floor_seconds, ratio, bytes, retransmissions, probes, intact,
lateness_ms).";

impl Command {
    /// Whether it works on until it is told to end, for others than who reads what it prints.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Command::Serve(_) | Command::Recv(_) | Command::Forward(_) | Command::Gateway(_) => true,
            Command::Link(link) => matches!(link.what, tunnel::What::Base(_) | tunnel::What::Mobile(_)),
            Command::Load(load) => matches!(load.end, load::End::Recv(_)),
            Command::Lab(lab) => matches!(lab.experiment, Experiment::Relay(_)),
            Command::Model(model) => matches!(model.command, Some(ModelCommand::Serve(_))),
            _ => false,
        }
    }

    /// How many `-v` it has.
    pub(crate) fn verbosity(&self) -> u8 {
        let verbosity = match self {
            Command::Serve(args) => &args.verbosity,
            Command::Send(args) => &args.verbosity,
            Command::Recv(args) => &args.verbosity,
            Command::Forward(args) => &args.verbosity,
            Command::Gateway(args) => &args.verbosity,
            Command::Link(tunnel::Tunnel { what: tunnel::What::Base(args) }) => &args.ends.verbosity,
            Command::Link(tunnel::Tunnel { what: tunnel::What::Mobile(args) }) => &args.ends.verbosity,
            Command::Lab(Lab { experiment: Experiment::Relay(args) }) => &args.verbosity,
            _ => return 0,
        };
        verbosity.verbose
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Ls(_) => "ls",
            Command::Cat(_) => "cat",
            Command::Cp(_) => "cp",
            Command::Mkdir(_) => "mkdir",
            Command::Rm(_) => "rm",
            Command::Mv(_) => "mv",
            Command::Stat(_) => "stat",
            Command::Df(_) => "df",
            Command::Exports(_) => "exports",
            Command::Serve(_) => "serve",
            Command::Send(_) => "send",
            Command::Recv(_) => "recv",
            Command::Keys(_) => "keys",
            Command::Forward(_) => "forward",
            Command::Gateway(_) => "gateway",
            Command::Demo(_) => "demo",
            Command::Link(_) => "link",
            Command::Handoff(_) => "handoff",
            Command::Bench(_) => "bench",
            Command::Model(_) => "model",
            Command::Load(_) => "load",
            Command::Lab(_) => "lab",
        }
    }
}

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// Show mode, links, owner, group, size and time of modification (UTC)
    #[arg(short)]
    pub(crate) long: bool,
    /// With -l: sizes in K, M, G and so on (powers of 1024), as ls -lh has them
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// For those who are used to it: names that begin with a dot are listed anyway, '.' and '..' never
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List what is in directories, too: paths from URL, each directory behind the one it is in
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print an object for each entry: name (with -R the path from URL), type, mode, nlink, uid, gid, size, used, fsid,
    /// fileid, mtime and ctime (seconds, nanoseconds); target of a link; name_hex of a name that is not UTF-8; with several URLs url, the
    /// one that led to it
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    /// Directories to list, or files; with several each directory has a heading
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Files to write, one after the other
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// The same as -r -p
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories with all that is in them, and symbolic links as links
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep also owner and group (where they may be set), the time of access, and set-ID and sticky bits. Permission
    /// bits and times of modification are always kept
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Leave files that exist at the destination as they are
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Print the name of each file when its copy is there
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Move at most so many bytes of files per second: 512K, 10M, 1.5G (powers of 1024); a bare number is KiB. off: no
    /// limit
    #[arg(long, value_name = "RATE", default_value = "off", hide_default_value = true, value_parser = units::bandwidth)]
    pub(crate) bwlimit: Bandwidth,
    /// Go on where an interrupted copy stopped
    #[arg(long)]
    pub(crate) resume: bool,
    /// Read source and copy again and compare them
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print an object with the numbers at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy: URLs or local paths, and where to: the other of the two
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Make missing parents, too; a directory that exists is fine
    #[arg(short)]
    pub(crate) parents: bool,
    /// Directories to make
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// A file that does not exist is fine
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Files to remove; with -r directories, too
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// The present name
    #[arg(value_name = "URL")]
    pub(crate) from: String,
    /// The new name, or a directory to move into
    #[arg(value_name = "NEW-URL")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Print an object: the same as ls --json
    #[arg(long)]
    pub(crate) json: bool,
    /// Files, directories or links to show
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Df {
    /// Print an object: total, free, available (bytes), files, files_free, files_available
    #[arg(long)]
    pub(crate) json: bool,
    /// Any path in the file system
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Exports {
    /// Print an object for each export: path, clients (an empty list: everybody); path_hex of a path that is not UTF-8
    #[arg(long)]
    pub(crate) json: bool,
    /// The server: a name, an address, HOST:PORT or a URL, whose path says nothing
    #[arg(value_name = "HOST|URL")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The file to copy; without one, a sample of 1 MiB
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Draws the channel's errors, the same for all three
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Mean length of the link's bad periods; the good ones between them last 1 s in the mean
    #[arg(long, value_name = "TIME", default_value = "80ms", value_parser = units::some_duration)]
    pub(crate) bad_mean: Duration,
    /// Where to write the report
    #[arg(long, value_name = "PAGE", default_value = "remora-demo.html")]
    pub(crate) report: PathBuf,
    /// Stop a client that has not arrived after so long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = units::some_duration)]
    pub(crate) limit: Duration,
    /// Print the results as an object instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// What commands that work on until they are told to end take.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Verbosity {
    /// Write diagnostics to standard error: connections and sessions; -vv: calls, too. RUST_LOG chooses more finely, as
    /// in RUST_LOG=remora_host=debug
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Whether there are `seeds` seeds from `first` on.
pub(crate) fn there_are_seeds(first: u64, seeds: u64) -> Result<(), Error> {
    match first.checked_add(seeds.saturating_sub(1)) {
        Some(_) => Ok(()),
        None => Err(Error::Usage(format!(
            "--seed {first}: there are no {seeds} seeds from there on (the last is {})",
            u64::MAX
        ))),
    }
}

#[derive(Args, Debug)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Experiment {
    /// Emulate a poor link between clients and a server, over UDP
    #[command(after_help = RELAY_HELP)]
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
    #[command(after_help = copy_lab::HELP)]
    Copy(Box<copy_lab::CopyLab>),
}

#[derive(Args, Debug)]
pub(crate) struct Relay {
    /// Where clients send to; a port alone is on loopback, port 0 picks a free one
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// The server behind the link
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) server: SocketAddr,
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Print an object for each client whose figures changed each second, and one for each at
    /// the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        numbers_are_values(Cli::command()).debug_assert();
    }

    #[test]
    fn flags_say_what_they_expected_instead_of_a_negative_number() {
        for (line, words) in [
            ("lab drc --seed -1", "'-1' for '--seed <FIRST>'"),
            ("lab drc --seeds -1", "'-1' for '--seeds <N>'"),
            ("lab emulate --rate -1 -- true", "'-1' for '--rate <RATE>'"),
            ("lab wireless --threads -2", "'-2' for '--threads <N>'"),
            ("model a.toml --simulate --seconds -1", "'-1': expected 0.001 to 1000000 seconds"),
            ("cp --timeout -1 a b", "'-1' for '--timeout <"),
            // No number, but a flag.
            ("lab drc --seed --json", "a value is required for '--seed <FIRST>'"),
        ] {
            let words_of = std::iter::once("remora").chain(line.split(' '));
            let why = numbers_are_values(Cli::command()).try_get_matches_from(words_of).unwrap_err().to_string();
            assert!(why.contains(words), "{line}: {why}");
        }
    }

    /// A terminal has 80 columns: what is longer is wrapped there, and an example cannot be copied any more.
    #[test]
    fn what_help_adds_fits_80_columns() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let added = [
                command.get_before_help(),
                command.get_before_long_help(),
                command.get_after_help(),
                command.get_after_long_help(),
            ];
            for line in added
                .into_iter()
                .flatten()
                .flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
            {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    /// Every command that does something, with the words that call it.
    fn leaves() -> Vec<(String, clap::Command)> {
        let mut root = numbers_are_values(Cli::command());
        root.build();
        let (mut open, mut leaves) = (vec![(String::from("remora"), root)], Vec::new());
        while let Some((name, command)) = open.pop() {
            let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
            open.extend(subcommands.map(|c| (format!("{name} {}", c.get_name()), c.clone())));
            leaves.push((name, command));
        }
        leaves
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        let lacks = |name: &str, command: &clap::Command| {
            let help = command.get_after_help().or(command.get_after_long_help()).map(ToString::to_string);
            let call = format!("\n  {name}");
            !help.is_some_and(|help| help.contains("Example") && help.contains(&call))
        };
        let lacking: Vec<String> = leaves().into_iter().filter(|(n, c)| lacks(n, c)).map(|(name, _)| name).collect();
        assert!(lacking.is_empty(), "no example of: {lacking:#?}");
    }

    #[test]
    fn every_argument_has_a_description() {
        let lacking: Vec<String> = leaves()
            .iter()
            .flat_map(|(name, command)| command.get_arguments().map(move |arg| (name, arg)))
            .filter(|(_, arg)| !arg.is_hide_set() && arg.get_help().is_none() && arg.get_long_help().is_none())
            .map(|(name, arg)| format!("{name}: {}", arg.get_id()))
            .collect();
        assert!(lacking.is_empty(), "no description of: {lacking:#?}");
    }

    #[test]
    fn every_command_has_a_description() {
        let lacking: Vec<String> =
            leaves().into_iter().filter(|(_, c)| c.get_about().is_none()).map(|(name, _)| name).collect();
        assert!(lacking.is_empty(), "no description of: {lacking:#?}");
    }
}
