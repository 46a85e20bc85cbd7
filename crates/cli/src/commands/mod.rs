//! The command line and its commands. Each command has a module with its flags and its `run`.

#[cfg(feature = "lab")]
pub(crate) mod bench;
pub(crate) mod config;
#[cfg(feature = "lab")]
pub(crate) mod demo;
#[cfg(feature = "lab")]
pub(crate) mod experiments;
pub(crate) mod files;
pub(crate) mod forwarding;
pub(crate) mod generate;
pub(crate) mod handoff;
pub(crate) mod hoard;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod link;
pub(crate) mod load;
#[cfg(feature = "lab")]
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod serve;
pub(crate) mod transfer;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::{io, process};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::io::Errno;

use crate::commands::config::Config;
#[cfg(feature = "lab")]
use crate::commands::experiments::ExperimentCommand;
use crate::commands::files::change::{Mkdir, Mv, Rm};
use crate::commands::files::inspect::{Cat, Df, Exports, Stat};
use crate::commands::files::ls::Ls;
use crate::commands::forwarding::forward::Forward;
use crate::commands::forwarding::gateway::Gateway;
use crate::commands::generate::Generate;
use crate::commands::handoff::HandOff;
use crate::commands::hoard::flags::Hoard;
use crate::commands::mount::flags::{Conflicts, Mount, MountStatus, Offline, Online, Release, Top, Umount};
use crate::commands::mount::mount_helper;
use crate::commands::serve::flags::Serve;
use crate::commands::transfer::keys::Keys;
use crate::commands::transfer::recv::flags::Recv;
use crate::commands::transfer::send::flags::Send;
use crate::config::settings::command_line;
use crate::config::settings::command_line::CommandLine;
use crate::cp;
use crate::cp::flags::Cp;
use crate::interrupt::{Kept, interruptible, interruptible_safely};
use crate::output::diagnostics::LogSettings;
use crate::output::exit::{Error, Result};
use crate::output::{exit, stdio};

/// Remote files over links that drop, stall and crawl.
///
/// URLs are `nfs://host[:port]/path[?proto=auto|udp|tcp&mountport=N]` for any NFSv3 server, and
/// `nfs://host:port/path?proto=atp&key=KEY` for `remora serve --atp`.
#[derive(Parser, Debug)]
#[command(name = "remora", version = env!("REMORA_VERSION"), after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// Configuration file (TOML); flags override it [default: /etc/remora/config.toml and
    /// ~/.config/remora/config.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses the command line of this process. On an error prints it and exits.
pub(crate) fn parse() -> Cli {
    let command = definition();
    let words: Vec<_> = std::env::args_os().collect();
    if mount_helper::is_fake(&words) {
        process::exit(0);
    }
    if let Some(remount) = mount_helper::Remount::wanted(&words) {
        let done = remount.perform();
        // Nobody reads a message that cannot be printed.
        let _ = done.as_ref().map_err(|why| writeln!(io::stderr(), "remora: {why}"));
        process::exit(i32::from(done.is_err()));
    }
    let words = mount_helper::translated(words);
    let CommandLine { words, added, left_out } =
        command_line::with_config(&command, words).unwrap_or_else(|e| refuse(&e));
    for flag in left_out {
        stdio::eprint(format_args!("note: {flag} of the configuration does not count: another flag excludes it"));
    }
    let parsed = command.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|e| leave(&e, &added))
}

/// Prints what is wrong with the configuration, and ends the process.
fn refuse(error: &Error) -> ! {
    stdio::print_error("configuration", error);
    process::exit(error.code().into())
}

/// Prints help, the version or what is wrong with the command line, and ends the process. That help cannot be written
/// is an error, unless the reader has gone. `added` are flags that the user has not given.
fn leave(error: &clap::Error, added: &[OsString]) -> ! {
    let is_lost = !error.use_stderr() && stdio::is_stdout_closed();
    let printed = match is_lost {
        true => Err(Errno::BADF.into()),
        false => error.print().and_then(|()| io::stdout().flush()),
    };
    match printed {
        Err(e) if !error.use_stderr() && e.kind() != io::ErrorKind::BrokenPipe => {
            stdio::print_error("help", &Error::local("standard output")(e));
            process::exit(1)
        }
        _ if error.use_stderr() && !added.is_empty() => {
            let added: Vec<_> = added.iter().map(|word| word.to_string_lossy()).collect();
            stdio::eprint(format_args!("note: the configuration adds {}", added.join(" ")));
            process::exit(error.exit_code())
        }
        _ => process::exit(error.exit_code()),
    }
}

/// The definition of the command line, as [`parse`] uses it.
fn definition() -> clap::Command {
    numbers_are_values(Cli::command())
}

/// Lets flags take negative numbers, so that the flag's own error message appears instead of "unexpected argument".
fn numbers_are_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes = !arg.is_positional() && arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(numbers_are_values)
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the contents of directories
    #[command(after_help = files::ls::LS_HELP)]
    Ls(Ls),
    /// Write files to standard output
    #[command(after_help = files::inspect::CAT_HELP)]
    Cat(Cat),
    /// Copy files to or from a server
    #[command(after_help = cp::flags::HELP, override_usage = "remora cp [OPTIONS] SRC... DST")]
    Cp(Cp),
    /// Create directories on a server
    #[command(after_help = files::change::MKDIR_HELP)]
    Mkdir(Mkdir),
    /// Remove files and directory trees
    #[command(after_help = files::change::RM_HELP)]
    Rm(Rm),
    /// Rename or move within a server
    #[command(after_help = files::change::MV_HELP)]
    Mv(Mv),
    /// Show a file's attributes
    #[command(after_help = files::inspect::STAT_HELP)]
    Stat(Stat),
    /// Show a file system's size and free space
    #[command(after_help = files::inspect::DF_HELP)]
    Df(Df),
    /// List what a server exports
    #[command(after_help = files::inspect::EXPORTS_HELP)]
    Exports(Exports),
    /// Mount a directory of a server
    #[command(after_help = mount::flags::MOUNT_HELP)]
    Mount(Box<Mount>),
    /// Unmount a directory of a server, and send what is unsent
    #[command(after_help = mount::flags::UMOUNT_HELP)]
    Umount(Umount),
    /// Show mounts, their servers and what waits
    #[command(after_help = mount::flags::STATUS_HELP)]
    Status(MountStatus),
    /// Watch mounts on the terminal
    #[command(after_help = mount::flags::TOP_HELP)]
    Top(Top),
    /// End all calls of a mount that wait for the server
    #[command(after_help = mount::flags::RELEASE_HELP)]
    Release(Release),
    /// Work without the server of a mount
    #[command(after_help = mount::flags::OFFLINE_HELP)]
    Offline(Offline),
    /// Use the server of a mount again, and send the changes made offline
    #[command(after_help = mount::flags::ONLINE_HELP)]
    Online(Online),
    /// List and resolve conflicts with the changes of other machines
    #[command(after_help = mount::flags::CONFLICTS_HELP)]
    Conflicts(Conflicts),
    /// Keep files of a mount on this machine for the time without the server
    #[command(after_help = hoard::flags::HELP)]
    Hoard(Hoard),
    /// Share local directories over NFS
    #[command(after_help = serve::flags::HELP)]
    Serve(Box<Serve>),
    /// Send files with priorities and deadlines over a link with outages
    #[command(after_help = transfer::send::flags::HELP, override_usage = "remora send [OPTIONS] FILE... HOST:PORT --key KEY")]
    Send(Send),
    /// Receive files from remora send
    #[command(after_help = transfer::recv::flags::HELP)]
    Recv(Recv),
    /// Create or show your ATP key
    #[command(after_help = transfer::keys::HELP)]
    Keys(Keys),
    /// Carry local TCP ports through a gateway, over a link with outages
    #[command(after_help = forwarding::forward::HELP)]
    Forward(Box<Forward>),
    /// Run the fixed end of remora forward, or give an NFS server an ATP address
    #[command(after_help = forwarding::gateway::HELP)]
    Gateway(Box<Gateway>),
    /// Run one end of a link that retransmits lost frames on a poor hop
    #[command(after_help = link::flags::HELP)]
    Link(link::flags::Tunnel),
    /// Check the configuration file
    #[command(after_help = config::HELP)]
    Config(Config),
    /// Tell the clients of this machine that an outage begins or ends
    #[command(after_help = handoff::HELP)]
    Handoff(HandOff),
    /// Send background load and count the packets that arrive
    #[command(after_help = load::HELP)]
    Load(load::Load),
    /// Write man pages and completions for shells
    #[command(hide = true, after_help = generate::HELP)]
    Generate(Generate),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Experiment(ExperimentCommand),
}

impl Command {
    /// Whether the command is a service: it runs until a signal, and does not end when its output is closed.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Command::Mount(mount) => !mount.list,
            Command::Serve(_) | Command::Recv(_) | Command::Forward(_) | Command::Gateway(_) => true,
            Command::Link(link) => {
                matches!(link.what, link::flags::LinkCommand::Base(_) | link::flags::LinkCommand::Mobile(_))
            }
            Command::Load(load) => matches!(load.end, load::End::Recv(_)),
            #[cfg(feature = "lab")]
            Command::Experiment(experiment) => experiment.is_service(),
            _ => false,
        }
    }

    /// What the command logs.
    pub(crate) fn log_settings(&self) -> LogSettings {
        let verbosity = match self {
            Command::Mount(args) => &args.verbosity,
            Command::Serve(args) => &args.verbosity,
            Command::Send(args) => &args.verbosity,
            Command::Recv(args) => &args.verbosity,
            Command::Forward(args) => &args.verbosity,
            Command::Gateway(args) => &args.verbosity,
            Command::Link(link::flags::Tunnel { what: link::flags::LinkCommand::Base(args) }) => &args.ends.verbosity,
            Command::Link(link::flags::Tunnel { what: link::flags::LinkCommand::Mobile(args) }) => &args.ends.verbosity,
            #[cfg(feature = "lab")]
            Command::Experiment(experiment) => {
                return experiment.verbosity().map_or_else(LogSettings::default, |verbosity| verbosity.settings());
            }
            _ => return LogSettings::default(),
        };
        verbosity.settings()
    }

    /// The command's name in messages.
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
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Status(_) => "status",
            Command::Top(_) => "top",
            Command::Release(_) => "release",
            Command::Offline(_) => "offline",
            Command::Online(_) => "online",
            Command::Conflicts(_) => "conflicts",
            Command::Hoard(_) => "hoard",
            Command::Serve(_) => "serve",
            Command::Send(_) => "send",
            Command::Recv(_) => "recv",
            Command::Keys(_) => "keys",
            Command::Forward(_) => "forward",
            Command::Gateway(_) => "gateway",
            Command::Link(_) => "link",
            Command::Config(_) => "config",
            Command::Handoff(_) => "handoff",
            Command::Load(_) => "load",
            Command::Generate(_) => "generate",
            #[cfg(feature = "lab")]
            Command::Experiment(experiment) => experiment.name(),
        }
    }
}

pub(crate) async fn run(command: Command, kept: Kept) -> Result {
    match command {
        Command::Ls(args) => interruptible(files::ls::run(args)).await,
        Command::Cat(args) => interruptible(files::inspect::cat(args)).await,
        Command::Cp(args) => {
            let ending = kept.ending();
            interruptible_safely(cp::run(args, kept), ending).await
        }
        Command::Mkdir(args) => interruptible(files::change::mkdir(args)).await,
        Command::Rm(args) => interruptible(files::change::rm(args)).await,
        Command::Mv(args) => interruptible(files::change::mv(args)).await,
        Command::Stat(args) => interruptible(files::inspect::stat(args)).await,
        Command::Df(args) => interruptible(files::inspect::df(args)).await,
        Command::Exports(args) => interruptible(files::inspect::exports(args)).await,
        Command::Keys(args) => transfer::keys::run(&args),
        Command::Generate(args) => generate::run(&args, definition()),
        Command::Config(args) => config::run(args, &definition()),
        Command::Handoff(args) => handoff::run(args).await,
        Command::Status(args) => mount::status::show(&args),
        Command::Release(args) => mount::release::run(&args),
        Command::Offline(args) => mount::offline::go_offline(&args),
        Command::Online(args) => mount::offline::go_online(&args),
        Command::Conflicts(args) => mount::conflicts::run(&args),
        // These tidy up after a signal themselves.
        Command::Mount(args) => mount::command::run(*args).await,
        Command::Top(args) => mount::top::run(args).await,
        Command::Umount(args) => mount::umount::run(args).await,
        Command::Hoard(args) => hoard::run(args).await,
        Command::Send(args) => transfer::send::command::run(args).await,
        Command::Recv(args) => transfer::recv::command::run(args).await,
        Command::Forward(args) => forwarding::forward::run(*args).await,
        Command::Gateway(args) => forwarding::gateway::run(*args).await,
        Command::Serve(args) => serve::command::run(*args).await,
        Command::Link(args) => link::command::run(args).await,
        Command::Load(args) => load::run(args).await,
        #[cfg(feature = "lab")]
        Command::Experiment(experiment) => experiment.run().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::config_file::ConfigFile;
    use crate::config::settings::names::Names;

    #[test]
    fn command_line_definition_is_consistent() {
        numbers_are_values(Cli::command()).debug_assert();
    }

    #[test]
    fn negative_number_gets_the_error_of_its_flag() {
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
    fn help_texts_fit_80_columns() {
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
    fn every_command_has_a_man_page_and_completions() {
        let dir = tempfile::tempdir().unwrap();
        generate::run(&Generate { dir: dir.path().to_owned() }, definition()).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(read("man/man1/remora-link-base.1").contains("\\-\\-mobile"));
        for command in definition().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(read(&format!("man/man1/remora-{name}.1")).contains("Example"), "{name}");
            for (_, path) in generate::COMPLETIONS {
                assert!(read(path).contains(name), "{path} lacks {name}");
            }
        }
    }

    #[test]
    fn every_flag_with_a_value_is_a_key_of_its_table() {
        let mut open = vec![(String::new(), numbers_are_values(Cli::command()))];
        let mut keys = 0;
        while let Some((path, command)) = open.pop() {
            let inner = command.get_subcommands().filter(|c| !c.is_hide_set());
            open.extend(inner.map(|c| (format!("{path}.{}", c.get_name()).trim_matches('.').to_owned(), c.clone())));
            let flags = command.get_arguments().filter(|a| !a.is_hide_set() && a.get_action().takes_values());
            for long in flags.filter_map(clap::Arg::get_long).filter(|_| !["", "keys"].contains(&&path[..])) {
                let file = ConfigFile::from_text("c.toml", &format!("[{path}]\n{long} = []\n"));
                let found = command_line::problems(&file, &definition(), &mut Names::default());
                // A list without values, or a wrong one.
                assert!(found.iter().all(|problem| problem.why.ends_with("found a list")), "{path} {long}: {found:?}");
                keys += 1;
            }
        }
        assert!(keys > 100, "{keys}");
    }

    /// The file of the package, as it is and with all that it shows.
    #[test]
    fn example_configuration_has_no_mistake() {
        let example = include_str!("../../../../packaging/config/config.toml");
        let all: Vec<&str> =
            example.lines().map(|l| l.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or(l)).collect();
        for text in [example, &all.join("\n")] {
            let file = ConfigFile::from_text("/etc/remora/config.toml", text);
            assert_eq!(command_line::problems(&file, &definition(), &mut Names::default()), [], "{text}");
        }
        assert!(all.contains(&"[hosts.nas]") && all.contains(&"[keys]"));
    }

    #[test]
    fn every_command_has_a_description() {
        let lacking: Vec<String> =
            leaves().into_iter().filter(|(_, c)| c.get_about().is_none()).map(|(name, _)| name).collect();
        assert!(lacking.is_empty(), "no description of: {lacking:#?}");
    }
}
