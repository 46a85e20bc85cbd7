//! `remora serve`: shares directories until Ctrl-C.

mod check;
mod counters;
mod failures;
mod file;
mod key;
mod load;
mod notes;
mod reload;
mod share;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use remora_atp::session::Guests;
use remora_host::portmap::Registration;
use remora_host::server::{Objects, Options, Serving, Snapshot};
use remora_server::Config;
use remora_server::cache::Config as CacheConfig;
use rustix::fs::Mode;
use rustix::process::umask;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{self, Serve};
use crate::exit::{Error, Result};
use crate::{interrupt, out};
use counters::Counters;
use failures::Failures;
use load::Loaded;
use table::ExportView;

/// What `--json` prints when the server answers.
#[derive(Serialize)]
struct Ready<'a> {
    listen: &'a [SocketAddr],
    mount: Option<SocketAddr>,
    portmap: Option<SocketAddr>,
    atp: Option<AtpView>,
    exports: Vec<ExportView<'a>>,
    notes: &'a [String],
}

/// Where clients find the server over ATP, and by which key they know it.
#[derive(Serialize)]
struct AtpView {
    listen: SocketAddr,
    key: String,
}

/// What `--json` prints at the end.
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
    outlive_large_writes()?;
    let hangups = hangups(&args)?;
    let mut plan = share::plan(&args)?;
    plan.notes.extend(notes::of_user());
    plan.notes.extend(notes::of_portmap(&args)?);
    let key = key::of(&args)?;
    let mut loaded = load::open(plan, &key, None)?;
    let serving = start(&args, &loaded)?;
    loaded.plan.notes.extend(room(&serving, &loaded));
    // Taken back when it is dropped, however this ends.
    let registration = if args.rpcbind { Some(register(&serving).await?) } else { None };
    let failures = loaded.failures.clone();
    counters::print_on_signal(serving.watch(), failures.clone());
    announce(&args, &loaded, &serving)?;
    match hangups {
        None => drop(end(&args).await),
        Some(hangups) => tokio::select! {
            never = reload::at_hangups(hangups, &serving, &args, key, loaded) => match never {},
            _ = end(&args) => {}
        },
    }
    if !args.json {
        out::say("remora: serve: shutting down; once more ends it at once");
    }
    // Before the server stops answering: who asks now is not sent to a closed port.
    drop(registration);
    let numbers = serving.stats();
    let shutdown = tokio::task::spawn_blocking(move || serving.shutdown().abandoned);
    let abandoned = tokio::select! {
        done = shutdown => done.unwrap_or_default(),
        signal = end(&args) => return Err(Error::Interrupted(signal)),
    };
    // Nobody may be reading what it says.
    let told = tokio::task::spawn_blocking({
        let args = args.clone();
        move || farewell(&args, &numbers, &failures, abandoned)
    });
    tokio::select! {
        told = told => told.unwrap_or(Ok(())),
        signal = end(&args) => Err(Error::Interrupted(signal)),
    }
}

/// Where this process may not make files as large as a client asks for, that client is told so, and
/// the process is not killed for it.
fn outlive_large_writes() -> Result {
    let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // Once listened to, it never again does what it does by default.
    signal(too_large).map(drop).map_err(Error::local("cannot wait for signals"))
}

/// Hang-ups from now on, where they mean that files are to be read again.
fn hangups(args: &Serve) -> Result<Option<Signal>> {
    if args.exports.is_empty() {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some).map_err(Error::local("cannot wait for signals"))
}

/// Waits for a signal that ends the server. See [`hangups`].
async fn end(args: &Serve) -> u8 {
    if args.exports.is_empty() { interrupt::wait().await } else { interrupt::wait_but_for_hangup().await }
}

fn start(args: &Serve, loaded: &Loaded) -> Result<Serving> {
    let exports = loaded.exports.clone();
    let mut options =
        Options::new(Config { cache: cache(args.cache), durability: args.durability.into(), ..Config::new(exports) });
    options.listen = vec![args.listen];
    options.mount_listen = args.mount_port.map(|port| SocketAddr::new(args.listen.ip(), port));
    options.portmap_listen = args.portmap.map(|port| SocketAddr::new(args.listen.ip(), port));
    if let Some(listen) = args.atp {
        let guests = match args.atp_allow.as_slice() {
            [] => Guests::Anyone,
            keys => Guests::Only(keys.iter().copied().collect()),
        };
        options.objects = Some(Objects { listen, identity: key::identity(args)?, guests });
    }
    Serving::start(options).map_err(|e| Error::refused("cannot start", e.to_string()))
}

/// What there is to say about how many may connect.
fn room(serving: &Serving, loaded: &Loaded) -> Option<String> {
    notes::of_room(serving.connections_max(), loaded.plan.shares.len(), serving.descriptors_max())
}

/// Tells this machine's rpcbind where we are.
async fn register(serving: &Serving) -> Result<Registration> {
    let mappings = serving.mappings();
    let done = tokio::task::spawn_blocking(move || Registration::new(Registration::RPCBIND, mappings)).await;
    let failed = |e: String| Error::refused("cannot register", e);
    done.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))
}

fn cache(cache: args::Cache) -> CacheConfig {
    match cache {
        args::Cache::Off => CacheConfig::Off,
        args::Cache::Reference => CacheConfig::reference(),
        args::Cache::Juszczak => CacheConfig::juszczak(),
        args::Cache::Full => CacheConfig::full(),
    }
}

fn announce(args: &Serve, loaded: &Loaded, serving: &Serving) -> Result {
    let (addrs, mount, portmap) = (serving.local_addrs(), serving.mount_addr(), serving.portmap_addr());
    let (shares, notes) = (&loaded.plan.shares, &loaded.plan.notes);
    if args.json {
        let atp = serving.objects().map(|(listen, key)| AtpView { listen, key: key.to_string() });
        return out::json(&Ready { listen: addrs, mount, portmap, atp, exports: table::views(shares), notes });
    }
    let mut text = String::new();
    for addr in addrs {
        text += &format!("serving NFSv3, NFSv2 and MOUNT on {addr}, UDP and TCP\n");
    }
    if let Some(mount) = mount {
        text += &format!("MOUNT also on {mount}\n");
    }
    if let Some((addr, key)) = serving.objects() {
        text += &format!("NFS over ATP on {addr}, with the key {key}\n");
    }
    if let Some(portmap) = portmap {
        text += &format!("portmapper on {portmap}\n");
    }
    if args.rpcbind {
        text += &format!("registered with rpcbind at {}\n", Registration::RPCBIND);
    }
    for share in shares {
        text += &table::line(share);
    }
    if let (Some(addr), Some(name)) = (addrs.first(), shares.first().and_then(|s| s.names.last())) {
        text += &examples(addr, mount.map_or(addr.port(), |m| m.port()), name);
    }
    if let (Some((addr, key)), Some(name)) = (serving.objects(), shares.first().and_then(|s| s.names.last())) {
        let host = if addr.ip().is_unspecified() { "THIS-HOST".to_owned() } else { host(&addr) };
        let (port, path) = (addr.port(), encode(name));
        text += &format!("             remora ls 'nfs://{host}:{port}{path}?proto=atp&key={key}'\n");
    }
    out::text(&text)?;
    notes.iter().for_each(out::say);
    warn(args, addrs);
    Ok(())
}

fn warn(args: &Serve, addrs: &[SocketAddr]) {
    if args.durability == args::Durability::NamesLater {
        out::say("a crash of this machine may undo half a minute of changes to names and attributes (--durability)");
    }
    let here_only = addrs.iter().all(|a| a.ip().is_loopback());
    // Files say themselves who may come; `notes` says where they do not.
    if !args.exports.is_empty() {
        if here_only {
            out::say("only this machine can reach it; --listen 0.0.0.0:2049 shares it with others");
        }
        return;
    }
    if here_only {
        out::say("only this machine can reach it; --listen 0.0.0.0:2049 --allow CIDR shares it with others");
    } else if args.allow.is_empty() {
        let what = if args.read_only { "read" } else { "read and change" };
        out::say(format_args!(
            "warning: whoever reaches this address can {what} these files; --allow CIDR limits that"
        ));
    }
}

/// Commands that reach the share `name`.
fn examples(addr: &SocketAddr, mount_port: u16, name: &str) -> String {
    let (port, path) = (addr.port(), encode(name));
    let host = if addr.ip().is_unspecified() { "THIS-HOST".to_owned() } else { host(addr) };
    // Linux's mount takes no address of the other family than it is told; libnfs knows no IPv6.
    let tcp = if addr.is_ipv6() { "tcp6" } else { "tcp" };
    let mut text = format!("for example: remora ls 'nfs://{host}:{port}{path}'\n");
    if addr.is_ipv4() {
        text += &format!("             nfs-ls 'nfs://{host}{path}?version=3&nfsport={port}&mountport={mount_port}'\n");
    }
    let ports = format!("port={port},mountport={mount_port}");
    text + &format!("             mount -o vers=3,proto={tcp},nolock,{ports},mountproto={tcp} '{host}:{name}' DIR\n")
}

/// An address as URLs have it.
fn host(addr: &SocketAddr) -> String {
    if addr.is_ipv6() { format!("[{}]", addr.ip()) } else { addr.ip().to_string() }
}

/// A path as URLs have it.
fn encode(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn farewell(args: &Serve, numbers: &Snapshot, failures: &Failures, abandoned: usize) -> Result {
    let core = &numbers.core;
    let calls = core.nfs_calls + core.mount_calls;
    if args.json {
        let counters = Counters::of(numbers, failures);
        return out::json(&Report { calls, executed: core.executed, replies: core.replies, abandoned, counters });
    }
    let left = if abandoned > 0 { format!(", {abandoned} left unanswered") } else { String::new() };
    out::text(&format!("{calls} calls, {} executed, {} replies{left}\n", core.executed, core.replies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_for_urls() {
        assert_eq!(encode("/a b/é?"), "/a%20b/%C3%A9%3F");
    }

    #[test]
    fn examples_work_with_the_address_they_name() {
        let v4 = examples(&"127.0.0.1:2049".parse().unwrap(), 2050, "/srv");
        assert!(v4.contains("'nfs://127.0.0.1:2049/srv'"), "{v4}");
        assert!(v4.contains("nfs-ls 'nfs://127.0.0.1/srv?version=3&nfsport=2049&mountport=2050'"), "{v4}");
        let mount = "vers=3,proto=tcp,nolock,port=2049,mountport=2050,mountproto=tcp '127.0.0.1:/srv' DIR";
        assert!(v4.contains(mount), "{v4}");
        for (at, host) in [("[::1]:2049", "[::1]"), ("[::]:2049", "THIS-HOST")] {
            let v6 = examples(&at.parse().unwrap(), 2049, "/srv");
            assert!(v6.contains(&format!("'nfs://{host}:2049/srv'")) && !v6.contains("nfs-ls"), "{v6}");
            let mount = format!("proto=tcp6,nolock,port=2049,mountport=2049,mountproto=tcp6 '{host}:/srv' DIR");
            assert!(v6.contains(&mount), "{v6}");
        }
    }
}
