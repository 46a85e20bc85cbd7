//! `remora serve`: shares directories until Ctrl-C.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remora_host::portmap::Registration;
use remora_host::server::{Options, Serving, Snapshot};
use remora_server::cache::Config as CacheConfig;
use remora_server::{Config, Export, Exports, Limits, Network, Squash};
use remora_vfs::{LocalDisk, local};
use serde::Serialize;

use crate::args::{self, Serve};
use crate::exit::{Error, Result, io_text};
use crate::{interrupt, out, state};

/// A directory and the paths it is mounted by.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Share {
    dir: PathBuf,
    names: Vec<String>,
}

/// What `--json` prints when the server answers.
#[derive(Serialize)]
struct Ready<'a> {
    listen: &'a [SocketAddr],
    mount: Option<SocketAddr>,
    portmap: Option<SocketAddr>,
    exports: Vec<ReadyExport<'a>>,
}

#[derive(Serialize)]
struct ReadyExport<'a> {
    directory: &'a Path,
    names: &'a [String],
}

/// What `--json` prints at the end.
#[derive(Serialize)]
struct Report {
    calls: u64,
    executed: u64,
    replies: u64,
    abandoned: usize,
}

pub(crate) async fn run(args: Serve) -> Result {
    let shares = shares(&args.dirs, &args.export)?;
    let mut options = Options::new(core(&args, &shares)?);
    options.listen = vec![args.listen];
    options.mount_listen = args.mount_port.map(|port| SocketAddr::new(args.listen.ip(), port));
    options.portmap_listen = args.portmap.map(|port| SocketAddr::new(args.listen.ip(), port));
    let serving = Serving::start(options).map_err(|e| Error::refused("cannot start", e.to_string()))?;
    // Taken back when it is dropped, however this ends.
    let registration = if args.rpcbind { Some(register(&serving).await?) } else { None };
    announce(&args, &shares, &serving)?;
    interrupt::wait().await;
    if !args.json {
        out::say("remora: serve: shutting down; once more ends it at once");
    }
    // Before the server stops answering: who asks now is not sent to a closed port.
    drop(registration);
    let numbers = serving.stats();
    let shutdown = tokio::task::spawn_blocking(move || serving.shutdown().abandoned);
    let abandoned = tokio::select! {
        done = shutdown => done.unwrap_or_default(),
        signal = interrupt::wait() => return Err(Error::Interrupted(signal)),
    };
    farewell(&args, &numbers, abandoned)
}

/// Tells this machine's rpcbind where we are.
async fn register(serving: &Serving) -> Result<Registration> {
    let mappings = serving.mappings();
    let done = tokio::task::spawn_blocking(move || Registration::new(Registration::RPCBIND, mappings)).await;
    let failed = |e: String| Error::refused("cannot register", e);
    done.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))
}

/// The directories to share and their names.
fn shares(dirs: &[PathBuf], exports: &[String]) -> Result<Vec<Share>> {
    let mut shares = Vec::new();
    for dir in dirs {
        let dir = directory(dir)?;
        let path = utf8(&dir)?.to_owned();
        let mut names = vec![path];
        names.extend(dir.file_name().and_then(|n| n.to_str()).map(|n| format!("/{n}")));
        names.dedup();
        shares.push(Share { dir, names });
    }
    for export in exports {
        let (name, dir) = export
            .split_once('=')
            .ok_or_else(|| Error::Usage(format!("--export {export}: expected NAME=DIR, as in /photos=/srv/photos")))?;
        let name = if name.starts_with('/') { name.to_owned() } else { format!("/{name}") };
        shares.push(Share { dir: directory(Path::new(dir))?, names: vec![name] });
    }
    match &mut shares[..] {
        [] => return Err(Error::Usage("there is nothing to share: name a directory".into())),
        [only] if !only.names.contains(&"/".to_owned()) => only.names.push("/".to_owned()),
        _ => {}
    }
    keep_unambiguous(&mut shares);
    Ok(shares)
}

/// Two directories may have the same last name; then neither is found by it. The first name of
/// each stays: if that is taken twice, the server says so.
fn keep_unambiguous(shares: &mut [Share]) {
    let all: Vec<String> = shares.iter().flat_map(|s| s.names.iter().cloned()).collect();
    for share in shares {
        let first = share.names.first().cloned();
        share.names.retain(|n| Some(n) == first.as_ref() || all.iter().filter(|other| *other == n).count() == 1);
    }
}

fn directory(dir: &Path) -> Result<PathBuf> {
    let whole = std::fs::canonicalize(dir).map_err(Error::local(dir.display()))?;
    if whole.is_dir() { Ok(whole) } else { Err(Error::refused(dir.display(), "is not a directory")) }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::refused(path.display(), "its path is not UTF-8; give it a name with --export NAME=DIR instead")
    })
}

/// The server core's settings.
fn core(args: &Serve, shares: &[Share]) -> Result<Config> {
    let networks = args.allow.iter().map(|a| a.parse::<Network>());
    let allow = networks.collect::<Result<Vec<_>, String>>().map_err(|e| Error::Usage(format!("--allow: {e}")))?;
    let is_root = rustix::process::geteuid().is_root();
    let mut exports = Vec::new();
    for share in shares {
        let disk = local::Options {
            // Only root can act as somebody else.
            honour_credentials: is_root,
            read_only: args.read_only,
            ..local::Options::new(random()?)
        };
        let disk = LocalDisk::open(&share.dir, disk).map_err(Error::local(share.dir.display()))?;
        exports.push(Export {
            names: share.names.clone(),
            read_only: args.read_only,
            squash: match args.squash {
                args::Squash::Root => Squash::Root,
                args::Squash::All => Squash::All,
                args::Squash::None => Squash::None,
            },
            allow: allow.clone(),
            ..Export::new("/", Arc::new(disk))
        });
    }
    let key = key(&state_dir(args, is_root)?)?;
    let exports = Exports::new(exports, &key).map_err(|e| Error::Usage(e.to_string()))?;
    Ok(Config { exports: Arc::new(exports), cache: cache(args.cache), limits: Limits::default() })
}

fn cache(cache: args::Cache) -> CacheConfig {
    match cache {
        args::Cache::Off => CacheConfig::Off,
        args::Cache::Reference => CacheConfig::reference(),
        args::Cache::Juszczak => CacheConfig::juszczak(),
        args::Cache::Full => CacheConfig::full(),
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::refused("no random numbers from the system", e.to_string()))?;
    Ok(bytes)
}

fn state_dir(args: &Serve, is_root: bool) -> Result<PathBuf> {
    match &args.state {
        Some(dir) => Ok(dir.clone()),
        None if is_root => Ok(PathBuf::from("/var/lib/remora")),
        None => state::user_dir().ok_or_else(|| {
            Error::Usage("there is no home directory to keep the handles' key in: name one with --state DIR".into())
        }),
    }
}

/// The key that signs handles; made at the first start. Clients' handles stay good for as
/// long as it stays.
fn key(dir: &Path) -> Result<[u8; 16]> {
    let path = dir.join("handle-key");
    state::make_private(dir).map_err(|e| {
        Error::refused(dir.display(), format!("{}; --state DIR names another place for the key", io_text(&e)))
    })?;
    let fresh = random::<16>()?;
    let bytes = state::secret(&path, &fresh).map_err(Error::local(path.display()))?;
    bytes
        .try_into()
        .map_err(|_| Error::refused(path.display(), "is not a key of 16 bytes; remove it to have a new one made"))
}

fn announce(args: &Serve, shares: &[Share], serving: &Serving) -> Result {
    let (addrs, mount, portmap) = (serving.local_addrs(), serving.mount_addr(), serving.portmap_addr());
    if args.json {
        let exports = shares.iter().map(|s| ReadyExport { directory: &s.dir, names: &s.names }).collect();
        return out::json(&Ready { listen: addrs, mount, portmap, exports });
    }
    let mut text = String::new();
    for addr in addrs {
        text += &format!("serving NFSv3, NFSv2 and MOUNT on {addr}, UDP and TCP\n");
    }
    if let Some(mount) = mount {
        text += &format!("MOUNT also on {mount}\n");
    }
    if let Some(portmap) = portmap {
        text += &format!("portmapper on {portmap}\n");
    }
    if args.rpcbind {
        text += &format!("registered with rpcbind at {}\n", Registration::RPCBIND);
    }
    for share in shares {
        text += &format!("{} as {}\n", share.dir.display(), share.names.join(", "));
    }
    if let (Some(addr), Some(name)) = (addrs.first(), shares.first().and_then(|s| s.names.last())) {
        let port = addr.port();
        let host = if addr.ip().is_unspecified() { "THIS-HOST".to_owned() } else { host(addr) };
        let path = encode(name);
        let mount_port = mount.map_or(port, |m| m.port());
        text += &format!("for example: remora ls nfs://{host}:{port}{path}\n");
        text += &format!("             nfs-ls 'nfs://{host}{path}?version=3&nfsport={port}&mountport={mount_port}'\n");
        text += &format!(
            "             mount -o vers=3,proto=tcp,nolock,port={port},mountport={mount_port},mountproto=tcp {host}:{name} DIR\n"
        );
    }
    out::text(&text)?;
    warn(args, addrs);
    Ok(())
}

fn warn(args: &Serve, addrs: &[SocketAddr]) {
    if args.allow.is_empty() && addrs.iter().any(|a| !a.ip().is_loopback()) {
        let what = if args.read_only { "read" } else { "read and change" };
        out::say(format_args!(
            "warning: whoever reaches this address can {what} these files; --allow CIDR limits that"
        ));
    }
    if addrs.iter().all(|a| a.ip().is_loopback()) {
        out::say("only this machine can reach it; --listen 0.0.0.0:2049 --allow CIDR shares it with others");
    }
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

fn farewell(args: &Serve, numbers: &Snapshot, abandoned: usize) -> Result {
    let core = &numbers.core;
    let calls = core.nfs_calls + core.mount_calls;
    if args.json {
        return out::json(&Report { calls, executed: core.executed, replies: core.replies, abandoned });
    }
    let left = if abandoned > 0 { format!(", {abandoned} left unanswered") } else { String::new() };
    out::text(&format!("{calls} calls, {} executed, {} replies{left}\n", core.executed, core.replies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_names_people_expect() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for sub in ["a", "b", "b/a"] {
            std::fs::create_dir(root.join(sub)).unwrap();
        }
        let names = |dirs: &[&str], exports: &[String]| {
            let dirs: Vec<PathBuf> = dirs.iter().map(|d| root.join(d)).collect();
            let shares = shares(&dirs, exports).unwrap();
            shares.into_iter().map(|s| s.names).collect::<Vec<_>>()
        };
        let path = |sub: &str| root.join(sub).to_str().unwrap().to_owned();
        assert_eq!(names(&["a"], &[]), [[path("a"), "/a".into(), "/".into()]]);
        assert_eq!(names(&["a", "b"], &[]), [[path("a"), "/a".into()], [path("b"), "/b".into()]]);
        assert_eq!(names(&["a", "b/a"], &[]), [[path("a")], [path("b/a")]]);
        assert_eq!(names(&[], &[format!("x={}", path("a"))]), [["/x", "/"]]);
        assert_eq!(shares(&[PathBuf::from("/")], &[]).unwrap()[0].names, ["/"]);
    }

    #[test]
    fn wrong_directories_are_refused() {
        let missing = shares(&[PathBuf::from("/nonexistent")], &[]).unwrap_err();
        assert_eq!((missing.code(), missing.to_string().as_str()), (1, "/nonexistent: no such file or directory"));
        assert_eq!(shares(&[PathBuf::from("/dev/null")], &[]).unwrap_err().code(), 1);
        assert_eq!(shares(&[], &[]).unwrap_err().code(), 2);
        assert_eq!(shares(&[], &["x".into()]).unwrap_err().code(), 2);
    }

    #[test]
    fn a_key_is_made_once_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = key(&state).unwrap();
        assert_eq!(key(&state).unwrap(), first);
        let mode = std::fs::metadata(state.join("handle-key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(state.join("handle-key"), b"short").unwrap();
        assert!(key(&state).unwrap_err().to_string().contains("16 bytes"));
    }

    #[test]
    fn paths_are_encoded_for_urls() {
        assert_eq!(encode("/a b/é?"), "/a%20b/%C3%A9%3F");
    }
}
