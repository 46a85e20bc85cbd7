//! The steps: script, mount and time limit of each.

use crate::cmd;

/// A script that runs in the guest, in a directory of its own on a mount, or on this machine against the guest's
/// server.
#[derive(Debug)]
pub(super) struct Step {
    /// Its name, also on the command line.
    pub(super) name: &'static str,
    /// The mount. Without one the guest is the server and the script runs on this machine.
    pub(super) mount: Option<Mount>,
    /// Shell assignments that the script sees.
    pub(super) told: &'static str,
    /// The script for `sh -eu`. A failing command fails the step.
    pub(super) script: &'static str,
    /// Time limit in seconds: several times the duration on an idle machine.
    pub(super) seconds_max: u64,
    pub(super) besides: Besides,
    /// `remora mount` on this machine, with this policy, in place of the guest's NFS client.
    pub(super) remora: Option<Policy>,
}

/// Value of `remora mount --cache`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    Default,
    /// For steps in which one mount must see at once what another one has done.
    Strict,
}

/// What a step needs besides its script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Besides {
    Nothing,
    /// The test programs that cargo installs.
    Tools,
    /// The test programs, and a server that is killed and restarted during the step.
    Restarts,
    /// The test programs, and a comparison of the verdicts with the excused ones.
    Verdicts,
}

/// The mount of a step. Every mount has the options `vers=3,proto=tcp,nolock,hard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mount {
    /// A directory on a disk. The server is root and trusts the client's credentials.
    Disk,
    /// The same, mounted `noac,sync` with blocks of 4 KiB.
    Uncached,
    /// A directory in memory (tmpfs). The server is root.
    Memory,
    /// A file system of 8 MiB in the server's mount namespace. The server is root.
    Small,
    /// An overlay whose layers are in one file system, in the server's mount namespace.
    Overlay,
    /// An overlay whose layers are in two file systems, in the server's mount namespace.
    Mixed,
    /// A directory on a disk. The server has no privileges.
    Plain,
}

impl Mount {
    pub(super) const ALL: [Mount; 7] =
        [Mount::Disk, Mount::Uncached, Mount::Memory, Mount::Small, Mount::Overlay, Mount::Mixed, Mount::Plain];

    /// Whether the server must be root.
    pub(super) fn needs_root(self) -> bool {
        self != Mount::Plain
    }

    /// Whether the server needs file systems in its own mount namespace.
    pub(super) fn is_servers_own(self) -> bool {
        matches!(self, Mount::Small | Mount::Overlay | Mount::Mixed)
    }

    /// The name of the mount and of its export.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Mount::Disk => ("disk", "disk"),
            Mount::Uncached => ("uncached", "disk"),
            Mount::Memory => ("memory", "memory"),
            Mount::Small => ("small", "small"),
            Mount::Overlay => ("overlay", "overlay"),
            Mount::Mixed => ("mixed", "mixed"),
            Mount::Plain => ("plain", "disk"),
        }
    }

    /// Its mount options besides the common ones.
    pub(super) fn options(self) -> &'static str {
        match self {
            Mount::Uncached => "nosharecache,noac,sync,rsize=4096,wsize=4096",
            _ => "sharecache",
        }
    }
}

impl Step {
    /// Whether the step needs root and this process is not root.
    pub(super) fn lacks_root(&self) -> bool {
        self.mount.is_some_and(Mount::needs_root) && !cmd::is_root()
    }

    /// Whether the server needs file systems in its own mount namespace.
    pub(super) fn is_on_servers_own(&self) -> bool {
        self.is_in_guest() && self.mount.is_some_and(Mount::is_servers_own)
    }

    /// Whether the guest is the server.
    pub(super) fn is_reversed(&self) -> bool {
        self.mount.is_none()
    }

    /// Whether the step runs in the guest.
    pub(super) fn is_in_guest(&self) -> bool {
        self.remora.is_none()
    }
}

const fn step(name: &'static str, mount: Mount, script: &'static str) -> Step {
    Step { mount: Some(mount), ..reversed(name, script) }
}

const fn reversed(name: &'static str, script: &'static str) -> Step {
    Step { name, mount: None, told: "", script, seconds_max: 240, besides: Besides::Nothing, remora: None }
}

const fn remora(name: &'static str, policy: Policy, script: &'static str) -> Step {
    Step { remora: Some(policy), ..step(name, Mount::Disk, script) }
}

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("steps/", $name, ".sh"))
    };
}

/// A step with `remora mount` on another server, which `$name` starts and says how to stop for a while.
macro_rules! mounts_on {
    ($name:literal) => {
        concat!(script!($name), script!("mount-on"), script!("fsx"), script!("git"), script!("mount-on-outage"))
    };
}

/// All steps in the order in which they run.
pub(super) const STEPS: &[Step] = &[
    step("names", Mount::Disk, script!("names")),
    step("modes", Mount::Disk, script!("modes")),
    step("acls", Mount::Disk, script!("acls")),
    step("open-files", Mount::Disk, script!("open-files")),
    step("appends", Mount::Disk, script!("appends")),
    step("two-clients", Mount::Disk, script!("two-clients")),
    step("locks", Mount::Disk, script!("locks")),
    step("sparse", Mount::Disk, script!("sparse")),
    step("tree", Mount::Disk, script!("tree")),
    step("tar", Mount::Disk, script!("tar")),
    step("git", Mount::Disk, script!("git")),
    step("build", Mount::Disk, script!("build")),
    Step { told: "names=1000", ..step("big-directory", Mount::Disk, script!("big-directory")) },
    Step { told: "names=2000", ..step("bigger-directory", Mount::Memory, script!("big-directory")) },
    step("full-disk", Mount::Small, script!("full-disk")),
    step("mounted-over", Mount::Small, script!("mounted-over")),
    step("overlay", Mount::Overlay, script!("overlay")),
    step("mixed-overlay", Mount::Mixed, script!("mixed-overlay")),
    step("version-2", Mount::Disk, script!("version-2")),
    step("plain-tree", Mount::Plain, script!("plain-tree")),
    step("plain-git", Mount::Plain, script!("git")),
    Step { told: "seeds='1 2' operations=1500", besides: Besides::Tools, ..step("fsx", Mount::Disk, script!("fsx")) },
    // Every write is sent at once, and every read asks the server.
    Step {
        told: "seeds='4 5' operations=500",
        besides: Besides::Tools,
        ..step("fsx-uncached", Mount::Uncached, script!("fsx"))
    },
    Step { besides: Besides::Restarts, ..step("restart", Mount::Disk, script!("restart")) },
    Step { seconds_max: 360, besides: Besides::Verdicts, ..step("pjdfstest", Mount::Disk, script!("pjdfstest")) },
    reversed("kernel-server", script!("kernel-server")),
    Step {
        told: "seeds=7 operations=2000",
        besides: Besides::Tools,
        ..reversed("kernel-server-mount", mounts_on!("kernel-server-mount"))
    },
    remora("mount-names", Policy::Default, script!("names")),
    remora("mount-modes", Policy::Strict, script!("modes")),
    remora("mount-open-files", Policy::Default, script!("open-files")),
    remora("mount-appends", Policy::Strict, script!("appends")),
    remora("mount-two-clients", Policy::Strict, script!("two-clients")),
    remora("mount-locks", Policy::Default, script!("locks")),
    remora("mount-sparse", Policy::Default, script!("sparse")),
    remora("mount-tree", Policy::Default, script!("tree")),
    remora("mount-tar", Policy::Default, script!("tar")),
    remora("mount-git", Policy::Default, script!("git")),
    remora("mount-build", Policy::Strict, script!("build")),
    Step { told: "names=1000", ..remora("mount-big-directory", Policy::Default, script!("big-directory")) },
    Step {
        mount: Some(Mount::Small),
        told: "figures_lag=1",
        ..remora("mount-full-disk", Policy::Strict, script!("full-disk"))
    },
    Step {
        told: "seeds='1 2 3' operations=7000",
        besides: Besides::Tools,
        ..remora("mount-fsx", Policy::Default, script!("fsx"))
    },
    Step { besides: Besides::Restarts, ..remora("mount-restart", Policy::Default, script!("restart")) },
    Step { told: "names=10000", ..remora("mount-many", Policy::Default, script!("mount-many")) },
    remora("mount-sqlite", Policy::Default, script!("mount-sqlite")),
    remora("mount-rsync", Policy::Default, script!("mount-rsync")),
    remora("mount-saves", Policy::Strict, script!("mount-saves")),
    remora("mount-cargo", Policy::Default, script!("mount-cargo")),
    Step { told: "seconds=4", ..remora("mount-signals", Policy::Default, script!("mount-signals")) },
    Step { told: "outages=3 limit=", ..remora("mount-outage", Policy::Default, script!("mount-outage")) },
    Step {
        told: "seeds=8 operations=2000",
        besides: Besides::Tools,
        ..remora("mount-ganesha", Policy::Default, mounts_on!("ganesha"))
    },
    Step { besides: Besides::Verdicts, ..remora("mount-pjdfstest", Policy::Strict, script!("mount-pjdfstest")) },
];

/// The steps of these names in the order of the list; all if `names` is empty.
pub(super) fn named(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = names.iter().find(|n| !STEPS.iter().any(|s| s.name == n.as_str())) {
        let all: Vec<_> = STEPS.iter().map(|s| s.name).collect();
        return Err(format!("there is no step {unknown}; there are: {}", all.join(" ")));
    }
    Ok(STEPS.iter().filter(|s| names.is_empty() || names.iter().any(|n| n == s.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_and_unknown_ones_are_told_what_there_is() {
        assert_eq!(named(&[]).unwrap().len(), STEPS.len());
        let chosen = named(&["tar".into(), "names".into()]).unwrap();
        assert_eq!(chosen.iter().map(|s| s.name).collect::<Vec<_>>(), ["names", "tar"]);
        let why = named(&["tra".into()]).unwrap_err();
        assert!(why.contains("tra") && why.contains(" tar"), "{why}");
    }

    #[test]
    fn names_are_unique_and_scripts_assert_in_ways_that_count() {
        for (n, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..n].iter().all(|s| s.name != step.name), "{} is there twice", step.name);
            // `sh -e` ignores the failure of `! command`, and of a `test` before `&&`: scripts use `not`.
            let weak = |l: &&str| l.trim_start().starts_with("! ") || (l.starts_with("test ") && l.contains("&&"));
            assert_eq!(step.script.lines().find(weak), None, "{}", step.name);
        }
    }
}
