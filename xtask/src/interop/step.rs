//! The steps: what is done on which mount, and for how long at most.

use crate::cmd;

/// Something done in the guest, in a directory of its own on a mount, or here on what the guest serves.
#[derive(Debug)]
pub(super) struct Step {
    /// What it is called, on the command line too.
    pub(super) name: &'static str,
    /// Without one the guest serves what is its own, and the script runs on this machine.
    pub(super) mount: Option<Mount>,
    /// What its script is told by the environment, as shell assignments.
    pub(super) told: &'static str,
    /// For `sh -eu`. It fails when the script does.
    pub(super) script: &'static str,
    /// How long it may take, in seconds: several times what it takes where nothing else runs.
    pub(super) seconds_max: u64,
    pub(super) besides: Besides,
}

/// What else there is to a step than its script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Besides {
    Nothing,
    /// It needs the programs that cargo installs.
    Tools,
    /// That, and the server is killed and started again all the while.
    Restarts,
    /// That, and what passed and failed is compared with the list of excuses.
    Verdicts,
}

/// Where a step is done. Every mount is `vers=3,proto=tcp,nolock,hard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mount {
    /// A directory on a disk, served by root to whoever the client says.
    Disk,
    /// The same, mounted `noac,sync` with blocks of 4 KiB.
    Uncached,
    /// A directory in memory (tmpfs), served by root.
    Memory,
    /// A file system of 8 MiB, seen by the server alone, which is root.
    Small,
    /// An overlay whose layers are in one file system, likewise.
    Overlay,
    /// An overlay whose layers are in two file systems, likewise.
    Mixed,
    /// A directory on a disk, served by a user without privileges.
    Plain,
}

impl Mount {
    /// All there are.
    pub(super) const ALL: [Mount; 7] =
        [Mount::Disk, Mount::Uncached, Mount::Memory, Mount::Small, Mount::Overlay, Mount::Mixed, Mount::Plain];

    /// Whether the server has to be root.
    pub(super) fn needs_root(self) -> bool {
        self != Mount::Plain
    }

    /// Whether the server has to have mounted something that nobody else sees.
    pub(super) fn is_servers_own(self) -> bool {
        matches!(self, Mount::Small | Mount::Overlay | Mount::Mixed)
    }

    /// What it is called, and its export.
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

    /// The options it has besides those that all have.
    pub(super) fn options(self) -> &'static str {
        match self {
            Mount::Uncached => "nosharecache,noac,sync,rsize=4096,wsize=4096",
            _ => "sharecache",
        }
    }
}

impl Step {
    /// Whether it needs root and we are not.
    pub(super) fn lacks_root(&self) -> bool {
        self.mount.is_some_and(Mount::needs_root) && !cmd::is_root()
    }

    /// Whether the server has to have mounted something that nobody else sees.
    pub(super) fn is_on_servers_own(&self) -> bool {
        self.mount.is_some_and(Mount::is_servers_own)
    }

    /// Whether the guest serves.
    pub(super) fn is_reversed(&self) -> bool {
        self.mount.is_none()
    }
}

const fn step(name: &'static str, mount: Mount, script: &'static str) -> Step {
    Step { mount: Some(mount), ..reversed(name, script) }
}

const fn reversed(name: &'static str, script: &'static str) -> Step {
    Step { name, mount: None, told: "", script, seconds_max: 240, besides: Besides::Nothing }
}

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("steps/", $name, ".sh"))
    };
}

/// All steps, in the order they are done in.
pub(super) const STEPS: &[Step] = &[
    step("names", Mount::Disk, script!("names")),
    step("modes", Mount::Disk, script!("modes")),
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
    Step { told: "names=5000", ..step("bigger-directory", Mount::Memory, script!("big-directory")) },
    step("full-disk", Mount::Small, script!("full-disk")),
    step("mounted-over", Mount::Small, script!("mounted-over")),
    step("overlay", Mount::Overlay, script!("overlay")),
    step("mixed-overlay", Mount::Mixed, script!("mixed-overlay")),
    step("version-2", Mount::Disk, script!("version-2")),
    step("plain-tree", Mount::Plain, script!("plain-tree")),
    step("plain-git", Mount::Plain, script!("git")),
    Step { told: "seeds='1 2 3' operations=2000", besides: Besides::Tools, ..step("fsx", Mount::Disk, script!("fsx")) },
    // Every write goes out at once, and every read asks.
    Step {
        told: "seeds='4 5' operations=500",
        besides: Besides::Tools,
        ..step("fsx-uncached", Mount::Uncached, script!("fsx"))
    },
    Step { besides: Besides::Restarts, ..step("restart", Mount::Disk, script!("restart")) },
    Step { seconds_max: 360, besides: Besides::Verdicts, ..step("pjdfstest", Mount::Disk, script!("pjdfstest")) },
    reversed("kernel-server", script!("kernel-server")),
];

/// The steps of these names, in their order; all of them if none is named.
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
            // `sh -e` lets a failing `! command` pass, and a `test` before `&&`: `not` is for that.
            let weak = |l: &&str| l.trim_start().starts_with("! ") || (l.starts_with("test ") && l.contains("&&"));
            assert_eq!(step.script.lines().find(weak), None, "{}", step.name);
        }
    }
}
