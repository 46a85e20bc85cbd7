//! `remora mv`: renames within a server.

use crate::args::Mv;
use crate::exit::{Error, Result};
use crate::servers::Servers;

pub(crate) async fn run(args: Mv) -> Result {
    let mut servers = Servers::new(args.link);
    let (from, to) = (servers.entry(&args.from).await?, servers.place(&args.to).await?);
    if from.remote.session().server() != to.remote.session().server() {
        return Err(Error::Usage("mv works within one server; between servers there are cp and rm".into()));
    }
    let failed_from = |e| Error::remote(&args.from)(e);
    let failed_to = |e| Error::remote(&args.to)(e);
    let remote = &from.remote;
    let Some((from_dir, name)) = remote.parent(&from.parts).await.map_err(failed_from)? else {
        return Err(Error::refused(&args.from, "this is the export itself; it cannot be moved"));
    };
    let node = remote.lookup(&from_dir.fh, name.as_bytes()).await.map_err(failed_from)?;
    let there = match to.remote.walk(&to.parts, true).await {
        Err(e) if e.status() == Some(remora_wire::nfs3::Status::NoEnt) => None,
        there => Some(there.map_err(failed_to)?),
    };
    let (to_dir, new_name) = match (there, to.remote.parent(&to.parts).await) {
        (Some(dir), _) if dir.is_dir() => (dir, name),
        _ if to.is_dir && !node.is_dir() => return Err(Error::refused(&args.to, "no such directory")),
        (_, Ok(Some(found))) => found,
        (_, Ok(None)) => return Err(Error::refused(&args.to, "this is the export itself")),
        (_, Err(e)) => return Err(failed_to(e)),
    };
    let from = (&from_dir.fh, name.as_bytes());
    remote.rename(&node, from, (&to_dir.fh, new_name.as_bytes())).await.map_err(failed_to)
}
