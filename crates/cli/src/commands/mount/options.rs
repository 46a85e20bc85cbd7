//! Values of the flags of `remora mount`, and options after `-o`: those of mount.nfs that mean the same here, and our
//! own.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use crate::config::units;
use crate::remote::flags::Proto;

/// Least memory for clean file data.
const CACHE_MEMORY_MIN: u64 = 1 << 20;
/// Least disk cache.
const CACHE_SIZE_MIN: u64 = 1 << 20;
/// Shortest time after which calls of a soft mount fail.
const SOFT_MIN: Duration = Duration::from_secs(1);

/// Silence after which a mount with `soft` and without a time fails: three tries of 60 s, as of mount.nfs.
const SOFT_DEFAULT: Duration = Duration::from_secs(180);

/// How old what a program sees may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CachePolicy {
    /// Each open and each stat asks the server
    Strict,
    /// An open sees every close that is 3 s old; a stat is at most 60 s old
    Default,
    /// Both are at most 60 s old
    Relaxed,
}

impl CachePolicy {
    /// Its name in flags and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CachePolicy::Strict => "strict",
            CachePolicy::Default => "default",
            CachePolicy::Relaxed => "relaxed",
        }
    }
}

/// What close(2) and fsync(2) wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WriteMode {
    /// The server has the file
    Through,
    /// This machine's disk has the file; it is sent in the background
    Back,
}

impl WriteMode {
    /// Its name in flags and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WriteMode::Through => "through",
            WriteMode::Back => "back",
        }
    }
}

/// When a mount works without the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OfflineMode {
    /// When the server does not answer, and after remora offline
    Auto,
    /// After remora offline only
    Never,
}

/// What a call does without the server that the cache cannot answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum MissMode {
    /// It waits for the server
    Wait,
    /// It fails with "No route to host"
    Error,
}

/// Reads how long a soft mount waits.
pub(crate) fn soft(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    if time >= SOFT_MIN { Ok(time) } else { Err(format!("'{text}' is less than {SOFT_MIN:?}")) }
}

/// Reads the memory for clean file data.
pub(crate) fn cache_memory(text: &str) -> Result<u64, String> {
    let size = units::bytes(text)?;
    if size >= CACHE_MEMORY_MIN { Ok(size) } else { Err(format!("'{text}' is less than 1M")) }
}

/// Reads the limit of the disk cache; 0 is none.
pub(crate) fn cache_size(text: &str) -> Result<u64, String> {
    let size = units::bytes(text)?;
    if size == 0 || size >= CACHE_SIZE_MIN { Ok(size) } else { Err(format!("'{text}' is less than 1M, and not 0")) }
}

/// An option that changes something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MountOption {
    ReadOnly(bool),
    /// `None` for a hard mount.
    Soft(Option<Duration>),
    /// Timeout of one try on a soft mount.
    Timeout(Duration),
    Cache(CachePolicy),
    CacheMemory(u64),
    CacheSize(u64),
    Writes(WriteMode),
    Offline(OfflineMode),
    OfflineMiss(MissMode),
    AllowOther,
    NonEmpty,
    Port(u16),
    MountPort(u16),
    Proto(Proto),
    /// Bytes of a READ or WRITE.
    Block(u32),
    /// For mount(8) only, or without a meaning here.
    Ignored,
}

/// Options without a value that change nothing here.
const IGNORED: &[&str] = &[
    "acl",
    "async",
    "atime",
    "auto",
    "bg",
    "cto",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "fg",
    "fsc",
    "group",
    "intr",
    "nconnect",
    "noacl",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "noexec",
    "nofail",
    "nofsc",
    "nointr",
    "nolock",
    "noposix",
    "nordirplus",
    "norelatime",
    "nosharecache",
    "nosuid",
    "nouser",
    "nousers",
    "owner",
    "posix",
    "rdirplus",
    "relatime",
    "resvport",
    "sharecache",
    "strictatime",
    "suid",
    "user",
    "users",
    "_netdev",
    "",
];

/// Options with a value that change nothing here.
const IGNORED_WITH_VALUE: &[&str] = &[
    "acdirmax",
    "acdirmin",
    "acregmax",
    "acregmin",
    "clientaddr",
    "comment",
    "local_lock",
    "lookupcache",
    "mounthost",
    "mountproto",
    "mountvers",
    "namlen",
    "nconnect",
    "retrans",
    "retry",
];

impl FromStr for MountOption {
    type Err = String;

    fn from_str(text: &str) -> Result<MountOption, String> {
        match text.trim().split_once('=') {
            None => without_value(text.trim()),
            Some((name, value)) => with_value(name, value).map_err(|why| format!("{name}={value}: {why}")),
        }
    }
}

fn without_value(name: &str) -> Result<MountOption, String> {
    Ok(match name {
        "ro" => MountOption::ReadOnly(true),
        "rw" => MountOption::ReadOnly(false),
        "soft" | "softerr" => MountOption::Soft(Some(SOFT_DEFAULT)),
        "hard" => MountOption::Soft(None),
        "noac" => MountOption::Cache(CachePolicy::Strict),
        "ac" => MountOption::Cache(CachePolicy::Default),
        "allow_other" => MountOption::AllowOther,
        "nonempty" => MountOption::NonEmpty,
        "tcp" => MountOption::Proto(Proto::Tcp),
        "udp" => MountOption::Proto(Proto::Udp),
        name if IGNORED.contains(&name) || name.starts_with("x-") => MountOption::Ignored,
        "lock" => return Err("locks are local to this machine: say nolock, or leave it out".to_owned()),
        "sync" | "dirsync" => return Err("close(2) and fsync(2) wait for the server already: leave it out".to_owned()),
        _ => return Err(format!("'{name}' is not an option of remora mount; see remora mount --help")),
    })
}

fn with_value(name: &str, value: &str) -> Result<MountOption, String> {
    let number = || value.parse::<u32>().map_err(|_| "expected a number".to_owned());
    let port = || value.parse().ok().filter(|port| *port > 0).ok_or("expected 1 to 65535".to_owned());
    Ok(match name {
        "soft" => MountOption::Soft(Some(soft(value)?)),
        // Tenths of a second.
        "timeo" => MountOption::Timeout(Duration::from_millis(100) * number()?),
        "actimeo" => MountOption::Cache(if number()? == 0 { CachePolicy::Strict } else { CachePolicy::Default }),
        "cache" => MountOption::Cache(clap::ValueEnum::from_str(value, false)?),
        "writes" => MountOption::Writes(clap::ValueEnum::from_str(value, false)?),
        "offline" => MountOption::Offline(clap::ValueEnum::from_str(value, false)?),
        "offline-miss" => MountOption::OfflineMiss(clap::ValueEnum::from_str(value, false)?),
        "cache-size" => MountOption::CacheSize(cache_size(value)?),
        "cache-memory" => MountOption::CacheMemory(cache_memory(value)?),
        "port" => MountOption::Port(port()?),
        "mountport" => MountOption::MountPort(port()?),
        "proto" => MountOption::Proto(match value {
            "udp" | "udp6" => Proto::Udp,
            "tcp" | "tcp6" => Proto::Tcp,
            "auto" => Proto::Auto,
            _ => return Err("expected udp, tcp or auto".to_owned()),
        }),
        "rsize" | "wsize" => MountOption::Block(number()?.clamp(1024, 1 << 20)),
        "vers" | "nfsvers" if value == "3" => MountOption::Ignored,
        "vers" | "nfsvers" => return Err("only version 3 is spoken".to_owned()),
        "sec" if value == "sys" => MountOption::Ignored,
        "sec" => return Err("only sec=sys is spoken; proto=atp in the URL encrypts".to_owned()),
        name if IGNORED_WITH_VALUE.contains(&name) || name.starts_with("x-") => MountOption::Ignored,
        _ => return Err("it is not an option of remora mount; see remora mount --help".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_mount_nfs_are_understood() {
        for (text, option) in [
            ("ro", MountOption::ReadOnly(true)),
            ("soft=30s", MountOption::Soft(Some(Duration::from_secs(30)))),
            ("hard", MountOption::Soft(None)),
            ("timeo=600", MountOption::Timeout(Duration::from_secs(60))),
            ("actimeo=0", MountOption::Cache(CachePolicy::Strict)),
            ("cache-size=0", MountOption::CacheSize(0)),
            ("writes=back", MountOption::Writes(WriteMode::Back)),
            ("offline=never", MountOption::Offline(OfflineMode::Never)),
            ("offline-miss=error", MountOption::OfflineMiss(MissMode::Error)),
            ("cache=relaxed", MountOption::Cache(CachePolicy::Relaxed)),
            ("port=2050", MountOption::Port(2050)),
            ("proto=tcp", MountOption::Proto(Proto::Tcp)),
            ("rsize=8192", MountOption::Block(8192)),
            ("vers=3", MountOption::Ignored),
            ("_netdev", MountOption::Ignored),
            ("x-systemd.automount", MountOption::Ignored),
            ("x-systemd.idle-timeout=60", MountOption::Ignored),
        ] {
            assert_eq!(text.parse(), Ok(option), "{text}");
        }
        for (text, why) in [
            ("vers=4.2", "only version 3"),
            ("sec=krb5", "sec=sys"),
            ("lock", "local"),
            ("port=0", "65535"),
            ("soft=0", "less than"),
            ("no_such", "not an option"),
            ("no_such=1", "not an option"),
        ] {
            assert!(MountOption::from_str(text).is_err_and(|e| e.contains(why)), "{text}");
        }
    }
}
