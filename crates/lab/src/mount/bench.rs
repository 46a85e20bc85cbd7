//! One run: a link, a server, a mount and the steps of a work.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use guest::{Kernel, Scratch, Silence};
use remora_base::Time;
use remora_channel::{Config, ErrorModel, Side};
use remora_host::emulate::{EmulationSetup, Emulator, Station};
use remora_sim::copy::Direction;

use super::cell::Sample;
use super::files;
use super::options::{MountSystem, Options};
use super::session::{Ended, Shell, quoted};
use super::work::{Figures, Measure, Step, Work, lengths};
use crate::report::statistics::{percentile, sorted};
use crate::wireless::real::guest as kernel_client;
use crate::wireless::real::program::{self, Program, READY, Result, Start, failed, failed_with};
use crate::wireless::real::ssh::Ssh;

const ATP_PORT: u16 = 4049;
/// Exit code of a step that `timeout` killed.
const KILLED: u8 = 137;
/// Time beyond a step's limit until its shell counts as stuck.
const GRACE: Duration = Duration::from_secs(20);

/// A bench. Fields are dropped in this order: the mount first.
struct Bench<'a> {
    shell: Shell,
    ssh: Option<Ssh>,
    server: Option<Program>,
    emulator: Emulator,
    scratch: Scratch,
    options: &'a Options,
    stop: &'a AtomicBool,
}

/// Runs `work` on a fresh mount; `kernel` is for a guest. `None` if `stop` is set meanwhile.
pub(super) fn measure(
    options: &Options,
    system: MountSystem,
    work: Work,
    seed: u64,
    kernel: Option<&Kernel>,
    stop: &AtomicBool,
) -> Result<Option<Sample>> {
    let mut bench = Bench::start(options, system, kernel, stop)?;
    files::prepare(work, seed, &bench.scratch.path("srv"), &bench.scratch.path("mobile"))
        .map_err(failed_with("the files of the work"))?;
    bench.mount(system)?;
    bench.steps(system, work, seed)
}

impl<'a> Bench<'a> {
    fn start(
        options: &'a Options,
        system: MountSystem,
        kernel: Option<&Kernel>,
        stop: &'a AtomicBool,
    ) -> Result<Bench<'a>> {
        let inside = ["srv", "mobile", "mnt", "state", "cache", "log", "run", "run-ssh"];
        let scratch = program::in_memory(&inside).map_err(failed_with("a scratch directory"))?;
        let setup = EmulationSetup {
            config: fair(&options.link),
            inside: [options.binary.clone().into(), "lab".into(), "inside".into()].into(),
            lateness_max: options.lateness_max,
            ..EmulationSetup::default()
        };
        let emulator = Emulator::start(setup).map_err(|e| failed(e.to_string()))?;
        let ssh = (system == MountSystem::Sshfs).then(|| Ssh::start(&emulator, &scratch)).transpose()?;
        let shell = match (system, kernel) {
            (MountSystem::Linux, Some(kernel)) => Shell::in_guest(&emulator, &scratch, kernel),
            _ => Shell::start(&emulator, &scratch),
        }?;
        Ok(Bench { shell, ssh, server: None, emulator, scratch, options, stop })
    }

    /// Mounts the server's directory while the link is good.
    fn mount(&mut self, system: MountSystem) -> Result<()> {
        let (base, at) = (self.emulator.addr(Station::Base), self.scratch.path("mnt"));
        let at = quoted(&at);
        let begun = match (system.flags(), &self.ssh) {
            (Some(flags), _) => {
                let key = self.serve()?;
                let url = match system {
                    MountSystem::Atp => format!("nfs://{base}:{ATP_PORT}/?proto=atp&key={key}"),
                    _ => format!("nfs://{base}/"),
                };
                let remora = quoted(&self.options.binary);
                format!("{remora} mount -f {flags} '{url}' {at} >&2 &")
            }
            (None, Some(ssh)) => {
                let command = ssh.shell().replace('\'', r"'\''");
                let from = quoted(&self.scratch.path("srv"));
                format!("sshfs -o ssh_command='{command}' root@{base}:{from} {at} >&2")
            }
            (None, None) => {
                self.serve()?;
                format!("busybox {}", kernel_client::mount(base, &at))
            }
        };
        let limit = Instant::now() + READY;
        self.shell.must(&begun, limit, self.stop)?;
        let until = format!("until mountpoint -q {at}; do sleep 0.05; done");
        self.shell.must(&until, limit, self.stop)
    }

    /// Starts Remora's server for all transports; returns its key for a URL.
    fn serve(&mut self) -> Result<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (binary, exported) = (text(&self.options.binary), text(&self.scratch.path("srv")));
        let state = text(&self.scratch.path("state"));
        let objects = format!("0.0.0.0:{ATP_PORT}");
        let line = [&*binary, "serve", &exported, "--listen", "0.0.0.0:2049", "--atp", &objects];
        let line = line.into_iter().chain(["--state", &state, "--squash", "none", "--json"]);
        let line: Vec<String> = line.map(str::to_owned).collect();
        let start = Start { talks: true, ..Start::new("serve", &line) };
        let mut server = Program::start(&self.emulator, &self.scratch, Station::Base, &start)?;
        let key = server.talk()?.until(Instant::now() + READY, key_of);
        let key = key.map_err(|e: Silence| failed(format!("{e}; {}", server.words())))?;
        self.server = Some(server);
        Ok(key)
    }

    /// Runs the steps on the emulated link.
    fn steps(&mut self, system: MountSystem, work: Work, seed: u64) -> Result<Option<Sample>> {
        let steps = work.steps(self.options.long);
        for (number, step) in steps.iter().enumerate() {
            let path = self.scratch.path(format!("mobile/step-{number}"));
            fs::write(path, step.script).map_err(failed_with("a step"))?;
        }
        self.emulator.begin(self.options.link.clone(), seed).map_err(|e| failed(e.to_string()))?;
        let mut sample = Sample::default();
        for (number, step) in steps.iter().enumerate() {
            if !self.step(number, step, &mut sample)? {
                return Ok(None);
            }
        }
        let report = self.emulator.report().map_err(|e| failed(e.to_string()))?;
        sample.lateness_ms = report.lateness.max.as_secs_f64() * 1e3;
        sample.fault = report.fault();
        self.server.as_mut().map_or(Ok(()), Program::must_run)?;
        self.ssh.as_mut().map_or(Ok(()), |ssh| ssh.server.must_run())?;
        for (measure, _) in sample.values.clone() {
            sample.floors.extend(floor(&self.options.link, seed, measure)?.map(|floor| (measure, floor)));
        }
        if sample.values.iter().all(|(_, value)| value.is_finite()) {
            if system == MountSystem::Back {
                self.send_all()?;
            }
            self.compare(work)?;
        }
        Ok(Some(sample))
    }

    /// Unmounts, which waits until the server has everything.
    fn send_all(&mut self) -> Result<()> {
        let (remora, at) = (quoted(&self.options.binary), quoted(&self.scratch.path("mnt")));
        let limit = Instant::now() + self.options.limit;
        self.shell.must(&format!("{remora} umount {at} >&2"), limit, self.stop)
    }

    /// Runs one step and adds its figures. `false` if the study is to stop.
    fn step(&mut self, number: usize, step: &Step, sample: &mut Sample) -> Result<bool> {
        let never = Instant::now() + step.pause + READY;
        if !step.pause.is_zero() {
            let idle = self.shell.run(&format!("sleep {}", step.pause.as_secs()), never, self.stop)?;
            if idle == Ended::Stopped {
                return Ok(false);
            }
        }
        let limit = self.options.limit;
        let (mount, local) = (quoted(&self.scratch.path("mnt")), quoted(&self.scratch.path("mobile")));
        let seconds = limit.as_secs_f64();
        let line = format!("M={mount} L={local} timeout -s KILL {seconds} /bin/sh {local}/step-{number}");
        let began = Instant::now();
        let ended = self.shell.run(&line, began + limit + GRACE, self.stop)?;
        let took = began.elapsed().as_secs_f64();
        let (whole, said) = match ended {
            Ended::Stopped => return Ok(false),
            Ended::Code { code: 0, said } => (took, said),
            Ended::Code { code: KILLED, said } if took >= seconds => (f64::INFINITY, said),
            Ended::Code { code, .. } => return Err(self.shell.refusal(&line, &format!("ended with {code}"))),
            Ended::Late => return Err(self.shell.refusal(&line, "cannot be killed")),
        };
        match step.figures {
            Figures::Whole(measure) => sample.values.push((measure, whole)),
            Figures::Printed(lines) => {
                for line in lines {
                    // A step that was cut off has no complete figures.
                    let all = if whole.is_finite() { sorted(&lengths(&said, line.kind)) } else { vec![whole] };
                    let value = percentile(&all, line.percent);
                    let value = value.ok_or_else(|| failed(format!("the step printed no line of {}", line.kind)))?;
                    sample.values.push((line.measure, value));
                }
                sample.documents = lengths(&said, "document").len();
                sample.notes = lengths(&said, "note").len();
            }
        }
        Ok(true)
    }

    /// Fails if a file on the server is not what the work wrote.
    fn compare(&self, work: Work) -> Result<()> {
        for (remote, local) in work.copies() {
            let read = |path| fs::read(path).map_err(failed_with("a file of the work"));
            let (server, mobile) = (self.scratch.path("srv").join(remote), self.scratch.path("mobile").join(local));
            if read(server)? != read(mobile)? {
                return Err(failed(format!("{remote} on the server differs from what was written")));
            }
        }
        Ok(())
    }
}

/// The link without errors, for the mount.
fn fair(link: &Config) -> Config {
    Config { loss: 0.0, errors: ErrorModel::None, outages: Vec::new(), ..link.clone() }
}

/// The key in the line with which the server says that it listens, for a URL.
fn key_of(line: &str) -> Option<String> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    let key = ready.get("atp")?.get("key")?.as_str()?;
    Some(key.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"))
}

/// The time that the best sender needs for a measure's bytes.
fn floor(link: &Config, seed: u64, measure: Measure) -> Result<Option<f64>> {
    let Some((direction, bytes)) = measure.transfer() else { return Ok(None) };
    let from = match direction {
        Direction::Read => Side::Base,
        Direction::Write => Side::Mobile,
    };
    let floor = remora_channel::floor(link, seed, from, bytes, Time::ZERO).map_err(|e| failed(e.to_string()))?;
    Ok(floor.map(Time::as_secs_f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_taken_from_the_servers_line_for_a_url() {
        assert_eq!(key_of(r#"{"listen":[],"atp":{"key":"a+b/c="}}"#).as_deref(), Some("a%2Bb%2Fc%3D"));
        assert_eq!(key_of(r#"{"listen":[],"atp":null}"#), None);
        assert_eq!(key_of("no JSON"), None);
    }
}
