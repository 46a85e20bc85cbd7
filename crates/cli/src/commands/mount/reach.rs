//! The directory to be mounted: at a server that answers, or as an earlier mount noted it.

use std::path::PathBuf;
use std::time::Duration;

use remora_client::ClientConfig;
use remora_host::Clock;
use remora_host::client::{Blocks, ClientError, EarlierMount, Options, Session, Target};
use remora_host::mount::store::{self, StoreKey};
use remora_host::mount::{MountRoot, OfflineNote};
use remora_wire::nfs3::{Call, FsInfoOk, Reply, Status};
use tokio::time::timeout;

use crate::commands::mount::options::OfflineMode;
use crate::config::state_dir;
use crate::output::exit::{Error, Result};
use crate::output::stdio;
use crate::remote::filesystem::Remote;
use crate::remote::flags::{LinkArgs, Proto};
use crate::remote::listing::Node;
use crate::remote::servers::{Place, Servers, own_credentials};

/// Blocks for a server that names none: every server takes these.
const BLOCK_UNKNOWN: u32 = 8192;
/// How long a mount that can start offline waits for the server. Over a slower link it starts offline, and goes online
/// as soon as the server answers.
const ANSWER_MAX: Duration = Duration::from_millis(700);

/// A directory to be mounted.
pub(super) struct ReachedDirectory {
    pub(super) session: Session,
    pub(super) clock: Clock,
    pub(super) root: MountRoot,
    pub(super) blocks_max: Blocks,
    /// Prints notices of a silent server; `None` if the mount starts offline.
    pub(super) remote: Option<Remote>,
}

impl ReachedDirectory {
    pub(super) fn is_offline(&self) -> bool {
        self.remote.is_none()
    }
}

/// Finds the directory at `url`: at the server, or from the note of an earlier mount if the server does not answer.
pub(super) async fn reach(url: &str, link: &LinkArgs, offline: OfflineMode) -> Result<ReachedDirectory> {
    let key = StoreKey::of(&Target::parse(url)?);
    let note = match offline {
        OfflineMode::Auto => note(&key),
        OfflineMode::Never => None,
    };
    let Some(note) = note else { return at_server(url, link, &key).await };
    match timeout(ANSWER_MAX, at_server(url, link, &key)).await {
        Ok(Err(error)) if !error.is_lost() => return Err(error),
        Ok(Ok(reached)) => return Ok(reached),
        Ok(Err(_)) | Err(_) => {}
    }
    resume(url, note).await
}

/// The note of an earlier mount that left something on this machine's disk.
fn note(key: &StoreKey) -> Option<OfflineNote> {
    let stores: Vec<PathBuf> = state_dir::cache_dir().into_iter().chain(state_dir::unsent_dir()).collect();
    let has_store = stores.iter().any(|parent| store::has_store(parent, key));
    OfflineNote::load(&state_dir::mounts_dir()?, key).filter(|_| has_store)
}

async fn at_server(url: &str, link: &LinkArgs, key: &StoreKey) -> Result<ReachedDirectory> {
    let (servers, place) = place(url, link).await?;
    let (node, info) = look(&place, url).await?;
    if !node.is_dir() {
        return Err(Error::refused(url, "not a directory"));
    }
    let session = place.remote.session().clone();
    let block = |known: u32| if known == 0 { BLOCK_UNKNOWN } else { known };
    let blocks_max = Blocks { read: block(info.read_max), write: block(info.write_max) };
    let mount = EarlierMount::of(&session, node.fh.clone());
    if let Some(dir) = state_dir::mounts_dir()
        && let Err(error) = (OfflineNote { mount, attr: node.attr.clone(), blocks_max }).save(&dir, key)
    {
        stdio::eprint(format_args!("the next mount cannot start offline: {}: {error}", dir.display()));
    }
    let root = MountRoot { fh: node.fh, attr: node.attr };
    Ok(ReachedDirectory { session, clock: servers.clock(), root, blocks_max, remote: Some(place.remote) })
}

/// A session that waits for the server.
async fn resume(url: &str, note: OfflineNote) -> Result<ReachedDirectory> {
    let OfflineNote { mount, attr, blocks_max } = note;
    let clock = Clock::start();
    // Without random numbers the time suffices: the first xid must only differ from that of the last run.
    let seed = getrandom::u64().unwrap_or_else(|_| clock.now().as_nanos());
    let config = ClientConfig { cred: own_credentials(), ..ClientConfig::new(mount.transport) };
    let session = mount.resume(&Target::parse(url)?, Options { config, seed, clock }).await;
    let session = session.map_err(Error::remote(url))?;
    stdio::eprint(format_args!("{} does not answer within 0.7 s: the mount starts offline", session.server()));
    let root = MountRoot { fh: mount.root, attr };
    Ok(ReachedDirectory { session, clock, root, blocks_max, remote: None })
}

/// The server. On loopback a free choice of the transport falls on TCP: there is no link to adapt to, and a stream
/// takes half the processor time.
async fn place(url: &str, link: &LinkArgs) -> Result<(Servers, Place)> {
    let mut servers = Servers::new(link.clone());
    let place = servers.place(url).await?;
    let session = place.remote.session();
    if session.chooses_transport() && session.addr().ip().is_loopback() {
        let mut over_tcp = Servers::new(LinkArgs { proto: Some(Proto::Tcp), ..link.clone() });
        if let Ok(place) = over_tcp.place(url).await {
            return Ok((over_tcp, place));
        }
    }
    Ok((servers, place))
}

/// The directory at `place` and what the server says of its file system.
async fn look(place: &Place, url: &str) -> Result<(Node, FsInfoOk)> {
    let refused = |e: ClientError| match e.status() {
        Some(Status::Perm) if !rustix::process::geteuid().is_root() => {
            let why = "the server lets this machine mount, and refuses its calls";
            Error::refused(url, why).with_hint(
                "most exports take calls from privileged ports only: give the export the option insecure on the server, \
                 or run remora mount as root here",
            )
        }
        _ => Error::remote(url)(e),
    };
    let node = place.look(true).await.map_err(refused)?;
    let session = place.remote.session();
    match session.ok(Call::FsInfo(session.root().clone())).await {
        Ok(Reply::FsInfo(Ok(info))) => Ok((node, info)),
        Ok(_) => Err(Error::remote(url)(ClientError::Closed)),
        Err(e) => Err(refused(e)),
    }
}
