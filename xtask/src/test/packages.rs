//! Debian packages that interoperability tests use, and their installation.

use std::fmt;
use std::process::{Command, Stdio};

use crate::cmd;

/// Packages beyond Rust and a C compiler, and the purpose of each.
const PACKAGES: &[(&str, &str)] = &[
    ("libnfs-utils", "a foreign NFS client: nfs-ls, nfs-cat, nfs-cp"),
    ("libnfs-dev", "a foreign NFSv2 client: raw calls for a C program"),
    ("nfs-ganesha", "a foreign NFS server"),
    ("nfs-ganesha-vfs", "its access to the local disk"),
    ("rpcbind", "the portmapper it registers with"),
    ("fuse3", "fusermount3, by which users mount"),
    ("ntfs-3g", "a file system that takes names for one whatever their case"),
    ("strace", "the order of the server's system calls"),
    ("iproute2", "addresses and routes in network namespaces"),
    ("openssh-client", "scp, and what rsync goes through"),
    ("openssh-server", "their other end"),
    ("sshfs", "a mount over SSH, to compare with"),
    ("rsync", "another way to copy"),
    ("sqlite3", "a database on a mount"),
    ("vim-tiny", "an editor that saves there"),
    ("vsftpd", "FTP, the oldest way to copy"),
    ("lftp", "its client"),
    ("qemu-system-x86", "a guest with the Linux kernel's NFS client"),
    ("busybox-static", "the programs in it"),
    ("acl", "ACLs for that client"),
    ("git", "work for it"),
    ("make", "more of it"),
    ("pkg-config", "how C programs find libatp"),
    ("prometheus", "promtool, which checks pages of metrics"),
    ("chromium", "a browser that looks at the model's page"),
    ("chromium-driver", "what drives it"),
    ("fonts-dejavu-core", "letters to look at"),
    ("libreoffice-calc-nogui", "a spreadsheet program that computes the model's sheets"),
];

/// Limit for one run of apt-get, in seconds.
const APT_SECS_MAX: &str = "300";

/// Which packages are present, and which are missing.
#[derive(Default)]
pub(crate) struct Installed {
    missing: Vec<&'static str>,
    why: String,
}

/// Installs missing packages if that is allowed and possible. The tests run in any case.
pub(crate) fn provide(no_install: bool) -> Installed {
    let missing = missing(is_installed);
    if missing.is_empty() {
        return Installed::default();
    }
    let why = match refusal(no_install) {
        Some(why) => why.to_owned(),
        None => match install(&missing) {
            Ok(()) => return Installed::default(),
            Err(e) => e.to_string(),
        },
    };
    let installed = Installed { missing, why };
    print!("{installed}");
    installed
}

fn missing(is_installed: impl Fn(&str) -> bool) -> Vec<&'static str> {
    PACKAGES.iter().map(|(package, _)| *package).filter(|p| !is_installed(p)).collect()
}

/// Why no package can be installed here.
fn refusal(no_install: bool) -> Option<&'static str> {
    if no_install {
        Some("--no-install was given")
    } else if cmd::find("apt-get").is_none() {
        Some("there is no apt-get here")
    } else if !cmd::is_root() {
        Some("only root can install them")
    } else {
        None
    }
}

/// Installs packages by apt-get.
pub(crate) fn install(packages: &[&str]) -> cmd::Result {
    println!("== installing for the tests: {}", packages.join(" "));
    for (package, purpose) in PACKAGES.iter().filter(|(p, _)| packages.contains(p)) {
        println!("   {package}: {purpose}");
    }
    cmd::run(apt_get().args(["update", "-qq"]))?;
    cmd::run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages))
}

/// An apt-get command that asks nothing.
fn apt_get() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", APT_SECS_MAX, "apt-get", "-o", "DPkg::Lock::Timeout=60"]);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]).output();
    query.is_ok_and(|out| out.stdout.starts_with(b"install ok installed"))
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.missing.is_empty() {
            return Ok(());
        }
        let packages = self.missing.join(" ");
        writeln!(f, "missing: {packages} ({}); tests that need them are skipped", self.why)?;
        writeln!(f, "         to have them: apt-get install {packages}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing_and_the_summary_names_it() {
        assert!(missing(|_| true).is_empty());
        assert_eq!(missing(|p| p != "rpcbind"), ["rpcbind"]);
        assert_eq!(Installed::default().to_string(), "");
        let text = Installed { missing: vec!["rpcbind"], why: "only root can".into() }.to_string();
        assert!(text.contains("rpcbind (only root can)"), "{text}");
    }

    #[test]
    fn the_document_names_every_package() {
        let text = include_str!("../../../docs/internals/testing.md");
        for (package, _) in PACKAGES {
            assert!(
                text.contains(&format!("`{package}`")),
                "docs/internals/testing.md does not say that {package} is installed"
            );
        }
    }

    #[test]
    fn no_install_forbids() {
        assert!(refusal(true).is_some());
    }
}
