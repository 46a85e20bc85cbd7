//! The Linux kernel's NFS server in the guest, with the commands of this machine as its clients.
//!
//! Its programs (exportfs, rpc.mountd, rpc.nfsd) are this machine's or come from Debian's package, unpacked but not
//! installed: an installed server would start on this machine.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guest::Missing;

use super::outcome::Ended;
use crate::cmd::Result;

/// Starts the server in the guest, and a loop that restarts it when a file requests that.
pub(super) const SERVE: &str = include_str!("serve.sh");
/// Programs that the server needs.
const PROGRAMS: [&str; 3] = ["exportfs", "rpc.mountd", "rpc.nfsd"];
/// Attempts to find two free ports.
const TRIES: u32 = 16;

/// The directory whose `usr/sbin` holds the server's programs.
pub(super) fn programs() -> std::result::Result<PathBuf, String> {
    if guest::find("rpcbind").is_none() {
        return Err("rpcbind is not installed".into());
    }
    if PROGRAMS.iter().all(|p| Path::new("/usr/sbin").join(p).is_file()) {
        return Ok("/".into());
    }
    guest::unpacked("nfs-kernel-server", "usr/sbin/rpc.mountd").map_err(|Missing(why)| why)
}

/// Loopback ports of this machine that QEMU forwards to the guest's server, over TCP and UDP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    nfs: u16,
    mount: u16,
}

impl Ports {
    /// Finds two ports that are free at the moment.
    pub(super) fn free() -> Result<Ports> {
        // Hold both until both are known.
        let (nfs, mount) = (free()?, free()?);
        Ok(Ports { nfs: nfs.0, mount: mount.0 })
    }

    /// QEMU's options for the forwarding.
    pub(super) fn forwards(self) -> String {
        let one = |proto, here, there| format!(",hostfwd={proto}:127.0.0.1:{here}-:{there}");
        [("tcp", self.nfs, 2049), ("udp", self.nfs, 2049), ("tcp", self.mount, 20048), ("udp", self.mount, 20048)]
            .map(|(proto, here, there)| one(proto, here, there))
            .concat()
    }

    /// The ports as shell variables for a script.
    pub(super) fn told(self) -> String {
        format!("port={}\nmountport={}", self.nfs, self.mount)
    }
}

/// A port that is free for both protocols, and the sockets that hold it.
fn free() -> Result<(u16, TcpListener)> {
    for _ in 0..TRIES {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = tcp.local_addr()?.port();
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok((port, tcp));
        }
    }
    Err("no port of loopback is free for TCP and UDP".into())
}

/// Runs `script` on this machine in directory `place` for at most `seconds_max`; its output goes to `log`.
pub(super) fn run(script: &str, place: &Path, seconds_max: u64, log: &Path) -> Result<Ended> {
    fs::create_dir(place)?;
    let file = place.join("step.sh");
    fs::write(&file, script)?;
    let log = File::create(log)?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=5", &seconds_max.to_string(), "/bin/sh"]);
    let status =
        command.arg(file).current_dir(place).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).status()?;
    Ok(match status.code() {
        Some(0) => Ended::Well,
        None | Some(124 | 137) => Ended::Late,
        Some(code) => Ended::Badly(u8::try_from(code).unwrap_or(u8::MAX)),
    })
}

#[cfg(test)]
mod tests {
    use guest::Scratch;

    use super::*;

    #[test]
    fn ports_lead_to_the_servers_own() {
        let forwards = Ports { nfs: 7, mount: 8 }.forwards();
        assert!(forwards.starts_with(",hostfwd=tcp:127.0.0.1:7-:2049,hostfwd=udp:127.0.0.1:7-:2049,"), "{forwards}");
        assert!(forwards.ends_with(",hostfwd=udp:127.0.0.1:8-:20048"), "{forwards}");
        assert_ne!(Ports::free().unwrap().nfs, 0);
    }

    #[test]
    fn a_script_ends_well_badly_or_late() {
        let scratch = Scratch::new(&std::env::temp_dir(), "xtask-", &[]).unwrap();
        let log = scratch.path("log");
        let cases = [("echo said", Ended::Well), ("exit 7", Ended::Badly(7)), ("sleep 60", Ended::Late)];
        for (n, (script, ended)) in cases.into_iter().enumerate() {
            assert_eq!(run(script, &scratch.path(n.to_string()), 1, &log).unwrap(), ended, "{script}");
            assert_eq!(fs::read_to_string(&log).unwrap(), if n == 0 { "said\n" } else { "" });
        }
    }
}
