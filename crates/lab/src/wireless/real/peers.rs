//! Other systems, and whether they are installed.

use std::path::Path;
use std::process::Command;

use guest::{Kernel, Missing, find};
use serde::Serialize;

use crate::wireless::job::System;

/// Other systems and their availability.
#[derive(Debug, Default)]
pub(super) struct Peers {
    guest: Option<Kernel>,
    all: Vec<Peer>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peer {
    pub name: &'static str,
    pub version: Option<String>,
    /// What to install if it is missing.
    pub missing: Option<String>,
    #[serde(skip)]
    system: System,
}

impl Peers {
    /// Looks for all systems. `kernel` is an unpacked kernel package for the guest.
    pub(super) fn find(kernel: Option<&Path>) -> Peers {
        let network = find("ip").ok_or_else(|| Missing("install iproute2".into()));
        let guest = network.and_then(|_| Kernel::find(kernel, &[]));
        let linux = guest.as_ref().map(|k| format!("Linux {}", k.version)).map_err(|Missing(why)| why.clone());
        let ssh = |copies: &str, install: &str| {
            let missing = [copies, "ssh", "ssh-keygen", "sshd"].into_iter().find(|p| find(p).is_none());
            missing.map_or(Ok(()), |p| {
                Err(format!("install {}", if p == copies { install } else { "openssh-client and openssh-server" }))
            })
        };
        let libnfs = find("nfs-cp").ok_or_else(|| "install libnfs-utils".to_owned()).map(|p| libnfs_version(&p));
        let scp = ssh("scp", "openssh-client").map(|()| said("ssh", "-V"));
        let rsync = ssh("rsync", "rsync").map(|()| said("rsync", "--version"));
        let all = [(System::Linux, linux), (System::Libnfs, libnfs), (System::Scp, scp), (System::Rsync, rsync)];
        let peer = |(system, found): (System, Result<String, String>)| {
            let (version, missing) = match found {
                Ok(version) => (Some(version), None),
                Err(missing) => (None, Some(missing)),
            };
            Peer { name: system.name(), version, missing, system }
        };
        Peers { guest: guest.ok(), all: all.map(peer).into() }
    }

    pub(super) fn all(&self) -> &[Peer] {
        &self.all
    }

    pub(super) fn has(&self, system: System) -> bool {
        self.all.iter().any(|p| p.system == system && p.version.is_some())
    }

    pub(super) fn guest(&self) -> Option<&Kernel> {
        self.guest.as_ref()
    }
}

/// The first line of a program's version output.
pub(crate) fn said(program: &str, flag: &str) -> String {
    said_with(program, flag, "")
}

/// The first line of a program's version output that contains `word`.
pub(crate) fn said_with(program: &str, flag: &str, word: &str) -> String {
    let output = Command::new(program).arg(flag).output();
    let text = output.map(|o| String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned()).unwrap_or_default();
    text.lines().find(|line| line.contains(word)).unwrap_or(program).trim().to_owned()
}

/// The tools of libnfs print no version; the library's file name shows it roughly.
pub(crate) fn libnfs_version(program: &Path) -> String {
    let output = Command::new("ldd").arg(program).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let library = text.split_whitespace().find(|w| w.starts_with("libnfs.so"));
    library.map_or_else(|| "libnfs".to_owned(), str::to_owned)
}
