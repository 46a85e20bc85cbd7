//! Mounts the servers that URLs name, and finds the path below the mount.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use remora_client::{BlockSize, ClientConfig, RetryPolicy, Transport, WindowSize};
use remora_host::client::{ClientError, Options, RateLimit, Session, Target};
use remora_host::{Clock, client};
use remora_wire::mount::{Export, PATH_MAX};
use remora_wire::nfs3::Status;
use remora_wire::rpc::AuthUnix;
use tokio::time::timeout;

use crate::output::exit::{Error, Result};
use crate::remote::filesystem::Remote;
use crate::remote::flags::{Auto, LinkArgs, Proto, Retry};
use crate::remote::listing::Node;
use crate::remote::root_cache::RootCache;
use crate::remote::stall_notice::{StallMonitor, until_answered, until_mounted};

/// Default limit for a server's first answer.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause between attempts to mount from a restarting server.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// Limit for undoing a look-up at a wrong place.
const UNDO_WITHIN: Duration = Duration::from_secs(2);
/// Most supplementary groups in AUTH_SYS.
const GROUPS_MAX: usize = 16;

/// A path on a mounted server, as a URL names it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The mounted server.
    pub(crate) remote: Remote,
    /// The path below what is mounted.
    pub(crate) parts: Vec<String>,
    /// The URL, for messages.
    pub(crate) url: String,
    /// The whole path, without slashes at its ends.
    pub(crate) path: String,
    /// The path ends in `/` and so means a directory.
    pub(crate) is_dir: bool,
    /// The root handle comes from the cache, and is not verified yet.
    pub(crate) is_recalled: bool,
}

/// The mounted servers of a command.
///
/// A URL does not say which part of its path is the export. MOUNT is tried with the whole path, then with each
/// ancestor. Servers also mount directories below an export. A file or a missing name is looked up or created in its
/// parent. (The Linux server also mounts files.)
///
/// The list of exports does not decide: an export can have unlisted names, and a nested export can have a longer
/// name.
pub(crate) struct Servers {
    link: LinkArgs,
    clock: Clock,
    mounted: Vec<Mounted>,
    /// Whether silence of a server is reported.
    tells: bool,
    /// Limits the rate of file data.
    throttle: Option<Arc<RateLimit>>,
    /// What the user can do while a server is silent.
    advice: &'static str,
    roots: RootCache,
}

/// Use of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Read,
    /// The directory that holds the last `n` names, which may be missing.
    Named(usize),
}

impl Wanted {
    fn names_left(self) -> usize {
        match self {
            Wanted::Read => 0,
            Wanted::Named(names) => names,
        }
    }
}

/// The first operation at a path.
pub(crate) trait Look {
    /// Result of the operation.
    type Found: Send;

    fn look(&self, place: &Place) -> impl Future<Output = Self::Found> + Send;

    /// Undoes `look` at a wrong place.
    fn undo(&self, _place: &Place, _found: Self::Found) -> impl Future<Output = ()> + Send {
        async {}
    }
}

struct Mounted {
    /// Server address; the path is ignored.
    target: Target,
    path: String,
    /// Paths that the server was asked for, without a longer mountable one.
    asked: Vec<String>,
    remote: Remote,
}

impl Mounted {
    /// Whether MOUNT of `path` would return this mount.
    fn answers(&self, target: &Target, path: &str) -> bool {
        self.target == *target && is_within(&self.path, path) && self.asked.iter().any(|asked| is_within(path, asked))
    }
}

impl Place {
    /// Last name of the path, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        self.path.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Looks up the object. Follows a symbolic link if `follow` is set or the path ends in `/`.
    pub(crate) async fn look(&self, follow: bool) -> Result<Node, ClientError> {
        let node = self.remote.walk(&self.parts, follow || self.is_dir).await?;
        if self.is_dir && !node.is_dir() { Err(Status::NotDir.into()) } else { Ok(node) }
    }

    /// Whether both name the same path below the same directory.
    fn is_at(&self, other: &Place) -> bool {
        self.parts == other.parts && self.remote.is_same(&other.remote)
    }
}

impl Servers {
    /// No servers, with these flags.
    pub(crate) fn new(link: LinkArgs) -> Servers {
        Servers {
            link,
            clock: Clock::start(),
            mounted: Vec::new(),
            tells: true,
            throttle: None,
            advice: "",
            roots: RootCache::of_user(),
        }
    }

    /// File data moves at this many bytes a second at most.
    pub(crate) fn limited(self, bytes_per_second: Option<u64>) -> Servers {
        Servers { throttle: bytes_per_second.map(|rate| Arc::new(RateLimit::new(rate))), ..self }
    }

    /// Notices of a silent server end with `advice`.
    pub(crate) fn advising(self, advice: &'static str) -> Servers {
        Servers { advice, ..self }
    }

    /// No servers; silence is not reported.
    pub(crate) fn quiet(link: LinkArgs) -> Servers {
        Servers { tells: false, ..Servers::new(link) }
    }

    /// Clock of the sessions.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Exports that the server of `url` lists.
    pub(crate) async fn exports(&self, url: &str) -> Result<Vec<Export>> {
        let (target, _) = self.target(url)?;
        let asked = client::exports(&target, self.options(self.mount_patience(&target)));
        until_answered(&target.host, asked).await.map_err(Error::remote(url))
    }

    /// Mounts as much of the path of `url` as possible.
    pub(crate) async fn place(&mut self, url: &str) -> Result<Place> {
        self.find(url, Wanted::Named(0)).await
    }

    /// As [`Servers::place`], for a source whose name does not matter: a mounted file needs no LOOKUP.
    pub(crate) async fn source(&mut self, url: &str) -> Result<Place> {
        self.find(url, Wanted::Read).await
    }

    /// As [`Servers::place`], for removing, renaming or creating: mounts the parent directory if possible, so that
    /// the last name is in [`Place::parts`].
    pub(crate) async fn entry(&mut self, url: &str) -> Result<Place> {
        self.find(url, Wanted::Named(1)).await
    }

    /// Finds `url` and runs `look` there. With a cached root, `look` runs during MOUNT; if the root turns out to be
    /// stale, `undo` runs and the look-up is repeated.
    pub(crate) async fn look<L: Look>(&mut self, url: &str, wanted: Wanted, look: &L) -> Result<(Place, L::Found)> {
        let Some(recalled) = self.recall(url, wanted).await? else {
            let place = self.find(url, wanted).await?;
            let found = look.look(&place).await;
            return Ok((place, found));
        };
        let is_it = |place: &Place| place.is_at(&recalled);
        let (found, place) = beside(look.look(&recalled), self.find(url, wanted), is_it).await;
        match (found, place) {
            (Some(found), Ok(place)) if place.is_at(&recalled) => {
                // The cached session has RTT measurements.
                if let Some(mounted) = self.mounted.iter_mut().find(|m| m.remote.is_same(&place.remote)) {
                    mounted.remote = recalled.remote.clone();
                }
                Ok((recalled, found))
            }
            (found, place) => {
                let is_silent = place.as_ref().is_err_and(Error::is_lost);
                if let Some(found) = found.filter(|_| !is_silent) {
                    look.undo(&recalled, found).await;
                }
                let place = place?;
                let found = look.look(&place).await;
                Ok((place, found))
            }
        }
    }

    /// What `url` means by what is mounted, or what it meant when its server was last mounted; `None` if nothing is
    /// known of that, or need not be found out.
    async fn recall(&self, url: &str, wanted: Wanted) -> Result<Option<Place>> {
        let (target, path) = self.target(url)?;
        let paths = candidates(&path, wanted.names_left());
        if self.known(&target, &paths).is_some() {
            return Ok(None);
        }
        let mounted = |at: &String| self.mounted.iter().find(|m| m.target == target && m.path == *at);
        if let Some(known) = paths.iter().find_map(mounted) {
            return Ok(Some(Place { is_recalled: true, ..place(url, &path, &known.path, known.remote.clone()) }));
        }
        let Some((nth, known)) = self.roots.recall(&target, &paths) else { return Ok(None) };
        let Ok(session) = known.open(&target, self.options(self.mount_patience(&target))).await else {
            return Ok(None);
        };
        Ok(Some(Place { is_recalled: true, ..place(url, &path, &paths[nth], self.remote(session)) }))
    }

    /// Server and path of a URL.
    fn target(&self, url: &str) -> Result<(Target, String)> {
        let mut target = Target::parse(url)?;
        if let Some(proto) = self.link.proto {
            let asked = transport(proto);
            match target.keys.is_some() {
                true if asked.is_some_and(|asked| asked != Transport::Atp) => {
                    let why = "its port answers only ATP: omit --proto";
                    return Err(Error::Usage(format!("{url}: {why}")));
                }
                true => {}
                false => target.transport = asked,
            }
        }
        let path = std::mem::take(&mut target.path);
        Ok((target, path))
    }

    async fn find(&mut self, url: &str, wanted: Wanted) -> Result<Place> {
        let (target, path) = self.target(url)?;
        let paths = candidates(&path, wanted.names_left());
        let (mounted, remote) = match self.known(&target, &paths) {
            Some(known) => known,
            None => {
                let (host, tells) = (target.host.clone(), self.tells);
                let mounted = self.mount(target, &path, paths, wanted);
                let mounted = if tells { until_mounted(&host, mounted).await } else { mounted.await };
                mounted.map_err(Error::remote(url))?
            }
        };
        Ok(place(url, &path, &mounted, remote))
    }

    /// What is mounted already and is what would be mounted of these. Another that one of them lies in does not count:
    /// below it there may be a further export, or an alias of one, which is not what has its name there.
    fn known(&self, target: &Target, paths: &[String]) -> Option<(String, Remote)> {
        let first = paths.first()?;
        let known = self.mounted.iter().find(|m| m.answers(target, first))?;
        Some((known.path.clone(), known.remote.clone()))
    }

    async fn mount(
        &mut self,
        target: Target,
        path: &str,
        paths: Vec<String>,
        wanted: Wanted,
    ) -> Result<(String, Remote), ClientError> {
        let asked = paths.first().cloned().unwrap_or_default();
        let at = self.pinned(&target);
        let mounted = self.mount_first(&target, &at, &paths).await?;
        let (found, remote) = self.settle(&at, path, paths, mounted, wanted).await?;
        self.roots.note(&target, &found, remote.session());
        Ok((found.clone(), self.take(target, found, asked, remote)))
    }

    /// Mounts the first of `paths` that there is `at` the address of `target`. A server that has answered before and is
    /// being restarted is waited for, unless there is a limit.
    async fn mount_first(
        &self,
        target: &Target,
        at: &Target,
        paths: &[String],
    ) -> Result<client::Mounted, ClientError> {
        let patience = self.mount_patience(target);
        let outlives_restarts = patience.is_none() && self.has_answered(target);
        loop {
            match client::mount_first(at, paths, self.options(patience)).await {
                Err(e) if outlives_restarts && e.is_restart() => tokio::time::sleep(RESTART_PAUSE).await,
                done => return done,
            }
        }
    }

    /// `target` at the address where it was found before, if it was: a name may lead to another one the next time.
    fn pinned(&self, target: &Target) -> Target {
        let known = self.mounted.iter().find(|m| m.target == *target);
        let server = known.map(|known| known.remote.session().addr()).filter(|server| {
            // One on a link is nothing without that.
            !matches!(server, SocketAddr::V6(server) if server.scope_id() != 0)
        });
        let host = server.map_or_else(|| target.host.clone(), |server| server.ip().to_string());
        Target { host, ..target.clone() }
    }

    /// Registers a mount; returns the existing one if it was mounted before.
    fn take(&mut self, target: Target, path: String, asked: String, remote: Remote) -> Remote {
        match self.mounted.iter_mut().find(|m| m.target == target && m.path == path && m.remote.is_same(&remote)) {
            Some(known) => {
                known.asked.push(asked);
                known.remote.clone()
            }
            None => {
                self.mounted.push(Mounted { target, path, asked: vec![asked], remote: remote.clone() });
                remote
            }
        }
    }

    /// What was mounted of `paths`, for `path`. If that is no directory, as servers may have it, and not only to be
    /// read, then what it lies in is mounted, if it may be: there it has its name.
    async fn settle(
        &self,
        target: &Target,
        path: &str,
        mut paths: Vec<String>,
        mounted: client::Mounted,
        wanted: Wanted,
    ) -> Result<(String, Remote), ClientError> {
        let client::Mounted { nth, session, next } = mounted;
        let remote = self.remote(session);
        if wanted == Wanted::Read
            || paths.get(nth).is_none_or(|found| components(found).count() < components(path).count())
        {
            return Ok((paths.swap_remove(nth), remote));
        }
        match remote.root().await {
            Ok(root) if !root.is_dir() => {}
            // Of what cannot be looked at, something else will tell.
            Err(e) if e.status().is_none() => return Err(e),
            _ => return Ok((paths.swap_remove(nth), remote)),
        }
        let above = match next {
            Some(above) => above,
            None => match client::mount_first(
                target,
                paths.get(nth + 1..).unwrap_or_default(),
                self.options(self.patience()),
            )
            .await
            {
                Ok(client::Mounted { nth: later, session, .. }) => (nth + 1 + later, session),
                Err(ClientError::Mount { .. } | ClientError::Closed) => return Ok((paths.swap_remove(nth), remote)),
                Err(e) => return Err(e),
            },
        };
        Ok((paths.swap_remove(above.0), self.remote(above.1)))
    }

    fn remote(&self, session: Session) -> Remote {
        session.set_patience(self.patience());
        let session = session.throttled(self.throttle.clone());
        let watch = self.tells.then(|| StallMonitor::over(&session, self.advice));
        Remote::new(session, watch)
    }

    /// Limit of silence after the first answer; `None`: no limit.
    fn patience(&self) -> Option<Duration> {
        patience(self.link.timeout, true)
    }

    /// Limit for MOUNT; none if the server has answered this command before.
    fn mount_patience(&self, target: &Target) -> Option<Duration> {
        patience(self.link.timeout, self.has_answered(target))
    }

    fn has_answered(&self, target: &Target) -> bool {
        self.mounted.iter().any(|m| m.target == *target)
    }

    fn options(&self, patience: Option<Duration>) -> Options {
        // Without random numbers the time suffices: the first xid must only differ from that of the last run.
        let seed = getrandom::u64().unwrap_or_else(|_| self.clock.now().as_nanos());
        Options { config: ClientConfig { give_up: patience, ..config(&self.link) }, seed, clock: self.clock }
    }
}

/// Limit of silence by `--timeout` and by whether the server has answered; `None`: no limit.
fn patience(timeout: Option<Duration>, has_answered: bool) -> Option<Duration> {
    match timeout {
        None if !has_answered => Some(FIRST_ANSWER_MAX),
        timeout => timeout.filter(|t| !t.is_zero()),
    }
}

/// What comes of looking at a place that was recalled while it is found out what is there now. Unless that
/// is it, looking may not come to an end.
async fn beside<T>(
    look: impl Future<Output = T>,
    find: impl Future<Output = Result<Place>>,
    is_it: impl Fn(&Place) -> bool,
) -> (Option<T>, Result<Place>) {
    let (mut look, mut find) = (pin!(look), pin!(find));
    tokio::select! {
        found = &mut look => (Some(found), find.await),
        place = &mut find => match place {
            Ok(place) if is_it(&place) => (Some(look.await), Ok(place)),
            // Runs to its end, so that it can be undone.
            place => (timeout(UNDO_WITHIN, look).await.ok(), place),
        },
    }
}

/// What `url` means, whose path is `path`, with `mounted` of it mounted.
fn place(url: &str, path: &str, mounted: &str, remote: Remote) -> Place {
    let parts = components(path).skip(components(mounted).count()).map(str::to_owned).collect();
    let (is_dir, path) = (path.ends_with('/'), components(path).collect::<Vec<_>>().join("/"));
    Place { remote, parts, url: url.to_owned(), path, is_dir, is_recalled: false }
}

/// The paths to try to mount for `path`: itself without its last `names_left` names, and what
/// that lies in; at last, in case nothing above it can be mounted, the rest. What is too long for MOUNT is found
/// from above.
fn candidates(path: &str, names_left: usize) -> Vec<String> {
    let parts: Vec<&str> = components(path).collect();
    let ends = parts.iter().scan(0, |end, part| {
        *end += 1 + part.len();
        Some(*end)
    });
    let fitting = ends.take_while(|end| *end <= PATH_MAX as usize).count();
    let first = parts.len().saturating_sub(names_left).min(fitting);
    let lengths = (0..=first).rev().chain(first + 1..=fitting);
    lengths.map(|n| format!("/{}", parts[..n].join("/"))).collect()
}

/// Whether `path` is `dir` or below it, by name.
fn is_within(dir: &str, path: &str) -> bool {
    let mut path = components(path);
    components(dir).all(|name| path.next() == Some(name))
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|c| !c.is_empty() && *c != ".")
}

fn transport(proto: Proto) -> Option<Transport> {
    match proto {
        Proto::Auto => None,
        Proto::Udp => Some(Transport::Udp),
        Proto::Tcp => Some(Transport::Tcp),
        Proto::Atp => Some(Transport::Atp),
    }
}

/// The client's configuration for these flags.
fn config(link: &LinkArgs) -> ClientConfig {
    let retry = match link.retry {
        Retry::Adaptive => RetryPolicy::Adaptive,
        Retry::Exponential => {
            RetryPolicy::Exponential { initial: link.initial, factor: link.factor, max: link.longest }
        }
        Retry::HybridLinear => RetryPolicy::HybridLinear {
            initial: link.initial,
            step: link.step,
            linear_retries: link.linear_retries,
            max: link.longest,
        },
    };
    ClientConfig {
        retry,
        block: match link.block {
            Auto::Learn => BlockSize::FromLink,
            Auto::Fixed(n) => BlockSize::Fixed(n),
        },
        window: match link.window {
            Auto::Learn => WindowSize::Adaptive,
            Auto::Fixed(n) => WindowSize::Fixed(n),
        },
        cred: own_credentials(),
        // The transport is chosen with each line.
        ..ClientConfig::new(Transport::Udp)
    }
}

/// Credentials of this process for AUTH_SYS.
pub(crate) fn own_credentials() -> AuthUnix {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    AuthUnix {
        stamp: 0,
        machine: machine.trim().to_owned().into(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: groups.into_iter().take(GROUPS_MAX).map(|g| g.as_raw()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_is_tried_first() {
        assert_eq!(candidates("/a//b/c/", 0), ["/a/b/c", "/a/b", "/a", "/"]);
        assert_eq!(candidates("/a/b", 1), ["/a", "/", "/a/b"]);
        assert_eq!(candidates("/", 0), ["/"]);
        assert_eq!(candidates("/", 1), ["/"]);
        let (long, longest) = ("/d".repeat(600), "/d".repeat(512));
        let paths = candidates(&long, 0);
        assert_eq!((paths.len(), &paths[0], &paths[511], &paths[512]), (513, &longest, &"/d".into(), &"/".into()));
        assert_eq!(candidates(&format!("/a/{}/b", "n".repeat(1022)), 1), ["/a", "/"]);
    }

    #[test]
    fn only_the_first_answer_has_a_limit_unless_one_is_set() {
        let second = Duration::from_secs(1);
        for (timeout, first, later) in [
            (None, Some(FIRST_ANSWER_MAX), None),
            (Some(Duration::ZERO), None, None),
            (Some(second), Some(second), Some(second)),
        ] {
            assert_eq!((patience(timeout, false), patience(timeout, true)), (first, later), "{timeout:?}");
        }
    }

    #[test]
    fn objects_below_a_directory_share_its_prefix() {
        for (dir, path, want) in [
            ("/", "/", true),
            ("/", "/a", true),
            ("/a", "//a/./", true),
            ("/a/", "/a/b", true),
            ("/a", "/ab", false),
            ("/a/b", "/a", false),
        ] {
            assert_eq!(is_within(dir, path), want, "{dir} {path}");
        }
    }
}
