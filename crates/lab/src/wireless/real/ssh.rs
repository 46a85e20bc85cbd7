//! An SSH server on a bench for scp and rsync, with its own keys and settings.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use guest::{Scratch, find};
use remora_host::emulate::{Emulator, Station};

use super::program::{Program, READY, Result, Start, failed, failed_with};
use super::tunnel::own_run;
use crate::wireless::job::System;

const PORT: u16 = 2222;

#[derive(Debug)]
pub(crate) struct Ssh {
    pub(crate) server: Program,
    options: Vec<String>,
}

impl Ssh {
    pub(crate) fn start(emulator: &Emulator, scratch: &Scratch) -> Result<Ssh> {
        for name in ["host-key", "user-key"] {
            let file = scratch.path(name);
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).output();
            if !made.map_err(failed_with("ssh-keygen"))?.status.success() {
                return Err(failed(format!("ssh-keygen did not create {name}")));
            }
        }
        let at = |name: &str| scratch.path(name).to_string_lossy().into_owned();
        let config = format!(
            "Port {PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             UseDNS no\nPrintMotd no\nCompression no\nSubsystem sftp internal-sftp\n",
            emulator.addr(Station::Base),
            at("host-key"),
            at("user-key.pub"),
        );
        fs::write(scratch.path("sshd_config"), config).map_err(failed_with("the SSH server's settings"))?;
        let sshd = find("sshd").ok_or_else(|| failed("sshd is not installed".into()))?;
        // sshd needs an empty directory owned by root for privilege separation.
        let (sshd, config) = (sshd.to_string_lossy(), at("sshd_config"));
        let within = ["/bin/sh", "-c", "mkdir -p -m 755 /run/sshd && exec \"$@\"", "sh"];
        let line = own_run(&scratch.path("run-ssh"), within.into_iter().chain([&*sshd, "-D", "-e", "-f", &config]));
        let server = Program::start(emulator, scratch, Station::Base, &Start::new("sshd", &line))?;
        wait(emulator, &server)?;
        let option = |text: String| ["-o".to_owned(), text];
        let mut options: Vec<String> = vec!["-F".into(), "none".into(), "-i".into(), at("user-key")];
        for text in [
            format!("UserKnownHostsFile={}", at("known-hosts")),
            "GlobalKnownHostsFile=/dev/null".into(),
            "StrictHostKeyChecking=accept-new".into(),
            "IdentitiesOnly=yes".into(),
            "IdentityAgent=none".into(),
            "Compression=no".into(),
            "BatchMode=yes".into(),
            format!("Port={PORT}"),
        ] {
            options.extend(option(text));
        }
        Ok(Ssh { server, options })
    }

    /// The command that reaches the server, for programs that run ssh themselves.
    pub(crate) fn shell(&self) -> String {
        let words = std::iter::once("ssh").chain(self.options.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The copy command without source and destination.
    pub(crate) fn command(&self, system: System) -> Vec<String> {
        match system {
            System::Rsync => vec!["rsync".into(), "--whole-file".into(), "-e".into(), self.shell()],
            _ => {
                let mut command = vec!["scp".into(), "-q".into()];
                command.extend(self.options.iter().cloned());
                command
            }
        }
    }
}

fn wait(emulator: &Emulator, server: &Program) -> Result<()> {
    let deadline = Instant::now() + READY;
    let addr = SocketAddr::from((emulator.addr(Station::Base), PORT));
    while emulator.within(Station::Base, || TcpStream::connect_timeout(&addr, Duration::from_millis(500))).is_err() {
        if Instant::now() >= deadline {
            return Err(failed(format!("the SSH server does not answer; {}", server.words())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
