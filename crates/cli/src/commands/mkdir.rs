//! `remora mkdir`: makes directories.

use remora_wire::nfs3::{Attr, Status};

use super::several::Several;
use crate::args::Mkdir;
use crate::exit::{Error, Result};
use crate::out;
use crate::remote::{Node, Remote};
use crate::servers::{Place, Servers};

/// The server applies no umask; this is the usual one.
const MODE: u32 = 0o755;

pub(crate) async fn run(args: Mkdir) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = Several::new("mkdir");
    for url in &args.urls {
        several.settle(make_all(&mut servers, url, args.parents).await)?;
    }
    several.finish()
}

async fn make_all(servers: &mut Servers, url: &str, parents: bool) -> Result {
    if !parents {
        let place = servers.entry(url).await?;
        return make(&place, &place.parts, false).await;
    }
    let place = servers.place(url).await?;
    for depth in 1..=place.parts.len() {
        make(&place, &place.parts[..depth], true).await?;
    }
    Ok(())
}

async fn make(place: &Place, parts: &[String], may_exist: bool) -> Result {
    let failed = |e| Error::remote(&place.url)(e);
    let Some((dir, name)) = place.remote.parent(parts).await.map_err(failed)? else {
        return if may_exist { Ok(()) } else { Err(failed(Status::Exist.into())) };
    };
    let remote = &place.remote;
    let sent_before = remote.session().stats().retransmissions;
    match remote.mkdir(&dir.fh, name.as_bytes(), MODE).await {
        // Also what a server says that was asked twice, or of a parent it may not change.
        Err(e) if may_exist && is_dir(place, parts).await => drop(e),
        Err(e) if e.status() == Some(Status::Exist) && remote.session().stats().retransmissions > sent_before => {
            if !is_ours(remote, &dir, name).await {
                return Err(failed(e));
            }
        }
        Err(e) if e.status() == Some(Status::Exist) && parts.len() < place.parts.len() => {
            return Err(Error::refused(&place.url, format!("{} is not a directory", out::shown(name.as_bytes()))));
        }
        made => drop::<Node>(made.map_err(failed)?),
    }
    Ok(())
}

async fn is_dir(place: &Place, parts: &[String]) -> bool {
    place.remote.walk(parts, true).await.is_ok_and(|node| node.is_dir())
}

/// Whether a request that was sent again made what is now in its way: the server may have forgotten that before it
/// could say so. Then `dir` has changed since it was looked at, and in it is a directory as new as that, still empty.
/// When in doubt it is not: who takes directories for locks must not have one that is another's.
async fn is_ours(remote: &Remote, dir: &Node, name: &str) -> bool {
    let time = |attr: &Attr| (attr.mtime.secs, attr.mtime.nanos);
    let before = time(&dir.attr);
    let Ok(made) = remote.lookup(&dir.fh, name.as_bytes()).await else { return false };
    let is_new = made.is_dir() && time(&made.attr) >= before;
    is_new
        && remote.getattr(&dir.fh).await.is_ok_and(|now| time(&now) != before)
        && remote.list(&made.fh).await.is_ok_and(|all| all.entries.is_empty() && all.unknown.is_empty())
}
