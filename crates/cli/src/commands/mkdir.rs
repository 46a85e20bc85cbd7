//! `remora mkdir`: makes directories.

use remora_wire::nfs3::Status;

use crate::args::Mkdir;
use crate::exit::{Error, Result};
use crate::remote::Node;
use crate::servers::{Place, Servers};

/// The server applies no umask; this is the usual one.
const MODE: u32 = 0o755;

pub(crate) async fn run(args: Mkdir) -> Result {
    let mut servers = Servers::new(args.link);
    for url in &args.urls {
        if args.parents {
            let place = servers.place(url).await?;
            for depth in 1..=place.parts.len() {
                make(&place, &place.parts[..depth], true).await?;
            }
        } else {
            let place = servers.entry(url).await?;
            make(&place, &place.parts, false).await?;
        }
    }
    Ok(())
}

async fn make(place: &Place, parts: &[String], may_exist: bool) -> Result {
    let failed = |e| Error::remote(&place.url)(e);
    let Some((dir, name)) = place.remote.parent(parts).await.map_err(failed)? else {
        return if may_exist { Ok(()) } else { Err(failed(Status::Exist.into())) };
    };
    match place.remote.mkdir(&dir.fh, name.as_bytes(), MODE).await {
        // Also what a server says that was asked twice, or of a parent it may not change.
        Err(e) if may_exist && is_dir(place, parts).await => drop(e),
        made => drop::<Node>(made.map_err(failed)?),
    }
    Ok(())
}

async fn is_dir(place: &Place, parts: &[String]) -> bool {
    place.remote.walk(parts, true).await.is_ok_and(|node| node.is_dir())
}
