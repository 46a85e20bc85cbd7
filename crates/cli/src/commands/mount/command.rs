//! `remora mount`: mounts, serves until the end, and then sends what is left.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use remora_cache::{HoardOwner, OfflineMiss, OfflinePolicy, Policy, Writes};
use remora_host::Clock;
use remora_host::client::Target;
use remora_host::fuse;
use remora_host::mount::report::UnmountMode;
use remora_host::mount::store::StoreKey;
use remora_host::mount::{
    HoardSource, KeptWork, MountEnd, MountPlan, MountStartError, RunningMount, mount_point, wall_at_zero,
};
use rustix::io::Errno;
use tokio::select;

use crate::commands::hoard::profile::{self, Profile};
use crate::commands::mount::flags::Mount;
use crate::commands::mount::kernel_error::kernel_error;
use crate::commands::mount::options::{CachePolicy, MissMode, MountOption, OfflineMode, WriteMode};
use crate::commands::mount::reach::{self, ReachedDirectory};
use crate::commands::mount::{
    background, connection_notice, disk_cache, known_mounts, status, unsent_data, wait_notice,
};
use crate::config::{state_dir, units};
use crate::interrupt;
use crate::metrics::endpoint::{self, MetricsFlags};
use crate::metrics::tables;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};
use crate::remote::filesystem::Remote;
use crate::remote::flags::{Auto, LinkArgs};
use crate::remote::servers::own_credentials;
use crate::service_manager::{self, Watchdog};

/// Memory for clean file data in bytes.
const CACHE_MEMORY: u64 = 256 << 20;
/// Silence of the server after which a mount works without it.
const OFFLINE_AFTER: Duration = Duration::from_secs(10);
/// Silence of the server after which an unmount keeps unsent data instead of waiting.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often the rest is printed at the end.
const PROGRESS: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: Mount) -> Result {
    if args.list {
        return status::list(args.json);
    }
    let (foreground, daemon, metrics) = (args.foreground, args.daemon, args.metrics);
    let settings = MountSettings::new(args)?;
    if foreground || daemon {
        return serve(settings, daemon, metrics).await;
    }
    // This process reports what it can see; the other one reports the rest.
    check_directory(&settings.dir, settings.is_nonempty_allowed)?;
    background::start().await
}

/// Flags and options of a mount.
struct MountSettings {
    url: String,
    dir: PathBuf,
    read_only: bool,
    allow_other: bool,
    is_nonempty_allowed: bool,
    cache: CachePolicy,
    cache_memory: u64,
    /// Maximum bytes of the disk cache; `None` for the default.
    cache_size: Option<u64>,
    writes: WriteMode,
    offline: OfflineMode,
    offline_miss: MissMode,
    /// `None` for a hard mount.
    soft: Option<Duration>,
    link: LinkArgs,
}

impl MountSettings {
    fn new(args: Mount) -> Result<MountSettings> {
        let (Some(url), Some(dir)) = (args.url, args.dir) else {
            return Err(Error::Usage("expected a URL and a directory".into()));
        };
        let mut settings = MountSettings {
            url,
            dir: mount_point::resolve(&dir).map_err(Error::local(dir.display()))?,
            read_only: args.ro,
            allow_other: args.allow_other,
            is_nonempty_allowed: false,
            cache: CachePolicy::Default,
            cache_memory: CACHE_MEMORY,
            cache_size: None,
            writes: WriteMode::Through,
            offline: OfflineMode::Auto,
            offline_miss: MissMode::Wait,
            soft: None,
            link: args.link,
        };
        let mut ports = Ports::default();
        args.options.iter().for_each(|option| settings.apply(option, &mut ports));
        settings.url = ports.in_url(&settings.url)?;
        // Flags of their own say more than a list of options.
        settings.cache = args.cache.unwrap_or(settings.cache);
        settings.cache_memory = args.cache_memory.unwrap_or(settings.cache_memory);
        settings.cache_size = args.cache_size.or(settings.cache_size);
        settings.writes = args.writes.unwrap_or(settings.writes);
        settings.offline = args.offline.unwrap_or(settings.offline);
        settings.offline_miss = args.offline_miss.unwrap_or(settings.offline_miss);
        settings.soft = args.soft.or(settings.soft);
        Ok(settings)
    }

    fn apply(&mut self, option: &MountOption, ports: &mut Ports) {
        match option {
            MountOption::ReadOnly(read_only) => self.read_only |= read_only,
            MountOption::Soft(soft) => self.soft = *soft,
            MountOption::Timeout(timeout) => self.soft = self.soft.map(|_| *timeout),
            MountOption::Cache(cache) => self.cache = *cache,
            MountOption::CacheMemory(bytes) => self.cache_memory = *bytes,
            MountOption::CacheSize(bytes) => self.cache_size = Some(*bytes),
            MountOption::Writes(writes) => self.writes = *writes,
            MountOption::Offline(offline) => self.offline = *offline,
            MountOption::OfflineMiss(miss) => self.offline_miss = *miss,
            MountOption::AllowOther => self.allow_other = true,
            MountOption::NonEmpty => self.is_nonempty_allowed = true,
            MountOption::Port(port) => ports.nfs = Some(*port),
            MountOption::MountPort(port) => ports.mount = Some(*port),
            MountOption::Proto(proto) => self.link.proto = Some(*proto),
            MountOption::Block(bytes) => self.link.block = Auto::Fixed(*bytes),
            MountOption::Ignored => {}
        }
    }
}

/// Ports that options name.
#[derive(Default)]
struct Ports {
    nfs: Option<u16>,
    mount: Option<u16>,
}

impl Ports {
    /// The URL with these ports; one of `HOST:/PATH` (fstab(5)).
    fn in_url(&self, url: &str) -> Result<String> {
        let mut url = Target::guess(url).unwrap_or_else(|| url.to_owned());
        for (name, port) in [("port", self.nfs), ("mountport", self.mount)] {
            if let Some(port) = port {
                let joint = if url.contains('?') { '&' } else { '?' };
                url += &format!("{joint}{name}={port}");
            }
        }
        Target::parse(&url)?;
        Ok(url)
    }
}

/// Fails unless `dir` is a directory without entries, and free. A dead mount there does not count: mounting removes it.
fn check_directory(dir: &Path, is_nonempty_allowed: bool) -> Result {
    if let Some(mount) = known_mounts::all()?.into_iter().find(|mount| mount.note.dir == dir)
        && mount_point::is_mounted(dir)
    {
        let why = format!("{} is mounted there already (process {})", mount.note.url, mount.note.pid);
        return Err(Error::refused(dir.display(), why).with_hint("remora umount DIR ends it"));
    }
    let entries = match fs::read_dir(dir) {
        Err(e) if e.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let why = "there is no such directory to mount at";
            return Err(Error::refused(dir.display(), why).with_hint("make it with mkdir -p"));
        }
        entries => entries.map_err(Error::local(dir.display()))?,
    };
    if !is_nonempty_allowed && entries.take(1).count() > 0 {
        let why = "it is not empty: a mount would hide what is in it";
        return Err(Error::refused(dir.display(), why).with_hint("choose an empty directory, or say -o nonempty"));
    }
    Ok(())
}

/// Mounts and serves to the end.
async fn serve(settings: MountSettings, daemon: bool, metrics: MetricsFlags) -> Result {
    let metrics = metrics.bind().await?;
    let mounting = mount(settings);
    let (mount, remote) = select! {
        mounted = mounting => mounted?,
        number = interrupt::wait() => return Err(Error::Interrupted(number)),
    };
    let report = mount.watch();
    let metrics = metrics.map(|open| open.serve(move || tables::mount::families(&report())));
    // It prints when the server is silent, which nobody reads in the background.
    let _remote = remote.filter(|_| !daemon);
    if daemon {
        background::announce_ready()?;
    } else {
        if let Some(page) = &metrics {
            stdio::eprint(endpoint::notice(page.address()));
        }
        stdio::eprint(format_args!("mounted at {}; Ctrl-C unmounts", printable(mount.dir())));
        service_manager::ready();
    }
    let mut watchdog = Watchdog::start();
    let watched = async {
        loop {
            watchdog.due().await;
            watchdog.works();
        }
    };
    let mode = select! {
        end = mount.ended() => match end {
            MountEnd::Asked(mode) => mode,
            MountEnd::Unmounted => UnmountMode::Send,
        },
        () = wait_notice::print(&mount), if !daemon => UnmountMode::Send,
        () = connection_notice::print(&mount, !daemon) => UnmountMode::Send,
        () = watched => UnmountMode::Send,
        _ = interrupt::wait() => UnmountMode::Send,
    };
    service_manager::stopping();
    let ended = finish(&mount, mode).await;
    mount.save().await;
    mount.close();
    // `remora umount` reads the last progress.
    tokio::time::sleep(Duration::from_millis(250)).await;
    ended
}

/// Detaches the mount and sends what the server does not have, or keeps it. A signal keeps it, too, where there is a
/// store; `remora umount --force` drops it.
async fn finish(mount: &RunningMount, mode: UnmountMode) -> Result {
    if let Err(error) = mount.detach() {
        stdio::print_error("mount", &kernel_error(&error));
    }
    match mode {
        UnmountMode::Send => {}
        UnmountMode::Keep if keep(mount).await => return Ok(()),
        UnmountMode::Keep => {}
        UnmountMode::Drop => {
            mount.drop_unsent();
            return Ok(());
        }
    }
    let asked_again = async {
        loop {
            match mount.ended().await {
                MountEnd::Asked(again) if again > mode => return again,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let next = select! {
        () = mount.flush() => {
            // What the server refused stays.
            if mount.log_len() > 0 {
                keep(mount).await;
            }
            return Ok(());
        }
        again = asked_again => again,
        () = silence(mount), if mount.store_dir().is_some() => UnmountMode::Keep,
        () = print_rest(mount) => return Ok(()),
        number = interrupt::again() => {
            if !keep(mount).await {
                stdio::eprint(format_args!("{} were not sent and are lost", units::human(mount.dirty_bytes())));
            }
            return Err(Error::Interrupted(number));
        }
    };
    if next == UnmountMode::Drop {
        mount.drop_unsent();
    } else if !keep(mount).await {
        mount.flush().await;
    }
    Ok(())
}

/// Keeps unsent data for the next mount. Returns whether that was possible.
async fn keep(mount: &RunningMount) -> bool {
    let Some(kept) = mount.keep().await else { return false };
    if let Some(text) = kept_text(kept) {
        stdio::eprint(format_args!("{text}; the next mount of the same URL sends them"));
    }
    true
}

/// What is kept, if anything is.
pub(super) fn kept_text(KeptWork { files, changes }: KeptWork) -> Option<String> {
    match (files, changes) {
        (0, 0) => None,
        (files, 0) => Some(format!("unsent files kept: {files}")),
        (0, changes) => Some(format!("changes of names kept: {changes}")),
        (files, changes) => Some(format!("unsent files kept: {files}, changes of names: {changes}")),
    }
}

/// Waits until the server has been silent for long, or is not to be used.
async fn silence(mount: &RunningMount) {
    while mount.silence() < SILENCE_MAX && !mount.is_offline_asked() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Prints what is left to be sent, now and then. Never ends.
async fn print_rest(mount: &RunningMount) {
    loop {
        tokio::time::sleep(PROGRESS).await;
        let (rest, changes) = (units::human(mount.dirty_bytes()), mount.log_len());
        let then = if mount.store_dir().is_some() { "leaves them to the next mount" } else { "drops them" };
        stdio::eprint(format_args!("{rest} and {changes} changes of names are still to be sent (Ctrl-C {then})"));
    }
}

fn printable(path: &Path) -> String {
    escape::printable(path.as_os_str().as_encoded_bytes())
}

async fn mount(mut settings: MountSettings) -> Result<(RunningMount, Option<Remote>)> {
    check_directory(&settings.dir, settings.is_nonempty_allowed)?;
    let reached = reach::reach(&settings.url, &settings.link, settings.offline).await?;
    let is_offline = reached.is_offline();
    let ReachedDirectory { session, clock, root, blocks_max, remote } = reached;
    session.set_patience(settings.soft);
    let store = unsent_data::open(&settings.url, &settings.dir, settings.writes, &mut settings.read_only)?;
    let disk = disk_cache::open(&settings.url, &settings.dir, settings.cache_size)?;
    if is_offline && store.is_none() && !settings.read_only {
        let why = "the server does not answer, and without the store of changes the mount cannot start offline";
        return Err(Error::refused(&settings.url, why).with_hint("--ro mounts what is cached for reading"));
    }
    let offline = OfflinePolicy { starts_offline: is_offline, ..offline_policy(&settings, store.is_some()) };
    let hoard = hoard_source(&settings.url)?;
    let plan = MountPlan {
        kernel: fuse::MountOptions {
            fsname: fs_name(&settings.url),
            read_only: settings.read_only,
            allow_other: settings.allow_other,
            ..fuse::MountOptions::default()
        },
        cache: cache_config(&settings, offline, &clock),
        url: settings.url,
        dir: settings.dir,
        session,
        clock,
        root,
        blocks_max,
        policy: settings.cache.name().to_owned(),
        writes: settings.writes.name().to_owned(),
        store,
        disk,
        hoard,
        soft: settings.soft,
    };
    // It waits for the kernel.
    let started = tokio::task::block_in_place(|| RunningMount::start(plan));
    let mount = started.map_err(|error| match error {
        MountStartError::Kernel(error) => kernel_error(&error),
        other => Error::refused("cannot mount", other.to_string()),
    })?;
    Ok((mount, remote))
}

/// When the mount works without the server. Changes need a store; a read-only mount makes none.
fn offline_policy(settings: &MountSettings, has_store: bool) -> OfflinePolicy {
    let miss = match settings.offline_miss {
        MissMode::Wait => OfflineMiss::Wait,
        MissMode::Error => OfflineMiss::Fail,
    };
    let can_keep = has_store || settings.read_only;
    // A soft mount's calls must not fail before it is offline.
    let after = settings.soft.map_or(OFFLINE_AFTER, |soft| OFFLINE_AFTER.min(soft / 2));
    let after = Some(after).filter(|_| can_keep && settings.offline == OfflineMode::Auto);
    OfflinePolicy { after, miss, starts_offline: false }
}

fn cache_config(settings: &MountSettings, offline: OfflinePolicy, clock: &Clock) -> remora_cache::Config {
    let policy = match settings.cache {
        CachePolicy::Strict => Policy::STRICT,
        CachePolicy::Default => Policy::DEFAULT,
        CachePolicy::Relaxed => Policy::RELAXED,
    };
    remora_cache::Config {
        policy,
        memory_max: settings.cache_memory,
        read_only: settings.read_only,
        offline,
        writes: match settings.writes {
            WriteMode::Through => Writes::Through,
            WriteMode::Back => Writes::Back,
        },
        // Without random numbers the process and its start distinguish mounts.
        client_id: getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()) ^ own_id()),
        machine: own_credentials().machine,
        wall_at_zero: wall_at_zero(clock),
        ..remora_cache::Config::default()
    }
}

/// Reads what this user hoards of the export, whenever the mount wants it.
fn hoard_source(url: &str) -> Result<HoardSource> {
    let export = StoreKey::of(&Target::parse(url)?);
    let own = own_credentials();
    let profile = move || {
        let read = profile::path().and_then(|path| Profile::read(&path));
        read.map(|profile| profile.hoarded(&export)).map_err(|error| error.to_string())
    };
    Ok(HoardSource { owner: HoardOwner { uid: own.uid, gid: own.gid, groups: own.gids }, profile: Box::new(profile) })
}

/// The identifier of this user on this machine, as a number.
fn own_id() -> u64 {
    state_dir::own_id().bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The server and its path, as `df` and `mount` show them.
fn fs_name(url: &str) -> String {
    let (url, _) = url.split_once('?').unwrap_or((url, ""));
    url.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_options_become_part_of_the_url() {
        let ports = Ports { nfs: Some(2050), mount: None };
        assert_eq!(ports.in_url("nas:/srv").unwrap(), "nfs://nas/srv?port=2050");
        assert_eq!(ports.in_url("nfs://nas/srv?proto=tcp").unwrap(), "nfs://nas/srv?proto=tcp&port=2050");
        assert!(ports.in_url("nfs://nas:2049/").is_err(), "two ports");
        assert_eq!(Ports::default().in_url("nfs://nas:2049/").unwrap(), "nfs://nas:2049/");
    }

    #[test]
    fn mount_point_must_be_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_directory(dir.path(), false).is_ok());
        fs::write(dir.path().join("x"), "").unwrap();
        let why = check_directory(dir.path(), false).unwrap_err().to_string();
        assert!(why.contains("not empty"), "{why}");
        assert!(check_directory(dir.path(), true).is_ok());
        assert!(check_directory(&dir.path().join("missing"), false).is_err());
    }
}
