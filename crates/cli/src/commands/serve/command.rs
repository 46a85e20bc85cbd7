//! `remora serve`: shares directories until Ctrl-C.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::Guests;
use remora_host::portmap::Registration;
use remora_host::server::{GroupLookup, Objects, ServerOptions, ServerSnapshot, Serving, Watch};
use remora_server::Config;
use remora_server::cache::Config as CacheConfig;
use rustix::fs::Mode;
use rustix::process::umask;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::serve::exports::exports_file::Pipes;
use crate::commands::serve::exports::open_exports::Loaded;
use crate::commands::serve::exports::{open_exports, plan};
use crate::commands::serve::flags::{Cache, Serve};
use crate::commands::serve::keys::Keys;
use crate::commands::serve::output::access_log::AccessLog;
use crate::commands::serve::output::announcement::announcement;
use crate::commands::serve::output::console::Console;
use crate::commands::serve::output::counters::Counters;
use crate::commands::serve::output::notices::Failures;
use crate::commands::serve::output::{console, counters, notices, warnings};
use crate::commands::serve::{check, keys, reload};
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::service_manager::{self, Watchdog};

/// Limit for writing the last lines at shutdown.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// The `--json` object at the end.
#[derive(Serialize)]
struct Report {
    calls: u64,
    executed: u64,
    replies: u64,
    abandoned: usize,
    #[serde(flatten)]
    counters: Counters,
}

pub(crate) async fn run(args: Serve) -> Result {
    if args.check {
        return check::run(&args);
    }
    let args = Arc::new(args);
    // A client's umask counts, and a directory's default ACL, not this process's umask.
    umask(Mode::empty());
    // From here on signals are caught, however long the start takes.
    let mut end = pin!(end(&args));
    outlive_large_writes()?;
    let (hangups, asked) = (hangups(&args)?, counters::asked()?);
    let metrics = args.metrics.bind().await?;
    let begun = tokio::select! {
        begun = begin(&args) => begun?,
        signal = &mut end => return Err(Error::Interrupted(signal)),
    };
    let RunningServer { access_log, keys, loaded, serving, registration } = begun;
    let (failures, voice) = (loaded.failures.clone(), Console::start()?);
    let metrics = metrics.map(|open| counters::serve_metrics(open, serving.watch(), failures.clone()));
    let (text, notes) = announcement(&args, &loaded, &serving, metrics.as_ref())?;
    tokio::spawn(watch(serving.watch()));
    let work = async {
        voice.printed(text).await?;
        voice.say(notes.join("\n"));
        service_manager::ready();
        notices::report_refused_opens(voice.clone());
        counters::print_when_asked(asked, serving.watch(), failures.clone(), voice.clone());
        let Some(hangups) = hangups else { return std::future::pending().await };
        Ok::<_, Error>(reload::at_hangups(hangups, &serving, &args, &keys, loaded, &voice).await)
    };
    tokio::select! {
        failed = work => match failed? {},
        _ = end => {}
    }
    service_manager::stopping();
    let once_more = interrupt::again_some(hangup_ends(&args));
    if !args.json {
        voice.say("remora: serve: shutting down; a second signal stops it immediately".into());
    }
    let numbers = serving.stats();
    let shutdown = tokio::task::spawn_blocking(move || {
        // Unregister first, so that rpcbind directs no client to a closed port.
        drop(registration);
        let abandoned = serving.shutdown().abandoned;
        // Writes the last lines.
        drop(access_log);
        abandoned
    });
    let rest = async {
        let abandoned = shutdown.await.unwrap_or_default();
        let text = farewell(&args, &numbers, &failures, abandoned)?;
        let told = async {
            let printed = voice.printed(text).await;
            voice.said().await;
            printed
        };
        // Standard output may have no reader.
        tokio::time::timeout(FAREWELL_MAX, told).await.unwrap_or(Err(Error::Pipe))
    };
    tokio::select! {
        ended = rest => ended,
        signal = once_more => Err(Error::Interrupted(signal)),
    }
}

/// Tells the service manager that the server works, for ever. A core that is held makes it fall silent, and so does a
/// runtime that does not run; a disk that does not answer does not.
async fn watch(serving: Watch) {
    let mut watchdog = Watchdog::start();
    loop {
        watchdog.due().await;
        let serving = serving.clone();
        let looked_at = tokio::task::spawn_blocking(move || serving.stats());
        if looked_at.await.is_ok() {
            watchdog.works();
        }
    }
}

struct RunningServer {
    /// Dropped after the server.
    access_log: Option<AccessLog>,
    keys: Arc<Keys>,
    loaded: Loaded,
    serving: Serving,
    /// Unregisters when dropped.
    registration: Option<Registration>,
}

/// Starts the server on a blocking thread, since opening exports may take long while signals are awaited.
async fn begin(args: &Arc<Serve>) -> Result<RunningServer> {
    let starting = tokio::task::spawn_blocking({
        let args = args.clone();
        move || started(&args)
    });
    let started = starting.await.unwrap_or_else(|e| Err(Error::refused("cannot start", e.to_string())));
    let StartedServer { access_log, keys, loaded, serving } = started?;
    let registration = if args.rpcbind { Some(register(&serving).await?) } else { None };
    Ok(RunningServer { access_log, keys: Arc::new(keys), loaded, serving, registration })
}

struct StartedServer {
    access_log: Option<AccessLog>,
    keys: Keys,
    loaded: Loaded,
    serving: Serving,
}

fn started(args: &Serve) -> Result<StartedServer> {
    check::distinct(args)?;
    let mut plan = plan::plan(args, Pipes::Read)?;
    plan.notes.extend(warnings::of_user(&plan.shares));
    let keys = keys::of(args)?;
    let mut loaded = open_exports::open(plan, &keys, None)?;
    let format = args.verbosity.settings().format;
    let access_log = args.access_log.as_deref().map(|path| AccessLog::open(path, format)).transpose()?;
    let serving = start(args, &loaded, access_log.as_ref())?;
    loaded.plan.notes.extend(open_exports::room(&serving, &loaded));
    Ok(StartedServer { access_log, keys, loaded, serving })
}

/// Catches SIGXFSZ, so that a write beyond the file size limit fails with EFBIG instead of killing the process.
fn outlive_large_writes() -> Result {
    let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // tokio keeps the handler for the life of the process.
    signal(too_large).map(drop).map_err(Error::local("cannot wait for signals"))
}

/// SIGHUP, if there are exports files to reload.
fn hangups(args: &Serve) -> Result<Option<Signal>> {
    if args.exports.is_empty() {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some).map_err(Error::local("cannot wait for signals"))
}

/// Waits for a signal that ends the server. See [`hangups`].
fn end(args: &Serve) -> impl Future<Output = u8> + use<> {
    interrupt::catch_some(hangup_ends(args))
}

fn hangup_ends(args: &Serve) -> bool {
    args.exports.is_empty()
}

fn start(args: &Serve, loaded: &Loaded, access_log: Option<&AccessLog>) -> Result<Serving> {
    let exports = loaded.exports.clone();
    let (cache, durability) = (cache(args.cache), args.durability.into());
    let mut options =
        ServerOptions::new(Config { cache, durability, address_validation: true, ..Config::new(exports) });
    options.access_log = access_log.map(AccessLog::sink);
    options.groups = args.manage_gids.then(GroupLookup::of_machine);
    options.listen = vec![args.listen];
    options.udp = !args.no_udp;
    options.mount_listen = args.mount_port.map(|port| SocketAddr::new(args.listen.ip(), port));
    options.portmap_listen = args.portmap.map(|port| SocketAddr::new(args.listen.ip(), port));
    if let Some(listen) = args.atp {
        let guests = match args.atp_allow.as_slice() {
            [] => Guests::Anyone,
            keys => Guests::Only(keys.iter().copied().collect()),
        };
        options.objects = Some(Objects { listen, identity: keys::identity(args)?, guests });
    }
    Serving::start_on(service_manager::take_sockets()?, options)
        .map_err(|e| Error::refused("cannot start", e.to_string()))
}

/// Registers the services with this machine's rpcbind.
async fn register(serving: &Serving) -> Result<Registration> {
    let services = serving.services();
    let done = tokio::task::spawn_blocking(move || Registration::new(Registration::RPCBIND, services)).await;
    let failed = |e: String| Error::refused("cannot register", e);
    done.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))
}

fn cache(cache: Cache) -> CacheConfig {
    match cache {
        Cache::Off => CacheConfig::Off,
        Cache::Reference => CacheConfig::reference(),
        Cache::Juszczak => CacheConfig::juszczak(),
        Cache::Full => CacheConfig::full(),
    }
}

fn farewell(args: &Serve, numbers: &ServerSnapshot, failures: &Failures, abandoned: usize) -> Result<String> {
    let core = &numbers.core;
    let calls = core.nfs_calls + core.mount_calls;
    if args.json {
        let counters = Counters::of(numbers, failures);
        return console::line(&Report { calls, executed: core.executed, replies: core.replies, abandoned, counters });
    }
    let left = if abandoned > 0 { format!(", {abandoned} not answered") } else { String::new() };
    Ok(format!("{calls} calls, {} executed, {} replies{left}\n", core.executed, core.replies))
}
