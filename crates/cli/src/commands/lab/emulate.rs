//! `remora lab emulate`: runs programs on both sides of an emulated link, in network namespaces.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use ipnet::Ipv4Net;
use remora_host::emulate;
use remora_host::emulate::{EmulateError, EmulationSetup, Emulator, Station};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinError;

use crate::commands::lab::channel::ChannelArgs;
use crate::commands::lab::{channel, emulate_report};
use crate::config::units;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
The base and each mobile are network namespaces with a device remora0 on the
emulated link: the base has the first address of the network (10.77.0.1), mobile
1 the second, and so on. COMMAND runs on mobile 1; emulate exits with its exit
code, or 128 and the number of the signal that ended it. When COMMAND ends, all
other processes in the namespaces are ended. Programs find REMORA_BASE_ADDR,
REMORA_MOBILE_ADDR and MAHIMAHI_BASE in their environment.

The channel starts before the first program. At the end, standard error gets a
report: the fate of all frames, and whether the run is VALID: no frame was later
than --lateness-max. With --json, the last line of standard output is the report
as one object.

Examples:
  remora lab emulate   # a shell on the mobile
  remora lab emulate --bad-mean 80ms --base 'iperf3 -s' -- \\
      sh -c 'sleep 1; iperf3 -c 10.77.0.1'
  remora lab emulate \\
      --base 'remora serve /srv --listen 0.0.0.0:2049 --squash none' \\
      -- remora cp -r nfs://10.77.0.1/ .
  remora lab emulate --trace-down verizon.down --trace-up verizon.up \\
      --pcap /tmp/run -- ./client
  remora lab emulate --self-test";

/// What has no say in the self-test.
const NOT_TESTED: [&str; 19] = [
    "command",
    "base",
    "mobile",
    "mobiles",
    "congestion",
    "pcap",
    "rate",
    "trace_up",
    "trace_down",
    "duplex",
    "delay",
    "queue",
    "mtu",
    "loss",
    "bad_mean",
    "good_mean",
    "distribution",
    "outage",
    "hold",
];

#[derive(Args, Debug)]
pub(crate) struct Emulate {
    #[command(flatten)]
    pub(crate) channel: ChannelArgs,
    /// Mobiles that share the channel
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) mobiles: usize,
    /// Run this shell command on the base, before COMMAND
    #[arg(long, value_name = "CMD")]
    pub(crate) base: Option<String>,
    /// Run this shell command on mobile N, beside COMMAND. May be repeated
    #[arg(long, value_name = "N=CMD", value_parser = on_mobile)]
    pub(crate) mobile: Vec<(usize, String)>,
    /// Network of base and mobiles
    #[arg(long, value_name = "CIDR", default_value = "10.77.0.0/24")]
    pub(crate) network: Ipv4Net,
    /// TCP congestion control of both sides; the kernel must have it
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Maximum lateness of a frame in a valid run
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::duration)]
    pub(crate) lateness_max: Duration,
    /// Write captures base.pcapng, mobile-1.pcapng, ... to DIR; comments tell the fate of each sent frame
    #[arg(long, value_name = "DIR")]
    pub(crate) pcap: Option<PathBuf>,
    /// Print the report as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure the accuracy of the emulator for about 20 s, on separate channels, and run nothing else
    #[arg(long, conflicts_with_all = NOT_TESTED)]
    pub(crate) self_test: bool,
    /// Command to run on mobile 1 [default: $SHELL]
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

fn on_mobile(text: &str) -> Result<(usize, String), String> {
    let parts = text.split_once('=').and_then(|(n, cmd)| Some((n.parse().ok()?, cmd.to_owned())));
    parts.filter(|(n, _)| *n > 0).ok_or_else(|| format!("'{text}' is not N=CMD: expected as in '2=iperf3 -s'"))
}

/// How the emulator starts a program; see `remora_host::emulate::inside`.
#[derive(Args, Debug)]
pub(crate) struct Inside {
    pub(crate) namespace: PathBuf,
    pub(crate) program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// How often to look whether the emulator still runs.
const FAILURE_EVERY: Duration = Duration::from_millis(200);
/// How long programs may take to end when they are asked to.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: Emulate) -> Result {
    let setup = setup(&args)?;
    if args.self_test {
        return self_test(setup, args.json).await;
    }
    let stop = interrupt::catch();
    tokio::pin!(stop);
    let started = tokio::task::spawn_blocking(move || Emulator::start(setup));
    let emulator = tokio::select! {
        started = started => started.map_err(cut_short)?.map_err(cannot_start)?,
        // What there is by then goes with this process.
        number = &mut stop => return Err(Error::Interrupted(number)),
    };
    let mut beside = Vec::new();
    if let Some(base) = &args.base {
        beside.push(Program::start(&emulator, Station::Base, &shell(base), Stdio::null())?);
    }
    for (number, command) in &args.mobile {
        beside.push(Program::start(&emulator, Station::Mobile(number - 1), &shell(command), Stdio::null())?);
    }
    let command = if args.command.is_empty() {
        vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())]
    } else {
        args.command
    };
    let mut program = Program::start(&emulator, Station::Mobile(0), &command, Stdio::inherit())?;
    let ended = tokio::select! {
        status = program.ended() => status.map(emulate::inside::code).map_err(Error::local("waiting for the command")),
        number = &mut stop => Err(Error::Interrupted(number)),
        e = failure(&emulator) => Err(stopped(e)),
    };
    beside.push(program);
    let code = ended.as_ref().map_or_else(Error::code, |code| *code);
    // Another signal ends what a disk or a reader holds up.
    let end = tokio::spawn(end(emulator, beside, code, args.json));
    tokio::select! {
        done = end => done.map_err(cut_short)??,
        number = interrupt::again() => return Err(Error::Interrupted(number)),
    }
    match ended? {
        0 => Ok(()),
        code => Err(Error::Reported(code)),
    }
}

/// Ends the programs and tells what there is to tell; everything that was made is gone then.
async fn end(emulator: Emulator, programs: Vec<Program>, code: u8, json: bool) -> Result {
    let report = tokio::task::block_in_place(|| emulator.report());
    end_all(programs).await;
    let report = report.map_err(stopped)?;
    if json {
        // COMMAND had the same output, and may have ended in the middle of a line.
        stdio::print("\n")?;
        stdio::print_json(&emulate_report::Object::new(&report, code))?
    } else {
        stdio::eprint(emulate_report::text(&report))
    }
    tokio::task::block_in_place(|| drop(emulator));
    Ok(())
}

/// Waits until the emulator ends by itself.
async fn failure(emulator: &Emulator) -> EmulateError {
    let mut ticks = tokio::time::interval(FAILURE_EVERY);
    loop {
        ticks.tick().await;
        if let Some(e) = emulator.failure() {
            return e;
        }
    }
}

fn cut_short(e: JoinError) -> Error {
    Error::refused("the emulator", e.to_string())
}

fn stopped(e: EmulateError) -> Error {
    Error::refused("the emulator has stopped", e.to_string())
}

async fn self_test(setup: EmulationSetup, json: bool) -> Result {
    if !json {
        stdio::eprint("measuring for about 20 seconds");
    }
    let work = tokio::task::spawn_blocking(move || emulate::self_test(setup));
    let checks = tokio::select! {
        done = work => done.map_err(|e| Error::refused("the self-test", e.to_string()))?.map_err(cannot_start)?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    emulate_report::show_checks(&checks, json)?;
    if checks.iter().all(|c| c.passed) { Ok(()) } else { Err(Error::Reported(1)) }
}

/// The first process in a station; only the emulator starts it.
pub(crate) async fn inside(args: Inside) -> Result {
    let code = emulate::inside::run(&args.namespace, &args.program, &args.args).await;
    match code.map_err(Error::local("entering the emulated network"))? {
        0 => Ok(()),
        code => Err(Error::Reported(code)),
    }
}

fn setup(args: &Emulate) -> Result<EmulationSetup> {
    if let Some((number, _)) = args.mobile.iter().find(|(n, _)| *n > args.mobiles) {
        return Err(Error::Usage(format!("there is no mobile {number}: --mobiles is {}", args.mobiles)));
    }
    Ok(EmulationSetup {
        mobiles: args.mobiles,
        config: channel::config(&args.channel)?,
        seed: args.channel.seed,
        network: args.network,
        congestion: args.congestion.clone(),
        lateness_max: args.lateness_max,
        pcap: args.pcap.clone(),
        ..EmulationSetup::default()
    })
}

fn cannot_start(e: EmulateError) -> Error {
    match e {
        EmulateError::Config(_)
        | EmulateError::Mobiles(_)
        | EmulateError::Network(_)
        | EmulateError::NotForStations(_) => Error::Usage(e.to_string()),
        _ => Error::refused("cannot emulate", e.to_string()),
    }
}

fn shell(line: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", line].map(OsString::from).to_vec()
}

/// A program in a station.
struct Program {
    child: Child,
    some_child_ended: unix::Signal,
}

impl Program {
    fn start(emulator: &Emulator, station: Station, command: &[OsString], input: Stdio) -> Result<Program> {
        let start = move || -> io::Result<Program> {
            let none = || io::Error::from(io::ErrorKind::NotFound);
            let (program, args) = command.split_first().ok_or_else(none)?;
            let mut command: Command = emulator.command(station, program).ok_or_else(none)?;
            command.args(args).stdin(input);
            let some_child_ended = signal(SignalKind::child())?;
            Ok(Program { child: emulator.spawn(command)?, some_child_ended })
        };
        start().map_err(Error::local("starting a program in the emulated network"))
    }

    async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            self.some_child_ended.recv().await;
        }
    }

    /// Asks it to end; in vain if it has.
    fn terminate(&mut self) {
        // Until it is waited for, its number is not given to another.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }
}

/// Asks all to end, and makes them.
async fn end_all(mut programs: Vec<Program>) {
    programs.iter_mut().for_each(Program::terminate);
    let all = async {
        for program in &mut programs {
            let _ = program.ended().await;
        }
    };
    let _ = tokio::time::timeout(GRACE, all).await;
    for program in &mut programs {
        // Killing the first process kills all that it has started.
        let _ = program.child.kill();
        let _ = program.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        emulate: Emulate,
    }

    #[test]
    fn unknown_flag_is_not_taken_for_the_command() {
        let command = |line: &[&str]| {
            let parsed = Line::try_parse_from([&["emulate"], line].concat());
            parsed.map(|line| line.emulate.command).ok()
        };
        assert_eq!(command(&["--seed", "2", "--full-duplex", "--", "true"]), None);
        let ping = Some(["ping", "-c", "1"].map(OsString::from).to_vec());
        assert_eq!(command(&["--seed", "2", "--", "ping", "-c", "1"]), ping);
        assert_eq!(command(&["--seed", "2", "ping", "-c", "1"]), ping, "what follows a program is its own");
    }

    #[test]
    fn mobiles_are_numbered_from_one() {
        assert_eq!(on_mobile("2=ping -c 1 a=b"), Ok((2, "ping -c 1 a=b".to_owned())));
        assert!(on_mobile("0=x").is_err() && on_mobile("x").is_err() && on_mobile("=x").is_err());
    }
}
