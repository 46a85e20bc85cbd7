//! `remora lab emulate`: programs on both sides of an emulated link, in network namespaces.

mod report;

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use remora_host::emulate::{self, EmulateError, Emulator, Setup, Station};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::task::JoinError;

use super::channel;
use crate::args::{Emulate, Inside};
use crate::exit::{Error, Result};
use crate::{interrupt, out};

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
        out::text("\n")?;
        out::json(&report::Object::new(&report, code))?
    } else {
        out::say(report::text(&report))
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

async fn self_test(setup: Setup, json: bool) -> Result {
    if !json {
        out::say("measuring for about 20 seconds");
    }
    let work = tokio::task::spawn_blocking(move || emulate::self_test(setup));
    let checks = tokio::select! {
        done = work => done.map_err(|e| Error::refused("the self-test", e.to_string()))?.map_err(cannot_start)?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    report::show_checks(&checks, json)?;
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

fn setup(args: &Emulate) -> Result<Setup> {
    if let Some((number, _)) = args.mobile.iter().find(|(n, _)| *n > args.mobiles) {
        return Err(Error::Usage(format!("there is no mobile {number}: there are {}", args.mobiles)));
    }
    Ok(Setup {
        mobiles: args.mobiles,
        config: channel::config(&args.channel)?,
        seed: args.channel.seed,
        network: args.network,
        congestion: args.congestion.clone(),
        lateness_max: args.lateness_max,
        pcap: args.pcap.clone(),
        ..Setup::default()
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
