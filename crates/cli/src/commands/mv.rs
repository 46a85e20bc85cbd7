//! `remora mv`: renames within a server.

use remora_wire::nfs3::Status;

use crate::args::Mv;
use crate::cp::transfer::destination::no_directory;
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
        Err(e) if e.status() == Some(Status::NoEnt) => None,
        there => Some(there.map_err(failed_to)?),
    };
    let is_there = there.is_some();
    let (to_dir, new_name) = match (there, to.remote.parent(&to.parts).await) {
        (Some(dir), _) if dir.is_dir() => (dir, name),
        _ if to.is_dir && !node.is_dir() => return Err(Error::refused(&args.to, no_directory(is_there))),
        (_, Ok(Some(found))) => found,
        (_, Ok(None)) => return Err(Error::refused(&args.to, "this is the export itself")),
        (_, Err(e)) => return Err(failed_to(e)),
    };
    let is_same = from.path == to.path || (from_dir.fh == to_dir.fh && name == new_name);
    let is_into_itself = node.fh == to_dir.fh || is_below(&to.path, &from.path);
    let (here, there) = ((&from_dir.fh, name.as_bytes()), (&to_dir.fh, new_name.as_bytes()));
    if is_same {
        return Err(Error::refused(&args.to, "source and destination are the same"));
    }
    match remote.rename(&node, here, there).await {
        // It is for the server to say so: what a path leads to is not known here where there are links.
        Err(e) if e.status() == Some(Status::Inval) && node.is_dir() && is_into_itself => {
            Err(Error::refused(&args.from, format!("cannot be moved into itself ({})", args.to)))
        }
        moved => moved.map_err(failed_to),
    }
}

/// Whether a path leads through a directory that has the other one.
fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}
